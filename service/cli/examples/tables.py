"""The examples of commands about tables, backups and namespaces."""

from service.cli.examples.shared import (
    BACKED_UP,
    BACKUP,
    CREATE,
    FIRST,
    ORDERS,
    REQUEST,
    SECOND,
    SMALL_FILES,
    TWO_SNAPSHOTS,
    example,
    write,
)

EXAMPLES = (
    example("Create a table from its file", "firn table create orders.yaml", "created shop.orders\n", ()),
    example(
        "Create one from a schema's file and a properties file",
        "firn table create visits --schema visits.yaml --properties visits.properties --partition-by at:day",
        "created default.visits\n",
        (),
    ),
    example(
        "Create one that is split by ranges of its first key column",
        "firn table create readings.yaml",
        "created default.readings\nit is split at h, p\n",
        (),
    ),
    example(
        "Create one unless it exists",
        "firn table create orders.yaml --if-not-exists",
        "shop.orders already exists\n",
        (CREATE,),
    ),
    example(
        "List the tables of a namespace",
        "firn table list --namespace shop",
        "orders\nvisits\n",
        (CREATE, "firn table create visits --namespace shop --schema visits.yaml"),
    ),
    example(
        "Show the state of all tables",
        "firn table status --all-namespaces",
        "NAMESPACE  TABLE   FILES  SMALL     SIZE  COMPACTION\n"
        "shop       orders      1      1  … KiB  not needed\n"
        "1 table, 1 file, 1 small, … KiB; 0 to compact\n",
    ),
    example(
        "Describe a table",
        "firn table describe orders --namespace shop",
        "table           shop.orders\n"
        "description     one row per order\n"
        "rows            3\n"
        "files           1, 1 small\n"
        "size            … KiB\n"
        "snapshots       1, the last …\n"
        "primary key     id\n"
        "partitioned by  month(placed_at)\n"
        "compression     zstd\n"
        "compaction      recommend\n"
        "\n"
        "COLUMN     TYPE           REQUIRED\n"
        "id         long           yes\n"
        "customer   string         yes\n"
        "amount     decimal(10,2)  no\n"
        "placed_at  timestamptz    no\n",
    ),
    example("Rename a table", "firn table rename orders.yaml orders_2025", "renamed shop.orders to orders_2025\n"),
    example("Drop a table, and be able to restore it", "firn table drop shop.orders --yes", "dropped shop.orders…\n"),
    example(
        "Drop a table and delete its files without confirmation",
        "firn table drop orders.yaml --purge --yes",
        "dropped shop.orders and deleted its files\n",
    ),
    example("Delete a table for good", "firn table delete shop.orders --force", "deleted shop.orders\n"),
    example(
        "Restore a dropped table",
        "firn table restore orders.yaml",
        "restored shop.orders\n",
        (*ORDERS, "firn table drop orders.yaml --yes"),
    ),
    example(
        "Delete all rows of a table, and set new split points",
        "firn table reinitialise orders.yaml --split-points splits.txt --yes",
        "shop.orders is empty: 3 rows deleted\nit is split at 100, 200\n",
    ),
    example(
        "Resume scheduled maintenance of a table",
        "firn table online orders.yaml",
        "shop.orders is online\n",
        (*ORDERS, "firn table offline orders.yaml"),
    ),
    example("Pause scheduled maintenance of a table", "firn table offline orders.yaml", "shop.orders is offline\n"),
    example("Merge a table's small files", "firn table compact orders.yaml", "4 files became 1 in … ms\n", SMALL_FILES),
    example(
        "Show what would be merged",
        "firn table compact orders --namespace shop --dry-run",
        "4 files of … KiB would become 1; the table would have 1\n",
        SMALL_FILES,
    ),
    example(
        "Change the partitioning, and keep the old layout",
        "firn table repartition orders.yaml --partition-by customer --keep-old",
        "3 rows are now in 3 partitions and 3 files\nthe old layout is kept as …\n",
    ),
    example(
        "Show which partitions there would be",
        "firn table repartition orders.yaml --partition-by customer --estimate",
        "PARTITION      ROWS  ABOUT\n"
        "customer=Ann      1  …\n"
        "customer=Bo       1  …\n"
        "customer=Cleo     1  …\n"
        "3 partitions\n",
    ),
    example(
        "Add a column and rename another",
        "firn table alter orders.yaml --add note=string --rename customer=buyer",
        "altered shop.orders\n",
    ),
    example(
        "Apply the changes in a file, and one more",
        "firn table alter orders.yaml --changes changes.yaml --set compaction.min_files_to_compact=5",
        "altered shop.orders\n",
    ),
    example(
        "Show how a table was changed",
        "firn table history orders.yaml",
        "           SNAPSHOT  TIME               OPERATION  ROWS  FILES  REQUEST\n…\n2 snapshots\n",
        TWO_SNAPSHOTS,
    ),
    example(
        "Show the last change",
        "firn table history orders.yaml --limit 1",
        "           SNAPSHOT  TIME               OPERATION  ROWS  FILES  REQUEST\n"
        "…\n"
        "1 of 2 snapshots; there are older ones, use --limit to see more\n",
        TWO_SNAPSHOTS,
    ),
    example(
        "Show what changed between two snapshots",
        f"firn table diff orders.yaml {FIRST} {SECOND}",
        "   id  customer  amount  placed_at\n"
        "+   4  Bo        4.50    2026-03-04T10:00:00Z\n"
        "1 inserted, 0 deleted, 0 updated\n",
        TWO_SNAPSHOTS,
    ),
    example(
        "Return a table to a snapshot",
        f"firn table rollback orders.yaml --as-of {FIRST} --yes",
        "rolled back: 4 rows before, 3 after\n",
        TWO_SNAPSHOTS,
    ),
    example(
        "Undo one change",
        f"firn table undo orders.yaml {REQUEST} --yes",
        "WRITE undone: 1 row removed, 0 restored\n",
        (*TWO_SNAPSHOTS, write(5)),
    ),
    example(
        "List a table's backups",
        "firn backup list orders.yaml",
        "BACKUP                                      KEPT UNTIL         ROWS     SIZE  BEFORE\n"
        "backup-…  …Z     3  … KiB  DELETE\n"
        "1 backup\n",
        BACKED_UP,
    ),
    example(
        "Restore a backup, and keep the current state",
        f"firn backup restore orders.yaml {BACKUP} --backup",
        "restored: 2 rows before, 3 after\nthe previous state is kept as backup-…\n",
        BACKED_UP,
    ),
    example("Delete a backup", f"firn backup delete orders.yaml {BACKUP} --yes", "deleted\n", BACKED_UP),
    example(
        "Compact all tables that need it",
        "firn compact --all-recommended",
        "shop.orders: 4 files became 1 in … ms\n",
        SMALL_FILES,
    ),
    example(
        "Check whether one table needs it",
        "firn compact --all-recommended --table orders --dry-run",
        "shop.orders: would be compacted: …\n",
        SMALL_FILES,
    ),
    example(
        "List partitions",
        "firn table partitions shop.orders",
        "PARTITION                ROWS  FILES  SMALL     SIZE\n"
        "placed_at_month=2026-03     3      1      1  … KiB\n"
        "1 partition\n",
    ),
    example(
        "Show files that nothing refers to",
        "firn table orphans shop.orders --dry-run",
        "0 files of 0 B would be deleted\n",
    ),
    example("Create a namespace", "firn namespace create shop", "created shop\n", ()),
    example(
        "List namespaces",
        "firn namespace list",
        "shop\nwebsite\n",
        ("firn namespace create shop", "firn namespace create website"),
    ),
    example(
        "Drop an empty namespace",
        "firn namespace drop shop",
        "dropped shop\n",
        ("firn namespace create shop", "firn namespace create website"),
    ),
)

"""Examples of `firn table …`, `firn backup …` and `firn compact`."""

from service.cli.command import CommandExample, Request
from service.cli.examples.setup import CREATE, FILES, ORDERS, SCHEMA_YAML, example, write

_SPLIT_YAML = """\
table: readings
schema:
  fields:
    sensor: {type: string, required: true}
    value: {type: double}
  primary_key: [sensor]
split_points: [h, p]
"""
_PROPERTIES = """\
# properties of the table
compression = zstd
compaction.min_files_to_compact = 5
"""
_CHANGES = """\
add_columns:
  note: {type: string}
move_columns:
  - {column: note, after: customer}
set_properties:
  compaction: {mode: auto}
"""
_DELETE: Request = {"operation": "DELETE", "namespace": "shop", "table": "orders", "filter": {"id": 1}}
_SMALL_FILES: tuple[str | Request, ...] = (CREATE, *(write(i) for i in range(1, 5)))
_TWO_SNAPSHOTS = (*ORDERS, write(4))
_BACKED_UP: tuple[str | Request, ...] = (*ORDERS, {**_DELETE, "create_backup": True})
_BACKUP = "backup-20260301T100000000Z-delete-1f0c9a7e"
_BACKUP_NAME = {_BACKUP: (1, "backup")}
_REQUEST = "84f0f3c9b1a04a6d8f6c5e1d2b7a9f30"
_FIRST, _SECOND = "4113542698571253187", "1255905574727858846"
_SNAPSHOTS = {_FIRST: (2, "metadata.snapshot_id"), _SECOND: (1, "metadata.snapshot_id")}

TABLES: tuple[CommandExample, ...] = (
    example("Create a table from its file", "firn table create orders.yaml", "created shop.orders\n", ()),
    CommandExample(
        "Create one from a schema's file and a properties file",
        "firn table create visits --schema visits.yaml --properties visits.properties --partition-by at:day",
        "created default.visits\n",
        files={"visits.yaml": SCHEMA_YAML, "visits.properties": _PROPERTIES},
    ),
    CommandExample(
        "Create one that is split by ranges of its first key column",
        "firn table create readings.yaml",
        "created default.readings\nit is split at h, p\n",
        files={"readings.yaml": _SPLIT_YAML},
    ),
    example(
        "Create one unless it exists",
        "firn table create orders.yaml --if-not-exists",
        "shop.orders already exists\n",
        (CREATE,),
    ),
    CommandExample(
        "List the tables of a namespace",
        "firn table list --namespace shop",
        "orders\nvisits\n",
        (CREATE, "firn table create visits --namespace shop --schema visits.yaml"),
        {**FILES, "visits.yaml": SCHEMA_YAML},
    ),
    example(
        "Show the state of all tables",
        "firn table status",
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
    example(
        "Drop a table, and be able to restore it", "firn table drop orders --namespace shop", "dropped shop.orders…\n"
    ),
    example(
        "Drop a table and delete its files without confirmation",
        "firn table drop orders.yaml --purge --force",
        "dropped shop.orders and deleted its files\n",
    ),
    example(
        "Restore a dropped table",
        "firn table restore orders.yaml",
        "restored shop.orders\n",
        (*ORDERS, "firn table drop orders.yaml"),
    ),
    CommandExample(
        "Delete all rows of a table, and set new split points",
        "firn table reinitialise orders.yaml --split-points splits.txt --force",
        "shop.orders is empty: 3 rows deleted\nit is split at 100, 200\n",
        ORDERS,
        {**FILES, "splits.txt": "100\n200\n"},
    ),
    example(
        "Resume scheduled maintenance of a table",
        "firn table online orders.yaml",
        "shop.orders is online\n",
        (*ORDERS, "firn table offline orders.yaml"),
    ),
    example("Pause scheduled maintenance of a table", "firn table offline orders.yaml", "shop.orders is offline\n"),
    example(
        "Merge a table's small files",
        "firn table compact orders.yaml",
        "4 files became 1 in … ms\n",
        _SMALL_FILES,
    ),
    example(
        "Show what would be merged",
        "firn table compact orders --namespace shop --dry-run",
        "4 files of … KiB would become 1; the table would have 1\n",
        _SMALL_FILES,
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
    CommandExample(
        "Apply the changes in a file, and one more",
        "firn table alter orders.yaml --changes changes.yaml --set compaction.min_files_to_compact=5",
        "altered shop.orders\n",
        ORDERS,
        {**FILES, "changes.yaml": _CHANGES},
    ),
    example(
        "Show how a table was changed",
        "firn table history orders.yaml",
        "           SNAPSHOT  TIME               OPERATION  ROWS  FILES  REQUEST\n…\n2 snapshots\n",
        _TWO_SNAPSHOTS,
    ),
    example(
        "Leave out the last change",
        "firn table history orders.yaml --offset 1",
        "           SNAPSHOT  TIME               OPERATION  ROWS  FILES  REQUEST\n"
        "…  …Z  WRITE        +3     +1  …\n"
        "1 of 2 snapshots\n",
        _TWO_SNAPSHOTS,
    ),
    example(
        "Show what changed between two snapshots",
        f"firn table diff orders.yaml {_FIRST} {_SECOND}",
        "   id  customer  amount  placed_at\n"
        "+   4  Bo        4.50    2026-03-04T10:00:00Z\n"
        "1 inserted, 0 deleted, 0 updated\n",
        _TWO_SNAPSHOTS,
        placeholders=_SNAPSHOTS,
    ),
    example(
        "Return a table to a snapshot",
        f"firn table rollback orders.yaml {_FIRST} --force",
        "rolled back: 4 rows before, 3 after\n",
        _TWO_SNAPSHOTS,
        placeholders=_SNAPSHOTS,
    ),
    example(
        "Undo one change",
        f"firn table undo orders.yaml {_REQUEST} --force",
        "WRITE undone: 1 row removed, 0 restored\n",
        (*_TWO_SNAPSHOTS, write(5)),
        placeholders={_REQUEST: (2, "metadata.request_id")},
    ),
    example(
        "List a table's backups",
        "firn backup list orders.yaml",
        "BACKUP                                      KEPT UNTIL         ROWS     SIZE  BEFORE\n"
        "backup-…  …Z     3  … KiB  DELETE\n"
        "1 backup\n",
        _BACKED_UP,
    ),
    example(
        "Restore a backup, and keep the current state",
        f"firn backup restore orders.yaml {_BACKUP} --keep",
        "restored: 2 rows before, 3 after\nthe previous state is kept as backup-…\n",
        _BACKED_UP,
        placeholders=_BACKUP_NAME,
    ),
    example(
        "Delete a backup",
        f"firn backup delete orders.yaml {_BACKUP} --force",
        "deleted\n",
        _BACKED_UP,
        placeholders=_BACKUP_NAME,
    ),
    example(
        "Compact all tables that need it",
        "firn compact --all-recommended",
        "shop.orders: 4 files became 1 in … ms\n",
        _SMALL_FILES,
    ),
    example(
        "Check whether one table needs it",
        "firn compact --all-recommended --table orders --dry-run",
        "shop.orders: would be compacted: …\n",
        _SMALL_FILES,
    ),
)

"""Examples of `firn table …`."""

from service.cli.command import CommandExample
from service.cli.examples.setup import CREATE as CREATE_ORDERS
from service.cli.examples.setup import FILES, ORDERS, PROPERTIES, SCHEMA_YAML, SPLIT_YAML, example

CREATE = (
    example("Create a table from its file", "firn table create orders.yaml", "created shop.orders\n", ()),
    CommandExample(
        "Create one from a schema's file and a properties file",
        "firn table create visits --schema visits.yaml --properties visits.properties --partition-by at:day",
        "created default.visits\n",
        files={"visits.yaml": SCHEMA_YAML, "visits.properties": PROPERTIES},
    ),
    CommandExample(
        "Create one that is split by ranges of its first key column",
        "firn table create readings.yaml",
        "created default.readings\nit is split at h, p\n",
        files={"readings.yaml": SPLIT_YAML},
    ),
    example(
        "Create one unless it exists",
        "firn table create orders.yaml --if-not-exists",
        "shop.orders is there already\n",
        (CREATE_ORDERS,),
    ),
)
LIST = (
    CommandExample(
        "List the tables of a namespace",
        "firn table list --namespace shop",
        "orders\nvisits\n",
        (CREATE_ORDERS, "firn table create visits --namespace shop --schema visits.yaml"),
        {**FILES, "visits.yaml": SCHEMA_YAML},
    ),
)
STATUS = (
    example(
        "Show the state of all tables",
        "firn table status",
        "NAMESPACE  TABLE   FILES  SMALL     SIZE  COMPACTION\n"
        "shop       orders      1      1  … KiB  not needed\n"
        "1 table, 1 file, 1 small, … KiB; 0 to compact\n",
    ),
)
DESCRIBE = (
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
)
RENAME = (
    example("Rename a table", "firn table rename orders.yaml orders_2025", "renamed shop.orders to orders_2025\n"),
)
DROP = (
    example(
        "Drop a table, and be able to restore it", "firn table drop orders --namespace shop", "dropped shop.orders…\n"
    ),
    example(
        "Drop a table and delete its files without confirmation",
        "firn table drop orders.yaml --purge --force",
        "dropped shop.orders and deleted its files\n",
    ),
)
RESTORE = (
    example(
        "Restore a dropped table",
        "firn table restore orders.yaml",
        "restored shop.orders\n",
        (*ORDERS, "firn table drop orders.yaml"),
    ),
)
REINITIALISE = (
    CommandExample(
        "Delete all rows of a table, and set new split points",
        "firn table reinitialise orders.yaml --split-points splits.txt --force",
        "shop.orders is empty: 3 rows deleted\nit is split at 100, 200\n",
        ORDERS,
        {**FILES, "splits.txt": "100\n200\n"},
    ),
)
ONLINE = (
    example(
        "Resume scheduled maintenance of a table",
        "firn table online orders.yaml",
        "shop.orders is online\n",
        (*ORDERS, "firn table offline orders.yaml"),
    ),
)
OFFLINE = (
    example("Pause scheduled maintenance of a table", "firn table offline orders.yaml", "shop.orders is offline\n"),
)

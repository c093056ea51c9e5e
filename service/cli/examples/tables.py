"""Examples of `firn table …`."""

from service.cli.command import Example
from service.cli.examples.given import CREATE as CREATE_ORDERS
from service.cli.examples.given import FILES, ORDERS, PROPERTIES, SCHEMA_YAML, SPLIT_YAML

CREATE = (
    Example("Create a table from its file", "firn table create orders.yaml", "created shop.orders\n", (), FILES),
    Example(
        "Create one from a schema's file and a properties file",
        "firn table create visits --schema visits.yaml --properties visits.properties --partition-by at:day",
        "created default.visits\n",
        files={"visits.yaml": SCHEMA_YAML, "visits.properties": PROPERTIES},
    ),
    Example(
        "Create one that is split by ranges of its first key",
        "firn table create readings.yaml",
        "created default.readings\nit is split at h, p\n",
        files={"readings.yaml": SPLIT_YAML},
    ),
    Example(
        "Create one unless it is there",
        "firn table create orders.yaml --if-not-exists",
        "shop.orders is there already\n",
        (CREATE_ORDERS,),
        FILES,
    ),
)
LIST = (
    Example(
        "List the tables of a namespace",
        "firn table list --namespace shop",
        "orders\nvisits\n",
        (CREATE_ORDERS, "firn table create visits --namespace shop --schema visits.yaml"),
        {**FILES, "visits.yaml": SCHEMA_YAML},
    ),
)
STATUS = (
    Example(
        "See how all tables are",
        "firn table status",
        "NAMESPACE  TABLE   FILES  SMALL     SIZE  COMPACTION\n"
        "shop       orders      1      1  … KiB  not needed\n"
        "1 table, 1 file, 1 small, … KiB; 0 to compact\n",
        ORDERS,
        FILES,
    ),
)
DESCRIBE = (
    Example(
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
        ORDERS,
        FILES,
    ),
)
RENAME = (
    Example(
        "Give a table another name",
        "firn table rename orders.yaml orders_2025",
        "renamed shop.orders to orders_2025\n",
        ORDERS,
        FILES,
    ),
)
DROP = (
    Example(
        "Drop a table, and be able to restore it",
        "firn table drop orders --namespace shop",
        "dropped shop.orders…\n",
        ORDERS,
        FILES,
    ),
    Example(
        "Drop a table and delete its files, without a question",
        "firn table drop orders.yaml --purge --force",
        "dropped shop.orders and deleted its files\n",
        ORDERS,
        FILES,
    ),
)
RESTORE = (
    Example(
        "Bring a dropped table back",
        "firn table restore orders.yaml",
        "restored shop.orders\n",
        (*ORDERS, "firn table drop orders.yaml"),
        FILES,
    ),
)
REINITIALISE = (
    Example(
        "Delete all rows of a table, and split it anew",
        "firn table reinitialise orders.yaml --split-points splits.txt --force",
        "shop.orders is empty: 3 rows deleted\nit is split at 100, 200\n",
        ORDERS,
        {**FILES, "splits.txt": "100\n200\n"},
    ),
)
ONLINE = (
    Example(
        "Have upkeep look after a table again",
        "firn table online orders.yaml",
        "shop.orders is online\n",
        (*ORDERS, "firn table offline orders.yaml"),
        FILES,
    ),
)
OFFLINE = (
    Example(
        "Have upkeep leave a table alone", "firn table offline orders.yaml", "shop.orders is offline\n", ORDERS, FILES
    ),
)

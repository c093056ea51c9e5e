"""The examples of commands about tables that take a file a day."""

from service.cli.command import Request
from service.cli.examples.shared import example

CREATE = "firn table create sales_table.yaml"
FIRST = "firn table ingest sales_table.yaml sales_2024-01-01.csv --date 2024-01-01"
INGESTED = (CREATE, FIRST)
TWO_DAYS = (*INGESTED, "firn table ingest sales_table.yaml sales_2024-01-02.csv --date 2024-01-02")
# The third day has a column that the table lacks: it is refused, which a request reports as a failed day.
DRIFTED: Request = {
    "operation": "INGEST_RANGE",
    "namespace": "shop",
    "table": "sales",
    "source": "stores_{date}.csv",
    "from": "2024-01-03",
    "to": "2024-01-03",
}
REJECTED = "  1 row rejected, 1 quarantined in sales__quarantine\n    1  quantity > 0\n"

EXAMPLES = (
    example(
        "Create a table that takes a file a day",
        CREATE,
        "✓ Table created: shop.sales\n  Base path: tables/sales/\n",
        (),
    ),
    example(
        "Ingest the file of a day",
        FIRST,
        f"✓ Ingested 2 rows\n{REJECTED}  Destination: shop.sales, 2024-01\n",
        (CREATE,),
    ),
    example(
        "Ingest it again by the table's name: nothing changes",
        "firn table ingest shop.sales sales_2024-01-01.csv --date 2024-01-01",
        "✓ Unchanged: sales_2024-01-01.csv is ingested for 2024-01-01 already\n",
        INGESTED,
    ),
    example(
        "Show what an ingest would do",
        "firn table ingest sales_table.yaml sales_2024-01-02.csv --date 2024-01-01 --dry-run",
        "2 rows would be ingested\n  0 rows rejected\n  2 rows of 2024-01-01 would be replaced\n"
        "  Destination: shop.sales, 2024-01\ningest exactly this with --plan …\n",
        INGESTED,
    ),
    example(
        "Ingest many days",
        "firn table ingest-range sales_table.yaml 'sales_{date}.csv' --from 2023-12-31 --to 2024-01-02",
        "✓ Ingested 2 days (4 rows)\n  1 row rejected, 1 quarantined…\n…\n"
        "  1 day without a file: 2023-12-31\n  Destination: shop.sales\n",
        (CREATE,),
    ),
    example(
        "Ingest what is new in the watched folder",
        "firn table watch watched.yaml --once",
        "…\n2 files: …\n",
        ("firn table create watched.yaml",),
    ),
    example(
        "Ingest the rows that a rule rejected before it was corrected",
        "firn table replay sales_table.yaml",
        "✓ Replayed 1 quarantined row: 1 ingested\n  0 rows rejected\n",
        (*INGESTED, "firn table apply sales_table.yaml --dataset-config corrected.yaml --yes"),
    ),
    example(
        "Adopt a column that a refused file has",
        "firn table accept-drift sales_table.yaml --dry-run",
        "1 change would be accepted\n  store added…\n",
        (*INGESTED, DRIFTED),
    ),
    example(
        "Show what a changed file would change",
        "firn table apply sales_table.yaml --dataset-config corrected.yaml --dry-run",
        "1 change to shop.sales would be applied\n  ~ dataset.filters  (…)\n      - …\n      + …\n",
        INGESTED,
    ),
    example(
        "Write the files for readers without Iceberg",
        "firn table export sales_table.yaml",
        "✓ Exported 2 files\n  tables/sales/2024-01-01.parquet: 2 rows, …\n"
        "  tables/sales/2024-01-02.parquet: 2 rows, …\n",
        TWO_DAYS,
    ),
    example(
        "Show the ingestions of a table",
        "firn table status sales_table.yaml",
        "table          shop.sales\n"
        "ingestions     2\n"
        "dates          2024-01-01 to 2024-01-02\n"
        "missing dates  none\n"
        "rows           4\n"
        "files          2\n"
        "size           … KiB\n"
        "compactions    0\n"
        "compacted      -\n"
        "ledger         …\n"
        "\n"
        "PERIOD   DAYS  ROWS  FILES   SIZE  COMPACTED  MISSING\n"
        "2024-01     2     4      2  … KiB  no         …\n",
        TWO_DAYS,
    ),
    example(
        "Read rows by SQL",
        'firn table query sales_table.yaml "SELECT product, sum(quantity) AS sold FROM sales GROUP BY 1 ORDER BY 1"',
        "product  sold\nBagel       3\nCoffee      4\n✓ 2 rows returned\n",
        TWO_DAYS,
    ),
    example(
        "Make the days of a month one file",
        "firn table compact sales_table.yaml --period 2024-01 --allow-incomplete",
        "✓ Compacted 2 files (4 rows)\n  Output: shop.sales, 2024-01\n",
        TWO_DAYS,
    ),
)

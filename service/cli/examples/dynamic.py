"""The examples of commands about dynamic tables."""

from service.cli.examples.shared import ORDERS, example, write

CREATE = "firn dynamic create -f spending.sql"
SPENDING = (*ORDERS, CREATE)
LARGEST = "CREATE DYNAMIC TABLE shop.largest TARGET_LAG = downstream AS SELECT max(spent) AS most FROM spending"

EXAMPLES = (
    example(
        "Declare a table as the result of a query",
        CREATE,
        "✓ Created shop.spending: 3 rows\n  refreshed incrementally: …\n",
    ),
    example(
        "See what a statement would do",
        f"{CREATE} --dry-run",
        "shop.spending would be created\n  refreshed incrementally: …\n  columns: customer, spent\n",
    ),
    example(
        "List dynamic tables",
        "firn dynamic list -n shop",
        "TABLE          STATE   LAG  TARGET     LAST  READS\n"
        "shop.spending  active  …  5 minutes  FULL  shop.orders\n"
        "1 dynamic table\n",
        SPENDING,
    ),
    example(
        "Describe one",
        "firn dynamic describe shop.spending",
        "table  shop.spending\nstate  active\nlag  …\ntarget lag  5 minutes\nmode  AUTO\n"
        "scheduler  enabled\nrefreshed  …\n"
        "columns  customer, spent\nreads  shop.orders\nSELECT customer, sum(amount) AS spent\n"
        "FROM orders GROUP BY customer\n…\n",
        SPENDING,
    ),
    example(
        "See why a query is computed in full each time",
        "firn dynamic explain -n shop -f -",
        "in full at each refresh\n  LIMIT: …\n  s0: shop.orders (…)\n",
        stdin="SELECT customer FROM orders ORDER BY amount DESC LIMIT 10",
    ),
    example(
        "Bring one up to date",
        "firn dynamic refresh shop.spending",
        "✓ Refreshed shop.spending (…): 1 added, 1 removed\n",
        (*SPENDING, write(4)),
    ),
    example(
        "Check that its rows are those of its query",
        "firn dynamic audit shop.spending",
        "✓ shop.spending has the rows of its query: 3 rows compared\n",
        SPENDING,
    ),
    example(
        "Refresh it less often",
        "firn dynamic alter shop.spending --lag '1 hour'",
        "✓ shop.spending: active, target lag 1 hour\n",
        SPENDING,
    ),
    example(
        "Suspend it",
        "firn dynamic alter shop.spending --suspend --reason 'orders are being loaded'",
        "✓ shop.spending: suspended: orders are being loaded, target lag 5 minutes\n",
        SPENDING,
    ),
    example(
        "Drop it",
        "firn dynamic drop shop.spending --yes",
        "✓ Dropped shop.spending\n  `firn table restore` can bring it back until …\n",
        SPENDING,
    ),
    example(
        "List its refreshes",
        "firn dynamic history shop.spending",
        "STARTED  TABLE  STATE  MODE  ADDED  REMOVED  TOOK  REASON\n"
        "…  shop.spending  done  FULL  3  0  …  FIRST_BUILD\n"
        "1 refresh\n",
        SPENDING,
    ),
    example(
        "Draw what reads what",
        "firn dynamic graph -n shop",
        "shop.orders\n└─ shop.spending  [5 minutes; lag …; …]\n   └─ shop.largest  [downstream; lag …; …]\n",
        (*SPENDING, {"operation": "CREATE_DYNAMIC_TABLE", "sql": LARGEST}),
    ),
)

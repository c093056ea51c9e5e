"""Examples of `firn table compact`, `repartition` and `alter`, and of `firn compact`."""

from service.cli.command import CommandExample, Request
from service.cli.examples.setup import CREATE, FILES, ORDERS, example, write

_SMALL: tuple[str | Request, ...] = (CREATE, *(write(i) for i in range(1, 5)))

_CHANGES = """\
add_columns:
  note: {type: string}
move_columns:
  - {column: note, after: customer}
set_properties:
  compaction: {mode: auto}
"""

COMPACT = (
    example("Merge a table's small files", "firn table compact orders.yaml", "4 files became 1 in … ms\n", _SMALL),
    example(
        "Show what would be merged",
        "firn table compact orders --namespace shop --dry-run",
        "4 files of … KiB would become 1; the table would have 1\n",
        _SMALL,
    ),
)
REPARTITION = (
    example(
        "Change the partitioning, and keep the old layout",
        "firn table repartition orders.yaml --partition-by customer --keep-old",
        "3 rows now lie in 3 partitions and 3 files\nthe old layout is kept as …\n",
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
)
ALTER = (
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
)
COMPACT_ALL = (
    example(
        "Compact all tables that need it",
        "firn compact --all-recommended",
        "shop.orders: 4 files became 1 in … ms\n",
        _SMALL,
    ),
    example(
        "Check whether one table needs it",
        "firn compact --all-recommended --table orders --dry-run",
        "shop.orders: would be compacted: …\n",
        _SMALL,
    ),
)

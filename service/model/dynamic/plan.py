"""How a refresh computes the change of a dynamic table: steps of Spark SQL over views. Plain values.

The views that exist before the first step, for the source with number i:

- `s{i}_new`: its rows at the snapshot of this refresh;
- `s{i}_old`: its rows at the snapshot of the last refresh;
- `s{i}_delta`, if it has changed: the rows that came and went, in the columns that the query reads, and their weight;
- `result`: the rows of the result as they are, with hidden columns.
"""

from dataclasses import dataclass
from typing import Literal

from service.model.dynamic.direct import DirectChange
from service.model.names import RESERVED_COLUMN_PREFIX

WEIGHT = f"{RESERVED_COLUMN_PREFIX}weight"
"""The column of a change that says how often a row came (above 0) or went (below 0)."""
RESULT = "result"

RefreshMode = Literal["NO_DATA", "INCREMENTAL", "FULL"]


def old(source: int) -> str:
    return f"s{source}_old"


def new(source: int) -> str:
    return f"s{source}_new"


def delta(source: int) -> str:
    return f"s{source}_delta"


@dataclass(frozen=True)
class Step:
    """A view to make, over those that were made before."""

    view: str
    sql: str
    kept: bool = False
    """Whether several later steps read it, so that its rows are to be computed once (in memory, or on disk)."""


@dataclass(frozen=True)
class WeightedRows:
    """The rows of the result that come and go, with their weights; not yet added up."""

    view: str


@dataclass(frozen=True)
class ReplacedKeys:
    """Of the result's rows with certain keys, only these are left."""

    keys: str
    """The view of the keys; its columns are called as those of the result. Without columns, all rows are replaced if
    it has a row."""
    columns: tuple[str, ...]
    rows: str
    """The view of the rows with these keys, with all columns of the result."""


@dataclass(frozen=True)
class IncrementalPlan:
    """How the change of the result is computed."""

    steps: tuple[Step, ...]
    change: WeightedRows | ReplacedKeys
    direct: DirectChange | None = None
    """The same change as it is computed without Spark, if it can be and few rows of the sources have changed."""

"""An edit as values: which rows it affects, how it changes them, and which rows it adds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from service.model.filters.predicates import EVERY_ROW, Predicate
from service.model.schema.columns import Column
from service.model.schema.derived import DerivedColumn
from service.model.schema.types import ColumnType, TableSchema

# Marks whether a record has a column: an absent column keeps its value, null sets it.
SENT_PREFIX = "_firn_sent_"
# A record's position in its request.
RECORD_NUMBER = "_firn_row"


@dataclass(frozen=True)
class Assignment:
    """A column and its new value."""

    column: str
    type: ColumnType
    value: Any


@dataclass(frozen=True)
class MergeRule:
    """How records are merged into a table: the key columns, and the columns that change in matching rows."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    update: tuple[str, ...]
    partly_sent: frozenset[str] = frozenset()
    required_to_insert: tuple[str, ...] = ()
    replaces: bool = False
    """Whether only the newest of several rows with one key stays; else all of them are updated."""


@dataclass(frozen=True)
class ByFilter:
    """The rows that match a predicate. They get the assigned values, or are deleted if there are no assignments."""

    predicate: Predicate
    assignments: tuple[Assignment, ...] | None = None


@dataclass(frozen=True)
class StagedRecords:
    """Records in an internal table, which only Spark reads, because they need not fit into memory.

    Like an Arrow table of records, it has a column that numbers them, and the marks of what was sent. Columns that were
    never sent may be missing.
    """

    source: str
    """The internal table's name in Spark."""
    count: int
    bytes: int
    columns: frozenset[str]
    """The columns of the edited table that it has."""
    ends: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """The least and greatest value of key columns."""
    keep_last: bool = False
    """Whether it has several records with one key, of which only the last counts."""


@dataclass(frozen=True)
class ByKey:
    """The rows with the records' keys, which are updated. A record without a row is inserted.

    Only rows that match `within` are considered.
    """

    records: pa.Table | StagedRecords
    how: MergeRule
    within: Predicate = EVERY_ROW


@dataclass(frozen=True)
class SortKey:
    column: Column
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Duplicates:
    """All rows of each key except the first in an order, among those that match `within`; they are deleted."""

    keys: tuple[str, ...]
    order: tuple[SortKey, ...] = ()
    keep_last: bool = False
    within: Predicate = EVERY_ROW


@dataclass(frozen=True)
class Edit:
    """An edit of a table with this schema; `added` are rows to append in any case.

    Derived columns are computed for new rows that lack them, and again for rows whose source columns change.
    """

    schema: TableSchema
    which: ByFilter | ByKey | Duplicates
    added: pa.Table | None = None
    derived: tuple[DerivedColumn, ...] = ()
    kept: tuple[str, ...] = ()
    """The table's internal columns whose values rows keep."""

    @property
    def within(self) -> Predicate:
        """Matches every row that the edit affects, and must match the rows that records become."""
        return self.which.predicate if isinstance(self.which, ByFilter) else self.which.within

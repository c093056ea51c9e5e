"""What an edit is, as values: which rows it concerns, what becomes of them, and what is added."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from service.columns import Column
from service.derived import Derived
from service.predicates import EVERY_ROW, Predicate
from service.schema import ColumnType, TableSchema

# Marks which of a record's columns were sent: an absent one keeps its value, a null one sets it.
SENT = "_firn_sent_"
# A record's place among those that were sent with it.
PLACE = "_firn_row"


@dataclass(frozen=True)
class Assignment:
    """A column and the value it gets."""

    column: str
    type: ColumnType
    value: Any


@dataclass(frozen=True)
class Merge:
    """How rows meet a table: by which keys, and which columns change where they match."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    update: tuple[str, ...]
    sometimes_sent: frozenset[str] = frozenset()
    needed_to_insert: tuple[str, ...] = ()


@dataclass(frozen=True)
class ByFilter:
    """The rows that a predicate is true of: with assignments they get new values, without they go."""

    predicate: Predicate
    assignments: tuple[Assignment, ...] | None = None


@dataclass(frozen=True)
class ByKey:
    """The rows whose keys records have: where they differ they become what the records say. The other records are new.

    Only rows that `within` is true of are looked at.
    """

    records: pa.Table
    how: Merge
    within: Predicate = EVERY_ROW


@dataclass(frozen=True)
class SortKey:
    column: Column
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Repeats:
    """All rows of each key but the first in an order, of those that `within` is true of: they go."""

    keys: tuple[str, ...]
    order: tuple[SortKey, ...] = ()
    keep_last: bool = False
    within: Predicate = EVERY_ROW


Which: TypeAlias = ByFilter | ByKey | Repeats


@dataclass(frozen=True)
class Edit:
    """An edit of a table with this schema; `added` are rows that come with it whatever the table holds.

    New rows that lack a derived column get it worked out, and in rows that change it follows what it is derived from.
    """

    schema: TableSchema
    which: Which
    added: pa.Table | None = None
    derived: tuple[Derived, ...] = ()

    @property
    def within(self) -> Predicate:
        """What is true of every row that the edit concerns, and must be of every row that records become."""
        return self.which.predicate if isinstance(self.which, ByFilter) else self.which.within

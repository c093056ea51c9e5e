"""What one request of a shared commit does to rows that are found by key, as values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from service.model.edits import MergeRule
from service.model.filters.predicates import Predicate


@dataclass(frozen=True)
class PutRows:
    """Merge records into the table, as UPSERT does. `rows` has a column that numbers them, and marks of what was sent.

    `check_new` gets the records that would become new rows, and raises if they must not.
    """

    rows: pa.Table
    how: MergeRule
    check_new: Callable[[pa.Table], object] = lambda new: None

    @property
    def keys(self) -> pa.Table | None:
        return self.rows.select(list(self.how.keys))


@dataclass(frozen=True)
class MatchRows:
    """Set columns in the rows that match a condition, or delete them. Only rows with one of the keys can match."""

    keys: pa.Table
    condition: Predicate
    new: pa.Table | None = None
    """One row, with the columns to set; None to delete the rows."""


@dataclass(frozen=True)
class AddRows:
    """Add rows, as WRITE does."""

    rows: pa.Table

    @property
    def keys(self) -> pa.Table | None:
        return None


KeyedChange: TypeAlias = PutRows | MatchRows | AddRows


@dataclass(frozen=True)
class RowPlace:
    """Where a row is: a data file, and its position in it."""

    file: str
    position: int


@dataclass(frozen=True)
class RowCounts:
    """How many rows a request inserted, updated, found as they should be, and deleted."""

    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0

    @property
    def changes_rows(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)

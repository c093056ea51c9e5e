"""What a refresh of a dynamic table works on, and what it did."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from service.engine.iceberg.reinitialise import ReinitialisedTable
from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.jobs.edit import EditBase
from service.engine.jobs.edits.publish import StagedEdit
from service.model.schema.types import TableSchema


@dataclass(frozen=True)
class SnapshotRange:
    """A part of a source's history in which no rewrite lies."""

    old_id: int | None
    """None if the table had no snapshot."""
    new_id: int
    differing: tuple[SnapshotFiles, SnapshotFiles] | None
    """The rows that only the older and only the newer snapshot has, by files and places; None if only Spark can tell
    them."""


class SourceValues(Protocol):
    """The rows of a source, found in this process by their values."""

    def having(self, column: str, values: pa.Array, *, old: bool) -> pa.Table | None:
        """The rows with one of some values in a column, in the columns of the source's change: at the snapshot of the
        refresh, or of the last one (`old`). None if they are many, or only Spark can read them."""


@dataclass(frozen=True)
class RefreshSource:
    """A source of a query, at the snapshots of the last refresh and of this one."""

    number: int
    """Its views are called by it: `s0_new`."""
    table: str
    """Its name in Spark."""
    schema_id: int
    """The table's schema by which all its files are read, also those that were written under an earlier one."""
    schema: TableSchema
    """The columns of the views, in order; all are columns of that schema."""
    needed: tuple[str, ...]
    """Those of them that the query reads: the columns of its change."""
    new_id: int | None
    """None if the table has no snapshot: it has no rows."""
    old_id: int | None = None
    changes: tuple[SnapshotRange, ...] = ()
    """The ranges, from the older snapshot to the newer one, in which rows may have changed; none if no row has."""
    changed: pa.Table | None = None
    """The rows of these ranges that came and went, in the needed columns, with their weights, if they are few: then
    Spark need not read them."""
    stored: SourceValues | None = None

    @property
    def change_schema(self) -> TableSchema:
        """The columns of its change: those that are needed, or one, because rows without columns are not told from no
        rows."""
        fields = tuple(field for field in self.schema.fields if field.name in self.needed)
        return TableSchema(fields or self.schema.fields[:1])


class StoredRows(Protocol):
    """The rows of a result, read in this process: what concerns few rows needs no Spark job."""

    def read(self, paths: Collection[str]) -> pa.Table | None:
        """All rows of some data files, with their places; None if they are many, or only Spark can read them."""

    def having(self, column: str, values: pa.Array) -> pa.Table | None:
        """The rows with one of some values in a column; None as above."""

    def places(self, gone: pa.Table) -> Mapping[str, pa.Array] | None:
        """The places of rows with these contents, each as often as its weight is below 0; None if that is better left
        to Spark, also if not all are found."""


@dataclass(frozen=True)
class RefreshJob:
    """A refresh to compute."""

    base: EditBase
    """The table of the result, and its state."""
    schema: TableSchema
    """The columns of the result as they are stored, with hidden ones."""
    sources: tuple[RefreshSource, ...]
    summary: Mapping[str, str] = field(default_factory=dict)
    """For the result's new snapshot; it has the refresh state."""
    becomes: ReinitialisedTable | None = None
    """If the query is another one: the columns, the partitioning and the properties that the table gets with the
    rows."""
    stored: StoredRows | None = None
    """The result's rows as this process reads them; without it, Spark reads all."""


@dataclass(frozen=True)
class RefreshCounts:
    """What a refresh read and changed."""

    inserted: int = 0
    """Rows that the result did not have. A changed row was deleted and inserted."""
    deleted: int = 0
    unchanged: int = 0
    """Rows of the result that stayed."""
    source_rows: Mapping[int, int] = field(default_factory=dict)
    """How many rows of each changed source, by its number, came or went."""
    keys: int | None = None
    """How many keys of the result were replaced; None if rows were, or if counting them would have taken longer."""
    files_written: int = 0
    files_removed: int = 0
    files_rewritten: int = 0
    """Those that were removed and of which some rows were written again."""


@dataclass(frozen=True)
class StagedRefresh:
    """A refresh whose rows are computed and written; only the commit is missing."""

    edit: StagedEdit
    counts: RefreshCounts

    def discard(self) -> None:
        """Delete what was written, if it is not going to be committed."""
        self.edit.added.discard()

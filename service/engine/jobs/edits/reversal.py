"""What UNDO works on: a change and the table's state, and what was found of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from service.engine.iceberg.scan_tasks import NO_FILES, SnapshotFiles
from service.engine.jobs.edit import EditBase
from service.model.schema.derived import DerivedColumn
from service.model.schema.types import TableSchema

# How many rows with a conflicting key are returned, to find out which requests wrote them.
MOST_MET = 100
# The column with the file of each of these rows.
FILE = "_firn_path"


@dataclass(frozen=True)
class AddedAndRemoved:
    """The rows that a change added and removed. Rows in both were only rewritten."""

    came: SnapshotFiles | pa.Table | None
    went: SnapshotFiles | pa.Table | None
    restores: bool = False
    """Whether the added rows had been in the table before."""


@dataclass(frozen=True)
class UndoReversal:
    """The change to undo, and the table's current state."""

    base: EditBase
    schema: TableSchema
    change: AddedAndRemoved
    within: frozenset[str]
    """The files that may have the rows that the change added."""
    untouched: bool
    """Whether those files have exactly these rows, as they were written."""
    suspects: tuple[AddedAndRemoved, ...] = ()
    """Later changes that may have touched the added rows, or added the removed rows again."""
    keys: tuple[tuple[str, ...], ...] = ()
    """Keys by which no row that is restored may equal a row that was added since."""
    fresh: SnapshotFiles = NO_FILES
    """The table's files that the state after the change did not have."""
    stale: SnapshotFiles = NO_FILES
    """The files that only that state had."""
    late: tuple[DerivedColumn, ...] = ()
    """Derived columns that were added since."""
    required: tuple[str, ...] = ()
    """Required columns that may be null in earlier rows."""
    beside: AddedAndRemoved = AddedAndRemoved(None, None)
    """What later requests of the same commit changed."""

    @property
    def read(self) -> list[SnapshotFiles]:
        """The rows that Spark reads to find what the undo does."""
        if self.untouched:
            return []
        changes = (self.change, *self.suspects, self.beside)
        sides = [side for one in changes for side in (one.came, one.went) if isinstance(side, SnapshotFiles)]
        return [*sides, SnapshotFiles(self.base.snapshot_id or 0, self.within), self.fresh, self.stale]


@dataclass(frozen=True)
class UndoFigures:
    """What an undo does."""

    came: int
    """How many rows the change added."""
    removed: int
    """How many of them are still in the table, and are removed."""
    restored: int
    files: Mapping[str, int]
    """The files with rows that are removed, and how many each has."""
    touched: tuple[int, ...] = ()
    """The suspects that touched the added rows, restored removed rows, or touched what such a suspect added, and so
    on."""
    met: pa.Table | None = None
    """Some rows that were added since and have the key of a row to restore, with their files."""
    lacking: Mapping[str, int] = field(default_factory=dict)
    """Required columns that are null in rows to restore, and in how many."""

    @property
    def changes_rows(self) -> bool:
        return bool(self.removed or self.restored)


@dataclass(frozen=True)
class FewUndo:
    """An undo of few rows that was found without Spark."""

    figures: UndoFigures
    added: pa.Table
    """The rows that the change added, each content once."""
    removed: pa.Table
    """The rows to restore, each as often as it was removed."""
    places: pa.Table
    """`file` and `pos` of the rows to remove."""


def reached(first: Iterable[int], pairs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """The given changes, and all changes that follow from them over any number of pairs."""
    found = set(first)
    for earlier, later in sorted(pairs):
        if earlier in found:
            found.add(later)
    return tuple(sorted(found))

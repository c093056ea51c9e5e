"""Edits whose rows are found and written before the table's lock is held, so that WRITEs only wait for their commit.

What others committed in the meantime is compared with the edit: most of it before the lock is held, and the rest under
the lock. If it concerns the same rows or files, the edit is made again under the lock, as the table is then.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from service.catalog.files.data_files import DataFile, list_files
from service.catalog.lineage import Commit, commits_between
from service.catalog.tables import Table
from service.engine.iceberg.swap import Gate, Tag
from service.engine.jobs.edit import EditBase, FoundRows, find
from service.engine.jobs.edits.publish import StagedEdit, commit_staged
from service.engine.session.engine import Engine
from service.model.call import Call
from service.model.edits import Duplicates, Edit

# How often later commits are compared before the lock is held, while others go on committing.
_ROUNDS = 3
# To search so much takes no longer than a commit, so that it is left for the time under the lock.
_LITTLE_FILES, _LITTLE_BYTES = 50, 4 << 20


@dataclass
class StagedAhead:
    """An edit that was found and written for one state of a table, and the latest state that it also fits."""

    edit: Edit
    rows: FoundRows
    staged: StagedEdit | None
    """None if it changes nothing."""
    fits: Table
    _given: bool = field(default=False, init=False)

    def commit(self, engine: Engine, call: Call, batch: str, gate: Gate, tag: Tag | None) -> None:
        """Commit the edit. Raises FilesChanged if other commits changed its files."""
        self._given = True  # the commit deletes the files if it certainly did not happen
        if self.staged is not None:
            with engine.lend(call):
                commit_staged(self.staged, batch, gate, tag)

    def discard(self) -> None:
        """Delete what was written, unless it was given to a commit."""
        if self.staged is not None and not self._given:
            with suppress(Exception):  # at worst the files become orphans
                self.staged.added.discard()


@dataclass(frozen=True)
class LaterCommits:
    """Compares an edit that was staged ahead with what others have committed since."""

    engine: Engine
    call: Call
    base_of: Callable[[Table], EditBase]

    def catch_up(self, ahead: StagedAhead, load: Callable[[], Table], *, fully: bool = False) -> bool:
        """Compare with later commits, without the lock, until little is left, or with `fully` next to nothing; returns
        whether the edit still fits."""
        for _ in range(_ROUNDS):
            current = load()
            new = _new_files(ahead, current)
            if not fully and len(new) <= _LITTLE_FILES and sum(file.bytes for file in new) <= _LITTLE_BYTES:
                break
            if not self.fits(ahead, current):
                return False
        return True

    def fits(self, ahead: StagedAhead, current: Table) -> bool:
        """Whether the edit means the same for a later state, because nothing in between concerns its rows."""
        seen, staged = ahead.fits, ahead.staged
        if layout_of(current) != layout_of(seen):
            return False
        if staged is not None and staged.removed and self.base_of(current).keeps_files:
            return False  # a merge of its files has begun
        if current.current_snapshot_id == seen.current_snapshot_id:
            return True
        commits = commits_between(current, seen.current_snapshot_id)
        if commits is None or not self._unconcerned(ahead, current, commits):
            return False
        ahead.fits = current
        return True

    def _unconcerned(self, ahead: StagedAhead, current: Table, commits: list[Commit]) -> bool:
        if not {file.path for file in list_files(current).data}.issuperset(ahead.rows.files):
            return False
        changes = [commit for commit in commits if not commit.leaves_rows]
        only_appends = all(commit.only_appends for commit in changes)
        if isinstance(ahead.edit.which, Duplicates):
            # Another change may have deleted the row of a key that stays.
            return only_appends
        if ahead.rows.replaced and not only_appends:
            return False  # for the same reason
        new = frozenset(file.path for file in _new_files(ahead, current))
        if not changes or not new:
            return True
        base = replace(self.base_of(current), only=new)
        with self.engine.lend(self.call) as session, find(session, base, ahead.edit) as found:
            return not (found.rows.hits or found.rows.unchanged)


def _new_files(ahead: StagedAhead, current: Table) -> list[DataFile]:
    """The data files that a later state has, and the one that the edit fits has not."""
    known = {file.path for file in list_files(ahead.fits).data}
    return [file for file in list_files(current).data if file.path not in known]


def layout_of(table: Table) -> tuple[object, ...]:
    """What the files of an edit are written for."""
    return table.schema_id, table.spec_id, table.derived

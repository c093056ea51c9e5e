"""The last step of every change of rows in place: what was staged, counted once more, in the place of the old files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from service.engine import pick
from service.engine.append import discard
from service.engine.swap import Staged, Tag, Target, append_files, swap
from service.engine.tables import same_thread
from service.errors import RowCountMismatch
from service.names import BATCH_PROPERTY


@dataclass(frozen=True)
class Sums:
    """How many rows there must be."""

    held: int
    """In the old files."""
    listed: int
    """In the old files, as the metadata has them: delete files may say that some of them are gone."""
    deleted: int
    inserted: int


@dataclass(frozen=True)
class Publication:
    """What is to be committed, and how."""

    batch: str
    snapshot_id: int | None
    """The state that it was made on."""
    old: Any
    """The tasks that read the old files; None where there are none."""
    staged: Staged
    sums: Sums
    said: Mapping[str, str]
    """What the snapshot's summary is to say."""
    leave: Callable[[], None]
    """Raises where the batch is no longer ours; asked when nothing but the commit is left to do."""
    tag: Tag | None = None


def publish(target: Target, iceberg: Any, what: Publication) -> None:
    """Make the change, in one commit; RowCountMismatch where the rows do not add up, and nothing is changed."""
    sums, staged = what.sums, what.staged

    def before_commit(snapshot: Any) -> None:
        if staged.records != sums.held - sums.deleted + sums.inserted:
            raise _mismatch(sums, sums.held, staged.records)
        summary = snapshot.summary()
        added, gone = int(summary.get("added-records") or 0), int(summary.get("deleted-records") or 0)
        if (added, gone) != (staged.records, sums.listed):
            raise _mismatch(sums, gone, added)
        what.leave()

    update = append_files(iceberg, staged, what.batch) if what.old is None else _replacing(iceberg, what)
    for name, value in what.said.items():
        update.set(name, value)
    swap(target, iceberg, update, before_commit, lambda: discard(target.session, target.name, staged), what.tag)


def _replacing(iceberg: Any, what: Publication) -> Any:
    """The commit that puts staged files in the place of others; it is refused where those are changed by then."""
    here = same_thread()
    update = iceberg.newOverwrite().scanManifestsWith(here).validateFromSnapshot(what.snapshot_id)
    update = update.validateNoConflictingDeletes().set(BATCH_PROPERTY, what.batch)
    update.deleteFiles(pick.files_of(what.old), pick.no_deletes())
    for file in what.staged.files:
        update.addFile(file)
    return update


def _mismatch(sums: Sums, before: int, after: int) -> RowCountMismatch:
    what = f"the files of this edit, of {before} rows, of which {sums.deleted} go and to which {sums.inserted} come,"
    return RowCountMismatch(what, before - sums.deleted + sums.inserted, after)

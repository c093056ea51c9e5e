"""A table made to hold what a backup of it holds: what only it has out, what only the backup has written anew.

A data file that was taken out of a table is never put back as it is: the format advises against it, since programs that
let old snapshots go may delete a file with the snapshot that took it out, whether it is back or not. New files also
know nothing of the delete files that there were or are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from service.derived import Derived
from service.engine import pick
from service.engine.append import discard, each, staging, write_staged
from service.engine.derived import fill
from service.engine.jvm import java_class
from service.engine.past import under
from service.engine.pick import Files
from service.engine.sql import identifier
from service.engine.swap import Staged, Tag, Target, swap
from service.engine.tables import current
from service.errors import CommitConflict, RowCountMismatch
from service.names import BATCH_PROPERTY, RESERVED_COLUMN_PREFIX

_ICEBERG = "org.apache.iceberg"
# Rows of a partition come together before they are written, so that few files come of many; sorting takes disk, not
# heap, however many partitions there are.
_OPTIONS = {"distribution-mode": "hash", "fanout-enabled": "false"}


@dataclass(frozen=True)
class Difference:
    """What tells a state of a table from what a backup holds, by data files."""

    backup_id: int
    current_id: int | None
    back: frozenset[str]
    """Files whose rows, as the backup has them, the table lacks."""
    gone: frozenset[str]
    """Files with rows that the backup lacks."""
    rows_before: int
    rows_after: int
    """What the backup holds."""

    def without_files(self) -> "Difference":
        """No difference at all."""
        return replace(self, back=frozenset(), gone=frozenset())


@dataclass(frozen=True)
class Restore:
    """What is to be committed, and how."""

    table: str
    uuid: str
    schema_id: int
    difference: Difference
    batch: str
    leave: Callable[[], object]
    """Raises where the batch is no longer ours; asked when nothing but the commit is left to do."""
    tag: Tag | None = None
    said: Mapping[str, str] = field(default_factory=dict)
    """What the snapshot's summary is to say."""
    late: tuple[Derived, ...] = ()
    """Columns that are worked out and that the earlier state did not have."""


def compare(session: SparkSession, table: str, backup_id: int, current_id: int | None) -> Difference:
    """What tells a state from a backup where delete files take rows out of either's data files."""
    iceberg = current(session, table)
    held, now = _apart(iceberg, backup_id, current_id)
    return Difference(
        backup_id,
        current_id,
        back=held.paths,
        gone=now.paths,
        rows_before=_count(session, iceberg, current_id),
        rows_after=_count(session, iceberg, backup_id),
    )


def apart(session: SparkSession, table: str, one_id: int, other_id: int) -> tuple[Files, Files]:
    """The files that tell two snapshots apart, where delete files take rows out of some."""
    return _apart(current(session, table), one_id, other_id)


def _apart(iceberg: Any, one_id: int, other_id: int | None) -> tuple[Files, Files]:
    one, other = _deletes_of(iceberg, one_id), _deletes_of(iceberg, other_id)
    same = {path for path, deletes in one.items() if other.get(path) == deletes}
    return Files(one_id, frozenset(one.keys() - same)), Files(other_id or 0, frozenset(other.keys() - same))


def restore(session: SparkSession, order: Restore) -> int:
    """Make a table hold what a backup holds, in one commit on the state that was compared; the snapshot it made.

    CommitConflict where that is no longer the table's state, RowCountMismatch where the rows would not be the backup's.
    """
    difference = order.difference
    target = Target(session, order.table, order.uuid, order.schema_id)
    iceberg = target.load()
    _still(iceberg.currentSnapshot() and iceberg.currentSnapshot().snapshotId(), difference)
    staged = _written(session, iceberg, order)

    def before_commit(snapshot: Any) -> None:
        _still(snapshot.parentId(), difference)
        _same_count(session, iceberg, snapshot, difference)
        order.leave()

    update = _replacing(iceberg, difference, staged).set(BATCH_PROPERTY, order.batch)
    for name, value in order.said.items():
        update.set(name, value)
    return swap(target, iceberg, update, before_commit, lambda: discard(session, order.table, staged), order.tag)


def _still(snapshot_id: int | None, difference: Difference) -> None:
    if snapshot_id != difference.current_id:
        raise CommitConflict("another writer changed the table meanwhile; send the request again")


def _written(session: SparkSession, iceberg: Any, order: Restore) -> Staged:
    """New files with the rows that are to come back, under the table's present columns and partitioning."""
    difference = order.difference
    if not difference.back:
        return Staged(iceberg.io(), ())
    read = under(iceberg, order.schema_id)
    with staging(read, pick.tasks(read, difference.backup_id, difference.back)) as source:
        names = [str(column.name()) for column in each(iceberg.schema().columns())]
        shown = [identifier(name) for name in names if not name.startswith(RESERVED_COLUMN_PREFIX)]
        rows = session.sql(f"SELECT {', '.join(shown)} FROM {source}")
        return write_staged(session, iceberg, fill(session, rows, order.late)._jdf, _OPTIONS)


def _replacing(iceberg: Any, difference: Difference, staged: Staged) -> Any:
    """The commit that takes the one out and puts the other in, with the delete files that take out nothing then."""
    update = iceberg.newOverwrite()
    if difference.current_id is not None:
        going = pick.files_of(pick.tasks(iceberg, difference.current_id, difference.gone))
        update.deleteFiles(going, _void(iceberg, difference.current_id, difference.gone))
    for file in staged.files:
        update.addFile(file)
    return update


def _void(iceberg: Any, snapshot_id: int, gone: frozenset[str]) -> Any:
    """The delete files of a state that concern no data file but those that go."""
    found, io = java_class(f"{_ICEBERG}.util.DeleteFileSet").create(), iceberg.io()
    for manifest in each(iceberg.snapshot(snapshot_id).deleteManifests(io)):
        reader = java_class(f"{_ICEBERG}.ManifestFiles").readDeleteManifest(manifest, io, iceberg.specs())
        try:
            found.addAll(java_class(f"{_ICEBERG}.util.DeleteFileSet").of(reader))
        finally:
            reader.close()
    if not found.isEmpty():
        for task in each(pick.tasks(iceberg, snapshot_id)):
            if str(task.file().location()) not in gone:
                found.removeAll(task.deletes())
    return found


def _same_count(session: SparkSession, iceberg: Any, snapshot: Any, difference: Difference) -> None:
    """Refuse to publish a snapshot that does not have as many rows as the backup."""
    rows = _live_rows(iceberg, snapshot)
    if rows is None:
        operations = iceberg.operations()
        base = operations.current()
        to_be = base.buildFrom(base).setBranchSnapshot(snapshot, "main").build()
        fixed = java_class(f"{_ICEBERG}.StaticTableOperations")(to_be, operations.io(), operations.locationProvider())
        rows = _count(session, java_class(f"{_ICEBERG}.BaseTable")(fixed, iceberg.name()), snapshot.snapshotId())
    if rows != difference.rows_after:
        raise RowCountMismatch("the restored table", difference.rows_after, rows)


def _live_rows(iceberg: Any, snapshot: Any) -> int | None:
    """A snapshot's rows by its own lists of files; None where delete files say otherwise."""
    io = iceberg.io()
    if any(m.hasAddedFiles() or m.hasExistingFiles() for m in each(snapshot.deleteManifests(io))):
        return None
    return sum(int(m.addedRowsCount()) + int(m.existingRowsCount()) for m in each(snapshot.dataManifests(io)))


def _count(session: SparkSession, iceberg: Any, snapshot_id: int | None) -> int:
    """A state's rows; those of files that delete files concern are counted by Spark."""
    if snapshot_id is None:
        return 0
    known, unsure = 0, java_class("java.util.ArrayList")()
    for task in each(pick.tasks(iceberg, snapshot_id)):
        if task.deletes().isEmpty():
            known += int(task.file().recordCount())
        else:
            unsure.add(task)
    if unsure.isEmpty():
        return known
    with staging(iceberg, unsure) as source:
        return known + session.table(source).count()


def _deletes_of(iceberg: Any, snapshot_id: int | None) -> dict[str, frozenset[tuple[str, int | None]]]:
    """Of each data file of a state, which delete files concern it."""
    if snapshot_id is None:
        return {}
    return {
        str(task.file().location()): frozenset((str(d.location()), d.contentOffset()) for d in each(task.deletes()))
        for task in each(pick.tasks(iceberg, snapshot_id))
    }

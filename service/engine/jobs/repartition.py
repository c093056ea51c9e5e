"""A table's rows on their way to another layout: what is read, what is written for, and the commit at the end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from service.engine.append import each
from service.engine.bulk_calls import by_location, files_of, texts
from service.engine.checksum import Checksum
from service.engine.compaction import Beaten
from service.engine.jvm import java_class
from service.engine.layout import Built, Layout, evolved, writing_to
from service.engine.swap import Tag, Target, is_a, swap
from service.engine.tables import current
from service.errors import RowCountMismatch

_ICEBERG = "org.apache.iceberg"


@dataclass(frozen=True)
class Source:
    """A table as it is read, at one snapshot. Of use to the JVM that made it."""

    iceberg: Any
    snapshot_id: int | None
    tasks: Any
    """What there is to read, by the files' locations."""
    deletes: Mapping[str, tuple[str, ...]]
    """The delete files of those files that have some."""


@dataclass(frozen=True)
class Goal:
    """A table of the new layout that nothing is committed to yet. Of use to the JVM that made it."""

    table: Any
    built: Built
    spec_id: int
    layout: Layout

    @property
    def unchanged(self) -> bool:
        """Whether a table of this layout differs from the one it was made for in nothing but its files."""
        return self.spec_id == self.built.spec_id and not self.layout.columns and not self.layout.properties


@dataclass(frozen=True)
class Written:
    """New files that no snapshot holds yet. The checksums are of the columns there were, where they were asked for."""

    handle: Any
    files: int
    rows: int
    bytes: int
    read: Checksum | None
    written: Checksum | None
    spark_jobs: int


def source_at(session: SparkSession, table: str, snapshot_id: int | None) -> Source:
    """All there is to read in a snapshot of a table; nothing, without one."""
    iceberg = current(session, table)
    if snapshot_id is None:
        return Source(iceberg, None, java_class("java.util.HashMap")(), {})
    tasks = by_location(iceberg.newScan().useSnapshot(snapshot_id).planFiles())
    summary = iceberg.snapshot(snapshot_id).summary()
    deletes: dict[str, tuple[str, ...]] = {}
    if str(summary.get("total-delete-files") or "0") != "0":
        for entry in each(tasks.entrySet()):
            found = tuple(sorted(str(file.location()) for file in each(entry.getValue().deletes())))
            if found:
                deletes[str(entry.getKey())] = found
    return Source(iceberg, snapshot_id, tasks, deletes)


def goal(session: SparkSession, table: str, layout: Layout, folder: str) -> Goal:
    """A table as it would be with a layout, for `rewrite` to write to."""
    iceberg = current(session, table)
    operations = iceberg.operations()
    base = operations.current()
    metadata = evolved(session, base, layout)
    written = writing_to(metadata, operations.io(), folder, str(iceberg.name()))
    return Goal(written, Built.on(base), int(metadata.defaultSpecId()), layout)


def discard(session: SparkSession, goal: Goal, written: Written) -> None:
    """Delete new files that certainly no snapshot holds."""
    delete(goal, written.handle)


def delete(goal: Goal, files: Any) -> None:
    """Delete data files of a goal."""
    io = goal.table.io()
    for file in each(files):
        io.deleteFile(str(file.location()))


@dataclass(frozen=True)
class Swap:
    """What is put in the place of what: all of the source goes but the files `kept`, and the new ones come."""

    kept: Sequence[str]
    done: Sequence[Written]
    rows: int
    """How many there must be then, of new files and of those kept."""
    summary: Mapping[str, str]
    """What the snapshot says of itself."""
    tag: Tag | None = None
    appends_may_stay: bool = False
    """Whether files that others have appended since may stay as they are."""


def commit(
    session: SparkSession,
    table: str,
    uuid: str,
    source: Source,
    goal: Goal,
    what: Swap,
    before_commit: Callable[[], object],
) -> int:
    """Put new files in the place of old ones, and the layout with them, in one swap; the snapshot it made.

    Beaten when the table is not as the source was. Nothing is tried again: whoever asks looks first what has changed.
    """
    target = Target(session, table, uuid, None)
    iceberg = target.load()
    name, operations = str(iceberg.name()), iceberg.operations()
    transaction = java_class(f"{_ICEBERG}.Transactions").newTransaction(name, operations)
    base = operations.current()
    target.check(base)
    goal.built.check(base)
    appended = _appended_since(base, source.snapshot_id)
    if appended is None or (appended and not what.appends_may_stay):
        raise Beaten("others changed the table meanwhile")
    metadata = evolved(session, base, goal.layout)
    # A transaction's own: they know the new layout, and what is done to them is seen by nobody.
    inside = transaction.table().operations()
    inside.commit(inside.current(), metadata)
    update = _replacing(java_class(f"{_ICEBERG}.BaseTable")(inside, name), source, what)
    for key, value in what.summary.items():
        update = update.set(key, value)

    def check(snapshot: Any) -> None:
        total = snapshot.summary().get("total-records")  # other programs may have lost count
        expected = what.rows + sum(int(str(one.summary().get("added-records") or "0")) for one in appended)
        if total is not None and int(str(total)) != expected:
            raise RowCountMismatch("the new layout", expected, int(str(total)))
        before_commit()

    try:
        return swap(target, iceberg, update, check, tag=what.tag, on=metadata)
    except Py4JJavaError as e:
        if is_a(e, f"{_ICEBERG}.exceptions.ValidationException"):
            raise Beaten("files to be replaced were changed meanwhile") from e
        raise


def _appended_since(metadata: Any, snapshot_id: int | None) -> list[Any] | None:
    """The snapshots since one of them, newest first, where each only adds files; None where more has happened."""
    found: list[Any] = []
    at = metadata.currentSnapshot()
    while at is not None and int(at.snapshotId()) != snapshot_id:
        if snapshot_id is None or str(at.operation()) != "append":
            return None
        found.append(at)
        parent = at.parentId()
        at = None if parent is None else metadata.snapshot(parent)
    return found if at is not None or snapshot_id is None else None


def _replacing(table: Any, source: Source, what: Swap) -> Any:
    """The commit that takes out what was rewritten; of a table without files, one that changes none."""
    tasks = java_class("java.util.HashMap")(source.tasks)
    if what.kept:
        tasks.keySet().removeAll(texts(what.kept))
    if tasks.isEmpty():
        return table.newFastAppend()
    old, new = java_class(f"{_ICEBERG}.util.DataFileSet").create(), java_class(f"{_ICEBERG}.util.DataFileSet").create()
    old.addAll(files_of(tasks))
    for one in what.done:
        new.addAll(one.handle)
    none = java_class(f"{_ICEBERG}.util.DeleteFileSet").create
    return table.newRewrite().validateFromSnapshot(source.snapshot_id).rewriteFiles(old, none(), new, none())

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


def commit(
    target: Target,
    source: Source,
    goal: Goal,
    kept: Sequence[str],
    done: Sequence[Written],
    summary: Mapping[str, str],
    tag: Tag | None,
    before_commit: Callable[[Any], object],
) -> int:
    """Put the new files in the place of all that the source has but those `kept`, and the layout with them; the
    snapshot it made, which says of itself what `summary` does.

    Beaten when the table is at another snapshot than the source's by now.
    """
    iceberg = target.load()
    name, operations = str(iceberg.name()), iceberg.operations()
    transaction = java_class(f"{_ICEBERG}.Transactions").newTransaction(name, operations)
    base = operations.current()
    target.check(base)
    goal.built.check(base)
    head = base.currentSnapshot()
    if (None if head is None else int(head.snapshotId())) != source.snapshot_id:
        raise Beaten("others committed to the table")
    metadata = evolved(target.session, base, goal.layout)
    # A transaction's own: they know the new layout, and what is done to them is seen by nobody.
    inside = transaction.table().operations()
    inside.commit(inside.current(), metadata)
    update = _replacing(java_class(f"{_ICEBERG}.BaseTable")(inside, name), source, kept, done)
    for key, value in summary.items():
        update = update.set(key, value)
    try:
        return swap(target, iceberg, update, before_commit, tag=tag, on=metadata)
    except Py4JJavaError as e:
        if is_a(e, f"{_ICEBERG}.exceptions.ValidationException"):
            raise Beaten("files to be replaced were changed meanwhile") from e
        raise


def _replacing(table: Any, source: Source, kept: Sequence[str], done: Sequence[Written]) -> Any:
    """The commit that takes out what was rewritten; of a table without files, one that changes none."""
    tasks = java_class("java.util.HashMap")(source.tasks)
    if kept:
        tasks.keySet().removeAll(texts(kept))
    if tasks.isEmpty():
        return table.newFastAppend()
    old, new = java_class(f"{_ICEBERG}.util.DataFileSet").create(), java_class(f"{_ICEBERG}.util.DataFileSet").create()
    old.addAll(files_of(tasks.values()))
    for one in done:
        new.addAll(one.handle)
    none = java_class(f"{_ICEBERG}.util.DeleteFileSet").create
    return table.newRewrite().validateFromSnapshot(source.snapshot_id).rewriteFiles(old, none(), new, none())

"""Moves a table's rows to another layout: the source to read, the target to write for, and the final commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from service.engine.iceberg import scan_tasks
from service.engine.iceberg.layout import Layout, LayoutBasis, with_layout
from service.engine.iceberg.position_deletes import void_deletes
from service.engine.iceberg.replace import Evolution, FileReplacement, replace_files
from service.engine.iceberg.swap import CommitTarget, FilesChanged, Gate, Tag
from service.engine.iceberg.tables import current, writing_to
from service.engine.session.java import each, iceberg_class, java_class, string_list
from service.engine.session.spark_types import SparkSession
from service.engine.sql.checksum import Checksum
from service.errors import RowCountMismatch


@dataclass(frozen=True)
class RepartitionSource:
    """What to read of a table at one snapshot. Valid in the JVM that made it."""

    iceberg: Any
    snapshot_id: int | None
    tasks: Any
    """A Java map from the files' locations to the tasks that read them."""
    deletes: Mapping[str, tuple[str, ...]]
    """For each file with delete files, these."""


@dataclass(frozen=True)
class RepartitionTarget:
    """A table with the new layout, without any commit. Valid in the JVM that made it."""

    table: Any
    basis: LayoutBasis
    spec_id: int
    layout: Layout

    @property
    def unchanged(self) -> bool:
        """Whether the new layout differs from the old one only in its files."""
        return self.spec_id == self.basis.spec_id and not self.layout.columns and not self.layout.properties


@dataclass(frozen=True)
class WrittenFiles:
    """New files that no snapshot has yet. The checksums, if validated, are of the original columns."""

    handle: Any
    """The files, as a Java set."""
    files: int
    rows: int
    bytes: int
    read: Checksum | None
    written: Checksum | None
    spark_jobs: int


def source_at(session: SparkSession, table: str, snapshot_id: int | None) -> RepartitionSource:
    """All data files of a table's snapshot; nothing without a snapshot."""
    iceberg = current(session, table)
    if snapshot_id is None:
        return RepartitionSource(iceberg, None, java_class("java.util.HashMap")(), {})
    tasks = scan_tasks.tasks(iceberg, snapshot_id)
    summary = iceberg.snapshot(snapshot_id).summary()
    deletes: dict[str, tuple[str, ...]] = {}
    if str(summary.get("total-delete-files") or "0") != "0":
        for task in each(tasks):
            found = tuple(sorted(str(file.location()) for file in each(task.deletes())))
            if found:
                deletes[str(task.file().location())] = found
    return RepartitionSource(iceberg, snapshot_id, scan_tasks.by_location(tasks), deletes)


def goal(session: SparkSession, table: str, layout: Layout, folder: str) -> RepartitionTarget:
    """The table with another layout, for `rewrite` to write to."""
    iceberg = current(session, table)
    base = iceberg.operations().current()
    metadata = with_layout(iceberg, base, layout)
    written = writing_to(iceberg, metadata, folder)
    return RepartitionTarget(written, LayoutBasis.of(base), int(metadata.defaultSpecId()), layout)


def together(_: SparkSession, parts: Sequence[WrittenFiles]) -> WrittenFiles:
    """All new files of several jobs."""
    handle = iceberg_class("util.DataFileSet").create()
    for part in parts:
        handle.addAll(part.handle)
    return added_up(handle, parts)


def added_up(handle: Any, parts: Sequence[WrittenFiles]) -> WrittenFiles:
    """The figures of several jobs, whose files are all in `handle`."""
    read, written = (
        None if None in some else sum((one for one in some if one is not None), Checksum())
        for some in ([part.read for part in parts], [part.written for part in parts])
    )
    files, rows, size, jobs = (
        sum(getattr(part, name) for part in parts) for name in ("files", "rows", "bytes", "spark_jobs")
    )
    return WrittenFiles(handle, files, rows, size, read, written, jobs)


def discard(_: SparkSession, goal: RepartitionTarget, written: WrittenFiles) -> None:
    """Delete new files; only if it is certain that no snapshot has them."""
    delete(goal, written.handle)


def delete(goal: RepartitionTarget, files: Any) -> None:
    """Delete data files that were written for a target."""
    io = goal.table.io()
    for file in each(files):
        io.deleteFile(str(file.location()))


@dataclass(frozen=True)
class LayoutSwap:
    """What the commit does: it replaces all files of the source, except those in `kept`, by the new ones."""

    kept: Sequence[str]
    done: Sequence[WrittenFiles]
    rows: int
    """How many rows the new and the kept files must have."""
    summary: Mapping[str, str]
    tag: Tag | None = None
    keep_appended_files: bool = False
    """Whether files that others appended since may stay unchanged."""


def commit(
    session: SparkSession,
    table: str,
    uuid: str,
    source: RepartitionSource,
    goal: RepartitionTarget,
    what: LayoutSwap,
    batch: str,
    gate: Gate,
) -> int:
    """Replace old files by new ones, together with the layout, in one swap, and return the snapshot's id.

    Raises TableChanged if the table is no longer as the source. Nothing is retried: the caller first checks what has
    changed.
    """
    target = CommitTarget(session, table, uuid, None)
    iceberg = target.load()
    base = iceberg.operations().current()
    target.check(base)
    goal.basis.check(base)
    appended = _appended_since(base, source.snapshot_id)
    if appended is None or (appended and not what.keep_appended_files):
        raise FilesChanged("another writer changed the table in the meantime")
    new = iceberg_class("util.DataFileSet").create()
    for one in what.done:
        new.addAll(one.handle)
    replaced = _replaced(source, what)
    replacement = FileReplacement(
        batch,
        source.snapshot_id,
        None if replaced.isEmpty() else scan_tasks.files_of(replaced),
        new,
        partial(_check_total, what.rows + sum(int(one.summary().get("added-records") or 0) for one in appended)),
        void_deletes=void_deletes(replaced),
        keeps_rows=True,
        in_parallel=True,
        summary=what.summary,
        tag=what.tag,
        evolution=Evolution(with_layout(iceberg, base, goal.layout), goal.basis),
    )
    return replace_files(target, iceberg, replacement, gate)


def _check_total(expected: int, snapshot: Any) -> None:
    total = snapshot.summary().get("total-records")  # other programs may have omitted it
    if total is not None and int(total) != expected:
        raise RowCountMismatch("the new layout", expected, int(total))


def _appended_since(metadata: Any, snapshot_id: int | None) -> list[Any] | None:
    """The snapshots since an earlier one, newest first, if each only adds files; else None."""
    found: list[Any] = []
    at = metadata.currentSnapshot()
    while at is not None and int(at.snapshotId()) != snapshot_id:
        if snapshot_id is None or str(at.operation()) != "append":
            return None
        found.append(at)
        parent = at.parentId()
        at = None if parent is None else metadata.snapshot(parent)
    return found if at is not None or snapshot_id is None else None


def _replaced(source: RepartitionSource, what: LayoutSwap) -> Any:
    """The tasks of the files to remove, as a Java list."""
    tasks = java_class("java.util.HashMap")(source.tasks)
    if what.kept:
        tasks.keySet().removeAll(string_list(what.kept))
    return java_class("java.util.ArrayList")(tasks.values())

"""Compaction with Iceberg's library: plans groups of files to merge, and commits their replacement."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError

from service.engine.iceberg.carry_over import DeleteSearch, LateDeletes, carried_over, late_deletes, moved_places
from service.engine.iceberg.position_deletes import WrittenDeletes, dangling_deletes, tasks_with_deletes
from service.engine.iceberg.replace import FileReplacement, replace_files
from service.engine.iceberg.scan_tasks import file_of_task, of_file
from service.engine.iceberg.swap import CommitTarget, Gate
from service.engine.iceberg.tables import current, load_table
from service.engine.session.java import (
    ICEBERG,
    each,
    function,
    iceberg_class,
    is_a,
    java_class,
    lines,
    method,
    then,
    total,
)
from service.engine.session.spark_types import SparkSession
from service.engine.session.tags import tagged
from service.errors import InternalError
from service.model.names import BATCH_PROPERTY

_NEVER_SPLIT = (1 << 62) - 1
# Bounds the open files and the memory of one job, whatever the files' sizes.
_GROUP_FILES = 5_000
# More than this are read on several threads.
_FEW_MANIFESTS = 4


@dataclass(frozen=True)
class RewriteOptions:
    """How to merge small files: which are small, the target size, how much to merge at a time, and in which order."""

    small_bytes: int
    target_bytes: int
    group_bytes: int
    filter_json: str | None = None
    compression: str | None = None
    strategy: str = "binpack"
    sort_by: tuple[str, ...] = ()
    all_deletes: bool = False
    """Whether every file with delete files is rewritten, however few of its rows they delete."""


@dataclass(frozen=True)
class FileGroup:
    """Files of one partition to merge. `heavy` means that some are worth rewriting for their deletes alone."""

    partition: str
    path: str
    """Of one of the files."""
    files: int
    bytes: int
    expected_files: int
    heavy: bool
    handle: Any
    """Iceberg's own group."""
    beside: int = 1
    """How many groups are rewritten at the same time, this one included."""
    rows: int = 0
    """As far as they were counted."""
    with_deletes: tuple[str, ...] = ()
    """Its files that have delete files; only counted with `all_deletes`."""


@dataclass(frozen=True)
class PlannedGroups:
    """The groups of one snapshot, and the table as it was then. Valid in the JVM that made it."""

    iceberg: Any
    snapshot_id: int
    groups: tuple[FileGroup, ...]


@dataclass(frozen=True)
class RewrittenGroup:
    """A group whose new files were written and belong to no snapshot yet."""

    group: FileGroup
    names: tuple[str, ...]
    """Of its new files, without their folders."""


def plan(session: SparkSession, table: str, how: RewriteOptions, snapshot_id: int) -> PlannedGroups:
    """Every group of at least two small files in a snapshot, the largest number of files first."""
    iceberg = load_table(session, table)
    # With a filter, the planner would also skip files of matching partitions by their columns' statistics.
    every = iceberg_class("expressions.Expressions").alwaysTrue()
    planner = iceberg_class("actions.BinPackRewriteFilePlanner")(iceberg, every, snapshot_id, True)
    planner.init(
        {
            "min-file-size-bytes": str(how.small_bytes),
            "target-file-size-bytes": str(how.target_bytes),
            "max-file-size-bytes": str(_NEVER_SPLIT),
            "min-input-files": "2",
            "max-file-group-size-bytes": str(max(how.group_bytes, how.target_bytes)),
            "max-file-group-input-files": str(_GROUP_FILES),
            "rewrite-job-order": "files-desc",
            **({"delete-file-threshold": "1"} if how.all_deletes else {}),
        }
    )
    groups = each(planner.plan().groups())
    if how.filter_json is not None:
        groups = _matching(iceberg, groups, how)
    with_deletes = _has_deletes(iceberg, snapshot_id)
    found = tuple(_group(iceberg, group, how, with_deletes) for group in groups)
    return PlannedGroups(iceberg, snapshot_id, found)


def first_files_of(_: SparkSession, group: FileGroup, files: int, how: RewriteOptions) -> FileGroup:
    """A group of some files of a group: the largest if it is heavy, or else the oldest, so that the merged files stay
    older than the others."""
    tasks = _oldest_first(group.handle.fileScanTasks())
    if group.heavy:
        longest_first = java_class("java.util.Comparator").comparingLong(_length()).reversed()
        java_class("java.util.Collections").sort(tasks, longest_first)
    part = _part(group.handle, tasks.subList(0, files), how)
    return replace(
        group,
        files=files,
        bytes=int(part.inputFilesSizeInBytes()),
        expected_files=int(part.expectedOutputFiles()),
        handle=part,
    )


def with_rows(_: SparkSession, groups: Sequence[FileGroup]) -> list[FileGroup]:
    """The groups with their numbers of rows, by the metadata."""
    count = file_of_task(), of_file("recordCount")
    return [replace(group, rows=total(group.handle.fileScanTasks(), *count)) for group in groups]


def commit(
    session: SparkSession,
    table: str,
    uuid: str,
    planned: PlannedGroups,
    done: Sequence[RewrittenGroup],
    search: DeleteSearch,
    batch: str,
    gate: Gate,
) -> int:
    """Replace the old files of groups by the new ones in one commit, and return the snapshot's id. Rows that were
    deleted since the plan by delete files for these files alone are deleted from the new ones too.

    Raises FilesChanged if an old file was removed since, or had rows deleted in another way.
    """
    target, iceberg = CommitTarget(session, table, uuid, None), current(session, table)
    old, new = _files(done)
    started_on = planned.iceberg.snapshot(planned.snapshot_id)
    late, carried, void = LateDeletes({}, (), 0), WrittenDeletes(iceberg.io()), list[Any]()
    head_id = int(iceberg.currentSnapshot().snapshotId())
    if _has_deletes(iceberg, head_id):
        late = _late_deletes(iceberg, planned, old, search)
        void = [*late.void, *(dangling_deletes(iceberg, head_id) if search.dangling else ())]
        if late.places:
            carried = carried_over(session, planned.iceberg, planned.snapshot_id, late, new, search)
    what = FileReplacement(
        batch,
        head_id,
        old,
        new,
        partial(_check_same_rows, deleted=late.planned),
        void_deletes=iceberg_class("util.DeleteFileSet").of(void),
        new_deletes=carried.files,
        # Merged files are no newer than their rows, so that they stay older than what was written since. But they must
        # be newer than deletes that were applied to them and also apply to other files.
        sequence_number=started_on.sequenceNumber() if late.planned is None else _newest(old),
        keeps_rows=True,
        in_parallel=int(started_on.allManifests(iceberg.io()).size()) > _FEW_MANIFESTS,
    )
    return replace_files(target, iceberg, what, gate, carried.discard)


def find_late_deletes(
    session: SparkSession, table: str, planned: PlannedGroups, done: Sequence[RewrittenGroup], search: DeleteSearch
) -> None:
    """Find the rows that were deleted since the plan, so that `commit`, for which writers wait, finds most of them
    known. Raises FilesChanged as that does."""
    iceberg, (old, new) = current(session, table), _files(done)
    head_id = int(iceberg.currentSnapshot().snapshotId())
    if _has_deletes(iceberg, head_id):
        late = _late_deletes(iceberg, planned, old, search)
        search.dangling = bool(dangling_deletes(iceberg, head_id))
        if late.places:
            files = {str(file.location()): file for file in each(new)}
            moved_places(session, planned.iceberg, planned.snapshot_id, late, files, search)


def _files(done: Iterable[RewrittenGroup]) -> tuple[Any, Any]:
    """The old and the new files of groups, as Java sets."""
    old, new = (iceberg_class("util.DataFileSet").create() for _ in range(2))
    for one in done:
        old.addAll(one.group.handle.rewrittenFiles())
        new.addAll(one.group.handle.addedFiles())
    return old, new


def _late_deletes(iceberg: Any, planned: PlannedGroups, old: Any, search: DeleteSearch) -> LateDeletes:
    paths = lines(java_class("java.util.ArrayList")(old), of_file("location"))
    return late_deletes(iceberg, planned.iceberg, planned.snapshot_id, paths, search)


def remove_dangling(session: SparkSession, table: str, uuid: str, batch: str, gate: Gate) -> int | None:
    """Remove the delete files that only apply to a data file that is gone, in one commit, and return its snapshot's id;
    None if there are none."""
    target, iceberg = CommitTarget(session, table, uuid, None), current(session, table)
    head_id = int(iceberg.currentSnapshot().snapshotId())
    found = dangling_deletes(iceberg, head_id)
    if not found:
        return None
    nothing, void = iceberg_class("util.DataFileSet").create(), iceberg_class("util.DeleteFileSet").of(found)
    what = FileReplacement(batch, head_id, nothing, nothing, void_deletes=void, keeps_rows=True)
    return replace_files(target, iceberg, what, gate)


def _check_same_rows(snapshot: Any, deleted: int | None) -> None:
    """Check that the new files have as many rows as the old ones, less those that were deleted before, if that is
    known."""
    added, removed = (int(snapshot.summary().get(f"{kind}-records") or 0) for kind in ("added", "deleted"))
    if deleted is not None and added != removed - deleted:
        raise InternalError(f"merging {removed - deleted} rows gave {added}; nothing was changed")


def in_written_order(group: FileGroup) -> FileGroup:
    """The group with its oldest files first, so that merging keeps the order in which rows were written."""
    whole = group.handle
    ordered = iceberg_class("actions.RewriteFileGroup")(
        whole.info(),
        _oldest_first(whole.fileScanTasks()),
        whole.outputSpecId(),
        whole.maxOutputFileSize(),
        whole.inputSplitSize(),
        group.expected_files,
    )
    return replace(group, handle=ordered)


def _oldest_first(tasks: Any) -> Any:
    """A Java list of the same tasks, in the order in which their files were written."""
    ordered, comparator = java_class("java.util.ArrayList")(tasks), java_class("java.util.Comparator")
    path = function(then(file_of_task(), of_file("location")))
    age = function(then(file_of_task(), of_file("dataSequenceNumber")), "ToLongFunction")
    for order in (comparator.comparing(path), comparator.comparingLong(age)):  # the second keeps the first in ties
        java_class("java.util.Collections").sort(ordered, order)
    return ordered


def _newest(files: Any) -> int:
    """The greatest sequence number of a Java set of files."""
    numbers = java_class("java.util.ArrayList")(files).stream()
    return int(numbers.mapToLong(function(of_file("dataSequenceNumber"), "ToLongFunction")).max().getAsLong())


def rewrite_manifests(session: SparkSession, table: str, batch: str, tag: str) -> int:
    """Merge a table's manifests, sorted by partition, and return how many were rewritten."""
    with tagged(session, tag):
        iceberg = load_table(session, table)
        actions = iceberg_class("spark.actions.SparkActions").get(session._jsparkSession)
        result = actions.rewriteManifests(iceberg).snapshotProperty(BATCH_PROPERTY, batch).execute()
        return sum(1 for _ in each(result.rewrittenManifests()))


def sweep(session: SparkSession, table: str, folder: str, kept: frozenset[str]) -> int:
    """Delete every file below a folder of a table except those in `kept`, and return how many were deleted."""
    io = load_table(session, table).io()
    try:
        paths = [str(info.location()) for info in each(io.listPrefix(folder))]
    except Py4JJavaError as e:
        if is_a(e, "java.io.UncheckedIOException"):  # the folder does not exist
            return 0
        raise
    gone = [path for path in paths if path.split("/")[-1] not in kept]
    if len(gone) == len(paths):
        io.deletePrefix(folder)
    else:
        for path in gone:
            io.deleteFile(path)
    return len(gone)


def _group(iceberg: Any, group: Any, how: RewriteOptions, with_deletes: bool) -> FileGroup:
    tasks = group.fileScanTasks()
    found = (
        tuple(lines(tasks_with_deletes(tasks), file_of_task(), of_file("location")))
        if with_deletes and how.all_deletes
        else ()
    )
    # The files may have an older partitioning than the one that the planner groups by.
    partition = str(iceberg.spec().partitionToPath(group.info().partition()))
    return FileGroup(
        partition,
        path=str(tasks.get(0).file().location()),
        files=int(group.inputFileNum()),
        bytes=int(group.inputFilesSizeInBytes()),
        expected_files=int(group.expectedOutputFiles()),
        heavy=with_deletes and (bool(found) or _has_large(tasks, how)),
        handle=group,
        with_deletes=found,
    )


def _has_large(tasks: Any, how: RewriteOptions) -> bool:
    """Whether there are files that are not small, which are planned only because of their deletes."""
    return not how.all_deletes and int(tasks.stream().mapToLong(_length()).max().getAsLong()) >= how.small_bytes


def _matching(iceberg: Any, groups: Iterable[Any], how: RewriteOptions) -> Iterator[Any]:
    """The groups without the files in partitions that cannot match the filter."""
    only = iceberg_class("expressions.ExpressionParser").fromJson(how.filter_json, iceberg.schema())
    projections = iceberg_class("expressions.Projections")
    matches = {
        int(number): iceberg_class("expressions.Evaluator")(
            spec.partitionType(), projections.inclusive(spec).project(only)
        )
        for number, spec in iceberg.specs().items()
    }
    for group in groups:
        if len(matches) == 1:  # then all files of a group are in one partition
            if matches[int(group.outputSpecId())].eval(group.info().partition()):
                yield group
            continue
        tasks = [t for t in each(group.fileScanTasks()) if matches[int(t.spec().specId())].eval(t.partition())]
        if tasks:
            yield _part(group, tasks, how)


def _part(group: Any, tasks: Any, how: RewriteOptions) -> Any:
    """A group of some of a group's files."""
    some = java_class("java.util.ArrayList")(tasks)
    expected = max(1, round(int(some.stream().mapToLong(_length()).sum()) / how.target_bytes))
    return iceberg_class("actions.RewriteFileGroup")(
        group.info(), some, group.outputSpecId(), group.maxOutputFileSize(), group.inputSplitSize(), expected
    )


def _length() -> Any:
    """The length of a file's task, as a Java function."""
    return function(method(f"{ICEBERG}.ContentScanTask", "length"), "ToLongFunction")


def _has_deletes(iceberg: Any, snapshot_id: int) -> bool:
    """Whether a snapshot has delete files. Its summary may omit them if another program wrote it."""
    snapshot = iceberg.snapshot(snapshot_id)
    total = snapshot.summary().get("total-delete-files")
    return snapshot.deleteManifests(iceberg.io()).size() > 0 if total is None else str(total) != "0"

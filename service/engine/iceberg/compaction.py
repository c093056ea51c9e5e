"""Compaction in Iceberg's words: which files belong together, and the commit that puts new ones in their place."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from service.engine.append import each
from service.engine.jvm import java_class
from service.engine.swap import Target, is_a, swap
from service.engine.tables import current, load_table, same_thread
from service.engine.tags import tagged
from service.errors import InternalError
from service.names import BATCH_PROPERTY

_ICEBERG = "org.apache.iceberg"
_ACTIONS = f"{_ICEBERG}.actions"
_NEVER_SPLIT = (1 << 62) - 1
# Bounds what one job has open and keeps in mind, whatever the files' sizes.
_GROUP_FILES = 5_000
# So many are read one after the other.
_FEW_MANIFESTS = 4


class Beaten(Exception):
    """Other writers changed or deleted files that were to be replaced; nothing was committed."""


@dataclass(frozen=True)
class Rewrite:
    """How to merge small files: below which size, into which, how many at a time, and in what order of rows."""

    small_bytes: int
    target_bytes: int
    group_bytes: int
    filter_json: str | None = None
    compression: str | None = None
    strategy: str = "binpack"
    sort_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """Files of one partition that become fewer. `heavy` says that some are of a good size, with many deleted rows."""

    partition: str
    path: str
    """Of one of the files."""
    files: int
    bytes: int
    expected_files: int
    heavy: bool
    handle: Any
    """Iceberg's own group."""


@dataclass(frozen=True)
class Planned:
    """The groups that one snapshot of a table has, and the table as it was then. Of use to the JVM that made it."""

    iceberg: Any
    snapshot_id: int
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Rewritten:
    """A group whose new files are written and in no snapshot yet."""

    group: Group
    names: tuple[str, ...]
    """Of its new files, without their folders."""


def plan(session: SparkSession, table: str, how: Rewrite, snapshot_id: int) -> Planned:
    """Every group of two small files or more that a snapshot has, the most files first."""
    iceberg = load_table(session, table)
    # A filter given to the planner would leave out files of a matching partition by their columns' statistics.
    every = java_class(f"{_ICEBERG}.expressions.Expressions").alwaysTrue()
    planner = java_class(f"{_ACTIONS}.BinPackRewriteFilePlanner")(iceberg, every, snapshot_id, True)
    planner.init(
        {
            "min-file-size-bytes": str(how.small_bytes),
            "target-file-size-bytes": str(how.target_bytes),
            "max-file-size-bytes": str(_NEVER_SPLIT),
            "min-input-files": "2",
            "max-file-group-size-bytes": str(max(how.group_bytes, how.target_bytes)),
            "max-file-group-input-files": str(_GROUP_FILES),
            "rewrite-job-order": "files-desc",
        }
    )
    groups = each(planner.plan().groups())
    if how.filter_json is not None:
        groups = _matching(iceberg, groups, how)
    with_deletes = _has_deletes(iceberg, snapshot_id)
    found = tuple(_group(iceberg, group, how, with_deletes) for group in groups)
    return Planned(iceberg, snapshot_id, found)


def first_of(_: SparkSession, group: Group, files: int, how: Rewrite) -> Group:
    """A group of only so many files of a group: first those of which much is deleted, then as they come."""
    tasks = java_class("java.util.ArrayList")(group.handle.fileScanTasks())
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


def commit(
    session: SparkSession,
    table: str,
    uuid: str,
    planned: Planned,
    done: Sequence[Rewritten],
    batch: str,
    before_commit: Callable[[], object],
) -> int:
    """Put the new files of groups in the place of the old ones, in one commit; the snapshot it made.

    Beaten when one of the old files is no longer there, or has had rows deleted since the plan.
    """
    iceberg = current(session, table)
    old, new = java_class(f"{_ICEBERG}.util.DataFileSet").create(), java_class(f"{_ICEBERG}.util.DataFileSet").create()
    void = java_class(f"{_ICEBERG}.util.DeleteFileSet").create()
    for one in done:
        old.addAll(one.group.handle.rewrittenFiles())
        new.addAll(one.group.handle.addedFiles())
        void.addAll(one.group.handle.danglingDVs())
    started_on = planned.iceberg.snapshot(planned.snapshot_id)
    update = iceberg.newRewrite().validateFromSnapshot(planned.snapshot_id)
    if int(started_on.allManifests(iceberg.io()).size()) <= _FEW_MANIFESTS:
        # With a pool, Iceberg sleeps 10 ms at a time until it is done, several times in one commit.
        update = update.scanManifestsWith(same_thread())
    update = update.dataSequenceNumber(started_on.sequenceNumber()).set(BATCH_PROPERTY, batch)
    none = java_class(f"{_ICEBERG}.util.DeleteFileSet").create()
    update = update.rewriteFiles(old, void, new, none)
    clean = not _has_deletes(planned.iceberg, planned.snapshot_id)

    def check(snapshot: Any) -> None:
        if clean:
            _same_rows(snapshot)
        before_commit()

    try:
        return swap(Target(session, table, uuid, None), iceberg, update, check)
    except Py4JJavaError as e:
        if is_a(e, f"{_ICEBERG}.exceptions.ValidationException"):
            raise Beaten("files to be replaced were changed meanwhile") from e
        raise


def rewrite_manifests(session: SparkSession, table: str, batch: str, tag: str) -> int:
    """Sort the lists of a table's files by partition, into fewer lists of a good size; how many there were before."""
    with tagged(session, tag):
        iceberg = load_table(session, table)
        action = (
            java_class(f"{_ICEBERG}.spark.actions.SparkActions").get(session._jsparkSession).rewriteManifests(iceberg)
        )
        result = action.snapshotProperty(BATCH_PROPERTY, batch).execute()
        return sum(1 for _ in each(result.rewrittenManifests()))


def sweep(session: SparkSession, table: str, folder: str, kept: frozenset[str]) -> int:
    """Delete every file below a folder of a table that is not one of those kept; how many that were."""
    io = load_table(session, table).io()
    try:
        paths = [str(info.location()) for info in each(io.listPrefix(folder))]
    except Py4JJavaError as e:
        if is_a(e, "java.io.UncheckedIOException"):  # it was never made
            return 0
        raise
    gone = [path for path in paths if path.split("/")[-1] not in kept]
    if len(gone) == len(paths):
        io.deletePrefix(folder)
    else:
        for path in gone:
            io.deleteFile(path)
    return len(gone)


def _group(iceberg: Any, group: Any, how: Rewrite, with_deletes: bool) -> Group:
    tasks = group.fileScanTasks()
    heavy = with_deletes and int(tasks.stream().mapToLong(_length()).max().getAsLong()) >= how.small_bytes
    # Its files may be of an older spec than the one that the planner groups by.
    partition = str(iceberg.spec().partitionToPath(group.info().partition()))
    return Group(
        partition,
        str(tasks.get(0).file().location()),
        int(group.inputFileNum()),
        int(group.inputFilesSizeInBytes()),
        int(group.expectedOutputFiles()),
        heavy,
        group,
    )


def _matching(iceberg: Any, groups: Iterable[Any], how: Rewrite) -> Iterator[Any]:
    """The groups, less the files that lie in partitions which the filter cannot match."""
    only = java_class(f"{_ICEBERG}.expressions.ExpressionParser").fromJson(how.filter_json, iceberg.schema())
    projections = java_class(f"{_ICEBERG}.expressions.Projections")
    matches = {
        int(number): java_class(f"{_ICEBERG}.expressions.Evaluator")(
            spec.partitionType(), projections.inclusive(spec).project(only)
        )
        for number, spec in iceberg.specs().items()
    }
    for group in groups:
        if len(matches) == 1:  # as all files of a group lie in one partition then
            if matches[int(group.outputSpecId())].eval(group.info().partition()):
                yield group
            continue
        tasks = java_class("java.util.ArrayList")()
        for task in each(group.fileScanTasks()):
            if matches[int(task.spec().specId())].eval(task.partition()):
                tasks.add(task)
        if tasks.size() > 1:
            yield _part(group, tasks, how)


def _part(group: Any, tasks: Any, how: Rewrite) -> Any:
    """A group of some of a group's files."""
    some = java_class("java.util.ArrayList")(tasks)
    expected = max(1, round(int(some.stream().mapToLong(_length()).sum()) / how.target_bytes))
    return java_class(f"{_ACTIONS}.RewriteFileGroup")(
        group.info(), some, group.outputSpecId(), group.maxOutputFileSize(), group.inputSplitSize(), expected
    )


def _length() -> Any:
    """The length of a file's task, as a function of Java's own: thousands asked for from here take seconds."""
    name = java_class("java.lang.Class").forName
    kind = java_class("java.lang.invoke.MethodType").methodType(java_class("java.lang.Long").TYPE)
    lookup = java_class("java.lang.invoke.MethodHandles").publicLookup()
    length = lookup.findVirtual(name(f"{_ICEBERG}.ContentScanTask"), "length", kind)
    proxies = java_class("java.lang.invoke.MethodHandleProxies")
    return proxies.asInterfaceInstance(name("java.util.function.ToLongFunction"), length)


def _has_deletes(iceberg: Any, snapshot_id: int) -> bool:
    """Whether rows of a snapshot are deleted by delete files. Other writers need not say so in its summary."""
    snapshot = iceberg.snapshot(snapshot_id)
    total = snapshot.summary().get("total-delete-files")
    return snapshot.deleteManifests(iceberg.io()).size() > 0 if total is None else str(total) != "0"


def _same_rows(snapshot: Any) -> None:
    """Refuse to commit a rewriting that holds other than the rows it replaces, of a table without delete files."""
    summary = snapshot.summary()
    added, removed = str(summary.get("added-records") or "0"), str(summary.get("deleted-records") or "0")
    if added != removed:
        raise InternalError(f"merging files made {added} rows of {removed}; nothing was changed")

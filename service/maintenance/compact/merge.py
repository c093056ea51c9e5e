"""Merges small files, from the plan to the last commit. It yields to writers, and keeps what it has committed."""

import logging
import time
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from service.catalog.files.data_files import TableFiles, list_files
from service.catalog.files.small import find_small_files
from service.catalog.tables import Snapshot, Table
from service.commits.commit import CommitResult, Commits
from service.commits.moved_rows import MovedRows
from service.engine.iceberg.carry_over import DeleteSearch
from service.engine.iceberg.compaction import (
    FileGroup,
    PlannedGroups,
    RewriteOptions,
    RewrittenGroup,
    commit,
    find_late_deletes,
    first_files_of,
    plan,
    remove_dangling,
    with_rows,
)
from service.engine.iceberg.swap import FilesChanged
from service.engine.jobs.rewrite import rewrite
from service.engine.session.engine import Engine
from service.engine.session.rows import plain_columns
from service.errors import (
    Cancelled,
    CommitConflict,
    EngineUnavailable,
    OutcomeUnknown,
    ShuttingDown,
    TableNotFound,
    TooManyRequests,
)
from service.jobs.job import Job
from service.maintenance.compact.plan import choose, core_shares, small_files_beside
from service.maintenance.compact.report import CompactionTally
from service.maintenance.rewriter import FileRewriter
from service.model.call import Call

log = logging.getLogger("firn.maintenance")

# Errors that end a compaction at once. After any other failure of a group, the others go on.
_FATAL = (Cancelled, EngineUnavailable, ShuttingDown, TableNotFound, OutcomeUnknown)

# Deleted rows are searched again before the commit if the search took longer, because many may have followed.
_SHORT_SEARCH_S = 0.5
_MOST_SEARCHES = 2


@dataclass(frozen=True)
class MergeOptions:
    """How files are merged, how many at least and at most, and how many groups in parallel."""

    how: RewriteOptions
    min_files: int
    max_files: int
    at_once: int
    last_deletes: bool = False
    """Whether files are rewritten for their delete files, however few, if there is nothing else to merge."""


@dataclass
class MergeProgress:
    """What a compaction has committed so far: the table after it, its last snapshot, and the figures."""

    table: Table
    tally: CompactionTally
    snapshot: Snapshot | None = None

    @classmethod
    def of(cls, table: Table) -> "MergeProgress":
        files = list_files(table)
        return cls(table, CompactionTally(len(files.data), files.bytes))

    def committed(self, result: CommitResult) -> None:
        """Count a commit."""
        table, snapshot = result.after, result.snapshot
        assert snapshot is not None  # if it could not be made, that was raised
        # Compared with its own parent, as others may have committed in the meantime.
        self.tally.committed(list_files(table, snapshot.parent_id), list_files(table, snapshot.snapshot_id), snapshot)
        self.table, self.snapshot = table, snapshot


@dataclass(frozen=True)
class Merger:
    """Merges small files: planned and committed from metadata, rewritten by Spark.

    A long merge commits its finished groups every `every_s` seconds: a kill loses little, and readers benefit early.
    `pauses_s` are the pauses before a refused commit is tried again.
    """

    engine: Engine
    commits: Commits
    every_s: float = 10.0
    pauses_s: Sequence[float] = (1.0, 4.0)

    def choose(self, table: Table, options: MergeOptions, call: Call) -> PlannedGroups | None:
        """The groups worth merging now, if any; this needs no Spark job."""
        if table.current_snapshot_id is None:
            return None
        how, files = options.how, list_files(table)
        found = find_small_files(files.data, how.small_bytes, options.min_files)
        for_deletes = frozenset(file.path for file in found.worth_merging if file.deletes)
        if how.all_deletes or not for_deletes:
            chosen = self._chosen(table, options, files, call)
        else:
            chosen = self._chosen(table, _of_all_deletes(options), files, call, for_deletes)
        if chosen is None and options.last_deletes and files.deletes > files.dangling:
            return self._chosen(table, _of_all_deletes(options), files, call)
        return chosen

    def _chosen(
        self, table: Table, options: MergeOptions, files: TableFiles, call: Call, only: Set[str] | None = None
    ) -> PlannedGroups | None:
        """The groups worth merging; with `only`, they are rewritten for the delete files of these files alone."""
        how = options.how
        assert table.current_snapshot_id is not None
        planned = self.engine.run_for(call, plan, table.spark_name, how, table.current_snapshot_id)
        groups = planned.groups
        if only is not None:
            groups = tuple(replace(group, heavy=not only.isdisjoint(group.with_deletes)) for group in groups)
        beside = small_files_beside(files.data, how.small_bytes, {group.path for group in groups})
        worth = choose(groups, options.min_files, options.max_files, beside)
        taken = [g if take == g.files else self.engine.run(first_files_of, g, take, how) for g, take in worth]
        return replace(planned, groups=tuple(taken)) if taken else None

    def remove_dangling(self, merged: MergeProgress, job: Job) -> None:
        """Remove the delete files of data files that are gone."""
        job.progress.phase = "committing"

        def change(current: Table, batch: str) -> None:
            gate = job.gate_for(self.commits, batch)
            self.engine.run(remove_dangling, current.spark_name, merged.table.uuid, batch, gate)

        result = self.commits.commit(merged.table, "COMPACT", job.call, change)
        if result.snapshot is not None:
            merged.committed(result)

    def run(self, merged: MergeProgress, planned: PlannedGroups, options: MergeOptions, job: Job) -> None:
        """Merge the planned groups of `merged.table`. What others change in the meantime stays as they made it.
        `merged` has what was committed, even if the rest fails."""
        job.progress.phase = "rewriting"
        merge = _Merge(self, planned, options, merged, job)
        try:
            with merge.leaving_no_files():
                self._rewrite_all(merge, self.engine.run(with_rows, planned.groups))
        except OutcomeUnknown:
            raise
        except Exception as e:
            # A compaction whose Spark jobs were cancelled can fail with any error.
            if isinstance(e, Cancelled) or job.call.cancelled:
                tally = merged.tally  # what was committed before
                done = {"files_compacted": tally.files_compacted, "files_added": tally.files_added}
                raise Cancelled(details={**done, "partitions_compacted": len(tally.partitions)}) from e
            raise

    def _rewrite_all(self, merge: "_Merge", groups: Sequence[FileGroup]) -> None:
        failures: list[Exception] = []
        finished: list[RewrittenGroup] = []
        committed_at = time.monotonic()
        shares = core_shares([group.bytes for group in groups], min(merge.rewriter.at_once, len(groups)))
        shared = [replace(group, beside=beside) for group, beside in zip(groups, shares, strict=True)]
        with merge.rewriter.rewriting(shared, merge.rewrite) as rewritten:
            for ended in rewritten:
                for group, result in ended:
                    try:
                        finished.append(result.result())
                    except _FATAL:
                        raise
                    except Exception as e:
                        merge.skip(group, e)
                        failures.append(e)
                if finished and time.monotonic() - committed_at >= self.every_s:
                    ready, finished = finished, []
                    merge.commit(ready)
                    committed_at = time.monotonic()
            if finished:
                merge.commit(finished)
        if failures and len(failures) == len(groups):
            raise failures[0]


@dataclass
class _Merge:
    """One compaction in progress."""

    merger: Merger
    planned: PlannedGroups
    options: MergeOptions
    merged: MergeProgress
    job: Job
    kept: set[str] = field(default_factory=set)
    """The names of the new files that were committed."""
    left_files: bool = False
    unsure: bool = False
    """Whether it is unknown if a commit was made."""

    def __post_init__(self) -> None:
        engine, job, self.tag = self.merger.engine, self.job, merge_tag(self.job.id)
        self.rewriter: FileRewriter[FileGroup, RewrittenGroup] = FileRewriter(
            engine, self.tag, self.options.at_once, job.call, job.progress, _FATAL
        )
        self.table = self.merged.table
        self.folder = folder_of(self.table, self.tag)

    def rewrite(self, group: FileGroup) -> RewrittenGroup:
        call, how = self.job.call, self.options.how
        return self.merger.engine.run_for(call, rewrite, self.planned, group, how, self.folder, self.tag)

    def skip(self, group: FileGroup, failure: Exception) -> None:
        """Go on without a group that could not be rewritten."""
        log.warning("a group of %d files of %s could not be rewritten", group.files, self.table.name, exc_info=failure)
        self.merged.tally.groups_failed += 1
        self.left_files = True

    def commit(self, done: Sequence[RewrittenGroup]) -> None:
        """Commit groups together. If other writers changed some of their files, commit the other groups."""
        waiting = [list(done)]
        while waiting:
            part = waiting.pop()
            try:
                self._commit_patiently(part)
            except FilesChanged as e:
                if len(part) > 1:
                    half = len(part) // 2
                    waiting += [part[half:], part[:half]]
                    continue
                log.info("%d files of %s are not merged: %s", part[0].group.files, self.table.name, e)
                self._lose(part)
            except (CommitConflict, TooManyRequests) as e:
                self.job.commit_gate()
                log.warning("%d groups of %s could not be committed: %s", len(part), self.table.name, e.message)
                self._lose(part)

    @contextmanager
    def leaving_no_files(self) -> Iterator[None]:
        """Delete files that were written and are in no snapshot, unless it is unknown whether they are."""
        try:
            yield
        except BaseException:
            self.left_files = True
            raise
        finally:
            if (self.left_files or not self.kept) and not self.unsure:
                self.rewriter.sweep(self.merger.commits, self.table, self.folder, self.kept)

    def _commit_patiently(self, part: Sequence[RewrittenGroup]) -> None:
        """Commit, and try again after a pause if other writers were faster."""
        for pause in (*self.merger.pauses_s, None):
            self.job.call.check()
            try:
                return self._commit(part)
            except (CommitConflict, TooManyRequests):
                self.job.commit_gate()  # if another instance took the job over, there is nothing to try again
                if pause is None:
                    raise
                time.sleep(pause)

    def _lose(self, part: Sequence[RewrittenGroup]) -> None:
        self.merged.tally.conflicts += len(part)
        self.left_files = True

    def _commit(self, part: Sequence[RewrittenGroup]) -> None:
        self.job.progress.phase = "committing"
        schema, current = self.table.stored_schema, self.merger.commits.current(self.table)
        search = DeleteSearch(MovedRows(self.table, plain_columns(schema)), schema)
        # Writers wait for the commit, so that most of its work is done before; also for what is deleted during that.
        for _ in range(_MOST_SEARCHES):
            started = time.monotonic()
            self.merger.engine.run_for(self.job.call, find_late_deletes, current.spark_name, self.planned, part, search)
            if time.monotonic() - started < _SHORT_SEARCH_S:
                break

        def change(current: Table, batch: str) -> None:
            gate = self.job.gate_for(self.merger.commits, batch)
            engine, name = self.merger.engine, current.spark_name
            engine.run(commit, name, self.table.uuid, self.planned, part, search, batch, gate)

        try:
            result = self.merger.commits.commit(self.table, "COMPACT", self.job.call, change)
        except OutcomeUnknown:
            self.unsure = True
            raise
        self.kept.update(name for one in part for name in one.names)
        self.merged.tally.partitions.update(one.group.partition for one in part)
        self.merged.committed(result)
        self.job.progress.phase = "rewriting"


def _of_all_deletes(options: MergeOptions) -> MergeOptions:
    return replace(options, how=replace(options.how, all_deletes=True))


def merge_tag(job_id: str) -> str:
    """The tag of a compaction's Spark jobs, and the name of its folder."""
    return f"compact-{job_id}"


def folder_of(table: Table, tag: str) -> str:
    """The folder that a compaction writes to. The tag finds it again after the process has ended."""
    data = table.properties.get("write.data.path") or f"{table.location}/data"
    return f"{data.rstrip('/')}/{tag}"

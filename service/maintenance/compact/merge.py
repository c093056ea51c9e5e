"""The merging of small files, from the plan to the last commit. It gives way to writers, and keeps what it has done."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from service.catalog.files.data_files import list_files
from service.catalog.tables import Snapshot, Table
from service.commits.commit import Commits
from service.engine.iceberg.compaction import (
    FileGroup,
    PlannedGroups,
    RewriteOptions,
    RewrittenGroup,
    commit,
    first_of,
    plan,
)
from service.engine.iceberg.swap import FilesChanged, Gate
from service.engine.jobs.rewrite import rewrite
from service.engine.session.engine import Engine
from service.errors import (
    Cancelled,
    CommitConflict,
    EngineUnavailable,
    OutcomeUnknown,
    ShuttingDown,
    TableNotFound,
    TooManyRequests,
)
from service.maintenance.compact.plan import choose, core_shares, small_files_beside
from service.maintenance.compact.report import CompactionProgress, CompactionTally
from service.maintenance.rewriter import FileRewriter
from service.model.call import Call

log = logging.getLogger("firn.maintenance")

# How often a long compaction commits what is finished: a kill costs no more, and readers benefit early.
COMMIT_EVERY_S = 10.0
# Before a refused commit is tried again.
_PAUSES_S = (1.0, 4.0)
# What ends a compaction at once; after any other failure of a group, the others go on.
_FATAL = (Cancelled, EngineUnavailable, ShuttingDown, TableNotFound, OutcomeUnknown)


@dataclass(frozen=True)
class MergeOptions:
    """How files are merged, how many at least and at most, and how many groups side by side."""

    how: RewriteOptions
    min_files: int
    max_files: int
    at_once: int
    call: Call
    tag: str
    """Of its Spark jobs, and of the folder that its files lie in."""
    commit_gate: Callable[[], None] = lambda: None
    """Of its job: raises if it must not commit any more."""

    @property
    def progress(self) -> CompactionProgress:
        return self.call.progress(CompactionProgress)

    def gate(self, commits: Commits, batch: str) -> Gate:
        """What is asked when nothing but a commit is left to do: raises if another instance took the work over."""

        def gate() -> None:
            commits.must_be_ours(batch)
            self.commit_gate()

        return gate


@dataclass(frozen=True)
class ChosenGroups:
    """The groups worth merging, of a table at a snapshot."""

    planned: PlannedGroups | None
    groups: tuple[FileGroup, ...]


@dataclass
class MergeProgress:
    """What a compaction has done so far: the table after it, its last snapshot, and the figures."""

    table: Table
    tally: CompactionTally
    snapshot: Snapshot | None = None
    newest: int | None = None
    """A snapshot that it made after this one."""
    expected: Mapping[str, Any] = field(default_factory=dict)
    """What was predicted."""


class Merger:
    """Merges small files: planned and committed from metadata, rewritten by Spark."""

    def __init__(
        self,
        engine: Engine,
        commits: Commits,
        clock: Callable[[], float] = time.monotonic,
        every_s: float = COMMIT_EVERY_S,
        pauses_s: Sequence[float] = _PAUSES_S,
    ) -> None:
        self._engine = engine
        self._commits = commits
        self._clock = clock
        self._every_s = every_s
        self._pauses_s = pauses_s

    def choose(self, table: Table, options: MergeOptions) -> ChosenGroups:
        """What is worth merging now; this needs no Spark job."""
        if table.current_snapshot_id is None:
            return ChosenGroups(None, ())
        how = options.how
        planned = self._engine.run_for(options.call, plan, table.spark_name, how, table.current_snapshot_id)
        beside = small_files_beside(list_files(table).data, how.small_bytes, {group.path for group in planned.groups})
        worth = choose(planned.groups, options.min_files, options.max_files, beside)
        groups = [g if take == g.files else self._engine.run(first_of, g, take, how) for g, take in worth]
        return ChosenGroups(planned, tuple(groups))

    def run(self, made: MergeProgress, chosen: ChosenGroups, options: MergeOptions) -> None:
        """Merge what was chosen of `made.table`. What others change in the meantime is left as they made it.

        `made` has what was committed, also if the rest fails.
        """
        options.call.check()
        if chosen.planned is None or not chosen.groups:
            return
        options.progress.phase = "rewriting"
        merge = _Merge(self._engine, self._commits, chosen.planned, options, made, self._pauses_s)
        try:
            with merge.leaving_no_files():
                self._rewrite_all(merge, chosen.groups)
        except OutcomeUnknown:
            raise
        except Exception as e:
            # What a compaction meets whose Spark jobs were cancelled can be anything.
            if isinstance(e, Cancelled) or options.call.cancelled:
                raise Cancelled(details=_so_far(made.tally)) from e
            raise

    def _rewrite_all(self, merge: "_Merge", groups: Sequence[FileGroup]) -> None:
        failures: list[Exception] = []
        finished: list[RewrittenGroup] = []
        committed_at = self._clock()
        shares = core_shares([group.bytes for group in groups], min(merge.rewriter.at_once, len(groups)))
        shared = [replace(group, beside=beside) for group, beside in zip(groups, shares, strict=True)]
        with merge.rewriter.rewriting(shared, merge.rewrite) as rounds:
            for ended in rounds:
                for group, result in ended:
                    try:
                        finished.append(result.result())
                    except _FATAL:
                        raise
                    except Exception as e:
                        merge.skip(group, e)
                        failures.append(e)
                if finished and self._clock() - committed_at >= self._every_s:
                    ready, finished = finished, []
                    merge.commit(ready)
                    committed_at = self._clock()
            if finished:
                merge.commit(finished)
        if failures and len(failures) == len(groups):
            raise failures[0]


class _Merge:
    """One compaction in progress."""

    def __init__(
        self,
        engine: Engine,
        commits: Commits,
        planned: PlannedGroups,
        options: MergeOptions,
        made: MergeProgress,
        pauses_s: Sequence[float],
    ) -> None:
        self.rewriter: FileRewriter[FileGroup, RewrittenGroup] = FileRewriter(
            engine, options.tag, options.at_once, options.call, options.progress, _FATAL
        )
        self._table = made.table
        self._folder = folder_of(made.table, options.tag)
        self._options = options
        self._made = made
        self._engine = engine
        self._commits = commits
        self._planned = planned
        self._pauses_s = pauses_s
        self._kept: set[str] = set()
        self._left_files = False
        self._unsure = False

    def rewrite(self, group: FileGroup) -> RewrittenGroup:
        how, tag = self._options.how, self._options.tag
        return self._engine.run_for(self._options.call, rewrite, self._planned, group, how, self._folder, tag)

    def skip(self, group: FileGroup, failure: Exception) -> None:
        """Go on without a group that could not be rewritten."""
        log.warning("a group of %d files of %s could not be rewritten", group.files, self._table.name, exc_info=failure)
        self._made.tally.groups_failed += 1
        self._left_files = True

    def commit(self, done: Sequence[RewrittenGroup]) -> None:
        """Commit groups together; if that is refused, those that can be without those that cannot."""
        waiting = [list(done)]
        while waiting:
            part = waiting.pop()
            try:
                self._commit_patiently(part)
            except FilesChanged:
                if len(part) > 1:
                    half = len(part) // 2
                    waiting += [part[half:], part[:half]]
                    continue
                self._lose(part)
            except (CommitConflict, TooManyRequests) as e:
                self._check_ours()
                log.warning("%d groups of %s could not be committed: %s", len(part), self._table.name, e.message)
                self._lose(part)

    @contextmanager
    def leaving_no_files(self) -> Iterator[None]:
        """Delete what was written and is in no snapshot, unless nobody can tell."""
        try:
            yield
        except OutcomeUnknown:
            raise
        except BaseException:
            self._left_files = True
            raise
        finally:
            if (self._left_files or not self._kept) and not self._unsure:
                self._sweep()

    def _commit_patiently(self, part: Sequence[RewrittenGroup]) -> None:
        """Commit, and try again after a while if others were quicker."""
        for pause in (*self._pauses_s, None):
            self._options.call.check()
            try:
                return self._commit(part)
            except (CommitConflict, TooManyRequests):
                self._check_ours()
                if pause is None:
                    raise
                time.sleep(pause)

    def _check_ours(self) -> None:
        """Raise CommitConflict if another instance took this work over, so that there is nothing to try again."""
        self._options.commit_gate()

    def _lose(self, part: Sequence[RewrittenGroup]) -> None:
        self._made.tally.conflicts += len(part)
        self._left_files = True

    def _commit(self, part: Sequence[RewrittenGroup]) -> None:
        self._options.progress.phase = "committing"

        def change(current: Table, batch: str) -> None:
            gate = self._options.gate(self._commits, batch)
            self._engine.run(commit, current.spark_name, self._table.uuid, self._planned, part, batch, gate)

        try:
            result = self._commits.commit(self._table, "COMPACT", self._options.call, change)
        except OutcomeUnknown:
            self._unsure = True
            raise
        snapshot, made = result.snapshot, self._made
        assert snapshot is not None  # whatever kept it from being made was raised
        self._kept.update(name for one in part for name in one.names)
        made.tally.partitions.update(one.group.partition for one in part)
        # Its own parent, as others may have committed in the meantime.
        before, after = list_files(result.after, snapshot.parent_id), list_files(result.after, snapshot.snapshot_id)
        made.tally.committed(before, after, snapshot)
        made.table, made.snapshot = result.after, snapshot
        self._options.progress.phase = "rewriting"

    def _sweep(self) -> None:
        try:
            table = self._commits.find(self._table.name, self._table.uuid)  # it may have been renamed
            self.rewriter.sweep(table, self._folder, self._kept)
        except Exception as e:  # they only take space; CLEAN_ORPHANS finds them
            log.warning("files of an unfinished compaction of %s could not be deleted: %s", self._table.name, e)


def folder_of(table: Table, tag: str) -> str:
    """The folder that a compaction writes into, found by its tag if the process that knows its files is gone."""
    data = table.properties.get("write.data.path") or f"{table.location}/data"
    return f"{data.rstrip('/')}/{tag}"


def _so_far(tally: CompactionTally) -> dict[str, int]:
    """What a cancelled compaction has committed before."""
    return {
        "files_compacted": tally.files_compacted,
        "files_added": tally.files_added,
        "partitions_compacted": len(tally.partitions),
    }

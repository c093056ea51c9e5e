"""COMPACT from request to report: noted, one at a time for each table, its old snapshots let go after it."""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from service.catalog.files.data_files import list_files, matching_files
from service.catalog.files.small import MIB, find_small_files, is_small, small_bytes
from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.commits.holds import SnapshotHolds
from service.commits.locks import TableLocks
from service.commits.small_files import SmallFileChecks
from service.engine.iceberg.compaction import RewriteOptions, rewrite_manifests
from service.engine.session import tags
from service.engine.session.engine import Engine
from service.errors import Cancelled, FirnError, TableNotFound
from service.jobs.job import Job
from service.jobs.jobs import DAY_MS, Jobs, Kind
from service.ledger.jobs import JobRecord
from service.maintenance.advise.costs import MergeSize
from service.maintenance.compact.merge import (
    ChosenGroups,
    MergeOptions,
    MergeProgress,
    Merger,
    folder_of,
)
from service.maintenance.compact.report import (
    CompactionOptions,
    CompactionOutcome,
    CompactionProgress,
    CompactionStats,
    CompactionTally,
    PlannedGroup,
)
from service.maintenance.expire.expirer import Expirer
from service.maintenance.expire.retention import NOTHING_EXPIRED, ExpiryResult
from service.maintenance.leftovers import clear_up
from service.metrics.catalogue import CANCELLED, DONE, FAILED, NOTHING
from service.metrics.metrics import Metrics
from service.model.call import Call
from service.model.failures import internal_error
from service.model.names import RESERVED_COLUMN_PREFIX
from service.model.properties import CompactionPolicy, target_file_size_mb

log = logging.getLogger("firn.maintenance")
COMPACT = "COMPACT"
_LOGGED_DAYS = 90


@dataclass
class _Work:
    """A compaction under way, and what became of it so far."""

    order: MergeOptions
    made: MergeProgress
    started: float
    job: Job | None = None
    """None for a dry run."""
    reason: str | None = None
    small_files: int | None = None
    """How many there are after it, where that was counted: before old snapshots go."""
    manifests: int = 0
    expired: ExpiryResult = NOTHING_EXPIRED
    plan: tuple[PlannedGroup, ...] | None = None
    warnings: list[str] = field(default_factory=list)


# What a compaction that is planned is expected to do.
Predict = Callable[[Table, MergeSize], Mapping[str, Any]]


class Compactions:
    """Compacts tables; plans and counts from metadata, and leaves the merging to Spark."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        commits: Commits,
        upkeep: SmallFileChecks,
        holds: SnapshotHolds,
        expirer: Expirer,
        jobs: Jobs,
        metrics: Metrics | None = None,
        predict: Predict = lambda table, merge: {},
    ) -> None:
        self.engine = engine
        self.catalog = catalog
        self.commits = commits
        self.upkeep = upkeep
        self.holds = holds
        self.expirer = expirer
        self.jobs = jobs
        jobs.register(COMPACT, Kind("a compaction", self._clean_up, _LOGGED_DAYS * DAY_MS))
        self.metrics = metrics or Metrics()
        self.merger = Merger(engine, commits)
        self._predict = predict
        self._line = TableLocks()

    def compact(self, table: Table, wish: CompactionOptions, call: Call) -> CompactionOutcome:
        """Merge the small files of a table where it is worth it, then let old snapshots go."""
        started, progress = time.monotonic(), call.progress(CompactionProgress)
        progress.phase = "planning"
        policy = self.upkeep.policy(table)
        order = self._order(table, policy, wish, call)
        work = _Work(order, _nothing(table), started)
        if wish.dry_run:
            return self._outcome(self._planned(work, policy, wish))
        with self._line.hold(table.uuid, call.check):
            call.start_gate()
            wished = {key: value for key, value in asdict(wish).items() if value is not None}
            with self.jobs.begin(COMPACT, table, progress, call, request=wished) as work.job:
                work.order = replace(order, tag=_tag(work.job.id), commit_gate=work.job.commit_gate)
                try:
                    self._compact(table, policy, wish, work)
                    outcome = self._outcome(work)
                except BaseException as e:
                    self._given_up(work.job, table, work, e)
                    raise
                work.job.details |= {"stats": asdict(outcome.stats), "error": "; ".join(outcome.warnings) or None}
        _tell(table, outcome)
        self.metrics.compacted(table.name, DONE if outcome.compacted else NOTHING, **_figures(outcome.stats))
        progress.phase = "done"
        return outcome

    def _clean_up(self, left: JobRecord) -> dict[str, Any]:
        """Remove what a compaction wrote and did not commit; what it did commit, as far as snapshots tell."""
        told: dict[str, Any] = {"error": "the service ended while it ran; what it had committed stays"}
        try:
            table = self.commits.find(left.table, left.table_uuid)
        except TableNotFound:
            return told
        folder = folder_of(table, _tag(left.id))
        gone, committed = clear_up(self.engine, self.catalog, table, folder, fence=self.jobs.records.shared)
        if gone:
            log.info("%d files of a compaction of %s that did not end were removed", gone, table.name)
        if committed.last is not None:
            small = self.upkeep.small_bytes(table)
            stats = CompactionStats.of(
                committed.tally,
                NOTHING_EXPIRED,
                manifests_rewritten=0,
                spark_jobs=0,
                small_files_remaining=sum(is_small(file, small) for file in list_files(table).data),
                compaction_time_ms=max(committed.last.timestamp_ms - (left.started_ms or 0), 0),
            )
            told["stats"] = asdict(stats)
        return told

    def _planned(self, work: _Work, policy: CompactionPolicy, wish: CompactionOptions) -> _Work:
        """What would be done now."""
        table = self.catalog.load(work.made.table.name)
        work.made, order = _nothing(table), work.order
        with self.holds.building_on(table.uuid, table.current_snapshot_id):
            chosen = self.merger.choose(table, order) if policy.active or wish.force else ChosenGroups(None, ())
            work.plan = tuple(
                PlannedGroup(_shown(g.partition), g.files, g.bytes, g.expected_files) for g in chosen.groups
            )
            work.reason = "this was a dry run" if work.plan else self._why_not(table, policy, wish, order, work.made)
            work.small_files = self._small_files(work)
        return work

    def _compact(self, table: Table, policy: CompactionPolicy, wish: CompactionOptions, work: _Work) -> None:
        table = self.catalog.load(table.name)  # it may have waited for another compaction
        order = work.order
        with self.holds.building_on(table.uuid, table.current_snapshot_id):
            self._merge(table, policy, wish, work)
            if work.made.snapshot is None:
                work.reason = self._why_not(table, policy, wish, order, work.made)
            work.small_files = self._small_files(work)
            self._tell_what_is_left(work)
        if wish.rewrite_manifests:
            with self._after_the_merge(work, "the lists of its files were not rewritten"):
                work.manifests = self._rewrite_manifests(work.made, order)
        order.progress.phase = "expiring"
        hours = wish.snapshot_retention_hours
        hours = policy.snapshot_retention_hours if hours is None else hours
        if wish.expire_snapshots:
            with self._after_the_merge(work, "its old snapshots stayed"):
                work.expired = self.expirer.by_age(work.made.table, hours, order.call.commit_gate)

    @contextmanager
    def _after_the_merge(self, work: _Work, undone: str) -> Iterator[None]:
        """What fails once files were merged makes no failure of that: it is told, and the next compaction does it."""
        try:
            yield
        except Cancelled:
            raise
        except FirnError as e:
            if work.made.snapshot is None:
                raise
            log.warning("%s was compacted, but %s: %s", work.made.table.name, undone, e.message)
            work.warnings.append(f"{undone}: {e.code}: {e.message}")

    def _merge(self, table: Table, policy: CompactionPolicy, wish: CompactionOptions, work: _Work) -> None:
        # What an earlier attempt with the same key merged is answered, not looked for again.
        happened = self.commits.earlier_batch(work.order.call)
        if happened is not None and happened.snapshot_id:
            work.made = self._made_before(table, happened.snapshot_id)
            return
        work.made = _nothing(table)
        if not policy.active and not wish.force:
            return
        chosen = self.merger.choose(table, work.order)
        if chosen.groups:
            work.made.expected = self._expect(table, chosen, work)
        self.merger.run(work.made, chosen, work.order)

    def _given_up(self, job: Job, table: Table, work: _Work, failure: BaseException) -> None:
        """Note a compaction that failed or was cancelled, with what it had committed by then: that stays."""
        cancelled = isinstance(failure, Cancelled)
        stats = None
        try:
            stats = self._outcome(work).stats
            self._tell_what_is_left(work)
        except Exception:
            log.warning("what the compaction of %s had done by then could not be counted", table.name, exc_info=True)
        told = (
            failure
            if isinstance(failure, FirnError)
            else internal_error(log, f"the compaction of {table.name}", failure)
        )
        job.details |= {"stats": stats and asdict(stats), "error": told.message}
        self.metrics.compacted(table.name, CANCELLED if cancelled else FAILED, **_figures(stats))

    def _tell_what_is_left(self, work: _Work) -> None:
        made = work.made
        if made.snapshot is not None:
            self.upkeep.tell(made.table, made.snapshot.snapshot_id)

    def _expect(self, table: Table, chosen: ChosenGroups, work: _Work) -> Mapping[str, Any]:
        """Note what is expected of it; what cannot be foretold keeps nothing from being done."""
        merged, fewer = sum(g.files for g in chosen.groups), sum(g.expected_files for g in chosen.groups)
        before = len(list_files(table).data)
        merge = MergeSize(before, before - merged + fewer, merged, sum(g.bytes for g in chosen.groups))
        try:
            expected = self._predict(table, merge)
            assert work.job is not None  # this is no dry run
            work.job.note(predicted=expected)
        except Exception:
            log.warning("what the compaction of %s would take could not be foretold", table.name, exc_info=True)
            return {}
        return expected

    def _order(self, table: Table, policy: CompactionPolicy, wish: CompactionOptions, call: Call) -> MergeOptions:
        target_mb = wish.target_file_size_mb or target_file_size_mb(table.properties, self.upkeep.settings)
        small = wish.max_file_size_mb * MIB if wish.max_file_size_mb else small_bytes(policy, target_mb)
        how = RewriteOptions(
            small_bytes=small,
            target_bytes=target_mb * MIB,
            group_bytes=policy.group_mb * MIB,
            filter_json=wish.filter_json,
            compression=wish.compression,
            strategy=wish.strategy or policy.strategy,
            sort_by=policy.sort_by if wish.sort_by is None else wish.sort_by,
        )
        return MergeOptions(
            how,
            min_files=wish.min_files or (2 if wish.force else policy.min_files_to_compact),
            max_files=wish.max_files or policy.max_files_per_compaction,
            at_once=policy.concurrent_groups,
            call=call,
            tag=_tag(uuid.uuid4().hex),
        )

    def _made_before(self, table: Table, snapshot_id: int) -> MergeProgress:
        current = self.catalog.load(table.name)
        snapshot = current.snapshot(snapshot_id)
        before, after = list_files(current, snapshot.parent_id), list_files(current, snapshot_id)
        made = MergeProgress(current, CompactionTally(len(before.data), before.bytes), snapshot)
        made.tally.committed(before, after, snapshot)
        return made

    def _why_not(
        self, table: Table, policy: CompactionPolicy, wish: CompactionOptions, order: MergeOptions, made: MergeProgress
    ) -> str:
        if made.tally.conflicts:
            return "the files to merge were changed by other writers meanwhile; try again"
        found = find_small_files(matching_files(table, wish.filter_json), order.how.small_bytes, order.min_files)
        if found.worth_merging and not (policy.active or wish.force):
            return "compaction is disabled for this table; force: true compacts it all the same"
        if not found.small:
            return "there are no small files"
        if found.worth_merging:
            return f"{len(found.small)} small files would not become fewer"
        hint = "" if wish.force else "; force: true merges from 2"
        return (
            f"{len(found.small)} small file(s), but no partition has the {order.min_files} that make merging worth it"
            f"{hint}"
        )

    def _rewrite_manifests(self, made: MergeProgress, order: MergeOptions) -> int:
        order.progress.phase = "rewriting manifests"
        rewritten = 0

        def change(current: Table, batch: str) -> None:
            nonlocal rewritten
            order.gate(self.commits, batch)()
            rewritten = self.engine.run(rewrite_manifests, current.spark_name, batch, order.tag)

        effect = self.commits.commit(made.table, "COMPACT", order.call.without_key(), change)
        made.table, made.newest = effect.after, effect.snapshot_id
        return rewritten

    def _outcome(self, work: _Work) -> CompactionOutcome:
        made = work.made
        stats = CompactionStats.of(
            made.tally,
            work.expired,
            manifests_rewritten=work.manifests,
            spark_jobs=self._spark_jobs(work.order),
            small_files_remaining=self._small_files(work),
            compaction_time_ms=round((time.monotonic() - work.started) * 1000),
        )
        merged = made.snapshot.snapshot_id if made.snapshot else made.table.current_snapshot_id
        return CompactionOutcome(
            made.snapshot is not None,
            work.reason,
            stats,
            made.newest or merged,
            work.plan,
            work.expired.kept,
            made.expected,
            tuple(work.warnings),
        )

    def _small_files(self, work: _Work) -> int:
        if work.small_files is not None:
            return work.small_files
        made = work.made
        at = made.snapshot.snapshot_id if made.snapshot else None
        return sum(is_small(file, work.order.how.small_bytes) for file in list_files(made.table, at).data)

    def _spark_jobs(self, order: MergeOptions) -> int:
        try:
            return self.engine.run(tags.jobs_of, order.tag)
        except Exception as e:  # the work is done; only how it was done is not known
            log.warning("the Spark jobs of a compaction could not be counted: %s", e)
            return 0


def _figures(stats: CompactionStats | None) -> dict[str, Any]:
    """What metrics are told of a compaction."""
    if stats is None:
        return {}
    names = ("files_before", "files_after", "files_compacted", "bytes_before", "bytes_after", "conflicts")
    told = {name: getattr(stats, name) for name in (*names, "groups_failed")}
    return {**told, "seconds": stats.compaction_time_ms / 1000}


def _tell(table: Table, outcome: CompactionOutcome) -> None:
    """What was foretold, and what came of it."""
    stats, expected = outcome.stats, outcome.expected
    if not outcome.compacted:
        return
    foretold = ""
    if expected:
        foretold = f"; foretold were {expected.get('files_after')} files after {expected.get('time_ms')} ms"
    log.info(
        "compacted %s: %d files became %d, of %d in all, in %d ms%s",
        table.name,
        stats.files_compacted,
        stats.files_added,
        stats.files_after,
        stats.compaction_time_ms,
        foretold,
    )


def _tag(job_id: str) -> str:
    return f"compact-{job_id}"


def _nothing(table: Table) -> MergeProgress:
    files = list_files(table)
    return MergeProgress(table, CompactionTally(len(files.data), files.bytes))


def _shown(partition: str) -> str:
    """A partition as answers name it: by columns that requests may name."""
    return "/".join(part for part in partition.split("/") if not part.startswith(RESERVED_COLUMN_PREFIX))

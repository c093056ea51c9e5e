"""COMPACT from request to report: recorded as a job, one at a time per table, followed by the expiry of snapshots."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from service.catalog.files.data_files import list_files, matching_files
from service.catalog.files.small import MIB, find_small_files, is_small, small_bytes
from service.catalog.files.staging import INTERNAL_TENANT
from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.commits.holds import SnapshotHolds
from service.commits.locks import TableLocks
from service.commits.small_files import SmallFileChecks
from service.engine.iceberg.compaction import FileGroup, PlannedGroups, RewriteOptions, rewrite_manifests
from service.engine.session import tags
from service.engine.session.engine import Engine
from service.errors import Cancelled, FirnError, TableNotFound
from service.jobs.job import Job
from service.jobs.jobs import DAY_MS, Jobs, Kind
from service.ledger.jobs import JobRecord
from service.maintenance.advise.costs import MergeSize
from service.maintenance.compact.merge import MergeOptions, MergeProgress, Merger, folder_of, merge_tag
from service.maintenance.compact.report import (
    CompactionGroup,
    CompactionOptions,
    CompactionOutcome,
    CompactionProgress,
    CompactionStats,
    CompactionTally,
)
from service.maintenance.expire.expirer import Expirer
from service.maintenance.expire.retention import NOTHING_EXPIRED, ExpiryResult
from service.maintenance.leftovers import clear_up
from service.metrics.catalogue import CANCELLED, DONE, FAILED, NOTHING
from service.metrics.metrics import Metrics
from service.model.call import Call
from service.model.failures import internal_error
from service.model.ingest.reserved import PERIOD_FIELD
from service.model.names import RESERVED_COLUMN_PREFIX
from service.model.properties import CompactionPolicy, target_file_size_mb

log = logging.getLogger("firn.maintenance")
COMPACT = "COMPACT"
_KEPT_DAYS = 90
_ALL = 1 << 31


@dataclass
class _Work:
    """A compaction in progress."""

    policy: CompactionPolicy
    options: CompactionOptions
    merge: MergeOptions
    merged: MergeProgress
    call: Call
    started: float = field(default_factory=time.monotonic)
    job: Job | None = None
    """None for a dry run."""
    reason: str | None = None
    small_files: int | None = None
    """How many small files are left; counted before old snapshots expire."""
    plan: tuple[CompactionGroup, ...] | None = None
    predicted: Mapping[str, Any] = field(default_factory=dict)
    manifests: int = 0
    newest_id: int | None = None
    """The snapshot with the rewritten manifests."""
    expired: ExpiryResult = NOTHING_EXPIRED
    warnings: list[str] = field(default_factory=list)

    @property
    def enabled(self) -> bool:
        return self.policy.active or self.options.force


# Predicts the effects of a compaction that is planned.
Predict = Callable[[Table, MergeSize], Mapping[str, Any]]


@dataclass(eq=False)
class Compactions:
    """Compacts tables: plans and counts from metadata, and has Spark merge the files."""

    engine: Engine
    catalog: Catalog
    commits: Commits
    small_files: SmallFileChecks
    holds: SnapshotHolds
    expirer: Expirer
    jobs: Jobs
    metrics: Metrics = field(default_factory=Metrics)
    predict: Predict = lambda table, merge: {}
    _locks: TableLocks = field(default_factory=TableLocks)

    def __post_init__(self) -> None:
        self.jobs.register(COMPACT, Kind("a compaction", self._clean_up, _KEPT_DAYS * DAY_MS))
        self.merger = Merger(self.engine, self.commits)

    def compact(self, table: Table, options: CompactionOptions, call: Call) -> CompactionOutcome:
        """Merge the small files of a table if it is worth it, then expire old snapshots."""
        progress = call.progress(CompactionProgress)
        progress.phase = "planning"
        policy = self.small_files.policy(table)
        work = _Work(policy, options, self._merge_options(table, policy, options), MergeProgress.of(table), call)
        if options.dry_run:
            self._plan(work)
            return self._outcome(work)
        with self._locks.hold(table.uuid, call.check):
            call.start_gate()
            request = {key: value for key, value in asdict(options).items() if value is not None}
            with self.jobs.begin(COMPACT, table, progress, call, request=request) as job:
                work.job = job
                try:
                    self._compact(work, job)
                    outcome = self._outcome(work)
                except BaseException as e:
                    self._record_failure(work, job, e)
                    raise
                job.details |= {"stats": outcome.stats.model_dump(), "error": "; ".join(outcome.warnings) or None}
        if outcome.compacted:
            stats, internal = outcome.stats, table.name.tenant == INTERNAL_TENANT
            log.log(
                logging.DEBUG if internal else logging.INFO,
                "compacted %s: %d files became %d in %d ms; COMPACTION_LOG says more",
                *(table.name, stats.files_compacted, stats.files_added, stats.compaction_time_ms),
            )
        self.metrics.compacted(table.name, DONE if outcome.compacted else NOTHING, **_figures(outcome.stats))
        progress.phase = "done"
        return outcome

    def nothing(self, table: Table, *, dry_run: bool) -> CompactionOutcome:
        """The outcome if there is nothing to merge; no job is made for it."""
        files = list_files(table)
        stats = CompactionTally(len(files.data), files.bytes).stats(
            small_files_remaining=self.small_files.count(table, files.data), compaction_time_ms=0
        )
        return CompactionOutcome(False, None, stats, table.current_snapshot_id, () if dry_run else None)

    def _clean_up(self, left: JobRecord) -> dict[str, Any]:
        """Delete what an interrupted compaction wrote and did not commit; count what it committed, from snapshots."""
        details: dict[str, Any] = {"error": "the service ended while it ran; what it had committed stays"}
        try:
            table = self.commits.find(left.table, left.table_uuid)
        except TableNotFound:
            return details
        folder = folder_of(table, merge_tag(left.id))
        tally, last = clear_up(self.engine, self.catalog, table, folder, fence=self.jobs.records.shared)
        if last is not None:
            stats = tally.stats(
                small_files_remaining=self.small_files.count(table, list_files(table).data),
                compaction_time_ms=max(last.timestamp_ms - (left.started_ms or 0), 0),
            )
            details["stats"] = stats.model_dump()
        return details

    def _plan(self, work: _Work) -> None:
        """What a compaction would do now."""
        table = self.catalog.load(work.merged.table.name)
        work.merged = MergeProgress.of(table)
        with self.holds.building_on(table.uuid, table.current_snapshot_id):
            planned = self._choose(work)
            work.plan = tuple(
                CompactionGroup(
                    partition=_shown(group.partition),
                    files=group.files,
                    bytes=group.bytes,
                    expected_files=group.expected_files,
                )
                for group in (planned.groups if planned else ())
            )
            work.reason = "this was a dry run" if work.plan else self._why_not(work)
            work.small_files = self._count_small_files(work)

    def _compact(self, work: _Work, job: Job) -> None:
        with self.holds.merging(work.merged.table.uuid):
            table = self.catalog.load(work.merged.table.name)  # it may have waited for another compaction
            work.merged = MergeProgress.of(table)
            with self.holds.building_on(table.uuid, table.current_snapshot_id):
                self._merge(work, table, job)
        if work.options.rewrite_manifests:
            with self._after_the_merge(work, "its manifests were not rewritten"):
                self._rewrite_manifests(work, job)
        job.progress.phase = "expiring"
        if work.options.expire_snapshots:
            hours = work.options.snapshot_retention_hours
            hours = work.policy.snapshot_retention_hours if hours is None else hours
            with self._after_the_merge(work, "its old snapshots were kept"):
                work.expired = self.expirer.by_age(work.merged.table, hours, work.call.commit_gate)

    def _merge(self, work: _Work, table: Table, job: Job) -> None:
        earlier = self.commits.earlier_result(table, work.call)
        if earlier is not None:  # an earlier attempt with the same key has merged the files
            work.merged.committed(earlier)
        else:
            planned = self._choose(work)
            job.check()
            if planned is not None:
                work.predicted = self._prediction(table, planned.groups, job)
                self.merger.run(work.merged, planned, work.merge, job)
            elif work.enabled and list_files(table).dangling:
                self.merger.remove_dangling(work.merged, job)
        if work.merged.snapshot is None:
            work.reason = self._why_not(work)
        work.small_files = self._count_small_files(work)
        self._report_small_files(work)

    @contextmanager
    def _after_the_merge(self, work: _Work, undone: str) -> Iterator[None]:
        """Once files were merged, a later failure is only a warning: the next compaction does what is missing."""
        try:
            yield
        except Cancelled:
            raise
        except FirnError as e:
            if work.merged.snapshot is None:
                raise
            log.warning("%s was compacted, but %s: %s", work.merged.table.name, undone, e.message)
            work.warnings.append(f"{undone}: {e.code}: {e.message}")

    def _record_failure(self, work: _Work, job: Job, failure: BaseException) -> None:
        """Record a compaction that failed or was cancelled, with what it had committed before: that stays."""
        name, stats = work.merged.table.name, None
        try:
            stats = self._outcome(work).stats
            self._report_small_files(work)
        except Exception:
            log.warning("what the compaction of %s had committed could not be counted", name, exc_info=True)
        what = f"the compaction of {name}"
        error = failure if isinstance(failure, FirnError) else internal_error(log, what, failure)
        job.details |= {"stats": stats and stats.model_dump(), "error": error.message}
        self.metrics.compacted(name, CANCELLED if isinstance(failure, Cancelled) else FAILED, **_figures(stats))

    def _report_small_files(self, work: _Work) -> None:
        if work.merged.snapshot is not None:
            self.small_files.tell(work.merged.table, work.merged.snapshot.snapshot_id)

    def _choose(self, work: _Work) -> PlannedGroups | None:
        return self.merger.choose(work.merged.table, work.merge, work.call) if work.enabled else None

    def _prediction(self, table: Table, groups: Sequence[FileGroup], job: Job) -> Mapping[str, Any]:
        """Record what the compaction is expected to do. A prediction that fails does not stop it."""
        merged, fewer = sum(g.files for g in groups), sum(g.expected_files for g in groups)
        before = len(list_files(table).data)
        merge = MergeSize(before, before - merged + fewer, merged, sum(g.bytes for g in groups))
        try:
            predicted = self.predict(table, merge)
            job.note(predicted=predicted)
        except Exception:
            log.warning("the effects of compacting %s could not be predicted", table.name, exc_info=True)
            return {}
        return predicted

    def _merge_options(self, table: Table, policy: CompactionPolicy, options: CompactionOptions) -> MergeOptions:
        target_mb = options.target_file_size_mb or target_file_size_mb(table.properties, self.small_files.settings)
        small = options.max_file_size_mb * MIB if options.max_file_size_mb else small_bytes(policy, target_mb)
        how = RewriteOptions(
            small_bytes=small if options.periods is None else target_mb * MIB - 1,
            target_bytes=target_mb * MIB,
            group_bytes=policy.group_mb * MIB,
            filter_json=_filter_of(options),
            compression=options.compression,
            strategy=options.strategy or policy.strategy,
            sort_by=policy.sort_by if options.sort_by is None else options.sort_by,
            all_deletes=options.force,
        )
        return MergeOptions(
            how,
            min_files=options.min_files or (2 if options.force else policy.min_files_to_compact),
            max_files=options.max_files or (_ALL if options.periods else policy.max_files_per_compaction),
            at_once=policy.concurrent_groups,
            last_deletes=options.last_deletes and options.periods is None,
        )

    def _why_not(self, work: _Work) -> str:
        if work.merged.tally.conflicts:
            return "the files to merge were changed by other writers in the meantime; try again"
        if work.options.periods is not None:
            return "the files of each period are merged already"
        files, min_files = matching_files(work.merged.table, work.options.filter_json), work.merge.min_files
        if work.options.filter_json is not None and not files:
            return "no data file is in a partition that partition_filter matches"
        found = find_small_files(files, work.merge.how.small_bytes, min_files)
        if found.worth_merging and not work.enabled:
            return "compaction is disabled for this table; force: true compacts it all the same"
        if dangling := list_files(work.merged.table).dangling:
            return f"there is nothing to merge, only {dangling} delete file(s) of data files that are gone to remove"
        if not found.small:
            return "there are no small files"
        if found.worth_merging:
            return f"{len(found.small)} small files would not become fewer"
        hint = "" if work.options.force else "; force: true merges from 2"
        return (
            f"{len(found.small)} small file(s), but no partition has the {min_files} that make merging worth it{hint}"
        )

    def _rewrite_manifests(self, work: _Work, job: Job) -> None:
        job.progress.phase = "rewriting manifests"

        def change(current: Table, batch: str) -> None:
            job.gate_for(self.commits, batch)()
            work.manifests = self.engine.run(rewrite_manifests, current.spark_name, batch, merge_tag(job.id))

        result = self.commits.commit(work.merged.table, COMPACT, work.call.without_key(), change)
        work.merged.table, work.newest_id = result.after, result.snapshot_id

    def _outcome(self, work: _Work) -> CompactionOutcome:
        table, snapshot = work.merged.table, work.merged.snapshot
        stats = work.merged.tally.stats(
            work.expired,
            manifests_rewritten=work.manifests,
            spark_jobs=self._count_spark_jobs(work),
            small_files_remaining=self._count_small_files(work),
            compaction_time_ms=round((time.monotonic() - work.started) * 1000),
        )
        return CompactionOutcome(
            snapshot is not None,
            work.reason,
            stats,
            work.newest_id or (snapshot.snapshot_id if snapshot else table.current_snapshot_id),
            work.plan,
            work.expired.kept,
            tuple(work.warnings),
        )

    def _count_small_files(self, work: _Work) -> int:
        if work.small_files is not None:
            return work.small_files
        table, snapshot = work.merged.table, work.merged.snapshot
        files = list_files(table, snapshot.snapshot_id if snapshot else None).data
        if work.options.periods is not None:
            # Every file below the target size was merged, but not each of them counts as small.
            return self.small_files.count(table, files)
        return sum(is_small(file, work.merge.how.small_bytes) for file in files)

    def _count_spark_jobs(self, work: _Work) -> int:
        try:
            return 0 if work.job is None else self.engine.run(tags.jobs_of, merge_tag(work.job.id))
        except Exception as e:  # the compaction itself is done
            log.warning("the Spark jobs of a compaction could not be counted: %s", e)
            return 0


def _figures(stats: CompactionStats | None) -> dict[str, Any]:
    """The figures of a compaction for metrics."""
    if stats is None:
        return {}
    names = ("files_before", "files_after", "files_compacted", "bytes_before", "bytes_after", "conflicts")
    figures = {name: getattr(stats, name) for name in (*names, "groups_failed")}
    return {**figures, "seconds": stats.compaction_time_ms / 1000}


def _filter_of(options: CompactionOptions) -> str | None:
    """Which partitions are compacted, as an Iceberg expression in JSON; None for all."""
    if options.periods is None:
        return options.filter_json
    return json.dumps({"type": "in", "term": PERIOD_FIELD.name, "values": list(options.periods)})


def _shown(partition: str) -> str:
    """A partition as responses name it: a period without its column's name, and without other reserved columns."""
    parts = partition.replace(f"{PERIOD_FIELD.name}=", "").split("/")
    return "/".join(part for part in parts if not part.startswith(RESERVED_COLUMN_PREFIX))

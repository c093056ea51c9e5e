"""COMPACT: merge a table's small files, or the days of a period, and expire its old snapshots."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog, Table
from service.commits.small_files import SmallFileChecks
from service.errors import InvalidRequest
from service.ingest.periods.choice import DUE, PeriodChoice
from service.ingest.periods.files import PeriodFiles, files_by_period
from service.ingest.periods.merges import MergedPeriod, PeriodMerges
from service.jobs.background import Background
from service.maintenance.compact.compaction import Compactions
from service.maintenance.compact.report import (
    CompactionGroup,
    CompactionOptions,
    CompactionOutcome,
    CompactionProgress,
    CompactionStats,
)
from service.maintenance.compact.sorting import check_order
from service.model.call import Call
from service.model.filters.pruning import partition_expression
from service.model.properties import target_file_size_mb
from service.operations.examples import create_table, response, write
from service.operations.operation import (
    BackgroundRequest,
    Example,
    Metadata,
    Result,
    ReturnedId,
    omit_when_null,
    operation,
)
from service.settings import Codec, FileCount, Hours, Megabytes, Strategy

_LISTED = 1000
ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "clicks"}
GIVEN = (create_table(ADDRESS, {"page": "string"}), *(write(ADDRESS, {"page": f"/{i}"}) for i in range(3)))
EXAMPLES = (
    Example(
        "Merge small files",
        {"operation": "COMPACT", **ADDRESS},
        response(
            compacted=True,
            reason=None,
            stats={
                "files_before": 3,
                "files_after": 1,
                "files_compacted": 3,
                "files_removed": 3,
                "files_added": 1,
                "bytes_before": "<any>",
                "bytes_after": "<any>",
                "bytes_saved": "<any>",
                "partitions_compacted": 1,
                "groups_failed": 0,
                "conflicts": 0,
                "spark_jobs": "<any>",
                "manifests_rewritten": 0,
                "snapshots_expired": 0,
                "expired_files_deleted": 0,
                "old_snapshots_kept": 0,
                "compaction_time_ms": "<any>",
                "small_files_remaining": 1,
            },
            snapshots_kept=[],
        ),
        given=GIVEN,
    ),
    Example(
        "See what a compaction would merge",
        {"operation": "COMPACT", **ADDRESS, "dry_run": True, "min_files": 2},
        response(
            compacted=False,
            reason="this was a dry run",
            stats="<any>",
            snapshots_kept=[],
            plan={
                "groups": [{"partition": "", "files": 3, "bytes": "<any>", "expected_files": 1}],
                "group_count": 1,
                "partitions": 1,
                "files": 3,
                "bytes": "<any>",
                "expected_files": 1,
                "expected_files_after": 1,
            },
        ),
        given=GIVEN,
    ),
    Example(
        "Compact in the background",
        {"operation": "COMPACT", **ADDRESS, "async": True},
        response(snapshot=False, reason=None, job_id="<any>"),
        given=GIVEN,
    ),
)


class Compact(BackgroundRequest):
    operation: Literal["COMPACT"]
    force: bool = Field(default=False, description="merge even two small files, and even if compaction is disabled")
    target_file_size_mb: Megabytes | None = Field(
        default=None, description="the size of merged files; default: the table's"
    )
    max_file_size_mb: Megabytes | None = Field(
        default=None,
        description="merge files below this size (less than the target size); default: small_file_threshold_mb",
    )
    min_files: FileCount | None = Field(
        default=None,
        description="how many small files in one partition are worth merging; default: the table's setting",
    )
    max_files: FileCount | None = Field(
        default=None, description="the most files to merge; default: the table's setting"
    )
    partition_filter: Any = Field(
        default=None, description="a filter on partition columns: only files in partitions that it may match are merged"
    )
    compression: Codec | None = Field(default=None, description="the codec of merged files; default: the table's")
    strategy: Strategy | None = Field(
        default=None,
        description="`binpack` keeps the order of rows, `sort` sorts them by `sort_by`, `zorder` along a curve through "
        "these columns; default: the table's setting",
    )
    sort_by: list[str] | None = Field(
        default=None, min_length=1, max_length=16, description="the columns that `sort` and `zorder` sort by"
    )
    period: str | None = Field(
        default=None,
        description="of a table that was made from a table file: merge all files of this month (`2024-01`) or week "
        "(`2024-W05`), or of all periods that are `due`",
    )
    allow_incomplete: bool | None = Field(
        default=None, description="with `period`: merge it although nothing was ingested for some of its dates"
    )
    delete_source: bool | None = Field(
        default=None,
        description="with `period`: delete the daily files at once, exported ones included, except those that a query "
        "or a backup needs; default: as the table file says",
    )
    rewrite_manifests: bool = Field(default=False, description="also merge the manifests, sorted by partition")
    expire_snapshots: bool = Field(default=True, description="expire old snapshots and delete their files")
    snapshot_retention_hours: Hours | None = Field(
        default=None,
        description="expire snapshots older than this, except the current one; default: the table's setting",
    )


class CompactionPlan(BaseModel):
    groups: list[CompactionGroup] = Field(description="what would be merged, most files first; at most 1,000")
    group_count: int = Field(description="all groups")
    partitions: int = Field(description="their partitions")
    files: int = Field(description="files that would be merged")
    bytes: int = Field(description="their size")
    expected_files: int = Field(description="how many they would become")
    expected_files_after: int = Field(description="data files in the table afterwards")


class KeptSnapshot(BaseModel):
    snapshot_id: ReturnedId = Field(description="the snapshot's id")
    reason: str = Field(description="what needs it: a named tag or branch, a query, or a change in progress")


class PeriodResult(BaseModel):
    """A period that was merged, or is merged."""

    period: str = Field(description="the month or week")
    records: int = Field(description="its rows")
    files_before: int = Field(description="its data files before")
    files_after: int = Field(description="its data files after; in a dry run, how many are expected")
    output: str | None = omit_when_null("the exported file of the period, if it was written")
    source_files_deleted: int = Field(
        description="how many daily files were deleted: exported ones if the table exports, else data files"
    )


class SkippedPeriodResult(BaseModel):
    """A period that is due and was not merged."""

    period: str = Field(description="the month or week")
    reason: str = Field(description="why it was not merged")
    missing_dates: list[str] = Field(description="the dates for which nothing was ingested")


class CompactResult(Result):
    compacted: bool | None = omit_when_null("whether any files were merged")
    reason: str | None = Field(
        default=None, description="why not, if none were merged; with `period`, also which periods were skipped"
    )
    periods: list[PeriodResult] | None = omit_when_null("with `period`: the periods, in order")
    periods_skipped: list[SkippedPeriodResult] | None = omit_when_null("with `period: due`: those that were skipped")
    stats: CompactionStats | None = omit_when_null("counts before and after")
    snapshots_kept: list[KeptSnapshot] | None = omit_when_null("old snapshots that were kept, oldest first; up to 100")
    warnings: list[str] | None = omit_when_null("what failed after files were merged; the next compaction retries it")
    plan: CompactionPlan | None = omit_when_null("in a dry run: what would be merged")
    job_id: str | None = omit_when_null("with `async`, instead of the above: the job's id, for /jobs/{id}")


@operation(Compact, CompactResult, pool="maintenance", examples=EXAMPLES, schedulable=True)
def compact(
    request: Compact,
    call: Call,
    catalog: Catalog,
    background: Background,
    compactions: Compactions,
    small_files: SmallFileChecks,
    merges: PeriodMerges,
) -> CompactResult:
    """Merge a table's small files, or all files of a period, and expire its old snapshots."""
    _check_together(request)
    table = catalog.load(request.table_name)
    options = _options(request, small_files, table)
    periods = None if request.period is None else _Periods(request, request.period, table, merges)
    if periods is not None:
        periods.choose()  # an impossible request is refused before it becomes a job

    def run(of: Call) -> CompactResult:
        if periods is not None:
            return periods.merge(catalog, compactions, options, of)
        return _result(compactions.compact(table, options, of))

    if not request.async_:
        return run(call)
    # With an idempotency key, a repeated request gets the same job.
    return CompactResult(
        job_id=background.start("COMPACT", table, CompactionProgress(), call, lambda job: job.respond(run(job)))
    )


@dataclass(frozen=True)
class _Periods:
    """A request that merges periods."""

    request: Compact
    period: str
    table: Table
    merges: PeriodMerges

    def choose(self) -> PeriodChoice:
        allowed = bool(self.request.allow_incomplete)
        return self.merges.choose(self.table, self.period, allow_incomplete=allowed, force=self.request.force)

    def merge(
        self, catalog: Catalog, compactions: Compactions, options: CompactionOptions, call: Call
    ) -> CompactResult:
        chosen = self.choose()
        skipped = [
            SkippedPeriodResult(period=s.period, reason=s.reason, missing_dates=[str(day) for day in s.missing])
            for s in chosen.skipped
        ]
        why = "; ".join(f"{one.period} was skipped, because it is {one.reason}" for one in skipped) or None
        if not chosen.periods:
            return CompactResult(compacted=False, reason=why or chosen.reason, periods=[], periods_skipped=skipped)
        deletes = self.merges.deletes_source(self.table, self.request.delete_source)
        if deletes and self.request.expire_snapshots and self.request.snapshot_retention_hours is None:
            options = replace(options, snapshot_retention_hours=0)
        before = catalog.load(self.table.name)
        outcome = compactions.compact(self.table, replace(options, periods=chosen.periods, force=True), call)
        if outcome.plan is not None:
            merged, warnings = _planned(before, chosen.periods, outcome.plan), list[str]()
        else:
            after = catalog.load(self.table.name)
            merged, warnings = self.merges.finish(before, after, chosen.periods, delete_source=deletes)
        if self.period == DUE:  # most of them were merged earlier
            merged = [one for one in merged if one.has_changed]
        result = _result(outcome)
        return result.model_copy(
            update={
                "reason": "; ".join(filter(None, (result.reason, why))) or None,
                "periods": [PeriodResult(**asdict(one)) for one in merged],
                "periods_skipped": skipped or None,
                "warnings": [*(result.warnings or ()), *warnings] or None,
            }
        )


def _planned(table: Table, periods: Sequence[str], plan: Sequence[CompactionGroup]) -> list[MergedPeriod]:
    """What a dry run shows of each period."""
    found = files_by_period(table)
    planned = []
    for period in periods:
        has, fewer = found.get(period, PeriodFiles()), 0
        for group in plan:
            fewer += group.files - group.expected_files if group.partition == period else 0
        planned.append(MergedPeriod(period, has.records, has.count, has.count - fewer))
    return planned


def _check_together(request: Compact) -> None:
    given = request.model_fields_set
    if request.period is None:
        for name in ("allow_incomplete", "delete_source"):
            if getattr(request, name) is not None:
                raise InvalidRequest.at(name, "it has no meaning without period; send a period, or leave it out")
        return
    for name in ("partition_filter", "max_file_size_mb", "min_files", "max_files"):
        if getattr(request, name) is not None:
            raise InvalidRequest.at(name, "period merges all files of a period; send either, not both")
    if request.delete_source and ("snapshot_retention_hours" in given or not request.expire_snapshots):
        name = "expire_snapshots" if not request.expire_snapshots else "snapshot_retention_hours"
        raise InvalidRequest.at(
            name,
            "it contradicts delete_source: true, which expires the snapshots that need the daily files; leave it out",
        )


def _options(request: Compact, small_files: SmallFileChecks, table: Table) -> CompactionOptions:
    policy = small_files.policy(table)
    sort_by = None if request.sort_by is None else tuple(request.sort_by)
    if request.strategy == "binpack" and sort_by is not None:
        raise InvalidRequest(
            "sort_by has no meaning with strategy: binpack; send strategy sort or zorder", field="sort_by"
        )
    strategy = request.strategy or ("sort" if sort_by and policy.strategy == "binpack" else policy.strategy)
    target = request.target_file_size_mb or target_file_size_mb(table.properties, small_files.settings)
    if request.max_file_size_mb is not None and request.max_file_size_mb >= target:
        raise InvalidRequest(
            f"max_file_size_mb: {request.max_file_size_mb} must be below the size of merged files, {target}, or they "
            "would be merged again; send a smaller one, or a larger target_file_size_mb",
            field="max_file_size_mb",
        )
    columns = policy.sort_by if sort_by is None else sort_by
    check_order(strategy, columns, table.schema, "sort_by", table.partition)
    return CompactionOptions(
        force=request.force,
        target_file_size_mb=request.target_file_size_mb,
        max_file_size_mb=request.max_file_size_mb,
        min_files=request.min_files,
        max_files=request.max_files,
        filter_json=partition_expression(request.partition_filter, table.schema, table.partition),
        compression=request.compression,
        strategy=strategy,
        sort_by=sort_by,
        rewrite_manifests=request.rewrite_manifests,
        dry_run=request.dry_run,
        expire_snapshots=request.expire_snapshots,
        snapshot_retention_hours=request.snapshot_retention_hours,
    )


def _result(outcome: CompactionOutcome) -> CompactResult:
    return CompactResult(
        compacted=outcome.compacted,
        reason=outcome.reason,
        stats=outcome.stats,
        plan=None if outcome.plan is None else _plan(outcome.plan, outcome.stats.files_before),
        snapshots_kept=[KeptSnapshot(**asdict(kept)) for kept in outcome.kept[:100]],
        warnings=list(outcome.warnings) or None,
        metadata=Metadata(snapshot_id=outcome.snapshot_id),
    )


def _plan(groups: Sequence[CompactionGroup], files_before: int) -> CompactionPlan:
    files, expected = sum(g.files for g in groups), sum(g.expected_files for g in groups)
    return CompactionPlan(
        groups=list(groups[:_LISTED]),
        group_count=len(groups),
        partitions=len({group.partition for group in groups}),
        files=files,
        bytes=sum(group.bytes for group in groups),
        expected_files=expected,
        expected_files_after=files_before - files + expected,
    )

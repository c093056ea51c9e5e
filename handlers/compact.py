"""COMPACT: merge a table's small files, or the days of a period, and expire its old snapshots."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog, Table
from service.commits.small_files import SmallFileChecks
from service.errors import InvalidRequest
from service.ingest.periods.choice import DUE, PeriodChoice
from service.ingest.periods.files import FilesBefore
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
from service.operations.examples import accepted, create_table, planned, response, write
from service.operations.operation import (
    AcceptedResult,
    BackgroundRequest,
    DryRunResult,
    Example,
    Metadata,
    Plan,
    Result,
    ReturnedId,
    omit_when_null,
    operation,
)
from service.settings.kinds import Codec, FileCount, Hours, Megabytes, Strategy

_LISTED = 1000
ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "clicks"}
GIVEN = (create_table(ADDRESS, {"page": "string"}), *(write(ADDRESS, {"page": f"/{i}"}) for i in range(3)))
DAILY = {"tenant_id": "acme", "namespace": "shop", "table": "monthly_orders"}
DAYS: tuple[dict[str, Any], ...] = (
    {"operation": "CREATE_TABLE", "tenant_id": "acme", "namespace": "shop", "config": {"name": "monthly_orders"}},
    *(
        {"operation": "INGEST", **DAILY, "source": "examples/files/orders_2024-01-31.csv", "date": f"2024-01-{day}"}
        for day in (30, 31)
    ),
)
MERGED = {"period": "2024-01", "records": "<any>", "files_before": 2, "files_after": 1, "source_files_deleted": 0}
EXAMPLES = (
    Example(
        "Merge small files",
        {"operation": "COMPACT", **ADDRESS},
        response(
            compacted=True,
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
        planned(
            files_removed=3,
            files_added=1,
            files_after=1,
            bytes_removed="<any>",
            partitions_affected=1,
            group_count=1,
            groups=[{"partition": "", "files_removed": 3, "files_added": 1, "bytes_removed": "<any>"}],
        ),
        given=GIVEN,
    ),
    Example(
        "Merge the days of a month",
        {"operation": "COMPACT", **DAILY, "period": "2024-01", "allow_incomplete": True},
        response(
            compacted=True,
            periods=[MERGED],
            stats="<any>",
            snapshots_kept="<any>",
        ),
        given=DAYS,
    ),
    Example(
        "Compact in the background",
        {"operation": "COMPACT", **ADDRESS, "async": True},
        accepted(),
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


class CompactionPlan(Plan):
    """What a COMPACT would merge."""

    reason: str | None = omit_when_null("why nothing would be merged, if so")
    files_removed: int = Field(description="data files that would be merged")
    files_added: int = Field(description="how many they are expected to become")
    files_after: int = Field(description="data files in the table afterwards")
    bytes_removed: int = Field(description="the size of the files that would be merged")
    partitions_affected: int = Field(description="partitions of these files; an unpartitioned table counts as one")
    group_count: int = Field(description="groups of files that would be merged together")
    groups: list[CompactionGroup] = Field(description="these groups, most files first; at most 1,000")
    periods: list[PeriodResult] | None = omit_when_null("with `period`: the periods, in order")
    periods_skipped: list[SkippedPeriodResult] | None = omit_when_null("with `period: due`: those that are skipped")


class CompactDryRun(DryRunResult):
    plan: CompactionPlan = Field(description="what would happen")


class KeptSnapshot(BaseModel):
    snapshot_id: ReturnedId = Field(description="the snapshot's id")
    reason: str = Field(description="what needs it: a named tag or branch, a query, or a change in progress")


class CompactResult(Result):
    compacted: bool = Field(description="whether any files were merged")
    reason: str | None = omit_when_null("why not, if none were merged; with `period`, also which periods were skipped")
    periods: list[PeriodResult] | None = omit_when_null("with `period`: the periods, in order")
    periods_skipped: list[SkippedPeriodResult] | None = omit_when_null("with `period: due`: those that were skipped")
    stats: CompactionStats = Field(description="counts before and after")
    snapshots_kept: list[KeptSnapshot] = Field(description="old snapshots that were kept, oldest first; up to 100")
    warnings: list[str] | None = omit_when_null("what failed after files were merged; the next compaction retries it")


@operation(
    Compact,
    CompactResult,
    pool="maintenance",
    examples=EXAMPLES,
    schedulable=True,
    also=(CompactDryRun, AcceptedResult),
)
def compact(
    request: Compact,
    call: Call,
    catalog: Catalog,
    background: Background,
    compactions: Compactions,
    small_files: SmallFileChecks,
    merges: PeriodMerges,
) -> CompactResult | CompactDryRun | AcceptedResult:
    """Merge a table's small files, or all files of a period, and expire its old snapshots."""
    _check_together(request)
    table = catalog.load(request.table_name)
    options = _options(request, small_files, table)
    periods = None if request.period is None else _Periods(request, request.period, table, merges)
    if periods is not None:
        periods.choose()  # an impossible request is refused before it becomes a job

    def run(of: Call) -> CompactResult | CompactDryRun:
        if periods is not None:
            return periods.merge(catalog, compactions, options, of)
        return _result(compactions.compact(table, options, of))

    if not request.async_:
        return run(call)
    # With an idempotency key, a repeated request gets the same job.
    return AcceptedResult.of(
        background.start("COMPACT", table, CompactionProgress(), call, lambda job: job.respond(run(job)))
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
    ) -> CompactResult | CompactDryRun:
        chosen = self.choose()
        deletes = self.merges.deletes_source(self.table, self.request.delete_source)
        if deletes and self.request.expire_snapshots and self.request.snapshot_retention_hours is None:
            options = replace(options, snapshot_retention_hours=0)
        table = catalog.load(self.table.name)
        before = FilesBefore.of(table, with_old_snapshots=deletes)
        if chosen.periods:
            outcome = compactions.compact(self.table, replace(options, periods=chosen.periods, force=True), call)
        else:
            outcome = compactions.nothing(table, dry_run=options.dry_run)
        why = [f"{one.period} was skipped, because it is {one.reason}" for one in chosen.skipped]
        if not chosen.periods:
            why = why or [chosen.reason or ""]
        elif outcome.reason:
            why = [outcome.reason, *why]
        shown: dict[str, Any] = {
            "reason": "; ".join(why) or None,
            "periods_skipped": [
                SkippedPeriodResult(period=s.period, reason=s.reason, missing_dates=[str(day) for day in s.missing])
                for s in chosen.skipped
            ]
            or None,
        }
        result = _result(outcome)
        if isinstance(result, CompactDryRun):
            assert outcome.plan is not None
            fewer = Counter[str]()
            for group in outcome.plan:
                fewer[group.partition] += group.files - group.expected_files
            planned = self._shown(self.merges.planned(before, chosen.periods, fewer))
            plan = result.plan.model_copy(update={**shown, "reason": None if outcome.plan else shown["reason"]})
            return result.model_copy(update={"plan": plan.model_copy(update={"periods": planned})})
        after = catalog.load(self.table.name)
        merged, warnings = self.merges.finish(before, after, chosen.periods, delete_source=deletes)
        shown |= {"periods": self._shown(merged), "warnings": [*(result.warnings or ()), *warnings] or None}
        return result.model_copy(update=shown)

    def _shown(self, merged: Sequence[MergedPeriod]) -> list[PeriodResult]:
        """The periods of the response. Most of those that are due were merged earlier, and are left out."""
        return [PeriodResult(**asdict(one)) for one in merged if one.has_changed or self.period != DUE]


def _check_together(request: Compact) -> None:
    if request.period is None:
        for name in ("allow_incomplete", "delete_source"):
            if getattr(request, name) is not None:
                raise InvalidRequest.at(name, "it has no meaning without period; send a period, or leave it out")
        return
    for name in ("partition_filter", "max_file_size_mb", "min_files", "max_files"):
        if getattr(request, name) is not None:
            raise InvalidRequest.at(name, "period merges all files of a period; send either, not both")
    given = "snapshot_retention_hours" in request.model_fields_set
    if request.delete_source and (given or not request.expire_snapshots):
        name = "snapshot_retention_hours" if request.expire_snapshots else "expire_snapshots"
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


def _result(outcome: CompactionOutcome) -> CompactResult | CompactDryRun:
    metadata = Metadata(snapshot_id=outcome.snapshot_id)
    if outcome.plan is not None:
        return CompactDryRun(plan=_plan(outcome.plan, outcome), metadata=metadata)
    return CompactResult(
        compacted=outcome.compacted,
        reason=outcome.reason,
        stats=outcome.stats,
        snapshots_kept=[KeptSnapshot(**asdict(kept)) for kept in outcome.kept[:100]],
        warnings=list(outcome.warnings) or None,
        metadata=metadata,
    )


def _plan(groups: Sequence[CompactionGroup], outcome: CompactionOutcome) -> CompactionPlan:
    files, expected = sum(g.files for g in groups), sum(g.expected_files for g in groups)
    return CompactionPlan(
        reason=None if groups else outcome.reason,
        files_removed=files,
        files_added=expected,
        files_after=outcome.stats.files_before - files + expected,
        bytes_removed=sum(group.bytes for group in groups),
        partitions_affected=len({group.partition for group in groups}),
        group_count=len(groups),
        groups=list(groups[:_LISTED]),
    )

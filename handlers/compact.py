"""COMPACT: merge a table's small files and expire its old snapshots."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog, Table
from service.commits.small_files import SmallFileChecks
from service.errors import InvalidRequest
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
    rewrite_manifests: bool = Field(default=False, description="also merge the manifests, sorted by partition")
    expire_snapshots: bool = Field(default=True, description="expire old snapshots and delete their files")
    snapshot_retention_hours: Hours | None = Field(
        default=None,
        description="expire snapshots older than this, except the current one; default: the table's setting",
    )


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


class CompactDryRun(DryRunResult):
    plan: CompactionPlan = Field(description="what would happen")


class KeptSnapshot(BaseModel):
    snapshot_id: ReturnedId = Field(description="the snapshot's id")
    reason: str = Field(description="what needs it: a named tag or branch, a query, or a change in progress")


class CompactResult(Result):
    compacted: bool = Field(description="whether any files were merged")
    reason: str | None = omit_when_null("why not, if none were merged")
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
) -> CompactResult | CompactDryRun | AcceptedResult:
    """Merge a table's small files and expire its old snapshots."""
    table = catalog.load(request.table_name)
    options = _options(request, small_files, table)
    if not request.async_:
        return _result(compactions.compact(table, options, call))

    def work(job: Call) -> bytes:
        return job.respond(_result(compactions.compact(table, options, job)))

    # With an idempotency key, a repeated request gets the same job.
    return AcceptedResult.of(background.start("COMPACT", table, CompactionProgress(), call, work))


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

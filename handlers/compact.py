"""COMPACT: small files merged, old snapshots let go, and what that came to."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Table
from service.columns import columns_of
from service.context import Context
from service.errors import InvalidFilter
from service.filters import parse_filter
from service.operation import ChangeRequest, Example, Metadata, Result, operation
from service.pruning import iceberg_json
from service.settings import FileCount, Megabytes
from service.upkeep.report import Wish

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "clicks"}
GIVEN: tuple[dict[str, Any], ...] = (
    {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"page": {"type": "string"}}}},
    *({"operation": "WRITE", **ADDRESS, "records": [{"page": f"/{i}"}]} for i in range(3)),
)
EXAMPLES = (
    Example(
        "Merge small files",
        {"operation": "COMPACT", **ADDRESS},
        {
            "success": True,
            "compacted": True,
            "reason": None,
            "stats": {
                "files_before": 3,
                "files_after": 1,
                "files_compacted": 3,
                "files_removed": 3,
                "files_added": 1,
                "bytes_before": "<any>",
                "bytes_after": "<any>",
                "bytes_saved": "<any>",
                "snapshots_expired": 0,
                "compaction_time_ms": "<any>",
                "small_files_remaining": 1,
            },
            "metadata": {"request_id": "<any>", "execution_time_ms": "<any>", "snapshot_id": "<any>"},
        },
        given=GIVEN,
    ),
)


class Compact(ChangeRequest):
    operation: Literal["COMPACT"]
    force: bool = Field(default=False, description="merge from two small files on, and where compaction is disabled")
    target_file_size_mb: Megabytes | None = Field(
        default=None, description="how large merged files should be; default: the table's own"
    )
    max_files: FileCount | None = Field(default=None, description="at most so many are merged")
    partition_filter: Any = Field(
        default=None, description="a filter on partition columns; only files it may match are merged"
    )
    expire_snapshots: bool = Field(default=True, description="let old snapshots go, and the files only they need")
    snapshot_retention_hours: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=168, description="how old a snapshot must be to go; the current one always stays"
    )


class CompactionStats(BaseModel):
    files_before: int = Field(description="data files just before the merge")
    files_after: int = Field(description="data files just after it")
    files_compacted: int = Field(description="data files that were merged")
    files_removed: int = Field(description="files that left the table: those merged, and delete files they made void")
    files_added: int = Field(description="data files that replaced them")
    bytes_before: int = Field(description="the size of the data files before")
    bytes_after: int = Field(description="and after")
    bytes_saved: int = Field(description="the difference; below 0 where merging made them larger")
    snapshots_expired: int = Field(description="old snapshots that were let go")
    compaction_time_ms: int = Field(description="how long all of it took")
    small_files_remaining: int = Field(description="files that still count as small")


class CompactResult(Result):
    compacted: bool = Field(description="whether any files were merged")
    reason: str | None = Field(description="why not, where it was not")
    stats: CompactionStats = Field(description="what was counted before and after")


@operation(Compact, CompactResult, pool="upkeep", examples=EXAMPLES, schedulable=True)
def compact(request: Compact, context: Context) -> CompactResult:
    """Merge a table's small files and expire its old snapshots."""
    table = context.catalog.load(request.table_name)
    outcome = context.upkeep.compact(
        table,
        Wish(
            force=request.force,
            target_file_size_mb=request.target_file_size_mb,
            max_files=request.max_files,
            filter_json=_pruning(request, table),
            expire_snapshots=request.expire_snapshots,
            snapshot_retention_hours=request.snapshot_retention_hours,
        ),
        context.ask,
    )
    return CompactResult(
        compacted=outcome.compacted,
        reason=outcome.reason,
        stats=CompactionStats(**asdict(outcome.stats)),
        metadata=Metadata(snapshot_id=outcome.snapshot_id),
    )


def _pruning(request: Compact, table: Table) -> str | None:
    if request.partition_filter is None:
        return None
    sources = {field.field for field in table.partition}
    if not sources:
        raise InvalidFilter(
            "partition_filter cannot be used: the table is not partitioned; leave it out", field="partition_filter"
        )
    predicate = parse_filter(request.partition_filter, columns_of(table.schema), "partition_filter")
    return iceberg_json(predicate, sources)

"""CLEAN_ORPHANS: find and remove files in a table's folder that nothing refers to."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog
from service.maintenance.orphans.orphans import SAFE_HOURS, Orphans
from service.model.call import Call
from service.model.times import HOUR_MS, now_ms, utc
from service.operations.examples import create_table, planned, response, write
from service.operations.operation import (
    DryRunResult,
    Example,
    Plan,
    PreviewableRequest,
    Result,
    omit_when_null,
    operation,
)

_LISTED = 100
ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "orders"}
GIVEN = (create_table(ADDRESS, {"id": "long"}), write(ADDRESS, {"id": 1}))
FOUND: dict[str, Any] = {"files_removed": 0, "files": [], "cutoff_at": "<any>"}
EXAMPLES = (
    Example(
        "See which files nothing refers to",
        {"operation": "CLEAN_ORPHANS", **ADDRESS, "dry_run": True},
        planned(snapshot=False, bytes_removed=0, **FOUND),
        given=GIVEN,
    ),
    Example(
        "Remove those older than a day",
        {"operation": "CLEAN_ORPHANS", **ADDRESS, "older_than_hours": 24},
        response(snapshot=False, files_found=0, bytes=0, **FOUND),
        given=GIVEN,
    ),
)


class CleanOrphans(PreviewableRequest):
    operation: Literal["CLEAN_ORPHANS"]
    older_than_hours: int = Field(
        default=72,
        ge=0,
        le=1_000_000,
        description=f"how old a file must be; below {SAFE_HOURS} only if nobody else can be writing to the table",
    )


class ListedOrphans(BaseModel):
    files: list[str] = Field(description="the first 100 of the files found, as paths in the table's folder")
    cutoff_at: datetime = Field(description="only files from before this time were considered")
    held_back_by: str | None = omit_when_null("the work in progress for which `cutoff_at` is earlier than requested")


class CleanOrphansResult(Result, ListedOrphans):
    files_found: int = Field(description="old enough files that no snapshot, metadata or statistics refers to")
    files_removed: int = Field(description="how many of them were removed")
    bytes: int = Field(description="the size of the files found")


class OrphansPlan(Plan, ListedOrphans):
    """What a CLEAN_ORPHANS would remove."""

    files_removed: int = Field(description="old enough files that no snapshot, metadata or statistics refers to")
    bytes_removed: int = Field(description="their size")


class CleanOrphansDryRun(DryRunResult):
    plan: OrphansPlan = Field(description="what would happen")


@operation(
    CleanOrphans,
    CleanOrphansResult,
    pool="maintenance",
    examples=EXAMPLES,
    schedulable=True,
    needs="admin",
    also=(CleanOrphansDryRun,),
)
def clean_orphans(
    request: CleanOrphans, call: Call, catalog: Catalog, orphans: Orphans
) -> CleanOrphansResult | CleanOrphansDryRun:
    """Remove files that failed or killed work left in a table's folder."""
    table = catalog.load(request.table_name)
    clean = orphans.clean_now if request.older_than_hours < SAFE_HOURS else orphans.clean
    cleaned = clean(
        table, now_ms() - request.older_than_hours * HOUR_MS, dry_run=request.dry_run, still_ours=call.commit_gate
    )
    found: dict[str, Any] = {
        "files": sorted(file.path for file in cleaned.files)[:_LISTED],
        "cutoff_at": utc(cleaned.older_than_ms),
        "held_back_by": str(cleaned.held_back_by) if cleaned.held_back_by else None,
    }
    count, size = len(cleaned.files), cleaned.bytes
    if request.dry_run:
        return CleanOrphansDryRun(plan=OrphansPlan(**found, files_removed=count, bytes_removed=size))
    return CleanOrphansResult(**found, files_found=count, files_removed=cleaned.removed, bytes=size)

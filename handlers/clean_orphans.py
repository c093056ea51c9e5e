"""CLEAN_ORPHANS: find and remove files in a table's folder that nothing refers to."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from service.catalog.tables import Catalog
from service.maintenance.orphans.orphans import SAFE_HOURS, Orphans
from service.model.call import Call
from service.model.times import HOUR_MS, now_ms, utc
from service.operations.examples import create_table, response, write
from service.operations.operation import Example, PreviewableRequest, Result, omit_when_null, operation

_LISTED = 100
ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "orders"}
GIVEN = (create_table(ADDRESS, {"id": "long"}), write(ADDRESS, {"id": 1}))
FOUND: dict[str, Any] = {
    "files_found": 0,
    "files_removed": 0,
    "bytes": 0,
    "files": [],
    "cutoff_at": "<any>",
}
EXAMPLES = (
    Example(
        "See which files nothing refers to",
        {"operation": "CLEAN_ORPHANS", **ADDRESS, "dry_run": True},
        response(snapshot=False, dry_run=True, **FOUND),
        given=GIVEN,
    ),
    Example(
        "Remove those older than a day",
        {"operation": "CLEAN_ORPHANS", **ADDRESS, "older_than_hours": 24},
        response(snapshot=False, dry_run=False, **FOUND),
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


class CleanOrphansResult(Result):
    dry_run: bool = Field(description="whether this was a dry run, which removes nothing")
    files_found: int = Field(description="old enough files that no snapshot, metadata or statistics refers to")
    files_removed: int = Field(description="how many of them were removed")
    bytes: int = Field(description="the size of the files found")
    files: list[str] = Field(description="the first 100 of them, as paths in the table's folder")
    cutoff_at: datetime = Field(description="only files from before this time were considered")
    held_back_by: str | None = omit_when_null("the work in progress for which `cutoff_at` is earlier than requested")


@operation(CleanOrphans, CleanOrphansResult, pool="maintenance", examples=EXAMPLES, schedulable=True)
def clean_orphans(request: CleanOrphans, call: Call, catalog: Catalog, orphans: Orphans) -> CleanOrphansResult:
    """Remove files that failed or killed work left in a table's folder."""
    table = catalog.load(request.table_name)
    clean = orphans.clean_now if request.older_than_hours < SAFE_HOURS else orphans.clean
    cleaned = clean(
        table, now_ms() - request.older_than_hours * HOUR_MS, dry_run=request.dry_run, still_ours=call.commit_gate
    )
    return CleanOrphansResult(
        dry_run=request.dry_run,
        files_found=len(cleaned.files),
        files_removed=cleaned.removed,
        bytes=cleaned.bytes,
        files=sorted(file.path for file in cleaned.files)[:_LISTED],
        cutoff_at=utc(cleaned.older_than_ms),
        held_back_by=str(cleaned.held_back_by) if cleaned.held_back_by else None,
    )

"""CLEAN_ORPHANS: files that lie in a table's folder and belong to nothing, found and removed."""

from typing import Any, Literal

from pydantic import Field

from service.catalog.tables import Catalog
from service.maintenance.orphans.orphans import HOUR_MS, SAFE_HOURS, Orphans, now_ms, said
from service.model.call import Call
from service.operations.examples import response
from service.operations.operation import ChangeRequest, Example, Result, operation

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "orders"}
GIVEN: tuple[dict[str, Any], ...] = (
    {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"id": {"type": "long"}}}},
    {"operation": "WRITE", **ADDRESS, "records": [{"id": 1}]},
)
ANSWER: dict[str, Any] = response(
    snapshot=False, files_found=0, files_removed=0, bytes=0, files=[], older_than="<any>", held_back_by=None
)
EXAMPLES = (
    Example(
        "See which files belong to nothing",
        {"operation": "CLEAN_ORPHANS", **ADDRESS, "dry_run": True},
        {**ANSWER, "dry_run": True},
        given=GIVEN,
    ),
    Example(
        "Remove those older than a day",
        {"operation": "CLEAN_ORPHANS", **ADDRESS, "older_than_hours": 24},
        {**ANSWER, "dry_run": False},
        given=GIVEN,
    ),
)
SHOWN = 100


class CleanOrphans(ChangeRequest):
    operation: Literal["CLEAN_ORPHANS"]
    older_than_hours: int = Field(
        default=72,
        ge=0,
        le=1_000_000,
        description=f"how old a file must be; below {SAFE_HOURS} only where nobody else can be writing to the table",
    )
    dry_run: bool = Field(default=False, description="only say what would be removed")


class CleanOrphansResult(Result):
    dry_run: bool = Field(description="whether nothing was to be removed")
    files_found: int = Field(description="files that no snapshot, metadata or statistics refers to, and old enough")
    files_removed: int = Field(description="how many of them were removed")
    bytes: int = Field(description="the size of the files found")
    files: list[str] = Field(description="the first hundred of them, by their paths in the table's folder")
    older_than: str = Field(description="only files from before this time were looked at")
    held_back_by: str | None = Field(
        description="who is still writing to the table and began so long ago that this time is earlier than asked"
    )


@operation(CleanOrphans, CleanOrphansResult, pool="maintenance", examples=EXAMPLES, schedulable=True)
def clean_orphans(request: CleanOrphans, call: Call, catalog: Catalog, orphans: Orphans) -> CleanOrphansResult:
    """Remove files that failed or killed work left in a table's folder."""
    table = catalog.load(request.table_name)
    short = request.older_than_hours < SAFE_HOURS
    clean = orphans.clean_now if short else orphans.clean
    cleaned = clean(
        table, now_ms() - request.older_than_hours * HOUR_MS, dry_run=request.dry_run, still_ours=call.commit_gate
    )
    return CleanOrphansResult(
        dry_run=request.dry_run,
        files_found=len(cleaned.files),
        files_removed=cleaned.removed,
        bytes=cleaned.bytes,
        files=sorted(file.path for file in cleaned.files)[:SHOWN],
        older_than=said(cleaned.older_than_ms),
        held_back_by=str(cleaned.held_back_by) if cleaned.held_back_by else None,
    )

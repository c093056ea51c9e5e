"""WATCH: ingest what is new or changed in the folder of a table."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from service.commits.commit import Commits
from service.ingest.tasks.watch import WatchedFile, Watcher, WatchState
from service.model.call import Call
from service.operations.examples import response
from service.operations.ingest_examples import ADDRESS, DATASET
from service.operations.ingest_requests import ConfigRequest, ingested_table
from service.operations.operation import ChangeRequest, Example, Metadata, Result, omit_when_null, operation

CREATE: dict[str, Any] = {
    "operation": "CREATE_TABLE",
    "tenant_id": "acme",
    "namespace": "shop",
    "config": {
        "name": "orders",
        "ingestion": {"watch": {"folder": "examples/files", "pattern": "orders_{date}.csv", "settle_seconds": 0}},
    },
    "dataset": DATASET,
}
EXAMPLES = (
    Example(
        "Ingest the new files of a folder",
        {"operation": "WATCH", **ADDRESS},
        response(
            files_found="<any>",
            files_ingested="<any>",
            files_unchanged="<any>",
            files_waiting="<any>",
            files_failed=0,
            files="<any>",
        ),
        given=(CREATE,),
    ),
)


class WatchRequest(ConfigRequest, ChangeRequest):
    operation: Literal["WATCH"]


class WatchedFileResult(BaseModel):
    """A file of the folder."""

    path: str = Field(description="its path")
    date: str = Field(description="the date in its name")
    state: WatchState = Field(description="`waiting`: it may not be complete, or another instance ingests it now")
    error: str | None = omit_when_null("why it was refused; it is not tried again until it or the dataset changes")


class WatchResult(Result):
    files_found: int = Field(description="files in the folder whose names have a date")
    files_ingested: int = Field(description="new and changed files that were ingested now")
    files_unchanged: int = Field(description="files that were ingested before")
    files_waiting: int = Field(description="files that may not be complete, or that another instance ingests now")
    files_failed: int = Field(description="files that were refused, now or before")
    files: list[WatchedFileResult] = Field(description="these files, without unchanged ones")


@operation(WatchRequest, WatchResult, pool="bulk", examples=EXAMPLES)
def watch(request: WatchRequest, call: Call, commits: Commits, watcher: Watcher) -> WatchResult:
    """Ingest what is new or changed in the folder that a table watches, in order of the dates."""
    table = ingested_table(request, commits, call)
    found = watcher.round(table, call)
    counts: dict[str, Any] = {
        f"files_{state}": sum(one.state == state for one in found)
        for state in ("ingested", "unchanged", "waiting", "failed")
    }
    return WatchResult(
        files_found=len(found),
        **counts,
        files=[_shown(one) for one in found if one.state != "unchanged"],
        metadata=Metadata(snapshot_id=commits.current(table).current_snapshot_id),
    )


def _shown(one: WatchedFile) -> WatchedFileResult:
    return WatchedFileResult(path=one.path, date=str(one.day), state=one.state, error=one.error)

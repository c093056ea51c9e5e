"""INGEST_RANGE: read the files of many dates into a table, several dates in each commit."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from service.commits.commit import Commits
from service.ingest.day_files import IngestOptions
from service.ingest.sources.roots import Roots
from service.ingest.tasks.backfill import (
    INGEST_RANGE,
    Backfill,
    BackfillProgress,
    Backfills,
    DayOutcome,
    DayState,
    counted,
)
from service.jobs.background import Background
from service.model.call import Call
from service.operations.examples import accepted, planned, response
from service.operations.ingest_examples import ADDRESS, CREATE
from service.operations.ingest_requests import TableFileRequest, file_counts, ingested_table, parse_date
from service.operations.operation import (
    AcceptedResult,
    BackgroundRequest,
    DryRunResult,
    Example,
    Metadata,
    Plan,
    Result,
    omit_when_null,
    operation,
)

REQUEST = {
    "operation": INGEST_RANGE,
    **ADDRESS,
    "source": "examples/files/orders_{date}.csv",
    "from": "2024-01-30",
    "to": "2024-01-31",
}
DAYS: list[dict[str, Any]] = [
    {"date": "2024-01-30", "state": "missing", "source": "examples/files/orders_2024-01-30.csv"},
    {
        "date": "2024-01-31",
        "state": "ingested",
        "source": "examples/files/orders_2024-01-31.csv",
        "records_read": 3,
        "records_ingested": 2,
        "records_rejected": 1,
        "rejects": {"ordered_on: not a DATE": 1},
    },
]
INGESTED: dict[str, Any] = {
    "days_ingested": 1,
    "days_unchanged": 0,
    "days_missing": 1,
    "days_failed": 0,
    "records_read": 3,
    "records_ingested": 2,
    "records_rejected": 1,
    "days": DAYS,
}
AGAIN: dict[str, Any] = {
    "days_ingested": 0,
    "days_unchanged": 1,
    "days_missing": 1,
    "days_failed": 0,
    "records_read": 0,
    "records_ingested": 0,
    "records_rejected": 0,
    "days": [DAYS[0], {"date": "2024-01-31", "state": "unchanged", "source": "examples/files/orders_2024-01-31.csv"}],
}
EXAMPLES = (
    Example("Ingest the files of some dates", REQUEST, response(**INGESTED), given=(CREATE,)),
    Example("Go on where it stopped", REQUEST, response(**AGAIN), given=(CREATE, REQUEST)),
    Example(
        "See what it would do",
        {**REQUEST, "dry_run": True},
        planned(snapshot=False, **INGESTED),
        given=(CREATE,),
    ),
    Example("Ingest in the background", {**REQUEST, "async": True}, accepted(), given=(CREATE,)),
)


class IngestRange(TableFileRequest, BackgroundRequest):
    operation: Literal["INGEST_RANGE"]
    source: str = Field(
        description="the path of each date's file, with {date}, or {year}, {month} and {day}: from the service's "
        "working directory, or a file:// or s3:// URL"
    )
    from_: str = Field(alias="from", description="the first date, such as 2024-01-01")
    to: str = Field(description="the last date, such as 2024-12-31")
    mode: Literal["restate", "append"] = Field(
        default="restate", description="replace the rows of each date, or add to them"
    )
    days_per_commit: int = Field(default=31, ge=1, le=366, description="how many dates are committed at once")


class IngestedDay(BaseModel):
    """The outcome of one date."""

    date: str = Field(description="the date")
    state: DayState = Field(description="`missing` if there is no file of it, `failed` if its file was refused")
    source: str = Field(description="its file")
    records_read: int | None = omit_when_null("rows of the file")
    records_ingested: int | None = omit_when_null("rows that are in the table now; in a dry run, that would be")
    records_rejected: int | None = omit_when_null("rows that break a rule")
    rejects: dict[str, int] | None = omit_when_null("rejected rows by the rule that each broke first")
    error: dict[str, Any] | None = omit_when_null("why the file was refused: its code, message and details")


class IngestedRange(BaseModel):
    """What an INGEST_RANGE does, or would do."""

    days_ingested: int = Field(description="dates whose file is ingested")
    days_unchanged: int = Field(description="dates whose file was ingested before, so that nothing is done")
    days_missing: int = Field(description="dates without a file")
    days_failed: int = Field(description="dates whose file is refused")
    records_read: int = Field(description="rows of the files that are ingested")
    records_ingested: int = Field(description="rows that become rows of the table")
    records_rejected: int = Field(description="rows that break a rule")
    days: list[IngestedDay] = Field(description="each date, in order")


class IngestRangeResult(IngestedRange, Result): ...


class IngestRangePlan(IngestedRange, Plan): ...


class IngestRangeDryRun(DryRunResult):
    plan: IngestRangePlan = Field(description="what would happen")


@operation(IngestRange, IngestRangeResult, pool="bulk", examples=EXAMPLES, also=(IngestRangeDryRun, AcceptedResult))
def ingest_range(
    request: IngestRange, call: Call, commits: Commits, backfills: Backfills, background: Background
) -> IngestRangeResult | IngestRangeDryRun | AcceptedResult:
    """Read the files of many dates into a table. If it is sent again, it continues where it stopped."""
    table = ingested_table(request, commits, call)
    days = parse_date(request.from_, "from"), parse_date(request.to, "to")
    backfill = Backfill(request.source, *days, request.days_per_commit)
    options = IngestOptions(request.mode, request.dataset_or(None, Roots()), dry_run=request.dry_run)

    def run(of: Call) -> IngestRangeResult | IngestRangeDryRun:
        figures = _figures(backfills.run(table, backfill, options, of))
        if request.dry_run:
            metadata = Metadata(snapshot_id=table.current_snapshot_id)
            return IngestRangeDryRun(plan=IngestRangePlan(**figures), metadata=metadata)
        return IngestRangeResult(**figures, metadata=Metadata(snapshot_id=commits.current(table).current_snapshot_id))

    if not request.async_:
        return run(call)
    backfills.check(backfill, table)  # refuse an impossible request before it becomes a job
    work = background.start(INGEST_RANGE, table, BackfillProgress(), call, lambda job: job.respond(run(job)))
    return AcceptedResult.of(work)


def _figures(done: list[DayOutcome]) -> dict[str, Any]:
    files = [one.file for one in done if one.file is not None and one.error is None]
    return {
        **{f"days_{state}": count for state, count in counted(done).items()},
        "records_read": sum(file.records_read for file in files),
        "records_ingested": sum(file.records_ingested for file in files),
        "records_rejected": sum(file.records_rejected for file in files),
        "days": [IngestedDay(date=str(one.day), state=one.state, source=one.source, **_details(one)) for one in done],
    }


def _details(one: DayOutcome) -> dict[str, Any]:
    if one.error is not None:
        found = {"code": one.error.code, "message": one.error.message, "details": one.error.details}
        return {"error": {name: value for name, value in found.items() if value}}
    return file_counts(one.file) if one.file is not None and one.state == "ingested" else {}

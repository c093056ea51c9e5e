"""REPLAY: run quarantined rows through the rules again."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from service.commits.commit import Commits
from service.errors import InvalidRequest
from service.ingest.day_files import IngestProgress
from service.ingest.sources.roots import Roots
from service.ingest.tasks.replay import REPLAY, QuarantinedRows, ReplayOutcome, Replays
from service.jobs.background import Background
from service.model.call import Call
from service.operations.examples import accepted, planned, response
from service.operations.ingest_examples import ADDRESS, CREATE
from service.operations.ingest_requests import TableFileRequest, ingested_table, parse_date
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

INGESTED = {
    "operation": "INGEST",
    **ADDRESS,
    "source": "examples/files/orders_2024-01-31.csv",
    "date": "2024-01-31",
}
REQUEST: dict[str, Any] = {"operation": "REPLAY", **ADDRESS, "date": "2024-01-31"}
SAME: dict[str, Any] = {
    "records_read": 1,
    "records_ingested": 0,
    "records_rejected": 1,
    "rejects": {"ordered_on: not a DATE": 1},
}
EXAMPLES = (
    Example("Replay the rejected rows of a date", REQUEST, response(**SAME), given=(CREATE, INGESTED)),
    Example(
        "See what that would do",
        {**REQUEST, "dry_run": True},
        planned(**SAME),
        given=(CREATE, INGESTED),
    ),
    Example("Replay in the background", {**REQUEST, "async": True}, accepted(), given=(CREATE, INGESTED)),
)


class Replay(TableFileRequest, BackgroundRequest):
    operation: Literal["REPLAY"]
    date: str | None = Field(default=None, description="only the rows of this date")
    from_: str | None = Field(default=None, alias="from", description="only rows of this date and later ones")
    to: str | None = Field(default=None, description="only rows of this date and earlier ones")
    run_id: str | None = Field(default=None, max_length=40, description="only the rows that this ingest rejected")


class ReplayedRows(BaseModel):
    """What a REPLAY does, or would do."""

    records_read: int = Field(description="quarantined rows that are read")
    records_ingested: int = Field(description="rows that become rows of the table")
    records_rejected: int = Field(description="rows that still break a rule, and stay in the quarantine")
    rejects: dict[str, int] | None = omit_when_null("these rows by the rule that each broke first")


class ReplayResult(ReplayedRows, Result): ...


class ReplayPlan(ReplayedRows, Plan): ...


class ReplayDryRun(DryRunResult):
    plan: ReplayPlan = Field(description="what would happen")


@operation(Replay, ReplayResult, pool="bulk", examples=EXAMPLES, also=(ReplayDryRun, AcceptedResult))
def replay(
    request: Replay, call: Call, commits: Commits, replays: Replays, background: Background
) -> ReplayResult | ReplayDryRun | AcceptedResult:
    """Run quarantined rows through the rules again, without their files; the good ones become rows of their dates."""
    table = ingested_table(request, commits, call)
    wanted, dataset = _wanted(request), request.dataset_or(None, Roots())

    def run(of: Call) -> ReplayResult | ReplayDryRun:
        return _result(replays.run(table, wanted, dataset, of, dry_run=request.dry_run), dry_run=request.dry_run)

    if not request.async_:
        return run(call)
    work = background.start(REPLAY, table, IngestProgress(), call, lambda job: job.respond(run(job)))
    return AcceptedResult.of(work)


def _result(done: ReplayOutcome, *, dry_run: bool) -> ReplayResult | ReplayDryRun:
    figures: dict[str, Any] = {
        "records_read": done.records_read,
        "records_ingested": done.records_ingested,
        "records_rejected": sum(done.rejects.values()),
        "rejects": done.rejects or None,
    }
    metadata = Metadata(snapshot_id=done.snapshot_id)
    if dry_run:
        return ReplayDryRun(plan=ReplayPlan(**figures), metadata=metadata)
    return ReplayResult(**figures, metadata=metadata)


def _wanted(request: Replay) -> QuarantinedRows:
    if request.date is not None:
        if request.from_ is not None or request.to is not None:
            raise InvalidRequest.at("date", "it excludes from and to; leave one out")
        day = parse_date(request.date)
        return QuarantinedRows(day, day, request.run_id)
    first = None if request.from_ is None else parse_date(request.from_, "from")
    last = None if request.to is None else parse_date(request.to, "to")
    if first is not None and last is not None and last < first:
        raise InvalidRequest.at("to", f"{last} is before {first}")
    return QuarantinedRows(first, last, request.run_id)

"""INGEST: read a file with the rows of a date into a table that was made from a table file."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Table
from service.commits import tokens
from service.commits.commit import Commits
from service.ingest.day_files import DayFile, IngestOptions, IngestOutcome, IngestProgress
from service.ingest.history import INGEST
from service.ingest.ingests import Ingests
from service.ingest.sources.fetch import Source
from service.ingest.sources.roots import Roots
from service.ingest.sources.uploads import Uploads, is_upload
from service.jobs.background import Background
from service.model.call import Call, fingerprint
from service.model.ingest.reserved import quarantine_name
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
    "operation": "INGEST",
    **ADDRESS,
    "source": "examples/files/orders_2024-01-31.csv",
    "date": "2024-01-31",
}
INGESTED: dict[str, Any] = {
    "date": "2024-01-31",
    "period": "2024-01",
    "records_read": 3,
    "records_ingested": 2,
    "records_rejected": 1,
    "rejects": {"ordered_on: not a DATE": 1},
    "records_replaced": 0,
    "files_removed": 0,
    "files_rewritten": 0,
    "bytes_rewritten": 0,
    "bytes_read": 98,
    "content_hash": "<any>",
}
QUARANTINED: dict[str, Any] = {"records_quarantined": 1, "quarantine_table": "orders__quarantine", "run_id": "<any>"}
EXAMPLES = (
    Example("Ingest the file of a date", REQUEST, response(**INGESTED, **QUARANTINED), given=(CREATE,)),
    Example(
        "See what an ingest would do",
        {**REQUEST, "dry_run": True},
        planned(snapshot=False, **INGESTED, plan_token="<any>"),
        given=(CREATE,),
    ),
    Example(
        "Ingest the same file again",
        REQUEST,
        response(date="2024-01-31", period="2024-01", unchanged=True, bytes_read=98, content_hash="<any>"),
        given=(CREATE, REQUEST),
    ),
    Example(
        "Ingest in the background",
        {**REQUEST, "async": True},
        accepted(),
        given=(CREATE,),
    ),
)
# Fields that say how a request is made, not what it does.
_OPTIONS = ("dry_run", "plan_token", "idempotency_key", "timeout_ms", "async_")


class Ingest(TableFileRequest, BackgroundRequest):
    operation: Literal["INGEST"]
    source: str = Field(
        description="the file: a path from the service's working directory, or a file:// or s3:// URL. CSV, JSON "
        "lines, Parquet or Arrow, also packed by gzip or zstd"
    )
    date: str = Field(description="the date that the file's rows belong to, such as 2024-01-31")
    mode: Literal["restate", "append"] = Field(
        default="restate", description="replace the rows of the date, or add to them"
    )
    accept_drift: bool = Field(
        default=False, description="let new, missing and retyped columns change the table, whatever `on_drift` says"
    )
    plan_token: str | None = Field(
        default=None, description="from a dry run of the same request: ingest exactly what it showed, or nothing"
    )


class IngestDrift(BaseModel):
    """How the columns of the file differ from those that are expected."""

    new: list[str] | None = omit_when_null("columns of the file that are not expected")
    missing: list[str] | None = omit_when_null("expected columns that the file lacks")
    retyped: dict[str, str] | None = omit_when_null("columns of another type, with the type in the file")


class IngestedFile(BaseModel):
    """What an INGEST does, or would do."""

    date: str = Field(description="the date of the rows")
    period: str | None = omit_when_null("the month or week that they are in")
    records_read: int | None = omit_when_null("rows of the file")
    records_ingested: int | None = omit_when_null("rows that become rows of the table")
    records_rejected: int | None = omit_when_null("rows that break a rule")
    rejects: dict[str, int] | None = omit_when_null("rejected rows by the rule that each broke first")
    drift: IngestDrift | None = omit_when_null("how the columns differ from those that are expected")
    unchanged: bool | None = omit_when_null(
        "true if the same content was ingested before under the same rules, so that nothing is done"
    )
    records_replaced: int | None = omit_when_null("rows of the date that are removed")
    files_removed: int | None = omit_when_null("data files that are removed")
    files_rewritten: int | None = omit_when_null("how many of them also hold other dates, whose rows are written again")
    bytes_rewritten: int | None = omit_when_null("the size of these files")
    bytes_read: int | None = omit_when_null("the size of the file")
    content_hash: str | None = omit_when_null("the SHA-256 of the file")


class IngestResult(IngestedFile, Result):
    records_quarantined: int | None = omit_when_null("rejected rows that are in the quarantine table")
    quarantine_table: str | None = omit_when_null("the table with the rejected rows")
    run_id: str | None = omit_when_null("the id of this ingest in the log, and in the quarantine table")
    warnings: list[str] | None = omit_when_null("what failed after the commit: files that were not exported")


class IngestPlan(IngestedFile, Plan):
    plan_token: str | None = omit_when_null("send it with the same request to ingest exactly this, or nothing")


class IngestDryRun(DryRunResult):
    plan: IngestPlan = Field(description="what would happen")


@operation(Ingest, IngestResult, pool="bulk", examples=EXAMPLES, also=(IngestDryRun, AcceptedResult))
def ingest(
    request: Ingest,
    call: Call,
    commits: Commits,
    roots: Roots,
    uploads: Uploads,
    ingests: Ingests,
    background: Background,
) -> IngestResult | IngestDryRun | AcceptedResult:
    """Read a file with the rows of a date into a table, in one commit that replaces what the date had before."""
    table, roots = ingested_table(request, commits, call), roots.of(request.tenant_id)
    day, options = parse_date(request.date), _options(request)

    def run(of: Call) -> IngestResult | IngestDryRun:
        with uploads.using(request.source) as uploaded:
            source = uploaded or Source(roots.resolve(request.source), request.source)
            return result_of(table, ingests.run(table, [DayFile(day, source)], options, of), dry_run=request.dry_run)

    if not request.async_:
        return run(call)
    if not is_upload(request.source):
        roots.resolve(request.source)  # refuse an impossible request before it becomes a job
    return AcceptedResult.of(background.start(INGEST, table, IngestProgress(), call, lambda job: job.respond(run(job))))


def _options(request: Ingest) -> IngestOptions:
    given = {k: v for k, v in request.model_dump(mode="python").items() if k not in _OPTIONS}
    digest = fingerprint(given)
    token = None if request.plan_token is None else tokens.read(request.plan_token, digest)
    return IngestOptions(
        request.mode,
        request.dataset_or(None, Roots()),
        dry_run=request.dry_run,
        token=token,
        request=digest,
        accept_drift=request.accept_drift,
    )


def result_of(table: Table, outcome: IngestOutcome, *, dry_run: bool = False) -> IngestResult | IngestDryRun:
    """The response about one file."""
    [file] = outcome.files
    figures: dict[str, Any] = {
        "date": str(file.day),
        "period": file.period,
        "drift": IngestDrift(**file.drift.as_json()) if file.drift else None,
        "content_hash": file.content_hash,
        "bytes_read": file.bytes,
        **({**file_counts(file), **_replaced(outcome)} if not file.is_unchanged else {"unchanged": True}),
    }
    metadata = Metadata(snapshot_id=outcome.commit.snapshot_id)
    if dry_run:
        return IngestDryRun(plan=IngestPlan(**figures, plan_token=outcome.plan_token), metadata=metadata)
    if file.records_rejected:
        figures |= {
            "records_quarantined": file.records_rejected,
            "quarantine_table": quarantine_name(table.name).table,
        }
    warnings = list(outcome.warnings) or None
    return IngestResult(**figures, run_id=file.run_id or None, warnings=warnings, metadata=metadata)


def _replaced(outcome: IngestOutcome) -> dict[str, Any]:
    replaced = outcome.replaced
    return {
        "records_replaced": replaced.records,
        "files_removed": replaced.files,
        "files_rewritten": replaced.rewritten_files,
        "bytes_rewritten": replaced.rewritten_bytes,
    }

"""EXPORT: write the files of an ingestion table for readers without Iceberg."""

from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog, Table
from service.errors import InvalidRequest
from service.ingest.exports.exports import ExportOutcome, ExportProgress, Exports, ExportSelection
from service.ingest.periods.merges import ingestion_config
from service.jobs.background import Background
from service.model.call import Call
from service.model.ingest.periods import parse_period
from service.operations.examples import planned, response
from service.operations.ingest_requests import parse_date
from service.operations.operation import (
    AcceptedResult,
    BackgroundRequest,
    DryRunResult,
    Example,
    Plan,
    Result,
    operation,
)

_LISTED = 1000
ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "exported_orders"}
GIVEN: tuple[dict[str, Any], ...] = (
    {
        "operation": "CREATE_TABLE",
        "tenant_id": "acme",
        "namespace": "shop",
        "config": {
            "name": "exported_orders",
            "storage": {"type": "local", "base_path": ".firn/exports/orders", "format": "csv"},
        },
    },
    {"operation": "INGEST", **ADDRESS, "source": "examples/files/orders_2024-01-31.csv", "date": "2024-01-31"},
)
FILE = {"path": "<any>", "records": "<any>", "bytes": "<any>"}
EXAMPLES = (
    Example(
        "Export what is missing or out of date",
        {"operation": "EXPORT", **ADDRESS},
        response(snapshot=False, files=[FILE], files_written=1, files_current=0),
        given=GIVEN,
    ),
    Example(
        "See what an export would write",
        {"operation": "EXPORT", **ADDRESS, "date": "2024-01-31", "dry_run": True},
        planned(snapshot=False, files=["<any>"], files_written=1, files_current=0),
        given=GIVEN,
    ),
)


class Export(BackgroundRequest):
    operation: Literal["EXPORT"]
    date: str | None = Field(default=None, description="only the file of this date, such as 2024-01-31")
    from_: str | None = Field(default=None, alias="from", description="only the files of this date and later ones")
    to: str | None = Field(default=None, description="only the files of this date and earlier ones")
    period: str | None = Field(default=None, description="only the file of this month (`2024-01`) or week (`2024-W05`)")


class ExportedFileResult(BaseModel):
    """A file that was written."""

    path: str = Field(description="its path or S3 URL")
    records: int = Field(description="its rows")
    bytes: int = Field(description="its size")


class ExportResult(Result):
    files: list[ExportedFileResult] = Field(description="the files that were written; at most 1,000")
    files_written: int = Field(description="how many were written")
    files_current: int = Field(description="how many other files were up to date")


class ExportPlan(Plan):
    """What an EXPORT would write."""

    files: list[str] = Field(description="the paths or S3 URLs of the files that would be written; at most 1,000")
    files_written: int = Field(description="how many would be written")
    files_current: int = Field(description="how many other files are up to date")


class ExportDryRun(DryRunResult):
    plan: ExportPlan = Field(description="what would happen")


@operation(Export, ExportResult, pool="bulk", examples=EXAMPLES, also=(ExportDryRun, AcceptedResult))
def export(
    request: Export, call: Call, catalog: Catalog, exports: Exports, background: Background
) -> ExportResult | ExportDryRun | AcceptedResult:
    """Write daily files, and files of merged periods, under the table file's base_path.

    A sender whom a policy binds gets files of its own there, with what it may see.
    """
    table = catalog.load(request.table_name)
    selection = _selection(request, table)

    def run(of: Call) -> ExportResult | ExportDryRun:
        return _result(request, exports.run(table, selection, of, dry_run=request.dry_run))

    if not request.async_:
        return run(call)
    return AcceptedResult.of(
        background.start(
            "EXPORT",
            table,
            ExportProgress(),
            call,
            lambda job: job.respond(run(job)),
            started_by=call.principal.name,
        )
    )


def _selection(request: Export, table: Table) -> ExportSelection:
    config = ingestion_config(table, "table")
    given = [name for name in ("date", "from_", "to", "period") if getattr(request, name) is not None]
    if len(given) > 1 and given != ["from_", "to"]:
        name = given[1].rstrip("_")
        raise InvalidRequest.at(name, "send a date, from and to, or a period, not several of them")
    if request.period is not None:
        return ExportSelection(period=parse_period(request.period, config.granularity))
    if request.date is not None:
        day = parse_date(request.date)
        return ExportSelection((day, day))
    if not given:
        return ExportSelection()
    first = parse_date(request.from_ or "0001-01-01", "from")
    last = parse_date(request.to or "9999-12-31", "to")
    if last < first:
        raise InvalidRequest.at("to", f"{last} is before from, {first}; exchange them")
    return ExportSelection((first, last))


def _result(request: Export, outcome: ExportOutcome) -> ExportResult | ExportDryRun:
    listed, written = outcome.written[:_LISTED], len(outcome.written)
    if request.dry_run:
        files = [one.path for one in listed]
        return ExportDryRun(plan=ExportPlan(files=files, files_written=written, files_current=outcome.current))
    return ExportResult(
        files=[ExportedFileResult(**asdict(one)) for one in listed],
        files_written=written,
        files_current=outcome.current,
    )

"""TABLE_STATUS: what was ingested into a table, what is missing, and which periods are merged."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog
from service.ingest.periods.status import IngestionStatuses, PeriodStatus
from service.model.times import utc
from service.operations.examples import response
from service.operations.operation import Example, Metadata, Result, TableRequest, omit_when_null, operation

_LISTED = 1000
ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "tracked_orders"}
GIVEN = (
    {"operation": "CREATE_TABLE", "tenant_id": "acme", "namespace": "shop", "config": {"name": "tracked_orders"}},
    {"operation": "INGEST", **ADDRESS, "source": "examples/files/orders_2024-01-31.csv", "date": "2024-01-31"},
)
EXAMPLES = (
    Example(
        "See what was ingested",
        {"operation": "TABLE_STATUS", **ADDRESS},
        response(
            ingestions=1,
            dates=1,
            first_date="2024-01-31",
            last_date="2024-01-31",
            missing_dates=[],
            records="<any>",
            files=1,
            bytes="<any>",
            compactions=0,
            periods=[
                {
                    "period": "2024-01",
                    "days": 1,
                    "missing_dates": [f"2024-01-{day:02}" for day in range(1, 31)],
                    "records": "<any>",
                    "files": 1,
                    "bytes": "<any>",
                    "compacted": False,
                }
            ],
            errors=[],
            ledger="<any>",
        ),
        given=GIVEN,
    ),
)


class TableStatus(TableRequest):
    operation: Literal["TABLE_STATUS"]


class PeriodStatusResult(BaseModel):
    """The state of a month or week."""

    period: str = Field(description="the month or week")
    days: int = Field(description="how many of its dates were ingested")
    missing_dates: list[str] = Field(description="its past dates for which nothing was ingested; at most 1,000")
    records: int = Field(description="its rows")
    files: int = Field(description="its data files")
    bytes: int = Field(description="the size of these files")
    compacted: bool = Field(description="whether its days are merged into as few files as the target size allows")


class RefusedIngestion(BaseModel):
    """A file that was refused."""

    date: str = Field(description="the date of its rows")
    source: str = Field(description="the file")
    message: str = Field(description="why it was refused")
    refused_at: datetime = Field(description="when")


class TableStatusResult(Result):
    ingestions: int = Field(description="how many files were ingested; one that was ingested twice counts twice")
    dates: int = Field(description="dates that were ingested")
    first_date: str | None = omit_when_null("the first of them")
    last_date: str | None = omit_when_null("the last of them")
    missing_dates: list[str] = Field(description="the dates in between for which nothing was ingested; at most 1,000")
    records: int = Field(description="the table's rows")
    files: int = Field(description="its data files")
    bytes: int = Field(description="the size of these files")
    compactions: int = Field(description="how often periods were merged, in the last 90 days")
    first_compacted_period: str | None = omit_when_null("the first period that is merged")
    last_compacted_period: str | None = omit_when_null("the last period that is merged")
    periods: list[PeriodStatusResult] = Field(description="each period, in order")
    errors: list[RefusedIngestion] = Field(description="the files that were refused last, newest first; at most 10")
    ledger: str = Field(description="the ledger's file, or its URL without the password; it has the logs as views")


@operation(TableStatus, TableStatusResult, pool="metadata", examples=EXAMPLES)
def table_status(request: TableStatus, catalog: Catalog, statuses: IngestionStatuses) -> TableStatusResult:
    """Show what was ingested into a table that was made from a table file, what is missing, and what is merged."""
    table = catalog.load(request.table_name)
    found = statuses.of(table)
    merged = found.merged
    return TableStatusResult(
        ingestions=found.ingestions,
        dates=len(found.days),
        first_date=str(found.days[0]) if found.days else None,
        last_date=str(found.days[-1]) if found.days else None,
        missing_dates=[str(day) for day in found.missing[:_LISTED]],
        records=sum(one.files.records for one in found.periods),
        files=sum(one.files.count for one in found.periods),
        bytes=sum(one.files.bytes for one in found.periods),
        compactions=found.compactions,
        first_compacted_period=merged[0] if merged else None,
        last_compacted_period=merged[-1] if merged else None,
        periods=[_period(one) for one in found.periods],
        errors=[
            RefusedIngestion(
                date=one.ingest_date, source=one.file, message=one.error or "", refused_at=utc(one.ended_ms)
            )
            for one in found.errors
        ],
        ledger=found.ledger,
        metadata=Metadata(snapshot_id=table.current_snapshot_id),
    )


def _period(one: PeriodStatus) -> PeriodStatusResult:
    return PeriodStatusResult(
        period=one.period,
        days=one.days,
        missing_dates=[str(day) for day in one.missing],
        records=one.files.records,
        files=one.files.count,
        bytes=one.files.bytes,
        compacted=one.is_merged,
    )

"""Dynamic tables and their refreshes in responses."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.dynamic.lag import lag_of
from service.dynamic.rights import Sight
from service.ledger.dynamic_tables import DynamicTable, RefreshOutcome, RefreshRecord
from service.model.dynamic.definition import Definition, DynamicOptions, Mode, TableState
from service.model.dynamic.plan import RefreshMode
from service.model.dynamic.state import SourceState
from service.model.dynamic.target_lag import show_target_lag
from service.model.names import TableName
from service.model.times import utc, utc_or_none
from service.model.wire import omit_when_null
from service.operations.operation import ReturnedId


class TableAddress(BaseModel):
    """A table of the tenant."""

    namespace: str = Field(description="its namespace")
    table: str = Field(description="its name")

    @classmethod
    def of(cls, name: TableName) -> "TableAddress":
        return cls(namespace=name.namespace, table=name.table)


class SourceSnapshot(TableAddress):
    """A table at the snapshot that a refresh read."""

    snapshot_id: ReturnedId | None = omit_when_null("absent if the table had no snapshot, and no rows")
    is_base: bool = Field(description="false for a dynamic table")


class RefreshError(BaseModel):
    """How a refresh failed."""

    code: str = Field(description="the error's code")
    message: str = Field(description="the error in words")


class RefreshEntry(BaseModel):
    """One refresh of a dynamic table."""

    refresh_id: str = Field(description="its id")
    pass_id: str = Field(description="the id of its pass; tables of one pass agree")
    namespace: str = Field(description="the table's namespace")
    table: str = Field(description="the table's name")
    state: RefreshOutcome = Field(description="running, done or failed")
    mode: RefreshMode | None = omit_when_null("absent as long as it is not decided")
    reason: str | None = omit_when_null("why this mode, as a stable code")
    records_inserted: int = Field(description="rows that it did not have; a changed row was deleted and inserted")
    records_deleted: int = Field(description="rows that it no longer has")
    records_unchanged: int | None = omit_when_null("rows that stayed where they were, if their number is known")
    records_changed_in_sources: int = Field(description="rows of its sources that were inserted or deleted")
    snapshot_id: ReturnedId | None = omit_when_null("the snapshot that has its rows; an earlier one with `NO_DATA`")
    sources: list[SourceSnapshot] = Field(description="the snapshots that it read, of tables that you may read")
    error: RefreshError | None = omit_when_null("how it failed")
    requested_by: str = Field(description="`request <id>`, or `worker`")
    started_at: datetime = Field(description="when it started")
    ended_at: datetime | None = omit_when_null("absent while it runs")
    duration_ms: int | None = omit_when_null("how long it took")
    lag_ms: int | None = omit_when_null("how old the oldest change that it brought was when it ended")


def refresh_entry(record: RefreshRecord, table: DynamicTable | None, sight: Sight) -> RefreshEntry:
    """A refresh of a table, which is None if it is not known any more, as somebody may see it."""
    failed, message = record.state == "failed", record.error or ""
    if table is not None:
        message = sight.message(table.definition, message, record.error_code) or ""
    elif not sight.principal.may("reader", record.table.tenant):
        message = ""
    took = None if record.ended_ms is None else max(0, record.ended_ms - record.started_ms)
    return RefreshEntry(
        refresh_id=record.id,
        pass_id=record.pass_id,
        namespace=record.table.namespace,
        table=record.table.table,
        state=record.state,
        mode=record.mode,
        reason=record.reason,
        records_inserted=record.rows_added,
        records_deleted=record.rows_removed,
        records_unchanged=record.rows_unchanged,
        records_changed_in_sources=record.changed_rows,
        snapshot_id=record.snapshot_id,
        sources=source_snapshots(sight.sources(record.table.tenant, record.sources)),
        error=RefreshError(code=record.error_code or "", message=message) if failed else None,
        requested_by=record.requested_by,
        started_at=utc(record.started_ms),
        ended_at=utc_or_none(record.ended_ms),
        duration_ms=took,
        lag_ms=lag_of(record),
    )


def source_snapshots(sources: Iterable[SourceState]) -> list[SourceSnapshot]:
    return [
        SourceSnapshot(namespace=one.namespace, table=one.table, snapshot_id=one.snapshot_id, is_base=one.is_base)
        for one in sources
    ]


class NotIncrementalReason(BaseModel):
    """Why a query is computed in full at each refresh."""

    code: str = Field(description="a stable code")
    message: str = Field(description="the reason in words")


def not_incremental_reason(definition: Definition) -> NotIncrementalReason | None:
    if definition.full_code is None:
        return None
    return NotIncrementalReason(code=definition.full_code, message=definition.full_reason or "")


class DeclaredOptions(BaseModel):
    """The options of a dynamic table, as its declaration has them."""

    target_lag: str = Field(
        description="how far it may lag behind its base tables, such as `5 minutes`; or `downstream`"
    )
    refresh_mode: Mode = Field(description="the mode that was declared")
    initialize: Literal["ON_CREATE", "ON_SCHEDULE"] = Field(description="whether it was refreshed when it was created")
    deduplication: bool = Field(description="whether equal rows of the result are kept only once")
    cardinality_threshold: float = Field(
        description="the part of the rows of the sources that may change before AUTO refreshes in full, "
        "as long as it has not measured both modes"
    )
    scheduler: Literal["ENABLED", "DISABLED"] = Field(
        description="`DISABLED`: refreshed only by REFRESH_DYNAMIC_TABLE, as by dbt or Airflow"
    )


def declared_options(options: DynamicOptions) -> DeclaredOptions:
    return DeclaredOptions(
        target_lag=show_target_lag(options.target_lag_s),
        refresh_mode=options.refresh_mode,
        initialize=options.initialise,
        deduplication=options.deduplication,
        cardinality_threshold=options.cardinality_threshold,
        scheduler="ENABLED" if options.scheduled else "DISABLED",
    )


class DynamicTableState(TableAddress):
    """The state of a dynamic table."""

    state: TableState = Field(
        description="`active`; `suspended` by ALTER_DYNAMIC_TABLE; or `failed`: no further attempts after several "
        "failures, until it is resumed"
    )
    reason: str | None = omit_when_null("why it is suspended or has failed, or how its last refresh failed")
    failures: int = Field(description="refreshes that failed since the last one that did not")
    incremental: bool = Field(description="whether its query can be refreshed incrementally")
    lag_ms: int | None = omit_when_null(
        "how old the oldest change of its base tables is that its rows lack; 0 if they lack none; absent before its "
        "first refresh"
    )
    refreshed_at: datetime | None = omit_when_null("the time for which its rows are right")
    created_at: datetime = Field(description="when it was created")


def table_state(table: DynamicTable, lag_ms: int | None, sight: Sight) -> dict[str, Any]:
    """The fields of DynamicTableState."""
    return {
        "namespace": table.name.namespace,
        "table": table.name.table,
        "state": table.state,
        "reason": sight.reason(table),
        "failures": table.failures,
        "incremental": table.definition.full_code is None,
        "lag_ms": lag_ms,
        "refreshed_at": utc_or_none(table.refreshed_ms),
        "created_at": utc(table.created_ms),
    }

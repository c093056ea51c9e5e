"""REFRESH_DYNAMIC_TABLE: bring a dynamic table up to date, and first all that it depends on."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from service.dynamic.definitions import Definitions
from service.dynamic.refresh.passes import Passes, PassOptions, PassOutcome, PassState, TableInPass
from service.dynamic.refresh.refresher import RefreshProgress
from service.dynamic.rights import Sight
from service.errors import FirnError, InvalidRequest, RefreshHeldBack
from service.jobs.background import Background
from service.ledger.dynamic_tables import DynamicTable
from service.model.call import Call
from service.model.dynamic.plan import RefreshMode
from service.model.times import utc, utc_or_none
from service.operations.dynamic.examples import CREATED, DETAILS
from service.operations.dynamic.requests import DynamicTableChange
from service.operations.dynamic.results import TableAddress
from service.operations.examples import response
from service.operations.operation import (
    AcceptedResult,
    Example,
    Metadata,
    Result,
    ReturnedId,
    async_field,
    omit_when_null,
    operation,
)

EXAMPLES = (
    Example(
        "Bring a dynamic table up to date",
        {"operation": "REFRESH_DYNAMIC_TABLE", **DETAILS},
        response(
            mode="NO_DATA",
            reason="NO_CHANGES",
            records_inserted=0,
            records_deleted=0,
            pass_id="<any>",
            pinned_at="<any>",
            tables="<any>",
        ),
        given=CREATED,
    ),
)


class RefreshDynamicTable(DynamicTableChange):
    operation: Literal["REFRESH_DYNAMIC_TABLE"]
    cascade: bool = Field(default=False, description="also refresh the dynamic tables that depend on it")
    async_: bool = async_field()


class RefreshedTable(TableAddress):
    """What the pass did with a dynamic table."""

    state: PassState = Field(
        description="`done`; `failed`; `held_back` because of one of its sources; or `as_it_is`: it is suspended, a "
        "later refresh came first, or you may not write it"
    )
    mode: RefreshMode | None = omit_when_null("`NO_DATA` if no row of its sources has changed, `INCREMENTAL` or `FULL`")
    reason: str | None = omit_when_null("why, as a stable code")
    message: str | None = omit_when_null("why it was not refreshed, in words")
    records_inserted: int | None = omit_when_null("rows that it did not have; a changed row was deleted and inserted")
    records_deleted: int | None = omit_when_null("rows that it no longer has")
    records_changed_in_sources: int | None = omit_when_null("rows of its sources that were inserted or deleted")
    started_at: datetime | None = omit_when_null("when its refresh started")
    ended_at: datetime | None = omit_when_null("when its refresh ended")
    duration_ms: int | None = omit_when_null("how long it took")
    snapshot_id: ReturnedId | None = omit_when_null("the snapshot that has its rows")


class RefreshDynamicTableResult(Result):
    mode: RefreshMode = Field(
        description="`NO_DATA` if no row of its sources has changed: nothing was written; `INCREMENTAL` or `FULL`"
    )
    reason: str = Field(description="why this mode, as a stable code")
    records_inserted: int = Field(description="rows that it did not have; a changed row was deleted and inserted")
    records_deleted: int = Field(description="rows that it no longer has")
    pass_id: str = Field(description='the id of the pass: QUERY with `as_of: {"pass": …}` reads its state')
    pinned_at: datetime = Field(description="the rows are those for the sources as of this time")
    tables: list[RefreshedTable] = Field(description="all tables of the pass that you may read, each after its sources")


@operation(
    RefreshDynamicTable,
    RefreshDynamicTableResult,
    pool="bulk",
    examples=EXAMPLES,
    also=(AcceptedResult,),
)
def refresh_dynamic_table(
    request: RefreshDynamicTable, call: Call, definitions: Definitions, passes: Passes, background: Background
) -> RefreshDynamicTableResult | AcceptedResult:
    """Bring a dynamic table up to date, and first all that it depends on, in one pass."""
    table, found = definitions.load(request.table_name)
    sight = Sight(call.principal, definitions)
    _check(found, sight)

    def run(of: Call) -> RefreshDynamicTableResult:
        return _result(found, passes.refresh([table.uuid], of, PassOptions(cascade=request.cascade)), sight)

    if not request.async_:
        return run(call)
    return AcceptedResult.of(
        background.start("REFRESH_TABLES", table, RefreshProgress(), call, lambda job: job.respond(run(job)))
    )


def _check(found: DynamicTable, sight: Sight) -> None:
    if found.state != "active":
        reason = sight.reason(found)
        why = f": {reason}" if reason else ""
        is_it = "is suspended" if found.state == "suspended" else "has failed, and is not refreshed any more"
        raise InvalidRequest.at("table", f"{found.name.table} {is_it}{why}; send ALTER_DYNAMIC_TABLE with resume: true")


def _result(found: DynamicTable, outcome: PassOutcome, sight: Sight) -> RefreshDynamicTableResult:
    done = outcome.of(found.uuid)
    assert done is not None
    record, source = done.record, done.source
    if source is None:
        raise _failure(done, outcome, sight)
    return RefreshDynamicTableResult(
        mode=record.mode if record and record.mode else "NO_DATA",
        reason=done.reason or "",
        records_inserted=record.rows_added if record else 0,
        records_deleted=record.rows_removed if record else 0,
        pass_id=outcome.id,
        pinned_at=utc(outcome.pinned_ms),
        tables=_tables(outcome, sight),
        metadata=Metadata(snapshot_id=source.snapshot_id),
    )


def _failure(done: TableInPass, outcome: PassOutcome, sight: Sight) -> FirnError:
    """The error of a table that was not refreshed; its details are those of the pass."""
    error = sight.error(done.table.definition, done.error or RefreshHeldBack(done.message or ""))
    tables = [one.model_dump(mode="json", exclude_none=True) for one in _tables(outcome, sight)]
    error.details = {**(error.details or {}), "pass_id": outcome.id, "tables": tables}
    return error


def _tables(outcome: PassOutcome, sight: Sight) -> list[RefreshedTable]:
    """The tables of the pass that the sender may read."""
    return [_shown(one, sight) for one in outcome.tables if sight.sees(one.table.name)]


def _shown(one: TableInPass, sight: Sight) -> RefreshedTable:
    more: dict[str, Any] = {}
    if one.record is not None:
        record = one.record
        more = {
            "mode": record.mode,
            "records_inserted": record.rows_added,
            "records_deleted": record.rows_removed,
            "records_changed_in_sources": record.changed_rows,
            "started_at": utc(record.started_ms),
            "ended_at": utc_or_none(record.ended_ms),
            "duration_ms": max(0, (record.ended_ms or record.started_ms) - record.started_ms),
        }
    return RefreshedTable(
        namespace=one.table.name.namespace,
        table=one.table.name.table,
        state=one.state,
        reason=one.reason,
        message=one.message
        if one.state == "as_it_is"
        else sight.message(one.table.definition, one.message, one.reason),
        snapshot_id=one.source.snapshot_id if one.source else None,
        **more,
    )

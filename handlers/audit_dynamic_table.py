"""AUDIT_DYNAMIC_TABLE: compare the rows of a dynamic table with those of its query, and repair them."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from service.dynamic.definitions import Definitions
from service.dynamic.refresh.audit import AuditOptions, AuditOutcome, Audits
from service.dynamic.refresh.refresher import RefreshProgress
from service.dynamic.rights import Sight
from service.errors import FirnError, InvalidRequest
from service.jobs.background import Background
from service.model.call import Call
from service.operations.dynamic.examples import CREATED, DETAILS
from service.operations.dynamic.requests import DynamicTableChange, Number
from service.operations.dynamic.results import SourceSnapshot, source_snapshots
from service.operations.examples import response
from service.operations.operation import (
    AcceptedResult,
    Example,
    Metadata,
    Result,
    async_field,
    omit_when_null,
    operation,
)

EXAMPLES = (
    Example(
        "Compare all rows with those of the query",
        {"operation": "AUDIT_DYNAMIC_TABLE", **DETAILS},
        response(
            matches=True,
            records_compared=1,
            records_missing=0,
            records_unexpected=0,
            examples=[],
            sources="<any>",
            repaired=False,
        ),
        given=CREATED,
    ),
)


class AuditDynamicTable(DynamicTableChange):
    operation: Literal["AUDIT_DYNAMIC_TABLE"]
    sample_percent: Number = Field(
        default=100,
        gt=0,
        le=100,
        description="compare only the rows of so many percent of the keys, chosen at random; default: all rows",
    )
    seed: int | None = Field(
        default=None, ge=0, lt=1 << 31, description="choose the same keys as an earlier audit with this seed"
    )
    repair: bool = Field(default=False, description="replace the rows that differ, if any of those compared does")
    async_: bool = async_field()


class DifferingRowEntry(BaseModel):
    """A row that the table has too seldom or too often."""

    row: dict[str, Any] = Field(description="the row; numbers with a floating point to twelve digits")
    missing: int | None = omit_when_null("how often it is missing")
    unexpected: int | None = omit_when_null("how often it should not be there")


class AuditDynamicTableResult(Result):
    matches: bool = Field(description="whether all rows that were compared are those of the query")
    records_compared: int = Field(description="rows of the query that were compared")
    records_missing: int = Field(description="rows of the query that the table does not have")
    records_unexpected: int = Field(description="rows of the table that the query does not have")
    examples: list[DifferingRowEntry] = Field(description="up to 20 rows that differ")
    sources: list[SourceSnapshot] = Field(
        description="the snapshots at which the query was computed, of tables that you may read"
    )
    key_columns: list[str] | None = omit_when_null("of a sample: the columns by which the rows were chosen")
    seed: int | None = omit_when_null("of a sample: the seed that chooses the same rows again")
    repaired: bool = Field(description="whether rows were replaced")
    records_inserted: int | None = omit_when_null("of a repair")
    records_deleted: int | None = omit_when_null("of a repair")


@operation(AuditDynamicTable, AuditDynamicTableResult, pool="bulk", examples=EXAMPLES, also=(AcceptedResult,))
def audit_dynamic_table(
    request: AuditDynamicTable, call: Call, definitions: Definitions, audits: Audits, background: Background
) -> AuditDynamicTableResult | AcceptedResult:
    """Compare the rows of a dynamic table with those of its query at the same snapshots, and repair them if wanted."""
    if request.seed is not None and request.sample_percent == 100:
        raise InvalidRequest.at("seed", "it chooses the rows of a sample; send sample_percent, or leave it out")
    table, found = definitions.load(request.table_name)
    sight = Sight(call.principal, definitions)
    options = AuditOptions(request.sample_percent / 100, request.seed, request.repair)

    def run(of: Call) -> AuditDynamicTableResult:
        try:
            return _result(audits.run(table, found, options, of), table.name.tenant, sight)
        except FirnError as e:
            raise sight.error(found.definition, e) from e

    if not request.async_:
        return run(call)
    return AcceptedResult.of(
        background.start("AUDIT", table, RefreshProgress(), call, lambda job: job.respond(run(job)))
    )


def _result(outcome: AuditOutcome, tenant: str, sight: Sight) -> AuditDynamicTableResult:
    found, made, counts = outcome.found, outcome.repaired, outcome.counts
    return AuditDynamicTableResult(
        matches=not (found.missing or found.unexpected),
        records_compared=found.compared,
        records_missing=found.missing,
        records_unexpected=found.unexpected,
        examples=[
            DifferingRowEntry(
                row=one.row,
                missing=one.missing if one.missing > 0 else None,
                unexpected=-one.missing if one.missing < 0 else None,
            )
            for one in found.examples
        ],
        sources=source_snapshots(sight.sources(tenant, outcome.sources)),
        key_columns=None if outcome.seed is None else list(outcome.keys),
        seed=outcome.seed,
        repaired=made is not None,
        records_inserted=counts.inserted if counts else None,
        records_deleted=counts.deleted if counts else None,
        metadata=Metadata(snapshot_id=made.snapshot_id if made else outcome.snapshot_id),
    )

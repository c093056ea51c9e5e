"""REPARTITION: another partitioning, and columns that are worked out from others, for all rows at once."""

from dataclasses import asdict
from functools import partial
from typing import Any, Literal

from pydantic import Field, field_validator

from service.catalog.tables import Catalog, Table
from service.errors import InvalidRequest, TableExists
from service.jobs.background import Background
from service.maintenance.repartition.estimate import LayoutEstimates
from service.maintenance.repartition.layout import parse_layout, refuse_partition_names
from service.maintenance.repartition.repartition import Repartitions
from service.maintenance.repartition.report import (
    LayoutEstimate,
    LayoutOptions,
    RepartitionOutcome,
    RepartitionProgress,
)
from service.model.call import Call
from service.model.names import TableName, check_name
from service.model.properties import codec_of
from service.model.schema.derived import add_derived, parse_transform
from service.model.schema.partition import describe_partition
from service.operations.examples import response
from service.operations.operation import ChangeRequest, Example, Metadata, Pool, Result, omit_when_null, operation
from service.operations.repartition_fields import (
    EstimatedPartition,
    RepartitionEstimate,
    RepartitionFigures,
    RepartitionPlan,
)
from service.settings import Codec, KeptHours

_SHOWN = 1000

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "sightings"}
GIVEN: tuple[dict[str, Any], ...] = (
    {
        "operation": "CREATE_TABLE",
        **ADDRESS,
        "schema": {"fields": {"product_id": {"type": "string"}, "at": {"type": "timestamp"}, "day": {"type": "date"}}},
        "partition": {"partitions": [{"field": "day"}]},
    },
    {
        "operation": "WRITE",
        **ADDRESS,
        "records": [
            {"product_id": "a", "at": "2024-05-01T23:00:00", "day": "2024-05-01"},
            {"product_id": "a", "at": "2024-05-02T01:00:00", "day": "2024-05-02"},
            {"product_id": "b", "at": "2024-05-02T02:00:00", "day": "2024-05-02"},
        ],
    },
)
NEW = {"partitions": [{"field": "product_id"}, {"field": "at", "transform": "month"}]}
NAMED = {
    "partitions": [
        {"field": "product_id", "transform": "identity", "name": "product_id"},
        {"field": "at", "transform": "month", "name": "at_month"},
    ]
}
STATS = {
    "records": 3,
    "files_before": 2,
    "files_after": 2,
    "bytes_before": "<any>",
    "bytes_after": "<any>",
    "partitions_before": 2,
    "partitions_after": 2,
    "rounds": 1,
    "batches": 1,
    "spark_jobs": "<any>",
    "validated": True,
    "checksum": "<any>",
    "duration_ms": "<any>",
}
META = {"request_id": "<any>", "execution_time_ms": "<any>", "snapshot_id": "<any>"}
DONE = {"success": True, "repartitioned": True, "reason": None}
EXAMPLES = (
    Example(
        "Partition a table otherwise, and keep the old layout as a backup",
        {"operation": "REPARTITION", **ADDRESS, "partition": NEW, "delete_source": False},
        {**DONE, "partition": NAMED, "stats": STATS, "backup": "<any>", "metadata": META},
        given=GIVEN,
    ),
    Example(
        "See which partitions there would be",
        {"operation": "REPARTITION", **ADDRESS, "partition": NEW, "estimate": True},
        {
            "success": True,
            "repartitioned": False,
            "reason": "this was an estimate",
            "partition": NAMED,
            "estimate": {
                "partitions": [
                    {"partition": {"product_id": "a", "at_month": "2024-05"}, "rows": 2, "bytes": "<any>"},
                    {"partition": {"product_id": "b", "at_month": "2024-05"}, "rows": 1, "bytes": "<any>"},
                ],
                "partition_count": 2,
                "truncated": False,
                "rows": 3,
                "bytes": "<any>",
            },
            "metadata": META,
        },
        given=GIVEN,
    ),
    Example(
        "See what would be rewritten",
        {"operation": "REPARTITION", **ADDRESS, "partition": NEW, "dry_run": True, "batch_size": 2},
        {
            "success": True,
            "repartitioned": False,
            "reason": "this was a dry run",
            "partition": NAMED,
            "plan": {"files": 2, "bytes": "<any>", "rows": 3, "batches": 2, "partitions": 2},
            "metadata": META,
        },
        given=GIVEN,
    ),
    Example(
        "Derive a column and partition by it",
        {
            "operation": "REPARTITION",
            **ADDRESS,
            "transform": {"initial": {"expression": "upper(substr(product_id, 1, 1))"}},
            "partition": {"partitions": [{"field": "initial"}]},
        },
        {
            **DONE,
            "partition": {"partitions": [{"field": "initial", "transform": "identity", "name": "initial"}]},
            "stats": STATS,
            "metadata": META,
        },
        given=GIVEN,
    ),
    Example(
        "Do it in the background",
        {"operation": "REPARTITION", **ADDRESS, "partition": NEW, "async": True},
        response(snapshot=False, reason=None, partition=NAMED, job_id="<any>"),
        given=GIVEN,
    ),
)


class Repartition(ChangeRequest):
    operation: Literal["REPARTITION"]
    partition: dict[str, Any] | None = Field(
        default=None, description="the new partitioning, as CREATE_TABLE takes it; default: as it is"
    )
    transform: dict[str, Any] | None = Field(
        default=None,
        description='{new_column: {"expression": "CAST(at AS date)"}}: columns to add, worked out from the others; '
        "`partition` may use them, and later writes that leave them out get them",
    )
    estimate: bool = Field(
        default=False, description="only say which partitions there would be, with rows and bytes; nothing is changed"
    )
    dry_run: bool = Field(default=False, description="only say what would be rewritten; nothing is changed")
    validate_: bool = Field(
        default=True,
        alias="validate",
        description="read everything again before it is published: its rows, and a checksum of them, must be the same",
    )
    batch_size: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="about so many rows are rewritten at a time, in whole files, and at most the compaction setting "
        "`group_mb`: what bounds memory and room on disk; default: only that",
    )
    compression: Codec | None = Field(
        default=None, description="the codec of the new files, and of the table from now on"
    )
    delete_source: bool | None = Field(
        default=None,
        description="false keeps the table as it was as a backup, which the answer names; default: true, old files go "
        "as old snapshots do",
    )
    backup_retention_hours: KeptHours | None = Field(
        default=None, description="how long that backup is kept; default: the table's own"
    )
    target_table: str | None = Field(
        default=None, description="make a new table of this name of it instead, and leave this one as it is"
    )
    async_: bool = Field(
        default=False,
        alias="async",
        description="answer at once with a job's id: GET /jobs/{id} tells of it, DELETE /jobs/{id} calls it off",
    )

    @field_validator("target_table")
    @classmethod
    def _is_a_name_too(cls, value: str | None) -> str | None:
        return None if value is None else check_name(value, "target_table")


class RepartitionResult(Result):
    repartitioned: bool | None = omit_when_null("whether the table, or the new one, was made")
    reason: str | None = Field(default=None, description="why not, where it was not")
    partition: dict[str, Any] = Field(description="the partitioning, with the names of its fields")
    stats: RepartitionFigures | None = omit_when_null("what was counted before and after")
    backup: str | None = omit_when_null("the backup of the table as it was, where one was wanted")
    target_table: str | None = omit_when_null("the new table's name")
    source_snapshot_id: int | None = omit_when_null("the snapshot of this table that the new one holds")
    estimate: RepartitionEstimate | None = omit_when_null("the partitions there would be")
    plan: RepartitionPlan | None = omit_when_null("for a dry run: what would be done")
    job_id: str | None = omit_when_null("with `async`, instead of the above: what stands under /jobs/{id}")


def _pool(request: Repartition) -> Pool:
    return "queries" if (request.estimate or request.dry_run) and not request.async_ else "maintenance"


@operation(Repartition, RepartitionResult, pool=_pool, examples=EXAMPLES)
def repartition(
    request: Repartition,
    call: Call,
    catalog: Catalog,
    background: Background,
    estimates: LayoutEstimates,
    repartitions: Repartitions,
) -> RepartitionResult:
    """Partition a table otherwise, and derive columns, in one commit that no reader or writer waits for."""
    _check_together(request)
    table = catalog.load(request.table_name)
    if not request.async_:
        return _done(request, call, catalog, estimates, repartitions, table)
    # An impossible partitioning is refused now, not by the job.
    partition = describe_partition(_wanted(request, catalog, repartitions, table).partition)

    def work(job: Call) -> bytes:
        return job.respond(_done(request, job, catalog, estimates, repartitions, table))

    # An idempotency key stands for the job: its answer is the job's id.
    job_id = background.start("REPARTITION", table, RepartitionProgress(), call, work)
    return RepartitionResult(partition=partition, job_id=job_id)


def _done(
    request: Repartition,
    job: Call,
    catalog: Catalog,
    estimates: LayoutEstimates,
    repartitions: Repartitions,
    table: Table,
) -> RepartitionResult:
    if not (request.estimate or request.dry_run):
        decide = partial(_wanted, request, catalog, repartitions)
        outcome = repartitions.repartition(table, decide, job, _target(request))
        return _result(request, outcome)
    wanted = _wanted(request, catalog, repartitions, table)
    reason = "this was an estimate" if request.estimate else "this was a dry run"
    return RepartitionResult(
        repartitioned=False,
        reason=reason,
        partition=describe_partition(wanted.partition),
        estimate=_estimate(estimates.estimate(job, table, wanted, _SHOWN)) if request.estimate else None,
        plan=RepartitionPlan(**asdict(estimates.plan(job, table, wanted))) if request.dry_run else None,
        metadata=Metadata(snapshot_id=table.current_snapshot_id),
    )


def _check_together(request: Repartition) -> None:
    if request.partition is None and not request.transform and request.compression is None:
        raise InvalidRequest("there is nothing to do; send partition, transform or compression", field="partition")
    if request.estimate and request.dry_run:
        raise InvalidRequest("send either estimate or dry_run", field="dry_run")
    if request.target_table is not None and request.delete_source is not None:
        raise InvalidRequest(
            "delete_source has no meaning with target_table, which leaves this table as it is; leave it out, and "
            "drop the table once you are content",
            field="delete_source",
        )
    if request.backup_retention_hours is not None and request.delete_source is not False:
        raise InvalidRequest(
            "backup_retention_hours has no meaning where no backup is made; send delete_source: false",
            field="backup_retention_hours",
        )


def _wanted(request: Repartition, catalog: Catalog, repartitions: Repartitions, table: Table) -> LayoutOptions:
    """What the request means for the table as it is."""
    target = _target(request)
    if target is not None and target.table in catalog.list_tables(target.tenant, target.namespace):
        raise TableExists(
            f"target_table: {target.table!r} exists already in namespace {target.namespace!r}; choose another name, or "
            "drop it",
            field="target_table",
        )
    derived = parse_transform(request.transform or {}, table.schema, table.properties)
    refuse_partition_names(derived, table.past_partition)
    derived = repartitions.typed(table, derived)
    schema = add_derived(table.schema, derived)
    past = () if target else table.past_partition
    codec = request.compression
    if codec == codec_of(table.properties) and not derived and target is None:
        codec = None
    return LayoutOptions(
        partition=parse_layout(request.partition, schema, table.partition, past),
        derived=derived,
        compression=codec,
        validate=request.validate_,
        batch_rows=request.batch_size,
        backup=request.delete_source is False,
        backup_hours=request.backup_retention_hours,
        elsewhere=target is not None,
    )


def _target(request: Repartition) -> TableName | None:
    name = request.target_table
    return None if name is None else TableName(request.tenant_id, request.namespace, name)


def _result(request: Repartition, outcome: RepartitionOutcome) -> RepartitionResult:
    return RepartitionResult(
        repartitioned=outcome.repartitioned,
        reason=outcome.reason,
        partition=describe_partition(outcome.partition),
        stats=None if outcome.stats is None else RepartitionFigures(**asdict(outcome.stats)),
        backup=outcome.backup,
        target_table=request.target_table,
        source_snapshot_id=outcome.source_snapshot_id,
        metadata=Metadata(snapshot_id=outcome.snapshot_id),
    )


def _estimate(found: LayoutEstimate) -> RepartitionEstimate:
    return RepartitionEstimate(
        partitions=[EstimatedPartition(**asdict(share)) for share in found.shares],
        partition_count=found.partitions,
        truncated=found.partitions > len(found.shares),
        rows=found.rows,
        bytes=found.bytes,
    )

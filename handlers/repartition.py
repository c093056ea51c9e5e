"""REPARTITION: change a table's partitioning and add derived columns, for all rows at once."""

from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog, Table
from service.dynamic.definitions import Definitions
from service.errors import CommitConflict, FirnError, InvalidRequest, TableExists
from service.jobs.background import Background
from service.maintenance.expire.expirer import Expirer
from service.maintenance.repartition.estimate import LayoutEstimates
from service.maintenance.repartition.layout import parse_layout, refuse_partition_names
from service.maintenance.repartition.repartition import Repartitions
from service.maintenance.repartition.report import (
    EstimatedPartition,
    LayoutEstimate,
    LayoutOptions,
    RepartitionOutcome,
    RepartitionPlan,
    RepartitionProgress,
    RepartitionStats,
)
from service.model.call import Call
from service.model.dynamic.definition import refuse_dynamic_table
from service.model.ingest.reserved import refuse_ingestion_table
from service.model.names import TableName
from service.model.properties import codec_of
from service.model.schema.derived import add_derived, parse_transform
from service.model.schema.partition import describe_partition
from service.operations.examples import accepted, create_table, planned, response, write
from service.operations.operation import (
    AcceptedResult,
    BackgroundRequest,
    DryRunResult,
    Example,
    Metadata,
    Plan,
    Pool,
    Result,
    ReturnedId,
    omit_when_null,
    operation,
)
from service.settings.kinds import Codec, KeptHours
from service.tables.life import TableLifecycle

_LISTED = 1000
ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "sightings"}
GIVEN: tuple[dict[str, Any], ...] = (
    create_table(
        ADDRESS,
        {"product_id": "string", "at": "timestamp", "day": "date"},
        partition={"partitions": [{"field": "day"}]},
    ),
    write(
        ADDRESS,
        {"product_id": "a", "at": "2024-05-01T23:00:00", "day": "2024-05-01"},
        {"product_id": "a", "at": "2024-05-02T01:00:00", "day": "2024-05-02"},
        {"product_id": "b", "at": "2024-05-02T02:00:00", "day": "2024-05-02"},
    ),
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
DONE: dict[str, Any] = {"repartitioned": True}
EXAMPLES = (
    Example(
        "Change the partitioning, and keep the old layout as a backup",
        {"operation": "REPARTITION", **ADDRESS, "partition": NEW, "delete_source": False},
        response(**DONE, partition=NAMED, stats=STATS, backup="<any>"),
        given=GIVEN,
    ),
    Example(
        "Estimate the new partitions",
        {"operation": "REPARTITION", **ADDRESS, "partition": NEW, "estimate": True},
        response(
            estimate={
                "partition": NAMED,
                "partitions": [
                    {"partition": {"product_id": "a", "at_month": "2024-05"}, "records": 2, "bytes": "<any>"},
                    {"partition": {"product_id": "b", "at_month": "2024-05"}, "records": 1, "bytes": "<any>"},
                ],
                "partition_count": 2,
                "truncated": False,
                "records": 3,
                "bytes": "<any>",
            },
        ),
        given=GIVEN,
    ),
    Example(
        "See what a repartitioning would rewrite",
        {"operation": "REPARTITION", **ADDRESS, "partition": NEW, "dry_run": True, "batch_size": 2},
        planned(partition=NAMED, files_removed=2, bytes_removed="<any>", records=3, batches=2, partitions_after=2),
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
        response(
            **DONE,
            partition={"partitions": [{"field": "initial", "transform": "identity", "name": "initial"}]},
            stats=STATS,
        ),
        given=GIVEN,
    ),
    Example(
        "Repartition in the background",
        {"operation": "REPARTITION", **ADDRESS, "partition": NEW, "async": True},
        accepted(),
        given=GIVEN,
    ),
)


class Repartition(BackgroundRequest):
    operation: Literal["REPARTITION"]
    partition: dict[str, Any] | None = Field(
        default=None, description="the new partitioning, as in CREATE_TABLE; default: keep the partitioning"
    )
    transform: dict[str, Any] | None = Field(
        default=None,
        description='{new_column: {"expression": "CAST(at AS date)"}}: columns to derive from others; `partition` may '
        "use them, and they are computed for later writes that omit them",
    )
    estimate: bool = Field(default=False, description="only report the resulting partitions, with rows and bytes")
    validate_: bool = Field(default=True, alias="validate", description="compare rows and checksum before the commit")
    batch_size: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="how many rows to rewrite at a time, at most: whole files, or parts of a larger file; limits "
        "memory and disk space, as the compaction setting `group_mb` does for files",
    )
    compression: Codec | None = Field(default=None, description="the table's new codec")
    delete_source: bool | None = Field(
        default=None,
        description="true deletes the old files at once, and all older snapshots with them; with `target_table`, this "
        "table for good, unless it was changed in the meantime. false keeps the old layout as a backup; with "
        "`target_table`, this table. Default: old files stay until their snapshots expire, and this table stays",
    )
    backup_retention_hours: KeptHours | None = Field(
        default=None, description="how long to keep the backup; default: the table's"
    )
    target_table: str | None = Field(
        default=None, description="create a new table of this name with the new layout, and leave this one unchanged"
    )


class LayoutPlan(Plan, RepartitionPlan):
    """What a REPARTITION would do."""

    partition: dict[str, Any] = Field(description="the partitioning, with the names of its fields")


class RepartitionDryRun(DryRunResult):
    plan: LayoutPlan = Field(description="what would happen")


class RepartitionEstimate(BaseModel):
    partition: dict[str, Any] = Field(description="the partitioning, with the names of its fields")
    partitions: list[EstimatedPartition] = Field(description="most rows first, then by value; at most 1,000")
    partition_count: int = Field(description="all partitions")
    truncated: bool = Field(description="whether there are more than listed")
    records: int = Field(description="all rows")
    bytes: int = Field(description="the size of the current data files")


class RepartitionEstimateResult(Result):
    when: ClassVar[str] = "With `estimate: true`, nothing changes, and the response has"

    estimate: RepartitionEstimate = Field(description="the resulting partitions")


class RepartitionResult(Result):
    repartitioned: bool = Field(description="whether the table was repartitioned, or the new table created")
    reason: str | None = omit_when_null("why not, if it was not")
    partition: dict[str, Any] = Field(description="the partitioning, with the names of its fields")
    stats: RepartitionStats | None = omit_when_null("counts before and after")
    backup: str | None = omit_when_null("the name of the backup of the old layout, if it is kept")
    target_table: str | None = omit_when_null("the new table's name")
    source_snapshot_id: ReturnedId | None = omit_when_null("the snapshot of this table that the new one was made from")
    source_deleted: bool | None = omit_when_null(
        "with `target_table` and `delete_source: true`: whether this table was deleted"
    )
    expired_files_deleted: int | None = omit_when_null(
        "with `delete_source: true`: files of older snapshots that were deleted"
    )
    warnings: list[str] | None = omit_when_null("what failed after the new layout was committed")


def _pool(request: Repartition) -> Pool:
    return "maintenance" if request.has_effect or request.async_ else "queries"


@operation(
    Repartition,
    RepartitionResult,
    pool=_pool,
    examples=EXAMPLES,
    also=(RepartitionDryRun, RepartitionEstimateResult, AcceptedResult),
)
def repartition(
    request: Repartition,
    call: Call,
    catalog: Catalog,
    background: Background,
    estimates: LayoutEstimates,
    repartitions: Repartitions,
    expirer: Expirer,
    life: TableLifecycle,
    definitions: Definitions,
) -> Result:
    """Change a table's partitioning, and derive columns, in one commit that blocks no readers or writers."""
    _check_together(request)
    table = catalog.load(request.table_name)
    refuse_ingestion_table(table.properties, table.name.table, "REPARTITION")
    if request.target_table is not None and request.delete_source:
        moved = "REPARTITION into another table with delete_source"
        refuse_dynamic_table(table.properties, table.name.table, moved, field="target_table")
        definitions.check_not_read(table, "send delete_source: false, or drop these first", call.principal)
    layout = partial(_layout, request, catalog, repartitions)

    def run(job: Call) -> Result:
        if request.has_effect:
            outcome = repartitions.repartition(table, layout, job, _target(request))
            released = _released(request, table, outcome, job, expirer, life) if request.delete_source else {}
            return _result(request, outcome).model_copy(update=released)
        return _preview(request, job, estimates, table, layout(table))

    if not request.async_:
        return run(call)
    # An impossible partitioning is refused now, not by the job.
    layout(table)
    # With an idempotency key, a repeated request gets the same job.
    job_id = background.start("REPARTITION", table, RepartitionProgress(), call, lambda job: job.respond(run(job)))
    return AcceptedResult.of(job_id)


def _released(
    request: Repartition, table: Table, done: RepartitionOutcome, call: Call, expirer: Expirer, life: TableLifecycle
) -> dict[str, Any]:
    """Delete the old files. The new layout is committed, so a failure is only a warning."""
    if not done.repartitioned:
        return {}

    def check(current: Table) -> None:
        if current.current_snapshot_id != done.source_snapshot_id:
            raise CommitConflict(f"table {table.name.table!r} was changed in the meantime")

    try:
        if request.target_table is None:
            return {"expired_files_deleted": expirer.by_age(table, 0, call.commit_gate).files}
        life.drop(table.name, call.without_key(), purge=True, check=check)
        return {"source_deleted": True}
    except FirnError as e:
        kept = {} if request.target_table is None else {"source_deleted": False}
        return {**kept, "warnings": [f"the old files were not deleted: {e.code}: {e.message}"]}


def _preview(
    request: Repartition, call: Call, estimates: LayoutEstimates, table: Table, layout: LayoutOptions
) -> RepartitionDryRun | RepartitionEstimateResult:
    partition, metadata = describe_partition(layout.partition), Metadata(snapshot_id=table.current_snapshot_id)
    if request.estimate:
        found = _estimate(partition, estimates.estimate(call, table, layout, _LISTED))
        return RepartitionEstimateResult(estimate=found, metadata=metadata)
    plan = LayoutPlan(partition=partition, **dict(estimates.plan(call, table, layout)))
    return RepartitionDryRun(plan=plan, metadata=metadata)


def _check_together(request: Repartition) -> None:
    if request.partition is None and not request.transform and request.compression is None:
        raise InvalidRequest("there is nothing to do; send partition, transform or compression", field="partition")
    if request.estimate and request.dry_run:
        raise InvalidRequest("send either estimate or dry_run", field="dry_run")
    if request.backup_retention_hours is not None and not _keeps_backup(request):
        hint = "leave it out" if request.target_table else "send delete_source: false"
        raise InvalidRequest(
            f"backup_retention_hours has no meaning without a backup; {hint}", field="backup_retention_hours"
        )


def _layout(request: Repartition, catalog: Catalog, repartitions: Repartitions, table: Table) -> LayoutOptions:
    """The new layout of the table in its current state."""
    target = _target(request)
    if target is not None and target.table in catalog.list_tables(target.tenant, target.namespace):
        raise TableExists(
            f"target_table: {target.table!r} already exists in namespace {target.namespace!r}; choose another name, or "
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
        backup=_keeps_backup(request),
        backup_hours=request.backup_retention_hours,
        elsewhere=target is not None,
    )


def _keeps_backup(request: Repartition) -> bool:
    """Whether the old layout stays as a backup. With `target_table` the source table itself stays."""
    return request.delete_source is False and request.target_table is None


def _target(request: Repartition) -> TableName | None:
    name = request.target_table
    return None if name is None else TableName(request.tenant_id, request.namespace, name)


def _result(request: Repartition, outcome: RepartitionOutcome) -> RepartitionResult:
    return RepartitionResult(
        repartitioned=outcome.repartitioned,
        reason=outcome.reason,
        partition=describe_partition(outcome.partition),
        stats=outcome.stats,
        backup=outcome.backup,
        target_table=request.target_table,
        source_snapshot_id=outcome.source_snapshot_id,
        metadata=Metadata(snapshot_id=outcome.snapshot_id),
    )


def _estimate(partition: dict[str, Any], found: LayoutEstimate) -> RepartitionEstimate:
    return RepartitionEstimate(
        partition=partition,
        partitions=list(found.shares),
        partition_count=found.partitions,
        truncated=found.partitions > len(found.shares),
        records=found.rows,
        bytes=found.bytes,
    )

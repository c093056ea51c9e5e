"""CREATE_TABLE: create an empty table."""

from typing import Any, Literal

from pydantic import Field

from service.catalog.tables import Table
from service.commits.commit import Commits
from service.errors import InvalidRequest, TableExists
from service.ingest.changes.trigger import Triggers
from service.ingest.exports.exports import Exports
from service.ingest.history import IngestHistory
from service.ingest.sources.roots import Roots
from service.ingest.tables import ingestion_layout, ingestion_properties
from service.maintenance.policy import TARGET, check_policy
from service.model.call import Call
from service.model.ingest.reserved import is_ingestion_table
from service.model.properties import TableProperties, to_iceberg
from service.model.schema.definition import parse_schema
from service.model.schema.partition import PartitionField, parse_partition
from service.model.schema.types import TableSchema, without_hidden_columns
from service.operations.examples import response
from service.operations.ingest_requests import TableFileRequest
from service.operations.operation import ChangeRequest, Example, Result, operation
from service.settings import IcebergSettings
from service.tables.life import TableLifecycle

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "orders"}
REQUEST = {
    "operation": "CREATE_TABLE",
    **ADDRESS,
    "schema": {
        "fields": {
            "id": {"type": "long", "required": True},
            "customer": {"type": "string", "required": True},
            "amount": {"type": "decimal(10,2)"},
            "placed_at": {"type": "timestamptz"},
            "tags": {"type": "array", "items": "string"},
        },
        "primary_key": ["id"],
    },
    "partition": {"partitions": [{"field": "placed_at", "transform": "month"}]},
    "properties": {"compression": "zstd", "description": "one row per order", "min_files_to_compact": 5},
}
EXAMPLES = (
    Example("Create a table", REQUEST, response(snapshot=False, table_created=True, table_existed=False)),
    Example(
        "Create it only if it does not exist",
        {**REQUEST, "if_not_exists": True},
        response(snapshot=False, table_created=False, table_existed=True),
        given=(REQUEST,),
    ),
    Example(
        "Create a table that takes a file a day",
        {
            "operation": "CREATE_TABLE",
            "tenant_id": "acme",
            "namespace": "shop",
            "config": "name: sales\ndescription: one file a day\n",
            "dataset": {"columns": [{"name": "sale_id", "type": "BIGINT"}, {"name": "amount", "type": "DOUBLE"}]},
        },
        response(snapshot=False, table_created=True, table_existed=False),
    ),
)


class CreateTable(TableFileRequest, ChangeRequest):
    operation: Literal["CREATE_TABLE"]
    schema_: dict[str, Any] | None = Field(
        default=None,
        alias="schema",
        description='{"fields": {name: {"type", "required"?, "nullable"?, "items"?, "key_type"?, "value_type"?, '
        '"fields"?}}, "primary_key"?: [..]}; types: string, integer, long, float, double, boolean, date, timestamp, '
        "timestamptz, decimal(p,s), binary, uuid, array, map, struct",
    )
    partition: dict[str, Any] | None = Field(
        default=None,
        description='{"partitions": [{"field", "transform": identity|year|month|day|hour|bucket|truncate, "name"?, '
        '"num_buckets"?, "width"?}]}',
    )
    properties: TableProperties = Field(default=TableProperties(), description="how the table is stored and maintained")
    if_not_exists: bool = Field(default=False, description="do nothing if the table exists")


class CreateTableResult(Result):
    table_created: bool = Field(description="whether this request created it")
    table_existed: bool = Field(description="whether it existed before")


@operation(CreateTable, CreateTableResult, pool="tables", examples=EXAMPLES)
def create_table(
    request: CreateTable,
    call: Call,
    settings: IcebergSettings,
    commits: Commits,
    life: TableLifecycle,
    roots: Roots,
    history: IngestHistory,
    exports: Exports,
    triggers: Triggers,
) -> CreateTableResult:
    """Create an empty table: with a schema, a partitioning and properties, or from a table file."""
    properties = to_iceberg(request.properties, settings)
    table_file = request.table_file
    if table_file is None:
        schema, partition = _given(request)
    else:
        _refuse_given(request)
        exports.check(table_file, request.table_name)
        dataset = request.dataset_or(table_file.ingestion.dataset_config, roots.of(request.tenant_id))
        schema, partition = ingestion_layout(dataset)
        properties |= ingestion_properties(table_file, dataset)
    given = request.properties.model_fields_set | request.properties.compaction.model_fields_set
    shown = without_hidden_columns(schema)
    check_policy(properties, settings, shown, given, _where, () if table_file else partition)
    try:
        table = commits.create(request.table_name, schema, partition, properties, call)
    except TableExists:
        if not request.if_not_exists:
            raise
        existing = commits.table(request.table_name, call)
        if not history.records.knows(existing.uuid):  # an attempt that ended right after it had created the table
            _register(existing, history, triggers)
        return CreateTableResult(table_created=False, table_existed=True)
    _register(table, history, triggers)
    if request.properties.online is False:
        life.record_offline(table)
    return CreateTableResult(table_created=True, table_existed=False)


def _register(table: Table, history: IngestHistory, triggers: Triggers) -> None:
    """Give a table with a table file its schedule, and record it in the ledger."""
    if is_ingestion_table(table.properties):
        triggers.follow(table)
        history.complete(table)


def _given(request: CreateTable) -> tuple[TableSchema, tuple[PartitionField, ...]]:
    """The schema and the partitioning of a request without a table file."""
    if request.schema_ is None:
        raise InvalidRequest("schema is missing; send it, or a table file as config", field="schema")
    if request.dataset is not None:
        raise InvalidRequest("dataset needs config, a table file; send both, or leave it out", field="dataset")
    schema = parse_schema(request.schema_)
    return schema, parse_partition(request.partition, schema)


def _refuse_given(request: CreateTable) -> None:
    """Refuse what a table file says already."""
    for name in ("schema", "partition"):
        if getattr(request, "schema_" if name == "schema" else name) is not None:
            raise InvalidRequest(
                f"{name} and config exclude each other: the dataset file has the columns, and the table is partitioned "
                "by period; leave it out",
                field=name,
            )


def _where(name: str) -> str:
    return f"properties.{name}" if name == TARGET else f"properties.compaction.{name}"

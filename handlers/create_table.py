"""CREATE_TABLE: create an empty table."""

from typing import Any, Literal

from pydantic import Field

from service.commits.commit import Commits
from service.errors import TableExists
from service.maintenance.policy import TARGET, check_policy
from service.model.call import Call
from service.model.properties import TableProperties, to_iceberg
from service.model.schema.definition import parse_schema
from service.model.schema.partition import parse_partition
from service.operations.examples import response
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
)


class CreateTable(ChangeRequest):
    operation: Literal["CREATE_TABLE"]
    schema_: dict[str, Any] = Field(
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
    request: CreateTable, call: Call, settings: IcebergSettings, commits: Commits, life: TableLifecycle
) -> CreateTableResult:
    """Create an empty table with a schema, a partitioning and properties."""
    schema = parse_schema(request.schema_)
    partition = parse_partition(request.partition, schema)
    properties = to_iceberg(request.properties, settings)
    given = request.properties.model_fields_set | request.properties.compaction.model_fields_set
    check_policy(properties, settings, schema, given, _where, partition)
    try:
        table = commits.create(request.table_name, schema, partition, properties, call)
    except TableExists:
        if not request.if_not_exists:
            raise
        return CreateTableResult(table_created=False, table_existed=True)
    if request.properties.online is False:
        life.record_offline(table)
    return CreateTableResult(table_created=True, table_existed=False)


def _where(name: str) -> str:
    return f"properties.{name}" if name == TARGET else f"properties.compaction.{name}"

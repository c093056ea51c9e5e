"""DESCRIBE_TABLE: describe a table, from metadata alone."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.files.data_files import count_rows, list_files
from service.catalog.tables import Catalog, Table
from service.commits.small_files import SmallFileChecks
from service.guard.policies import Policies, has_policy, sees_all
from service.maintenance.policy import EffectiveCompaction, effective_policy
from service.model.call import Call
from service.model.dynamic.definition import is_dynamic_table
from service.model.ingest.reserved import dataset_of, table_file_of
from service.model.policy.policy import POLICY_PROPERTY, read_policy
from service.model.properties import describe, is_online
from service.model.schema.definition import describe_schema
from service.model.schema.derived import derived_expressions
from service.model.schema.partition import describe_partition
from service.model.schema.ranges import ranges_of
from service.operations.examples import DEFAULT_COMPACTION, response, write
from service.operations.operation import Example, Metadata, Result, ReturnedId, TableRequest, omit_when_null, operation
from service.settings import IcebergSettings

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "visits"}
SCHEMA = {"fields": {"page": {"type": "string", "required": True}, "at": {"type": "timestamp", "required": False}}}
PROPERTIES = {"description": "one row per page view"}
PARTITION = {"partitions": [{"field": "at", "transform": "day", "name": "at_day"}]}
EXAMPLES = (
    Example(
        "Describe a table",
        {"operation": "DESCRIBE_TABLE", **ADDRESS},
        response(
            description={
                "schema": SCHEMA,
                "partition": PARTITION,
                "properties": {
                    "file_format": "parquet",
                    "compression": "zstd",
                    "description": "one row per page view",
                    "target_file_size_mb": 128,
                },
                "online": True,
                "dynamic": False,
                "compaction": DEFAULT_COMPACTION,
                "current_snapshot_id": "<any>",
                "metadata_location": "<any>",
                "row_count": 1,
                "file_count": 1,
                "total_bytes": "<any>",
                "small_files_count": 1,
                "snapshot_count": 1,
            }
        ),
        given=(
            {
                "operation": "CREATE_TABLE",
                **ADDRESS,
                "schema": SCHEMA,
                "partition": PARTITION,
                "properties": PROPERTIES,
            },
            write(ADDRESS, {"page": "/", "at": "2024-05-01T10:00:00"}),
        ),
    ),
)


class DescribeTable(TableRequest):
    operation: Literal["DESCRIBE_TABLE"]


class Description(BaseModel):
    schema_: dict[str, Any] = Field(serialization_alias="schema", description="as in CREATE_TABLE")
    partition: dict[str, Any] = Field(description="as in CREATE_TABLE")
    properties: dict[str, Any] = Field(description="as in CREATE_TABLE")
    has_policy: bool | None = omit_when_null("true if a policy hides rows or columns from some; see SET_POLICY")
    policy: dict[str, Any] | None = omit_when_null("for administrators: its rules, as in SET_POLICY")
    derived: dict[str, str] | None = omit_when_null("derived columns with their expressions; REPARTITION adds them")
    split_points: list[Any] | None = omit_when_null("the points that split it, set by REINITIALISE_TABLE")
    ingestion: dict[str, Any] | None = omit_when_null(
        "of a table that was made from a table file: `table`, that file, and `dataset`, its dataset file"
    )
    online: bool = Field(
        description="false if SET_ONLINE or the property `online` excluded it from scheduled maintenance"
    )
    dynamic: bool = Field(
        description="whether it is a dynamic table, the result of a query; DESCRIBE_DYNAMIC_TABLE describes it as that"
    )
    compaction: EffectiveCompaction = Field(description="its compaction policy; SET_COMPACTION changes it")
    current_snapshot_id: ReturnedId | None = omit_when_null("absent before the first write")
    metadata_location: str | None = omit_when_null(
        "the current Iceberg metadata file; not for readers from whom a policy hides rows or columns"
    )
    row_count: int = Field(description="rows in the current snapshot")
    file_count: int = Field(description="data files in the current snapshot")
    total_bytes: int = Field(description="the size of these files")
    small_files_count: int = Field(description="how many of them count as small")
    snapshot_count: int = Field(description="snapshots, including the current one")


class DescribeTableResult(Result):
    description: Description = Field(description="the table's description")


@operation(DescribeTable, DescribeTableResult, pool="metadata", examples=EXAMPLES)
def describe_table(
    request: DescribeTable,
    call: Call,
    settings: IcebergSettings,
    catalog: Catalog,
    small_files: SmallFileChecks,
    policies: Policies,
) -> DescribeTableResult:
    """Describe a table: its schema, partitioning, properties, compaction policy, snapshot, rows, files and bytes."""
    table = catalog.load(request.table_name)
    files = list_files(table)
    view = policies.view(call.principal, table)
    schema = table.schema if view is None else view.schema
    whole = view is None
    # Expressions, split points and the table file say more about rows than the policy shows.
    ranges = ranges_of(table.properties) if whole else None
    properties, compaction = describe(table.properties), effective_policy(table.properties, settings)
    if not whole:
        compaction.sort_by = [name for name in compaction.sort_by if name in schema.names]
        own = properties.get("compaction", {})
        if "sort_by" in own:
            properties["compaction"] = {**own, "sort_by": compaction.sort_by}
    return DescribeTableResult(
        description=Description(
            schema_=describe_schema(schema),
            partition=describe_partition(tuple(one for one in table.partition if one.field in schema.names or whole)),
            properties=properties,
            has_policy=has_policy(table) or None,
            policy=_policy(table) if sees_all(call.principal, table.name) else None,
            derived=(derived_expressions(table.properties) or None) if whole else None,
            split_points=list(ranges.points) if ranges else None,
            ingestion=_ingestion(table) if whole else None,
            online=is_online(table.properties),
            dynamic=is_dynamic_table(table.properties),
            compaction=compaction,
            current_snapshot_id=table.current_snapshot_id,
            # The file has the policy itself, and the names of all columns.
            metadata_location=table.metadata_location if whole else None,
            row_count=count_rows(table),
            file_count=len(files.data),
            total_bytes=files.bytes,
            small_files_count=small_files.count(table, files.data),
            snapshot_count=table.snapshot_count,
        ),
        metadata=Metadata(snapshot_id=table.current_snapshot_id),
    )


def _policy(table: Table) -> dict[str, Any] | None:
    """The rules of a policy; {} if another program made it unreadable."""
    text = table.properties.get(POLICY_PROPERTY)
    if text is None:
        return None
    found = read_policy(text)
    return found.described if found else {}


def _ingestion(table: Table) -> dict[str, Any] | None:
    table_file, dataset = table_file_of(table.properties), dataset_of(table.properties)
    if table_file is None:
        return None
    return {"table": table_file.stored(), **({"dataset": dataset.stored()} if dataset else {})}

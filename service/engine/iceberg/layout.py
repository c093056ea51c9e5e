"""A table's metadata with another layout: built in memory, and committed only together with files in that layout."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.engine.iceberg.tables import as_if
from service.engine.session.java import iceberg_class, java_class
from service.engine.sql.sql import spark_type
from service.errors import CommitConflict
from service.model.schema.partition import PARAMS, PartitionField
from service.model.schema.types import ColumnType, DecimalType, Field, Primitive

_FIRST_ID = 1000


@dataclass(frozen=True)
class Layout:
    """A table's new partitioning, the optional columns that are added, and the properties that are set."""

    partition: tuple[PartitionField, ...]
    columns: tuple[Field, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LayoutBasis:
    """The columns and partitioning that a layout was made for. If they changed since, the layout no longer fits."""

    schema_id: int
    spec_id: int
    specs: int

    @classmethod
    def of(cls, metadata: Any) -> "LayoutBasis":
        return cls(int(metadata.currentSchemaId()), int(metadata.defaultSpecId()), int(metadata.specs().size()))

    def check(self, metadata: Any) -> None:
        if LayoutBasis.of(metadata) != self:
            raise CommitConflict(
                "another program changed the table's columns or partitioning in the meantime; try again"
            )


def with_layout(iceberg: Any, metadata: Any, layout: Layout) -> Any:
    """The metadata with a layout; the same object if nothing changes."""
    for column in layout.columns:
        schema = as_if(iceberg, metadata).updateSchema().addColumn(column.name, _iceberg_type(column.type)).apply()
        highest = max(int(metadata.lastColumnId()), int(schema.highestFieldId()))
        metadata = metadata.buildFrom(metadata).setCurrentSchema(schema, highest).build()
    changes = metadata.buildFrom(metadata).setDefaultPartitionSpec(spec(metadata, metadata.schema(), layout.partition))
    if layout.properties:
        changes = changes.setProperties(dict(layout.properties))
    return changes.build()


def spec(metadata: Any, schema: Any, partition: Sequence[PartitionField]) -> Any:
    """Iceberg's own object for a partitioning over the columns of a schema."""
    parser = iceberg_class("PartitionSpecParser")
    past = [json.loads(parser.toJson(one)) for one in metadata.specs()]
    sources = {p.field: int(schema.findField(p.field).fieldId()) for p in partition}
    fields = spec_fields(partition, sources, past, int(metadata.lastAssignedPartitionId()))
    new_id = max((int(one["spec-id"]) for one in past), default=-1) + 1
    return parser.fromJson(schema, json.dumps({"spec-id": new_id, "fields": fields}))


def spec_fields(
    partition: Iterable[PartitionField], sources: Mapping[str, int], past: Iterable[Mapping[str, Any]], last_id: int
) -> list[dict[str, Any]]:
    """A partitioning's fields in Iceberg's JSON. A field that an earlier partitioning had keeps its id."""
    ids = {(f["source-id"], f["transform"]): int(f["field-id"]) for one in past for f in one["fields"]}
    fields = []
    last_id = max(last_id, _FIRST_ID - 1)
    for one in partition:
        source = sources[one.field]
        transform = f"{one.transform}[{one.param}]" if one.transform in PARAMS else one.transform
        number = ids.get((source, transform))
        if number is None:
            number = last_id = last_id + 1
        fields.append({"name": one.name, "transform": transform, "source-id": source, "field-id": number})
    return fields


def _iceberg_type(kind: ColumnType) -> Any:
    """Iceberg's own object for a column type. Ids inside it are assigned when the column is added."""
    if isinstance(kind, Primitive | DecimalType):
        return iceberg_class("types.Types").fromPrimitiveString(str(kind).replace("integer", "int"))
    ddl = java_class("org.apache.spark.sql.types.DataType").fromDDL(spark_type(kind))
    return iceberg_class("spark.SparkSchemaUtil").convert(ddl)

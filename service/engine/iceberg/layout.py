"""A table's metadata as it would be with another layout: made in memory, and committed only with the files for it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from service.engine.jvm import java_class
from service.engine.sql import spark_type
from service.errors import CommitConflict
from service.partition import PARAMS, PartitionField
from service.schema import ColumnType, DecimalType, Field, Primitive

_ICEBERG = "org.apache.iceberg"
_FIRST_ID = 1000
_NAMES = {"integer": "int"}


@dataclass(frozen=True)
class Layout:
    """What a table is to be like: how it is partitioned, the optional columns it gets, the properties that are set."""

    partition: tuple[PartitionField, ...]
    columns: tuple[Field, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


def evolved(session: SparkSession, metadata: Any, layout: Layout) -> Any:
    """The metadata with a layout; the one given where nothing is to be changed."""
    for column in layout.columns:
        fixed = java_class(f"{_ICEBERG}.BaseTable")(_static(metadata, None), "new")
        schema = fixed.updateSchema().addColumn(column.name, iceberg_type(session, column.type)).apply()
        highest = max(int(metadata.lastColumnId()), int(schema.highestFieldId()))
        metadata = metadata.buildFrom(metadata).setCurrentSchema(schema, highest).build()
    changes = metadata.buildFrom(metadata).setDefaultPartitionSpec(spec(metadata, layout.partition))
    if layout.properties:
        changes = changes.setProperties(java_class("java.util.HashMap")(dict(layout.properties)))
    return changes.build()


def spec(metadata: Any, partition: Sequence[PartitionField]) -> Any:
    """A partitioning over a table's present columns, as Iceberg has it."""
    parser = java_class(f"{_ICEBERG}.PartitionSpecParser")
    past = [json.loads(parser.toJson(one)) for one in metadata.specs()]
    schema = metadata.schema()
    sources = {p.field: int(schema.findField(p.field).fieldId()) for p in partition}
    fields = spec_fields(partition, sources, past, int(metadata.lastAssignedPartitionId()))
    new_id = max((int(one["spec-id"]) for one in past), default=-1) + 1
    return parser.fromJson(schema, json.dumps({"spec-id": new_id, "fields": fields}))


def spec_fields(
    partition: Iterable[PartitionField], sources: Mapping[str, int], past: Iterable[Mapping[str, Any]], last_id: int
) -> list[dict[str, Any]]:
    """A partitioning's fields in Iceberg's JSON. One that an earlier partitioning had keeps its id."""
    ids = {(f["source-id"], f["transform"]): int(f["field-id"]) for one in past for f in one["fields"]}
    fields = []
    last_id = max(last_id, _FIRST_ID - 1)
    for one in partition:
        source, transform = sources[one.field], _transform(one)
        number = ids.get((source, transform))
        if number is None:
            number = last_id = last_id + 1
        fields.append({"name": one.name, "transform": transform, "source-id": source, "field-id": number})
    return fields


def writing_to(metadata: Any, io: Any, folder: str, name: str) -> Any:
    """A table of this metadata that Spark can write for, into a folder of its own; nothing can be committed to it."""
    properties = java_class("java.util.HashMap")(metadata.properties())
    properties.put("write.data.path", folder)
    places = java_class(f"{_ICEBERG}.LocationProviders").locationsFor(str(metadata.location()), properties)
    return java_class(f"{_ICEBERG}.BaseTable")(_static(metadata, io, places), name)


@dataclass(frozen=True)
class Built:
    """What a layout was made for; a table that is another by now cannot take it."""

    schema_id: int
    spec_id: int
    specs: int

    @classmethod
    def on(cls, metadata: Any) -> "Built":
        return cls(int(metadata.currentSchemaId()), int(metadata.defaultSpecId()), int(metadata.specs().size()))

    def check(self, metadata: Any) -> None:
        if Built.on(metadata) != self:
            raise CommitConflict("another program changed the table's columns or partitioning meanwhile; try again")


def iceberg_type(session: SparkSession, kind: ColumnType) -> Any:
    """A column type as Iceberg's Java library has it; ids inside it are given when it becomes a column's."""
    match kind:
        case Primitive(name):
            return java_class(f"{_ICEBERG}.types.Types").fromPrimitiveString(_NAMES.get(name, name))
        case DecimalType():
            return java_class(f"{_ICEBERG}.types.Types").fromPrimitiveString(str(kind))
    ddl = java_class("org.apache.spark.sql.types.DataType").fromDDL(spark_type(kind))
    return java_class(f"{_ICEBERG}.spark.SparkSchemaUtil").convert(ddl)


def _static(metadata: Any, io: Any, places: Any = None) -> Any:
    operations = java_class(f"{_ICEBERG}.StaticTableOperations")
    return operations(metadata, io) if places is None else operations(metadata, io, places)


def _transform(one: PartitionField) -> str:
    return f"{one.transform}[{one.param}]" if one.transform in PARAMS else one.transform

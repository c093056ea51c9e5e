"""A table's files read under columns that it has or had, whatever was required when they were written."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from service.engine.iceberg import scan_tasks
from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.iceberg.staging import readable
from service.engine.iceberg.tables import as_if, current
from service.engine.session.java import each, iceberg_class
from service.engine.session.spark_types import SparkSession
from service.engine.sql.sql import identifier
from service.model.names import RESERVED_COLUMN_PREFIX


def under(iceberg: Any, schema_id: int) -> Any:
    """The table with columns that it has or had, for reading its files. What a file lacks is null, required or not."""
    metadata = iceberg.operations().current()
    parser = iceberg_class("SchemaParser")
    schemas = {int(one.schemaId()): json.loads(parser.toJson(one)) for one in each(metadata.schemas())}
    every = parser.fromJson(json.dumps(loosened(schemas, schema_id)))
    then = metadata.buildFrom(metadata).setCurrentSchema(every, metadata.lastColumnId()).build()
    return as_if(iceberg, then)


def loosened(schemas: Mapping[int, Any], schema_id: int) -> dict[str, Any]:
    """One of a table's schemas, in Iceberg's JSON, with no column required.

    The other columns that the table has or had are in it, too, under names that nobody uses, as a partitioning or a
    delete file may refer to them.
    """
    own = schemas[schema_id]["fields"]
    known = {field["id"] for field in own}
    others = {field["id"]: field for one in schemas.values() for field in one["fields"] if field["id"] not in known}
    hidden = [{**field, "name": f"{RESERVED_COLUMN_PREFIX}{number}"} for number, field in others.items()]
    return {"type": "struct", "fields": [{**field, "required": False} for field in (*own, *hidden)]}


def nulls_among(session: SparkSession, table: str, files: SnapshotFiles, columns: Sequence[str]) -> dict[str, int]:
    """How many rows of some files have no value for each of these columns, where there are any."""
    iceberg = current(session, table)
    read = under(iceberg, int(iceberg.operations().current().currentSchemaId()))
    with readable(read, scan_tasks.tasks(read, files.snapshot_id, files.paths)) as source:
        return nulls_in(session, source, columns)


def nulls_in(session: SparkSession, source: str, columns: Sequence[str]) -> dict[str, int]:
    """How many rows of a view have no value for each of these columns, where there are any."""
    counted = ", ".join(f"count_if({identifier(name)} IS NULL)" for name in columns)
    [row] = session.sql(f"SELECT {counted} FROM {source}").collect()
    return {name: int(count) for name, count in zip(columns, row, strict=True) if count}

"""Reads a table's files with the columns of any of its schemas, and with no column required."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.iceberg.staging import readable_files
from service.engine.iceberg.tables import as_if, current, rows_of
from service.engine.session.java import each, iceberg_class
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql.sql import identifier
from service.model.names import RESERVED_COLUMN_PREFIX


def under(iceberg: Any, schema_id: int) -> Any:
    """The table with the columns of one of its schemas, for reading files. A column that a file lacks is null."""
    metadata = iceberg.operations().current()
    parser = iceberg_class("SchemaParser")
    schemas = {int(one.schemaId()): json.loads(parser.toJson(one)) for one in each(metadata.schemas())}
    schema = parser.fromJson(json.dumps(loosened(schemas, schema_id)))
    return as_if(iceberg, metadata.buildFrom(metadata).setCurrentSchema(schema, metadata.lastColumnId()).build())


def rows_under(session: SparkSession, iceberg: Any, snapshot_id: int, schema_id: int) -> DataFrame:
    """The rows of a snapshot with the columns of one of the table's schemas."""
    read = under(iceberg, schema_id)
    metadata = read.operations().current()
    at = metadata.buildFrom(metadata).setBranchSnapshot(snapshot_id, "main").build()
    return rows_of(session, as_if(read, at), f"{iceberg.name()} {snapshot_id} {schema_id}")


def loosened(schemas: Mapping[int, Any], schema_id: int) -> dict[str, Any]:
    """One of a table's schemas, in Iceberg's JSON, with no column required.

    It also has the columns of the other schemas, under reserved names: a partitioning or a delete file may refer to
    them.
    """
    own = schemas[schema_id]["fields"]
    known = {field["id"] for field in own}
    others = {field["id"]: field for one in schemas.values() for field in one["fields"] if field["id"] not in known}
    hidden = [{**field, "name": f"{RESERVED_COLUMN_PREFIX}{number}"} for number, field in others.items()]
    return {"type": "struct", "fields": [{**field, "required": False} for field in (*own, *hidden)]}


def count_nulls(session: SparkSession, table: str, files: SnapshotFiles, columns: Sequence[str]) -> dict[str, int]:
    """For each of these columns that is null in some rows of the files, the number of such rows."""
    iceberg = current(session, table)
    read = under(iceberg, int(iceberg.operations().current().currentSchemaId()))
    with readable_files(session, read, files) as source:
        return nulls_in(session, source, columns)


def nulls_in(session: SparkSession, source: str, columns: Sequence[str]) -> dict[str, int]:
    """For each of these columns that is null in some rows of a view, the number of such rows."""
    counted = ", ".join(f"count_if({identifier(name)} IS NULL)" for name in columns)
    [row] = session.sql(f"SELECT {counted} FROM {source}").collect()
    return {name: int(count) for name, count in zip(columns, row, strict=True) if count}

"""Jobs that change rows in place: UPDATE, DELETE and the MERGE behind UPSERT, copy-on-write, one commit each."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from service.engine.jvm import java_class
from service.engine.rows import frame
from service.engine.sql import Parameters, at_snapshot, identifier, new_value, run, where
from service.engine.tables import load_table
from service.engine.write import stamped
from service.names import BATCH_PROPERTY
from service.predicates import EVERY_ROW, Predicate
from service.schema import Array, ColumnType, Map, Struct, TableSchema

_SOURCE = "firn_source"
# Marks which of a record's columns were sent: an absent one keeps its value, a null one sets it.
SENT = "_firn_sent_"


@dataclass(frozen=True)
class Assignment:
    """A column and the value it gets."""

    column: str
    type: ColumnType
    value: Any


@dataclass(frozen=True)
class Merge:
    """How rows meet a table: by which keys, and which columns change where they match."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    update: tuple[str, ...]
    sometimes_sent: frozenset[str] = frozenset()
    needed_to_insert: tuple[str, ...] = ()


def count(session: SparkSession, table: str, predicate: Predicate, snapshot_id: int | None) -> int:
    """How many rows of a snapshot a predicate is true of."""
    parameters = Parameters()
    text = f"SELECT count(*) FROM {at_snapshot(table, snapshot_id)} AS t WHERE {where(predicate, parameters)}"
    return int(run(session, text, parameters.values).collect()[0][0])


def update(
    session: SparkSession, table: str, assignments: tuple[Assignment, ...], predicate: Predicate, batch: str
) -> None:
    parameters = Parameters()
    changes = ", ".join(f"{identifier(a.column)} = {new_value(a.type, a.value, parameters)}" for a in assignments)
    with stamped(session, batch):
        run(session, f"UPDATE {table} SET {changes} WHERE {where(predicate, parameters)}", parameters.values)


def delete(session: SparkSession, table: str, schema: TableSchema, predicate: Predicate, batch: str) -> None:
    if predicate == EVERY_ROW:
        return _delete_all(session, table, batch)
    parameters = Parameters()
    with stamped(session, batch):
        text = f"DELETE FROM {table} WHERE {where(predicate, parameters)} AND {_always(schema)}"
        run(session, text, parameters.values)


def _always(schema: TableSchema) -> str:
    """A condition that every row meets, and that Spark cannot know to be one.

    Where it works out that a condition is true of every row it reads no file, and then no file is replaced: a commit
    without effect.
    """
    field = schema.fields[0]
    value, kind = identifier(field.name), field.type
    while isinstance(kind, Struct):
        value, kind = f"{value}.{identifier(kind.fields[0].name)}", kind.fields[0].type
    if isinstance(kind, Array | Map):
        value = f"size({value})"
    return f"hash({value}) <= 2147483647"


def _delete_all(session: SparkSession, table: str, batch: str) -> None:
    """Let go of every file without reading any."""
    iceberg = load_table(session, table)
    every_row = java_class("org.apache.iceberg.expressions.Expressions").alwaysTrue()
    iceberg.newDelete().deleteFromRowFilter(every_row).set(BATCH_PROPERTY, batch).commit()


def cannot_insert(session: SparkSession, table: str, rows: pa.Table, how: Merge) -> int | None:
    """The first row that is new to the table and lacks a column that a new row needs; None if all can go in."""
    frame(session, rows).createOrReplaceTempView(_SOURCE)
    try:
        lacks = " OR ".join(f"s.{identifier(name)} IS NULL" for name in how.needed_to_insert)
        text = f"SELECT min(s._firn_row) FROM {_SOURCE} s LEFT ANTI JOIN {table} t ON {_same_key(how)} WHERE {lacks}"
        found = session.sql(text).collect()[0][0]
        return None if found is None else int(found)
    finally:
        session.catalog.dropTempView(_SOURCE)


def merge(session: SparkSession, table: str, rows: pa.Table, how: Merge, batch: str) -> None:
    """Insert the rows whose keys are new, update the others."""
    changes = ", ".join(f"{identifier(name)} = {_new_value(name, how)}" for name in how.update)
    columns = ", ".join(identifier(name) for name in how.columns)
    values = ", ".join(f"s.{identifier(name)}" for name in how.columns)
    text = f"MERGE INTO {table} t USING {_SOURCE} s ON {_same_key(how)}"
    if changes:
        text += f" WHEN MATCHED THEN UPDATE SET {changes}"
    text += f" WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})"
    frame(session, rows).createOrReplaceTempView(_SOURCE)
    try:
        with stamped(session, batch):
            session.sql(text)
    finally:
        session.catalog.dropTempView(_SOURCE)


def _same_key(how: Merge) -> str:
    return " AND ".join(f"t.{identifier(key)} = s.{identifier(key)}" for key in how.keys)


def _new_value(name: str, how: Merge) -> str:
    value = f"s.{identifier(name)}"
    if name not in how.sometimes_sent:
        return value
    return f"CASE WHEN s.{identifier(SENT + name)} THEN {value} ELSE t.{identifier(name)} END"

"""UPSERT: records that replace the rows with their keys, or are new."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from service.catalog.tables import Snapshot, Table
from service.commits.commit import Effect
from service.context import Context
from service.engine.edit import SENT, Merge, cannot_insert, merge
from service.engine.rows import to_arrow
from service.errors import InvalidRecord, InvalidRequest
from service.names import TableName
from service.records import read_records
from service.schema import DecimalType, Field, Primitive, TableSchema


def upsert(
    context: Context,
    name: TableName,
    records: list[Any],
    key_cols: Sequence[str] | None,
    update_cols: Sequence[str] | None,
) -> Effect:
    """Check every record, then insert and update in one commit; nothing is written if one does not fit."""
    table = context.catalog.load(name)
    keys = _keys(table.schema, key_cols)
    rows, how = _prepare(table.schema, records, keys, _columns_to_update(table.schema, update_cols, keys))
    if not records:
        return Effect(table, table, None)

    def change(current: Table, batch: str) -> None:
        if how.needed_to_insert:
            row = context.engine.run(cannot_insert, current.spark_name, rows, how)
            if row is not None:
                raise _incomplete(row, records[row], how)
        context.engine.run(merge, current.spark_name, rows, how, batch)

    return context.commits.commit(name, "UPSERT", context.request_id, change)


def counted(snapshot: Snapshot | None) -> tuple[int, int]:
    """How many rows a merge inserted and updated, as its snapshot says."""
    if snapshot is None:
        return 0, 0
    prefix = "spark.merge-into.num-target-rows-"
    if f"{prefix}inserted" in snapshot.summary:
        return snapshot.counted(f"{prefix}inserted"), snapshot.counted(f"{prefix}updated")
    # A merge without updates is a plain append to Iceberg, and says no more than that.
    inserted = snapshot.counted("added-records")
    return inserted, 0


def _keys(schema: TableSchema, key_cols: Sequence[str] | None) -> tuple[str, ...]:
    keys = tuple(schema.primary_key if key_cols is None else key_cols)
    if not keys:
        raise InvalidRequest(
            "key_cols is missing and the table has no primary key; name the columns that identify a row",
            field="key_cols",
        )
    for i, key in enumerate(keys):
        kind = schema.field(key, path=f"key_cols[{i}]").type
        if not isinstance(kind, Primitive | DecimalType):
            raise InvalidRequest(
                f"key_cols[{i}] {key!r} is {kind}, which cannot be a key; use columns of plain types",
                field=f"key_cols[{i}]",
            )
        if key in keys[:i]:
            raise InvalidRequest(f"key_cols[{i}] {key!r} is named twice", field=f"key_cols[{i}]")
    return keys


def _columns_to_update(schema: TableSchema, update_cols: Sequence[str] | None, keys: tuple[str, ...]) -> frozenset[str]:
    if update_cols is None:
        return frozenset(schema.names) - frozenset(keys)
    for i, column in enumerate(update_cols):
        schema.field(column, path=f"update_cols[{i}]")
        if column in keys:
            raise InvalidRequest(
                f"update_cols[{i}] {column!r} is a key, which finds the row and so stays as it is; leave it out",
                field=f"update_cols[{i}]",
            )
    return frozenset(update_cols)


def _prepare(
    schema: TableSchema, records: list[Any], keys: tuple[str, ...], updatable: frozenset[str]
) -> tuple[pa.Table, Merge]:
    # A record may leave out any column but the keys, so "required" is checked here, not column by column.
    loose = TableSchema(tuple(Field(f.name, f.type, f.name in keys) for f in schema.fields))
    values = read_records(loose, records)
    _refuse_repeated_keys(values, keys)
    sent = {name: [name in record for record in records] for name in schema.names}
    for field in schema.fields:
        if field.required and field.name not in keys:
            _refuse_explicit_nulls(field.name, values[field.name], sent[field.name])
    present = tuple(name for name in schema.names if any(sent[name]))
    partial = frozenset(name for name in present if not all(sent[name]))
    needed = tuple(f.name for f in schema.fields if f.required and f.name not in keys and not all(sent[f.name]))
    rows = to_arrow(loose, values)
    for name in sorted(partial):
        rows = rows.append_column(SENT + name, pa.array(sent[name], pa.bool_()))
    rows = rows.append_column("_firn_row", pa.array(range(len(records)), pa.int32()))
    update = tuple(name for name in present if name in updatable)
    return rows, Merge(keys, schema.names, update, partial, needed)


def _refuse_repeated_keys(values: dict[str, list[Any]], keys: tuple[str, ...]) -> None:
    seen: dict[tuple[Any, ...], int] = {}
    for i, key in enumerate(zip(*(values[name] for name in keys), strict=True)):
        first = seen.setdefault(key, i)
        if first != i:
            shown = ", ".join(f"{name}={value!r}" for name, value in zip(keys, key, strict=True))
            raise InvalidRecord(
                f"records[{i}] has the same key as records[{first}] ({shown[:120]}); send each key once",
                field=f"records[{i}]",
                details={"record": i, "first": first},
            )


def _refuse_explicit_nulls(name: str, values: list[Any], sent: list[bool]) -> None:
    for i, (value, was_sent) in enumerate(zip(values, sent, strict=True)):
        if was_sent and value is None:
            raise InvalidRecord(
                f"records[{i}].{name} is null, but the column is required; send a value, "
                "or leave it out to keep the one an existing row has",
                field=f"records[{i}].{name}",
                details={"record": i, "field": name},
            )


def _incomplete(row: int, record: dict[str, Any], how: Merge) -> InvalidRecord:
    missing = next(name for name in how.needed_to_insert if name not in record)
    return InvalidRecord(
        f"records[{row}].{missing} is missing: its key is new, and a new row needs every required column; send it",
        field=f"records[{row}].{missing}",
        details={"record": row, "field": missing},
    )

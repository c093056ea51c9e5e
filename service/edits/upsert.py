"""What an UPSERT's records mean: its keys, which columns change, and which records are refused."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from service.engine.jobs.edit import FoundRows
from service.engine.session.records import read_fast
from service.engine.session.rows import to_arrow
from service.errors import InvalidRecord, InvalidRequest
from service.model.edits import RECORD_NUMBER, SENT_PREFIX, MergeRule
from service.model.records import read_by_column, read_column
from service.model.schema.types import Field, TableSchema

# So many records are read column by column by Arrow, where it can.
_MANY = 1000


def updatable(schema: TableSchema, update_cols: Sequence[str] | None, keys: tuple[str, ...]) -> frozenset[str]:
    """The columns that may change if a key is found."""
    if update_cols is None:
        return frozenset(schema.names) - frozenset(keys)
    for i, column in enumerate(update_cols):
        schema.field(column, path=f"update_cols[{i}]")
        if column in keys:
            raise InvalidRequest(
                f"update_cols[{i}] {column!r} is a key, which cannot change; leave it out",
                field=f"update_cols[{i}]",
            )
    return frozenset(update_cols)


def prepare(
    schema: TableSchema,
    records: list[Any],
    keys: tuple[str, ...],
    updatable: frozenset[str],
    on_duplicate: Literal["refuse", "last"] = "refuse",
    on_multiple: Literal["update_all", "replace"] = "update_all",
) -> tuple[pa.Table, MergeRule]:
    """The records as rows, and how to merge them into the table. If not all records have a column, one more column
    says which do.

    If records have the same key, the last one counts, or all are refused.
    """
    # A record may leave out any column but the keys, so "required" is checked here, not column by column.
    loose = TableSchema(tuple(Field(f.name, f.type, f.name in keys) for f in schema.fields))
    fast = len(records) > _MANY

    def read(sent: list[dict[str, Any]], field: Field) -> list[Any] | pa.Array:
        return read_fast(sent, field) if fast and field.name not in keys else read_column(sent, field)

    values = read_by_column(loose, records, read)
    places = list(range(len(records)))
    if on_duplicate == "last":
        last = {key: i for i, key in enumerate(zip(*(values[name] for name in keys), strict=True))}
        places = sorted(last.values())
        records = [records[i] for i in places]
        at = pa.array(places, pa.int64())
        values = {name: c.take(at) if isinstance(c, pa.Array) else [c[i] for i in places] for name, c in values.items()}
    else:
        _refuse_repeated_keys(values, keys)
    sent = {name: [name in record for record in records] for name in schema.names}
    rows = to_arrow(loose, values)
    for field in schema.fields:
        if field.required and field.name not in keys and rows[field.name].null_count:
            _refuse_explicit_nulls(field.name, rows[field.name].is_null().to_pylist(), sent[field.name], places)
    present = tuple(name for name in schema.names if any(sent[name]))
    partial = frozenset(name for name in present if not all(sent[name]))
    needed = tuple(f.name for f in schema.fields if f.required and f.name not in keys and not all(sent[f.name]))
    for name in sorted(partial):
        rows = rows.append_column(SENT_PREFIX + name, pa.array(sent[name], pa.bool_()))
    rows = rows.append_column(RECORD_NUMBER, pa.array(places, pa.int32()))
    update = tuple(name for name in present if name in updatable)
    return rows, MergeRule(keys, schema.names, update, partial, needed, on_multiple == "replace")


def _refuse_repeated_keys(values: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    seen: dict[tuple[Any, ...], int] = {}
    for i, key in enumerate(zip(*(values[name] for name in keys), strict=True)):
        first = seen.setdefault(key, i)
        if first != i:
            shown = ", ".join(f"{name}={value!r}" for name, value in zip(keys, key, strict=True))
            raise InvalidRecord(
                f"records[{i}] has the same key as records[{first}] ({shown[:120]}); send each key once, or "
                'on_duplicate: "last" for the last one to count',
                field=f"records[{i}]",
                details={"record": i, "first": first},
            )


def _refuse_explicit_nulls(name: str, nulls: list[bool], sent: list[bool], places: list[int]) -> None:
    for i, is_null, was_sent in zip(places, nulls, sent, strict=True):
        if was_sent and is_null:
            raise InvalidRecord(
                f"records[{i}].{name} is null, but the column is required; send a value, "
                "or leave it out to keep the one an existing row has",
                field=f"records[{i}].{name}",
                details={"record": i, "field": name},
            )


def refuse_incomplete(found: FoundRows, records: list[Any], how: MergeRule) -> None:
    """Raise for the first record that would be a new row, but lacks a column that a new row needs."""
    if found.new is None or not how.required_to_insert:
        return
    lacks = [found.new.filter(pc.is_null(found.new[name]))[RECORD_NUMBER] for name in how.required_to_insert]
    row = min((row for column in lacks for row in column.to_pylist()), default=None)
    if row is None:
        return
    missing = next(name for name in how.required_to_insert if name not in records[row])
    raise InvalidRecord(
        f"records[{row}].{missing} is missing: its key is new, and a new row needs every required column; send it",
        field=f"records[{row}].{missing}",
        details={"record": row, "field": missing},
    )

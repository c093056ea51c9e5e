"""Read JSON objects, one per line, as checked batches, by the same rules as WRITE's records."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa

from service.errors import FirnError, InvalidRecord, InvalidRequest
from service.model import wire
from service.model.edits import SENT_PREFIX
from service.model.records import read_records
from service.model.schema.types import Primitive, TableSchema
from service.writes.bulk.body import Body
from service.writes.bulk.lines import Block, blocks, decoded
from service.writes.bulk.target import Keys, target_schema


def read_ndjson(body: Body, schema: TableSchema, keys: Keys = None) -> Iterator[pa.RecordBatch]:
    """Every record, in order; an error names the line. Empty lines are skipped.

    Of an upsert, each record may lack other columns: further columns say which ones each record has.
    """
    reader = _Reader(schema, keys)
    done = 0
    for block in blocks(body, lambda text: text.rfind(b"\n") + 1):
        batch = reader.read(block, done)
        done += batch.num_rows
        yield batch


class _Reader:
    def __init__(self, schema: TableSchema, keys: Keys) -> None:
        self._marked: tuple[str, ...] = ()
        self._required: tuple[str, ...] = ()
        if keys is not None:
            self._marked = tuple(name for name in schema.names if name not in keys)
            self._required = tuple(f.name for f in schema.fields if f.required and f.name not in keys)
            schema = TableSchema(tuple(replace(f, required=f.name in keys) for f in schema.fields))
        self._schema = schema
        self._target = target_schema(schema)
        # Reading floats is exact for these types, unless a whole number is written as 1.0.
        self._flat = all(isinstance(f.type, Primitive) for f in schema.fields)
        self._whole = [f.name for f in schema.fields if f.type in (Primitive("integer"), Primitive("long"))]

    def read(self, block: Block, done: int) -> pa.RecordBatch:
        lines = [(block.line + i, line) for i, line in enumerate(block.text.split(b"\n")) if line.strip()]
        if self._flat:
            # If this fails, the lines are read again, slowly, to be exact and for the error message.
            with suppress(ValueError, AttributeError, FirnError):
                records = [orjson.loads(line) for _, line in lines]
                if not any(type(record.get(name)) is float for record in records for name in self._whole):
                    return self._rows(records)
        records, refusal = [], None
        for number, line in lines:
            try:
                records.append(_record(line, number))
            except FirnError as e:
                refusal = e
                break
        try:
            batch = self._rows(records)
        except InvalidRecord as e:
            raise _of_line(e, [number for number, _ in lines], done) from e
        if refusal:
            raise refusal
        return batch

    def _rows(self, records: list[Any]) -> pa.RecordBatch:
        values = read_records(self._schema, records)
        columns = [pa.array(values[f.name], f.type) for f in self._target]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._target)
        for name in self._required:
            _refuse_null(name, values[name], records)
        for name in self._marked:
            batch = batch.append_column(
                SENT_PREFIX + name, pa.array([name in record for record in records], pa.bool_())
            )
        return batch


def _refuse_null(name: str, values: list[Any], records: list[Any]) -> None:
    """Raise for the first record that has a null for a required column of an upsert."""
    for i, value in enumerate(values):
        if value is None and name in records[i]:
            raise InvalidRecord(
                f"records[{i}].{name} is null, but the column is required; send a value, or leave it out to keep the "
                "one an existing row has",
                field=f"records[{i}].{name}",
                details={"record": i, "field": name},
            )


def _record(raw: bytes, line: int) -> Any:
    decoded(raw, line)
    try:
        record = wire.parse(raw)
    except InvalidRequest as e:
        details = {"line": line}
        if isinstance(e.__cause__, json.JSONDecodeError):
            problem = f"it is not JSON: {e.__cause__.msg} at column {e.__cause__.colno}; send one JSON object per line"
            raise InvalidRecord(f"line {line}: {problem}", details=details) from e
        raise InvalidRecord(f"line {line}: {e.message}", field=e.field, details=details) from e
    if type(record) is not dict:
        raise InvalidRecord(f"line {line}: this is not a JSON object; send one object per line", details={"line": line})
    return record


def _of_line(error: InvalidRecord, lines: list[int], done: int) -> InvalidRecord:
    """The same error with the record's line."""
    details = dict(error.details or {})
    if "record" not in details:
        return error
    place, field = details["record"], details.get("field")
    problem = error.message.removeprefix(f"records[{place}]").removeprefix(".")
    return InvalidRecord(
        f"line {lines[place]}: {problem.removeprefix(': ')}",
        field=field,
        suggestion=error.suggestion,
        details={"line": lines[place], "record": done + place, **({"field": field} if field else {})},
    )

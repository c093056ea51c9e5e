"""Read an Arrow IPC stream as checked batches in the table's own Arrow schema."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import pyarrow as pa

from service.errors import InvalidRecord, InvalidRequest
from service.model.records import InvalidValue
from service.model.schema.types import TableSchema
from service.writes.bulk.body import Body
from service.writes.bulk.fit import Convert, TooLarge, converter, first_failure, match_names
from service.writes.bulk.ipc import Messages
from service.writes.bulk.target import target_schema

T = TypeVar("T")
_ROWS = 65_536


def read_arrow(body: Body, schema: TableSchema) -> Iterator[pa.RecordBatch]:
    """Every row, in order. Columns may be in any order, and of any type that holds the table's values without loss."""
    messages = Messages(body)
    target = target_schema(schema)
    reader = _arrow(lambda: pa.ipc.open_stream(pa.PythonFile(messages, mode="r")))
    columns = _arrow(lambda: _columns(reader.schema, schema, target))  # a name in it may not be UTF-8
    done = 0
    while True:
        batch = _arrow(lambda: next(reader, None))
        if batch is None:
            break
        # Arrow would follow invalid offsets.
        _arrow(partial(batch.validate, full=True), "a record batch of the body is not valid")
        for start in range(0, batch.num_rows, _ROWS):
            yield from _fitted(batch.slice(start, _ROWS), columns, target, done + start)
        done += batch.num_rows
    messages.finish()


class _Column:
    def __init__(self, name: str, required: bool, place: int | None, fit: Convert) -> None:
        self.name = name
        self._required = required
        self._place = place
        self._fit = fit

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        array = pa.nulls(batch.num_rows) if self._place is None else batch.column(self._place)
        fitted = self._fit(array)
        # A dictionary may hold nulls that the array itself does not count.
        if self._required and fitted.null_count:
            raise InvalidValue("a value is required here; send one")
        return fitted


def _arrow(do: Callable[[], T], problem: str = "the body is not a whole Arrow IPC stream") -> T:
    """Call Arrow, and turn its exceptions about an invalid stream into InvalidRequest."""
    try:
        return do()
    except (pa.ArrowException, UnicodeError, OSError, MemoryError) as e:
        reason = (str(e).strip() or type(e).__name__).partition("\n")[0][:200]
        raise InvalidRequest(f"{problem}: {reason}") from e


def _columns(sent: pa.Schema, schema: TableSchema, target: pa.Schema) -> list[_Column]:
    try:
        places = match_names(sent.names, [(f.name, f.required) for f in schema.fields])
    except InvalidValue as e:
        raise InvalidRecord(f"{e.path[1:]}: {e.problem}", field=e.path[1:], suggestion=e.suggestion) from e
    columns = []
    for field, place, to in zip(schema.fields, places, target, strict=True):
        source = pa.null() if place is None else sent.field(place).type
        try:
            columns.append(_Column(field.name, field.required, place, converter(source, field.type, to.type)))
        except InvalidValue as e:
            path = field.name + e.path
            raise InvalidRecord(f"{path}: {e.problem}", field=path, suggestion=e.suggestion) from e
    return columns


def _fitted(batch: pa.RecordBatch, columns: list[_Column], target: pa.Schema, start: int) -> Iterator[pa.RecordBatch]:
    try:
        yield pa.RecordBatch.from_arrays([column.of(batch) for column in columns], schema=target)
    except InvalidValue:
        _refuse(batch, columns, start)
        raise
    except TooLarge:
        if batch.num_rows == 1:
            raise InvalidRecord(
                f"records[{start}] unpacks to more than fits into memory", details={"record": start}
            ) from None
        half = batch.num_rows // 2
        yield from _fitted(batch.slice(0, half), columns, target, start)
        yield from _fitted(batch.slice(half), columns, target, start + half)


def _refuse(batch: pa.RecordBatch, columns: list[_Column], start: int) -> None:
    """Raise InvalidRecord for the first record that does not fit; the columns were converted one after the other."""
    found: list[tuple[int, str, InvalidValue]] = []
    for column in columns:
        try:
            column.of(batch)
        except TooLarge:
            continue
        except InvalidValue as e:
            record = first_failure(batch, column.of)
            found.append((record, column.name, _alone(batch.slice(record, 1), column) or e))
    if found:
        record, name, misfit = min(found, key=lambda f: f[0])
        path = name + misfit.path
        raise InvalidRecord(
            f"records[{start + record}].{path}: {misfit.problem}",
            field=f"records[{start + record}].{path}",
            suggestion=misfit.suggestion,
            details={"record": start + record, "field": path},
        ) from misfit


def _alone(record: pa.RecordBatch, column: _Column) -> InvalidValue | None:
    try:
        column.of(record)
    except InvalidValue as e:
        return e
    return None

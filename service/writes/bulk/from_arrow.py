"""Read an Arrow IPC stream, or a Parquet file, as checked batches in the table's own Arrow schema."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa

from service.errors import InvalidRecord, InvalidRequest
from service.model.records import InvalidValue
from service.model.schema.types import Field, TableSchema
from service.writes.bulk.body import Body
from service.writes.bulk.fit import Convert, TooLarge, converter, first_failure, naming
from service.writes.bulk.ipc import Messages
from service.writes.bulk.target import Keys, columns_of, decoded_schema

T = TypeVar("T")
_ROWS = 65_536
_PIECE = 1 << 20
_STREAM, _FILE = "the body is not a whole Arrow IPC stream", "the body is not a whole Parquet file"


def read_arrow(body: Body, schema: TableSchema, keys: Keys = None) -> Iterator[pa.RecordBatch]:
    """Every row, in order. Columns may be in any order, and of any type that holds the table's values without loss."""
    messages = Messages(body)
    reader = _arrow(lambda: pa.ipc.open_stream(pa.PythonFile(messages, mode="r")))
    yield from _read(reader, lambda: reader.schema, schema, keys, _STREAM)
    messages.finish()


def read_parquet(body: Body, schema: TableSchema, keys: Keys = None) -> Iterator[pa.RecordBatch]:
    """The same of a Parquet file. Its description is at its end, so the body is kept in a temporary file first."""
    from pyarrow import parquet

    with tempfile.TemporaryFile() as file:
        while piece := body.read(_PIECE):
            file.write(piece)
        # With a buffer, the columns of a row group are read in pieces, not whole.
        opened = _arrow(lambda: parquet.ParquetFile(file, buffer_size=_PIECE, pre_buffer=False), _FILE)
        batches = _arrow(lambda: opened.iter_batches(_ROWS), _FILE)
        yield from _read(batches, lambda: opened.schema_arrow, schema, keys, _FILE)


def _read(
    batches: Iterator[pa.RecordBatch], sent: Callable[[], pa.Schema], schema: TableSchema, keys: Keys, problem: str
) -> Iterator[pa.RecordBatch]:
    columns = _arrow(lambda: _columns(sent(), schema, keys), problem)  # a name in it may not be UTF-8
    target = decoded_schema([(column.field, column.place) for column in columns])
    done = 0
    while (batch := _arrow(lambda: next(batches, None), problem)) is not None:
        # Arrow would follow invalid offsets.
        _arrow(partial(batch.validate, full=True), "a record batch of the body is not valid")
        for start in range(0, batch.num_rows, _ROWS):
            yield from _fitted(batch.slice(start, _ROWS), columns, target, done + start)
        done += batch.num_rows


@dataclass(frozen=True)
class _Column:
    field: Field
    place: int | None
    convert: Convert

    def read(self, batch: pa.RecordBatch) -> pa.Array:
        fitted = self.convert(pa.nulls(batch.num_rows) if self.place is None else batch.column(self.place))
        # A dictionary may hold nulls that the array itself does not count.
        if self.field.required and fitted.null_count:
            raise InvalidValue("a value is required here; send one")
        return fitted

    def misfit(self, batch: pa.RecordBatch) -> InvalidValue | None:
        """Why some record's value does not fit; None if all do, or if the batch unpacks to too much to see."""
        with suppress(TooLarge):
            try:
                self.read(batch)
            except InvalidValue as e:
                return e
        return None


def _arrow(do: Callable[[], T], problem: str = _STREAM) -> T:
    """Call Arrow, and turn its exceptions about an invalid stream into InvalidRequest."""
    try:
        return do()
    except (pa.ArrowException, UnicodeError, OSError, MemoryError) as e:
        reason = (str(e).strip() or type(e).__name__).partition("\n")[0][:200]
        raise InvalidRequest(f"{problem}: {reason}") from e


def _columns(sent: pa.Schema, schema: TableSchema, keys: Keys) -> list[_Column]:
    columns = []
    try:
        found = columns_of(schema, sent.names, keys)
        for (field, place), to in zip(found, decoded_schema(found), strict=True):
            with naming(f".{field.name}"):
                convert = converter(pa.null() if place is None else sent.field(place).type, field.type, to.type)
            columns.append(_Column(field, place, convert))
    except InvalidValue as e:
        path = e.path[1:]
        raise InvalidRecord(f"{path}: {e.problem}", field=path, suggestion=e.suggestion) from e
    return columns


def _fitted(batch: pa.RecordBatch, columns: list[_Column], target: pa.Schema, start: int) -> Iterator[pa.RecordBatch]:
    try:
        yield pa.RecordBatch.from_arrays([column.read(batch) for column in columns], schema=target)
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
        if misfit := column.misfit(batch):
            record = first_failure(batch, column.read)
            found.append((record, column.field.name, column.misfit(batch.slice(record, 1)) or misfit))
    if found:
        record, name, misfit = min(found, key=lambda f: f[0])
        path = name + misfit.path
        raise InvalidRecord(
            f"records[{start + record}].{path}: {misfit.problem}",
            field=f"records[{start + record}].{path}",
            suggestion=misfit.suggestion,
            details={"record": start + record, "field": path},
        ) from misfit

"""Read columns of a table's Parquet files in this process, found by Iceberg's field ids."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from service.catalog.translate import translated

_FIELD_ID = b"PARQUET:field_id"
_UUID = pa.binary(16)


class UnreadableFile(Exception):
    """A file that only Spark reads as the table means it, such as one without field ids, or with other nested types."""


class TooManyRows(Exception):
    """The rows are found faster by Spark."""


def read_columns(
    io: FileIO,
    path: str,
    columns: pa.Schema,
    schema: Schema,
    positions: Sequence[int] | None = None,
    most_values: int | None = None,
) -> pa.Table:
    """Columns of the rows of a file, in their order in the file; a column that it lacks is null.

    `columns` has the types that Firn gives them, and `schema` is that of the table. With `positions`, in increasing
    order, only these rows are returned, and only the row groups that have them are read: one column after the other, so
    that no more than a column of a row group is in memory. TooManyRows if they have more than `most_values` values.
    """
    with translated(), io.new_input(path).open() as stream, pq.ParquetFile(stream) as file:
        places = _places(file.schema_arrow)
        wanted = [places.get(schema.find_field(column.name).field_id) for column in columns]
        indexes = [i for i in wanted if i is not None]
        found = _read(file, indexes, positions, most_values)
        rows = file.metadata.num_rows if positions is None else len(positions)
        at = {index: number for number, index in enumerate(sorted(set(indexes)))}
        arrays = [
            pa.chunked_array([pa.nulls(rows, column.type)])
            if index is None
            else _as_type(found.column(at[index]), column.type, path)
            for column, index in zip(columns, wanted, strict=True)
        ]
    return pa.Table.from_arrays(arrays, schema=pa.schema([pa.field(c.name, c.type) for c in columns]))


def _read(
    file: pq.ParquetFile, indexes: Sequence[int], positions: Sequence[int] | None, most_values: int | None
) -> pa.Table:
    """Some top-level columns, in the order in which the file has them, of all rows or of some."""
    names = [file.schema_arrow.names[i] for i in sorted(set(indexes))]
    if len(set(file.schema_arrow.names)) != len(file.schema_arrow.names):
        raise UnreadableFile("two columns of a file have one name")
    if positions is None:
        return file.read(columns=names, use_threads=False).select(names)
    parts = []
    groups = list(_groups(file, positions))
    values = sum(file.metadata.row_group(group).num_rows for group, _ in groups) * len(names)
    if most_values is not None and values > most_values:
        raise TooManyRows
    for group, at in groups:
        columns = [file.read_row_group(group, columns=[name], use_threads=False)[name].take(at) for name in names]
        schema = pa.schema([file.schema_arrow.field(name) for name in names])
        parts.append(pa.Table.from_arrays(columns, schema=schema))
    return pa.concat_tables(parts) if parts else file.schema_arrow.empty_table().select(names)


def _groups(file: pq.ParquetFile, positions: Sequence[int]) -> Iterator[tuple[int, pa.Array]]:
    """The row groups that have rows at some positions, with these positions in the row group."""
    start, at = 0, 0
    for group in range(file.num_row_groups):
        end = start + file.metadata.row_group(group).num_rows
        until = bisect_left(positions, end, at)
        if until > at:
            yield group, pa.array([position - start for position in positions[at:until]], pa.int64())
        start, at = end, until


def _places(columns: pa.Schema) -> dict[int, int]:
    """The number of each top-level column, by its field id."""
    found = {}
    for i, column in enumerate(columns):
        text = (column.metadata or {}).get(_FIELD_ID)
        if text is None:
            raise UnreadableFile("a file has no field ids")
        found[int(text)] = i
    return found


def _as_type(column: pa.ChunkedArray, wanted: pa.DataType, path: str) -> pa.ChunkedArray:
    """A column as the type that Firn gives it, if the file has that type, or one that Iceberg widens to it."""
    kind = column.type
    if kind.equals(wanted):
        return column
    if isinstance(kind, pa.UuidType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], _UUID)
        kind = column.type
    if kind.equals(_UUID) and kinds.is_string(wanted):
        texts = [None if value is None else str(UUID(bytes=value)) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, wanted)])
    if _widens(kind, wanted) or _same_but_names(kind, wanted):
        return column.cast(wanted)
    raise UnreadableFile(f"{path} has {kind} where the table has {wanted}")


def _widens(kind: pa.DataType, wanted: pa.DataType) -> bool:
    if kinds.is_decimal(kind) and kinds.is_decimal(wanted):
        return bool(kind.scale == wanted.scale and kind.precision <= wanted.precision)
    pairs = (
        (kinds.is_int32, kinds.is_int64),
        (kinds.is_float32, kinds.is_float64),
        (kinds.is_large_string, kinds.is_string),
        (kinds.is_large_binary, kinds.is_binary),
    )
    is_utc = kinds.is_timestamp(kind) and kinds.is_timestamp(wanted) and kind.unit == wanted.unit == "us"
    return any(narrow(kind) and wide(wanted) for narrow, wide in pairs) or (
        is_utc and (kind.tz is None) == (wanted.tz is None)
    )


def _same_but_names(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two nested types differ only in the names of what lists and maps hold, and in what may be null."""
    if kinds.is_list(kind) and kinds.is_list(wanted):
        return _same_but_names(kind.value_type, wanted.value_type)
    if kinds.is_map(kind) and kinds.is_map(wanted):
        keys = _same_but_names(kind.key_type, wanted.key_type)
        return keys and _same_but_names(kind.item_type, wanted.item_type)
    if kinds.is_struct(kind) and kinds.is_struct(wanted):
        ours, theirs = list(wanted), list(kind)
        return len(ours) == len(theirs) and all(
            one.name == other.name and _same_but_names(other.type, one.type)
            for one, other in zip(ours, theirs, strict=True)
        )
    return bool(kind.equals(wanted))

"""Rows to and from Spark: always as Arrow, column by column."""

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import pairwise
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from service.engine.session.java import java_class
from service.engine.session.spark_types import DataFrame, SparkSession
from service.errors import InvalidQuery
from service.model.schema.types import Array, ColumnType, DecimalType, Field, Map, Primitive, Struct, TableSchema

PRIMITIVES = {
    "string": pa.string(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
    # Spark has no uuid type: it reads and writes text in Iceberg tables.
    "uuid": pa.string(),
}

_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = _EPOCH.toordinal()


def arrow_schema(schema: TableSchema, columns: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of a table, or of some of its columns, in the table's order; nullability carried."""
    return pa.schema([_field(f) for f in schema.fields if columns is None or f.name in columns])


def plain_columns(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of a table, with no column required."""
    return pa.schema([pa.field(column.name, column.type) for column in arrow_schema(schema)])


def to_arrow(schema: TableSchema, values: Mapping[str, list[Any] | pa.Array]) -> pa.Table:
    """The result of `read_records`, as Arrow. A column may be Arrow already."""
    target = arrow_schema(schema, list(values))
    columns = (values[f.name] for f in target)
    arrays = [c if isinstance(c, pa.Array) else pa.array(c, f.type) for c, f in zip(columns, target, strict=True)]
    return pa.Table.from_arrays(arrays, schema=target)


def frame(session: SparkSession, table: pa.Table) -> DataFrame:
    """The table as a DataFrame of the session, which runs in UTC."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # In one piece: Spark ignores what follows two empty batches.
    table = table.combine_chunks()
    return session.createDataFrame(table, schema=from_arrow_schema(table.schema, prefer_timestamp_ntz=True))


def planned(session: SparkSession, plan: Any) -> DataFrame:
    """The rows of a logical plan of the JVM, as a DataFrame."""
    from pyspark.sql import DataFrame

    return DataFrame(java_class("org.apache.spark.sql.classic.Dataset").ofRows(session._jsparkSession, plan), session)


def collect(df: DataFrame) -> pa.Table:
    """Every row of the frame. This runs the job."""
    # Otherwise Spark would plan on a thread that leaves this one waiting forever if the plan overflows its stack.
    df._jdf.queryExecution().executedPlan()
    # Not toArrow(): its cast fails if a map's null value is a struct with required fields.
    batches = df._collect_as_arrow(empty_list_if_zero_records=False)  # type: ignore[operator]
    if any(batch.schema != batches[0].schema for batch in batches):
        return pa.concat_tables([pa.Table.from_batches([b]) for b in batches], promote_options="permissive")
    return pa.Table.from_batches(batches)


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as objects that `wire.render` can write: NaN and infinities as text, maps as objects."""
    columns = [[value for chunk in column.chunks for value in json_values(chunk)] for column in table.columns]
    return _objects(table.column_names, columns, table.num_rows)


def json_values(column: pa.Array) -> list[Any]:
    """One column's values as `json_rows` has them."""
    try:
        return _values(column)
    except UnicodeDecodeError as e:
        raise not_utf8() from e


def not_utf8() -> InvalidQuery:
    return InvalidQuery("a text in the result is not valid UTF-8; select the binary column itself, or its base64")


def _field(field: Field) -> pa.Field:
    return pa.field(field.name, _type(field.type), nullable=not field.required)


def _type(kind: ColumnType) -> pa.DataType:
    match kind:
        case Primitive(name):
            return PRIMITIVES[name]
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case Array():
            return pa.list_(pa.field("element", _type(kind.items), nullable=not kind.items_required))
        case Map():
            return pa.map_(_type(kind.key), pa.field("value", _type(kind.value), nullable=not kind.value_required))
        case Struct():
            return pa.struct([_field(f) for f in kind.fields])


def _objects(names: list[str], columns: list[list[Any]], count: int) -> list[dict[str, Any]]:
    if not columns:
        return [{} for _ in range(count)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(array: pa.Array) -> list[Any]:
    kind = array.type
    if not len(array):
        # Arrow's Java library does not write the offsets of an empty list, so they must not be read.
        return []
    if kinds.is_nested(kind):
        values = _nested(array)
        if array.null_count:
            return [v if valid else None for v, valid in zip(values, array.is_valid().to_pylist(), strict=True)]
        return values
    if kinds.is_floating(kind):
        return _floats(array)
    if kinds.is_timestamp(kind) or kinds.is_date(kind):
        return _times(array)
    if kinds.is_duration(kind) or kinds.is_interval(kind):
        return [None if v is None else str(v) for v in array.to_pylist()]
    return list(array.to_pylist())


def _nested(array: pa.Array) -> list[Any]:
    kind = array.type
    if kinds.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        return _objects(names, [_values(array.field(i)) for i in range(kind.num_fields)], len(array))
    if not (kinds.is_map(kind) or kinds.is_list(kind) or kinds.is_large_list(kind)):
        return list(array.to_pylist())
    # A slice of a list shares all children, so its offsets need not start at 0.
    offsets = array.offsets.to_pylist()
    first, length = offsets[0], offsets[-1] - offsets[0]
    spans = [(start - first, end - first) for start, end in pairwise(offsets)]
    if kinds.is_map(kind):
        keys = [_KEY_TEXT.get(type(key), str)(key) for key in _values(array.keys.slice(first, length))]
        items = _values(array.items.slice(first, length))
        return [dict(zip(keys[start:end], items[start:end], strict=True)) for start, end in spans]
    elements = _values(array.values.slice(first, length))
    return [elements[start:end] for start, end in spans]


def _floats(array: pa.Array) -> list[Any]:
    if not kinds.is_float64(array.type):
        # Converted by its shortest text, a 32-bit 0.1 stays 0.1; widened it would be 0.10000000149011612.
        array = array.cast(pa.string()).cast(pa.float64())
    values = array.to_pylist()
    if pc.all(pc.is_finite(array)).as_py() is False:
        return [v if v is None or isfinite(v) else _NOT_FINITE[str(v)] for v in values]
    return list(values)


def _times(array: pa.Array) -> list[Any]:
    make: Callable[[int], date]
    if kinds.is_date(array.type):
        array, counted, make, zone = array.cast(pa.date32()), pa.int32(), _day, ""
    else:
        # The numbers count from 1970 in UTC, whatever the time zone of the type.
        zone = "Z" if array.type.tz else ""
        counted, make = pa.int64(), partial(_moment, _EPOCH_UTC if zone else _EPOCH)
        array = array.cast(pa.int64()).cast(pa.timestamp(array.type.unit)).cast(pa.timestamp("us"), safe=False)
    counts = array.cast(counted).to_pylist()
    try:
        return [None if n is None else make(n) for n in counts]
    except (OverflowError, ValueError):
        # Other engines write years that Python cannot hold.
        texts = array.cast(pa.string()).to_pylist()
        return [None if n is None else _or_text(make, n, f"{t}{zone}") for n, t in zip(counts, texts, strict=True)]


def _day(number: int) -> date:
    return date.fromordinal(number + _EPOCH_DAY)


def _moment(epoch: datetime, number: int) -> datetime:
    return epoch + timedelta(0, 0, number)


def _or_text(make: Callable[[int], date], number: int, text: str) -> date | str:
    try:
        return make(number)
    except (OverflowError, ValueError):
        return text.replace(" ", "T")


_KEY_TEXT: dict[type, Callable[[Any], str]] = {
    str: str,
    bool: lambda v: "true" if v else "false",
    Decimal: lambda v: format(v, "f"),
    bytes: lambda v: base64.b64encode(v).decode("ascii"),
    date: date.isoformat,
    datetime: lambda v: v.isoformat().replace("+00:00", "Z"),
}

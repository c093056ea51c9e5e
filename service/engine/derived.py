"""Derived columns in Spark SQL: how rows that lack their values get them."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from service.derived import Derived
from service.engine.frames import over
from service.engine.sql import Parameters, expression, identifier, run, spark_type
from service.errors import InvalidRequest
from service.expressions.kinds import UUID
from service.schema import Array, ColumnType, DecimalType, Field, Map, Primitive, Struct, TableSchema

_PRIMITIVES: dict[type[t.DataType], str] = {
    t.StringType: "string",
    t.ByteType: "integer",
    t.ShortType: "integer",
    t.IntegerType: "integer",
    t.LongType: "long",
    t.FloatType: "float",
    t.DoubleType: "double",
    t.BooleanType: "boolean",
    t.DateType: "date",
    t.TimestampNTZType: "timestamp",
    t.TimestampType: "timestamptz",
    t.BinaryType: "binary",
}


def computed(derived: Derived, parameters: Parameters) -> str:
    """A derived column's value, worked out from the row's other columns."""
    text = expression(derived.expression, parameters)
    return text if derived.type is None else f"CAST({text} AS {spark_type(derived.type)})"


def filled(derived: Derived, parameters: Parameters) -> str:
    """A derived column's value as the row has it, or else worked out."""
    return f"coalesce({identifier(derived.column)}, {computed(derived, parameters)})"


def fill(session: SparkSession, rows: DataFrame, derived: Sequence[Derived]) -> DataFrame:
    """The rows, in which every derived column that is null is worked out; other columns stay as they are.

    The frame has every column of the table, by its name, but for derived ones that it lacks: they come at its end.
    """
    parameters = Parameters()
    there = set(rows.columns)
    values = {
        one.column: filled(one, parameters) if one.column in there else computed(one, parameters) for one in derived
    }
    columns = [*rows.columns, *(name for name in values if name not in there)]
    listed = ", ".join(f"{values.get(name, identifier(name))} AS {identifier(name)}" for name in columns)
    return over(session, rows, lambda name: f"SELECT {listed} FROM {name}", parameters.values)


def typed(session: SparkSession, schema: TableSchema, derived: Sequence[Derived]) -> tuple[Derived, ...]:
    """New derived columns with the types that Spark gives their expressions. No row is read."""
    if not derived:
        return ()
    parameters = Parameters()
    listed = ", ".join(f"{expression(one.expression, parameters)} AS c{n}" for n, one in enumerate(derived))
    nothing = ", ".join(f"CAST(NULL AS {spark_type(f.type)}) AS {identifier(f.name)}" for f in schema.fields)
    kinds = run(session, f"SELECT {listed} FROM (SELECT {nothing})", parameters.values).schema
    return tuple(replace(one, type=_kind(one, field.dataType)) for one, field in zip(derived, kinds, strict=True))


def _kind(one: Derived, found: t.DataType) -> ColumnType:
    # Spark knows a uuid by its text only.
    if one.expression.kind == UUID:
        return UUID
    kind = _ours(found)
    if kind is None:
        raise InvalidRequest(
            f"{one.expression.path} gives {found.simpleString()}, which no column can hold; say as what with CAST",
            field=one.expression.path,
        )
    return kind


def _ours(found: t.DataType) -> ColumnType | None:
    match found:
        case t.DecimalType():
            return DecimalType(found.precision, found.scale)
        case t.ArrayType():
            items = _ours(found.elementType)
            return items and Array(items)
        case t.MapType():
            key, value = _ours(found.keyType), _ours(found.valueType)
            return Map(key, value) if key and value else None
        case t.StructType():
            kinds = [(field.name, _ours(field.dataType)) for field in found.fields]
            return (
                Struct(tuple(Field(name, kind) for name, kind in kinds if kind)) if all(k for _, k in kinds) else None
            )
    name = _PRIMITIVES.get(type(found))
    return Primitive(name) if name else None

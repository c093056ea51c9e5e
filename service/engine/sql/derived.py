"""Derived columns in Spark SQL: computes their values for rows that lack them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from service.engine.session.spark_types import DataFrame, DataType, SparkSession
from service.engine.sql.content import same
from service.engine.sql.sql import TYPES, Parameters, expression, fitted, identifier, over, run, spark_type
from service.errors import InvalidRequest
from service.model.expressions.kinds import UUID
from service.model.expressions.tree import rebind
from service.model.schema.columns import Column
from service.model.schema.derived import DerivedColumn
from service.model.schema.types import Array, ColumnType, DecimalType, Field, Map, Primitive, Struct, TableSchema

# A row that changes, in the expressions of its derived columns: `o` is the row before, `n` the row after.
_ROW = "_firn_r"
_NAMES = {spark_name.lower(): name for name, spark_name in TYPES.items() if name != "uuid"}
_NAMES |= {"tinyint": "integer", "smallint": "integer"}


def computed(derived: DerivedColumn, parameters: Parameters) -> str:
    """A derived column's value, computed from the row's other columns."""
    return fitted(_type(derived), derived.expression, parameters)


def filled(derived: DerivedColumn, parameters: Parameters) -> str:
    """A derived column's value in the row, computed if it is null."""
    return f"coalesce({identifier(derived.column)}, {computed(derived, parameters)})"


def followed(one: DerivedColumn, was: Mapping[str, str], becomes: Mapping[str, str], parameters: Parameters) -> str:
    """A derived column's value in a row that changes: computed again, unless it had been set by hand.

    It was set by hand if its expression gives another value for the row before the change. `was` and `becomes` are the
    columns' values before and after.
    """
    read = sorted(one.expression.columns)
    before, after = (_struct({name: values[name] for name in read}) for values in (was, becomes))
    kept = f"{_ROW}.d"
    old, new = (computed(_seen(one, moment), parameters) for moment in ("o", "n"))
    equal = f"CASE WHEN {same(_type(one), kept, old)} THEN '01' ELSE '00' END"
    # An error for the old row must not stop a change that repairs it. Spark has no function that turns every error
    # into null, but this one does so for its argument, unless part of that is computed earlier. The lambda function
    # prevents that.
    choice = f"CASE WHEN try_to_binary({equal}) = X'01' THEN {new} ELSE {kept} END"
    row = f"struct({before} AS o, {after} AS n, {was[one.column]} AS d)"
    return f"element_at(transform(array({row}), {_ROW} -> {choice}), 1)"


def fill(rows: DataFrame, derived: Sequence[DerivedColumn]) -> DataFrame:
    """The rows, with every derived column that is null computed.

    The frame has every column of the table by its name. Derived columns that it lacks are added at the end.
    """
    if not derived:
        return rows
    parameters = Parameters()
    existing = set(rows.columns)
    values = {
        one.column: filled(one, parameters) if one.column in existing else computed(one, parameters) for one in derived
    }
    columns = [*rows.columns, *(name for name in values if name not in existing)]
    listed = ", ".join(f"{values.get(name, identifier(name))} AS {identifier(name)}" for name in columns)
    return over(rows, lambda name: f"SELECT {listed} FROM {name}", parameters.values)


def typed(session: SparkSession, schema: TableSchema, derived: Sequence[DerivedColumn]) -> tuple[DerivedColumn, ...]:
    """New derived columns with the types that Spark infers for their expressions, without reading a row."""
    if not derived:
        return ()
    parameters = Parameters()
    listed = ", ".join(f"{expression(one.expression, parameters)} AS c{n}" for n, one in enumerate(derived))
    nothing = ", ".join(f"CAST(NULL AS {spark_type(f.type)}) AS {identifier(f.name)}" for f in schema.fields)
    kinds = run(session, f"SELECT {listed} FROM (SELECT {nothing})", parameters.values).schema
    return tuple(replace(one, type=_kind(one, field.dataType)) for one, field in zip(derived, kinds, strict=True))


def _struct(values: Mapping[str, str]) -> str:
    return f"struct({', '.join(f'{text} AS {identifier(name)}' for name, text in values.items())})"


def _seen(one: DerivedColumn, moment: str) -> DerivedColumn:
    """The same expression over one state of the lambda function's row."""

    def found(column: Column) -> Column:
        return replace(column, steps=(moment, *column.steps), qualifier=_ROW)

    return replace(one, expression=replace(one.expression, tree=rebind(one.expression.tree, found)))


def _type(one: DerivedColumn) -> ColumnType:
    assert one.type is not None, "a table's own derived columns have types"
    return one.type


def _kind(one: DerivedColumn, found: DataType) -> ColumnType:
    # For Spark, a uuid is text.
    if one.expression.kind == UUID:
        return UUID
    kind = column_type(found)
    if kind is None:
        raise InvalidRequest(
            f"{one.expression.path} gives {found.simpleString()}, which no column can store; convert it with CAST",
            field=one.expression.path,
        )
    return kind


def column_type(found: DataType) -> ColumnType | None:
    """The type of a column that stores values of one of Spark's types; None if there is none."""
    from pyspark.sql import types as t

    match found:
        case t.DecimalType():
            return DecimalType(found.precision, found.scale)
        case t.ArrayType():
            items = column_type(found.elementType)
            return items and Array(items)
        case t.MapType():
            key, value = column_type(found.keyType), column_type(found.valueType)
            return Map(key, value) if key and value else None
        case t.StructType():
            kinds = [(field.name, column_type(field.dataType)) for field in found.fields]
            return (
                Struct(tuple(Field(name, kind) for name, kind in kinds if kind)) if all(k for _, k in kinds) else None
            )
    name = _NAMES.get(found.simpleString())
    return Primitive(name) if name else None

"""Predicates and values as Spark SQL: names are always quoted, values are always named parameters."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from service.engine.session.java import java_class
from service.engine.session.spark_types import DataFrame, SparkSession
from service.model.expressions.functions import FUNCTIONS
from service.model.expressions.kinds import BINARY, DOUBLE, STRING, UUID, family
from service.model.expressions.tree import Case, Cast, ColumnValue, Constant, Expression, FunctionCall, Node
from service.model.filters.predicates import (
    Always,
    And,
    Compare,
    ExpressionHolds,
    HasElement,
    In,
    IsNull,
    Matches,
    Not,
    Or,
    Predicate,
)
from service.model.schema.columns import Column, MapKey
from service.model.schema.types import Array, ColumnType, DecimalType, Map, Primitive, Struct, holds_uuid

_TYPES = {
    "string": "STRING",
    "integer": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP_NTZ",
    "timestamptz": "TIMESTAMP",
    "binary": "BINARY",
    "uuid": "STRING",
}
_FLOATS = {Primitive("float"), Primitive("double")}
COMPARE = {"eq": "=", "ne": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_TIMES: dict[str, tuple[date, date]] = {
    "date": (date.min, date.max),
    "timestamp": (datetime.min, datetime.max),
    "timestamptz": (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
}
_INFIX = {
    **{name: name for name in ("+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "<=>")},
    **{name: name.upper() for name in ("div", "and", "or", "like", "ilike", "rlike")},
}
_MATCH = {"like": "LIKE", "ilike": "ILIKE", "regex": "RLIKE"}
_CALL = {"starts_with": "startswith", "ends_with": "endswith", "contains": "contains"}
_NULL = (
    "the expression is null for a row, but the column is required; give another value with coalesce(…, …), or leave "
    "such rows out with the filter"
)
_TOO_LARGE = (
    "the expression gives a number that is too large for its type; compute another one, or set Infinity itself as a "
    "value, without an expression"
)
_TOO_FAR = "the expression gives a time outside the years 1 to 9999; such times cannot be written"
# What a lambda calls the value that it looks at; no column is called so.
_VALUE = "_firn_value"
REFUSED = "refused by Firn: "
"""How the errors begin that our own statements raise for a row."""


class Parameters:
    """The values of one statement, by the names it gives them."""

    def __init__(self) -> None:
        self.values: dict[str, str | int | bool] = {}

    def add(self, value: str | int | bool) -> str:
        name = f"p{len(self.values)}"
        self.values[name] = value
        return f":{name}"


def run(session: SparkSession, text: str, values: Mapping[str, str | int | bool]) -> DataFrame:
    """The statement's result. `session.sql(text, args)` does the same with two calls to the JVM per value."""
    from pyspark.sql import DataFrame

    mapper = java_class("com.fasterxml.jackson.databind.ObjectMapper")()
    arguments = mapper.readValue(json.dumps(values), java_class("java.util.HashMap")._java_lang_class)
    return DataFrame(session._jsparkSession.sql(text, arguments), session)


def where(predicate: Predicate, parameters: Parameters) -> str:
    """A condition that is true of exactly the rows the predicate is true of."""
    match predicate:
        case And((child,)) | Or((child,)):
            # Spark reads `t WHERE (FALSE)` as a table called WHERE with a column called FALSE.
            return where(child, parameters)
        case And(children):
            return f"({' AND '.join(where(c, parameters) for c in children)})" if children else "TRUE"
        case Or(children):
            return f"({' OR '.join(where(c, parameters) for c in children)})" if children else "FALSE"
        case Not(IsNull(column)):
            return f"{reference(column, parameters)} IS NOT NULL"
        case Not(child):
            return f"(NOT {where(child, parameters)})"
        case IsNull(column):
            return f"{reference(column, parameters)} IS NULL"
        case Always(column, answer):
            # True or false of a value, and neither of a null.
            known = "IS NOT NULL OR" if answer else "IS NULL AND"
            return f"({reference(column, parameters)} {known} CAST(NULL AS BOOLEAN))"
        case Compare(column, operator, operand):
            return f"{_tested(column, parameters)} {COMPARE[operator]} {_operand(column, operand, parameters)}"
        case In(column, values, or_null):
            listed = [literal(column.type, value, parameters) for value in values] + ["NULL"] * or_null
            return f"{_tested(column, parameters)} IN ({', '.join(listed)})"
        case Matches():
            return _matches(predicate, parameters)
        case HasElement(column, value):
            kind = column.type.items if isinstance(column.type, Array) else column.type
            return f"array_contains({reference(column, parameters)}, {literal(kind, value, parameters)})"
        case ExpressionHolds(computed):
            return expression(computed, parameters)


def expression(computed: Expression, parameters: Parameters) -> str:
    """What an expression computes. Its text is not in it: only names, parameters, and known functions."""
    return _node(computed.tree, parameters)


def new_value(kind: ColumnType, value: Any, parameters: Parameters) -> str:
    """What a column of this type is set to: a value as `read_literal` gives it, or an Expression."""
    if not isinstance(value, Expression):
        return literal(kind, value, parameters)
    text = fitted(kind, value, parameters)
    return f"coalesce({text}, {_raised(f'{value.path}: {_NULL}', parameters)})" if value.required else text


def fitted(kind: ColumnType, value: Expression, parameters: Parameters) -> str:
    """What an expression computes, as a column of this type holds it; an error for a row if it cannot."""
    text = expression(value, parameters)
    if value.kind != kind or isinstance(kind, Primitive | DecimalType):
        text = f"CAST({text} AS {spark_type(kind)})"
    given = isinstance(value.tree, ColumnValue | Constant)
    if family(kind) == "time" and not given:
        first, last = (literal(kind, moment, parameters) for moment in _TIMES[str(kind)])
        return _checked(text, f"{_VALUE} BETWEEN {first} AND {last}", _raised(f"{value.path}: {_TOO_FAR}", parameters))
    if kind in _FLOATS and not (given and value.kind == kind):
        return _finite(text, value, parameters)
    return text


def reference(column: Column, parameters: Parameters) -> str:
    text = "" if column.qualifier is None else identifier(column.qualifier)
    for step in column.steps:
        if isinstance(step, MapKey):
            text += f"[{parameters.add(step.text)}]"
        else:
            text += f".{identifier(step)}" if text else identifier(step)
    return text


def identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal(kind: ColumnType, value: Any, parameters: Parameters) -> str:
    """A value as `read_literal` gives it, in its type exactly. Spark folds it, so that files can be pruned by it."""
    if value is None:
        return f"CAST(NULL AS {spark_type(kind)})"
    match kind:
        case Primitive("string" | "uuid" | "boolean" | "integer" | "long"):
            return parameters.add(value)
        case Primitive("binary"):
            return f"unhex({parameters.add(value.hex())})"
        case Array(items):
            listed = ", ".join(literal(items, item, parameters) for item in value)
            return f"CAST(array({listed}) AS {spark_type(kind)})"
        case Map(key, item):
            listed = ", ".join(f"{literal(key, k, parameters)}, {literal(item, v, parameters)}" for k, v in value)
            return f"CAST(map({listed}) AS {spark_type(kind)})"
        case Struct(fields):
            pairs = ((parameters.add(f.name), literal(f.type, value[f.name], parameters)) for f in fields)
            return f"CAST(named_struct({', '.join(f'{n}, {v}' for n, v in pairs)}) AS {spark_type(kind)})"
    return f"CAST({parameters.add(_text(value))} AS {spark_type(kind)})"


def spark_type(kind: ColumnType) -> str:
    """The type's name in Spark SQL."""
    match kind:
        case DecimalType(precision, scale):
            return f"DECIMAL({precision},{scale})"
        case Array(items):
            return f"ARRAY<{spark_type(items)}>"
        case Map(key, value):
            return f"MAP<{spark_type(key)},{spark_type(value)}>"
        case Struct(fields):
            return f"STRUCT<{','.join(f'{identifier(f.name)}:{spark_type(f.type)}' for f in fields)}>"
        case Primitive(name):
            return _TYPES[name]


def at_snapshot(table: str, snapshot_id: int | None) -> str:
    """A table as it was at a snapshot; without one, as it is."""
    return table if snapshot_id is None else f"{table} VERSION AS OF {int(snapshot_id)}"


def opaque(text: str, kind: ColumnType) -> str:
    """The same value of a uuid, or of a struct that holds one, for Spark alone to compare.

    Iceberg would skip files and row groups by their smallest and greatest uuid, but Java orders uuids in another way
    than files do: as two signed numbers.
    """
    return f"concat({text}, '')" if kind == UUID else f"element_at(transform(array({text}), same -> same), 1)"


def _node(node: Node, parameters: Parameters) -> str:
    match node:
        case Constant(kind, value):
            return "NULL" if kind is None else literal(kind, value, parameters)
        case ColumnValue(column):
            return _tested(column, parameters)
        case Cast(value, kind, safe):
            return _cast(value, kind, safe, parameters)
        case FunctionCall("is_null", (ColumnValue(column),), _):
            return f"({reference(column, parameters)} IS NULL)"
        case FunctionCall("div", (left, right), _) if {left.kind, right.kind} & _FLOATS:
            # Spark's own does not support floating-point numbers.
            return f"CAST(({_node(left, parameters)} / {_node(right, parameters)}) AS BIGINT)"
        case FunctionCall(name, arguments, _):
            return _call(name, [_node(argument, parameters) for argument in arguments])
        case Case(of, branches, otherwise, _):
            text = "CASE" if of is None else f"CASE {_node(of, parameters)}"
            for condition, value in branches:
                text += f" WHEN {_node(condition, parameters)} THEN {_node(value, parameters)}"
            return f"{text} END" if otherwise is None else f"{text} ELSE {_node(otherwise, parameters)} END"


def _call(name: str, arguments: list[str]) -> str:
    if name in _INFIX:
        return f"({f' {_INFIX[name]} '.join(arguments)})"
    first, *others = arguments or [""]
    match name:
        case "not":
            return f"(NOT {first})"
        case "negative":
            return f"(- {first})"
        case "is_null":
            return f"({first} IS NULL)"
        case "in":
            return f"({first} IN ({', '.join(others)}))"
        case "between":
            return f"({first} BETWEEN {others[0]} AND {others[1]})"
    return f"{FUNCTIONS[name].name}({', '.join(arguments)})"


def _cast(value: Node, kind: ColumnType, safe: bool, parameters: Parameters) -> str:
    text = _node(value, parameters)
    if value.kind == BINARY and kind in (STRING, UUID):
        # Spark accepts any bytes as text, but could not read again what is not text.
        text = f"{'try_' * safe}validate_utf8(CAST({text} AS STRING))"
        if kind == STRING:
            return text
    if kind != UUID:
        return f"{'TRY_CAST' if safe else 'CAST'}({text} AS {spark_type(kind)})"
    # Spark has no such type and would not look at what it writes as one.
    form = parameters.add("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
    other = "NULL" if safe else _raised("CAST AS uuid: a text is not a uuid; TRY_CAST makes null of it", parameters)
    return _checked(f"lower({text})", f"regexp_like({_VALUE}, {form})", other)


def _checked(text: str, test: str, other: str) -> str:
    """The value, or another one if a test of it, by the name `_VALUE`, fails; null stays null."""
    read = f"CASE WHEN {test} THEN {_VALUE} WHEN {_VALUE} IS NOT NULL THEN {other} END"
    return f"element_at(transform(array({text}), {_VALUE} -> {read}), 1)"


def _finite(text: str, value: Expression, parameters: Parameters) -> str:
    """The same number; an error if it is infinite although no number that it is computed of is."""
    infinity = literal(DOUBLE, math.inf, parameters)
    read = sorted(value.references, key=lambda column: column.name)
    infinite = (_infinite(reference(column, parameters), column.type, infinity) for column in read)
    tests = [f"NOT (abs({_VALUE}) <=> {infinity})", *(test for test in infinite if test is not None)]
    return _checked(text, " OR ".join(tests), _raised(f"{value.path}: {_TOO_LARGE}", parameters))


def _infinite(text: str, kind: ColumnType, infinity: str, depth: int = 0) -> str | None:
    """A condition that is true if a value is an infinite number, or holds one; None if its type cannot."""
    match kind:
        case Primitive("float" | "double"):
            return f"(abs({text}) <=> {infinity})"
        case Array(items):
            part = f"part{depth}"
            test = _infinite(part, items, infinity, depth + 1)
            return None if test is None else f"coalesce(exists({text}, {part} -> {test}), FALSE)"
        case Map(_, value):
            return _infinite(f"map_values({text})", Array(value), infinity, depth)
        case Struct(fields):
            found = (_infinite(f"{text}.{identifier(f.name)}", f.type, infinity, depth) for f in fields)
            tests = [test for test in found if test is not None]
            return f"({' OR '.join(tests)})" if tests else None
    return None


def _raised(message: str, parameters: Parameters) -> str:
    """An error that reaches the caller in these words."""
    return f"raise_error({parameters.add(REFUSED + message)})"


def _tested(column: Column, parameters: Parameters) -> str:
    text = reference(column, parameters)
    return opaque(text, column.type) if holds_uuid(column.type) else text


def _matches(test: Matches, parameters: Parameters) -> str:
    column = _tested(test.column, parameters)
    if isinstance(test.operand, Column):
        operand = _tested(test.operand, parameters)
    else:
        operand = parameters.add(test.operand)
    if test.operator in _CALL:
        return f"{_CALL[test.operator]}({column}, {operand})"
    if test.any_element:
        return f"exists({column}, element -> element {_MATCH[test.operator]} {operand})"
    return f"{column} {_MATCH[test.operator]} {operand}"


def _operand(column: Column, operand: Any, parameters: Parameters) -> str:
    if isinstance(operand, Column):
        return _tested(operand, parameters)
    return literal(column.type, operand, parameters)


def _text(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, float):
        return repr(value).replace("inf", "Infinity").replace("nan", "NaN")
    return str(value)

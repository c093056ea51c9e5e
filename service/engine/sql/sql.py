"""Predicates and values as Spark SQL: names are always quoted, values are always named parameters."""

import json
import math
import uuid as uuids
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from service.engine.session.java import json_mapper, reflected
from service.engine.session.rows import planned
from service.engine.session.spark_types import DataFrame, SparkSession
from service.model.expressions.functions import FUNCTIONS
from service.model.expressions.growth import MB, MOST_ADDED, added
from service.model.expressions.kinds import BINARY, BOOLEAN, DOUBLE, STRING, UUID, family
from service.model.expressions.tree import Case, Cast, ColumnValue, Constant, Expression, FunctionCall, Node
from service.model.filters import predicates
from service.model.schema.columns import Column, MapKey
from service.model.schema.types import Array, ColumnType, DecimalType, Map, Primitive, Struct, contains_uuid

TYPES = {
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
_FORMS = {"not": "(NOT {})", "negative": "(- {})", "is_null": "({} IS NULL)", "between": "({} BETWEEN {} AND {})"}
_MATCH = {"like": "LIKE", "ilike": "ILIKE", "regex": "RLIKE"}
_CALL = {"starts_with": "startswith", "ends_with": "endswith", "contains": "contains"}
_NULL = (
    "the expression is null for a row, but the column is required; replace null with coalesce(…, …), or exclude such "
    "rows with the filter"
)
_TOO_LARGE = (
    "the expression gives a number that is too large for its type; change the expression, or set Infinity as a value "
    "without an expression"
)
_TOO_LONG = (
    f"the texts of a row are so long that the expression could add more than {MOST_ADDED // MB} MB to them; shorten "
    "them first, or exclude such rows with the filter"
)
_TOO_FAR = "the expression gives a time outside the years 1 to 9999; such times cannot be written"
# A lambda's name for its argument; no column has this name.
_VALUE = "_firn_value"
REFUSED = "refused by Firn: "
"""The start of each error that Firn's own statements raise for a row."""


class Parameters:
    """The values of a statement's named parameters."""

    def __init__(self) -> None:
        self.values: dict[str, str | int | bool] = {}

    def add(self, value: str | int | bool) -> str:
        name = f"p{len(self.values)}"
        self.values[name] = value
        return f":{name}"


def run(session: SparkSession, text: str, values: Mapping[str, str | int | bool]) -> DataFrame:
    """The statement's result. `session.sql(text, args)` does the same with two calls to the JVM per value."""
    from pyspark.sql import DataFrame

    arguments = json_mapper().readValue(json.dumps(values), reflected("java.util.HashMap"))
    return DataFrame(session._jsparkSession.sql(text, arguments), session)


@contextmanager
def named(rows: DataFrame) -> Iterator[str]:
    """A name for the rows in SQL, for the block."""
    name = f"_firn_{uuids.uuid4().hex}"
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        rows.sparkSession.catalog.dropTempView(name)


def over(rows: DataFrame, text: Callable[[str], str], values: Mapping[str, str | int | bool]) -> DataFrame:
    """The result of a statement over the rows; `text` is given their name in it."""
    with named(rows) as name:
        plan = run(rows.sparkSession, text(name), values)._jdf.queryExecution().analyzed()
    # A writer would resolve the names in the statement's own plan again, and the name no longer exists.
    return planned(rows.sparkSession, plan)


def where(predicate: predicates.Predicate, parameters: Parameters) -> str:
    """A condition that is true of exactly the rows the predicate is true of."""
    match predicate:
        case predicates.And((child,)) | predicates.Or((child,)):
            # Without its parentheses: Spark reads `t WHERE (FALSE)` as a table called WHERE with a column called FALSE.
            return where(child, parameters)
        case predicates.And(children):
            return f"({' AND '.join(where(c, parameters) for c in children)})" if children else "TRUE"
        case predicates.Or(children):
            return f"({' OR '.join(where(c, parameters) for c in children)})" if children else "FALSE"
        case predicates.Not(predicates.IsNull(column)):
            return f"{reference(column, parameters)} IS NOT NULL"
        case predicates.Not(child):
            return f"(NOT {where(child, parameters)})"
        case predicates.IsNull(column):
            return f"{reference(column, parameters)} IS NULL"
        case predicates.Always(column, answer):
            # True or false of a value, and neither of a null.
            known = "IS NOT NULL OR" if answer else "IS NULL AND"
            return f"({reference(column, parameters)} {known} CAST(NULL AS BOOLEAN))"
        case predicates.Compare(column, operator, operand):
            left = _tested(column, parameters)
            if isinstance(operand, Column):
                return f"{left} {COMPARE[operator]} {_tested(operand, parameters)}"
            return f"{left} {COMPARE[operator]} {literal(column.type, operand, parameters)}"
        case predicates.In(column, values, or_null):
            listed = [literal(column.type, value, parameters) for value in values] + ["NULL"] * or_null
            return f"{_tested(column, parameters)} IN ({', '.join(listed)})"
        case predicates.Matches():
            return _matches(predicate, parameters)
        case predicates.HasElement(column, value):
            kind = column.type.items if isinstance(column.type, Array) else column.type
            return f"array_contains({reference(column, parameters)}, {literal(kind, value, parameters)})"
        case predicates.ExpressionHolds(computed):
            return expression(computed, parameters)


def expression(computed: Expression, parameters: Parameters) -> str:
    """An expression as SQL, built only from quoted names, parameters and known functions, never from its own text."""
    text = _node(computed.tree, parameters)
    grows = added(computed.tree)
    if not grows:
        return text
    lengths = [f"coalesce({_length(column, parameters)}, 0) * {times:.1f}D" for column, times in grows.items()]
    raised = _raised(f"{computed.path}: {_TOO_LONG}", parameters)
    text = f"CASE WHEN {' + '.join(lengths)} > {MOST_ADDED} THEN {raised} ELSE {text} END"
    return opaque(text, BOOLEAN) if computed.kind == BOOLEAN else f"({text})"


def new_value(kind: ColumnType, value: Any, parameters: Parameters) -> str:
    """The SQL of a column's new value, which is an Expression or a value as `read_literal` returns it."""
    if not isinstance(value, Expression):
        return literal(kind, value, parameters)
    text = fitted(kind, value, parameters)
    return f"coalesce({text}, {_raised(f'{value.path}: {_NULL}', parameters)})" if value.required else text


def fitted(kind: ColumnType, value: Expression, parameters: Parameters) -> str:
    """An expression's value in a column's type; raises an error for a row if it does not fit."""
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


def _length(column: Column, parameters: Parameters) -> str:
    """At least the bytes of the longest text in a column's value."""
    text = reference(column, parameters)
    if family(column.type) in ("text", "binary"):
        return f"octet_length({text})"
    return f"octet_length(to_json(struct({text})))"


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
    """A value as `read_literal` returns it, in exactly its type. Spark folds it, so it can be used to skip files."""
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
            return TYPES[name]


def at_snapshot(table: str, snapshot_id: int | None) -> str:
    """A table as it was at a snapshot; without one, as it is."""
    return table if snapshot_id is None else f"{table} VERSION AS OF {int(snapshot_id)}"


def opaque(text: str, kind: ColumnType) -> str:
    """The same value in a form that only Spark compares: for uuids, structs with one, and computed booleans.

    Iceberg would skip files and row groups by their least and greatest uuid, but Java orders uuids differently from the
    files: as two signed numbers. Spark's translation of filters for Iceberg fails at some booleans within an operand.
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
        case FunctionCall("and" | "or" | "not" as name, arguments, _):
            return _call(name, [_node(argument, parameters) for argument in arguments])
        case FunctionCall(name, arguments, _):
            return _call(name, [_operand(argument, parameters) for argument in arguments])
        case Case(of, branches, otherwise, _):
            text = "CASE" if of is None else f"CASE {_operand(of, parameters)}"
            for condition, value in branches:
                text += f" WHEN {_node(condition, parameters)} THEN {_operand(value, parameters)}"
            return f"{text} END" if otherwise is None else f"{text} ELSE {_operand(otherwise, parameters)} END"


def _operand(node: Node, parameters: Parameters) -> str:
    """The value of a node that is more than a condition.

    Spark translates filters for Iceberg, and fails at a boolean null below AND or OR. It replaces such nulls in
    conditions, but not in operands, and makes some itself: `a = 1.5` of an integer becomes `a IS NULL AND NULL`.
    """
    text = _node(node, parameters)
    return opaque(text, BOOLEAN) if node.kind == BOOLEAN and isinstance(node, FunctionCall | Case) else text


def _call(name: str, arguments: list[str]) -> str:
    if name in _INFIX:
        return f"({f' {_INFIX[name]} '.join(arguments)})"
    if name in _FORMS:
        return _FORMS[name].format(*arguments)
    if name == "in":
        return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    return f"{FUNCTIONS[name].name}({', '.join(arguments)})"


def _cast(value: Node, kind: ColumnType, safe: bool, parameters: Parameters) -> str:
    text = _node(value, parameters)
    if value.kind == BINARY and kind in (STRING, UUID):
        # Spark accepts any bytes as text, but could not read invalid text again.
        text = f"{'try_' * safe}validate_utf8(CAST({text} AS STRING))"
        if kind == STRING:
            return text
    if kind != UUID:
        return f"{'TRY_CAST' if safe else 'CAST'}({text} AS {spark_type(kind)})"
    # Spark has no uuid type, and would write any text as one.
    form = parameters.add("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
    other = "NULL" if safe else _raised("CAST AS uuid: a text is not a uuid; TRY_CAST gives null instead", parameters)
    return _checked(f"lower({text})", f"regexp_like({_VALUE}, {form})", other)


def _checked(text: str, test: str, other: str) -> str:
    """The value, or `other` if a test of it, by the name `_VALUE`, fails; null stays null."""
    read = f"CASE WHEN {test} THEN {_VALUE} WHEN {_VALUE} IS NOT NULL THEN {other} END"
    return f"element_at(transform(array({text}), {_VALUE} -> {read}), 1)"


def _finite(text: str, value: Expression, parameters: Parameters) -> str:
    """The same number; raises an error if it is infinite and none of its operands is."""
    infinity = literal(DOUBLE, math.inf, parameters)
    read = sorted(value.references, key=lambda column: column.name)
    infinite = (_infinite(reference(column, parameters), column.type, infinity) for column in read)
    tests = [f"NOT (abs({_VALUE}) <=> {infinity})", *(test for test in infinite if test is not None)]
    return _checked(text, " OR ".join(tests), _raised(f"{value.path}: {_TOO_LARGE}", parameters))


def _infinite(text: str, kind: ColumnType, infinity: str, depth: int = 0) -> str | None:
    """A condition that is true if a value is or contains an infinite number; None if its type cannot."""
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
    """An error with this message for the caller."""
    return f"raise_error({parameters.add(REFUSED + message)})"


def _tested(column: Column, parameters: Parameters) -> str:
    text = reference(column, parameters)
    return opaque(text, column.type) if contains_uuid(column.type) else text


def _matches(test: predicates.Matches, parameters: Parameters) -> str:
    column, operand = _tested(test.column, parameters), test.operand
    operand = _tested(operand, parameters) if isinstance(operand, Column) else parameters.add(operand)
    if test.operator in _CALL:
        return f"{_CALL[test.operator]}({column}, {operand})"
    if test.any_element:
        return f"exists({column}, element -> element {_MATCH[test.operator]} {operand})"
    return f"{column} {_MATCH[test.operator]} {operand}"


def _text(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, float):
        return repr(value).replace("inf", "Infinity").replace("nan", "NaN")
    return str(value)

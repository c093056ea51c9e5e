"""Read the value that a column is set to: a literal, or `{"expression": …}` over the row's own columns."""

from dataclasses import replace
from typing import Any

from service.errors import InvalidRequest
from service.model.expressions.kinds import UUID, Kind, castable, describe_kind, family, fits
from service.model.expressions.parser import parse_expression
from service.model.expressions.tree import Constant, Node
from service.model.records import InvalidValue, read_literal, read_value
from service.model.schema.columns import Resolver
from service.model.schema.types import ColumnType, Field, Map, Primitive, Struct

_KINDS = {"number": "numbers", "boolean": "a condition", "time": "a date or a time", "binary": "binary values"}


def read_assigned(field: Field, value: Any, resolve: Resolver, path: str) -> Any:
    """A literal's value, or an Expression that fits the column; InvalidRequest names `path`."""
    if value is None and field.required:
        raise InvalidRequest(f"{path} is null, but the column is required; send a value", field=path)
    if not _is_expression(field.type, value):
        return read_literal(field.type, value, path)
    where = f"{path}.expression"
    expression = parse_expression(value["expression"], resolve, where, InvalidRequest)
    if expression.kind is None and field.required:
        raise InvalidRequest(f"{where} is always null, but the column is required; give a value", field=where)
    tree = _fitting(expression.tree, field.type, where)
    return replace(expression, tree=tree, required=field.required)


def _is_expression(kind: ColumnType, value: Any) -> bool:
    """Whether a value is an expression; it is a literal for a map, and for a struct with a field `expression`."""
    if not isinstance(value, dict) or value.keys() != {"expression"} or isinstance(kind, Map):
        return False
    return not (isinstance(kind, Struct) and any(field.name == "expression" for field in kind.fields))


def _fitting(tree: Node, column: ColumnType, path: str) -> Node:
    if isinstance(tree, Constant) and isinstance(tree.value, str) and _reads_text(column):
        try:
            return Constant(column, read_value(column)(tree.value))
        except InvalidValue as e:
            raise InvalidRequest(f"{path}: {e.problem}", field=path) from e
    if not fits(tree.kind, column):
        raise InvalidRequest(
            f"{path} is {_described(tree.kind)}, but the column is {column}{_hint(tree.kind, column)}", field=path
        )
    return tree


def _reads_text(column: ColumnType) -> bool:
    return column == UUID or family(column) == "time"


def _described(kind: Kind) -> str:
    return (
        str(kind) if isinstance(kind, Primitive) and kind.name in ("timestamp", "timestamptz") else describe_kind(kind)
    )


def _hint(kind: Kind, column: ColumnType) -> str:
    if castable(kind, column):
        return f"; convert it with CAST(… AS {column})"
    return f"; only {_KINDS.get(family(column), 'a column of that type')} can be its value"

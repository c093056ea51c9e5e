"""What a column is set to: a literal, or `{"expression": …}` over the row's own columns."""

from dataclasses import replace
from typing import Any

from service.columns import Resolver
from service.errors import InvalidRequest
from service.expressions.kinds import UUID, Kind, castable, family, fits, words
from service.expressions.parser import parse_expression
from service.expressions.tree import Constant, Node
from service.records import Misfit, read_literal, read_value
from service.schema import ColumnType, Field, Map, Primitive, Struct

_KINDS = {"number": "numbers", "boolean": "a condition", "time": "a date or a time", "binary": "binary values"}


def read_assigned(field: Field, value: Any, resolve: Resolver, path: str) -> Any:
    """A value as `read_literal` gives it, or an Expression that fits the column; InvalidRequest names `path`."""
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
    """An object is a literal of a map, and of a struct that has a field of that name."""
    if not isinstance(value, dict) or value.keys() != {"expression"} or isinstance(kind, Map):
        return False
    return not (isinstance(kind, Struct) and any(field.name == "expression" for field in kind.fields))


def _fitting(tree: Node, column: ColumnType, path: str) -> Node:
    if isinstance(tree, Constant) and isinstance(tree.value, str) and _reads_text(column):
        try:
            return Constant(column, read_value(column)(tree.value))
        except Misfit as e:
            raise InvalidRequest(f"{path}: {e.problem}", field=path) from e
    if not fits(tree.kind, column):
        raise InvalidRequest(
            f"{path} gives {_said(tree.kind)}, and the column is {column}{_way(tree.kind, column)}", field=path
        )
    return tree


def _reads_text(column: ColumnType) -> bool:
    return column == UUID or family(column) == "time"


def _said(kind: Kind) -> str:
    return str(kind) if isinstance(kind, Primitive) and kind.name in ("timestamp", "timestamptz") else words(kind)


def _way(kind: Kind, column: ColumnType) -> str:
    if castable(kind, column):
        return f"; say how with CAST(… AS {column})"
    return f"; only {_KINDS.get(family(column), 'a column of that type')} can be its value"

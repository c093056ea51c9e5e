"""Read the value that a column is set to: a literal, or `{"expression": …}` over the row's own columns."""

from dataclasses import replace
from typing import Any

from service.errors import InvalidRequest
from service.model.expressions.kinds import TIMESTAMP, TIMESTAMPTZ, UUID, castable, describe_kind, family, fits
from service.model.expressions.parser import parse_expression
from service.model.expressions.tree import Constant, Node
from service.model.records import read_literal
from service.model.schema.columns import Resolver
from service.model.schema.types import ColumnType, Field, Map, Struct

_KINDS = {"number": "numbers", "boolean": "a condition", "time": "a date or a time", "binary": "binary values"}


def read_assignment(field: Field, value: Any, resolve: Resolver, path: str) -> Any:
    """A literal's value, or an Expression that fits the column; InvalidRequest names `path`."""
    if value is None and field.required:
        raise InvalidRequest.at(path, "the column is required; send a value, not null")
    if not _is_expression(field.type, value):
        return read_literal(field.type, value, path)
    where = f"{path}.expression"
    expression = parse_expression(value["expression"], resolve, where, InvalidRequest)
    if expression.kind is None and field.required:
        raise InvalidRequest.at(where, "it is always null, but the column is required; send a value")
    return replace(expression, tree=_fitting(expression.tree, field.type, where), required=field.required)


def _is_expression(kind: ColumnType, value: Any) -> bool:
    """Whether a value is an expression; it is a literal for a map, and for a struct with a field `expression`."""
    if not isinstance(value, dict) or value.keys() != {"expression"} or isinstance(kind, Map):
        return False
    return not (isinstance(kind, Struct) and any(field.name == "expression" for field in kind.fields))


def _fitting(tree: Node, column: ColumnType, path: str) -> Node:
    reads_text = column == UUID or family(column) == "time"
    if reads_text and isinstance(tree, Constant) and isinstance(tree.value, str):
        return Constant(column, read_literal(column, tree.value, path))
    kind = tree.kind
    if fits(kind, column):
        return tree
    of = str(kind) if kind in (TIMESTAMP, TIMESTAMPTZ) else describe_kind(kind)
    hint = f"only {_KINDS.get(family(column), 'a column of that type')} can be its value"
    if castable(kind, column):
        hint = f"convert it with CAST(… AS {column})"
    raise InvalidRequest.at(path, f"it is {of}, but the column is {column}; {hint}")

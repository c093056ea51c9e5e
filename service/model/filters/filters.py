"""Parse filters of both dialects into one tree of predicates.

Map: `{"age": {"gt": 28, "lte": 60}, "name": "Ann", "or": [..]}`; a plain value means eq, null means is_null.
List: `[{"field": "age", "operator": "gt", "value": 28}]`. Adjacent conditions are joined by and. `and`, `or` and `not`
nest in both dialects, and an object in a list may be of either; only the list dialect can name a column called `and`.
`{"expression": "age * 2 < limit"}` is a condition in both, unless a column is called `expression`.
Nulls follow SQL: `ne` and `not_in` never match a null, but a `not_in` of no values matches every row, and an `in` of
no values matches none.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from service.errors import InvalidFilter, UnknownField
from service.model.expressions import parse_expression
from service.model.expressions.kinds import BOOLEAN, describe_kind
from service.model.expressions.tree import all_nodes
from service.model.filters.attributes import PRINCIPAL, Attribute
from service.model.filters.conditions import OPERATORS
from service.model.filters.predicates import EVERY_ROW, And, ExpressionHolds, IsNull, Not, Or, Predicate
from service.model.schema.columns import Column, Resolver

MAX_DEPTH = 64
MAX_CONDITIONS = 2_000
_CONNECTIVES = ("and", "or", "not")
_CONDITION_FIELDS = ("field", "operator", "value")
_MISSING: Any = object()
_SQL_SIGNS = {"=": "eq", "==": "eq", "<>": "ne", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_SQL_CONDITION = re.compile(
    r"\s*([^\W\d]\w*(?:\.\w+)*)\s*(<=|>=|<>|!=|==|=|<|>)\s*(-?(?:0|[1-9]\d{0,17})(?:\.\d+)?|'[^']{0,80}')\s*"
)


def parse_filter(value: Any, resolve: Resolver, path: str = "filter", attribute: Attribute | None = None) -> Predicate:
    """The predicate of a filter of either dialect; `path` is its place in the request.

    With `attribute`, values may be attributes of the sender.
    """
    return _Reader(resolve, attribute).parse(value, path, 1)


def parse_request_filter(filter: Any, filters: Any, resolve: Resolver) -> Predicate:
    """The filter of a request, which may call it `filter` or `filters`; every row if there is none."""
    if filter is not None and filters is not None:
        raise InvalidFilter.at("filters", "it means the same as filter; send only one of them")
    for value, path in ((filter, "filter"), (filters, "filters")):
        if value is not None:
            return parse_filter(value, resolve, path)
    return EVERY_ROW


@dataclass
class _Reader:
    resolve: Resolver
    attribute: Attribute | None = None
    conditions: int = 0

    def parse(self, value: Any, path: str, depth: int) -> Predicate:
        if depth > MAX_DEPTH:
            raise InvalidFilter.at(path[:200], f"nested more than {MAX_DEPTH} deep; flatten it")
        if isinstance(value, list):
            return _and([self.parse(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)])
        if isinstance(value, str) and value.strip():
            raise InvalidFilter.at(
                path, f"{value[:80]!r} is text, but a filter is an object; write {_object_for(value)}"
            )
        if not isinstance(value, dict):
            raise InvalidFilter.at(path, 'expected an object such as {"age": {"gt": 28}}, or a list of conditions')
        # A table may have a column called `field` or `operator`, so one of the two alone is not a condition.
        if isinstance(value.get("field"), str) and ("operator" in value or "value" in value):
            return self.list_condition(value, path)
        return _and([self.entry(key, item, f"{path}.{key}", depth) for key, item in value.items()])

    def entry(self, key: str, value: Any, path: str, depth: int) -> Predicate:
        if key == "not":
            return Not(self.parse(value, path, depth + 1))
        if key in _CONNECTIVES:
            if not isinstance(value, list):
                raise InvalidFilter.at(path, "expected a list of filters")
            children = tuple(self.parse(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value))
            return And(children) if key == "and" else Or(children)
        if key == "expression" and not self.has_column(key, path):
            return self.expression(value, path)
        column = self.column(key, path)
        if value is None:
            return self.count(IsNull(column), path)
        if not isinstance(value, dict) or set(value) == {"field"} or self.is_attribute(value):
            return self.condition(column, "eq", value, path)
        if not value:
            raise InvalidFilter.at(path, f"the operator is missing; use one of {', '.join(OPERATORS)}")
        return _and([self.condition(column, name, item, f"{path}.{name}") for name, item in value.items()])

    def list_condition(self, value: dict[str, Any], path: str) -> Predicate:
        for key in value:
            if key not in _CONDITION_FIELDS:
                raise UnknownField.unknown(f"{path}.{key}", key, "a field of a condition", _CONDITION_FIELDS)
        column = self.column(value["field"], f"{path}.field")
        operator = value.get("operator")
        if not isinstance(operator, str):
            raise InvalidFilter.at(f"{path}.operator", f"expected one of {', '.join(OPERATORS)}")
        return self.condition(column, operator, value.get("value", _MISSING), path)

    def condition(self, column: Column, operator: str, value: Any, path: str) -> Predicate:
        if operator not in OPERATORS:
            raise InvalidFilter.unknown(path, operator, "an operator", OPERATORS)
        if value is _MISSING:
            if operator not in ("is_null", "is_not_null"):
                raise InvalidFilter.at(f"{path}.value", f"the value is missing; {operator} needs one")
            value = True
        operand = self.operand(value, path, column, operator)
        return self.count(OPERATORS[operator](column, operator, operand, path), path)

    def is_attribute(self, value: dict[str, Any]) -> bool:
        return self.attribute is not None and set(value) == {PRINCIPAL} and isinstance(value[PRINCIPAL], str)

    def operand(self, value: Any, path: str, column: Column, operator: str) -> Any:
        if isinstance(value, list):
            return [self.operand(item, f"{path}[{i}]", column, "eq") for i, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if self.attribute is not None and self.is_attribute(value):
            return self.attribute(value[PRINCIPAL], column, operator, f"{path}.{PRINCIPAL}")
        if set(value) != {"field"} or not isinstance(value["field"], str):
            raise InvalidFilter.at(path, 'expected a value, or another column as {"field": "name"}')
        return self.column(value["field"], f"{path}.field")

    def expression(self, text: Any, path: str) -> Predicate:
        found = parse_expression(text, self.resolve, path, InvalidFilter)
        if found.kind != BOOLEAN:
            raise InvalidFilter.at(path, f"expected a condition such as 'a < b', not {describe_kind(found.kind)}")
        return self.count(ExpressionHolds(found), path, sum(1 for _ in all_nodes(found.tree)))

    def has_column(self, name: str, path: str) -> bool:
        try:
            self.resolve(name, path)
        except UnknownField:
            return False
        return True

    def column(self, name: str, path: str) -> Column:
        try:
            return self.resolve(name, path)
        except UnknownField as e:
            if name in OPERATORS:
                problem = f'{name!r} is an operator, not a column; write {{"column": {{"{name}": …}}}}'
                raise InvalidFilter.at(path, problem) from e
            raise

    def count(self, predicate: Predicate, path: str, parts: int = 1) -> Predicate:
        self.conditions += parts
        if self.conditions > MAX_CONDITIONS:
            problem = f"the filter has more than {MAX_CONDITIONS} conditions; use 'in', or split the request"
            raise InvalidFilter.at(path, problem)
        return predicate


def _object_for(condition: str) -> str:
    """The filter, as JSON, that a condition of SQL most likely meant."""
    if condition.lstrip()[0] in "{[":  # JSON that was sent as text
        return condition[:200]
    found = _SQL_CONDITION.fullmatch(condition)
    if not found:
        return json.dumps({"expression": condition[:200]}, ensure_ascii=False)
    column, sign, text = found.groups()
    quoted = text[0] == text[-1] == "'" and len(text) > 1
    operand = json.dumps(text[1:-1], ensure_ascii=False) if quoted else text
    return f'{{"{column}": {{"{_SQL_SIGNS[sign]}": {operand}}}}}'


def _and(children: list[Predicate]) -> Predicate:
    return children[0] if len(children) == 1 else And(tuple(children))

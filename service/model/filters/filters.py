"""Read filters of both dialects into one tree of predicates.

Map: `{"age": {"gt": 28, "lte": 60}, "name": "Ann", "or": [..]}`; a bare value means eq, null means is_null.
List: `[{"field": "age", "operator": "gt", "value": 28}]`. Conditions next to each other are joined by and. `and`, `or`
and `not` nest in both, and an object in a list may be of either dialect; only the list dialect can name a column called
`and`. `{"expression": "age * 2 < limit"}` is a condition in both, unless a column is called `expression`.
Nulls follow SQL: `ne` and `not_in` never match a null, but a `not_in` of no values matches every row, and an `in` of
no values matches none.
"""

from dataclasses import dataclass
from typing import Any

from service.errors import InvalidFilter, UnknownField, did_you_mean
from service.model.expressions import parse_expression
from service.model.expressions.kinds import BOOLEAN, describe_kind
from service.model.expressions.tree import all_nodes
from service.model.filters.conditions import OPERATORS, condition
from service.model.filters.predicates import EVERY_ROW, And, ExpressionHolds, IsNull, Not, Or, Predicate
from service.model.schema.columns import Column, Resolver

MAX_DEPTH = 64
MAX_CONDITIONS = 2_000
_JOINS = ("and", "or", "not")
_CONDITION = ("field", "operator", "value")
_MISSING: Any = object()


def parse_filter(value: Any, resolve: Resolver, path: str = "filter") -> Predicate:
    """The predicate of a filter of either dialect; `path` is its place in the request."""
    return _Reader(resolve).any(value, path, 1)


def parse_either(filter: Any, filters: Any, resolve: Resolver) -> Predicate:
    """The filter of a request, which may call it `filter` or `filters`; every row if there is none."""
    if filter is not None and filters is not None:
        raise InvalidFilter("filter and filters are two names for one thing; send only one of them", field="filters")
    if filter is not None:
        return parse_filter(filter, resolve, "filter")
    return EVERY_ROW if filters is None else parse_filter(filters, resolve, "filters")


@dataclass
class _Reader:
    resolve: Resolver
    conditions: int = 0

    def any(self, value: Any, path: str, depth: int) -> Predicate:
        if depth > MAX_DEPTH:
            raise InvalidFilter(f"{path[:200]} is nested more than {MAX_DEPTH} deep; flatten it", field=path[:200])
        if isinstance(value, list):
            return _and([self.any(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)])
        if not isinstance(value, dict):
            raise InvalidFilter(
                f'{path} must be an object such as {{"age": {{"gt": 28}}}} or a list of conditions', field=path
            )
        # A table may have a column called `field` or `operator`, so one of the two alone is not a condition.
        if isinstance(value.get("field"), str) and ("operator" in value or "value" in value):
            return self.listed(value, path)
        return _and([self.entry(key, item, f"{path}.{key}", depth) for key, item in value.items()])

    def entry(self, key: str, value: Any, path: str, depth: int) -> Predicate:
        if key == "not":
            return Not(self.any(value, path, depth + 1))
        if key in _JOINS:
            if not isinstance(value, list):
                raise InvalidFilter(f"{path} must be a list of filters", field=path)
            children = tuple(self.any(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value))
            return And(children) if key == "and" else Or(children)
        if key == "expression" and not self.has(key, path):
            return self.expression(value, path)
        column = self.column(key, path)
        if value is None:
            return self.count(IsNull(column), path)
        if not isinstance(value, dict) or set(value) == {"field"}:
            return self.one(column, "eq", value, path)
        if not value:
            raise InvalidFilter(f"{path} has no operator; use one of {', '.join(OPERATORS)}", field=path)
        return _and([self.one(column, name, item, f"{path}.{name}") for name, item in value.items()])

    def listed(self, value: dict[str, Any], path: str) -> Predicate:
        for key in value:
            if key not in _CONDITION:
                near, words = did_you_mean(key, _CONDITION)
                where = f"{path}.{key}"
                raise UnknownField(f"{where} is not a field of a condition; {words}", field=where, suggestion=near)
        column = self.column(value["field"], f"{path}.field")
        operator = value.get("operator")
        if not isinstance(operator, str):
            where = f"{path}.operator"
            raise InvalidFilter(f"{where} must be one of {', '.join(OPERATORS)}", field=where)
        return self.one(column, operator, value.get("value", _MISSING), path)

    def one(self, column: Column, operator: str, value: Any, path: str) -> Predicate:
        if operator not in OPERATORS:
            near, words = did_you_mean(operator, OPERATORS)
            raise InvalidFilter(
                f"{path}: {operator[:80]!r} is not an operator; {words}",
                field=path,
                suggestion=near,
            )
        if value is _MISSING:
            if operator not in ("is_null", "is_not_null"):
                raise InvalidFilter(f"{path}.value is missing; {operator} needs one", field=f"{path}.value")
            value = True
        return self.count(condition(column, operator, self.operand(value, path), path), path)

    def operand(self, value: Any, path: str) -> Any:
        if isinstance(value, list):
            return [self.operand(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if set(value) != {"field"} or not isinstance(value["field"], str):
            raise InvalidFilter(
                f'{path} must be a value, or another column as {{"field": "name"}}, not another object', field=path
            )
        return self.column(value["field"], f"{path}.field")

    def expression(self, text: Any, path: str) -> Predicate:
        found = parse_expression(text, self.resolve, path, InvalidFilter)
        if found.kind != BOOLEAN:
            raise InvalidFilter(
                f"{path} must be a condition, true or false of a row, such as 'a < b'; this one is "
                f"{describe_kind(found.kind)}",
                field=path,
            )
        return self.count(ExpressionHolds(found), path, sum(1 for _ in all_nodes(found.tree)))

    def has(self, name: str, path: str) -> bool:
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
                raise InvalidFilter(
                    f'{path}: {name!r} is an operator, where a column is needed; write {{"column": {{"{name}": …}}}}',
                    field=path,
                ) from e
            raise

    def count(self, predicate: Predicate, path: str, parts: int = 1) -> Predicate:
        self.conditions += parts
        if self.conditions > MAX_CONDITIONS:
            raise InvalidFilter(
                f"{path}: the filter has more than {MAX_CONDITIONS} conditions; use 'in', or split the request",
                field=path,
            )
        return predicate


def _and(children: list[Predicate]) -> Predicate:
    return children[0] if len(children) == 1 else And(tuple(children))

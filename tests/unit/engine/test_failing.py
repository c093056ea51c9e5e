"""An expression that fails is named, even if the row for which it fails cannot be searched for."""

from typing import Any, cast

import pytest

from service.engine.sql.failing import conditions, naming_failures
from service.errors import FirnError, InvalidQuery
from service.model.filters.filters import parse_filter
from service.model.filters.predicates import Predicate
from service.model.schema.columns import columns_of
from service.model.schema.types import Field, Primitive, TableSchema

SCHEMA = TableSchema((Field("a", Primitive("integer")), Field("b", Primitive("integer"))))
BROKEN = "a value of a row cannot be computed: Division by zero"


def predicate(filter: Any) -> Predicate:
    return parse_filter(filter, columns_of(SCHEMA))


def test_the_expressions_of_a_filter_are_found_at_any_depth() -> None:
    filter = [{"a": 1}, {"expression": "a / b > 1"}, {"or": [{"b": 2}, {"not": {"expression": "b / a > 1"}}]}]
    found = conditions(predicate(filter))
    assert [one.expression.path for one in found] == ["filter[1].expression", "filter[2].or[1].not.expression"]


def failed(failure: FirnError, *filters: Any) -> FirnError:
    found = [one for filter in filters for one in conditions(predicate(filter))]
    with pytest.raises(FirnError) as raised, naming_failures(cast(Any, None), found, (), None):
        raise failure
    return raised.value


def test_the_only_expression_of_a_query_is_named_without_a_row() -> None:
    error = failed(InvalidQuery(BROKEN, suggestion="nullif(divisor, 0)"), {"expression": "a / b > 1"})
    assert (error.message, error.field) == (f"filter.expression: {BROKEN}", "filter.expression")
    assert error.suggestion == "nullif(divisor, 0)"


def test_nothing_is_named_by_guessing() -> None:
    two = {"expression": "a / b > 1"}, {"expression": "b / a > 1"}
    for failure, filters in (
        (InvalidQuery(BROKEN), two),
        (InvalidQuery(BROKEN), ({"a": 1},)),
        (InvalidQuery("the query failed: too deep"), two[:1]),
        (InvalidQuery(BROKEN, field="sort"), two[:1]),
    ):
        assert failed(failure, *filters) is failure

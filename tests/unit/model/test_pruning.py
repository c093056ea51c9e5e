"""A filter and its Iceberg expression keep the same rows."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, expression_evaluator
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from service.errors import InvalidFilter
from service.model.filters.filters import parse_filter
from service.model.filters.pruning import iceberg_json, partition_expression, partition_predicate, uuid_expression
from service.model.schema.columns import columns_of
from service.model.schema.definition import parse_schema
from service.model.schema.partition import PartitionField
from tests.unit.model.test_filters import truth

TYPES = {
    "age": ("integer", IntegerType()),
    "name": ("string", StringType()),
    "x": ("double", DoubleType()),
    "d": ("decimal(10,2)", DecimalType(10, 2)),
    "day": ("date", DateType()),
    "ts": ("timestamp", TimestampType()),
    "tz": ("timestamptz", TimestamptzType()),
    "u": ("uuid", UUIDType()),
}
SCHEMA = parse_schema(
    {"fields": {**{n: {"type": t} for n, (t, _) in TYPES.items()}, "bin": {"type": "binary"}, "z": {"type": "long"}}}
)
ICEBERG = Schema(*[NestedField(i, name, kind) for i, (name, (_, kind)) in enumerate(TYPES.items(), 1)])
RESOLVE = columns_of(SCHEMA)


def rendered(value: Any, columns: set[str] | None = None) -> Any:
    return json.loads(iceberg_json(parse_filter(value, RESOLVE), {*TYPES, "bin"} if columns is None else columns))


AGES = st.one_of(st.integers(-3, 3), st.sampled_from([Decimal("0.5"), Decimal("-1.5"), 10**30]))
CONDITIONS = st.one_of(
    st.builds(lambda o, v: {"age": {o: v}}, st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte"]), AGES),
    st.builds(lambda o, v: {"age": {o: v}}, st.sampled_from(["in", "not_in"]), st.lists(st.one_of(AGES, st.none()))),
    st.builds(lambda a, b: {"age": {"between": [a, b]}}, AGES, AGES),
    st.builds(lambda v: {"age": {"is_null": v}}, st.booleans()),
)
FILTERS = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.builds(lambda c: {"not": c}, inner),
        st.builds(lambda o, c: {o: c}, st.sampled_from(["and", "or"]), st.lists(inner, max_size=3)),
    ),
    max_leaves=8,
)


@given(FILTERS, st.one_of(st.none(), st.integers(-4, 4)))
def test_the_expression_keeps_the_rows_the_filter_keeps(value: Any, age: int | None) -> None:
    predicate = parse_filter(value, RESOLVE)
    expression = BooleanExpression.model_validate_json(iceberg_json(predicate, {"age"}))
    keeps = expression_evaluator(ICEBERG, expression, case_sensitive=True)
    assert keeps(Record(age, *[None] * (len(TYPES) - 1))) is (truth(predicate, {"age": age}) is True)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"day": "2024-01-31"}, "2024-01-31"),
        ({"ts": "2024-01-31T10:00:00.5"}, "2024-01-31T10:00:00.500000"),
        ({"tz": "2024-01-31T10:00:00+02:00"}, "2024-01-31T08:00:00.000000+00:00"),
        ({"d": Decimal("1.5")}, "1.50"),
        ({"u": "F79C3E09-677C-4BBD-A479-3F349CB785E7"}, "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        ({"name": "12"}, "12"),
        ({"x": Decimal("1.5")}, 1.5),
    ],
)
def test_values_have_the_single_value_form_of_the_format(value: Any, written: Any) -> None:
    found = rendered(value)
    assert found == {"type": "eq", "term": next(iter(value)), "value": written}
    bind(ICEBERG, BooleanExpression.model_validate_json(json.dumps(found)), True)


def test_a_prefix_and_a_nan_have_predicates_of_their_own() -> None:
    assert rendered({"name": {"starts_with": "a%"}}) == {"type": "starts-with", "term": "name", "value": "a%"}
    assert rendered({"x": "NaN"}) == {"type": "is-nan", "term": "x"}
    assert rendered({"x": {"gt": 1}})["right"] == {"type": "is-nan", "term": "x"}


def test_a_long_chain_does_not_become_a_deep_tree() -> None:
    text = iceberg_json(parse_filter({"or": [{"age": i} for i in range(1000)]}, RESOLVE), {"age"})
    assert max(text[:i].count("{") - text[:i].count("}") for i in range(0, len(text), 50)) < 15


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"name": {"like": "a%b"}}, "like cannot be used here"),
        ({"name": {"regex": "a"}}, "regex cannot be used here"),
        ({"name": {"contains": "a"}}, "contains cannot be used here"),
        ({"age": {"gt": {"field": "z"}}}, "another column cannot be used here"),
        ({"expression": "age > 1"}, "an expression cannot be used here"),
        ({"not": {"expression": "age > 1"}}, "an expression cannot be used here"),
        ({"bin": "AP8="}, "binary values cannot be used here"),
        ({"x": "Infinity"}, "infinity cannot be used here"),
        ({"z": 1}, "'z' is not a column that the table is partitioned by; those are age, bin, d, day"),
    ],
)
def test_what_cannot_prune_is_refused_by_name(value: Any, message: str) -> None:
    with pytest.raises(InvalidFilter, match=message) as caught:
        rendered(value)
    assert caught.value.field == "partition_filter"


def test_a_table_without_partitions_takes_no_column() -> None:
    with pytest.raises(InvalidFilter, match="the table is not partitioned"):
        rendered({"age": 1}, set())
    assert rendered({}, set()) is True


def test_an_edit_takes_partition_values_that_have_no_json_and_refuses_the_same_columns_and_operators() -> None:
    partition = (PartitionField("bin", "identity", "bin"), PartitionField("x", "identity", "x"))
    for value in ({"bin": "AQ=="}, {"x": {"lt": "Infinity"}}):
        with pytest.raises(InvalidFilter):
            partition_expression(value, SCHEMA, partition)
        assert partition_predicate(value, SCHEMA, partition) == parse_filter(value, RESOLVE, "partition_filter")
    for value in ({"age": 1}, {"bin": {"field": "bin"}}, {"name": {"like": "a%"}}):
        with pytest.raises(InvalidFilter):
            partition_predicate(value, SCHEMA, partition)
    with pytest.raises(InvalidFilter, match="not partitioned"):
        partition_predicate({"x": 1}, SCHEMA, ())


def test_only_a_filter_that_names_a_uuid_has_its_files_chosen_for_spark() -> None:
    partition = (PartitionField("u", "bucket", "b", 4), PartitionField("age", "identity", "age"))
    named = {"age": 1, "u": "00000000-0000-4000-8000-000000000001"}
    assert uuid_expression(named, SCHEMA, partition) == partition_expression(named, SCHEMA, partition)
    assert uuid_expression({"age": 1}, SCHEMA, partition) is None
    assert uuid_expression(None, SCHEMA, partition) is None

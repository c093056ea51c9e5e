from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidSchema
from service.model.schema.definition import parse_schema
from service.model.schema.partition import TRANSFORMS, PartitionField, describe_partition, parse_partition
from service.model.schema.types import PRIMITIVES
from tests.strategies import partitions, schemas

SCHEMA = parse_schema(
    {
        "fields": {
            **{f"c_{name}": {"type": name} for name in PRIMITIVES},
            "c_decimal": {"type": "decimal(10,2)"},
            "ts": {"type": "timestamp"},
            "ts_day": {"type": "long"},
            "maybe": {"type": "struct", "fields": {"id": {"type": "long"}, "at": {"type": "date"}}},
            "s": {"type": "struct", "required": True, "fields": {"at": {"type": "date"}, "id": {"type": "long"}}},
            "l": {"type": "array", "items": {"type": "struct", "fields": {"x": {"type": "long"}}}},
        }
    }
)
TAKES = {
    "identity": {*PRIMITIVES, "decimal"},
    "year": {"date", "timestamp", "timestamptz"},
    "month": {"date", "timestamp", "timestamptz"},
    "day": {"date", "timestamp", "timestamptz"},
    "hour": {"timestamp", "timestamptz"},
    "bucket": {"integer", "long", "decimal", "date", "timestamp", "timestamptz", "string", "uuid", "binary"},
    "truncate": {"integer", "long", "decimal", "string", "binary"},
}
PARAM = {"bucket": {"num_buckets": 8}, "truncate": {"width": 4}}


def parsed(*items: Any) -> tuple[PartitionField, ...]:
    return parse_partition({"partitions": list(items)}, SCHEMA)


def refused(*items: Any) -> InvalidSchema:
    with pytest.raises(InvalidSchema) as caught:
        parsed(*items)
    return caught.value


@given(st.data())
def test_a_described_partitioning_parses_to_itself(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    fields = parse_partition(data.draw(partitions(schema)), schema)
    assert parse_partition(describe_partition(fields), schema) == fields


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("kind", [*PRIMITIVES, "decimal"])
def test_a_transform_takes_the_types_that_the_format_gives_it(transform: str, kind: str) -> None:
    item = {"field": f"c_{kind}", "transform": transform, "name": "p", **PARAM.get(transform, {})}
    if kind in TAKES[transform]:
        assert parsed(item)[0].transform == transform
    else:
        assert refused(item).field == "partition.partitions[0].transform"


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ({"field": "c_uuid"}, "c_uuid"),
        ({"field": "c_date", "transform": "year"}, "c_date_year"),
        ({"field": "c_long", "transform": "bucket", "num_buckets": 4}, "c_long_bucket"),
        ({"field": "c_string", "transform": "truncate", "width": 2}, "c_string_trunc"),
        ({"field": "s.at", "transform": "day"}, "s_at_day"),
        ({"field": "s.id"}, "s_id"),
        ({"field": "maybe.at", "transform": "month"}, "maybe_at_month"),
        ({"field": "c_long", "name": None}, "c_long"),
    ],
)
def test_a_partition_without_a_name_is_named_as_spark_would_without_dots(item: Any, name: str) -> None:
    assert parsed(item)[0].name == name


@pytest.mark.parametrize("value", [None, {"partitions": []}])
def test_no_partition_is_no_partitioning(value: Any) -> None:
    assert parse_partition(value, SCHEMA) == ()


@pytest.mark.parametrize("value", [[], "x", 5, {}, {"partitions": {}}, {"partitions": None}, {"partition": []}])
def test_what_is_no_list_of_partitions_is_refused(value: Any) -> None:
    with pytest.raises(InvalidSchema):
        parse_partition(value, SCHEMA)


def test_all_missing_columns_are_named_with_the_nearest_ones() -> None:
    error = refused({"field": "c_lng"}, {"field": "c_long"}, {"field": "xyzzy"})
    assert error.message == "Partition columns not found: c_lng, xyzzy; did you mean 'c_long' for 'c_lng'?"
    assert (error.field, error.suggestion) == ("partition.partitions[0].field", "c_long")


@pytest.mark.parametrize(
    ("item", "where", "suggestion"),
    [
        (5, "", None),
        ({}, ".field", None),
        ({"field": 5}, ".field", None),
        ({"field": "c_lon"}, ".field", "c_long"),
        ({"field": "l.x"}, ".field", "l"),
        ({"field": "l.element.x"}, ".field", "l"),
        ({"field": "s"}, ".transform", None),
        ({"field": "l"}, ".transform", None),
        ({"field": "maybe.id"}, ".transform", None),
        ({"field": "c_date", "transform": "months"}, ".transform", "month"),
        ({"field": "c_date", "transform": []}, ".transform", None),
        ({"field": "c_long", "transform": "bucket"}, ".num_buckets", None),
        ({"field": "c_long", "transform": "bucket", "num_buckets": 0}, ".num_buckets", None),
        ({"field": "c_long", "transform": "bucket", "num_buckets": True}, ".num_buckets", None),
        ({"field": "c_long", "transform": "bucket", "num_buckets": "4"}, ".num_buckets", None),
        ({"field": "c_long", "transform": "bucket", "num_buckets": 2**31}, ".num_buckets", None),
        ({"field": "c_long", "transform": "truncate", "width": 0}, ".width", None),
        ({"field": "c_long", "transform": "truncate", "width": 1, "num_buckets": 3}, ".num_buckets", None),
        ({"field": "c_long", "width": 3}, ".width", None),
        ({"field": "c_long", "feild": 3}, ".feild", "field"),
        ({"field": "c_long", "name": "a.b"}, ".name", None),
        ({"field": "c_long", "name": ""}, ".name", None),
        ({"field": "c_long", "name": "c_uuid"}, ".name", None),
        ({"field": "c_long", "name": "C_LONG"}, ".name", None),
        ({"field": "ts", "transform": "day"}, ".name", None),
        ({"field": "c_date", "transform": "day", "name": "c_date"}, ".name", None),
    ],
)
def test_a_bad_partition_is_refused_at_its_path(item: Any, where: str, suggestion: str | None) -> None:
    error = refused(item)
    assert error.field == f"partition.partitions[0]{where}"
    assert error.suggestion == suggestion


@pytest.mark.parametrize(
    "second",
    [
        {"field": "c_date", "transform": "day"},
        {"field": "c_date", "transform": "month", "name": "other"},
        {"field": "c_date", "transform": "year", "name": "other"},
        {"field": "c_long", "name": "C_DATE_DAY"},
    ],
)
def test_a_repeated_name_or_a_second_time_of_one_column_is_refused(second: Any) -> None:
    assert str(refused({"field": "c_date", "transform": "day"}, second).field).startswith("partition.partitions[1]")


def test_one_column_may_be_bucketed_in_two_ways_but_not_twice_in_one() -> None:
    four = {"field": "c_long", "transform": "bucket", "num_buckets": 4}
    assert len(parsed(four, {**four, "num_buckets": 8, "name": "eight"})) == 2
    assert refused(four, {**four, "name": "again"}).field == "partition.partitions[1].transform"

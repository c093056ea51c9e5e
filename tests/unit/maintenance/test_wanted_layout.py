"""A partitioning that a request wants: found, named, or refused in words that help."""

from typing import Any

import pytest

from service.errors import InvalidSchema
from service.maintenance.repartition.layout import parse_layout, refuse_partition_names
from service.model.expressions import parse_expression
from service.model.schema.definition import parse_schema
from service.model.schema.derived import DerivedColumn
from service.model.schema.partition import PartitionField

SCHEMA = parse_schema(
    {
        "fields": {
            "id": {"type": "long"},
            "product_id": {"type": "string"},
            "ts": {"type": "timestamp"},
            "where": {"type": "struct", "required": True, "fields": {"city": {"type": "string"}}},
        }
    }
)
BY_DAY = (PartitionField("ts", "day", "ts_day"),)


def layout(*fields: dict[str, Any], present: Any = (), past: Any = ()) -> tuple[PartitionField, ...]:
    return parse_layout({"partitions": list(fields)}, SCHEMA, present, past)


@pytest.mark.parametrize(
    ("fields", "expected", "field", "suggestion"),
    [
        (["prodct_id"], "Partition columns not found: prodct_id; did you mean 'product_id'?", 0, "product_id"),
        (
            ["id", "tss", "xyzzy"],
            "Partition columns not found: tss, xyzzy; did you mean 'ts' for 'tss'?",
            1,
            "ts",
        ),
        (
            ["tss", "idd"],
            "Partition columns not found: tss, idd; did you mean 'ts' for 'tss' and 'id' for 'idd'?",
            0,
            "ts",
        ),
        (["xyzzy"], "Partition columns not found: xyzzy; use one of id, product_id, ts, where, where.city", 0, None),
        (["where.citty"], "Partition columns not found: where.citty; did you mean 'where.city'?", 0, "where.city"),
    ],
)
def test_columns_that_are_not_there_are_all_named_with_the_nearest_ones(
    fields: list[str], expected: str, field: int, suggestion: str | None
) -> None:
    with pytest.raises(InvalidSchema) as e:
        layout(*({"field": name} for name in fields))
    assert (e.value.message, e.value.suggestion) == (expected, suggestion)
    assert e.value.field == f"partition.partitions[{field}].field"


def test_what_is_not_asked_for_stays() -> None:
    assert parse_layout(None, SCHEMA, BY_DAY, BY_DAY) == BY_DAY


def test_the_present_partitioning_keeps_the_names_it_has() -> None:
    present = (PartitionField("ts", "day", "d"),)
    assert layout({"field": "ts", "transform": "day"}, present=present, past=present) == present


def test_a_name_that_was_asked_for_is_given_also_where_nothing_else_changes() -> None:
    [field] = layout({"field": "ts", "transform": "day", "name": "d"}, present=BY_DAY, past=BY_DAY)
    assert field.name == "d"


def test_a_partition_field_that_there_was_before_has_its_name_again() -> None:
    fields = layout({"field": "ts", "transform": "day"}, {"field": "id"}, past=BY_DAY)
    assert [f.name for f in fields] == ["ts_day", "id"]


def test_a_name_that_meant_something_else_is_not_given_twice() -> None:
    past = (PartitionField("id", "bucket", "id_bucket", 4), PartitionField("id", "bucket", "id_bucket_8", 2))
    [field] = layout({"field": "id", "transform": "bucket", "num_buckets": 8}, past=past)
    assert field == PartitionField("id", "bucket", "id_bucket_8_2", 8)
    [again] = layout({"field": "id", "transform": "bucket", "num_buckets": 8}, past=(*past, field))
    assert again == field


def test_a_name_that_meant_something_else_is_refused_where_it_was_asked_for() -> None:
    past = (PartitionField("id", "bucket", "part", 4),)
    with pytest.raises(InvalidSchema, match=r"partitions\[0\]\.name: 'part' was the name of another") as e:
        layout({"field": "id", "transform": "bucket", "num_buckets": 8, "name": "part"}, past=past)
    assert e.value.field == "partition.partitions[0].name"


def test_what_cannot_be_partitioned_by_is_refused_as_when_a_table_is_made() -> None:
    with pytest.raises(InvalidSchema, match="hour cannot use 'id'"):
        layout({"field": "id", "transform": "hour"})


def test_a_new_column_cannot_have_the_name_of_a_partition_field() -> None:
    derived = DerivedColumn("TS_day", parse_expression("1", lambda name, path: None, "x", InvalidSchema))  # type: ignore[arg-type,return-value]
    with pytest.raises(InvalidSchema, match=r"transform\.TS_day is the name of a partition field, day of 'ts'"):
        refuse_partition_names([derived], BY_DAY)

"""What a QUERY's parts ask, and the SQL that asks Spark for it."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from service.engine.jobs.select import statement
from service.engine.sql.sql import Parameters
from service.errors import FirnError, InvalidFilter, InvalidQuery, UnknownField
from service.model.query.items import Aggregations, Joins, Projection, Sorts
from service.model.query.model import Query, TableSource
from service.model.query.plan import QueryParts, plan_query
from service.model.schema.definition import parse_schema
from service.model.schema.types import DecimalType, Primitive

PEOPLE = TableSource(
    "`firn`.`t__default`.`people`",
    "people",
    parse_schema(
        {
            "fields": {
                "id": {"type": "long", "required": True},
                "name": {"type": "string"},
                "age": {"type": "integer"},
                "price": {"type": "decimal(10,2)"},
                "day": {"type": "date"},
                "ts": {"type": "timestamp"},
                "m": {"type": "map", "key_type": "string", "value_type": "string"},
                "address": {"type": "struct", "fields": {"city": {"type": "string"}}},
            }
        }
    ),
    7,
)
ORDERS = TableSource(
    "`firn`.`t__default`.`orders`",
    "o",
    parse_schema(
        {"fields": {"id": {"type": "long"}, "person_id": {"type": "long"}, "total": {"type": "decimal(10,2)"}}}
    ),
)
FROM = "FROM `firn`.`t__default`.`people` VERSION AS OF 7 AS `people`"
TAIL = "LIMIT 1001 OFFSET 0"


def planned(**parts: Any) -> Query:
    read: dict[str, Any] = {
        "projection": Projection,
        "group_by": Projection,
        "aggregations": Aggregations,
        "sort": Sorts,
    }
    given = {name: TypeAdapter(read[name]).validate_python(v) if name in read else v for name, v in parts.items()}
    joins = TypeAdapter(Joins).validate_python(given.pop("join", None))
    return plan_query(QueryParts(**given, joins=joins), PEOPLE, [ORDERS] * len(joins))


def text(**parts: Any) -> str:
    return statement(planned(**parts), Parameters(), {})


def names(**parts: Any) -> list[str]:
    return [output.name for output in planned(**parts).outputs]


def test_a_plain_query_reads_every_column_at_a_snapshot() -> None:
    columns = ", ".join(f"`people`.`{name}` AS c{i}" for i, name in enumerate(PEOPLE.schema.names))
    assert text() == f"SELECT {columns} {FROM} WHERE TRUE {TAIL}"
    assert names() == list(PEOPLE.schema.names)


def test_one_row_more_than_the_limit_is_asked_for() -> None:
    assert text(projection="id", limit=10, offset=20).endswith(" LIMIT 11 OFFSET 20")


def test_an_output_is_called_what_was_asked_for() -> None:
    assert names(projection=["address.city", "people.id", {"field": "name", "alias": "n"}, "m.k"]) == [
        *("address.city", "people.id", "n", "m.k")
    ]


@pytest.mark.parametrize(
    ("item", "expression"),
    [
        ({"field": "name", "upper": True, "trim": True}, "upper(trim(`people`.`name`))"),
        ({"field": "name", "substring": [2, 3], "lower": True}, "substring(lower(`people`.`name`), :p0, :p1)"),
        ({"field": "age", "cast": "string"}, "CAST(`people`.`age` AS STRING)"),
        ({"field": "ts", "date_trunc": "month"}, "CAST(date_trunc(:p0, `people`.`ts`) AS TIMESTAMP_NTZ)"),
        ({"field": "day", "date_trunc": "MONTH"}, "CAST(date_trunc(:p0, `people`.`day`) AS DATE)"),
        ({"field": "ts", "date_format": "yyyy-MM"}, "date_format(`people`.`ts`, :p0)"),
        ({"field": "ts", "extract": "year"}, "date_part(:p0, `people`.`ts`)"),
        (
            {"field": "name", "date_trunc": "year", "cast": "timestamp"},
            "CAST(date_trunc(:p0, CAST(`people`.`name` AS TIMESTAMP_NTZ)) AS TIMESTAMP_NTZ)",
        ),
    ],
)
def test_a_projection_s_steps_stand_in_their_order(item: dict[str, Any], expression: str) -> None:
    assert text(projection=[item]) == f"SELECT {expression} AS c0 {FROM} WHERE TRUE {TAIL}"


@pytest.mark.parametrize(
    ("filter_", "condition"),
    [
        ({"id": 5}, "`people`.`id` IN (:p0, NULL)"),
        (
            {"day": "2024-01-31", "age": 3},
            "(`people`.`day` IN (CAST(:p0 AS DATE), NULL) AND `people`.`age` IN (:p1, NULL))",
        ),
        ({"name": "Ann"}, "`people`.`name` = :p0"),
        ({"price": 2}, "`people`.`price` = CAST(:p0 AS DECIMAL(10,2))"),
        ({"id": {"gt": 5}}, "`people`.`id` > :p0"),
        # Beside an expression, which may fail for rows without the number.
        (
            {"id": 5, "expression": "1 / age > 2"},
            "(`people`.`id` = :p0 AND ((:p1 / `people`.`age`) > :p2))",
        ),
        # Beyond the conjunction a null is not the same as false.
        ({"not": {"id": 5}}, "(NOT `people`.`id` = :p0)"),
        ({"or": [{"id": 5}, {"id": 6}]}, "(`people`.`id` = :p0 OR `people`.`id` = :p1)"),
    ],
)
def test_a_number_that_is_looked_for_stands_beside_spark_s_code_and_not_in_it(
    filter_: dict[str, Any], condition: str
) -> None:
    assert text(projection="id", filter=filter_) == f"SELECT `people`.`id` AS c0 {FROM} WHERE {condition} {TAIL}"


def test_a_snapshot_that_the_session_keeps_is_read_by_its_view() -> None:
    kept = {(PEOPLE.spark_name, 7): "`_firn_1`"}
    read = statement(planned(projection="id"), Parameters(), kept)
    assert read == f"SELECT `people`.`id` AS c0 FROM `_firn_1` AS `people` WHERE TRUE {TAIL}"


def test_groups_are_made_inside_and_having_and_sort_apply_to_them() -> None:
    assert text(
        group_by=["address.city"],
        aggregations=[{"op": "count"}, {"function": "sum", "field": "price", "alias": "spent"}],
        filter={"age": {"gt": 1}},
        having={"spent": {"gt": 5}},
        sort=[{"field": "count", "order": "desc"}, "address.city"],
    ) == (
        "SELECT `g0` AS c0, `a0` AS c1, `a1` AS c2 FROM (SELECT `people`.`address`.`city` AS g0, count(*) AS a0, "
        f"sum(`people`.`price`) AS a1 {FROM} WHERE `people`.`age` > :p0 GROUP BY 1) "
        "WHERE `a1` > CAST(:p1 AS DECIMAL(20,2)) ORDER BY c1 DESC NULLS LAST, c0 ASC NULLS FIRST LIMIT 1001 OFFSET 0"
    )


def test_a_group_may_be_computed_and_named_by_its_alias() -> None:
    month = {"field": "ts", "date_trunc": "month", "alias": "month"}
    by_alias = planned(projection=[month], group_by=["month"], aggregations=[{"op": "count"}])
    assert by_alias.outputs == planned(group_by=[month], aggregations=[{"op": "count"}]).outputs
    assert by_alias.grouping == planned(group_by=[month], aggregations=[{"op": "count"}]).grouping


def test_a_group_need_not_be_an_output_and_can_still_sort() -> None:
    parts = {"projection": ["age"], "group_by": ["age", "name"], "aggregations": {"op": "count"}, "sort": "name"}
    assert names(**parts) == ["age", "count"]
    assert "ORDER BY `g1` ASC" in text(**parts)


def test_aggregates_without_groups_are_one_row_and_can_be_filtered() -> None:
    assert "GROUP BY" not in text(aggregations={"op": "count"}, having={"count": {"gt": 1}})


@pytest.mark.parametrize(
    ("aggregation", "name", "expression", "kind"),
    [
        ({"op": "count"}, "count", "count(*)", Primitive("long")),
        ({"op": "count", "field": "*"}, "count", "count(*)", Primitive("long")),
        ({"op": "count", "field": "age", "distinct": True}, "count_age", "count(DISTINCT {})", Primitive("long")),
        ({"op": "count_distinct", "field": "age"}, "count_distinct_age", "count(DISTINCT {})", Primitive("long")),
        ({"op": "sum", "field": "age"}, "sum_age", "sum({})", Primitive("long")),
        ({"op": "avg", "field": "age"}, "avg_age", "avg({})", Primitive("double")),
        ({"op": "avg", "field": "price"}, "avg_price", "avg({})", DecimalType(14, 6)),
        ({"op": "max", "field": "day"}, "max_day", "max({})", Primitive("date")),
        ({"op": "stddev", "field": "price"}, "stddev_price", "stddev_samp({})", Primitive("double")),
        ({"op": "variance", "field": "age"}, "variance_age", "var_samp({})", Primitive("double")),
        ({"op": "median", "field": "age"}, "median_age", "median({})", Primitive("double")),
        ({"op": "min", "field": "address.city"}, "min_address_city", "min({})", Primitive("string")),
    ],
)
def test_an_aggregate_has_a_name_and_a_type(aggregation: Any, name: str, expression: str, kind: Any) -> None:
    [output] = planned(aggregations=aggregation).outputs
    assert (output.name, output.value.type) == (name, kind)
    column = "`people`." + ".".join(f"`{part}`" for part in aggregation.get("field", "").split("."))
    assert f"(SELECT {expression.format(column)} AS a0 FROM" in text(aggregations=aggregation)


@pytest.mark.parametrize(
    ("on", "condition"),
    [
        ("id", "`people`.`id` = `o`.`id`"),
        (["id"], "`people`.`id` = `o`.`id`"),
        ({"id": "person_id"}, "`people`.`id` = `o`.`person_id`"),
        ({"left": "people.id", "right": "o.person_id"}, "`people`.`id` = `o`.`person_id`"),
        ({"left": "o.person_id", "right": "people.id", "operator": "gt"}, "`people`.`id` < `o`.`person_id`"),
        (
            [{"id": "person_id"}, {"left": "price", "right": "total", "operator": "lte"}],
            "`people`.`id` = `o`.`person_id` AND `people`.`price` <= `o`.`total`",
        ),
    ],
)
def test_a_join_s_condition_can_be_said_in_several_ways(on: Any, condition: str) -> None:
    found = text(projection=["total"], join={"table": "orders", "type": "left", "on": on})
    assert f"{FROM} LEFT JOIN `firn`.`t__default`.`orders` AS `o` ON {condition} WHERE" in found


def test_a_join_shows_every_column_and_tells_equal_names_apart() -> None:
    assert names(join={"table": "orders", "on": "id"}) == [*PEOPLE.schema.names, "o.id", "person_id", "total"]


def test_sort_takes_outputs_first_and_then_columns() -> None:
    swapped = [{"field": "age", "alias": "id"}, {"field": "id", "alias": "age"}]
    assert "ORDER BY c0 ASC NULLS FIRST LIMIT" in text(projection=swapped, sort="id")
    assert "ORDER BY `people`.`age` DESC NULLS LAST LIMIT" in text(
        projection="id", sort={"field": "age", "order": "desc"}
    )
    assert "c0 DESC NULLS FIRST" in text(projection="id", sort={"field": "id", "order": "desc", "nulls_first": True})


@pytest.mark.parametrize(
    ("parts", "error", "field"),
    [
        ({"projection": ["nme"]}, UnknownField, "projection[0].field"),
        ({"projection": ["id", {"field": "name", "alias": "id"}]}, InvalidQuery, "projection"),
        ({"projection": [{"field": "age", "upper": True}]}, InvalidQuery, "projection[0].upper"),
        ({"projection": [{"field": "name", "upper": True, "lower": True}]}, InvalidQuery, "projection[0].lower"),
        ({"projection": [{"field": "name", "substring": [0, 2]}]}, InvalidQuery, "projection[0].substring"),
        ({"projection": [{"field": "name", "substring": [1]}]}, InvalidQuery, "projection[0].substring"),
        ({"projection": [{"field": "day", "date_trunc": "hour"}]}, InvalidQuery, "projection[0].date_trunc"),
        ({"projection": [{"field": "name", "cast": "int"}]}, InvalidQuery, "projection[0].cast"),
        ({"projection": [{"field": "address", "cast": "string"}]}, InvalidQuery, "projection[0].cast"),
        ({"projection": [{"field": "day", "cast": "long"}]}, InvalidQuery, "projection[0].cast"),
        ({"projection": ["name"], "aggregations": {"op": "count"}}, InvalidQuery, "projection[0]"),
        ({"group_by": ["m"]}, InvalidQuery, "group_by[0]"),
        ({"aggregations": {"op": "sum"}}, InvalidQuery, "aggregations[0].field"),
        ({"aggregations": {"op": "sum", "field": "name"}}, InvalidQuery, "aggregations[0].field"),
        ({"aggregations": {"op": "max", "field": "address"}}, InvalidQuery, "aggregations[0].field"),
        ({"aggregations": {"op": "sum", "function": "avg", "field": "age"}}, InvalidQuery, "aggregations[0].op"),
        ({"aggregations": {"field": "age"}}, InvalidQuery, "aggregations[0].op"),
        ({"aggregations": {"op": "count", "distinct": True}}, InvalidQuery, "aggregations[0].field"),
        ({"having": {"age": 1}}, InvalidQuery, "having"),
        ({"group_by": "age", "having": {"name": "x"}}, UnknownField, "having.name"),
        ({"group_by": "age", "sort": "name"}, UnknownField, "sort[0].field"),
        ({"projection": "age", "distinct": True, "sort": "name"}, UnknownField, "sort[0].field"),
        ({"distinct": True}, InvalidQuery, "distinct"),
        ({"sort": "m"}, InvalidQuery, "sort[0].field"),
        ({"filter": {"age": 1}, "filters": []}, InvalidFilter, "filters"),
        ({"projection": ["id"], "join": {"table": "orders", "on": "id"}}, InvalidQuery, "projection[0].field"),
        ({"join": {"table": "orders", "on": []}}, InvalidQuery, "join[0].on"),
        ({"join": {"table": "orders", "on": {"name": "person_id"}}}, InvalidQuery, "join[0].on.name"),
        ({"join": {"table": "orders", "on": {"nme": "id"}}}, UnknownField, "join[0].on.nme"),
        ({"join": {"table": "orders", "on": {"left": "id", "right": "id", "op": "eq"}}}, UnknownField, "join[0].on.op"),
        (
            {"join": {"table": "orders", "on": {"left": "id", "right": "id", "operator": "like"}}},
            InvalidQuery,
            "join[0].on.operator",
        ),
        ({"join": [{"table": "orders", "on": "id"}] * 2}, InvalidQuery, "join[1].on"),
    ],
)
def test_what_cannot_be_asked_is_refused_where_it_stands(parts: Any, error: type[FirnError], field: str) -> None:
    with pytest.raises(error) as caught:
        planned(**parts)
    assert (type(caught.value), caught.value.field) == (error, field)


def test_an_ambiguous_name_is_answered_with_the_choices() -> None:
    with pytest.raises(InvalidQuery, match=r"is ambiguous; write people\.id or o\.id"):
        planned(projection=["id"], join={"table": "orders", "on": "id"})

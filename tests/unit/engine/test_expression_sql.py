"""Nothing of an expression's text reaches Spark: names are quoted, constants parameters, functions the table's."""

import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.sql.sql import Parameters, _infinite, expression, new_value, where
from service.errors import InvalidFilter, InvalidRequest
from service.model.expressions import Expression, parse_expression
from service.model.expressions.assigned import read_assignment
from service.model.expressions.functions import FUNCTIONS
from service.model.filters.filters import parse_filter
from service.model.schema.columns import Column, columns_of
from service.model.schema.definition import parse_schema
from service.model.schema.types import Field, Primitive
from tests.expressions import SCHEMA, Tree, trees, written

RENDERED = re.compile(
    r"`(?:[^`]|``)*`|:p[0-9]+|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|[0-9]+(?:\.[0-9]D)?|<=>|<>|<=|>=|->|[-+*/%=<>(),.\[\] ]"
)
WORDS = {
    *("AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "DIV", "CASE", "WHEN", "THEN"),
    *("ELSE", "END", "CAST", "TRY_CAST", "AS", "STRING", "INT", "BIGINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP"),
    *("TIMESTAMP_NTZ", "BINARY", "DECIMAL", "array", "transform", "element_at", "_firn_value", "regexp_like", "lower"),
    *("raise_error", "concat", "same", "octet_length", "to_json", "struct"),
}


def parsed(text: str) -> Expression:
    return parse_expression(text, columns_of(SCHEMA), "filter.expression", InvalidFilter)


def rendered(text: str) -> tuple[str, list[Any]]:
    parameters = Parameters()
    return expression(parsed(text), parameters), list(parameters.values.values())


@pytest.mark.parametrize(
    ("text", "sql", "values"),
    [
        ("(a - b) / x * 10000", "(((`a` - `b`) / `x`) * :p0)", [10000]),
        ("- a = -1", "((- `a`) = :p0)", [-1]),
        ("1.50 + 1e3", "(CAST(:p0 AS DECIMAL(3,2)) + CAST(:p1 AS DOUBLE))", ["1.50", "1000.0"]),
        ("NULL IS NULL", "(NULL IS NULL)", []),
        ("ok AND NOT ok AND true", "(`ok` AND (NOT `ok`) AND :p0)", [True]),
        ("a IN (1, NULL)", "(`a` IN (:p0, NULL))", [1]),
        ("a NOT BETWEEN 1 AND b", "(NOT (`a` BETWEEN :p0 AND `b`))", [1]),
        ("name ILIKE 'a%'", "(`name` ILIKE :p0)", ["a%"]),
        ("a DIV 2 <=> b", "((`a` DIV :p0) <=> `b`)", [2]),
        ("CASE a WHEN 1 THEN 'x' ELSE name END", "CASE `a` WHEN :p0 THEN :p1 ELSE `name` END", [1, "x"]),
        ("CASE WHEN ok THEN 1 END", "CASE WHEN `ok` THEN :p0 END", [1]),
        ("CAST(name AS decimal(4,1))", "CAST(`name` AS DECIMAL(4,1))", []),
        ("TRY_CAST(name AS timestamp)", "TRY_CAST(`name` AS TIMESTAMP_NTZ)", []),
        ("CAST(bin AS string)", "validate_utf8(CAST(`bin` AS STRING))", []),
        ("TRY_CAST(bin AS string)", "try_validate_utf8(CAST(`bin` AS STRING))", []),
        ("a || name", "concat(CAST(`a` AS STRING), `name`)", []),
        ("home.city = m.k || ''", "(`home`.`city` = concat(CAST(`m`[:p0] AS STRING), :p1))", ["k", ""]),
        ("`other name` = name", "(`other name` = `name`)", []),
        ("day > '2024-01-31'", "(`day` > CAST(:p0 AS DATE))", ["2024-01-31"]),
        ("date_trunc('MONTH', ts)", "CAST(date_trunc(:p0, `ts`) AS TIMESTAMP_NTZ)", ["month"]),
        ("pi()", "pi()", []),
    ],
)
def test_an_expression_as_sql(text: str, sql: str, values: list[Any]) -> None:
    assert rendered(text) == (sql, values)


def test_a_uuid_is_compared_by_spark_alone() -> None:
    key = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
    assert rendered(f"u = '{key.upper()}'") == ("(concat(`u`, '') = :p0)", [key])
    assert rendered("u IN (name)") == ("(concat(`u`, '') IN (`name`))", [])
    assert rendered("upper(home.key) IS NULL") == ("(upper(concat(`home`.`key`, '')) IS NULL)", [])
    assert rendered("u IS NULL") == ("(`u` IS NULL)", [])


def test_a_computed_boolean_within_an_operand_is_evaluated_by_spark_alone() -> None:
    alone = "element_at(transform(array({}), same -> same), 1)".format
    assert rendered("(a = 1.50) IS NULL")[0] == f"({alone('(`a` = CAST(:p0 AS DECIMAL(3,2)))')} IS NULL)"
    assert rendered("coalesce(a < b, ok)")[0] == f"coalesce({alone('(`a` < `b`)')}, `ok`)"
    assert (
        rendered("CASE WHEN a < b THEN ok AND NULL END")[0]
        == f"CASE WHEN (`a` < `b`) THEN {alone('(`ok` AND NULL)')} END"
    )
    assert rendered("NOT (a < b AND (ok OR b > a))")[0] == "(NOT ((`a` < `b`) AND (`ok` OR (`b` > `a`))))"


def test_a_text_becomes_a_uuid_only_if_it_is_one() -> None:
    sql, values = rendered("CAST(name AS uuid)")
    assert "regexp_like(_firn_value, :p0)" in sql
    assert "raise_error(:p1)" in sql
    assert str(values[1]).startswith("refused by Firn: ")
    assert "raise_error" not in rendered("TRY_CAST(name AS uuid)")[0]


HOSTILE = st.text(st.characters(codec="utf-8") | st.sampled_from("'\"`\\;-/*:${}?\n"), max_size=30)


@given(HOSTILE)
def test_no_text_ever_stands_in_the_sql(value: str) -> None:
    quoted = value.replace("'", "''")
    assert rendered(f"name = '{quoted}' OR upper('{quoted}') = name") == (
        "((`name` = :p0) OR (upper(:p1) = `name`))",
        [value, value],
    )


@given(HOSTILE.filter(lambda name: bool(name.strip("."))))
def test_a_name_cannot_leave_its_quotes(name: str) -> None:
    def resolve(found: str, path: str) -> Column:
        assert found == name
        return Column(found, (found,), Primitive("long"))

    read = parse_expression(f"`{name.replace('`', '``')}` + 1", resolve, "e", InvalidRequest)
    parameters = Parameters()
    assert expression(read, parameters) == f"(`{name.replace('`', '``')}` + :p0)"


@given(trees(4))
def test_only_known_words_names_and_parameters_are_rendered(tree: Tree) -> None:
    text = written(tree, full=False)
    parameters = Parameters()
    sql = expression(parsed(text), parameters)
    place = 0
    while place < len(sql):
        part = RENDERED.match(sql, place)
        assert part, sql[place:]
        assert part["word"] is None or part["word"] in WORDS or part["word"] in FUNCTIONS
        place = part.end()
    assert sql.count(":p") == len(parameters.values)


@given(trees())
def test_a_rendering_depends_on_the_tree_alone(tree: Tree) -> None:
    one, other = Parameters(), Parameters()
    few = expression(parsed(written(tree, full=False)), one)
    many = expression(parsed(written(tree, full=True)), other)
    assert (few, one.values) == (many, other.values)


@pytest.mark.parametrize(
    ("asked", "sql"),
    [
        ({"expression": "a < b"}, "(`a` < `b`)"),
        ({"not": {"expression": "a < b"}}, "(NOT (`a` < `b`))"),
        ([{"expression": "a < b"}, {"field": "a", "operator": "is_null"}], "((`a` < `b`) AND `a` IS NULL)"),
        ({"or": [{"expression": "ok"}, {"name": None}]}, "(`ok` OR `name` IS NULL)"),
        ({"expression": "a < b", "ok": None}, "((`a` < `b`) AND `ok` IS NULL)"),
    ],
)
def test_an_expression_is_a_condition_among_others(asked: Any, sql: str) -> None:
    assert where(parse_filter(asked, columns_of(SCHEMA)), Parameters()) == sql


ROW = parse_schema(
    {
        "fields": {
            "id": {"type": "long", "required": True},
            "price": {"type": "decimal(6,2)"},
            "name": {"type": "string"},
            "day": {"type": "date"},
            "seen": {"type": "timestamptz"},
            "ratio": {"type": "double"},
            "share": {"type": "float"},
            "sizes": {"type": "array", "items": "double"},
            "u": {"type": "uuid"},
            "tags": {"type": "array", "items": "string"},
            "m": {"type": "map", "key_type": "string", "value_type": "string"},
            "s": {"type": "struct", "fields": {"expression": {"type": "string"}}},
            "t": {"type": "struct", "fields": {"city": {"type": "string"}}},
        }
    }
)


def assigned(column: str, value: Any) -> tuple[str, list[Any]]:
    field = next(f for f in ROW.fields if f.name == column)
    parameters = Parameters()
    read = read_assignment(field, value, columns_of(ROW), f"updates.{column}")
    return new_value(field.type, read, parameters), list(parameters.values.values())


@pytest.mark.parametrize(
    ("column", "text", "sql", "values"),
    [
        ("price", "price * 1.1", "CAST((`price` * CAST(:p0 AS DECIMAL(2,1))) AS DECIMAL(6,2))", ["1.1"]),
        ("price", "NULL", "CAST(NULL AS DECIMAL(6,2))", []),
        ("name", "u", "CAST(concat(`u`, '') AS STRING)", []),
        ("day", "'2024-01-31'", "CAST(CAST(:p0 AS DATE) AS DATE)", ["2024-01-31"]),
        ("seen", "day", "CAST(`day` AS TIMESTAMP)", []),
        ("tags", "tags", "`tags`", []),
        ("tags", "NULL", "CAST(NULL AS ARRAY<STRING>)", []),
        ("t", "t", "`t`", []),
    ],
)
def test_a_column_is_set_to_an_expression_in_its_own_type(column: str, text: str, sql: str, values: list[Any]) -> None:
    assert assigned(column, {"expression": text}) == (sql, values)


def test_a_required_column_set_to_null_by_an_expression_is_an_error_of_that_row() -> None:
    sql, values = assigned("id", {"expression": "id + 1"})
    assert sql == "coalesce(CAST((`id` + :p0) AS BIGINT), raise_error(:p1))"
    assert values[0] == 1
    assert values[1].startswith("refused by Firn: updates.id.expression: the expression is null for a row")


def test_a_computed_time_is_within_the_years_that_are_written() -> None:
    sql, values = assigned("day", {"expression": "CAST(seen AS date)"})
    assert sql == (
        "element_at(transform(array(CAST(CAST(`seen` AS DATE) AS DATE)), _firn_value -> CASE WHEN _firn_value BETWEEN "
        "CAST(:p0 AS DATE) AND CAST(:p1 AS DATE) THEN _firn_value WHEN _firn_value IS NOT NULL "
        "THEN raise_error(:p2) END), 1)"
    )
    assert values[:2] == ["0001-01-01", "9999-12-31"]
    assert "updates.day.expression: the expression gives a time outside the years 1 to 9999" in values[2]


def test_a_literal_is_what_it_was() -> None:
    assert assigned("price", "1.50") == ("CAST(:p0 AS DECIMAL(6,2))", ["1.50"])
    assert assigned("price", Decimal(1)) == ("CAST(:p0 AS DECIMAL(6,2))", ["1.00"])
    assert assigned("name", None) == ("CAST(NULL AS STRING)", [])


def test_an_object_is_a_literal_for_a_map_and_for_a_struct_with_such_a_field() -> None:
    assert assigned("m", {"expression": "a"})[1] == ["expression", "a"]
    assert assigned("s", {"expression": "a"})[1] == ["expression", "a"]
    assert assigned("t", {"city": "a"})[1] == ["city", "a"]


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("id", None, "updates.id: the column is required; send a value"),
        ("id", {"expression": "NULL"}, "updates.id.expression: it is always null, but the column is required"),
        ("id", {"expression": "name"}, "is text, but the column is long; convert it with CAST(… AS long)"),
        ("price", {"expression": "'5'"}, "is text, but the column is decimal(6,2); convert it with CAST"),
        ("name", {"expression": "id"}, "is a number, but the column is string; convert it with CAST(… AS string)"),
        ("day", {"expression": "seen"}, "is timestamptz, but the column is date; convert it with CAST(… AS date)"),
        ("day", {"expression": "'soon'"}, "'soon' is not a date"),
        ("u", {"expression": "name"}, "is text, but the column is uuid; convert it with CAST(… AS uuid)"),
        ("u", {"expression": "'x'"}, "'x' is not a uuid"),
        ("tags", {"expression": "name"}, "is text, but the column is array<string>; only a column of that type can"),
        ("t", {"expression": "s"}, "is a struct, but the column is struct<city:string>; only a column"),
        ("id", {"expression": "day"}, "is a date or a time, but the column is long; only numbers"),
        ("id", {"expression": 5}, "expected text such as"),
        ("id", {"expression": "id", "x": 1}, "an object is not a long"),
        ("id", {}, "an object is not a long"),
    ],
)
def test_what_does_not_fit_a_column_is_refused(column: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        assigned(column, value)
    assert words in caught.value.message
    assert str(caught.value.field).startswith(f"updates.{column}")


def test_an_optional_field_is_not_checked_for_nulls() -> None:
    read = read_assignment(Field("a", Primitive("long")), {"expression": "id"}, columns_of(ROW), "updates.a")
    assert "raise_error" not in new_value(Primitive("long"), read, Parameters())


@pytest.mark.parametrize(
    ("column", "text", "infinite", "error"),
    [
        ("ratio", "id * 2", "", ":p2"),
        ("ratio", "ratio * share", " OR (abs(`ratio`) <=> {i}) OR (abs(`share`) <=> {i})", ":p1"),
        ("share", "ratio", " OR (abs(`ratio`) <=> {i})", ":p1"),
        ("ratio", "array_max(sizes)", " OR coalesce(exists(`sizes`, part0 -> (abs(part0) <=> {i})), FALSE)", ":p1"),
    ],
)
def test_a_computed_number_is_infinite_only_where_one_it_is_computed_of_is(
    column: str, text: str, infinite: str, error: str
) -> None:
    found, values = assigned(column, {"expression": text})
    i = f"CAST(:p{values.index('Infinity')} AS DOUBLE)"
    computed = found.partition("transform(array(")[2].partition("), _firn_value -> ")[0]
    assert computed.endswith(f" AS {'DOUBLE' if column == 'ratio' else 'FLOAT'})")
    assert found == (
        f"element_at(transform(array({computed}), _firn_value -> CASE WHEN NOT (abs(_firn_value) <=> {i})"
        f"{infinite.format(i=i)} THEN _firn_value WHEN _firn_value IS NOT NULL THEN raise_error({error}) END), 1)"
    )
    assert values[-1].startswith(f"refused by Firn: updates.{column}.expression: the expression gives a number that is")


def test_a_column_s_own_number_needs_no_test() -> None:
    assert assigned("ratio", {"expression": "ratio"}) == ("CAST(`ratio` AS DOUBLE)", [])
    assert assigned("ratio", {"expression": "1e300"})[0] == "CAST(CAST(:p0 AS DOUBLE) AS DOUBLE)"
    assert "raise_error" in assigned("share", {"expression": "1e300"})[0]


FLOATS = {"type": "array", "items": "double"}
NUMBERS = {"a": {"type": "double"}, "b": {"type": "long"}, "c": {"type": "float"}}


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        (
            {"type": "map", "key_type": "string", "value_type": "float"},
            "coalesce(exists(map_values(c), part0 -> (abs(part0) <=> i)), FALSE)",
        ),
        (
            {"type": "array", "items": FLOATS},
            "coalesce(exists(c, part0 -> coalesce(exists(part0, part1 -> (abs(part1) <=> i)), FALSE)), FALSE)",
        ),
        ({"type": "struct", "fields": NUMBERS}, "((abs(c.`a`) <=> i) OR (abs(c.`c`) <=> i))"),
        ({"type": "struct", "fields": {"b": {"type": "long"}}}, None),
        ({"type": "decimal(38,0)"}, None),
    ],
)
def test_an_infinite_number_is_found_wherever_a_column_holds_it(kind: Any, sql: str | None) -> None:
    [field] = parse_schema({"fields": {"c": kind}}).fields
    assert _infinite("c", field.type, "i") == sql

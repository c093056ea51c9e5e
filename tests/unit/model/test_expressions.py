"""An expression means what the same text means in SQL, and says where it goes wrong if it means nothing."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import FirnError, InvalidFilter, InvalidQuery, InvalidRequest, UnknownField
from service.model.expressions import Expression, parse_expression
from service.model.expressions.checks import MAX_HEIGHT, MAX_NODES
from service.model.expressions.functions import FUNCTIONS, TABLE
from service.model.expressions.kinds import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    Kind,
)
from service.model.expressions.parser import MAX_DEPTH, MAX_LENGTH
from service.model.expressions.tree import Cast, Constant, all_nodes
from service.model.query.model import TableSource
from service.model.query.scope import Scope
from service.model.schema.columns import columns_of
from service.model.schema.types import Array, DecimalType, Map, Primitive
from tests.expressions import SCHEMA, Tree, trees, written

UUID_TEXT = "f79c3e09-677c-4bbd-a479-3f349cb785e7"


def parsed(text: Any, error: type[FirnError] = InvalidFilter) -> Expression:
    return parse_expression(text, columns_of(SCHEMA), "filter.expression", error)


def refused(text: Any, error: type[FirnError] = InvalidFilter) -> FirnError:
    with pytest.raises(FirnError) as caught:
        parsed(text, error)
    assert caught.value.field == "filter.expression"
    assert caught.value.message.startswith("filter.expression")
    return caught.value


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a + b * x", "a + (b * x)"),
        ("a - b - x", "(a - b) - x"),
        ("a / b / x", "(a / b) / x"),
        ("a % b * x", "(a % b) * x"),
        ("a div b + x", "(a div b) + x"),
        ("- a * b", "(- a) * b"),
        ("+ a + + b", "a + b"),
        ("name || a || b", "(name || a) || b"),
        ("a + b = x * d", "(a + b) = (x * d)"),
        ("a < b = ok", "(a < b) = ok"),
        ("a = b IS NULL", "(a = b) IS NULL"),
        ("NOT a = b", "NOT (a = b)"),
        ("NOT a IS NULL", "NOT (a IS NULL)"),
        ("NOT ok AND ok", "(NOT ok) AND ok"),
        ("NOT NOT ok", "NOT (NOT ok)"),
        ("ok OR ok AND NOT ok", "ok OR (ok AND (NOT ok))"),
        ("ok AND ok OR ok", "(ok AND ok) OR ok"),
        ("a BETWEEN 1 AND 2 AND ok", "(a BETWEEN 1 AND 2) AND ok"),
        ("a BETWEEN b + 1 AND b * 2 OR ok", "(a BETWEEN (b + 1) AND (b * 2)) OR ok"),
        ("a NOT BETWEEN 1 AND 2", "NOT (a BETWEEN 1 AND 2)"),
        ("a NOT IN (1, 2)", "NOT (a IN (1, 2))"),
        ("name NOT LIKE 'a%'", "NOT (name LIKE 'a%')"),
        ("name IS NOT NULL", "NOT (name IS NULL)"),
        ("name || 'a' LIKE '%a'", "(name || 'a') LIKE '%a'"),
        ("CASE WHEN ok THEN a ELSE b END + 1", "(CASE WHEN ok THEN a ELSE b END) + 1"),
        ("CASE a WHEN 1 THEN 'x' END = 'x'", "(CASE a WHEN 1 THEN 'x' END) = 'x'"),
        ("name || 'a'", "concat(name, 'a')"),
        ("a == b", "a = b"),
        ("a != b", "a <> b"),
    ],
)
def test_operators_bind_as_in_sql(text: str, same: str) -> None:
    assert parsed(text).tree == parsed(same).tree


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Upper(name) Like 'A' aNd TRUE", "upper(name) LIKE 'A' AND true"),
        ("a\n\t+\u00a0b", "a+b"),
        ("`a` + `m`.`k`", "a + m.k"),
        ("date '2024-01-31'", "DATE'2024-01-31'"),
        ("day = '2024-01-31'", "day = DATE '2024-01-31'"),
        ("cast(name as Decimal(10, 2))", "CAST(name AS decimal(10,2))"),
    ],
)
def test_capitals_spaces_and_needless_quotes_mean_nothing(text: str, same: str) -> None:
    assert parsed(text).tree == parsed(same).tree


@given(trees())
def test_parentheses_that_only_say_the_precedence_change_nothing(tree: Tree) -> None:
    assert parsed(written(tree, full=False)).tree == parsed(written(tree, full=True)).tree


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("0", INTEGER, 0),
        ("007", INTEGER, 7),
        ("-2147483648", INTEGER, -(2**31)),
        ("2147483648", LONG, 2**31),
        ("-9223372036854775808", LONG, -(2**63)),
        ("9223372036854775808", DecimalType(19, 0), Decimal(2**63)),
        ("1.50", DecimalType(3, 2), Decimal("1.50")),
        ("- 0.05", DecimalType(2, 2), Decimal("-0.05")),
        (".5", DecimalType(1, 1), Decimal("0.5")),
        ("12.", DecimalType(2, 0), Decimal(12)),
        ("1e3", DOUBLE, 1000.0),
        ("1.5E-3", DOUBLE, 0.0015),
        ("'it''s'", STRING, "it's"),
        ("''", STRING, ""),
        (r"'a\n'", STRING, r"a\n"),
        ("true", BOOLEAN, True),
        ("NULL", None, None),
        ("DATE '2024-01-31'", DATE, date(2024, 1, 31)),
        ("TIMESTAMP '2024-01-31 10:00:00.5'", TIMESTAMP, datetime(2024, 1, 31, 10, 0, 0, 500_000)),
        ("TIMESTAMP '2024-01-31T10:00:00+02:00'", TIMESTAMPTZ, datetime(2024, 1, 31, 8, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-31'", TIMESTAMP, datetime(2024, 1, 31)),
    ],
)
def test_a_constant_is_exact_and_of_the_smallest_type(text: str, kind: Kind, value: Any) -> None:
    assert parsed(text).tree == Constant(kind, value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a + 1", INTEGER),
        ("a + b", LONG),
        ("a / 2", DOUBLE),
        ("a div 2", LONG),
        ("d * 2 > x", BOOLEAN),
        ("x * d", DOUBLE),
        ("a || name", STRING),
        ("coalesce(day, '2024-01-31')", DATE),
        ("coalesce(day, ts)", TIMESTAMP),
        ("coalesce(day, ts, seen)", TIMESTAMPTZ),
        ("CASE WHEN ok THEN a ELSE x END", DOUBLE),
        ("nullif(u, name)", STRING),
        ("coalesce(u, NULL)", UUID),
        ("date_trunc('month', day)", DATE),
        ("date_trunc('HOUR', ts)", TIMESTAMP),
        ("element_at(days, 1)", DATE),
        ("element_at(m, 'k')", INTEGER),
        ("map_keys(m)", Array(STRING, True)),
        ("m", Map(STRING, INTEGER)),
        ("NULL", None),
        ("CASE WHEN ok THEN NULL END", None),
        ("try_cast(name AS uuid)", UUID),
    ],
)
def test_an_expression_s_kind_is_known_before_it_is_computed(text: str, kind: Kind) -> None:
    assert parsed(text).kind == kind


def test_decimals_of_any_size_are_one_kind() -> None:
    for text in ("d + 1", "d * d", "d / 3", "coalesce(d, 1.5)", "abs(d + 1)"):
        assert isinstance(parsed(text).kind, DecimalType)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("1 + 1", set()),
        ("a + b * a", {"a", "b"}),
        ("home.city || m.k || `other name`", {"home", "m", "other name"}),
        ("CASE WHEN ok THEN upper(name) ELSE CAST(a AS string) END", {"ok", "name", "a"}),
    ],
)
def test_an_expression_knows_the_columns_it_reads(text: str, columns: set[str]) -> None:
    assert parsed(text).columns == columns


def test_a_column_of_a_joined_table_is_found_by_its_alias() -> None:
    scope = Scope([TableSource("lake.a", "l", SCHEMA), TableSource("lake.b", "r", SCHEMA)])
    found = parse_expression("l.a < r.a", scope.resolve, "filter.expression", InvalidFilter)
    assert {column.qualifier for column in found.references} == {"l", "r"}
    with pytest.raises(InvalidQuery, match=r"'a' is ambiguous; write l\.a or r\.a"):
        parse_expression("a < r.a", scope.resolve, "filter.expression", InvalidFilter)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected text such as"),
        (" \n", "expected text such as"),
        (None, "expected text such as"),
        (7, "expected text such as"),
        ("a +", "at character 4: expected a value, found the end"),
        ("a b", "at character 3: expected an operator or the end, found 'b'"),
        ("(a", "at character 3: expected ')' to close the parenthesis, found the end"),
        ("a)", "at character 2: expected an operator or the end, found ')'"),
        ("a 'x'", "at character 3: expected an operator or the end, found the text 'x'"),
        ("a..b", "expected a name after the dot, found '.'"),
        ("a AND AND b", "expected a value, found 'AND'; write a column of that name as `AND`"),
        ("a NOT 1", "expected IN, BETWEEN, LIKE, ILIKE or RLIKE after NOT, found '1'"),
        ("a = NOT ok", "NOT binds less tightly"),
        ("a IS 1", "expected 'NULL' after IS, found '1'"),
        ("a IS NULL IS NULL", "at character 11: expected an operator or the end, found 'IS'"),
        ("a IN 1", "expected '(' after IN"),
        ("a IN ()", "IN needs at least one value"),
        ("a IN (1 2)", "expected ',' or ')' in a list of values, found '2'"),
        ("a BETWEEN 1", "expected 'AND' between the two values of BETWEEN"),
        ("CASE END", "UNKNOWN"),
        ("CASE WHEN ok a END", "expected 'THEN' after the condition of WHEN"),
        ("CASE WHEN ok THEN a", "expected 'END' to close CASE"),
        ("CAST(a)", "expected 'AS' in CAST(value AS type)"),
        ("CAST(a AS )", "expected a type, found ')'"),
        ("CAST(a AS string", "expected ')' after the type of CAST"),
        ("CAST(a AS decimal)", "needs a precision and a scale"),
        ("CAST(a AS decimal(50,2))", "use a precision from 1 to 38"),
        ("upper(name", "expected ',' or ')' in the arguments of upper"),
        ("upper(name,)", "expected a value, found ')'"),
        ("home.upper(name)", "UNKNOWN"),
        ("`upper`(name)", "UNKNOWN"),
        ("'x", "at character 1: the text that begins here does not end"),
        ("a + `b", "at character 5: the name that begins here does not end"),
        ("``", "the name that begins here does not end, or is empty"),
        ('"a"', "write texts in single quotes, names in backquotes"),
        ("a -- b", "at character 3: comments are not supported"),
        ("a /* b */", "comments are not supported"),
        ("a; b", "send one expression"),
        ("a ! b", "write NOT or !="),
        ("a = :p0", "':' is not part of an expression"),
        ("a = ?", "'?' is not part of an expression"),
        ("a = ${env:HOME}", "'$' is not part of an expression"),
        ("a @ b", "'@' is not part of an expression"),
        ("a[0]", "'[' is not part of an expression"),
        (r"a = \u0031", r"'\\' is not part of an expression"),
        ("x -> x", "expected a value, found '>'"),
        ("1a", "'1a' is neither a number nor a name"),
        ("10L", "'10L' is neither a number nor a name"),
        ("1e", "'1e' is neither a number nor a name"),
        ("9" * 39, "a number has at most 38 digits"),
        ("0." + "0" * 39, "a number has at most 38 digits"),
        ("1e999", "larger than any double"),
        ("'\ud800'", "half of a surrogate pair"),
        ("DATE '2024-02-30'", "at character 1: '2024-02-30' is not in the calendar"),
        ("TIMESTAMP 'soon'", "'soon' is not a timestamp"),
        ("SELECT a FROM t", "UNKNOWN"),
        ("exists(SELECT 1)", "'exists' is not a function here"),
        ("now()", "'now' is not a function here"),
        ("rand()", "'rand' is not a function here"),
        ("repeat(name, 1000000)", "'repeat' is not a function here"),
        ("reflect('java.lang.System', 'exit')", "'reflect' is not a function here"),
        ("raise_error('x')", "'raise_error' is not a function here"),
    ],
)
def test_what_is_no_expression_is_refused_where_it_goes_wrong(text: Any, words: str) -> None:
    if words == "UNKNOWN":
        assert isinstance(refused(text), UnknownField | InvalidFilter)
    else:
        assert words in refused(text).message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a + name", "+ takes numbers, not text; CAST(name AS double) converts text to a number"),
        ("a + ok", "+ takes numbers, not true or false"),
        ("day + 1", "for days use date_add, date_sub, datediff or add_months"),
        ("ts - day", "for days use date_add"),
        ("- name", "- takes a number, not text"),
        ("a AND ok", "AND takes conditions, not a number"),
        ("ok OR name", "OR takes conditions, not text"),
        ("NOT a", "NOT takes conditions, not a number"),
        ("a = name", "=: a number and text do not go together; CAST one of them"),
        ("a = '5'", "=: a number and text do not go together"),
        ("day > 5", ">: a date or a time and a number do not go together"),
        ("day > 'soon'", "'soon' is not a date; send YYYY-MM-DD"),
        ("u = 'x'", "'x' is not a uuid"),
        ("ok > true", "> does not work on true and false"),
        ("tags = tags", "= compares plain values, not an array"),
        ("home = home", "= compares plain values, not a struct"),
        ("m IN (m)", "IN compares plain values, not a map"),
        ("a = NULL", "a comparison with null is never true; use IS NULL"),
        ("NULL <> a", "use IS NULL"),
        ("a IN (1, 'x')", "IN: a number and text do not go together"),
        ("a BETWEEN 'a' AND 'b'", "BETWEEN: a number and text do not go together"),
        ("a LIKE '1%'", "LIKE takes text, not a number; CAST(a AS string) converts it to text"),
        (r"name LIKE 'a\b'", "a backslash in a pattern escapes only"),
        ("CASE WHEN a THEN 1 END", "WHEN takes a condition, not a number"),
        ("CASE WHEN ok THEN 1 ELSE 'x' END", "the branches of CASE: a number and text do not go together"),
        ("CASE a WHEN 'x' THEN 1 END", "CASE: a number and text do not go together"),
        ("CAST(day AS integer)", "a date or a time cannot be cast to integer"),
        ("CAST(tags AS string)", "an array cannot be cast to string"),
        ("CAST(a AS array)", "array cannot be used here; use a plain type"),
        ("a || bin", "argument 2 of concat must be a plain value other than binary, not binary"),
        ("upper(a)", "the argument of upper must be text, not a number; CAST(a AS string) converts it to text"),
        ("substring(name, x)", "argument 2 of substring must be a whole number; round it or CAST(… AS integer)"),
        ("round(x, a)", "argument 2 of round must be a whole number in digits, not computed"),
        ("round(x, 1.5)", "argument 2 of round must be a whole number in digits"),
        ("replace(name, 'a', name)", "argument 3 of replace must be a text in quotes, not computed"),
        ("sha2(name, a)", "argument 2 of sha2 must be a whole number in digits"),
        ("year(name)", "the argument of year must be a date or a time, not text; CAST(name AS date)"),
        ("hour('noon')", "'noon' is not a timestamp"),
        ("round(x, 1001)", "argument 2 of round must be from -1000 to 1000"),
        ("round(x, -999999999)", "argument 2 of round must be from -1000 to 1000"),
        ("date_add(day, 1.5)", "argument 2 of date_add must be a whole number"),
        ("date_trunc('fortnight', ts)", "'fortnight' is not a unit of time; use one of year"),
        ("date_trunc(name, ts)", "argument 1 of date_trunc must be a unit such as 'month', not computed"),
        ("size(name)", "the argument of size must be an array or a map, not text"),
        ("size(NULL)", "the argument of size must be an array or a map, not null"),
        ("array_min(NULL)", "the argument of array_min must be an array, not null"),
        ("map_keys(tags)", "the argument of map_keys must be a map, not an array"),
        ("array_contains(tags, 1)", "argument 2 of array_contains: text and a number do not go together"),
        ("array_contains(days, 'x')", "'x' is not a date"),
        ("element_at(tags, 'x')", "argument 2 of element_at must be a whole number, not text"),
        ("element_at(m, 1)", "argument 2 of element_at: text and a number do not go together"),
        ("hash(tags)", "the argument of hash must be a plain value, not an array"),
        ("md5(a)", "the argument of md5 must be text or binary, not a number"),
        ("coalesce(a, name)", "coalesce: a number and text do not go together; CAST one of them"),
        ("if(a, 1, 2)", "argument 1 of if must be a condition, not a number"),
        ("round()", "round takes 1 to 2 arguments, not 0: round(number, [123])"),
        ("upper(name, name)", "upper takes 1 argument, not 2: upper(text)"),
        ("greatest(a)", "greatest takes at least 2 arguments, not 1: greatest(value, value, …)"),
        ("pi(1)", "pi takes no arguments, not 1: pi()"),
    ],
)
def test_values_that_do_not_go_together_are_refused_with_the_way_out(text: str, words: str) -> None:
    assert words in refused(text).message


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("nmae = 'a'", "name"),
        ("home.ctiy = 'a'", "home.city"),
        ("uper(name)", "upper"),
        ("CAST(a AS int)", "integer"),
        ("CAST(a AS varchar)", "string"),
        ("date_trunc('mont', ts)", "month"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(text: str, suggestion: str) -> None:
    found = refused(text)
    assert found.suggestion == suggestion
    assert f"{suggestion!r}" in found.message


def test_an_unknown_column_says_where_it_stands_and_how_texts_are_written() -> None:
    found = refused("a > 1 AND name = ann")
    assert isinstance(found, UnknownField)
    assert "(at character 18; write texts in single quotes, unusual names in backquotes)" in found.message


def test_the_caller_chooses_the_class_of_a_refusal() -> None:
    for error in (InvalidFilter, InvalidRequest):
        assert type(refused("a +", error)) is error
        assert type(refused("a + name", error)) is error


def test_a_column_whose_name_is_a_word_of_the_language_stands_in_backquotes() -> None:
    assert parsed("`other name`").columns == {"other name"}
    assert refused("`case`").message.startswith("filter.expression: 'case' is not a column here")


@pytest.mark.parametrize(
    "text",
    [
        "(" * (MAX_DEPTH - 1) + "a" + ")" * (MAX_DEPTH - 1),
        "abs(" * (MAX_DEPTH - 1) + "a" + ")" * (MAX_DEPTH - 1),
        "+".join(["a"] * (MAX_HEIGHT - 1)),
        " AND ".join(["ok"] * 900),
        "a IN (" + ",".join(["1"] * 900) + ")",
        "'" + "x" * (MAX_LENGTH - 2) + "'",
    ],
    ids=range(6),
)
def test_what_is_within_the_bounds_is_read(text: str) -> None:
    assert parsed(text).text == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH, "nested more than 64 deep"),
        ("(" * 9_000, "nested more than 64 deep"),
        ("- " * 200 + "a", "nested more than 64 deep"),
        ("NOT " * 200 + "ok", "nested more than 64 deep"),
        ("CASE WHEN ok THEN " * 100 + "a" + " END" * 100, "nested more than 64 deep"),
        ("+".join(["a"] * 2_000), "more than 200 operations build on each other"),
        ("||".join(["name"] * 500), "more than 200 operations build on each other"),
        ("a IN (" + ",".join(["1"] * MAX_NODES) + ")", "more than 2000 parts"),
        ("a" * (MAX_LENGTH + 1), "use at most 10000"),
        (f"replace(replace(name, 'a', '{'b' * 200}'), 'b', '{'c' * 200}')", "could make a text huge"),
        ("regexp_replace(" * 16 + "name" + ", '', 'ab')" * 16, "could make a text huge"),
    ],
    ids=range(11),
)
def test_what_is_beyond_the_bounds_is_refused(text: str, words: str) -> None:
    assert words in refused(text).message


WORDS = """
    a b name ok day 1 1.5 'x' 'it''s' ` ' ( ) , . + - * / || = < >= <=> AND OR NOT IN IS NULL BETWEEN LIKE CASE WHEN
    THEN ELSE END CAST( AS integer decimal(4,2) upper( round( date_trunc('day', DATE ; -- /* :p ${x} \\
"""


@given(st.lists(st.sampled_from(WORDS.split()), max_size=14).map(" ".join) | st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """And nothing but a refusal of ours is ever raised."""
    try:
        assert parsed(text).text == text
    except FirnError:
        refused(text)


@pytest.mark.parametrize(
    "text", ["name RLIKE '(a+)+b'", "regexp_replace(name, '(x+x+)+y', '') = ''", "name LIKE '%a%a%a%a%a%a%b'"]
)
def test_a_pattern_that_may_take_far_too_long_is_refused(text: str) -> None:
    assert "may take far too long" in refused(text).message


def test_a_regular_expression_is_a_literal() -> None:
    assert "must be a literal" in refused("name RLIKE name").message
    assert "must be a literal" in refused("regexp_extract(name, concat(name, 'x')) = ''").message
    parsed("name LIKE name")
    parsed("regexp_replace(name, CAST(NULL AS string), 'x') = ''")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_s_example_is_taken_and_calls_it(name: str) -> None:
    schema = columns_of(SCHEMA)

    def resolve(column: str, path: str) -> Any:
        kinds = {"labels": Map(STRING, STRING), "sizes": Array(INTEGER), "tags": Array(STRING)}
        found = schema("tags", path)
        return type(found)(column, (column,), kinds[column])

    found = parse_expression(FUNCTIONS[name].example, resolve, "e", InvalidRequest)
    assert FUNCTIONS[name].example.startswith(f"{name}(")
    assert any(getattr(node, "name", None) == name for node in all_nodes(found.tree))


def test_no_function_stands_in_the_table_twice() -> None:
    assert len(FUNCTIONS) == sum(len(group) for group in TABLE.values())


def test_what_a_function_takes_is_made_to_be_that() -> None:
    assert parsed("date_add(ts, b)").tree == parsed("date_add(CAST(ts AS date), CAST(b AS integer))").tree
    assert parsed("hour(ts)").tree == parsed("hour(CAST(ts AS timestamptz))").tree
    assert parsed("concat(a, ok)").tree == parsed("concat(CAST(a AS string), CAST(ok AS string))").tree
    assert parsed("array_contains(days, NULL)").tree == parsed("array_contains(days, CAST(NULL AS date))").tree
    assert parsed("upper(NULL)").tree == parsed("upper(CAST(NULL AS string))").tree
    assert any(
        isinstance(node, Cast) and node.kind == Primitive("binary") for node in all_nodes(parsed("md5(name)").tree)
    )

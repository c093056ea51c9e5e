"""What an expression can make of the texts of a row is bounded before Spark computes it, and the bound holds."""

import base64
import re
import time
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.sql.sql import Parameters, expression
from service.errors import InvalidRequest
from service.model.expressions import parse_expression
from service.model.expressions.growth import MOST_ADDED, added, growth_of
from service.model.expressions.tree import Case, Cast, ColumnValue, Constant, FunctionCall, Node, children
from service.model.patterns.replacing import replacement
from service.model.schema.columns import Column, columns_of
from service.model.schema.definition import parse_schema
from service.model.schema.types import Array, Field, Primitive, TableSchema
from tests.support.expression_corpus import FIELDS, HostileExpression, expressions

SCHEMA = TableSchema((*(Field(name, Primitive("string")) for name in "abc"), Field("tags", Array(Primitive("string")))))


def tree(text: str) -> Node:
    return parse_expression(text, columns_of(SCHEMA), "updates.a.expression", InvalidRequest).tree


def nested(function: str, times: int, inside: str) -> str:
    return f"{function}(" * times + inside + ")" * times


HUGE = {
    "hex doubles": nested("hex", 40, "a"),
    "hex of a constant": nested("hex", 40, "'x'"),
    "base64": nested("base64", 40, "a"),
    "concat of itself": nested("hex", 8, "||".join(["a"] * 100)),
    "replacements": f"replace(replace(a, 'x', '{'y' * 400}'), 'y', '{'z' * 400}')",
    "a constant that replacements lengthen": f"replace('{'x' * 4000}', 'x', '{'y' * 4000}')",
    "empty matches": f"regexp_replace(regexp_replace(a, '', '{'y' * 400}'), 'y', '{'z' * 400}')",
    "the rest of the text at each place": "regexp_replace(a, '(?=(.*))', '$1')",
    "the same by its name": "regexp_replace(a, '(?=(?<rest>.*))', '${rest}')",
    "the text before each place": "regexp_replace(a, '(?<=(.{0,500}))', '$1')",
    "a group and a digit": "regexp_replace(a, '(?=(.*))', '$12')",
    "hidden by a comment": "regexp_replace(a, '(?x)(?=(.*))#(\n', '$1')",
    "a format": f"date_format(TIMESTAMP '2024-01-01 00:00:00', {nested('hex', 11, 'a')})",
}


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE.keys())
def test_what_would_make_a_text_huge_of_any_value_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="could make a text huge"):
        tree(text)


@pytest.mark.parametrize(
    "text",
    [
        "concat(a, ' ', b, ' ', c)",
        "concat_ws(', ', a, b, c)",
        "upper(trim(a))",
        "replace(a, 'na', 'no')",
        "regexp_replace(a, '[^a-z]+', ' ')",
        "regexp_replace(a, '<b>', '[b]')",
        "CASE WHEN a = 'x' THEN b ELSE concat(a, c) END",
        "coalesce(a, b, 'none')",
        "sha2(concat(a, a), 256)",
        "element_at(tags, 1)",
    ],
)
def test_an_ordinary_expression_is_computed_as_it_is(text: str) -> None:
    grows = {column.name for column in added(tree(text))}
    assert grows <= ({"a"} if "a, a" in text else set())
    if not grows:
        parsed = parse_expression(text, columns_of(SCHEMA), "updates.a.expression", InvalidRequest)
        assert "raise_error" not in expression(parsed, Parameters())


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("concat(a, a, a)", {"a": 2.0}),
        ("concat(a, b, a)", {"a": 1.0}),
        ("hex(hex(a))", {"a": 3.0}),
        ("length(concat(a, a)) > 3", {"a": 1.0}),
        ("replace(a, 'n', 'nooo')", {"a": 3.0}),
        (r"regexp_replace(a, '(\d)(?=(\d{3})+$)', '$1,')", {"a": 1.0}),
        ("concat(element_at(tags, 1), element_at(tags, 1))", {"tags": 1.0}),
        ("CASE WHEN b = 'x' THEN concat(a, a) ELSE concat(b, b, b) END", {"a": 1.0, "b": 2.0}),
    ],
)
def test_what_depends_on_values_is_computed_only_of_rows_whose_texts_are_short(
    text: str, times: dict[str, float]
) -> None:
    parsed = parse_expression(text, columns_of(SCHEMA), "updates.a.expression", InvalidRequest)
    assert {column.name: times for column, times in added(parsed.tree).items()} == times
    parameters = Parameters()
    sql = expression(parsed, parameters)
    assert "octet_length" in sql
    assert f"> {MOST_ADDED} THEN raise_error(" in sql
    assert any("exclude such rows" in str(value) for value in parameters.values.values())


@pytest.mark.parametrize("one", [one for one in expressions() if one.ends == "refused"], ids=str)
def test_hostile_expressions_are_refused_where_they_are_read(one: HostileExpression) -> None:
    schema = parse_schema({"fields": FIELDS}, "schema")
    started = time.monotonic()
    with pytest.raises(InvalidRequest) as caught:
        parse_expression(one.text, columns_of(schema), "updates.o.expression", InvalidRequest)
    assert caught.value.field == "updates.o.expression"
    assert time.monotonic() - started < 20


TEXTS = st.sampled_from(["'x'", "'ab'", "'日本'", "''", "'xyxyxyxy'"])
PATTERNS = st.sampled_from(["", "a", "[ab]+", "(a)(b)?", "x*", "(..)", "(a|b)", "b{2}", "$", "(?=a)", "(a)(?=(b))"])
REPLACEMENTS = st.sampled_from(["", "z", "zzzz", "$1", "$1$1", "z$1z"])


@st.composite
def made_expressions(draw: st.DrawFn, depth: int = 4) -> str:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.one_of(st.sampled_from(["a", "b"]), TEXTS))
    one, other = draw(made_expressions(depth - 1)), draw(made_expressions(depth - 1))
    forms = [
        f"concat({one}, {other})",
        f"concat_ws('--', {one}, {other}, {one})",
        f"hex({one})",
        f"base64({one})",
        f"upper({one})",
        f"replace({one}, {draw(TEXTS)}, {draw(TEXTS)})",
        f"regexp_replace({one}, '{draw(PATTERNS)}', '{draw(REPLACEMENTS)}')",
        f"if(a = b, {one}, {other})",
    ]
    return draw(st.sampled_from(forms))


def computed(node: Node, row: dict[str, str]) -> str:
    """The value of an expression, as Spark computes it."""
    match node:
        case Constant(_, value):
            return str(value)
        case ColumnValue(column):
            return row[column.name]
        case Cast(value, _, _):
            return computed(value, row)
        case Case():
            raise AssertionError("not made here")
    name = node.name
    if name == "if":
        return computed(node.arguments[1 if row["a"] == row["b"] else 2], row)
    args = [computed(part, row) for part in node.arguments]
    match name:
        case "concat":
            return "".join(args)
        case "concat_ws":
            return args[0].join(args[1:])
        case "hex":
            return args[0].encode().hex()
        case "base64":
            return base64.b64encode(args[0].encode()).decode()
        case "upper":
            return args[0].upper()
        case "replace":
            return args[0].replace(args[1], args[2]) if args[1] else args[0]
    return re.sub(args[1], re.sub(r"\$1", r"\\1", args[2]), args[0])


@settings(max_examples=150, deadline=None)
@given(made_expressions(), st.text("abxy", max_size=12), st.text("abxy", max_size=12))
def test_no_part_of_an_expression_makes_more_than_its_bound(text: str, a: str, b: str) -> None:
    try:
        whole = tree(text)
    except InvalidRequest:  # such as $1 of a pattern without a group
        return
    row = {"a": a, "b": b}
    bounds: dict[int, object] = {}

    def check(node: Node) -> None:
        for part in children(node):
            check(part)
        bound = growth_of(node, bounds)  # type: ignore[arg-type]
        bounds[id(node)] = bound
        if isinstance(node, FunctionCall) and node.name == "=":
            return
        try:
            size = len(computed(node, row).encode())
        except (re.error, IndexError):  # the pattern has no such group
            return
        assert size <= bound.plus + sum(times * len(row[column.name]) for column, times in bound.times.items()) + 1e-6

    check(whole)


@given(PATTERNS, REPLACEMENTS, st.text("abxy", max_size=30))
def test_replacing_the_matches_of_a_pattern_makes_no_more_than_its_bound(pattern: str, new: str, text: str) -> None:
    try:
        found = re.sub(pattern, re.sub(r"\$1", r"\\1", new), text)
    except (re.error, IndexError):
        return
    assert len(found) <= replacement(pattern, new).size(len(text))


@pytest.mark.parametrize(
    ("pattern", "new", "overlaps"),
    [
        ("(?=(.*))", "$1", True),
        ("(?=(.*))", "x", False),
        ("(a)(?=(.*))", "$1", False),
        ("(a)(?=(.*))", "$2", True),
        ("(?=(?<rest>.*))", "${rest}", True),
        ("(?<first>a)(?=.*)", "${first}", False),
        ("(?=((?:b)(c)))", "$2", True),
        (r"\((?=(.*))", "$1", True),
        (r"[(](?=(.*))", "$1", True),
        ("(?x)(?=(.*))", "$1", True),
        ("(?=(.*)", "$1", True),
    ],
)
def test_groups_that_reach_beyond_their_match_are_known(pattern: str, new: str, overlaps: bool) -> None:
    assert replacement(pattern, new).is_overlapping == overlaps
    if overlaps:
        assert replacement(pattern, new).size(1_000_000) > 1e11


def test_a_long_pattern_replaced_by_a_short_text_makes_nothing_longer() -> None:
    assert replacement("<br/>", "").size(100) == 100
    assert replacement("<b>", "**bold**").size(300) == pytest.approx(800)
    assert prod([replacement(r"\s+", " ").times] * 50) == 1


def test_a_column_inside_another_is_measured_as_what_contains_it() -> None:
    column = Column("tags", ("tags",), Array(Primitive("string")))
    assert list(added(tree("concat(element_at(tags, 1), try_element_at(tags, 2))"))) == [column]

"""What a query may cost is bounded by its plans, before anything runs; ordinary queries are within the bounds."""

import itertools
import json
from typing import Any

import pytest

from service.errors import InvalidQuery, QueryTooExpensive
from service.guard.costs.limits import QueryLimits
from service.guard.sql import QueryBounds, check_analysed
from service.settings import QuerySettings

LIMITS = QueryLimits.of(QuerySettings())
Nodes = list[dict[str, Any]]
_ids = itertools.count(1000)


def plan(kind: str, /, *children: Nodes, package: str = "plans.logical", **fields: Any) -> Nodes:
    this = {"class": f"org.apache.spark.sql.catalyst.{package}.{kind}", "num-children": len(children), **fields}
    return [this, *(n for child in children for n in child)]


def fn(kind: str, /, *children: Nodes, **fields: Any) -> Nodes:
    return plan(kind, *children, package="expressions", **fields)


def lit(value: Any, kind: str = "") -> Nodes:
    kind = kind or {int: "integer", str: "string", float: "double"}[type(value)]
    return fn("Literal", value=str(value), dataType=kind)


def col(expr_id: int, kind: Any = "string") -> Nodes:
    return fn("AttributeReference", name=f"c{expr_id}", dataType=kind, exprId={"id": expr_id})


def named(value: Nodes, expr_id: int) -> Nodes:
    return fn("Alias", value, exprId={"id": expr_id})


def project(child: Nodes, *outputs: Nodes) -> Nodes:
    return plan("Project", child, projectList=[named(one, next(_ids)) for one in outputs])


def one_row() -> Nodes:
    return plan("OneRowRelation")


def view(name: str, *columns: Nodes) -> Nodes:
    relation = {"class": "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation", "num-children": 0}
    return plan("View", [relation | {"output": list(columns)}], desc={"identifier": {"table": name}})


def check(nodes: Nodes, most_rows: float = 1001, **rows: float) -> None:
    check_analysed(json.dumps(nodes), QueryBounds(LIMITS, "SELECT 1", rows, most_rows))


def refused(nodes: Nodes, most_rows: float = 1001, **rows: float) -> str:
    with pytest.raises(QueryTooExpensive) as caught:
        check(nodes, most_rows, **rows)
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("QUERY_TOO_EXPENSIVE", 422, False)
    assert caught.value.field == "sql"
    return caught.value.message


def value(expression: Nodes) -> None:
    check(project(one_row(), expression))


def too_large(expression: Nodes) -> str:
    return refused(project(one_row(), expression))


def repeat(text: Nodes, times: Nodes) -> Nodes:
    return fn("StringRepeat", text, times)


def sequence(*parts: Nodes) -> Nodes:
    return fn("Sequence", *parts)


def test_the_message_names_what_is_too_much_its_bound_and_the_way_out() -> None:
    message = too_large(repeat(lit("ab"), lit(100_000_000)))
    assert "a value of repeat may have 190 MB; at most 16 MB" in message
    assert "queries.max_value_mb" in message
    assert "Use smaller numbers" in message


@pytest.mark.parametrize(
    "small",
    [
        repeat(lit("-"), lit(3)),
        sequence(lit(1), lit(1_000_000)),
        sequence(lit("2024-01-01", "date"), fn("CurrentDate"), lit(86_400_000_000, "interval day")),
        sequence(lit("2024-01-01", "date"), lit("2024-12-31", "date"), lit(1, "interval month")),
        fn("StringLPad", fn("Cast", col(1, "long"), dataType="string"), lit(10), lit("0")),
        fn("StringSpace", lit(4)),
        repeat(lit("*"), col(1, "integer")),
        sequence(lit(1), col(1, "integer")),
        fn("FormatString", lit("%05d %s"), col(1, "long"), col(2)),
        fn("ConcatWs", lit(", "), fn("Upper", col(1)), col(2)),
        repeat(lit("*"), fn("Least", fn("Multiply", col(1, "integer"), lit(1_000_000)), lit(100))),
        repeat(lit("*"), fn("Remainder", fn("Multiply", col(1, "integer"), lit(1_000_000)), lit(10))),
        fn("StringSpace", fn("Subtract", lit(10), fn("Length", col(1)))),
        repeat(lit("*"), fn("Cast", fn("Multiply", fn("Rand", lit(5, "long")), lit(10)), dataType="integer")),
        repeat(lit("*"), fn("Uniform", lit(1), lit(5), lit(2346532349834787214, "long"))),
        sequence(lit(0), fn("MonthsBetween", lit("2024-12-31", "date"), lit("2023-01-01", "date"))),
        sequence(lit(1), fn("Month", fn("CurrentDate"))),
    ],
)
def test_ordinary_values_are_within_the_bounds(small: Nodes) -> None:
    value(small)


@pytest.mark.parametrize(
    "large",
    [
        sequence(lit(1), lit(300_000_000)),
        sequence(lit(1), fn("Multiply", lit(3), lit(100_000_000))),
        sequence(lit(1), fn("Cast", lit("500000000"), dataType="integer")),
        sequence(lit("1970-01-01", "timestamp"), lit("2030-01-01", "timestamp"), lit(1_000_000, "interval second")),
        repeat(repeat(lit("a"), lit(100_000)), lit(100_000)),
        repeat(col(1), lit(10_000_000)),
        repeat(lit("x"), fn("Multiply", col(1, "integer"), lit(100_000_000))),
        repeat(lit("x"), fn("GetStructField", fn("CreateNamedStruct", lit("n"), lit(2_000_000_000)), ordinal=0)),
        fn("ArrayRepeat", fn("ArrayRepeat", lit(1), lit(100_000)), lit(100_000)),
        fn("StringLPad", lit("x"), lit(2_000_000_000), lit("ab")),
        fn("RandStr", lit(2_000_000_000), lit(0)),
        fn("FormatString", lit("%2000000000d"), lit(1)),
        fn("FormatString", lit("%.999999999f"), lit(1.5)),
        fn("FormatString", col(1), lit(1)),
        fn("Base64", repeat(lit("x"), lit(30_000_000))),
        fn("StringReplace", repeat(lit("a"), lit(60_000)), lit("a"), repeat(lit("b"), lit(60_000))),
        fn("RegExpReplace", repeat(lit("a"), lit(20_000)), lit("a"), repeat(lit("b"), lit(20_000)), lit(1)),
        fn("RegExpReplace", repeat(lit("a"), lit(20_000)), lit("(?=(.*))"), lit("$1"), lit(1)),
        fn("ArrayJoin", sequence(lit(1), lit(100_000)), repeat(lit("-"), lit(10_000))),
        fn("ArrayInsert", fn("CreateArray", lit(1)), lit(-2_000_000_000), lit(1)),
    ],
)  # fmt: skip
def test_large_values_of_small_ones_are_refused(large: Nodes) -> None:
    too_large(large)


def variable(expr_id: int) -> Nodes:
    return fn("NamedLambdaVariable", name="x", dataType="string", exprId={"id": expr_id})


def function(body: Nodes, *variables: int) -> Nodes:
    return fn("LambdaFunction", body, *(variable(one) for one in variables))


def test_an_accumulator_is_followed_through_all_elements() -> None:
    def aggregate(count: int, grown: Nodes) -> Nodes:
        return fn(
            "ArrayAggregate", sequence(lit(1), lit(count)), lit("a"), function(grown, 1, 2), function(variable(3), 3)
        )

    value(aggregate(100, fn("Concat", variable(1), lit("b"))))
    too_large(aggregate(40, fn("Concat", variable(1), variable(1))))
    too_large(aggregate(1_000_000, fn("Concat", variable(1), repeat(lit("b"), lit(1_000)))))


def test_lambda_functions_in_lambda_functions_multiply() -> None:
    def nested(count: int) -> Nodes:
        inner = fn("ArrayExists", sequence(lit(1), lit(count)), function(fn("LessThan", variable(1), variable(2)), 2))
        return fn("ArrayExists", sequence(lit(1), lit(count)), function(inner, 1))

    value(nested(1_000))
    assert "steps" in too_large(nested(1_000_000))


def test_a_value_keeps_its_bound_through_subqueries() -> None:
    inner = plan("Project", one_row(), projectList=[named(repeat(lit("a"), lit(10_000)), 7)])
    check(project(plan("SubqueryAlias", inner), repeat(col(7), lit(10))))
    refused(project(plan("SubqueryAlias", inner), repeat(col(7), lit(10_000))))


def join(left: Nodes, right: Nodes, *conditions: Nodes) -> Nodes:
    return plan("Join", left, right, joinType={"object": "Inner$"}, condition=list(conditions[0]) if conditions else [])


A, B = view("a", col(1, "long")), view("b", col(2, "long"))
EQUAL = fn("EqualTo", col(1, "long"), col(2, "long"))
LESS = fn("LessThan", col(1, "long"), col(2, "long"))


def test_a_join_without_an_equality_may_make_as_many_rows_as_both_sides_multiplied() -> None:
    check(join(A, B), a=10_000, b=10_000)
    message = refused(join(A, B), a=100_000, b=100_000)
    assert "10,000,000,000 rows of 100,000 and 100,000; at most 1,000,000,000" in message
    refused(join(A, B, LESS), a=100_000, b=100_000)
    refused(join(A, B, fn("Or", EQUAL, LESS)), a=100_000, b=100_000)
    refused(join(A, B, fn("EqualTo", col(1, "long"), col(1, "long"))), a=100_000, b=100_000)


def test_a_join_by_equal_columns_may_be_as_large_as_its_tables() -> None:
    check(join(A, B, EQUAL), a=10_000_000, b=10_000_000)
    check(join(A, B, fn("And", LESS, EQUAL)), a=10_000_000, b=10_000_000)
    check(plan("Filter", join(A, B), condition=EQUAL), a=10_000_000, b=10_000_000)
    check(plan("Filter", join(A, B), condition=fn("Or", fn("And", EQUAL, LESS), EQUAL)), a=10_000_000, b=10_000_000)


def test_the_order_of_tables_in_from_means_nothing() -> None:
    """As in TPC-H: the first two tables have no column in common, and the third has one with each."""
    c = view("c", col(3, "long"), col(4, "long"))
    one, other = fn("EqualTo", col(1, "long"), col(3, "long")), fn("EqualTo", col(2, "long"), col(4, "long"))
    large = {"a": 1_000_000.0, "b": 1_000_000.0, "c": 5_000_000.0}
    check(plan("Filter", join(join(A, B), c), condition=fn("And", one, other)), **large)
    check(join(join(A, B), c, fn("And", one, other)), **large)
    refused(plan("Filter", join(join(A, B), c), condition=one), **large)
    refused(join(join(A, B, LESS), c, one), **large)


def test_columns_with_one_value_join_nothing() -> None:
    left = plan("Project", A, projectList=[named(lit(1), 11)])
    right = plan("Project", B, projectList=[named(lit(1), 12)])
    refused(join(left, right, fn("EqualTo", col(11, "integer"), col(12, "integer"))), a=100_000, b=100_000)


def explode(child: Nodes, array: Nodes) -> Nodes:
    return plan("Generate", child, generator=fn("Explode", array), generatorOutput=[col(next(_ids), "integer")])


def test_generators_multiply_the_rows_of_a_table() -> None:
    numbers = sequence(lit(1), lit(10_000))
    check(explode(A, numbers), a=10_000)
    refused(explode(explode(A, numbers), numbers), a=10_000)


def test_a_subquery_that_compares_no_columns_for_equality_is_computed_for_each_row() -> None:
    def exists(comparison: str) -> Nodes:
        outer = fn("OuterReference", e=col(1, "long"))
        inner = plan("Filter", B, condition=fn(comparison, col(2, "long"), outer))
        return plan("Filter", A, condition=fn("Exists", col(1, "long"), plan=inner, outerAttrs=[0]))

    check(exists("EqualTo"), a=1_000_000, b=1_000_000)
    refused(exists("GreaterThan"), a=1_000_000, b=1_000_000)


def aggregate(child: Nodes, function: Nodes, *groups: Nodes) -> Nodes:
    call = fn("AggregateExpression", function)
    return plan("Aggregate", child, groupingExpressions=list(groups), aggregateExpressions=[named(call, next(_ids))])


def test_collected_values_are_bounded_by_the_rows() -> None:
    check(aggregate(A, fn("CollectList", col(1, "long"))), a=1_000_000)
    assert "collect_list may collect" in refused(aggregate(A, fn("CollectList", col(1, "long"))), a=100_000_000)
    check(aggregate(A, fn("CollectList", col(1, "long")), col(1, "long")), a=10_000_000)


def test_a_count_is_at_most_the_number_of_rows() -> None:
    def bar(function: Nodes, *groups: Nodes) -> Nodes:
        call = named(repeat(lit("*"), fn("AggregateExpression", function)), next(_ids))
        return plan("Aggregate", A, groupingExpressions=list(groups), aggregateExpressions=[call])

    for function in fn("Count", lit(1)), fn("Sum", lit(1)):
        check(bar(function), a=1_000_000)
        refused(bar(function), a=1_000_000_000)
        # Groups share the rows.
        check(bar(function, col(1, "long")), a=1_000_000_000)


def test_an_approximation_is_bounded_by_its_memory() -> None:
    check(aggregate(A, fn("HyperLogLogPlusPlus", col(1, "long"), relativeSD=0.01)), a=10)
    refused(aggregate(A, fn("HyperLogLogPlusPlus", col(1, "long"), relativeSD=1e-7)), a=10)
    check(aggregate(A, fn("ApproximatePercentile", col(1), lit(0.5), lit(10_000))), a=10)
    refused(aggregate(A, fn("ApproximatePercentile", col(1), lit(0.5), lit(2_000_000_000))), a=10)
    refused(aggregate(A, fn("CountMinSketchAgg", col(1), lit(1e-9), lit(0.99), lit(1))), a=10)


def test_a_response_is_bounded_if_its_rows_are_wide() -> None:
    wide = project(A, repeat(lit("x"), lit(1_000_000)))
    check(wide, 11, a=100_000)
    assert "queries.max_result_mb" in refused(wide, 100_000, a=100_000)
    check(project(A, *[col(1)] * 40), 100_000, a=10_000_000)


def recursive(body: Nodes, start: Nodes) -> Nodes:
    step = plan("Project", plan("UnionLoopRef", loopId=5, output=[col(20)]), projectList=[named(body, 21)])
    anchor = plan("Project", one_row(), projectList=[named(start, 22)])
    loop = plan("UnionLoop", anchor, step, id=5, outputAttrIds=[{"id": 23}])
    definition = plan("CTERelationDef", plan("Project", loop, projectList=[named(col(23), 24)]), id=9)
    return plan("WithCTE", plan("CTERelationRef", cteId=9, output=[col(25)]), definition)


def test_a_recursive_query_is_followed_through_all_its_rounds() -> None:
    def with_recursive(body: Nodes, start: Nodes) -> Nodes:
        nodes = recursive(body, start)
        # Spark puts the definitions first.
        reference, rest = nodes[1], nodes[2:]
        return [nodes[0], *rest, reference]

    check(with_recursive(fn("Add", col(20), lit(1)), lit(1)))
    check(with_recursive(fn("Concat", col(20), lit("x")), lit("a")))
    refused(with_recursive(fn("Concat", col(20), col(20)), lit("a")))


def test_patterns_of_queries_are_bounded_and_literal() -> None:
    value(fn("RLike", col(1), lit("^[a-z]+$")))
    value(fn("Like", col(1), fn("Concat", lit("%"), col(2), lit("%"))))
    assert "'(a+)+b'" in too_large(fn("RLike", col(1), lit("(a+)+b")))
    assert "'(a+)+b'" in too_large(fn("RLike", col(1), fn("Concat", lit("(a+"), lit(")+b"))))
    assert "not a literal" in too_large(fn("RLike", col(1), col(2)))
    too_large(fn("RLike", repeat(lit("ab"), lit(1_000_000)), lit("(a|b)*c")))
    too_large(fn("Like", col(1), lit("%a%a%a%a%a%a%a%b")))


def test_the_patterns_that_a_plan_does_not_show_are_read_from_the_text() -> None:
    nodes = project(A, fn("LikeAll", col(1), patterns=None))
    check_analysed(json.dumps(nodes), QueryBounds(LIMITS, "SELECT s LIKE ALL ('%a', 'b%') FROM a"))
    with pytest.raises(QueryTooExpensive):
        check_analysed(json.dumps(nodes), QueryBounds(LIMITS, "SELECT s LIKE ALL ('%a%a%a%a%a%a%b') FROM a"))


def test_a_value_of_values_is_at_most_what_the_text_has() -> None:
    nodes = project(plan("LocalRelation", output=[col(1, "integer")], data=None), repeat(lit("x"), col(1, "integer")))
    check_analysed(json.dumps(nodes), QueryBounds(LIMITS, "SELECT repeat('x', n) FROM VALUES (5000) AS v(n)"))
    for text, params in ("VALUES (2000000000) AS v(n)", {}), ("VALUES (:n) AS v(n)", {"n": 2_000_000_000}):
        with pytest.raises(QueryTooExpensive):
            check_analysed(json.dumps(nodes), QueryBounds(LIMITS, text, params=params))


def test_a_long_frame_that_is_computed_for_each_row_is_refused() -> None:
    def framed(lower: Nodes, upper: Nodes) -> Nodes:
        frame = fn("SpecifiedWindowFrame", lower, upper, frameType={"object": "RowFrame$"})
        over = fn("WindowExpression", fn("Sum", col(1, "long")), fn("WindowSpecDefinition", frame))
        return plan("Window", A, windowExpressions=[named(over, next(_ids))], partitionSpec=[])

    now = fn("CurrentRow$")
    check(framed(fn("UnboundedPreceding$"), now), a=10_000_000)
    check(framed(lit(-6), now), a=10_000_000)
    refused(framed(lit(-10_000_000), now), a=10_000_000)
    refused(framed(now, fn("UnboundedFollowing$")), a=10_000_000)
    check(framed(now, fn("UnboundedFollowing$")), a=100_000)


def test_lambda_functions_cannot_make_the_check_itself_expensive() -> None:
    body = variable(1)
    for _ in range(14):
        body = fn(
            "ArrayAggregate", fn("CreateArray", lit(1)), lit("a"), function(fn("Concat", body, variable(1)), 1, 2)
        )
    too_large(body)


@pytest.mark.parametrize("kind", ["RegExpCount", "RegExpSubStr", "RegExpInStr", "StringSplit", "RegExpExtract"])
def test_every_function_with_a_regular_expression_is_checked(kind: str) -> None:
    value(fn(kind, col(1), lit("[0-9]+")))
    too_large(fn(kind, col(1), lit("(a+)+b")))
    too_large(fn(kind, col(1), col(2)))


def test_the_key_of_a_url_is_a_regular_expression_and_ilike_a_like() -> None:
    value(fn("ParseUrl", col(1), lit("QUERY"), lit("key")))
    too_large(fn("ParseUrl", col(1), lit("QUERY"), lit("(a+)+b")))
    too_large(fn("ILike", col(1), lit("%a%a%a%a%a%a%a%b")))


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(InvalidQuery, match="cannot be computed"):
        check(project(one_row(), fn("StringRepeat", lit("x"))))


def stand_in(name: str, **kinds: str) -> tuple[Nodes, list[int]]:
    """A view of nulls, over which the query of a dynamic table is analysed, and the ids of its columns."""
    nulls = [fn("Cast", fn("Literal", value=None, dataType="void"), dataType=kind) for kind in kinds.values()]
    inside = project(plan("Filter", one_row(), condition=fn("Literal", value="false", dataType="boolean")), *nulls)
    ids = [one[0]["exprId"]["id"] for one in inside[0]["projectList"]]
    return plan("View", inside, desc={"identifier": {"table": name}}), ids


def test_the_columns_of_a_view_without_rows_are_those_of_a_table() -> None:
    view_, (id_, s) = stand_in("s0_new", id="long", s="string")
    check(project(view_, repeat(lit("x"), col(id_, "long"))), s0_new=10_000)
    assert "repeat" in refused(project(view_, repeat(lit("x"), fn("Multiply", col(id_, "long"), lit(10**8)))), s0_new=1)
    hostile = fn("Like", col(s), lit("%a%a%a%a%a%a%a%a%b"))
    assert "LIKE" in refused(plan("Filter", view_, condition=hostile), s0_new=1)
    other, _ = stand_in("s1_new", id="long")
    crossed = plan("Join", view_, other, condition=None, joinType={"object": "Inner$"})
    check(crossed, s0_new=10_000, s1_new=10_000)
    assert "rows" in refused(crossed, s0_new=100_000, s1_new=100_000)

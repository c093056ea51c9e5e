"""What Spark would plan, and compute while it analyses a query, is bounded by the parsed plan."""

import json
from typing import Any

import pytest

from service.errors import QueryTooExpensive
from service.guard.sql import check_parsed
from tests.unit.guard.test_costs import LIMITS, Nodes, fn, lit, one_row, plan


def relation(name: str) -> Nodes:
    return plan(
        "UnresolvedRelation", package="analysis", multipartIdentifier=f"[{name}]", options=None, isStreaming=False
    )


def parsed(nodes: Nodes, **params: Any) -> None:
    check_parsed(json.dumps(nodes), LIMITS, params)


def unparsed(nodes: Nodes, **params: Any) -> str:
    with pytest.raises(QueryTooExpensive) as caught:
        parsed(nodes, **params)
    return caught.value.message


def doubled(levels: int) -> Nodes:
    relations = [{"_1": "a0", "_2": relation("t")}]
    for level in range(1, levels + 1):
        both = plan("Union", relation(f"a{level - 1}"), relation(f"a{level - 1}"))
        relations.append({"_1": f"a{level}", "_2": both})
    child = relation(f"a{levels}")
    return plan("UnresolvedWith", child, package="analysis", cteRelations=relations, allowRecursion=False)


def test_a_with_clause_counts_at_each_place_that_names_it() -> None:
    parsed(doubled(4))
    assert "a WITH clause at each place" in unparsed(doubled(20))
    # It is counted without being copied.
    unparsed(doubled(300))


def test_joins_and_grouping_sets_are_counted_before_the_query_is_analysed() -> None:
    def joins(count: int) -> Nodes:
        nodes = relation("t")
        for _ in range(count):
            nodes = plan("Join", nodes, relation("u"), joinType={"object": "Inner$"}, hint=None)
        return nodes

    def cube(count: int) -> Nodes:
        columns = [plan("UnresolvedAttribute", package="analysis", nameParts=f"[c{i}]") for i in range(count)]
        sets = fn("Cube", *columns, groupingSetIndexes=None)
        return plan("Aggregate", relation("t"), groupingExpressions=[sets], aggregateExpressions=[])

    parsed(joins(20))
    assert "31 joins" in unparsed(joins(31))
    parsed(cube(8))
    assert "1,048,576 grouping sets" in unparsed(cube(20))


@pytest.mark.parametrize(("width", "slide", "is_fine"), [("1 day", "1 hour", True), ("365 days", "1 second", False)])
def test_a_row_is_in_few_time_windows(width: str, slide: str, is_fine: bool) -> None:
    arguments = [plan("UnresolvedAttribute", package="analysis", nameParts="[ts]"), lit(width), lit(slide)]
    call = plan("UnresolvedFunction", *arguments, package="analysis", nameParts="[window]")
    nodes = plan("Project", relation("t"), projectList=[call])
    if is_fine:
        parsed(nodes)
    else:
        assert "windows" in unparsed(nodes)


def attribute(name: str) -> Nodes:
    return plan("UnresolvedAttribute", package="analysis", nameParts=f"[{name}]")


def call(name: str, *arguments: Nodes) -> Nodes:
    return plan("UnresolvedFunction", *arguments, package="analysis", nameParts=f"[{name}]")


def star() -> Nodes:
    return plan("UnresolvedStar", package="analysis")


def nested(levels: int, *outputs: Nodes) -> Nodes:
    nodes = plan("Project", relation("t"), projectList=[fn("Alias", attribute("id"), name="x")])
    for _ in range(levels):
        nodes = plan("Project", plan("SubqueryAlias", nodes), projectList=list(outputs))
    return nodes


def test_subqueries_that_double_their_columns_are_refused() -> None:
    def doubled(name: str) -> Nodes:
        return fn("Alias", call(name, attribute("x"), attribute("x")), name="x")

    for name in ("struct", "concat", "coalesce"):
        parsed(nested(5, doubled(name)))
        assert "stand for" in unparsed(nested(30, doubled(name)))
    parsed(nested(3, star(), star()))
    unparsed(nested(30, star(), star()))
    # A column that is used once costs what it is.
    parsed(nested(60, fn("Alias", call("upper", attribute("x")), name="x"), star()))


def selecting(value: Nodes) -> Nodes:
    return plan("Project", one_row(), projectList=[value])


def parameter(name: str) -> Nodes:
    return plan("NamedParameter", package="analysis", name=name)


def test_constants_that_the_analysis_computes_are_bounded() -> None:
    large = call("length", call("repeat", lit("x"), lit(2_000_000_000)))
    assert "a value of repeat" in unparsed(plan("GlobalLimit", relation("t"), limitExpr=large))
    unparsed(selecting(call("stack", large, lit(1))))
    parsed(selecting(call("repeat", lit("x"), parameter("n"))), n=10)
    unparsed(selecting(call("repeat", lit("x"), parameter("n"))), n=2_000_000_000)
    # What is not computed yet is bounded by the analysed plan.
    parsed(selecting(call("repeat", attribute("x"), lit(2_000_000_000))))


def test_schemas_and_formats_are_bounded() -> None:
    parsed(selecting(call("from_json", attribute("s"), lit("a INT"))))
    assert "schema" in unparsed(selecting(call("from_json", lit("{}"), call("repeat", lit("a INT,"), lit(10_000)))))
    assert "format" in unparsed(selecting(call("to_char", lit(1), call("repeat", lit("9"), lit(5_000)))))

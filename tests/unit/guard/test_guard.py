"""What a stranger's SQL may hold, on plans as Spark's JSON has them: nodes in pre-order, trees inside their fields."""

import json
from typing import Any

import pytest

from service.engine.sql.tenant_sql import TableMention
from service.errors import InvalidQuery
from service.guard.costs.limits import QueryLimits
from service.guard.functions import FUNCTIONS
from service.guard.sql import QueryBounds, SelectReferences, TableReference, check_analysed, check_parsed
from service.guard.views import name_views
from service.settings import QuerySettings

PACKAGES = {
    "Project": "plans.logical",
    "Filter": "plans.logical",
    "Join": "plans.logical",
    "SubqueryAlias": "plans.logical",
    "UnresolvedWith": "plans.logical",
    "OneRowRelation": "plans.logical",
    "DropTable": "plans.logical",
    "ScriptTransformation": "plans.logical",
    "WithWindowDefinition": "plans.logical",
    "Literal": "expressions",
    "ScalarSubquery": "expressions",
    "CallMethodViaReflection": "expressions",
}
Nodes = list[dict[str, Any]]
LIMITS = QueryLimits.of(QuerySettings())
BOUNDS = QueryBounds(LIMITS, "SELECT 1")


def node(kind: str, /, *children: Nodes, **fields: Any) -> Nodes:
    package = PACKAGES.get(kind, "analysis")
    this = {"class": f"org.apache.spark.sql.catalyst.{package}.{kind}", "num-children": len(children), **fields}
    return [this, *(n for child in children for n in child)]


def table(*parts: str, **fields: Any) -> Nodes:
    shown = f"[{', '.join(parts)}]"
    return node("UnresolvedRelation", multipartIdentifier=shown, options=None, isStreaming=False, **fields)


def call(name: str, **fields: Any) -> Nodes:
    return node("UnresolvedFunction", nameParts=name, arguments=[], **fields)


def project(child: Nodes, *outputs: Nodes) -> Nodes:
    return node("Project", child, projectList=list(outputs), child=0)


def with_clause(child: Nodes, recursive: bool = False, **queries: Nodes) -> Nodes:
    relations = [{"product-class": "scala.Tuple3", "_1": name, "_2": query} for name, query in queries.items()]
    return node("UnresolvedWith", child, child=0, cteRelations=relations, allowRecursion=recursive)


def reads(plan: Nodes) -> SelectReferences:
    return check_parsed(json.dumps(plan), LIMITS)


def tables(plan: Nodes) -> set[tuple[str | None, str]]:
    return {(r.namespace, r.table) for r in reads(plan).tables}


def refused(plan: Nodes) -> str:
    with pytest.raises(InvalidQuery) as caught:
        reads(plan)
    assert caught.value.field == "sql"
    return caught.value.message


def test_tables_and_parameters_are_found_wherever_they_stand() -> None:
    inner = node("ScalarSubquery", plan=project(table("shop", "orders"), node("NamedParameter", name="p")))
    found = reads(project(node("Filter", table("people"), condition=inner, child=0), call("[upper]")))
    assert found.tables == {TableReference(None, "people"), TableReference("shop", "orders")}
    assert found.parameters == {"p"}


def test_a_name_of_a_with_clause_is_no_table_inside_it() -> None:
    assert tables(with_clause(project(table("W")), w=project(table("people")))) == {(None, "people")}


def test_a_with_clause_sees_the_names_before_its_own_and_no_later_ones() -> None:
    assert tables(with_clause(table("b"), a=table("x"), b=table("a"))) == {(None, "x")}
    assert tables(with_clause(table("a"), a=table("b"), b=table("x"))) == {(None, "b"), (None, "x")}
    assert tables(with_clause(table("a"), a=table("a"))) == {(None, "a")}
    assert tables(with_clause(table("a"), recursive=True, a=table("a"))) == set()


def test_a_with_clause_ends_where_its_query_does() -> None:
    inner = with_clause(table("secret"), secret=node("OneRowRelation"))
    assert tables(node("Join", inner, table("secret"), hint=None, left=0, right=1)) == {(None, "secret")}


def test_a_with_name_never_stands_for_a_name_of_several_parts() -> None:
    message = refused(with_clause(table("firn", "other__default"), False, **{"firn, other__default": table("x")}))
    assert "in WITH must be" in message


@pytest.mark.parametrize(
    "parts",
    [
        ("firn", "other__default", "secret"),
        ("system", "session", "x"),
        ("text", "/etc/hostname"),
        ("firn.other__default.secret",),
        ("a`b",),
        ("",),
        ("a]", "[b"),
    ],
)
def test_a_table_is_named_alone_or_with_its_namespace(parts: tuple[str, ...]) -> None:
    assert "is not one of your tables" in refused(table(*parts))


@pytest.mark.parametrize("name", ["DropTable", "ScriptTransformation", "RelationTimeTravel", "SomethingNew"])
def test_what_is_not_known_is_refused(name: str) -> None:
    assert "sql must be one SELECT" in refused(node(name, table("people")))
    assert "sql must be one SELECT" in refused(project(table("people"), node(name)))


def test_what_the_json_leaves_out_is_refused() -> None:
    window = node("WithWindowDefinition", table("people"), windowDefinitions=None, child=0)
    assert "a WINDOW clause" in refused(window)
    assert "Project with something" in refused(node("Project", table("people"), something=None))
    assert "Project with something" in refused(node("Project", table("people"), something=[[None]]))
    assert "Project with something" in refused(node("Project", table("people"), something={"inner": None}))


def test_a_class_of_another_package_is_refused() -> None:
    plan = project(table("people"))
    plan[0]["class"] = "com.example.Project"
    refused(plan)


def test_a_stream_is_refused() -> None:
    plan = table("people")
    plan[0]["isStreaming"] = True
    assert "STREAM" in refused(plan)


@pytest.mark.parametrize(
    "name",
    ["[reflect]", "[REFLECT]", "[java_method]", "[system, builtin, abs]", "[input_file_name]", "[a b]", "[]", "[ai_x]"],
)
def test_only_listed_functions_may_be_called(name: str) -> None:
    assert "cannot be used here" in refused(project(table("people"), call(name)))


def test_a_generator_is_a_function_too() -> None:
    known = {"product-class": "…FunctionIdentifier", "funcName": "explode"}
    reads(project(table("people"), node("UnresolvedGenerator", name=known)))
    refused(project(table("people"), node("UnresolvedGenerator", name={**known, "funcName": "reflect"})))
    refused(project(table("people"), node("UnresolvedGenerator", name={**known, "database": "db"})))
    reads(node("UnresolvedTableValuedFunction", name="[explode]"))
    refused(node("UnresolvedTableValuedFunction", name="[range]"))


def test_no_function_that_reaches_outside_is_listed() -> None:
    outside = {"reflect", "java_method", "try_reflect", "input_file_name", "from_protobuf", "xpath", "raise_error"}
    assert not FUNCTIONS & (outside | {"current_user", "current_catalog", "version", "from_avro", "sql_keywords"})


def test_a_plan_nested_beyond_reason_is_refused() -> None:
    plan: Nodes = table("people")
    for _ in range(2000):
        plan = project(plan)
    assert "nested too deeply" in refused(plan)


def test_an_analysed_plan_reads_tables_and_nothing_else() -> None:
    relation = {"class": "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation", "num-children": 0}
    subquery = node("ScalarSubquery", plan=[relation])
    assert check_analysed(json.dumps(node("Filter", [relation], condition=subquery)), BOUNDS) == 2
    files = {"class": "org.apache.spark.sql.execution.datasources.LogicalRelation", "num-children": 0}
    with pytest.raises(InvalidQuery, match="LogicalRelation"):
        check_analysed(json.dumps(project([files])), BOUNDS)
    with pytest.raises(InvalidQuery, match="CallMethodViaReflection"):
        check_analysed(json.dumps(project([relation], node("CallMethodViaReflection"))), BOUNDS)


def named(text: str, *mentioned: tuple[str, ...], with_names: tuple[str, ...] = ()) -> tuple[str, dict[str, str]]:
    references, mentions, place = set(), [], 0
    for parts in mentioned:
        references.add(TableReference(parts[0], parts[1]) if len(parts) == 2 else TableReference(None, parts[0]))
        place = text.index(".".join(parts), place)
        mentions.append(TableMention(parts, place, place + len(".".join(parts))))
        place += 1
    found = name_views(
        text, SelectReferences(frozenset(references), frozenset(with_names), frozenset()), "default", mentions
    )
    return found.text, {view: f"{r.namespace}.{r.table}" for view, r in found.views.items()}


def test_a_table_named_alone_keeps_its_name() -> None:
    assert named("FROM people", ("people",)) == ("FROM people", {"people": "default.people"})


def test_a_table_named_with_its_namespace_is_called_by_its_last_part_where_that_is_free() -> None:
    assert named("FROM shop.orders", ("shop", "orders")) == ("FROM `orders`", {"orders": "shop.orders"})
    assert named("FROM orders, shop.orders", ("orders",), ("shop", "orders")) == (
        "FROM orders, `shop__orders`",
        {"orders": "default.orders", "shop__orders": "shop.orders"},
    )
    assert named("FROM shop.w", ("shop", "w"), with_names=("w",)) == ("FROM `shop__w`", {"shop__w": "shop.w"})


def test_two_ways_to_name_a_table_mean_one_view() -> None:
    assert named("FROM a, default.a", ("a",), ("default", "a")) == ("FROM a, `a`", {"a": "default.a"})


def test_names_that_differ_only_in_case_cannot_stand_side_by_side() -> None:
    with pytest.raises(InvalidQuery, match="differ only in case"):
        named("FROM a, A", ("a",), ("A",))

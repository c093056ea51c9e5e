"""Which plans return the same rows each time, by the JSON of Spark's plans."""

import json
from typing import Any

import pytest

from service.guard.repeatable import is_repeatable

PLANS, EXPRESSIONS = "org.apache.spark.sql.catalyst.plans.logical", "org.apache.spark.sql.catalyst.expressions"
TABLE = {"class": f"{PLANS}.SubqueryAlias", "num-children": 0}


def expression(name: str, children: int = 0, **fields: Any) -> dict[str, Any]:
    package = f"{EXPRESSIONS}.aggregate" if name in ("Sum", "Average", "First", "Count", "Max") else EXPRESSIONS
    return {"class": f"{package}.{name}", "num-children": children, **fields}


def column(kind: str) -> dict[str, Any]:
    return expression("AttributeReference", dataType=kind)


def aggregate(*function: dict[str, Any]) -> str:
    tree = [expression("Alias", 1), expression("AggregateExpression", 1), *function]
    node = {"class": f"{PLANS}.Aggregate", "num-children": 1, "aggregateExpressions": [[column("double")], tree]}
    return json.dumps([node, TABLE])


def project(*tree: dict[str, Any], above: str = "Project") -> str:
    return json.dumps([{"class": f"{PLANS}.{above}", "num-children": 1, "projectList": [list(tree)]}, TABLE])


@pytest.mark.parametrize(
    ("plan", "repeatable"),
    [
        (project(column("double")), True),
        (project(column("double"), above="GlobalLimit"), False),
        (project(column("double"), above="Window"), False),
        (project(expression("Alias", 1), expression("CurrentTimestamp")), False),
        (project(expression("Now")), False),
        (project(expression("SpecifiedWindowFrame", 1), expression("CurrentRow$")), True),
        (project(expression("ScalarSubquery", plan=[{"class": f"{PLANS}.LocalLimit", "num-children": 0}])), False),
        (aggregate(expression("Count", 1), column("double")), True),
        (aggregate(expression("Max", 1), column("double")), True),
        (aggregate(expression("First", 1), column("long")), False),
        (aggregate(expression("Sum", 1), column("long")), True),
        (aggregate(expression("Sum", 1), column("double")), False),
        (aggregate(expression("Sum", 1), expression("Multiply", 2), column("long"), column("float")), False),
        (aggregate(expression("Average", 1), column("decimal(9,2)"), column("double")), True),
    ],
)
def test_what_depends_on_the_clock_the_tasks_or_rounding_is_not(plan: str, repeatable: bool) -> None:
    assert is_repeatable(plan) == repeatable

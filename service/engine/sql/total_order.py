"""A total order for a SELECT: its own, and then by all columns, so that only equal rows are in any order."""

from collections.abc import Callable
from typing import Any

from service.engine.session.java import java_class, scala_items
from service.engine.session.rows import planned
from service.engine.session.spark_types import DataFrame
from service.engine.sql.window import Window, limited, without_limits

_FRACTIONS = ("float", "double")


def is_sorted(df: DataFrame) -> bool:
    """Whether the SELECT sorts its result."""
    plan, _ = without_limits(df._jdf.queryExecution().analyzed(), Window())
    return bool(_down_to_sort(plan))


def in_total_order(
    df: DataFrame,
    window: Window,
    repeatable: Callable[[str], bool],
    without_barriers: Callable[[], DataFrame] | None = None,
) -> DataFrame | None:
    """The window of the rows in a total order; None if another run could have other rows, or another order.

    `without_barriers` makes the same SELECT without those of policies, which Spark takes for random conditions.
    """
    plan, whole = without_limits(df._jdf.queryExecution().analyzed(), window)
    judged = plan
    if without_barriers is not None:
        judged, _ = without_limits(without_barriers()._jdf.queryExecution().analyzed(), window)
    if not judged.deterministic() or not repeatable(str(judged.toJSON())):
        return None
    path = _down_to_sort(plan)
    columns = scala_items(path[-1].child().output() if path else plan.output())
    is_orderable = java_class("org.apache.spark.sql.catalyst.expressions.RowOrdering").isOrderable
    if not all(is_orderable(column.dataType()) for column in columns):
        return None
    rows = planned(df.sparkSession, _sorted_further(path, columns)) if path else _by_all_columns(df, plan)
    return limited(rows, whole)


def _down_to_sort(plan: Any) -> list[Any]:
    """The plan and the plans below it, down to the sort of the result; empty if it has none."""
    path = [plan]
    while path[-1].getClass().getSimpleName() in ("WithCTE", "Project"):
        last = path[-1]
        path.append(last.plan() if last.getClass().getSimpleName() == "WithCTE" else last.child())
    return path if path[-1].getClass().getSimpleName() == "Sort" else []


def _sorted_further(path: list[Any], columns: list[Any]) -> Any:
    """The plan with further columns to sort by."""
    *above, sort = path
    orders = sort.order()
    like, none = orders.head(), orders.take(0)
    for column in columns:
        orders = orders.appended(like.copy(column, like.direction(), like.nullOrdering(), none))
    plan = sort.copy(orders, True, sort.child(), sort.hint())
    for each in reversed(above):
        is_with = each.getClass().getSimpleName() == "WithCTE"
        plan = each.copy(plan, each.cteDefs()) if is_with else each.copy(each.projectList(), plan)
    return plan


def _by_all_columns(df: DataFrame, plan: Any) -> DataFrame:
    # By numbers, because names may differ only in case. The text tells 0.0 from -0.0.
    rows = planned(df.sparkSession, plan)
    names = [f"c{i}" for i in range(len(rows.columns))]
    rows = rows.toDF(*names)
    kinds = (field.dataType.typeName() for field in rows.schema.fields)
    fractions = [rows[name].cast("string") for name, kind in zip(names, kinds, strict=True) if kind in _FRACTIONS]
    return rows.orderBy(*names, *fractions)

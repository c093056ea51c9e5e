"""LIMIT and OFFSET, held by whoever reads the rows in order.

Spark keeps as many rows in memory as a LIMIT after ORDER BY names, and loses the order where it does not; so where they
are many, whoever reads the rows counts them.
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from service.engine.jvm import java_class

# So many rows Spark may keep in memory; a JSON answer has no more.
_FEW = 100_000


@dataclass(frozen=True, slots=True)
class Window:
    """Which of the rows in order: all after the first `offset`, at most `limit`."""

    offset: int = 0
    limit: int | None = None

    def of(self, inner: "Window") -> "Window":
        """This window of the rows that another one leaves."""
        left = None if inner.limit is None else max(inner.limit - self.offset, 0)
        limits = [limit for limit in (left, self.limit) if limit is not None]
        return Window(self.offset + inner.offset, min(limits, default=None))

    @property
    def is_small(self) -> bool:
        return self.limit is not None and self.offset + self.limit <= _FEW


def windowed(df: DataFrame, window: Window) -> tuple[DataFrame, Window]:
    """A frame, and the window of its rows that remains to be held: of small ones none."""
    plan = df._jdf.queryExecution().analyzed()
    inside, whole = _peeled(plan, window)
    if whole.is_small:
        if window.offset:
            df = df.offset(window.offset)
        return (df if window.limit is None else df.limit(window.limit)), Window()
    return (df if inside is plan else _frame(df.sparkSession, inside)), whole


def _peeled(plan: Any, window: Window) -> tuple[Any, Window]:
    """A plan without the LIMIT and OFFSET that stand outermost in it, and the window that they leave of it."""
    kind = plan.getClass().getSimpleName()
    if kind == "WithCTE":
        inside, window = _peeled(plan.plan(), window)
        return plan.copy(inside, plan.cteDefs()), window
    if kind == "GlobalLimit" and plan.child().getClass().getSimpleName() == "LocalLimit":
        return _peeled(plan.child().child(), window.of(Window(limit=plan.limitExpr().eval(None))))
    if kind == "Offset":
        return _peeled(plan.child(), window.of(Window(offset=plan.offsetExpr().eval(None))))
    return plan, window


def _frame(session: SparkSession, plan: Any) -> DataFrame:
    dataset = java_class("org.apache.spark.sql.classic.Dataset")
    return DataFrame(dataset.ofRows(session._jsparkSession, plan), session)

"""LIMIT and OFFSET, applied by the reader of a stream if they are large.

Spark keeps as many rows in memory as a LIMIT after ORDER BY names, and otherwise loses the order. So if they are many,
the reader counts them.
"""

from dataclasses import dataclass
from typing import Any

from service.engine.session.java import java_class
from service.engine.session.spark_types import DataFrame, SparkSession

# Rows that Spark may keep in memory; a JSON response has no more.
_FEW = 100_000


@dataclass(frozen=True, slots=True)
class Window:
    """Which of the rows in order: all after the first `offset`, at most `limit`."""

    offset: int = 0
    limit: int | None = None

    def of(self, inner: "Window") -> "Window":
        """This window of the rows in another one."""
        left = None if inner.limit is None else max(inner.limit - self.offset, 0)
        limits = [limit for limit in (left, self.limit) if limit is not None]
        return Window(self.offset + inner.offset, min(limits, default=None))

    @property
    def is_small(self) -> bool:
        return self.limit is not None and self.offset + self.limit <= _FEW


def windowed(df: DataFrame, window: Window) -> tuple[DataFrame, Window]:
    """A frame, and the window that the reader must apply; none if it is small."""
    plan = df._jdf.queryExecution().analyzed()
    inside, whole = _peeled(plan, window)
    if whole.is_small:
        if window.offset:
            df = df.offset(window.offset)
        return (df if window.limit is None else df.limit(window.limit)), Window()
    return (df if inside is plan else _frame(df.sparkSession, inside)), whole


def _peeled(plan: Any, window: Window) -> tuple[Any, Window]:
    """A plan without its outermost LIMIT and OFFSET, and the window with them."""
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
    from pyspark.sql import DataFrame

    dataset = java_class("org.apache.spark.sql.classic.Dataset")
    return DataFrame(dataset.ofRows(session._jsparkSession, plan), session)

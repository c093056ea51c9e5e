"""LIMIT and OFFSET, applied by the reader of a stream if they are large.

To keep the order, Spark holds all rows of a LIMIT after ORDER BY in memory. So if there are many, the reader counts
them instead.
"""

from dataclasses import dataclass
from typing import Any

from service.engine.session.rows import planned
from service.engine.session.spark_types import DataFrame

# Rows that Spark may keep in memory; a JSON response has no more.
_FEW = 100_000


@dataclass(frozen=True, slots=True)
class Window:
    """A range of ordered rows: those after the first `offset`, at most `limit`."""

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
    """The frame to run, and the window that its reader must apply: an unlimited one if Spark applies it."""
    plan = df._jdf.queryExecution().analyzed()
    inside, whole = without_limits(plan, window)
    if whole.is_small:
        return limited(df, window), Window()
    return (df if inside is plan else planned(df.sparkSession, inside)), whole


def limited(df: DataFrame, window: Window) -> DataFrame:
    """The window of a frame, applied by Spark."""
    df = df.offset(window.offset) if window.offset else df
    return df if window.limit is None else df.limit(window.limit)


def without_limits(plan: Any, window: Window) -> tuple[Any, Window]:
    """A plan without its outermost LIMIT and OFFSET, and the window with them."""
    kind = plan.getClass().getSimpleName()
    if kind == "WithCTE":
        inside, window = without_limits(plan.plan(), window)
        return plan.copy(inside, plan.cteDefs()), window
    if kind == "GlobalLimit" and plan.child().getClass().getSimpleName() == "LocalLimit":
        return without_limits(plan.child().child(), window.of(Window(limit=plan.limitExpr().eval(None))))
    if kind == "Offset":
        return without_limits(plan.child(), window.of(Window(offset=plan.offsetExpr().eval(None))))
    return plan, window

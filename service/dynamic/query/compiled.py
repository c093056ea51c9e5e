"""A query as the refresh of a dynamic table needs it."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol

from service.model.dynamic.plan import IncrementalPlan


@dataclass(frozen=True)
class QuerySource:
    """A table that the query names, once, whatever number of times. Its number is its place among all sources."""

    namespace: str | None
    """None for the namespace of the dynamic table."""
    table: str
    columns: tuple[str, ...]
    """The columns that the query reads."""
    line: int
    column: int


@dataclass(frozen=True)
class NotIncremental:
    """Why a query is computed from scratch at each refresh."""

    code: str
    """Stable, such as LIMIT or NON_DETERMINISTIC."""
    message: str
    line: int | None = None
    column: int | None = None


class CompiledQuery(Protocol):
    """What `compile_query` returns."""

    @property
    def sources(self) -> tuple[QuerySource, ...]: ...

    @property
    def full(self) -> str:
        """The whole result as Spark SQL over the views `s{i}_new`: the query's columns, then the hidden ones."""

    @property
    def hidden(self) -> tuple[str, ...]:
        """The names of the hidden columns."""

    @property
    def not_incremental(self) -> NotIncremental | None: ...

    @property
    def classes(self) -> tuple[str, ...]:
        """The operators of the query, for EXPLAIN and tests: "inner join", "aggregate by adding"."""

    def plan(self, changed: Set[int]) -> IncrementalPlan:
        """How the result changes if rows of these sources, by number, have changed. At least one has."""

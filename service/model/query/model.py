"""A query as values: its tables, outputs, rows and order."""

from dataclasses import dataclass, replace
from typing import Literal

from service.model.filters.predicates import EVERY_ROW, Order, Predicate
from service.model.policy.view import RowView
from service.model.schema.columns import Column
from service.model.schema.types import ColumnType, TableSchema

StepKind = Literal["cast", "trim", "upper", "lower", "substring", "date_trunc", "date_format", "extract"]
JoinKind = Literal["inner", "left", "right", "full"]
AggregateKind = Literal["count", "count_distinct", "sum", "avg", "min", "max", "stddev", "variance", "median"]


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table as a query reads it: under an alias, and at a snapshot if one is given."""

    spark_name: str
    alias: str
    schema: TableSchema
    snapshot_id: int | None = None
    view: RowView | None = None
    """What the sender sees of it, if that is not all; `schema` has only these columns."""


@dataclass(frozen=True, slots=True)
class JoinCondition:
    left: Column
    operator: Order
    right: Column


@dataclass(frozen=True, slots=True)
class Join:
    source: TableSource
    kind: JoinKind
    on: tuple[JoinCondition, ...]


@dataclass(frozen=True, slots=True)
class ValueStep:
    """A step applied to a value, and the type of the result."""

    kind: StepKind
    type: ColumnType
    arguments: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Computed:
    """A column's value after some steps."""

    column: Column
    steps: tuple[ValueStep, ...] = ()

    @property
    def type(self) -> ColumnType:
        return self.steps[-1].type if self.steps else self.column.type

    @property
    def same_as(self) -> "Computed":
        """A key that is equal for equal computations, whatever name the request uses for the column."""
        return replace(self, column=replace(self.column, name=""))


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One value computed from many rows; without a column, their number."""

    kind: AggregateKind
    column: Column | None
    distinct: bool
    type: ColumnType


@dataclass(frozen=True, slots=True)
class Grouping:
    """Makes one row of each group. The results are columns named `group_column(i)` and `aggregate_column(i)`."""

    groups: tuple[Computed, ...]
    aggregates: tuple[Aggregate, ...]
    having: Predicate = EVERY_ROW


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    value: Computed


@dataclass(frozen=True, slots=True)
class Sort:
    """Sorts by an output, given by its position, or by another value."""

    by: int | Computed
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Query:
    """A checked query. Outputs and sorts read the sources' columns, or the results of the grouping if there is one."""

    source: TableSource
    outputs: tuple[Output, ...]
    joins: tuple[Join, ...] = ()
    where: Predicate = EVERY_ROW
    grouping: Grouping | None = None
    sorts: tuple[Sort, ...] = ()
    distinct: bool = False
    limit: int = 1000
    offset: int = 0
    placed: bool = False
    """Whether its sources also have the place of each row, as `PLACE_COLUMNS`."""

    @property
    def is_plain(self) -> bool:
        """Whether its rows are rows of one table, in any order."""
        return not (self.joins or self.grouping or self.sorts or self.distinct)

    @property
    def is_whole(self) -> bool:
        """Whether its sender sees all of its tables."""
        return all(source.view is None for source in self.sources)

    @property
    def sources(self) -> list[TableSource]:
        return [self.source, *(join.source for join in self.joins)]


def group_column(place: int) -> str:
    return f"g{place}"


def aggregate_column(place: int) -> str:
    return f"a{place}"

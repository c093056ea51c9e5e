"""What a filter asks of a row, as one tree; both dialects parse to it and every rendering starts from it.

A literal always has its column's own type, so that whatever a tree says can be pushed down to files. Nulls follow SQL:
a predicate on a null is neither true nor false, and a row is kept only where the whole is true.
"""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Literal, TypeAlias

from service.columns import Column
from service.expressions.tree import Expression

Value: TypeAlias = bool | int | float | Decimal | str | bytes | date | datetime
Order = Literal["eq", "ne", "gt", "gte", "lt", "lte"]
TextTest = Literal["like", "ilike", "regex", "starts_with", "ends_with", "contains"]


@dataclass(frozen=True, slots=True)
class And:
    """True where every child is; so it is true of every row where there are none."""

    children: "tuple[Predicate, ...]"


@dataclass(frozen=True, slots=True)
class Or:
    """True where any child is; so it is true of no row where there are none."""

    children: "tuple[Predicate, ...]"


@dataclass(frozen=True, slots=True)
class Not:
    child: "Predicate"


@dataclass(frozen=True, slots=True)
class Always:
    """The same answer for every value of the column but null."""

    column: Column
    answer: bool


@dataclass(frozen=True, slots=True)
class Compare:
    column: Column
    operator: Order
    operand: Value | Column


@dataclass(frozen=True, slots=True)
class In:
    """Equal to one of the values; a null in the list makes every other answer unknown."""

    column: Column
    values: tuple[Value, ...]
    or_null: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    column: Column


@dataclass(frozen=True, slots=True)
class Matches:
    """A test of text; with `any_element` the column is a list of texts and one has to pass."""

    column: Column
    operator: TextTest
    operand: str | Column
    any_element: bool = False


@dataclass(frozen=True, slots=True)
class HasElement:
    column: Column
    value: Value


@dataclass(frozen=True, slots=True)
class Holds:
    """True where a condition written as an expression is."""

    expression: Expression


Predicate: TypeAlias = And | Or | Not | Always | Compare | In | IsNull | Matches | HasElement | Holds

EVERY_ROW: Predicate = And(())
NO_ROW: Predicate = Or(())

"""A filter as a tree. Both dialects are parsed into it, and SQL and Iceberg expressions are rendered from it.

A literal always has its column's own type, so that every predicate can be pushed down to files. Nulls follow SQL:
a predicate on a null is neither true nor false, and only rows for which the whole is true are kept.
"""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Literal, TypeAlias

from service.model.expressions.tree import Expression
from service.model.schema.columns import Column

Value: TypeAlias = bool | int | float | Decimal | str | bytes | date | datetime
Order = Literal["eq", "ne", "gt", "gte", "lt", "lte"]
TextTest = Literal["like", "ilike", "regex", "starts_with", "ends_with", "contains"]


@dataclass(frozen=True, slots=True)
class And:
    """True if every child is; without children, true for every row."""

    children: "tuple[Predicate, ...]"


@dataclass(frozen=True, slots=True)
class Or:
    """True if any child is; without children, true for no row."""

    children: "tuple[Predicate, ...]"


@dataclass(frozen=True, slots=True)
class Not:
    child: "Predicate"


@dataclass(frozen=True, slots=True)
class Always:
    """The same answer for every value of the column except null."""

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
    """A test of text; with `any_element` the column is a list of texts, and one of them has to pass."""

    column: Column
    operator: TextTest
    operand: str | Column
    any_element: bool = False


@dataclass(frozen=True, slots=True)
class HasElement:
    column: Column
    value: Value


@dataclass(frozen=True, slots=True)
class ExpressionHolds:
    """True if a condition written as an expression is."""

    expression: Expression


Predicate: TypeAlias = And | Or | Not | Always | Compare | In | IsNull | Matches | HasElement | ExpressionHolds

EVERY_ROW: Predicate = And(())
NO_ROW: Predicate = Or(())

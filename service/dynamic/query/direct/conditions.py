"""Conditions that are decided in this process just as Spark decides them: comparisons of columns and constants."""

import re
from datetime import date
from decimal import Decimal

from sqlglot import exp

from service.model.dynamic.direct import (
    ColumnTerm,
    Comparator,
    Compared,
    Connected,
    ConstantTerm,
    DirectCondition,
    Negated,
    NullTest,
)

_COMPARISONS: dict[type[exp.Expr], Comparator] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_NUMBER = re.compile(r"\d{1,18}(\.\d{1,9})?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class NotDirect(Exception):
    """An operation that only Spark computes."""


def condition(one: exp.Expr) -> DirectCondition:
    """A condition of SQL; raises NotDirect."""
    match one:
        case exp.Paren():
            return condition(one.this)
        case exp.And():
            return Connected("and", (condition(one.this), condition(one.expression)))
        case exp.Or():
            return Connected("or", (condition(one.this), condition(one.expression)))
        case exp.Not():
            return Negated(condition(one.this))
        case exp.Is() if isinstance(one.this, exp.Column) and isinstance(one.expression, exp.Null):
            return NullTest(one.this.name)
        case exp.Between() if not one.args.get("symmetric"):
            low, high = one.args["low"], one.args["high"]
            return Connected("and", (_compared(">=", one.this, low), _compared("<=", one.this, high)))
        case exp.In() if one.expressions and not any(map(one.args.get, ("query", "unnest", "field"))):
            return Connected("or", tuple(_compared("=", one.this, each) for each in one.expressions))
    how = _COMPARISONS.get(type(one))
    if how is None:
        raise NotDirect
    return _compared(how, one.this, one.expression)


def _compared(how: Comparator, left: exp.Expr, right: exp.Expr) -> Compared:
    return Compared(how, _value(left), _value(right))


def _value(one: exp.Expr) -> ColumnTerm | ConstantTerm:
    match one:
        case exp.Paren():
            return _value(one.this)
        case exp.Column():
            return ColumnTerm(one.name)
        case exp.Neg() if isinstance(one.this, exp.Literal) and not one.this.is_string:
            found = _constant(one.this)
            assert isinstance(found, int | Decimal)
            return ConstantTerm(-found)
        case exp.Literal():
            return ConstantTerm(_constant(one))
        case exp.Cast() if isinstance(one.this, exp.Literal) and one.this.is_string:
            if one.to.is_type("date") and _DATE.fullmatch(one.this.name):
                try:
                    return ConstantTerm(date.fromisoformat(one.this.name))
                except ValueError as e:
                    raise NotDirect from e
    raise NotDirect


def _constant(one: exp.Literal) -> int | Decimal | str:
    """A text, or a number that is exact."""
    text = one.name
    if one.is_string:
        return text
    if not _NUMBER.fullmatch(text):
        raise NotDirect
    return Decimal(text) if "." in text else int(text)

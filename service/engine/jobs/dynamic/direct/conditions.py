"""Conditions on Arrow rows, as Spark decides them. Pure."""

from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

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

_COMPARED: dict[Comparator, Callable[..., Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
# What numbers of different types become to be compared. Constants have at most 18 digits before the point and 9 after.
_NUMBER = pa.decimal128(38, 18)


class NeedsSpark(Exception):
    """What only Spark computes as the query means it, or what it computes faster."""


def matching(rows: pa.Table, conditions: Iterable[DirectCondition]) -> pa.Table:
    """The rows for which all conditions are true: neither false nor null."""
    for one in conditions:
        rows = rows.filter(_decided(rows, one))
    return rows


def is_plain(kind: pa.DataType) -> bool:
    """Whether Arrow finds two values of a type equal, or one less, just as Spark does."""
    whole = kinds.is_int32(kind) or kinds.is_int64(kind) or kinds.is_boolean(kind)
    text = kinds.is_string(kind) or kinds.is_binary(kind)
    return bool(whole or text or kinds.is_date32(kind) or kinds.is_timestamp(kind) or kinds.is_decimal128(kind))


def _decided(rows: pa.Table, one: DirectCondition) -> Any:
    match one:
        case NullTest():
            return pc.is_null(rows[one.column])
        case Negated():
            return pc.invert(_decided(rows, one.of))
        case Connected():
            connect = pc.and_kleene if one.how == "and" else pc.or_kleene
            return reduce(connect, (_decided(rows, part) for part in one.parts))
        case Compared():
            return _COMPARED[one.how](*_sides(rows, one))


def _sides(rows: pa.Table, one: Compared) -> tuple[Any, Any]:
    """Both values, as one type of Arrow."""
    left, right = one.left, one.right
    if isinstance(left, ColumnTerm) and isinstance(right, ColumnTerm):
        first, second = rows[left.name], rows[right.name]
        if first.type != second.type:
            raise NeedsSpark
        return first, second
    if isinstance(left, ColumnTerm) and isinstance(right, ConstantTerm):
        return _with_constant(rows[left.name], right.value)
    if isinstance(left, ConstantTerm) and isinstance(right, ColumnTerm):
        return _with_constant(rows[right.name], left.value)[::-1]
    raise NeedsSpark


def _with_constant(column: pa.ChunkedArray, value: int | Decimal | str | date) -> tuple[Any, Any]:
    return _numbers(column, value) or (column, _scalar(value, column.type))


def _numbers(column: pa.ChunkedArray, value: int | Decimal | str | date) -> tuple[Any, Any] | None:
    """A column and a constant that are different types of numbers, as decimals; None for others."""
    kind = column.type
    if kinds.is_integer(kind) and isinstance(value, Decimal):
        return column.cast(pa.decimal128(19, 0)).cast(_NUMBER), pa.scalar(value, _NUMBER)
    if kinds.is_decimal128(kind) and isinstance(value, int | Decimal):
        if kind.scale > _NUMBER.scale or kind.precision - kind.scale > _NUMBER.precision - _NUMBER.scale:
            raise NeedsSpark
        return column.cast(_NUMBER), pa.scalar(Decimal(value), _NUMBER)
    return None


def _scalar(value: int | Decimal | str | date, kind: pa.DataType) -> pa.Scalar:
    """A constant as a value of a column's type; NeedsSpark if Spark would convert it."""
    same = (
        (isinstance(value, int) and kinds.is_integer(kind))
        or (isinstance(value, str) and kinds.is_string(kind))
        or (isinstance(value, date) and not isinstance(value, datetime) and kinds.is_date32(kind))
    )
    if not same:
        raise NeedsSpark
    try:
        return pa.scalar(value, pa.int64() if kinds.is_integer(kind) else kind)
    except (pa.ArrowInvalid, OverflowError) as e:
        raise NeedsSpark from e

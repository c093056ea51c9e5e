"""Aggregates by adding, computed in this process: the counts and sums of a change are added to the stored ones. Pure.

It gives exactly what the plan of `query/adding.py` gives in Spark, or raises NeedsSpark: also for an overflow, which
Spark reports.
"""

import decimal
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from service.engine.jobs.dynamic.direct.conditions import NeedsSpark, is_plain
from service.engine.jobs.dynamic.direct.rows import netted
from service.engine.session.rows import plain_columns
from service.model.dynamic.direct import AddedGroups
from service.model.dynamic.plan import WEIGHT
from service.model.keyed.contents import Content, contents
from service.model.keyed.pool import plain_values
from service.model.schema.types import TableSchema

# More groups are faster in Spark.
_MOST_GROUPS = 20_000
_WHOLE_MOST = (1 << 63) - 1
_EXACT = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP, traps=[decimal.InvalidOperation])
# Spark rounds a quotient of decimals to so many digits after the point, before it gets the digits of its type.
_QUOTIENT_SCALE = 39


@dataclass
class _Total:
    """What a group gains and loses: rows, and of each argument values, their sum, and the extremes on both sides."""

    at: int
    """A row of the totals that has the group's key."""
    rows: int = 0
    counts: list[int] = field(default_factory=list)
    sums: list[Any] = field(default_factory=list)
    extremes: dict[tuple[str, int, bool], Any] = field(default_factory=dict)


def changed_groups(rows: pa.Table, how: AddedGroups, stored: pa.Table, schema: TableSchema) -> tuple[pa.Table, int]:
    """The rows of the result that come and go, with their weights, and how many groups have changed.

    `stored` has the rows of all these groups, with the columns of the result.
    """
    plain = plain_columns(schema)
    if not all(is_plain(one.type) or kinds.is_float64(one.type) for one in plain):
        raise NeedsSpark
    kept = [how.column_of(key) for key in how.keys]
    try:
        if how.has_extremes:  # a value that came and went as often did neither
            rows = netted(rows, [*how.keys, *(one.column for one in how.arguments)])
        totals = _totals(rows, how)
        found = _by_group(totals, how)
        there = {key: at for at, key in enumerate(contents(stored, kept))}
        if len(there) < stored.num_rows:
            raise NeedsSpark
        values = _Stored(stored, how)
        new = [(key, total, _merged(how, values, there.get(key), total, plain)) for key, total in found.items()]
        came = _rows_of(how, [(total, row) for _, total, row in new if row is not None], totals, plain)
        going = pa.array([there[key] for key in found if key in there], pa.int64())
        gone = stored.select(plain.names).take(going).cast(plain)
        return _net_contents(gone, came), len(found)
    except (ValueError, OverflowError, pa.ArrowException, decimal.DecimalException) as e:
        raise NeedsSpark from e


def _totals(rows: pa.Table, how: AddedGroups) -> pa.Table:
    """Rows, counts, sums and extremes by key and weight: columns with the names of what they are."""
    by = [*how.keys, WEIGHT]
    wanted: list[tuple[str, str, str]] = []
    columns = {name: rows[name] for name in by}
    for number, argument in enumerate(how.arguments):
        value, name = rows[argument.column], f"{WEIGHT}_{number}"
        whole = kinds.is_integer(value.type)
        if argument.is_whole and not whole:
            raise NeedsSpark
        wanted.append((name, "count", f"count_{number}"))
        for kind in {kind for kind, at in how.values.values() if at == number} - {"count", "avg"}:
            wanted.append((name, kind, f"{kind}_{number}"))
            if kind != "sum" and kinds.is_boolean(value.type):
                raise NeedsSpark
            if kind == "sum":
                value = _summable(value)
        columns[name] = value
    prepared = pa.table(columns) if columns else rows
    grouped = prepared.group_by(by, use_threads=False).aggregate([([], "count_all"), *((n, k) for n, k, _ in wanted)])
    found = grouped.rename_columns([*by, "rows", *(shown for _, _, shown in wanted)])
    if found.num_rows > _MOST_GROUPS:
        raise NeedsSpark
    return found


def _summable(value: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values of a type in which so many of them are added without overflow."""
    kind = value.type
    if kinds.is_integer(kind):
        value = value.cast(pa.decimal128(19, 0))
    elif not kinds.is_decimal128(kind):
        raise NeedsSpark
    if value.type.precision + len(str(len(value))) > 38:
        raise NeedsSpark
    return value


def _by_group(totals: pa.Table, how: AddedGroups) -> dict[Content, _Total]:
    """The totals of each group, over all weights."""
    count = len(how.arguments)
    found: dict[Content, _Total] = {}
    columns = {name: plain_values(totals[name]) for name in totals.column_names if name not in how.keys}
    keys = contents(totals, list(how.keys))
    for at, (key, weight) in enumerate(zip(keys, columns[WEIGHT], strict=True)):
        total = found.get(key)
        if total is None:
            total = found[key] = _Total(at, counts=[0] * count, sums=[Decimal(0)] * count)
        total.rows += weight * columns["rows"][at]
        for number in range(count):
            total.counts[number] += weight * columns[f"count_{number}"][at]
            if (sums := columns.get(f"sum_{number}")) and sums[at] is not None:
                total.sums[number] = _EXACT.fma(sums[at], weight, total.sums[number])
            for kind in ("min", "max"):
                value = columns[f"{kind}_{number}"][at] if f"{kind}_{number}" in columns else None
                if value is not None:
                    side = (kind, number, weight > 0)
                    total.extremes[side] = _extreme(kind, total.extremes.get(side), value)
    return found


def _extreme(kind: str, one: Any, other: Any) -> Any:
    """The least or the greatest of two values, of which one may be null."""
    some = [value for value in (one, other) if value is not None]
    return (min if kind == "min" else max)(some) if some else None


class _Stored:
    """The stored counts, sums and extremes of groups."""

    def __init__(self, stored: pa.Table, how: AddedGroups) -> None:
        self._how = how
        self._values: dict[tuple[str, int], list[Any]] = {
            (kind, number): plain_values(stored[how.named(kind, number)])
            for kind, number in how.values.values()
            if kind != "avg"
        }

    def value(self, kind: str, number: int, at: int | None) -> Any:
        return None if at is None else self._values[kind, number][at]


def _merged(
    how: AddedGroups, stored: _Stored, at: int | None, total: _Total, plain: pa.Schema
) -> dict[str, Any] | None:
    """The aggregates of a group as they are now; None if it has no rows left."""
    rows = (stored.value("count", -1, at) or 0) + total.rows
    if rows < 0 or rows > _WHOLE_MOST:
        raise NeedsSpark
    if how.keys and not rows:
        return None
    found: dict[str, Any] = {}
    for name, (kind, number) in how.values.items():
        count = rows if number < 0 else None
        if number >= 0 and ("count", number) in how.values.values():
            count = (stored.value("count", number, at) or 0) + total.counts[number]
        if kind == "count":
            found[name] = count
        elif kind in ("min", "max"):
            found[name] = _kept_extreme(kind, number, stored.value(kind, number, at), total)
        else:
            assert count is not None
            kept = plain.field(how.named("sum", number)).type
            added = _fitting(_EXACT.add(Decimal(stored.value("sum", number, at) or 0), total.sums[number]), kept)
            if kind == "avg" and count > 0:
                found[name] = _quotient(added, count, kept, plain.field(how.column_of(name)).type)
            else:
                found[name] = added if count > 0 else None
    return found


def _kept_extreme(kind: str, number: int, kept: Any, total: _Total) -> Any:
    """NeedsSpark if a row with the extreme went, so that the group has to be read."""
    came, went = (total.extremes.get((kind, number, side)) for side in (True, False))

    def reaches(value: Any, other: Any) -> bool:
        return bool(value <= other if kind == "min" else value >= other)

    lost = went is not None and (kept is None or reaches(went, kept))
    if lost and (kept is None or came is None or not reaches(came, kept)):
        raise NeedsSpark
    return _extreme(kind, kept, came)


def _fitting(value: Decimal, kind: pa.DataType) -> Decimal:
    """A sum as a value of its type; NeedsSpark if it overflows."""
    if kinds.is_int64(kind):
        if not -_WHOLE_MOST - 1 <= value <= _WHOLE_MOST:
            raise NeedsSpark
        return value
    if not kinds.is_decimal128(kind) or abs(value) >= Decimal(10) ** (kind.precision - kind.scale):
        raise NeedsSpark
    return value


def _quotient(total: Decimal, count: int, summed: pa.DataType, kind: pa.DataType) -> float | Decimal:
    """An average as Spark divides: a double, or a decimal that is rounded to the digits of the quotient first."""
    if kinds.is_float64(kind):
        return float(total) / float(count)
    if not kinds.is_decimal128(kind) or not kinds.is_decimal128(summed):
        raise NeedsSpark
    whole, scale = summed.precision - summed.scale, max(6, summed.scale + 21)
    if whole + scale > 38:
        scale = max(38 - whole, min(scale, 6))
    rounded = _rounded(_rounded(Fraction(total) / count, _QUOTIENT_SCALE), scale)
    with decimal.localcontext(_EXACT):
        return _fitting(Decimal(int(_rounded(rounded, kind.scale) * 10**kind.scale)).scaleb(-kind.scale), kind)


def _rounded(value: Fraction, scale: int) -> Fraction:
    """A number with so many digits after the point; a half is rounded away from 0."""
    units = abs(value) * 10**scale
    return Fraction((2 * units.numerator + units.denominator) // (2 * units.denominator), 10**scale) * (
        1 if value >= 0 else -1
    )


def _rows_of(
    how: AddedGroups, rows: Sequence[tuple[_Total, dict[str, Any]]], totals: pa.Table, plain: pa.Schema
) -> pa.Table:
    """Groups as rows of the result."""
    at = pa.array([total.at for total, _ in rows], pa.int64())
    columns = []
    for one in plain:
        name = how.columns[one.name]
        if name in how.keys:
            key = totals[name].take(at)
            if key.type != one.type:
                raise NeedsSpark
            columns.append(key)
        else:
            columns.append(_array([row[name] for _, row in rows], one.type))
    return pa.Table.from_arrays(columns, schema=plain)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Plain values as a column."""
    if kinds.is_decimal(kind):
        return pa.array([None if value is None else Decimal(value) for value in values], kind)
    if kinds.is_integer(kind):
        return pa.array([None if value is None else int(value) for value in values], kind)
    if kinds.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if kinds.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def _net_contents(gone: pa.Table, came: pa.Table) -> pa.Table:
    """The rows on only one side, with their weights."""
    before, after = contents(gone), contents(came)
    same = set(before) & set(after)
    sides = []
    for rows, found, weight in ((gone, before, -1), (came, after, 1)):
        kept = rows.filter(pa.array([one not in same for one in found], pa.bool_()))
        sides.append(kept.append_column(WEIGHT, pa.repeat(pa.scalar(weight, pa.int64()), kept.num_rows)))
    return pa.concat_tables(sides)

"""Aggregates to which a change is added without Spark: exact, and left to Spark where it would fail or read a group."""

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from service.engine.jobs.dynamic.direct.conditions import NeedsSpark, matching
from service.engine.jobs.dynamic.direct.groups import changed_groups
from service.model.dynamic.direct import (
    AddedArgument,
    AddedGroups,
    AddedKind,
    ColumnTerm,
    Compared,
    Connected,
    ConstantTerm,
    DeltaRows,
    DirectCondition,
    Negated,
    NullTest,
)
from service.model.dynamic.plan import WEIGHT
from service.model.schema.types import ColumnType, DecimalType, Field, Primitive, TableSchema

LONG, TEXT, DOUBLE = Primitive("long"), Primitive("string"), Primitive("double")
MOST = 2**63 - 1
ARROW = {"long": pa.int64(), "string": pa.string(), "double": pa.float64(), "date": pa.date32()}


def arrow(kind: ColumnType) -> pa.DataType:
    return pa.decimal128(kind.precision, kind.scale) if isinstance(kind, DecimalType) else ARROW[str(kind)]


def changed(
    call: AddedKind,
    changes: list[tuple[Any, Any, int]],
    stored: list[tuple[Any, ...]] = [],  # noqa: B006
    *,
    of: ColumnType = LONG,
    summed: ColumnType = LONG,
    gives: ColumnType | None = None,
    key: ColumnType = TEXT,
) -> list[tuple[Any, ...]]:
    """The rows that come and go, as (key, value, …, weight), of an aggregate by key after changes (key, value, weight)
    of groups with stored rows (key, value, rows, count, sum), or (key, value, rows) for extremes."""
    values: dict[str, tuple[AddedKind, int]] = {"v": (call, 0), "n": ("count", -1)}
    fields = [Field("k", key), Field("v", gives or of), Field("n", LONG)]
    if call in ("sum", "avg"):
        values |= {"c": ("count", 0), "s": ("sum", 0)} if call == "avg" else {"c": ("count", 0)}
        fields += [Field("c", LONG), *([Field("s", summed)] if call == "avg" else [])]
    schema = TableSchema(tuple(fields))
    how = AddedGroups(DeltaRows(0, {}), ("k",), (AddedArgument("x"),), values, {one.name: one.name for one in fields})
    k, x, weight = zip(*changes, strict=True)
    rows = pa.table({"k": pa.array(k, arrow(key)), "x": pa.array(x, arrow(of)), WEIGHT: pa.array(weight, pa.int64())})
    columns = list(zip(*stored, strict=True)) or [()] * len(fields)
    there = {one.name: pa.array(column, arrow(one.type)) for one, column in zip(fields, columns, strict=True)}
    net, _ = changed_groups(rows, how, pa.table(there), schema)
    return sorted((tuple(row.values()) for row in net.to_pylist()), key=repr)


def test_rows_that_come_and_go_change_a_sum() -> None:
    found = changed("sum", [("a", 5, 1), ("a", 2, -1), (None, 7, 2), ("b", None, 1)], [("a", 10, 3, 3)])
    assert set(found) == {("a", 13, 3, 3, 1), ("a", 10, 3, 3, -1), (None, 14, 2, 2, 1), ("b", None, 1, 0, 1)}


def test_a_group_without_rows_goes_and_one_that_comes_out_equal_stays() -> None:
    stored = [("ä", 3, 1, 1), ("\U0001f41d", 4, 2, 2)]
    changes = [("ä", 3, -1), ("\U0001f41d", 1, 1), ("\U0001f41d", 1, -1)]
    assert changed("sum", changes, stored) == [("ä", 3, 1, 1, -1)]


@pytest.mark.parametrize("value", [MOST, -MOST - 1])
def test_a_sum_that_overflows_is_left_to_spark(value: int) -> None:
    fits = [("a", value, 1), ("a", value, 1), ("a", value, -1)]
    assert changed("sum", fits) == [("a", value, 1, 1, 1)]
    with pytest.raises(NeedsSpark):
        changed("sum", fits[:2])
    with pytest.raises(NeedsSpark):
        changed("sum", fits[:1], [("a", 1 if value > 0 else -1, 1, 1)])


def test_a_decimal_sum_keeps_all_digits_and_is_left_to_spark_if_its_type_has_too_few() -> None:
    kind = DecimalType(9, 2)
    added = [("a", Decimal("9999999.99"), 3)]
    assert changed("sum", added, of=kind, gives=DecimalType(19, 2)) == [("a", Decimal("29999999.97"), 3, 3, 1)]
    with pytest.raises(NeedsSpark):
        changed("sum", added, of=kind, gives=kind)


@pytest.mark.parametrize(
    ("value", "count", "average"),
    [("0.01", 3, "0.003333"), ("0.02", 3, "0.006667"), ("-0.02", 3, "-0.006667"), ("0.05", 4, "0.012500")],
)
def test_a_decimal_average_is_rounded_half_up(value: str, count: int, average: str) -> None:
    """As Spark divides: to six digits more than a sum of these types has."""
    changes = [("a", Decimal(value), 1), ("a", Decimal(0), count - 1)]
    types = {"of": DecimalType(9, 2), "summed": DecimalType(19, 2), "gives": DecimalType(13, 6)}
    [row] = changed("avg", changes, **types)
    assert row[1] == Decimal(average)


def test_an_average_of_whole_numbers_is_that_of_their_exact_sum() -> None:
    [row] = changed("avg", [("a", 2**53, 1), ("a", 1, 1), ("a", None, 1)], gives=DOUBLE)
    assert row == ("a", (2**53 + 1) / 2, 3, 2, 2**53 + 1, 1)


def test_an_extreme_that_goes_is_left_to_spark_unless_another_row_has_it() -> None:
    stored = [("a", 9, 3)]
    assert changed("max", [("a", 12, 1)], stored) == [("a", 12, 4, 1), ("a", 9, 3, -1)]
    assert changed("max", [("a", 4, -1)], stored) == [("a", 9, 2, 1), ("a", 9, 3, -1)]
    assert changed("max", [("a", 9, -1), ("a", 10, 1)], stored) == [("a", 10, 3, 1), ("a", 9, 3, -1)]
    assert changed("max", [("a", 9, -1), ("a", 9, 1)], stored) == []
    with pytest.raises(NeedsSpark):
        changed("max", [("a", 9, -1)], stored)


def test_texts_and_dates_have_extremes() -> None:
    assert changed("min", [("a", "ä", 1), ("a", "z", 1)], of=TEXT) == [("a", "z", 2, 1)]
    days = [(date(2024, 1, 31), date(2024, 1, 31), 1), (date(2024, 1, 31), date(1, 1, 1), 1)]
    kind = Primitive("date")
    assert changed("min", days, of=kind, key=kind) == [(date(2024, 1, 31), date(1, 1, 1), 2, 1)]


def test_a_group_that_loses_more_rows_than_it_has_is_left_to_spark() -> None:
    with pytest.raises(NeedsSpark):
        changed("sum", [("a", 1, -2)], [("a", 1, 1, 1)])


def test_two_stored_rows_of_one_group_are_left_to_spark() -> None:
    with pytest.raises(NeedsSpark):
        changed("sum", [("a", 1, 1)], [("a", 1, 1, 1), ("a", 1, 1, 1)])


X, FIVE = ColumnTerm("x"), ConstantTerm(5)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        (Compared("<", X, FIVE), [1]),
        (Negated(Compared("<", X, FIVE)), [5]),
        (Compared("<=", FIVE, X), [5]),
        (Negated(NullTest("x")), [1, 5]),
        (Connected("or", (NullTest("x"), Compared("=", X, FIVE))), [5, None]),
        (Connected("and", (Compared(">", X, ConstantTerm(0)), Compared("<>", X, FIVE))), [1]),
        (Compared(">", X, ConstantTerm(Decimal("1.5"))), [5]),
    ],
)
def test_a_condition_that_is_null_keeps_no_row(condition: DirectCondition, kept: list[int | None]) -> None:
    for kind in (pa.int32(), pa.int64(), pa.decimal128(12, 2)):
        rows = pa.table({"x": pa.array([Decimal(1), Decimal(5), None]).cast(pa.decimal128(21, 2)).cast(kind)})
        assert matching(rows, [condition])["x"].to_pylist() == kept


@pytest.mark.parametrize("kind", [pa.string(), pa.float64(), pa.decimal128(38, 2), pa.timestamp("us"), pa.bool_()])
def test_values_that_spark_would_convert_are_left_to_it(kind: pa.DataType) -> None:
    with pytest.raises(NeedsSpark):
        matching(pa.table({"x": pa.nulls(1, kind)}), [Compared("=", X, FIVE)])

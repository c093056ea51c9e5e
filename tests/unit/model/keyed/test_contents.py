"""Row contents in Python are equal exactly where Spark finds the rows equal."""

from collections import Counter
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from service.model.keyed.contents import contents, some_of


def of(kind: pa.DataType, *values: object) -> list[object]:
    return [value for (value,) in contents(pa.table({"c": pa.array(values, kind)}))]


def test_nan_is_equal_to_itself_and_minus_zero_is_zero() -> None:
    nan, other, zero, minus, null = of(pa.float64(), float("nan"), -float("nan"), 0.0, -0.0, None)
    assert nan == other
    assert hash(nan) == hash(other)
    assert zero == minus
    assert hash(zero) == hash(minus)
    assert len({nan, zero, null}) == 3


def test_dates_and_times_that_python_does_not_know_are_compared_too() -> None:
    far = pa.array([3_000_000, 3_000_000, 0], pa.date32())
    assert [content for (content,) in contents(pa.table({"c": far}))] == [3_000_000, 3_000_000, 0]
    late = pa.array([9_000_000_000_000_000_00, None], pa.timestamp("us", tz="UTC"))
    assert contents(pa.table({"c": late})) == [(900_000_000_000_000_000,), (None,)]


def test_nested_values_are_compared_by_their_parts_and_maps_in_any_order() -> None:
    one, other, less = of(pa.map_(pa.string(), pa.float32()), [("a", 0.0), ("b", None)], [("b", None), ("a", -0.0)], [])
    assert one == other != less
    kind = pa.struct([("when", pa.date32()), ("many", pa.list_(pa.float64()))])
    first, second, third, null = of(
        kind,
        {"when": date(2024, 1, 1), "many": [float("nan"), 1.0]},
        {"when": date(2024, 1, 1), "many": [float("nan"), 1.0]},
        {"when": None, "many": None},
        None,
    )
    assert first == second != third
    assert third != null


def test_what_python_cannot_hold_inside_of_nested_values_is_an_error() -> None:
    far = pa.ListArray.from_arrays([0, 1], pa.array([3_000_000], pa.date32()))
    with pytest.raises(ValueError, match="Python cannot hold"):
        contents(pa.table({"c": far}))


def test_some_columns_can_be_chosen_and_rows_without_columns_are_all_equal() -> None:
    rows = pa.table({"a": [1, 1], "b": [Decimal("1.0"), Decimal("1.00")]})
    assert contents(rows, ["b"]) == [(Decimal(1),), (Decimal(1),)]
    assert contents(rows, []) == [(), ()]


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (None, "", pa.string()),
        ([], None, pa.list_(pa.int64())),
        ([1, None], [1], pa.list_(pa.int64())),
        ({"x": None}, None, pa.struct([("x", pa.int64())])),
    ],
)
def test_other_values_differ(one: object, other: object, kind: pa.DataType) -> None:
    found = contents(pa.table({"a": pa.array([one, other], kind)}))
    assert found[0] != found[1]


def test_of_equal_rows_as_many_as_wanted_are_taken() -> None:
    wanted = Counter({(1,): 2, (3,): 1})
    assert some_of([(1,), (2,), (1,), (1,)], wanted) == [0, 2]
    assert {content: count for content, count in wanted.items() if count} == {(3,): 1}

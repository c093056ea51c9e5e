"""The lag of a dynamic table: from when its sources were pinned, not from when its rows were written."""

from dataclasses import replace

import pytest

from service.dynamic.lag import greatest_ages, lag, p95
from tests.support.dynamic import dynamic, refreshed

TABLE = dynamic("top", "orders")


def test_a_table_that_was_never_refreshed_has_no_lag() -> None:
    assert lag(TABLE, [], 5000) == lag(TABLE, [refreshed(TABLE, 1)], 5000)
    assert lag(TABLE, [], 5000).now_ms is None


def test_the_lag_now_counts_from_the_pinned_sources() -> None:
    assert lag(replace(TABLE, refreshed_ms=2000), [], 5000).now_ms == 3000


def test_the_rows_are_oldest_at_the_end_of_the_refresh_that_replaces_them() -> None:
    refreshes = [refreshed(TABLE, 5), refreshed(TABLE, 2), refreshed(TABLE, 1)]
    assert greatest_ages(refreshes) == [1500, 3500]


def test_failed_refreshes_make_the_rows_no_younger() -> None:
    failed = refreshed(TABLE, 2, state="failed")
    assert greatest_ages([refreshed(TABLE, 3), failed, refreshed(TABLE, 1)]) == [2500]


@pytest.mark.parametrize(
    ("values", "expected"), [([], None), ([7], 7), ([2, 1], 2), (list(range(1, 101)), 95), (list(range(1, 21)), 19)]
)
def test_of_100_values_95_are_not_above_it(values: list[int], expected: int | None) -> None:
    assert p95(values) == expected

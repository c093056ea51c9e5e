"""The lag of a dynamic table is the age of the oldest change of its base tables that its rows lack."""

from pathlib import Path

import pytest

from service.dynamic.lag import lag_ms, lag_of, lag_p95_ms, p95
from tests.support.dynamic import dynamic, refreshed
from tests.support.refreshing import Refreshing

TABLE = dynamic("top", "orders")


def test_the_oldest_missing_change_of_all_base_tables_counts() -> None:
    assert lag_ms([None, 2000, 4000], 5000) == 3000
    assert lag_ms([None], 5000) == lag_ms([], 5000) == lag_ms([6000], 5000) == 0


def test_refreshes_that_failed_or_brought_nothing_have_no_lag() -> None:
    lags = {1: {}, 2: {"lag_ms": 700}, 3: {"lag_ms": 900}}
    refreshes = [refreshed(TABLE, number, details=details) for number, details in lags.items()]
    failed = refreshed(TABLE, 4, state="failed", details={"lag_ms": 5000})
    assert lag_p95_ms([*refreshes, failed]) == 900
    assert lag_p95_ms([refreshes[0], failed]) is None


def test_a_refresh_records_how_old_the_oldest_change_was_that_it_brought(tmp_path: Path) -> None:
    world = Refreshing(tmp_path)
    world.base("orders")
    world.dynamic("totals", "orders")
    top = world.dynamic("top", "totals")
    world.refresh("top")
    before = world.add("orders")
    world.add("orders")
    world.refresh("top")
    world.refresh("top")
    [idle, second, first] = world.records.refreshes_of(top.uuid, 10)
    assert (lag_of(idle), lag_of(first)) == (None, None)
    since, ended = world.load("orders").snapshot(before).timestamp_ms, second.ended_ms
    assert ended is not None
    assert since <= ended - (lag_of(second) or 0) <= since + 1000


@pytest.mark.parametrize(
    ("values", "expected"), [([], None), ([7], 7), ([2, 1], 2), (list(range(1, 101)), 95), (list(range(1, 21)), 19)]
)
def test_of_100_values_95_are_not_above_it(values: list[int], expected: int | None) -> None:
    assert p95(values) == expected

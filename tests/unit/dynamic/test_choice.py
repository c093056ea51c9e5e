"""The mode of a refresh, by cost."""

import pytest

from service.dynamic.refresh.choice import Choice, ComputedMode, MeasuredRefresh, Workload, choose
from service.model.times import HOUR_MS

NOW = 1_700_000_000_000


def took(
    mode: ComputedMode, seconds: float, changed: int = 1000, *, removes: bool = False, hours: int = 1
) -> MeasuredRefresh:
    return MeasuredRefresh(mode, seconds, Workload(changed, 100_000, removes), NOW - hours * HOUR_MS)


def chosen(work: Workload, *measured: MeasuredRefresh) -> Choice:
    return choose(work, measured, 0.3, NOW)


@pytest.mark.parametrize(("changed", "mode"), [(1000, "INCREMENTAL"), (30_000, "INCREMENTAL"), (30_001, "FULL")])
def test_without_measurements_the_threshold_decides(changed: int, mode: str) -> None:
    found = chosen(Workload(changed, 100_000), took("FULL", 10))
    assert (found.mode, found.reason) == (mode, "THRESHOLD")


@pytest.mark.parametrize(("change_s", "mode"), [(2, "INCREMENTAL"), (9, "FULL")])
def test_the_mode_that_was_faster_is_chosen(change_s: float, mode: str) -> None:
    found = chosen(Workload(1000, 100_000), took("INCREMENTAL", change_s), took("FULL", 5))
    assert (found.mode, found.reason) == (mode, "COST")


def test_a_small_change_does_not_make_a_large_one_seem_cheap() -> None:
    """20 times the rows are more than a measurement can say something about: the threshold decides."""
    found = chosen(Workload(90_000, 100_000), took("INCREMENTAL", 0.1, changed=10), took("FULL", 5))
    assert (found.mode, found.reason) == ("FULL", "THRESHOLD")


def test_a_larger_change_is_expected_to_take_longer() -> None:
    measured = (took("INCREMENTAL", 2, changed=1000), took("FULL", 5))
    assert chosen(Workload(1000, 100_000), *measured).mode == "INCREMENTAL"
    assert chosen(Workload(10_000, 100_000), *measured).mode == "FULL"


def test_appended_rows_say_nothing_about_deleted_ones() -> None:
    measured = (took("INCREMENTAL", 0.5), took("FULL", 5))
    assert chosen(Workload(1000, 100_000, removes=True), *measured).reason == "THRESHOLD"
    slow = took("INCREMENTAL", 8, removes=True)
    assert chosen(Workload(1000, 100_000, removes=True), slow, *measured).mode == "FULL"
    assert chosen(Workload(1000, 100_000), slow, *measured).mode == "INCREMENTAL"


def test_a_full_refresh_is_expected_to_take_longer_when_the_sources_have_grown() -> None:
    measured = (took("INCREMENTAL", 6), took("FULL", 5))
    assert chosen(Workload(1000, 100_000), *measured).mode == "FULL"
    assert chosen(Workload(1000, 1_000_000), *measured).mode == "INCREMENTAL"


def test_one_slow_refresh_is_no_reason_to_change() -> None:
    measured = (took("INCREMENTAL", 60), *(took("INCREMENTAL", 2),) * 4, took("FULL", 5))
    assert chosen(Workload(1000, 100_000), *measured).mode == "INCREMENTAL"


def test_the_slower_mode_is_tried_again_when_its_time_is_old() -> None:
    measured = (took("INCREMENTAL", 3), took("FULL", 5, hours=24))
    found = chosen(Workload(1000, 100_000), *measured)
    assert (found.mode, found.reason) == ("FULL", "TRIAL")
    many = (*(took("INCREMENTAL", 3),) * 20, took("FULL", 5))
    assert chosen(Workload(1000, 100_000), *many).reason == "TRIAL"
    assert chosen(Workload(1000, 100_000), *many[1:]).reason == "COST"


def test_a_mode_that_was_far_slower_is_not_tried_again() -> None:
    measured = (took("INCREMENTAL", 1), took("FULL", 5, hours=1000))
    assert chosen(Workload(1000, 100_000), *measured).reason == "COST"


def test_the_threshold_is_put_to_the_test_after_a_few_full_refreshes() -> None:
    full = took("FULL", 5)
    assert chosen(Workload(90_000, 100_000), *[full] * 3).reason == "THRESHOLD"
    found = chosen(Workload(90_000, 100_000), *[full] * 4)
    assert (found.mode, found.reason) == ("INCREMENTAL", "TRIAL")
    slow = took("INCREMENTAL", 7, changed=90_000)
    assert chosen(Workload(90_000, 100_000), slow, *[full] * 4).mode == "FULL"

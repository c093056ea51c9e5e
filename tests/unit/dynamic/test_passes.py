"""A pass: all its tables agree, and what fails holds back only what depends on it."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from service.errors import Cancelled, InvalidQuery, StorageUnavailable
from service.fairness.shares import SERVICE, work_of, working_for
from service.jobs.jobs import Jobs
from service.model.call import Call
from service.model.dynamic.state import RefreshState, state_of
from tests.fakes import FakeOwners
from tests.support.refreshing import INCREMENTAL, Refreshing, expire


@pytest.fixture
def world(tmp_path: Path) -> Refreshing:
    return Refreshing(tmp_path, options=INCREMENTAL)


@pytest.fixture
def diamond(world: Refreshing) -> Refreshing:
    """Two branches over orders, and a table that joins them."""
    world.base("orders")
    world.dynamic("left", "orders")
    world.dynamic("right", "orders")
    world.dynamic("top", "left", "right")
    world.refresh("top")
    return world


def state(world: Refreshing, name: str) -> RefreshState:
    table = world.load(name)
    found = state_of(table.snapshot(table.current_snapshot_id or 0).summary)
    assert found is not None
    return found


def refuse(world: Refreshing, name: str, error: Exception) -> None:
    """Have the computation of a table fail."""
    table = world.load(name).spark_name

    def before(step: str, spark_name: str) -> None:
        if (step, spark_name) == ("stage", table):
            raise error

    world.engine.before = before


def test_a_chain_is_refreshed_in_order_by_one_pass(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("first", "orders")
    world.dynamic("second", "first")
    assert world.refresh("second") == {"first": "FULL FIRST_BUILD", "second": "FULL FIRST_BUILD"}
    world.add("orders")
    assert list(world.refresh("second").values()) == ["INCREMENTAL REFRESH_MODE"] * 2
    assert state(world, "first").pass_id == state(world, "second").pass_id


def test_a_result_names_the_base_tables_behind_its_dynamic_sources(diamond: Refreshing) -> None:
    orders = diamond.load("orders")
    assert {one.uuid: one.snapshot_id for one in state(diamond, "top").bases} == {
        orders.uuid: orders.current_snapshot_id
    }


def test_rows_that_come_during_a_pass_wait_for_the_next_one(diamond: Refreshing) -> None:
    pinned = diamond.add("orders")

    def before(step: str, table: str) -> None:
        if step == "stage":
            diamond.add("orders")

    diamond.engine.before = before
    diamond.passes.parallelism = 1  # so that the second branch begins after the first has been computed
    diamond.refresh("top")
    orders = diamond.load("orders").uuid
    assert {state(diamond, name).snapshots[orders] for name in ("left", "right", "top")} == {pinned}


def test_a_chain_is_refreshed_on_the_thread_of_the_request_as_nobody_s_work(tmp_path: Path) -> None:
    world = Refreshing(tmp_path)
    world.base("orders")
    world.dynamic("totals", "orders")
    world.dynamic("top", "totals")
    seen: list[tuple[int, str]] = []
    world.engine.before = lambda step, table: seen.append((threading.get_ident(), working_for()))
    with work_of("acme"):
        world.refresh("top")
    assert set(seen) == {(threading.get_ident(), SERVICE)}


def test_branches_are_refreshed_in_parallel(diamond: Refreshing) -> None:
    both = threading.Barrier(2)
    branches = {diamond.load(name).spark_name for name in ("left", "right")}

    def before(step: str, table: str) -> None:
        if step == "stage" and table in branches:
            both.wait(10)

    diamond.engine.before = before
    diamond.add("orders")
    assert set(diamond.refresh("top").values()) == {"INCREMENTAL REFRESH_MODE"}


def test_only_what_depends_on_a_failed_table_is_held_back(diamond: Refreshing) -> None:
    diamond.dynamic("beside", "right")
    refuse(diamond, "left", InvalidQuery("division by zero"))
    diamond.add("orders")
    assert diamond.refresh("top", "beside") == {
        "left": "failed INVALID_QUERY",
        "right": "INCREMENTAL REFRESH_MODE",
        "top": "held_back SOURCE_FAILED",
        "beside": "FULL FIRST_BUILD",
    }


def test_a_table_that_catches_up_after_a_failure_agrees_with_the_others_again(diamond: Refreshing) -> None:
    refuse(diamond, "left", InvalidQuery("division by zero"))
    diamond.add("orders")
    diamond.refresh("top")
    diamond.engine.before = lambda step, table: None
    found = diamond.refresh("top")
    assert (found["left"], found["right"], found["top"]) == (
        "INCREMENTAL REFRESH_MODE",
        "NO_DATA NO_CHANGES",
        "INCREMENTAL REFRESH_MODE",
    )


def test_three_lasting_failures_suspend_a_table_with_the_reason_and_transient_ones_do_not(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")
    refuse(world, "totals", StorageUnavailable("the bucket does not respond"))
    for _ in range(4):
        world.refresh("totals")
    assert (world.known("totals").state, world.known("totals").failures) == ("active", 0)
    assert world.known("totals").retry_ms is not None
    refuse(world, "totals", InvalidQuery("division by zero"))
    for failures in (1, 2):
        world.refresh("totals")
        assert (world.known("totals").state, world.known("totals").failures) == ("active", failures)
    world.refresh("totals")
    assert (world.known("totals").state, world.known("totals").retry_ms) == ("failed", None)
    assert "division by zero" in (world.known("totals").reason or "")


def test_a_success_between_failures_starts_the_count_again(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")
    for _ in range(3):
        refuse(world, "totals", InvalidQuery("division by zero"))
        world.refresh("totals")
        world.refresh("totals")
        world.engine.before = lambda step, table: None
        world.add("orders")
        world.refresh("totals")
    assert (world.known("totals").state, world.known("totals").failures) == ("active", 0)


def test_a_suspended_source_is_read_as_it_is_and_its_base_tables_at_the_same_state(world: Refreshing) -> None:
    orders = world.base("orders")
    frozen = world.dynamic("frozen", "orders")
    world.refresh("frozen")
    world.records.set_state(frozen.uuid, "suspended", "a test")
    world.add("orders")
    world.dynamic("top", "frozen", "orders")
    assert world.refresh("top") == {"frozen": "as_it_is SUSPENDED", "top": "FULL FIRST_BUILD"}
    assert world.known("top").refreshed_ms == world.known("frozen").refreshed_ms
    assert state(world, "top").snapshots[orders.uuid] == orders.current_snapshot_id
    world.records.set_state(frozen.uuid, "active")
    latest = world.load("orders").current_snapshot_id
    world.refresh("top")
    assert state(world, "top").snapshots[orders.uuid] == latest


def test_a_table_whose_sources_stand_for_different_states_is_held_back(diamond: Refreshing) -> None:
    diamond.records.set_state(diamond.load("left").uuid, "suspended", "a test")
    diamond.add("orders")
    assert diamond.refresh("top") == {
        "left": "as_it_is SUSPENDED",
        "right": "INCREMENTAL REFRESH_MODE",
        "top": "held_back SOURCES_DISAGREE",
    }
    assert "left and right" in (diamond.outcome.tables[-1].message or "")


def test_sources_agree_if_only_compactions_lie_between_their_states(diamond: Refreshing) -> None:
    diamond.records.set_state(diamond.load("left").uuid, "suspended", "a test")
    diamond.compact("orders")
    assert diamond.refresh("top")["top"] == "NO_DATA NO_CHANGES"


def test_a_table_is_held_back_if_the_state_that_its_source_stands_for_has_expired(world: Refreshing) -> None:
    orders = world.base("orders")
    frozen = world.dynamic("frozen", "orders")
    world.refresh("frozen")
    world.records.set_state(frozen.uuid, "suspended", "a test")
    world.add("orders")
    expire(world.load("orders"), orders.current_snapshot_id)
    world.dynamic("top", "frozen", "orders")
    assert world.refresh("top")["top"] == "held_back SOURCES_DISAGREE"


def test_a_table_is_held_back_if_a_suspended_source_was_never_built(world: Refreshing) -> None:
    world.base("orders")
    world.records.set_state(world.dynamic("first", "orders").uuid, "suspended", "a test")
    world.dynamic("second", "first")
    assert world.refresh("second") == {"first": "as_it_is SUSPENDED", "second": "held_back SOURCE_NOT_BUILT"}


def test_a_dropped_source_fails_its_table_alone(world: Refreshing) -> None:
    world.base("orders")
    world.base("others")
    world.dynamic("totals", "orders")
    world.dynamic("beside", "others")
    world.catalog.drop(world.load("orders"), purge=True)
    assert world.refresh("totals", "beside") == {"totals": "failed TABLE_NOT_FOUND", "beside": "FULL FIRST_BUILD"}


def test_cascade_refreshes_what_depends_on_a_table_and_what_that_needs(world: Refreshing) -> None:
    world.base("orders")
    world.base("others")
    world.dynamic("first", "orders")
    world.dynamic("beside", "others")
    world.dynamic("second", "first", "beside")
    assert set(world.refresh("first")) == {"first"}
    assert set(world.refresh("first", cascade=True)) == {"first", "beside", "second"}


def test_an_unscheduled_source_is_left_to_requests_by_the_worker(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("first", "orders", options=replace(INCREMENTAL, scheduled=False))
    world.dynamic("second", "first")
    world.refresh("second")
    world.add("orders")
    assert world.refresh("second", only_scheduled=True) == {
        "first": "as_it_is NOT_SCHEDULED",
        "second": "NO_DATA NO_CHANGES",
    }
    assert world.refresh("second")["first"] == "INCREMENTAL REFRESH_MODE"


def test_a_later_refresh_is_never_replaced_by_an_earlier_state(world: Refreshing) -> None:
    """Another pass pins later rows, and refreshes one branch, between this pass's pins and its refresh of it."""
    world.base("orders")
    world.dynamic("left", "orders")
    world.dynamic("right", "orders")
    world.dynamic("top", "left", "right")
    world.refresh("top")
    world.add("orders")
    other = world.restarted()
    left = world.load("left").spark_name
    came = threading.Event()

    def before(step: str, table: str) -> None:
        if step == "stage" and table == left and not came.is_set():
            came.set()
            world.add("orders")
            other.refresh("right")

    world.engine.before = before
    world.passes.parallelism = 1  # so that right comes after left
    found = world.refresh("top")
    latest = world.load("orders").current_snapshot_id
    orders = world.load("orders").uuid
    assert found["top"] == "INCREMENTAL REFRESH_MODE"
    assert {state(world, name).snapshots[orders] for name in ("left", "right", "top")} == {latest}


def test_a_cancelled_pass_stops_and_counts_as_no_failure(diamond: Refreshing) -> None:
    call = Call("request-2")
    diamond.engine.before = lambda step, table: call.cancel()
    diamond.add("orders")
    with pytest.raises(Cancelled):
        diamond.refresh("top", call=call)
    assert {diamond.known(name).failures for name in ("left", "right", "top")} == {0}


@pytest.mark.parametrize("waits", [True, False])
def test_a_table_is_refreshed_by_one_instance_at_a_time(tmp_path: Path, waits: bool) -> None:
    here = FakeOwners("here")
    world = Refreshing(tmp_path, owners=here, options=INCREMENTAL)
    world.base("orders")
    world.dynamic("totals", "orders")
    world.refresh("totals")
    world.add("orders")
    other = world.restarted(owners=here.beside("there"))
    found: dict[str, str] = {}

    def before(step: str, table: str) -> None:
        if step == "commit":
            meanwhile = threading.Thread(target=lambda: found.update(other.refresh("totals", waits=waits)))
            meanwhile.start()
            if not waits:
                meanwhile.join(10)
            threads.append(meanwhile)

    threads: list[threading.Thread] = []
    world.engine.before = before
    assert world.refresh("totals") == {"totals": "INCREMENTAL REFRESH_MODE"}
    threads[0].join(10)
    assert found == {"totals": "NO_DATA NO_CHANGES" if waits else "held_back IN_PROGRESS"}
    assert other.engine.done == []


def test_the_claim_of_a_dead_instance_passes_on_and_its_late_commit_is_refused(tmp_path: Path) -> None:
    here = FakeOwners("here")
    world = Refreshing(tmp_path, owners=here, options=INCREMENTAL)
    world.base("orders")
    world.dynamic("totals", "orders")
    world.refresh("totals")
    world.add("orders")
    other = world.restarted(owners=here.beside("there"))

    def before(step: str, table: str) -> None:
        if step == "stage" and here.me in here.present:
            here.close()
            assert other.refresh("totals") == {"totals": "INCREMENTAL REFRESH_MODE"}

    world.engine.before = before
    assert world.refresh("totals") == {"totals": "failed COMMIT_CONFLICT"}
    assert world.engine.done[1:] == []
    assert len(world.load("totals").snapshots()) == 2


def test_every_job_of_a_pass_ends(diamond: Refreshing) -> None:
    diamond.add("orders")
    refuse(diamond, "left", InvalidQuery("division by zero"))
    diamond.refresh("top")
    jobs: Jobs = diamond.jobs
    assert jobs.records.unfinished() == []

"""The refresh of one dynamic table: what it does, why, and what it records."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.types import StringType
from sqlalchemy import event

from service.commits.compared import changes_between
from service.dynamic.graph import Graph
from service.errors import LedgerUnavailable, RowCountMismatch
from service.ledger.dynamic_tables import RefreshRecord
from service.ledger.ledger import Transaction
from service.model.dynamic.definition import DEFINITION_PROPERTY, DynamicOptions
from service.model.dynamic.state import state_of
from tests.support.refreshing import INCREMENTAL, STRICT, Refreshing, expire


@pytest.fixture
def world(tmp_path: Path) -> Refreshing:
    return Refreshing(tmp_path)


def test_the_first_refresh_is_full_and_its_commit_says_which_snapshots_it_read(world: Refreshing) -> None:
    orders = world.base("orders")
    world.dynamic("totals", "orders")
    assert world.refresh("totals") == {"totals": "FULL FIRST_BUILD"}
    totals = world.load("totals")
    state = state_of(totals.snapshot(totals.current_snapshot_id or 0).summary)
    assert state is not None
    assert (state.pass_id, state.snapshots) == (world.outcome.id, {orders.uuid: orders.current_snapshot_id})


def test_without_a_change_nothing_is_computed_or_written(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")
    world.refresh("totals")
    before = world.load("totals").metadata_location
    assert world.refresh("totals") == {"totals": "NO_DATA NO_CHANGES"}
    assert world.load("totals").metadata_location == before
    assert len(world.engine.done) == 1


def test_added_rows_are_an_incremental_refresh(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")
    world.refresh("totals")
    added = world.add("orders")
    assert world.refresh("totals") == {"totals": "INCREMENTAL THRESHOLD"}
    assert world.engine.done[-1].snapshots == (added,)


def test_compactions_of_a_source_are_no_change_and_the_old_snapshot_is_not_needed_any_more(world: Refreshing) -> None:
    orders = world.base("orders")
    world.dynamic("totals", "orders")
    world.refresh("totals")
    world.compact("orders")
    newest = world.compact("orders")
    assert world.refresh("totals") == {"totals": "NO_DATA NO_CHANGES"}
    assert [one.snapshot_id for one in world.cursors.needed(orders.uuid)] == [newest]
    # The next change is computed from the compacted state, though the result itself names the one before.
    expire(world.load("orders"), orders.current_snapshot_id)
    world.add("orders")
    assert world.refresh("totals") == {"totals": "INCREMENTAL THRESHOLD"}


def test_two_compactions_as_the_last_snapshots_hide_no_change(world: Refreshing) -> None:
    before = world.base("orders").current_snapshot_id
    world.dynamic("totals", "orders", options=STRICT)
    world.refresh("totals")
    added = world.add("orders", 3)
    world.compact("orders")
    newest = world.compact("orders")
    orders = world.load("orders")
    [part] = changes_between(orders, before, newest)
    assert (part.old_id, part.new_id) == (before, added)
    assert part.differing is not None
    assert [len(side.paths) for side in part.differing] == [0, 1]
    assert world.refresh("totals") == {"totals": "INCREMENTAL REFRESH_MODE"}
    assert world.engine.done[-1].snapshots == (newest,)
    assert world.refresh("totals") == {"totals": "NO_DATA NO_CHANGES"}


def test_what_the_ledger_knows_of_an_earlier_state_does_not_count_for_a_later_one(world: Refreshing) -> None:
    orders = world.base("orders")
    world.dynamic("totals", "orders")
    world.refresh("totals")
    known = world.cursors.of(world.load("totals").uuid)
    assert known is not None
    world.add("orders")
    world.refresh("totals")
    world.cursors.put(world.load("totals").uuid, known, {orders.uuid})  # as if the last one was not recorded
    assert world.refresh("totals") == {"totals": "NO_DATA NO_CHANGES"}


def test_an_expired_snapshot_of_a_source_is_a_full_refresh(world: Refreshing) -> None:
    orders = world.base("orders")
    world.dynamic("totals", "orders", options=STRICT)
    world.refresh("totals")
    world.add("orders")
    expire(world.load("orders"), orders.current_snapshot_id)
    assert world.refresh("totals") == {"totals": "FULL CURSOR_EXPIRED"}


def lacks_rows(world: Refreshing) -> None:
    """The next computation finds that the result lacks rows that should go."""
    left = iter([RowCountMismatch("the rows of the result that go", 2, 1)])

    def before(step: str, table: str) -> None:
        if step == "stage" and (failure := next(left, None)):
            raise failure

    world.engine.before = before


def test_a_result_that_lacks_rows_of_its_query_is_computed_in_full(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders", options=INCREMENTAL)
    world.refresh("totals")
    world.add("orders")
    lacks_rows(world)
    assert world.refresh("totals") == {"totals": "FULL RESULT_CHANGED"}
    assert [one.mode for one in world.engine.done] == ["FULL", "FULL"]


def test_a_strict_table_that_lacks_rows_of_its_query_is_not_computed_in_full_in_silence(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders", options=STRICT)
    world.refresh("totals")
    world.add("orders")
    lacks_rows(world)
    assert world.refresh("totals") == {"totals": "failed INVALID_REQUEST"}
    assert "RESULT_CHANGED" in (world.outcome.tables[0].message or "")
    assert len(world.engine.done) == 1


def test_a_result_that_others_changed_is_computed_in_full(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")
    world.refresh("totals")
    world.add("totals")
    assert world.refresh("totals") == {"totals": "FULL RESULT_CHANGED"}


def test_a_strict_table_that_others_changed_says_so_and_is_left_as_it_is(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders", options=STRICT)
    world.refresh("totals")
    world.add("totals")
    assert world.refresh("totals") == {"totals": "failed INVALID_REQUEST"}
    assert "RESULT_CHANGED" in (world.outcome.tables[0].message or "")
    assert len(world.engine.done) == 1


def test_a_compaction_of_the_result_keeps_its_state(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")
    world.refresh("totals")
    world.compact("totals")
    assert world.refresh("totals") == {"totals": "NO_DATA NO_CHANGES"}


def test_a_query_that_is_not_incremental_is_computed_in_full_with_its_code(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders", query="SELECT * FROM orders LIMIT 1")
    world.refresh("totals")
    world.add("orders")
    assert world.refresh("totals") == {"totals": "FULL NOT_INCREMENTAL:LIMIT"}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("FULL", "FULL REFRESH_MODE"), ("INCREMENTAL", "INCREMENTAL REFRESH_MODE"), ("AUTO", "FULL THRESHOLD")],
)
def test_the_declared_mode_counts(world: Refreshing, mode: str, expected: str) -> None:
    world.base("orders")
    world.dynamic("totals", "orders", options=DynamicOptions(300, refresh_mode=mode))  # type: ignore[arg-type]
    world.refresh("totals")
    world.add("orders", 1000)
    assert world.refresh("totals") == {"totals": expected}


def test_another_version_of_the_query_is_computed_in_full(world: Refreshing) -> None:
    world.base("orders")
    declared = world.dynamic("totals", "orders").definition
    world.refresh("totals")
    changed = replace(declared, version="2").text
    world.catalog.set_properties(world.load("totals"), {DEFINITION_PROPERTY: changed})
    world.definitions.of(world.load("totals"))
    assert world.refresh("totals") == {"totals": "FULL DEFINITION_CHANGED"}


def test_a_query_that_is_replaced_during_a_pass_is_refreshed_by_the_next_one(world: Refreshing) -> None:
    """The table it read was pinned for the old query."""
    world.base("orders")
    world.base("others")
    declared = world.dynamic("totals", "orders").definition
    other = world.dynamic("apart", "others").definition.sources
    found = world.definitions.graph
    changed = replace(declared, version="2", sources=other).text

    def graph() -> Graph:
        before = found()
        world.catalog.set_properties(world.load("totals"), {DEFINITION_PROPERTY: changed})
        return before

    world.definitions.graph = graph  # type: ignore[method-assign]
    assert world.refresh("totals") == {"totals": "failed COMMIT_CONFLICT"}
    assert world.records.refreshes_of(declared.uuid, 10) == []
    assert not world.cursors.needed(declared.sources[0].uuid)
    world.definitions.graph = found  # type: ignore[method-assign]
    assert world.refresh("totals") == {"totals": "FULL FIRST_BUILD"}
    assert world.engine.done[-1].snapshots == (world.load("others").current_snapshot_id,)
    assert world.known("totals").failures == 0


def test_a_column_that_was_dropped_and_added_again_is_another_column(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")
    world.refresh("totals")
    with world.load("orders").iceberg.update_schema() as update:
        update.delete_column("note")
    with world.load("orders").iceberg.update_schema() as update:
        update.add_column("note", StringType())
    assert world.refresh("totals") == {"totals": "FULL SCHEMA_CHANGED"}


def test_a_new_column_that_the_query_does_not_read_is_no_change(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")
    world.refresh("totals")
    world.compiler.reads = ("id", "note")
    with world.load("orders").iceberg.update_schema() as update:
        update.add_column("more", StringType())
    assert world.refresh("totals") == {"totals": "NO_DATA NO_CHANGES"}


def test_a_refresh_writes_to_the_ledger_with_its_claim_its_mode_its_batch_and_its_end(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")
    world.refresh("totals")
    world.add("orders")
    writes: list[object] = []
    event.listen(world.ledger._engine, "commit", writes.append)
    assert world.refresh("totals") == {"totals": "INCREMENTAL THRESHOLD"}
    assert len(writes) == 4


def test_an_end_that_cannot_be_recorded_with_the_commit_is_found_by_the_next_refresh(world: Refreshing) -> None:
    world.base("orders")
    table = world.dynamic("totals", "orders")
    world.refresh("totals")
    world.add("orders")
    put = world.cursors.put

    def fails(*_: object) -> None:
        raise LedgerUnavailable("the disk is full")

    object.__setattr__(world.cursors, "put", fails)
    assert world.refresh("totals") == {"totals": "INCREMENTAL THRESHOLD"}
    [running, *_] = world.records.refreshes_of(table.uuid, 10)
    assert running.state == "running"
    object.__setattr__(world.cursors, "put", put)
    assert world.refresh("totals") == {"totals": "NO_DATA NO_CHANGES"}
    assert [one.state for one in world.records.refreshes_of(table.uuid, 10)] == ["done"] * 3
    assert world.jobs.records.unfinished() == []
    world.commits.batches.resolve()
    assert world.ledger.unfinished() == []


def test_the_history_says_what_each_refresh_did(world: Refreshing) -> None:
    world.base("orders")
    table = world.dynamic("totals", "orders")
    world.refresh("totals")
    world.add("orders")
    world.refresh("totals")
    found = world.records.refreshes_of(table.uuid, 10)
    assert [(one.state, one.mode, one.reason, one.rows_added) for one in found] == [
        ("done", "INCREMENTAL", "THRESHOLD", 1),
        ("done", "FULL", "FIRST_BUILD", 1),
    ]
    assert found[0].snapshot_id == world.load("totals").current_snapshot_id
    assert world.known("totals").refreshed_ms == world.outcome.pinned_ms


@pytest.mark.parametrize(
    ("is_known", "first", "stages"),
    [(True, "failed COMMIT_CONFLICT", 1), (False, "FULL RESULT_CHANGED", 2)],
)
def test_rows_that_others_add_between_the_computation_and_the_commit_do_not_stay(
    world: Refreshing, is_known: bool, first: str, stages: int
) -> None:
    """A change cannot be applied to them; a full refresh is computed again, and replaces them."""
    world.base("orders")
    world.dynamic("totals", "orders", options=INCREMENTAL)
    world.refresh("totals")
    world.add("orders")
    if not is_known:
        world.add("totals")
    steps: list[str] = []

    def before(step: str, table: str) -> None:
        if not steps:
            world.add("totals")
        steps.append(step)

    world.engine.before = before
    assert world.refresh("totals") == {"totals": first}
    assert steps.count("stage") == stages
    world.engine.before = lambda step, table: None
    assert world.refresh("totals") == {"totals": "FULL RESULT_CHANGED" if is_known else "NO_DATA NO_CHANGES"}


def test_a_compaction_between_the_computation_and_the_commit_does_no_harm(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders", options=INCREMENTAL)
    world.refresh("totals")
    world.add("orders")
    world.engine.before = lambda step, table: world.compact("totals") if step == "stage" else None
    assert world.refresh("totals") == {"totals": "INCREMENTAL REFRESH_MODE"}


class Died(BaseException):
    """The process ended here."""


@pytest.mark.parametrize("step", ["stage", "commit", "committed"])
def test_a_refresh_whose_process_ended_is_completed_by_the_next_one(world: Refreshing, step: str) -> None:
    world.base("orders")
    table = world.dynamic("totals", "orders")
    world.refresh("totals")
    world.add("orders")

    dead: list[str] = []

    def die(now: str, name: str) -> None:
        if now == step:
            dead.append(now)
            raise Died

    def put_unless_it_ended(record: RefreshRecord, within: Transaction | None = None) -> None:
        if not dead:
            put(record, within)

    world.engine.before = die
    put, world.records.put_refresh = world.records.put_refresh, put_unless_it_ended  # type: ignore[method-assign]
    world.refresh("totals")
    later = world.restarted()
    mode = later.refresh("totals")["totals"]
    assert mode == ("NO_DATA NO_CHANGES" if step == "committed" else "INCREMENTAL THRESHOLD")
    totals = later.load("totals")
    assert len(totals.snapshots()) == 2
    states = [one.state for one in later.records.refreshes_of(table.uuid, 10)]
    assert states == ["done", "done" if step == "committed" else "failed", "done"]

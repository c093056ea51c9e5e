"""The snapshots that dynamic tables need: which they are, for how long they are kept, and who is named."""

from dataclasses import replace
from pathlib import Path

import pytest

from service.dynamic.kept import NeededByDynamicTables
from service.ledger.dynamic_cursors import Cursors
from service.ledger.table_records import TableRecords
from service.model.times import HOUR_MS, now_ms
from tests.support.refreshing import Refreshing, add_rows

FENCE = {"firn-fence": "batch"}


@pytest.fixture
def world(tmp_path: Path) -> Refreshing:
    return Refreshing(tmp_path)


def kept(world: Refreshing, name: str, ahead_hours: int = 0) -> dict[int, str]:
    """What is kept for an hour, some hours from now."""
    return NeededByDynamicTables(world.cursors, 1, lambda: now_ms() + ahead_hours * HOUR_MS)(world.load(name))


def test_the_snapshot_that_a_table_was_computed_from_is_kept_and_the_table_is_named(world: Refreshing) -> None:
    orders = world.base("orders")
    world.dynamic("totals", "orders")
    assert kept(world, "orders") == {}
    world.refresh("totals")
    world.add("orders")
    assert kept(world, "orders") == {
        orders.current_snapshot_id: "the dynamic table default.totals needs it for its next refresh"
    }
    world.refresh("totals")
    assert set(kept(world, "orders")) == {world.load("orders").current_snapshot_id}


def test_nothing_is_kept_longer_than_the_limit_after_a_later_one_took_its_place(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")
    world.refresh("totals")
    read = world.load("orders").current_snapshot_id
    assert set(kept(world, "orders", ahead_hours=9)) == {read}  # it is the current one, however old
    world.add("orders")
    assert set(kept(world, "orders")) == {read}
    assert kept(world, "orders", ahead_hours=2) == {}


def test_what_a_refresh_reads_now_is_kept_too(world: Refreshing) -> None:
    orders = world.base("orders")
    world.dynamic("totals", "orders")
    world.refresh("totals")
    world.add("orders")
    seen: list[set[int]] = []
    world.engine.before = lambda step, table: seen.append(set(kept(world, "orders")))
    world.refresh("totals")
    assert seen[0] == {orders.current_snapshot_id, world.load("orders").current_snapshot_id}


def test_a_base_table_behind_another_dynamic_table_is_kept_only_for_that(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("first", "orders")
    world.dynamic("second", "first")
    world.refresh("second")
    assert [one.table.table for one in world.cursors.needed(world.load("orders").uuid)] == ["first"]
    assert [one.table.table for one in world.cursors.needed(world.load("first").uuid)] == ["second"]


def test_a_dropped_dynamic_table_needs_nothing(world: Refreshing) -> None:
    world.base("orders")
    table = world.dynamic("totals", "orders")
    world.refresh("totals")
    TableRecords(world.ledger).forget(table.uuid)
    assert kept(world, "orders") == {}


def test_the_snapshot_with_the_state_is_kept_though_later_ones_only_rewrote_the_rows(world: Refreshing) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")
    world.refresh("totals")
    state = world.load("totals").current_snapshot_id
    add_rows(world.load("totals"), 0, **FENCE)
    assert state in kept(world, "totals")
    assert world.refresh("totals") == {"totals": "NO_DATA NO_CHANGES"}


def test_an_ordinary_table_has_no_state_to_keep(world: Refreshing) -> None:
    world.base("orders")
    assert kept(world, "orders") == {}


def test_cursors_come_back_as_they_were_put(world: Refreshing) -> None:
    world.base("orders")
    table = world.dynamic("totals", "orders")
    first = Cursors("pass-1", {"a": 1, "b": None})
    world.cursors.put(table.uuid, first, {"a"})
    world.cursors.reading(table.uuid, {"a": 7, "c": 8})
    assert world.cursors.of(table.uuid) == first
    assert [one.snapshot_id for one in world.cursors.needed("a")] == [1, 7]
    assert [one.snapshot_id for one in world.cursors.needed("c")] == [8]
    assert world.cursors.needed("b") == []
    second = replace(first, snapshots={"a": 7})
    world.cursors.put(table.uuid, second, {"a"})
    assert world.cursors.all() == {table.uuid: second}
    assert world.cursors.needed("c") == []

"""How far a dynamic table lags behind its base tables, and what a query shows of it."""

from pathlib import Path

import pytest

from service.dynamic.freshness import Freshness, MissingChanges, missing_changes
from service.dynamic.reads import DynamicReads
from service.errors import SnapshotNotFound
from service.model.identity.principal import ANYONE
from tests.support.refreshing import Refreshing, expire


@pytest.fixture
def world(tmp_path: Path) -> Refreshing:
    return Refreshing(tmp_path)


def at_ms(world: Refreshing, name: str, snapshot_id: int) -> int:
    return world.load(name).snapshot(snapshot_id).timestamp_ms


def test_the_oldest_missing_change_counts_and_rewrites_do_not(world: Refreshing) -> None:
    known = world.base("orders").current_snapshot_id
    assert missing_changes(world.load("orders"), known) == MissingChanges()
    world.compact("orders")
    assert missing_changes(world.load("orders"), known) == MissingChanges(None, rewritten=True)
    first = world.add("orders")
    world.add("orders")
    world.compact("orders")
    assert missing_changes(world.load("orders"), known) == MissingChanges(at_ms(world, "orders", first))


def test_without_the_known_snapshot_the_oldest_state_that_is_left_counts(world: Refreshing) -> None:
    known = world.base("orders").current_snapshot_id
    left = world.add("orders")
    expire(world.load("orders"), known)
    assert missing_changes(world.load("orders"), known) == MissingChanges(at_ms(world, "orders", left))


def test_every_row_is_missing_if_the_table_had_none(world: Refreshing) -> None:
    world.base("orders", rows=0)
    assert missing_changes(world.load("orders"), None) == MissingChanges()
    first = world.add("orders")
    assert missing_changes(world.load("orders"), None) == MissingChanges(at_ms(world, "orders", first))


class TestReads:
    @pytest.fixture
    def reads(self, world: Refreshing) -> DynamicReads:
        freshness = Freshness(lambda source: world.commits.find(source.name, source.uuid))
        return DynamicReads(world.definitions, world.cursors, freshness)

    def test_a_query_sees_the_sources_and_the_lag(self, world: Refreshing, reads: DynamicReads) -> None:
        orders = world.base("orders")
        world.dynamic("totals", "orders")
        assert reads.of(world.load("totals"), None) is None
        world.refresh("totals")
        found = reads.of(world.load("totals"), None)
        assert found is not None
        assert (found.pass_id, found.lag_ms) == (world.outcome.id, 0)
        assert [(one.uuid, one.snapshot_id) for one in found.sources] == [(orders.uuid, orders.current_snapshot_id)]
        assert reads.of(world.load("orders"), None) is None

    def test_the_lag_of_a_chain_is_that_behind_its_base_tables(self, world: Refreshing, reads: DynamicReads) -> None:
        world.base("orders")
        world.dynamic("first", "orders")
        world.dynamic("second", "first")
        world.refresh("second")
        world.add("orders")
        world.refresh("first")
        found = reads.of(world.load("second"), None)
        assert found is not None
        assert (found.lag_ms or 0) >= 0
        missing = reads.freshness.missing(world.load("orders"), found.sources[0].snapshot_id)
        assert missing.since_ms is not None

    def test_a_state_of_the_past_has_no_lag(self, world: Refreshing, reads: DynamicReads) -> None:
        world.base("orders")
        world.dynamic("totals", "orders")
        world.refresh("totals")
        first, then = world.outcome.id, world.load("totals").current_snapshot_id
        world.add("orders")
        world.refresh("totals")
        found = reads.of(world.load("totals"), then)
        assert found is not None
        assert (found.pass_id, found.lag_ms) == (first, None)

    def test_a_pass_names_the_snapshots_of_its_tables_also_if_nothing_had_changed(
        self, world: Refreshing, reads: DynamicReads
    ) -> None:
        world.base("orders")
        world.base("others")
        world.dynamic("first", "orders")
        world.dynamic("second", "first", "others")
        world.refresh("second")
        world.add("others")
        world.refresh("second")
        latest = {world.load(name).uuid: world.load(name).current_snapshot_id for name in ("orders", "others", "first")}
        latest[world.load("second").uuid] = world.load("second").current_snapshot_id
        found = reads.in_pass("acme", world.outcome.id, ANYONE)
        world.add("orders")
        world.refresh("second")
        assert found == latest

    def test_an_unknown_pass_and_that_of_another_tenant_are_refused(
        self, world: Refreshing, reads: DynamicReads
    ) -> None:
        world.base("orders")
        world.dynamic("totals", "orders")
        world.refresh("totals")
        for tenant, pass_id in (("acme", "none"), ("globex", world.outcome.id)):
            with pytest.raises(SnapshotNotFound):
                reads.in_pass(tenant, pass_id, ANYONE)

"""Whatever happens to base tables, passes and tables: each result agrees with the sources that it names."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.catalog.lineage import ancestors
from service.dynamic.refresh.pins import known_result, same_rows
from service.model.dynamic.state import RefreshState, state_of
from tests.support.marks import thorough_after
from tests.support.refreshing import INCREMENTAL, Refreshing

BASES = ("orders", "customers")
# Five levels with diamonds.
TABLES = {
    "l1a": ("orders",),
    "l1b": ("orders", "customers"),
    "l2": ("l1a", "l1b"),
    "l3a": ("l2", "customers"),
    "l3b": ("l2", "l1a"),
    "l4": ("l3a", "l3b", "orders"),
    "l5": ("l4", "l1b"),
}


@pytest.fixture
def world(tmp_path: Path) -> Refreshing:
    made = Refreshing(tmp_path, options=INCREMENTAL)
    for name in BASES:
        made.base(name)
    for name, sources in TABLES.items():
        made.dynamic(name, *sources)
    made.refresh("l5")
    return made


def state(world: Refreshing, name: str, snapshot_id: int | None) -> RefreshState:
    found = state_of(world.load(name).snapshot(snapshot_id or 0).summary)
    assert found is not None, name
    return found


def check(world: Refreshing) -> None:
    """Each dynamic table, at the snapshots that it names, stands for one state of each base table. The ledger may say
    that a source stands for later rows, too; at worst for those of the tables that read it."""
    for name in TABLES:
        table = world.load(name)
        own = state(world, name, table.current_snapshot_id)
        known = known_result(table, world.cursors.of(table.uuid))
        for source in own.sources:
            if source.is_base:
                continue
            behind = {one.uuid: one.snapshot_id for one in state(world, source.table, source.snapshot_id).all}
            later = world.cursors.of(source.uuid)
            for base in BASES:
                uuid = world.load(base).uuid
                if uuid not in behind or uuid not in own.snapshots:
                    continue
                now, at = world.load(base), own.snapshots[uuid]
                if not same_rows(now, behind[uuid], at):
                    assert later is not None, (name, source.table, base)
                    assert behind[uuid] in ancestors(now, at), (name, source.table, base)
                    assert at in ancestors(now, later.snapshots[uuid]), (name, source.table, base)
        assert set(known.snapshots) == set(own.snapshots)


@pytest.mark.parametrize("seed", thorough_after(2, range(6)))
def test_a_graph_of_five_levels_agrees_after_whatever_happens(world: Refreshing, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(12):
        name = chance.choice(list(TABLES))
        uuid = world.load(name).uuid
        match chance.choice(["add", "add", "compact", "compact result", "suspend", "resume", "refresh", "refresh"]):
            case "add":
                world.add(chance.choice(BASES))
            case "compact":
                world.compact(chance.choice(BASES))
            case "compact result":
                world.compact(name)
            case "suspend":
                world.records.set_state(uuid, "suspended", "a test")
            case "resume":
                world.records.set_state(uuid, "active")
            case _:
                world.refresh(name, cascade=chance.random() < 0.3)
        check(world)
    for name in TABLES:
        world.records.set_state(world.load(name).uuid, "active")
    found = world.refresh("l5")
    assert {one.partition(" ")[0] for one in found.values()} <= {"NO_DATA", "INCREMENTAL"}
    latest = {world.load(base).uuid: world.load(base).current_snapshot_id for base in BASES}
    for name in TABLES:
        table = world.load(name)
        known = known_result(table, world.cursors.of(table.uuid))
        for uuid, snapshot_id in known.bases.items():
            assert snapshot_id.snapshot_id == latest[uuid], name


@pytest.mark.parametrize("seed", thorough_after(1, range(3)))
def test_a_graph_agrees_while_several_passes_and_writers_are_at_work(world: Refreshing, seed: int) -> None:
    chance = random.Random(seed)
    targets = [chance.choice(list(TABLES)) for _ in range(6)]
    with ThreadPoolExecutor(3) as pool:
        work = [pool.submit(world.refresh, name) for name in targets]
        for _ in range(6):
            world.add(chance.choice(BASES))
        for one in work:
            assert not any(state.startswith("failed") for state in one.result().values())
    check(world)
    found = world.refresh("l5")
    assert {one.partition(" ")[0] for one in found.values()} <= {"NO_DATA", "INCREMENTAL"}

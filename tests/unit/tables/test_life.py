"""A table's life in catalog and ledger: what a rename, a drop and a restore move, and what a crash leaves."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from service.catalog.tables import Table
from service.errors import (
    CatalogUnavailable,
    FirnError,
    InvalidRequest,
    LedgerUnavailable,
    StorageUnavailable,
    TableExists,
    TableNotFound,
)
from service.ledger.jobs import JobRecord, JobRecords
from service.ledger.schedules import Schedule, ScheduleRecords
from service.model.call import Call, IdempotencyKey
from service.model.names import CHANGES_PROPERTY, DROPPED_NAMESPACE, TableName
from service.model.times import HOUR_MS
from tests.fakes import FakeCatalog
from tests.jobs import compaction
from tests.unit.desk import ASK, NEW, ORDERS, OTHERS, SCHEMA, Desk

KEPT_MS = 168 * HOUR_MS


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Frail(FakeCatalog):
    """A catalog during whose next rename something happens, before or after it."""

    before: list[BaseException] = field(default_factory=list)
    after: list[BaseException] = field(default_factory=list)

    def rename(self, table: Table, to: TableName) -> Table:
        if self.before:
            raise self.before.pop()
        moved = FakeCatalog.rename(self, table, to)
        if self.after:
            raise self.after.pop()
        return moved


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    catalog = Frail()
    for name in (ORDERS, OTHERS):
        catalog.create(name, SCHEMA, (), {})
    return Desk(tmp_path / "ledger.db", catalog=catalog)


def frail(desk: Desk) -> Frail:
    return cast(Frail, desk.catalog)


def named(table: str) -> TableName:
    return replace(ORDERS, table=table)


def users_tables(desk: Desk) -> set[str]:
    return {name.table for name in desk.catalog.tables if name.tenant == ORDERS.tenant}


def folder_of_one_half_removed(desk: Desk, tmp_path: Path) -> Path:
    """The folder of an overdue table whose removal took it out of the catalog, and then was cut short."""
    folder = tmp_path / "orders-1"
    folder.mkdir()
    desk.catalog.tables[ORDERS] = replace(desk.catalog.tables[ORDERS], location=f"file://{folder}")
    desk.life.drop(ORDERS, ASK, purge=False)
    [kept] = [name for name in desk.catalog.tables if (name.tenant, name.namespace) == DROPPED_NAMESPACE]
    del desk.catalog.tables[kept]
    desk.now_ms += KEPT_MS
    return folder


class TestRename:
    def test_the_table_is_the_same_one_under_its_new_name(self, desk: Desk) -> None:
        uuid = desk.catalog.tables[ORDERS].uuid
        desk.life.rename(ORDERS, "new", ASK)
        assert users_tables(desk) == {"new", "others"}
        assert desk.catalog.tables[NEW].uuid == uuid
        assert desk.notes() == [("done", 0)]

    def test_a_name_that_is_taken_is_refused_and_nothing_is_noted(self, desk: Desk) -> None:
        with pytest.raises(TableExists) as refused:
            desk.life.rename(ORDERS, "others", ASK)
        assert refused.value.field == "new_name"
        assert desk.notes() == []

    def test_also_one_that_is_taken_at_the_last_moment(self, desk: Desk) -> None:
        frail(desk).before = [TableExists("somebody was faster")]
        with pytest.raises(TableExists):
            desk.life.rename(ORDERS, "new", ASK)
        assert desk.notes() == [("void", None)]
        desk.life.rename(ORDERS, "new", ASK)

    def test_its_own_name_is_refused(self, desk: Desk) -> None:
        with pytest.raises(InvalidRequest):
            desk.life.rename(ORDERS, "orders", ASK)

    def test_schedules_jobs_and_the_compaction_log_follow_and_those_of_other_tables_stay(self, desk: Desk) -> None:
        notes, jobs = ScheduleRecords(desk.ledger), JobRecords(desk.ledger)
        for table in ("orders", "others"):
            notes.put(schedule(table), replacing=False)
            uuid = desk.catalog.tables[named(table)].uuid
            compaction(jobs, f"c-{table}", named(table), uuid, 1)
            jobs.begin(JobRecord(f"j-{table}", "BULK", named(table), uuid, "done", listed=True, ended_ms=2))
        desk.life.rename(ORDERS, "new", ASK)
        assert {job.id: job.table.table for job in jobs.listed("acme", "shop", 9, 0)} == {
            "j-orders": "new",
            "j-others": "others",
        }
        assert {one.name: one.table for one in notes.of_tenant("acme")} == {"of-orders": "new", "of-others": "others"}
        assert {job.id: job.table.table for job in jobs.log("COMPACT", 9)} == {"c-orders": "new", "c-others": "others"}

    def test_a_change_that_was_committed_before_it_is_still_found_after_it(self, desk: Desk) -> None:
        key = IdempotencyKey("WRITE", ORDERS, "k", "print")
        table = desk.catalog.load(ORDERS)
        desk.commits.batches.begin("b1", table, "WRITE", [Call("r", key)])
        made = desk.catalog.append(ORDERS, "b1")
        desk.life.rename(ORDERS, "new", ASK)
        happened = desk.restarted().commits.earlier_batch(desk.retry(key))
        assert happened
        assert happened.snapshot_id == made

    def test_also_after_the_table_was_dropped_and_another_has_its_name(self, desk: Desk) -> None:
        key = IdempotencyKey("WRITE", ORDERS, "k", "print")
        desk.commits.batches.begin("b1", desk.catalog.load(ORDERS), "WRITE", [Call("r", key)])
        made = desk.catalog.append(ORDERS, "b1")
        desk.life.drop(ORDERS, ASK, purge=False)
        desk.catalog.create(ORDERS, SCHEMA, (), {})
        happened = desk.commits.earlier_batch(desk.retry(key))
        assert happened
        assert happened.snapshot_id == made


class TestRestore:
    def test_a_dropped_table_comes_back_as_the_one_it_was(self, desk: Desk) -> None:
        before = desk.catalog.tables[ORDERS]
        dropped = desk.life.drop(ORDERS, ASK, purge=False)
        assert dropped.restorable_until_ms == desk.now_ms + KEPT_MS
        assert [life.name for life in desk.life.dropped("acme", "shop")] == [ORDERS]
        assert desk.life.restore(ORDERS, None, None, ASK) == ORDERS
        assert desk.catalog.tables[ORDERS] == before
        assert desk.life.dropped("acme", "shop") == []

    def test_one_whose_name_is_taken_by_now_comes_back_by_another(self, desk: Desk) -> None:
        desk.life.drop(ORDERS, ASK, purge=False)
        desk.catalog.create(ORDERS, SCHEMA, (), {})
        with pytest.raises(TableExists, match="new_name"):
            desk.life.restore(ORDERS, None, None, ASK)
        desk.life.restore(ORDERS, "new", None, ASK)
        assert users_tables(desk) == {"orders", "new", "others"}

    def test_of_several_of_a_name_the_last_unless_an_id_says_which(self, desk: Desk) -> None:
        ids = []
        for _ in range(3):
            ids.append(desk.life.drop(ORDERS, ASK, purge=False).table_id)
            desk.catalog.create(ORDERS, SCHEMA, (), {})
        desk.life.restore(ORDERS, "a", ids[0].upper(), ASK)
        assert desk.catalog.tables[named("a")].uuid == ids[0]
        with pytest.raises(TableNotFound) as refused:
            desk.life.restore(ORDERS, "b", ids[0], ASK)
        assert refused.value.field == "table_id"

    def test_its_schedules_follow_it_to_a_new_name_unless_another_table_has_the_old_one(self, desk: Desk) -> None:
        notes = ScheduleRecords(desk.ledger)
        notes.put(schedule("orders"), replacing=False)
        desk.life.drop(ORDERS, ASK, purge=False)
        desk.life.restore(ORDERS, "new", None, ASK)
        assert notes.of_tenant("acme")[0].table == "new"
        desk.life.drop(NEW, ASK, purge=False)
        desk.catalog.create(NEW, SCHEMA, (), {})
        desk.life.restore(NEW, "newer", None, ASK)
        assert notes.of_tenant("acme")[0].table == "new"

    def test_what_was_never_dropped_is_not_found_and_what_might_be_meant_is_said(self, desk: Desk) -> None:
        with pytest.raises(TableNotFound, match="none"):
            desk.life.restore(OTHERS, None, None, ASK)
        desk.life.drop(ORDERS, ASK, purge=False)
        with pytest.raises(TableNotFound) as refused:
            desk.life.restore(named("order"), None, None, ASK)
        assert refused.value.suggestion == "orders"

    def test_when_its_time_is_over_it_is_removed_and_cannot_come_back(self, desk: Desk) -> None:
        desk.life.drop(ORDERS, ASK, purge=False)
        desk.now_ms += KEPT_MS - 1
        assert desk.life.remove_overdue() == 0
        desk.now_ms += 1
        with pytest.raises(TableNotFound):
            desk.life.restore(ORDERS, None, None, ASK)
        assert desk.life.remove_overdue() == 1
        assert set(desk.catalog.tables) == {OTHERS}
        assert desk.life.remove_overdue() == 0

    def test_a_purged_one_is_gone_at_once(self, desk: Desk) -> None:
        dropped = desk.life.drop(ORDERS, ASK, purge=True)
        assert (dropped.purged, dropped.restorable_until_ms) == (True, None)
        assert set(desk.catalog.tables) == {OTHERS}
        with pytest.raises(TableNotFound):
            desk.life.restore(ORDERS, None, None, ASK)

    def test_one_whose_removal_fails_is_purged_by_maintenance(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: object, **__: object) -> None:
            raise CatalogUnavailable("silent")

        with monkeypatch.context() as patched:
            patched.setattr(desk.catalog, "drop", fails)
            assert not desk.life.drop(ORDERS, ASK, purge=True).purged
        assert ORDERS not in desk.catalog.tables
        assert desk.life.remove_overdue() == 1
        assert set(desk.catalog.tables) == {OTHERS}

    def test_a_folder_that_a_crash_left_of_a_removed_table_goes_with_the_next_removal(
        self, desk: Desk, tmp_path: Path
    ) -> None:
        folder = folder_of_one_half_removed(desk, tmp_path)
        desk.life.remove_overdue()
        assert not folder.exists()

    def test_a_removed_table_is_forgotten_once_its_folder_is_gone_and_not_before(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(_: str) -> None:
            raise StorageUnavailable("silent")

        folder = folder_of_one_half_removed(desk, tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(desk.catalog, "remove_folder", fails)
            assert desk.life.remove_overdue() == 0
        assert desk.life.remove_overdue() == 1
        assert not folder.exists()

    def test_a_table_that_is_kept_as_dropped_and_of_which_nobody_says_so_is_taken_for_dropped(self, desk: Desk) -> None:
        frail(desk).before = [TableNotFound("never came through")]
        with pytest.raises(TableNotFound):
            desk.life.drop(ORDERS, ASK, purge=False)
        table = desk.catalog.tables[ORDERS]
        FakeCatalog.rename(desk.catalog, cast(Table, table), TableName(*DROPPED_NAMESPACE, table.uuid.replace("-", "")))
        desk.life.remove_overdue()
        assert desk.life.restore(ORDERS, None, None, ASK) == ORDERS


def rename(desk: Desk, call: Call) -> None:
    desk.life.rename(ORDERS, "new", call)


def drop(desk: Desk, call: Call) -> None:
    desk.life.drop(ORDERS, call, purge=False)


def restore(desk: Desk, call: Call) -> None:
    desk.life.restore(ORDERS, None, None, call)


STEPS = {"RENAME_TABLE": rename, "DROP_TABLE": drop, "RESTORE_TABLE": restore}


@pytest.mark.parametrize("operation", STEPS)
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("recovers", [False, True])
def test_a_step_that_a_crash_cut_in_half_is_done_once_when_it_is_sent_again(
    desk: Desk, operation: str, done: bool, recovers: bool
) -> None:
    step, key = STEPS[operation], IdempotencyKey(operation, ORDERS, "k", "print")
    uuid = desk.catalog.tables[ORDERS].uuid
    if operation == "RESTORE_TABLE":
        drop(desk, ASK)
    (frail(desk).after if done else frail(desk).before).append(Killed())
    with pytest.raises(Killed):
        step(desk, Call("r1", key))
    again = desk.restarted()
    if recovers:
        assert again.commits.batches.recover() == 1
    step(again, again.retry(key))
    step(again, again.retry(key))
    life = again.lives.find(uuid)
    assert life is not None
    assert life.step is None
    expected = {
        "RENAME_TABLE": ("here", "new"),
        "DROP_TABLE": ("dropped", "orders"),
        "RESTORE_TABLE": ("here", "orders"),
    }
    assert (life.state, life.name.table) == expected[operation]
    assert again.commits.find(ORDERS, uuid).uuid == uuid
    assert sum(state == "done" for state, _ in again.notes()) == 1 + (operation == "RESTORE_TABLE")


@pytest.mark.parametrize("operation", STEPS)
def test_a_step_that_came_through_although_the_catalog_failed_is_a_success(desk: Desk, operation: str) -> None:
    if operation == "RESTORE_TABLE":
        drop(desk, ASK)
    frail(desk).after = [CatalogUnavailable("the answer was lost")]
    STEPS[operation](desk, ASK)
    assert {state for state, _ in desk.notes()} == {"done"}


@pytest.mark.parametrize("operation", STEPS)
def test_a_step_that_did_not_is_a_failure_and_can_be_tried_again(desk: Desk, operation: str) -> None:
    if operation == "RESTORE_TABLE":
        drop(desk, ASK)
    frail(desk).before = [CatalogUnavailable("silent")]
    with pytest.raises(CatalogUnavailable):
        STEPS[operation](desk, ASK)
    STEPS[operation](desk, ASK)


def test_a_step_whose_end_the_ledger_could_not_note_is_noted_later(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def mute(*_: object, **__: object) -> None:
        raise LedgerUnavailable("silent")

    with monkeypatch.context() as patched:
        patched.setattr(type(desk.lives), "end", mute)
        desk.life.rename(ORDERS, "new", ASK)
    assert desk.notes() == [("begun", None)]
    desk.commits.batches.resolve()
    assert desk.notes() == [("done", 0)]


class TestOnline:
    def test_an_offline_table_is_listed_whatever_becomes_of_its_name(self, desk: Desk) -> None:
        desk.life.set_online(desk.catalog.load(ORDERS), False, ASK)
        assert desk.life.offline("acme", "shop") == ["orders"]
        desk.life.rename(ORDERS, "new", ASK)
        assert desk.life.offline("acme", "shop") == ["new"]
        desk.life.drop(NEW, ASK, purge=False)
        assert desk.life.offline("acme", "shop") == []
        desk.life.restore(NEW, None, None, ASK)
        assert desk.life.offline("acme", "shop") == ["new"]
        desk.life.set_online(desk.catalog.load(NEW), True, ASK)
        assert desk.life.offline("acme", "shop") == []
        assert desk.catalog.tables[NEW].properties == {}

    def test_another_table_of_its_name_is_not(self, desk: Desk) -> None:
        desk.life.set_online(desk.catalog.load(ORDERS), False, ASK)
        desk.catalog.drop(desk.catalog.load(ORDERS), purge=False)
        desk.catalog.create(ORDERS, SCHEMA, (), {})
        assert desk.life.offline("acme", "shop") == []


@pytest.mark.parametrize("done", [False, True])
def test_what_became_of_a_change_of_metadata_that_a_crash_cut_short_the_table_says(desk: Desk, done: bool) -> None:
    key = IdempotencyKey("ALTER_TABLE", ORDERS, "k", "print")
    made: list[str] = []

    def change(table: Table, batch: str) -> Table:
        if made or done:
            desk.catalog.set_properties(table, {CHANGES_PROPERTY: f"older,{batch}"})
        made.append(batch)
        if len(made) == 1:
            raise Killed
        return table

    with pytest.raises(Killed):
        desk.commits.alter(desk.catalog.load(ORDERS), "ALTER_TABLE", Call("r", key), change)
    again = desk.restarted()
    again.commits.alter(again.catalog.load(ORDERS), "ALTER_TABLE", again.retry(key), change)
    assert len(made) == (1 if done else 2)


def test_a_change_of_metadata_that_is_refused_is_void(desk: Desk) -> None:
    def change(table: Table, batch: str) -> Table:
        raise InvalidRequest("it cannot be")

    with pytest.raises(InvalidRequest):
        desk.commits.alter(desk.catalog.load(ORDERS), "ALTER_TABLE", ASK, change)
    assert desk.notes() == [("void", None)]


@dataclass
class Model:
    """What there ought to be: the tables by name, and the dropped ones, the last one first."""

    here: dict[str, str]
    dropped: list[tuple[str, str]] = field(default_factory=list)

    def rename(self, name: str, to: str) -> bool:
        if name not in self.here or to in self.here:
            return False
        self.here[to] = self.here.pop(name)
        return True

    def drop(self, name: str) -> bool:
        if name not in self.here:
            return False
        self.dropped.insert(0, (name, self.here.pop(name)))
        return True

    def restore(self, name: str, to: str) -> bool:
        found = next((one for one in self.dropped if one[0] == name), None)
        if found is None or to in self.here:
            return False
        self.dropped.remove(found)
        self.here[to] = found[1]
        return True


@pytest.mark.parametrize("seed", range(12))
def test_after_any_life_with_crashes_the_tables_are_those_of_a_model(desk: Desk, seed: int) -> None:
    chance = random.Random(seed)
    model = Model({name.table: table.uuid for name, table in desk.catalog.tables.items()})
    for number in range(60):
        name, to = chance.choices(["orders", "others", "a", "b"], k=2)
        crash = chance.choice(["before", "after", None, None])
        if crash is not None:
            getattr(frail(desk), crash).append(Killed())
        happened = act(desk, model, chance.choice(["create", "rename", "drop", "restore"]), name, to, crash)
        desk.now_ms += 1
        if happened:
            desk = restarted(desk)
        frail(desk).before.clear()
        frail(desk).after.clear()
        there = {n.table: t.uuid for n, t in desk.catalog.tables.items() if n.tenant == ORDERS.tenant}
        assert there == model.here, number
        dropped = [(life.name.table, life.uuid) for life in desk.life.dropped("acme", "shop")]
        assert sorted(dropped) == sorted(model.dropped), number


def act(desk: Desk, model: Model, what: str, name: str, to: str, crash: str | None) -> bool:
    """Do one thing here and in the model, which agree on whether it can be done; whether the process was killed."""
    steps: dict[str, tuple[Callable[[], object], Callable[[], bool]]] = {
        "rename": (lambda: desk.life.rename(named(name), to, ASK), lambda: model.rename(name, to)),
        "drop": (lambda: desk.life.drop(named(name), ASK, purge=False), lambda: model.drop(name)),
        "restore": (lambda: desk.life.restore(named(name), to, None, ASK), lambda: model.restore(name, to)),
    }
    if what == "create":
        if name not in model.here:
            model.here[name] = desk.catalog.create(named(name), SCHEMA, (), {}).uuid
        return False
    step, expected = steps[what]
    try:
        step()
    except Killed:
        if crash == "after":
            assert expected()
        return True
    except FirnError:
        assert not expected()
        return False
    assert expected()
    return False


def restarted(desk: Desk) -> Desk:
    again = desk.restarted()
    again.now_ms = desk.now_ms
    again.commits.batches.recover()
    return again


def schedule(table: str) -> Schedule:
    return Schedule(
        f"id-{table}", "acme", f"of-{table}", "0 2 * * *", "UTC", 0, "table", "shop", table, "{}", True, True, 1, 2
    )

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
from tests.unit.commit_setup import ASK, NEW, ORDERS, OTHERS, SCHEMA, CommitSetup

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
def setup(tmp_path: Path) -> CommitSetup:
    catalog = Frail()
    for name in (ORDERS, OTHERS):
        catalog.create(name, SCHEMA, (), {})
    return CommitSetup(tmp_path / "ledger.db", catalog=catalog)


def frail(setup: CommitSetup) -> Frail:
    return cast(Frail, setup.catalog)


def named(table: str) -> TableName:
    return replace(ORDERS, table=table)


def users_tables(setup: CommitSetup) -> set[str]:
    return {name.table for name in setup.catalog.tables if name.tenant == ORDERS.tenant}


def folder_of_one_half_removed(setup: CommitSetup, tmp_path: Path) -> Path:
    """The folder of an overdue table whose removal took it out of the catalog, and then was cut short."""
    folder = tmp_path / "orders-1"
    folder.mkdir()
    setup.catalog.tables[ORDERS] = replace(setup.catalog.tables[ORDERS], location=f"file://{folder}")
    setup.life.drop(ORDERS, ASK, purge=False)
    [kept] = [name for name in setup.catalog.tables if (name.tenant, name.namespace) == DROPPED_NAMESPACE]
    del setup.catalog.tables[kept]
    setup.now_ms += KEPT_MS
    return folder


class TestRename:
    def test_the_table_is_the_same_one_under_its_new_name(self, setup: CommitSetup) -> None:
        uuid = setup.catalog.tables[ORDERS].uuid
        setup.life.rename(ORDERS, "new", ASK)
        assert users_tables(setup) == {"new", "others"}
        assert setup.catalog.tables[NEW].uuid == uuid
        assert setup.notes() == [("done", 0)]

    def test_a_name_that_is_taken_is_refused_and_nothing_is_noted(self, setup: CommitSetup) -> None:
        with pytest.raises(TableExists) as refused:
            setup.life.rename(ORDERS, "others", ASK)
        assert refused.value.field == "new_name"
        assert setup.notes() == []

    def test_also_one_that_is_taken_at_the_last_moment(self, setup: CommitSetup) -> None:
        frail(setup).before = [TableExists("somebody was faster")]
        with pytest.raises(TableExists):
            setup.life.rename(ORDERS, "new", ASK)
        assert setup.notes() == [("void", None)]
        setup.life.rename(ORDERS, "new", ASK)

    def test_its_own_name_is_refused(self, setup: CommitSetup) -> None:
        with pytest.raises(InvalidRequest):
            setup.life.rename(ORDERS, "orders", ASK)

    def test_schedules_jobs_and_the_compaction_log_follow_and_those_of_other_tables_stay(
        self, setup: CommitSetup
    ) -> None:
        notes, jobs = ScheduleRecords(setup.ledger), JobRecords(setup.ledger)
        for table in ("orders", "others"):
            notes.put(schedule(table), replacing=False)
            uuid = setup.catalog.tables[named(table)].uuid
            compaction(jobs, f"c-{table}", named(table), uuid, 1)
            jobs.begin(JobRecord(f"j-{table}", "BULK", named(table), uuid, "done", listed=True, ended_ms=2))
        setup.life.rename(ORDERS, "new", ASK)
        assert {job.id: job.table.table for job in jobs.listed("acme", "shop", 9, 0)} == {
            "j-orders": "new",
            "j-others": "others",
        }
        assert {one.name: one.table for one in notes.of_tenant("acme")} == {"of-orders": "new", "of-others": "others"}
        assert {job.id: job.table.table for job in jobs.log("COMPACT", 9)} == {"c-orders": "new", "c-others": "others"}

    def test_a_change_that_was_committed_before_it_is_still_found_after_it(self, setup: CommitSetup) -> None:
        key = IdempotencyKey("WRITE", ORDERS, "k", "print")
        table = setup.catalog.load(ORDERS)
        setup.commits.batches.begin("b1", table, "WRITE", [Call("r", key)])
        made = setup.catalog.append(ORDERS, "b1")
        setup.life.rename(ORDERS, "new", ASK)
        happened = setup.restarted().commits.earlier_batch(setup.retry(key))
        assert happened
        assert happened.snapshot_id == made

    def test_also_after_the_table_was_dropped_and_another_has_its_name(self, setup: CommitSetup) -> None:
        key = IdempotencyKey("WRITE", ORDERS, "k", "print")
        setup.commits.batches.begin("b1", setup.catalog.load(ORDERS), "WRITE", [Call("r", key)])
        made = setup.catalog.append(ORDERS, "b1")
        setup.life.drop(ORDERS, ASK, purge=False)
        setup.catalog.create(ORDERS, SCHEMA, (), {})
        happened = setup.commits.earlier_batch(setup.retry(key))
        assert happened
        assert happened.snapshot_id == made


class TestRestore:
    def test_a_dropped_table_comes_back_as_the_one_it_was(self, setup: CommitSetup) -> None:
        before = setup.catalog.tables[ORDERS]
        dropped = setup.life.drop(ORDERS, ASK, purge=False)
        assert dropped.restorable_until_ms == setup.now_ms + KEPT_MS
        assert [life.name for life in setup.life.dropped("acme", "shop")] == [ORDERS]
        assert setup.life.restore(ORDERS, None, None, ASK).name == ORDERS
        assert setup.catalog.tables[ORDERS] == before
        assert setup.life.dropped("acme", "shop") == []

    def test_one_whose_name_is_taken_by_now_comes_back_by_another(self, setup: CommitSetup) -> None:
        setup.life.drop(ORDERS, ASK, purge=False)
        setup.catalog.create(ORDERS, SCHEMA, (), {})
        with pytest.raises(TableExists, match="new_name"):
            setup.life.restore(ORDERS, None, None, ASK)
        setup.life.restore(ORDERS, "new", None, ASK)
        assert users_tables(setup) == {"orders", "new", "others"}

    def test_of_several_of_a_name_the_last_unless_an_id_says_which(self, setup: CommitSetup) -> None:
        ids = []
        for _ in range(3):
            ids.append(setup.life.drop(ORDERS, ASK, purge=False).table_id)
            setup.catalog.create(ORDERS, SCHEMA, (), {})
        setup.life.restore(ORDERS, "a", ids[0].upper(), ASK)
        assert setup.catalog.tables[named("a")].uuid == ids[0]
        with pytest.raises(TableNotFound) as refused:
            setup.life.restore(ORDERS, "b", ids[0], ASK)
        assert refused.value.field == "table_id"

    def test_its_schedules_follow_it_to_a_new_name_unless_another_table_has_the_old_one(
        self, setup: CommitSetup
    ) -> None:
        notes = ScheduleRecords(setup.ledger)
        notes.put(schedule("orders"), replacing=False)
        setup.life.drop(ORDERS, ASK, purge=False)
        setup.life.restore(ORDERS, "new", None, ASK)
        assert notes.of_tenant("acme")[0].table == "new"
        setup.life.drop(NEW, ASK, purge=False)
        setup.catalog.create(NEW, SCHEMA, (), {})
        setup.life.restore(NEW, "newer", None, ASK)
        assert notes.of_tenant("acme")[0].table == "new"

    def test_what_was_never_dropped_is_not_found_and_what_might_be_meant_is_said(self, setup: CommitSetup) -> None:
        with pytest.raises(TableNotFound, match="none"):
            setup.life.restore(OTHERS, None, None, ASK)
        setup.life.drop(ORDERS, ASK, purge=False)
        with pytest.raises(TableNotFound) as refused:
            setup.life.restore(named("order"), None, None, ASK)
        assert refused.value.suggestion == "orders"

    def test_when_its_time_is_over_it_is_removed_and_cannot_come_back(self, setup: CommitSetup) -> None:
        setup.life.drop(ORDERS, ASK, purge=False)
        setup.now_ms += KEPT_MS - 1
        assert setup.life.remove_overdue() == 0
        setup.now_ms += 1
        with pytest.raises(TableNotFound):
            setup.life.restore(ORDERS, None, None, ASK)
        assert setup.life.remove_overdue() == 1
        assert set(setup.catalog.tables) == {OTHERS}
        assert setup.life.remove_overdue() == 0

    def test_a_purged_one_is_gone_at_once(self, setup: CommitSetup) -> None:
        dropped = setup.life.drop(ORDERS, ASK, purge=True)
        assert (dropped.purged, dropped.restorable_until_ms) == (True, None)
        assert set(setup.catalog.tables) == {OTHERS}
        with pytest.raises(TableNotFound):
            setup.life.restore(ORDERS, None, None, ASK)

    def test_one_whose_removal_fails_is_purged_by_maintenance(
        self, setup: CommitSetup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: object, **__: object) -> None:
            raise CatalogUnavailable("silent")

        with monkeypatch.context() as patched:
            patched.setattr(setup.catalog, "drop", fails)
            assert not setup.life.drop(ORDERS, ASK, purge=True).purged
        assert ORDERS not in setup.catalog.tables
        assert setup.life.remove_overdue() == 1
        assert set(setup.catalog.tables) == {OTHERS}

    def test_a_folder_that_a_crash_left_of_a_removed_table_goes_with_the_next_removal(
        self, setup: CommitSetup, tmp_path: Path
    ) -> None:
        folder = folder_of_one_half_removed(setup, tmp_path)
        setup.life.remove_overdue()
        assert not folder.exists()

    def test_a_removed_table_is_forgotten_once_its_folder_is_gone_and_not_before(
        self, setup: CommitSetup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(_: str) -> None:
            raise StorageUnavailable("silent")

        folder = folder_of_one_half_removed(setup, tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(setup.catalog, "remove_folder", fails)
            assert setup.life.remove_overdue() == 0
        assert setup.life.remove_overdue() == 1
        assert not folder.exists()

    def test_a_table_that_is_kept_as_dropped_and_of_which_nobody_says_so_is_taken_for_dropped(
        self, setup: CommitSetup
    ) -> None:
        frail(setup).before = [TableNotFound("never came through")]
        with pytest.raises(TableNotFound):
            setup.life.drop(ORDERS, ASK, purge=False)
        table = setup.catalog.tables[ORDERS]
        FakeCatalog.rename(
            setup.catalog, cast(Table, table), TableName(*DROPPED_NAMESPACE, table.uuid.replace("-", ""))
        )
        setup.life.remove_overdue()
        assert setup.life.restore(ORDERS, None, None, ASK).name == ORDERS


def rename(setup: CommitSetup, call: Call) -> None:
    setup.life.rename(ORDERS, "new", call)


def drop(setup: CommitSetup, call: Call) -> None:
    setup.life.drop(ORDERS, call, purge=False)


def restore(setup: CommitSetup, call: Call) -> None:
    setup.life.restore(ORDERS, None, None, call)


STEPS = {"RENAME_TABLE": rename, "DROP_TABLE": drop, "RESTORE_TABLE": restore}


@pytest.mark.parametrize("operation", STEPS)
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("recovers", [False, True])
def test_a_step_that_a_crash_cut_in_half_is_done_once_when_it_is_sent_again(
    setup: CommitSetup, operation: str, done: bool, recovers: bool
) -> None:
    step, key = STEPS[operation], IdempotencyKey(operation, ORDERS, "k", "print")
    uuid = setup.catalog.tables[ORDERS].uuid
    if operation == "RESTORE_TABLE":
        drop(setup, ASK)
    (frail(setup).after if done else frail(setup).before).append(Killed())
    with pytest.raises(Killed):
        step(setup, Call("r1", key))
    again = setup.restarted()
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
def test_a_step_that_came_through_although_the_catalog_failed_is_a_success(setup: CommitSetup, operation: str) -> None:
    if operation == "RESTORE_TABLE":
        drop(setup, ASK)
    frail(setup).after = [CatalogUnavailable("the answer was lost")]
    STEPS[operation](setup, ASK)
    assert {state for state, _ in setup.notes()} == {"done"}


@pytest.mark.parametrize("operation", STEPS)
def test_a_step_that_did_not_is_a_failure_and_can_be_tried_again(setup: CommitSetup, operation: str) -> None:
    if operation == "RESTORE_TABLE":
        drop(setup, ASK)
    frail(setup).before = [CatalogUnavailable("silent")]
    with pytest.raises(CatalogUnavailable):
        STEPS[operation](setup, ASK)
    STEPS[operation](setup, ASK)


def test_a_step_whose_end_the_ledger_could_not_note_is_noted_later(
    setup: CommitSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mute(*_: object, **__: object) -> None:
        raise LedgerUnavailable("silent")

    with monkeypatch.context() as patched:
        patched.setattr(type(setup.lives), "end", mute)
        setup.life.rename(ORDERS, "new", ASK)
    assert setup.notes() == [("begun", None)]
    setup.commits.batches.resolve()
    assert setup.notes() == [("done", 0)]


class TestOnline:
    def test_an_offline_table_is_listed_whatever_becomes_of_its_name(self, setup: CommitSetup) -> None:
        setup.life.set_online(setup.catalog.load(ORDERS), False, ASK)
        assert setup.life.offline("acme", "shop") == ["orders"]
        setup.life.rename(ORDERS, "new", ASK)
        assert setup.life.offline("acme", "shop") == ["new"]
        setup.life.drop(NEW, ASK, purge=False)
        assert setup.life.offline("acme", "shop") == []
        setup.life.restore(NEW, None, None, ASK)
        assert setup.life.offline("acme", "shop") == ["new"]
        setup.life.set_online(setup.catalog.load(NEW), True, ASK)
        assert setup.life.offline("acme", "shop") == []
        assert setup.catalog.tables[NEW].properties == {}

    def test_another_table_of_its_name_is_not(self, setup: CommitSetup) -> None:
        setup.life.set_online(setup.catalog.load(ORDERS), False, ASK)
        setup.catalog.drop(setup.catalog.load(ORDERS), purge=False)
        setup.catalog.create(ORDERS, SCHEMA, (), {})
        assert setup.life.offline("acme", "shop") == []


@pytest.mark.parametrize("done", [False, True])
def test_what_became_of_a_change_of_metadata_that_a_crash_cut_short_the_table_says(
    setup: CommitSetup, done: bool
) -> None:
    key = IdempotencyKey("ALTER_TABLE", ORDERS, "k", "print")
    made: list[str] = []

    def change(table: Table, batch: str) -> Table:
        if made or done:
            setup.catalog.set_properties(table, {CHANGES_PROPERTY: f"older,{batch}"})
        made.append(batch)
        if len(made) == 1:
            raise Killed
        return table

    with pytest.raises(Killed):
        setup.commits.alter(setup.catalog.load(ORDERS), "ALTER_TABLE", Call("r", key), change)
    again = setup.restarted()
    again.commits.alter(again.catalog.load(ORDERS), "ALTER_TABLE", again.retry(key), change)
    assert len(made) == (1 if done else 2)


def test_a_change_of_metadata_that_is_refused_is_void(setup: CommitSetup) -> None:
    def change(table: Table, batch: str) -> Table:
        raise InvalidRequest("it cannot be")

    with pytest.raises(InvalidRequest):
        setup.commits.alter(setup.catalog.load(ORDERS), "ALTER_TABLE", ASK, change)
    assert setup.notes() == [("void", None)]


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
def test_after_any_life_with_crashes_the_tables_are_those_of_a_model(setup: CommitSetup, seed: int) -> None:
    chance = random.Random(seed)
    model = Model({name.table: table.uuid for name, table in setup.catalog.tables.items()})
    for number in range(60):
        name, to = chance.choices(["orders", "others", "a", "b"], k=2)
        crash = chance.choice(["before", "after", None, None])
        if crash is not None:
            getattr(frail(setup), crash).append(Killed())
        happened = act(setup, model, chance.choice(["create", "rename", "drop", "restore"]), name, to, crash)
        setup.now_ms += 1
        if happened:
            setup = restarted(setup)
        frail(setup).before.clear()
        frail(setup).after.clear()
        there = {n.table: t.uuid for n, t in setup.catalog.tables.items() if n.tenant == ORDERS.tenant}
        assert there == model.here, number
        dropped = [(life.name.table, life.uuid) for life in setup.life.dropped("acme", "shop")]
        assert sorted(dropped) == sorted(model.dropped), number


def act(setup: CommitSetup, model: Model, what: str, name: str, to: str, crash: str | None) -> bool:
    """Do one thing here and in the model, which agree on whether it can be done; whether the process was killed."""
    steps: dict[str, tuple[Callable[[], object], Callable[[], bool]]] = {
        "rename": (lambda: setup.life.rename(named(name), to, ASK), lambda: model.rename(name, to)),
        "drop": (lambda: setup.life.drop(named(name), ASK, purge=False), lambda: model.drop(name)),
        "restore": (lambda: setup.life.restore(named(name), to, None, ASK), lambda: model.restore(name, to)),
    }
    if what == "create":
        if name not in model.here:
            model.here[name] = setup.catalog.create(named(name), SCHEMA, (), {}).uuid
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


def restarted(setup: CommitSetup) -> CommitSetup:
    again = setup.restarted()
    again.now_ms = setup.now_ms
    again.commits.batches.recover()
    return again


def schedule(table: str) -> Schedule:
    return Schedule(
        f"id-{table}", "acme", f"of-{table}", "0 2 * * *", "UTC", 0, "table", "shop", table, "{}", True, True, 1, 2
    )

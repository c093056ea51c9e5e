"""The quarantine of an ingestion table goes with it: renamed, dropped and restored, whatever a crash interrupts."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.catalog.tables import Table
from service.errors import CatalogUnavailable, InvalidRequest, TableExists
from service.ledger.ingestions import IngestionRecord, IngestionRecords
from service.ledger.schedules import Schedule, ScheduleRecords
from service.model.call import Call, IdempotencyKey
from service.model.ingest.reserved import (
    QUARANTINE_OF_PROPERTY,
    TABLE_FILE_PROPERTY,
    quarantine_name,
    trigger_name,
)
from service.model.names import TableName
from tests.fakes import FakeCatalog
from tests.unit.commit_setup import ASK, NEW, ORDERS, OTHERS, SCHEMA, CommitSetup

FILE = '{"name":"orders"}'


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Frail(FakeCatalog):
    """A catalog that fails, or during which the process ends, before or after the nth rename from now on."""

    fails_before: tuple[int, BaseException] | None = None
    fails_after: tuple[int, BaseException] | None = None

    def rename(self, table: Table, to: TableName) -> Table:
        self.fails_before = self._count(self.fails_before)
        moved = FakeCatalog.rename(self, table, to)
        self.fails_after = self._count(self.fails_after)
        return moved

    def _count(self, planned: tuple[int, BaseException] | None) -> tuple[int, BaseException] | None:
        if planned is None:
            return None
        if planned[0] == 1:
            self.fails_before = self.fails_after = None
            raise planned[1]
        return planned[0] - 1, planned[1]


class Shop(CommitSetup):
    """ORDERS is an ingestion table with a quarantine, a trigger and an ingestion."""

    catalog: Frail

    def table(self, name: TableName = ORDERS) -> Table:
        return self.catalog.load(name)

    @property
    def names(self) -> set[str]:
        return {name.table for name in self.catalog.tables if name.tenant == ORDERS.tenant}

    @property
    def registered(self) -> list[str]:
        return [one.name.table for one in IngestionRecords(self.ledger).tables()]

    @property
    def triggers(self) -> dict[str, str | None]:
        return {one.name: one.table for one in ScheduleRecords(self.ledger).of_tenant("acme")}

    def create(self, name: TableName = ORDERS) -> str:
        made = self.catalog.create(name, SCHEMA, (), {TABLE_FILE_PROPERTY: FILE})
        IngestionRecords(self.ledger).register(name, made.uuid, FILE)
        plan = (trigger_name(made.uuid), "0 2 * * *", "UTC", 0, "table", "shop", name.table, "{}", True, True, 1, 2)
        ScheduleRecords(self.ledger).put(Schedule(made.uuid, "acme", *plan), replacing=False)
        return made.uuid

    def reject(self, name: TableName = ORDERS) -> str:
        """Give a table a quarantine."""
        properties = {QUARANTINE_OF_PROPERTY: self.table(name).uuid}
        return self.catalog.create(quarantine_name(name), SCHEMA, (), properties).uuid


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path / "ledger.db", catalog=Frail())
    made.create()
    made.reject()
    return made


def test_a_rename_takes_the_quarantine_the_registry_the_log_and_the_trigger_with_it(shop: Shop) -> None:
    uuid, quarantine = shop.table().uuid, shop.table(quarantine_name(ORDERS)).uuid
    records = IngestionRecords(shop.ledger)
    records.add(ORDERS, uuid, [IngestionRecord("r", "2024-01-01", "f", "h", "d", "restate")])
    renamed = shop.life.rename(ORDERS, "new", ASK)
    assert renamed.quarantine == quarantine_name(NEW)
    assert shop.names == {"new", "new__quarantine"}
    assert shop.table(quarantine_name(NEW)).uuid == quarantine
    assert shop.registered == ["new"]
    assert shop.triggers == {trigger_name(uuid): "new"}
    with shop.ledger._engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT table_name FROM ingestion_log").scalars().all()
        assert rows == ["new"]
        assert connection.exec_driver_sql("SELECT table_name FROM table_registry").scalars().all() == ["new"]


def test_a_dropped_table_has_no_watch_no_trigger_and_no_quarantine_until_it_is_restored(shop: Shop) -> None:
    uuid, quarantine = shop.table().uuid, shop.table(quarantine_name(ORDERS)).uuid
    schedules = ScheduleRecords(shop.ledger)
    assert shop.life.drop(ORDERS, ASK, purge=False).quarantine == quarantine_name(ORDERS)
    assert shop.names == set()
    assert (shop.registered, shop.triggers, schedules.due_or_running(9)) == ([], {}, [])
    with shop.ledger._engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT table_name FROM table_registry").scalars().all() == []
    restored = shop.life.restore(ORDERS, "new", None, ASK)
    assert (restored.name, restored.quarantine) == (NEW, quarantine_name(NEW))
    assert shop.table(quarantine_name(NEW)).uuid == quarantine
    assert (shop.registered, shop.triggers) == (["new"], {trigger_name(uuid): "new"})
    assert [one.table for one in schedules.due_or_running(9)] == ["new"]


def test_a_new_table_of_the_name_has_a_quarantine_and_a_trigger_of_its_own(shop: Shop) -> None:
    old = shop.table().uuid
    shop.life.drop(ORDERS, ASK, purge=False)
    new = shop.create()
    shop.reject()
    assert shop.triggers == {trigger_name(new): "orders"}
    assert shop.registered == ["orders"]
    with pytest.raises(TableExists, match="new_name"):
        shop.life.restore(ORDERS, None, None, ASK)
    shop.life.restore(ORDERS, "new", None, ASK)
    assert shop.triggers == {trigger_name(new): "orders", trigger_name(old): "new"}
    assert sorted(shop.registered) == ["new", "orders"]
    assert shop.names == {"orders", "orders__quarantine", "new", "new__quarantine"}


def test_of_several_dropped_tables_of_a_name_each_gets_its_own_quarantine_back(shop: Shop) -> None:
    dropped = {}
    for _ in range(3):
        dropped[shop.table().uuid] = shop.table(quarantine_name(ORDERS)).uuid
        shop.life.drop(ORDERS, ASK, purge=False)
        shop.create()
        shop.reject()
    for number, (uuid, quarantine) in enumerate(dropped.items()):
        shop.life.restore(ORDERS, f"back{number}", uuid, ASK)
        assert shop.table(TableName("acme", "shop", f"back{number}__quarantine")).uuid == quarantine


def test_a_quarantine_that_was_dropped_on_its_own_is_not_restored_with_its_table(shop: Shop) -> None:
    shop.life.drop(quarantine_name(ORDERS), ASK, purge=False)
    shop.life.drop(ORDERS, ASK, purge=False)
    assert shop.life.restore(ORDERS, None, None, ASK).quarantine is None
    assert shop.names == {"orders"}
    shop.life.restore(quarantine_name(ORDERS), None, None, ASK)
    assert shop.names == {"orders", "orders__quarantine"}


def test_another_table_with_the_name_of_a_quarantine_stays_where_it_is(shop: Shop) -> None:
    shop.life.drop(quarantine_name(ORDERS), ASK, purge=False)
    shop.catalog.create(quarantine_name(ORDERS), SCHEMA, (), {})
    assert shop.life.rename(ORDERS, "new", ASK).quarantine is None
    assert shop.life.drop(NEW, ASK, purge=False).quarantine is None
    assert shop.names == {"orders__quarantine"}


def test_a_name_that_the_quarantine_cannot_have_is_refused(shop: Shop) -> None:
    shop.catalog.create(quarantine_name(NEW), SCHEMA, (), {})
    with pytest.raises(TableExists, match="new__quarantine") as taken:
        shop.life.rename(ORDERS, "new", ASK)
    with pytest.raises(InvalidRequest, match="at most 51") as long:
        shop.life.rename(ORDERS, "n" * 52, ASK)
    assert (taken.value.field, long.value.field) == ("new_name", "new_name")
    shop.life.drop(ORDERS, ASK, purge=False)
    with pytest.raises(TableExists, match="new__quarantine"):
        shop.life.restore(ORDERS, "new", None, ASK)
    assert shop.names == {"new__quarantine"}


def test_a_purge_leaves_nothing_of_the_table(shop: Shop) -> None:
    assert shop.life.drop(ORDERS, ASK, purge=True).purged
    assert not shop.catalog.tables
    assert not IngestionRecords(shop.ledger).knows()
    assert shop.triggers == {}


def test_both_are_removed_when_their_time_is_over(shop: Shop) -> None:
    shop.life.drop(ORDERS, ASK, purge=False)
    shop.now_ms += 168 * 3_600_000
    assert shop.life.remove_overdue() == 2
    assert not shop.catalog.tables


def test_an_ordinary_table_takes_nothing_with_it(shop: Shop) -> None:
    shop.catalog.create(OTHERS, SCHEMA, (), {})
    shop.reject(OTHERS)
    assert shop.life.rename(OTHERS, "new", ASK).quarantine is None
    assert shop.names == {"orders", "orders__quarantine", "new", "others__quarantine"}


def rename(shop: Shop, call: Call) -> str | None:
    moved = shop.life.rename(ORDERS, "new", call).quarantine
    return moved and moved.table


def drop(shop: Shop, call: Call) -> str | None:
    moved = shop.life.drop(ORDERS, call, purge=False).quarantine
    return moved and moved.table


def restore(shop: Shop, call: Call) -> str | None:
    moved = shop.life.restore(ORDERS, "new", None, call).quarantine
    return moved and moved.table


STEPS: dict[str, tuple[Callable[[Shop, Call], str | None], set[str]]] = {
    "RENAME_TABLE": (rename, {"new", "new__quarantine"}),
    "DROP_TABLE": (drop, set()),
    "RESTORE_TABLE": (restore, {"new", "new__quarantine"}),
}


@pytest.mark.parametrize("operation", STEPS)
@pytest.mark.parametrize(("number", "done"), [(1, True), (2, False), (2, True)])
@pytest.mark.parametrize("is_sent_again", [False, True])
@pytest.mark.parametrize("failure", [Killed(), CatalogUnavailable("silent")])
def test_a_step_that_ended_between_the_two_tables_is_completed(
    shop: Shop, operation: str, number: int, done: bool, is_sent_again: bool, failure: BaseException
) -> None:
    step, expected = STEPS[operation]
    key = IdempotencyKey(operation, ORDERS, "k", "print")
    ids = {shop.table().uuid, shop.table(quarantine_name(ORDERS)).uuid}
    if operation == "RESTORE_TABLE":
        drop(shop, ASK)
    plan = (number, failure)
    shop.catalog.fails_after, shop.catalog.fails_before = (plan, None) if done else (None, plan)
    if isinstance(failure, Killed):
        with pytest.raises(Killed):
            step(shop, Call("r1", key))
    else:
        step(shop, Call("r1", key))  # the table has taken the step, so that the request is a success
    again = shop.restarted()
    if not is_sent_again:
        again.commits.batches.recover()
    assert step(again, again.retry(key)) == ("orders__quarantine" if operation == "DROP_TABLE" else "new__quarantine")
    assert again.names == expected
    for uuid in ids:
        record = again.lives.find(uuid)
        assert record is not None
        assert (record.state, record.step) == ("dropped" if operation == "DROP_TABLE" else "here", None)
        assert again.commits.find(ORDERS, uuid).uuid == uuid
    if operation == "DROP_TABLE":
        assert restore(again, Call("r3")) == "new__quarantine"

"""Dynamic tables in the ledger: definitions follow renames, states count failures, refreshes are listed in pages."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from service.ledger.dynamic_tables import DynamicTable, DynamicTableRecords, RefreshFilter
from service.ledger.ledger import Ledger, NewBatch
from service.ledger.table_records import DROP, RENAME, RESTORE, TableRecord, TableRecords, TableStep
from service.model.dynamic.definition import DynamicOptions, read_definition
from service.model.dynamic.state import SourceState
from service.model.names import TableName
from tests.fakes import QuickLedger
from tests.support.dynamic import defined, dynamic, named, refreshed

TOP = defined("top", "orders", "shop.customers", options=DynamicOptions(None, "INCREMENTAL", scheduled=False))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = QuickLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield made
    made.close()


@pytest.fixture
def records(ledger: Ledger) -> DynamicTableRecords:
    return DynamicTableRecords(ledger)


def known(records: DynamicTableRecords, uuid: str) -> DynamicTable:
    found = records.find(uuid)
    assert found is not None
    return found


def take(ledger: Ledger, uuid: str, name: TableName, step: TableStep) -> None:
    """What a rename, a drop or a restore records."""
    tables = TableRecords(ledger)
    known = tables.find(uuid) or TableRecord(uuid, name)
    tables.end(tables.begin(NewBatch(f"{step.kind}-{uuid}", name, uuid, step.kind, ["r"]), known, step), happened=True)


def called(records: DynamicTableRecords, name: TableName) -> DynamicTable | None:
    """The dynamic table of a name, unless it is dropped."""
    return next((one for one in records.all() if one.name == name), None)


def test_a_definition_is_read_as_it_was_written() -> None:
    full = replace(TOP, classes=("inner join", "aggregate"), full_code="LIMIT", full_reason="it has a LIMIT")
    assert read_definition(full.name, full.uuid, full.text) == full


def test_a_definition_is_found_by_uuid_and_by_name(records: DynamicTableRecords) -> None:
    records.put(TOP)
    found = known(records, "uuid-top")
    assert found == called(records, named("top"))
    assert (found.definition, found.state, found.failures, found.refreshed_ms) == (TOP, "active", 0, None)
    assert records.find("uuid-other") is None
    assert called(records, named("shop.top")) is None


def test_readers_are_the_tables_that_read_one_themselves(records: DynamicTableRecords) -> None:
    records.put(TOP)
    records.put(defined("above", "top"))
    assert [one.name.table for one in records.readers(["uuid-orders", "uuid-shop.customers"])] == ["top"]
    assert [one.name.table for one in records.readers(["uuid-top"])] == ["above"]
    assert records.readers(["uuid-above"]) == []


def test_another_query_of_a_table_replaces_its_sources(records: DynamicTableRecords) -> None:
    records.put(TOP)
    records.put(defined("top", "parcels", version="2"))
    assert records.readers(["uuid-orders"]) == []
    assert [one.uuid for one in records.readers(["uuid-parcels"])] == ["uuid-top"]


def test_a_renamed_source_keeps_its_name_in_the_query(ledger: Ledger, records: DynamicTableRecords) -> None:
    records.put(TOP)
    take(ledger, "uuid-orders", named("orders"), TableStep(RENAME, "purchases"))
    found = known(records, "uuid-top")
    source = found.definition.sources[0]
    assert (source.name.table, source.text) == ("purchases", "orders")


def test_a_renamed_dynamic_table_keeps_its_definition_and_its_refreshes(
    ledger: Ledger, records: DynamicTableRecords
) -> None:
    records.put(TOP)
    records.put(defined("above", "top"))
    records.put_refresh(refreshed(dynamic("top"), 1))
    take(ledger, "uuid-top", named("top"), TableStep(RENAME, "first"))
    assert called(records, named("top")) is None
    assert called(records, named("first")) is not None
    assert [one.table.table for one in records.refreshes("acme", RefreshFilter(table="first"))] == ["first"]
    above = known(records, "uuid-above")
    assert above.definition.sources[0].name.table == "first"


def test_a_dropped_table_is_listed_nowhere_until_it_is_restored(ledger: Ledger, records: DynamicTableRecords) -> None:
    records.put(TOP)
    records.put(defined("above", "top"))
    take(ledger, "uuid-above", named("above"), TableStep(DROP, keep_until_ms=1))
    assert [one.uuid for one in records.all()] == ["uuid-top"]
    assert records.readers(["uuid-top"]) == []
    assert called(records, named("above")) is None
    assert records.of_tenant("acme")[-1].uuid == "uuid-top"
    take(ledger, "uuid-above", named("above"), TableStep(RESTORE, "above"))
    assert [one.uuid for one in records.readers(["uuid-top"])] == ["uuid-above"]


def test_a_removed_table_leaves_nothing(ledger: Ledger, records: DynamicTableRecords) -> None:
    records.put(TOP)
    records.put_refresh(refreshed(dynamic("top"), 1))
    TableRecords(ledger).forget("uuid-top")
    assert records.find("uuid-top") is None
    assert records.refreshes_of("uuid-top", 9) == []
    assert records.readers(["uuid-orders"]) == []


def test_a_list_goes_on_after_a_name(records: DynamicTableRecords) -> None:
    for name in ("b.one", "a.two", "a.one"):
        records.put(defined(name))
    assert [str(one.name) for one in records.of_tenant("acme", limit=2)] == ["acme.a.one", "acme.a.two"]
    assert [str(one.name) for one in records.of_tenant("acme", after=("a", "two"))] == ["acme.b.one"]
    assert [str(one.name) for one in records.of_tenant("acme", "b")] == ["acme.b.one"]
    assert records.of_tenant("other") == []


def test_failures_are_counted_until_a_refresh_succeeds(records: DynamicTableRecords) -> None:
    records.put(TOP)
    records.failed("uuid-top", "the engine is away", 5000)
    records.failed("uuid-top", "it divides by zero", None, state="failed")
    found = known(records, "uuid-top")
    assert (found.state, found.reason, found.failures, found.retry_ms) == ("failed", "it divides by zero", 2, None)
    records.refreshed("uuid-top", 7000)
    found = known(records, "uuid-top")
    assert (found.state, found.reason, found.failures, found.refreshed_ms) == ("active", None, 0, 7000)


def test_the_time_of_the_rows_never_goes_back(records: DynamicTableRecords) -> None:
    records.put(TOP)
    records.refreshed("uuid-top", 7000)
    records.refreshed("uuid-top", 6000)
    found = known(records, "uuid-top")
    assert found.refreshed_ms == 7000


def test_a_suspended_table_stays_suspended_whatever_a_refresh_in_progress_does(records: DynamicTableRecords) -> None:
    records.put(TOP)
    records.set_state("uuid-top", "suspended", "for the migration")
    records.failed("uuid-top", "it was cancelled", None)
    records.refreshed("uuid-top", 7000)
    records.put(replace(TOP, version="2"))
    found = known(records, "uuid-top")
    assert (found.state, found.reason) == ("suspended", "for the migration")
    records.set_state("uuid-top", "active")
    found = known(records, "uuid-top")
    assert (found.state, found.reason, found.failures) == ("active", None, 0)


def test_another_query_gives_a_failed_table_another_chance(records: DynamicTableRecords) -> None:
    records.put(TOP)
    records.failed("uuid-top", "it divides by zero", None, state="failed")
    records.put(replace(TOP, options=DynamicOptions(60)))
    found = known(records, "uuid-top")
    assert found.state == "failed", "its query is the same"
    records.put(replace(TOP, version="2"))
    found = known(records, "uuid-top")
    assert (found.state, found.failures, found.reason) == ("active", 0, None)


def test_a_refresh_is_read_as_it_was_recorded(records: DynamicTableRecords) -> None:
    source = SourceState("shop", "customers", "uuid-shop.customers", 7, schema_id=3)
    running = refreshed(dynamic("top"), 1, state="running", mode=None, ended_ms=None, sources=(source,))
    records.put_refresh(running)
    assert records.refreshes_of("uuid-top", 5, state="running") == [running]
    done = replace(running, state="done", mode="FULL", reason="INITIAL", ended_ms=2000, rows_added=3, details={"a": 1})
    records.put_refresh(done)
    assert records.refreshes_of("uuid-top", 5, state="running") == []
    assert records.refreshes_of("uuid-top", 5) == [done]
    assert records.last_modes(["uuid-top", "uuid-none"]) == {"uuid-top": "FULL"}


def test_refreshes_are_listed_newest_first_and_go_on_after_one(records: DynamicTableRecords) -> None:
    for number in range(1, 5):
        state = "failed" if number == 2 else "done"
        records.put_refresh(refreshed(dynamic("top"), number, state=state))
    records.put_refresh(refreshed(dynamic("shop.other"), 3))
    found = records.refreshes("acme", RefreshFilter(), None, 2)
    assert [one.id for one in found] == ["top-4", "other-3"]
    assert [one.id for one in records.refreshes("acme", RefreshFilter(), (3000, "other-3"))] == [
        "top-3",
        "top-2",
        "top-1",
    ]
    assert [one.id for one in records.refreshes("acme", RefreshFilter(state="failed"))] == ["top-2"]
    assert [one.id for one in records.refreshes("acme", RefreshFilter(namespace="shop"))] == ["other-3"]
    assert [one.id for one in records.refreshes("acme", RefreshFilter(since_ms=4000))] == ["top-4"]
    assert {one.id for one in records.refreshes("acme", RefreshFilter(pass_id="pass-3"))} == {"top-3", "other-3"}
    assert records.refreshes("other", RefreshFilter()) == []


def test_the_oldest_refreshes_of_a_table_are_deleted(
    records: DynamicTableRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.ledger.dynamic_tables._REFRESHES_KEPT", 3)
    for number in range(1, 6):
        records.put_refresh(refreshed(dynamic("top"), number))
        records.put_refresh(refreshed(dynamic("other"), number))
    assert [one.id for one in records.refreshes_of("uuid-top", 9)] == ["top-5", "top-4", "top-3"]

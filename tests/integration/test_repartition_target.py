"""A table made from another one in another layout: there with all its rows, or not there."""

from pathlib import Path
from typing import Any

import pytest

from service.ledger.jobs import JobRecords
from service.maintenance.repartition import repartition as module
from service.maintenance.repartition.repartition import Repartitions
from service.tables.life import TableLifecycle
from tests.harness import Firn
from tests.integration.repartitioning import BY_PRODUCT, SCHEMA, Table, once_after_a_batch
from tests.support.tables import TableById

PROPERTIES = {"description": "ticks", "compression": "snappy", "min_files_to_compact": 7}


def another(table: Table, name: str = "new") -> Table:
    """The table of that name, as tests look at tables."""
    found = object.__new__(Table)
    TableById.__init__(found, table.firn, table.tenant, name)  # it is there already
    return found


def tables(table: Table) -> list[str]:
    listed: list[str] = table.firn.ok({"operation": "LIST_TABLES", "tenant_id": table.name.tenant})["tables"]
    return listed


def folders(table: Table) -> set[str]:
    """What lies beside the table."""
    return {path.name for path in Path(table.loaded.location.removeprefix("file://")).parent.iterdir()}


def test_the_new_table_has_the_rows_columns_and_properties_and_the_source_stays(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant, properties=PROPERTIES)
    table.fill(2)
    head = table.loaded.current_snapshot_id
    answer = table.repartition(
        partition=BY_PRODUCT,
        target_table="new",
        delete_source=False,
        transform={"twice": {"expression": "price * 2"}},
        batch_size=7,
    )
    assert "backup" not in answer
    assert (answer["repartitioned"], answer["target_table"], answer["source_snapshot_id"]) == (True, "new", str(head))
    stats = answer["stats"]
    assert (stats["records"], stats["partitions_before"], stats["partitions_after"], stats["rounds"]) == (20, 5, 15, 1)
    new = another(table)
    assert [{k: v for k, v in r.items() if k != "twice"} for r in new.rows()] == table.rows()
    assert {r["twice"] - 2 * r["price"] for r in new.rows()} == {0}
    assert new.loaded.current_snapshot_id == int(answer["metadata"]["snapshot_id"])
    described = new.description
    assert described["partition"] == answer["partition"]
    assert described["derived"] == {"twice": "price * 2"}
    assert described["properties"] == table.description["properties"]
    assert described["schema"]["primary_key"] == ["id"]
    assert list(described["schema"]["fields"]) == [*SCHEMA["fields"], "twice"]
    assert table.loaded.current_snapshot_id == head
    assert table.description["partition"]["partitions"][0]["field"] == "day"
    assert new.by_pyiceberg() == list(range(20))
    # They have nothing in common.
    table.ok("DROP_TABLE", purge=True, confirm=True)
    new.write_rows(50)
    assert new.ids() == [*range(20), 50]
    assert new.rows(filter={"id": 50})[0]["twice"] == 25
    assert new.repartition(partition={"partitions": []})["stats"]["records"] == 21


@pytest.mark.thorough
def test_what_is_written_meanwhile_is_in_it_up_to_the_snapshot_that_is_named(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(firn, tenant)
    table.fill(1)
    with once_after_a_batch(monkeypatch, lambda: table.ok("UPDATE", filter={"id": 3}, updates={"price": 0})):
        answer = table.repartition(partition=BY_PRODUCT, target_table="new")
    assert answer["source_snapshot_id"] == str(table.loaded.current_snapshot_id)
    assert another(table).rows() == table.rows()


@pytest.mark.thorough
def test_a_failure_leaves_no_table_and_no_file(firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(firn, tenant)
    table.fill(1)
    before = folders(table)

    def broken(*args: Any) -> Any:
        raise ValueError("broken")

    for name in ("create", "commit"):
        with monkeypatch.context() as patch, once_after_a_batch(patch, broken if name == "commit" else lambda: None):
            if name == "create":
                patch.setattr(module, "create", broken)
            table.fail("INTERNAL_ERROR", partition=BY_PRODUCT, target_table="new")
        assert tables(table) == ["t"]
        assert folders(table) == before
    assert firn.app.parts[JobRecords].with_leftover_files() == []
    assert table.repartition(partition=BY_PRODUCT, target_table="new")["repartitioned"]


def test_a_name_that_is_taken_meanwhile_stays_whose_it_is(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(firn, tenant)
    table.fill(1)
    made: list[Table] = []
    with once_after_a_batch(monkeypatch, lambda: made.append(Table(firn, tenant, name="new"))):
        error = table.fail("TABLE_EXISTS", partition=BY_PRODUCT, target_table="new")
    assert error["field"] == "target_table"
    assert len(folders(table)) == 2
    made[0].write_rows(1)
    assert made[0].ids() == [1]


def test_asked_for_twice_with_a_key_it_is_made_once(firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(firn, tenant)
    table.fill(1)
    request = {
        "operation": "REPARTITION",
        **table.address,
        "partition": BY_PRODUCT,
        "target_table": "new",
        "idempotency_key": "k",
    }
    with monkeypatch.context() as patch:
        patch.setattr(type(firn.app.parts[Repartitions]), "_outcome", lambda *args: 1 / 0)
        firn.fail(request, "INTERNAL_ERROR")
    location = another(table).loaded.location
    answers = [firn.ok(request) for _ in range(2)]
    assert answers[0]["stats"] == answers[1]["stats"]
    assert (answers[0]["stats"]["records"], answers[0]["target_table"]) == (10, "new")
    assert another(table).loaded.location == location


def test_a_copy_of_an_empty_table_is_empty(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    answer = table.repartition(partition=BY_PRODUCT, target_table="new")
    assert (answer["repartitioned"], answer["stats"]["records"]) == (True, 0)
    assert another(table).ids() == []


def test_a_copy_of_an_offline_table_is_online_and_remembers_none_of_its_changes(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.ok("SET_ONLINE", online=False)
    table.ok("ALTER_TABLE", description="ticks")
    table.repartition(partition=BY_PRODUCT, target_table="new")
    new = another(table)
    assert (table.description["online"], new.description["online"]) == (False, True)
    assert firn.ok({"operation": "LIST_TABLES", "tenant_id": tenant})["offline"] == ["t"]
    assert "firn.changes" not in new.loaded.properties
    assert new.description["properties"]["description"] == "ticks"


@pytest.mark.thorough
def test_with_delete_source_the_old_table_is_deleted_for_good(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.fill(2)
    rows, before = table.rows(), folders(table)
    new = another(table)
    answer = table.repartition(partition=BY_PRODUCT, target_table="new", delete_source=True)
    assert (answer["source_deleted"], "warnings" in answer) == (True, False)
    assert new.rows() == rows
    assert tables(table) == ["new"]
    assert len(folders(new)) == len(before), "one came, and one went"
    assert table.fail("TABLE_NOT_FOUND", "RESTORE_TABLE")["field"] == "table"


@pytest.mark.thorough
def test_a_source_that_others_changed_meanwhile_is_not_deleted(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(firn, tenant)
    table.fill(1)
    life = firn.app.parts[TableLifecycle]
    drop = life.drop

    def after_a_write(*args: Any, **how: Any) -> Any:
        table.write_rows(77)
        return drop(*args, **how)

    monkeypatch.setattr(life, "drop", after_a_write)
    answer = table.repartition(partition=BY_PRODUCT, target_table="new", delete_source=True)
    assert answer["source_deleted"] is False
    assert "was changed in the meantime" in answer["warnings"][0]
    assert (len(table.rows()), len(another(table).rows())) == (11, 10)

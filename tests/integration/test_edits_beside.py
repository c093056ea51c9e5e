"""Edits beside other changes: WRITEs go on while an edit is found and written, and no change is lost or made twice."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from service.edits import edits as module
from service.edits.edits import Edits
from service.operations import shared_edits
from tests.harness import Firn
from tests.support.marks import thorough_after, thorough_except
from tests.support.tables import TableById

SCHEMA = {
    "fields": {"id": {"type": "long", "required": True}, "kind": {"type": "string"}, "n": {"type": "long"}},
    "primary_key": ["id"],
}
MODES = ["copy_on_write", "merge_on_read", "auto"]


@pytest.fixture(params=thorough_except(["auto"], MODES))
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(firn: Firn, tenant: str, mode: str) -> TableById:
    made = TableById(firn, tenant, "t", schema=SCHEMA, properties={"row_level": mode})
    made.ok("WRITE", records=[{"id": n, "kind": "old", "n": 0} for n in range(6)])
    return made


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edits get commits of their own, although they name their rows by key; none counts as one that takes long."""
    monkeypatch.setattr(shared_edits, "may_share", lambda request: False)
    monkeypatch.setattr(module, "_SLOW_S", 60)


@contextmanager
def after_staging(monkeypatch: pytest.MonkeyPatch, *then: Callable[[], object]) -> Iterator[list[str]]:
    """Have something happen when an edit is staged and not committed, each time another thing; yields how each edit was
    committed after it."""
    publish, commits = module.publish, list[str]()
    steps = iter(then)

    def staging(real: Callable[..., Any]) -> Callable[..., Any]:
        def stage(*args: Any) -> Any:
            staged = real(*args)
            next(steps, lambda: None)()
            return staged

        return stage

    def again(*args: Any) -> Any:
        commits.append("again")
        return publish(*args)

    with monkeypatch.context() as patch:
        patch.setattr(module, "stage", staging(module.stage))
        patch.setattr(module, "stage_applied", staging(module.stage_applied))
        patch.setattr(module, "publish", again)
        yield commits


def test_a_write_does_not_wait_for_an_edit_that_is_still_being_made(
    table: TableById, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def write() -> None:
        # On a thread of its own, as it would otherwise wait for itself if the table were locked.
        client = threading.Thread(target=lambda: written.append(table.ok("WRITE", records=[{"id": 10}])))
        client.start()
        client.join(60)
        assert written, "the WRITE waited for the edit"

    with after_staging(monkeypatch, write) as commits:
        assert table.ok("UPDATE", updates={"n": 1}, filter={"id": 3})["records_updated"] == 1
    assert commits == []
    rows = {row["id"]: row["n"] for row in table.rows()}
    assert rows == {0: 0, 1: 0, 2: 0, 3: 1, 4: 0, 5: 0, 10: None}


def test_rows_that_came_in_the_meantime_are_edited_too(table: TableById, monkeypatch: pytest.MonkeyPatch) -> None:
    with after_staging(monkeypatch, lambda: table.ok("WRITE", records=[{"id": 10, "kind": "old"}])) as commits:
        assert table.ok("DELETE", filter={"kind": "old"})["records_deleted"] == 7
    assert commits == ["again"]
    assert table.rows() == []
    assert table.on_disk() == table.in_snapshots()


@pytest.mark.parametrize("meetings", thorough_after(1, [2, 3]))
def test_an_edit_that_takes_long_is_made_again_before_others_must_wait_for_it(
    table: TableById, monkeypatch: pytest.MonkeyPatch, meetings: int
) -> None:
    monkeypatch.setattr(module, "_SLOW_S", 0)
    writes = [lambda n=n: table.ok("WRITE", records=[{"id": n, "kind": "old"}]) for n in range(10, 10 + meetings)]
    with after_staging(monkeypatch, *writes) as commits:
        assert table.ok("DELETE", filter={"kind": "old"})["records_deleted"] == 6 + meetings
    assert commits == ([] if meetings == 2 else ["again"])
    assert table.rows() == []
    assert table.on_disk() == table.in_snapshots()


def test_a_key_that_was_written_in_the_meantime_is_not_inserted_again(
    table: TableById, monkeypatch: pytest.MonkeyPatch
) -> None:
    with after_staging(monkeypatch, lambda: table.ok("WRITE", records=[{"id": 10, "kind": "w"}])) as commits:
        answer = table.ok("UPSERT", records=[{"id": 10, "kind": "u"}, {"id": 11, "kind": "u"}])
    assert (answer["records_inserted"], answer["records_updated"], commits) == (1, 1, ["again"])
    assert [row["kind"] for row in table.rows() if row["id"] >= 10] == ["u", "u"]


def test_an_edit_whose_files_were_merged_in_the_meantime_is_made_on_the_merged_file(
    table: TableById, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.ok("WRITE", records=[{"id": 10, "kind": "new"}])
    with after_staging(monkeypatch, lambda: table.ok("COMPACT", force=True)) as commits:
        assert table.ok("UPDATE", updates={"n": 1}, filter={"id": 3})["records_updated"] == 1
    assert commits == ["again"]
    assert {row["id"] for row in table.rows() if row["n"] == 1} == {3}
    assert len(table.rows()) == 7


def test_a_column_added_in_the_meantime_is_in_the_rows_that_are_written(
    table: TableById, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = {"add_columns": {"note": {"type": "string"}}}
    with after_staging(monkeypatch, lambda: table.ok("ALTER_TABLE", **add)) as commits:
        assert table.ok("UPDATE", updates={"n": 1}, filter={"id": 3})["records_updated"] == 1
    assert commits == ["again"]
    assert [row["n"] for row in table.rows()] == [0, 0, 0, 1, 0, 0]


def of_two_instances(table: TableById, monkeypatch: pytest.MonkeyPatch, *requests: dict[str, Any]) -> list[Any]:
    """The responses to two edits that are both staged before either is committed, as two instances may do it."""
    edits = table.firn.app.parts[Edits]
    both = threading.Barrier(2)
    first = threading.local()

    class NoLock:
        @staticmethod
        def hold(*_: object) -> Any:
            return nullcontext()

    def staging(real: Callable[..., Any]) -> Callable[..., Any]:
        def stage(*args: Any) -> Any:
            staged = real(*args)
            if not getattr(first, "met", False):
                first.met = True
                both.wait(60)
            return staged

        return stage

    with monkeypatch.context() as patch:
        patch.setattr(module, "stage", staging(module.stage))
        patch.setattr(module, "stage_applied", staging(module.stage_applied))
        patch.setitem(vars(edits), "_edits", NoLock())
        with ThreadPoolExecutor(2) as clients:
            return list(clients.map(lambda r: table.ok(r.pop("operation"), **r), requests))


def test_two_upserts_of_one_new_key_insert_one_row(table: TableById, monkeypatch: pytest.MonkeyPatch) -> None:
    upsert = {"operation": "UPSERT", "records": [{"id": 20, "kind": "u"}]}
    answers = of_two_instances(table, monkeypatch, upsert | {}, upsert | {})
    assert sorted(a["records_inserted"] for a in answers) == [0, 1]
    assert [row["kind"] for row in table.rows() if row["id"] == 20] == ["u"]


def test_two_deletes_of_one_row_delete_it_once(table: TableById, monkeypatch: pytest.MonkeyPatch) -> None:
    delete = {"operation": "DELETE", "filter": {"id": 2}}
    answers = of_two_instances(table, monkeypatch, delete | {}, delete | {})
    assert sorted(a["records_deleted"] for a in answers) == [0, 1]
    assert [row["id"] for row in table.rows()] == [0, 1, 3, 4, 5]


def test_two_updates_of_one_row_both_count(table: TableById, monkeypatch: pytest.MonkeyPatch) -> None:
    update = {"operation": "UPDATE", "updates": {"n": {"expression": "n + 1"}}, "filter": {"id": 2}}
    answers = of_two_instances(table, monkeypatch, update | {}, update | {})
    assert [a["records_updated"] for a in answers] == [1, 1]
    assert [row["n"] for row in table.rows()] == [0, 0, 2, 0, 0, 0]


def test_two_edits_of_different_rows_of_a_file_are_both_made(table: TableById, monkeypatch: pytest.MonkeyPatch) -> None:
    delete = {"operation": "DELETE", "filter": {"id": 0}}
    update = {"operation": "UPDATE", "updates": {"n": 7}, "filter": {"id": 5}}
    of_two_instances(table, monkeypatch, delete, update)
    assert [(row["id"], row["n"]) for row in table.rows()] == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 7)]


UPSERTED = [{"id": 1, "n": 10}, {"id": 2, "kind": "old", "n": 0}, {"id": 3, "kind": None}, {"id": 99, "kind": "new"}]


@pytest.fixture(params=thorough_except(["merge_on_read"], ["auto", "merge_on_read"]))
def deleting(firn: Firn, tenant: str, request: pytest.FixtureRequest) -> TableById:
    """A table in several partitions, whose small files are written again, or get delete files."""
    by_kind = {"partitions": [{"field": "id", "transform": "bucket", "num_buckets": 2}]}
    made = TableById(firn, tenant, "d", schema=SCHEMA, partition=by_kind, properties={"row_level": request.param})
    made.ok("WRITE", records=[{"id": n, "kind": "old", "n": 0} for n in range(40)])
    return made


def test_an_upsert_that_is_applied_here_does_what_spark_does(
    deleting: TableById, firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upserted() -> tuple[dict[str, Any], list[dict[str, Any]]]:
        before = deleting.rows(sort=["id"])
        answer = deleting.ok("UPSERT", records=UPSERTED)
        rows = deleting.rows(sort=["id"])
        deleting.ok("UNDO", request_id=answer["metadata"]["request_id"])
        assert deleting.rows(sort=["id"]) == before
        figures = {name: value for name, value in answer.items() if name.startswith(("records_", "files_"))}
        return figures, rows

    applied = list[Any]()
    real = module.apply_upsert
    monkeypatch.setattr(module, "apply_upsert", lambda *args: applied.append(real(*args)) or applied[-1])
    here = upserted()
    assert [found is not None for found in applied] == [True]
    monkeypatch.setattr(module, "apply_upsert", lambda *args: None)
    by_spark = upserted()
    assert here[1] == by_spark[1]
    assert here[0] == by_spark[0]
    assert (here[0]["records_updated"], here[0]["records_unchanged"], here[0]["records_inserted"]) == (2, 1, 1)


def test_an_upsert_that_is_applied_here_is_made_again_if_its_key_came_in_the_meantime(
    deleting: TableById, monkeypatch: pytest.MonkeyPatch
) -> None:
    with after_staging(monkeypatch, lambda: deleting.ok("WRITE", records=[{"id": 99, "kind": "other", "n": 1}])) as how:
        answer = deleting.ok("UPSERT", records=UPSERTED)
    assert how == ["again"]
    assert (answer["records_updated"], answer["records_inserted"]) == (3, 0)
    assert [row["kind"] for row in deleting.rows(filter={"id": 99})] == ["new"]


def test_an_upsert_that_is_applied_here_refuses_new_rows_that_lack_a_required_column(firn: Firn, tenant: str) -> None:
    fields = {**SCHEMA["fields"], "n": {"type": "long", "required": True}}
    how = {"schema": {**SCHEMA, "fields": fields}, "properties": {"row_level": "merge_on_read"}}
    table = TableById(firn, tenant, "r", **how)
    table.ok("WRITE", records=[{"id": n, "kind": "old", "n": 0} for n in range(6)])
    error = table.fail("INVALID_RECORD", "UPSERT", records=[{"id": 1, "kind": "x"}, {"id": 77, "kind": "x"}])
    assert error["field"] == "records[1].n"
    assert table.ok("UPSERT", records=[{"id": 1, "kind": "x"}, {"id": 77, "n": 1}])["records_inserted"] == 1

"""A compaction beside writers: they always win, and nothing of theirs is lost or comes back."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from service.catalog.files.data_files import list_files
from service.commits import moved_rows
from service.engine.iceberg import carry_over
from service.engine.iceberg.scan_tasks import SnapshotFiles, tasks
from service.engine.iceberg.tables import load_table
from service.engine.jobs import rewrite as rewriting
from service.engine.session.java import each
from service.maintenance.compact import merge
from tests.harness import Firn, wait_until
from tests.support.marks import thorough_after
from tests.support.tables import TableById

SCHEMA = {
    "fields": {"id": {"type": "long", "required": True}, "part": {"type": "string"}, "text": {"type": "string"}},
    "primary_key": ["id"],
}
BY_PART = {"partitions": [{"field": "part", "transform": "identity"}]}


class Table(TableById):
    def __init__(
        self, firn: Firn, tenant: str, *, partitioned: bool = False, name: str = "t", row_level: str = "copy_on_write"
    ) -> None:
        partition = {"partition": BY_PART} if partitioned else {}
        super().__init__(firn, tenant, name, schema=SCHEMA, properties={"row_level": row_level}, **partition)

    def fill(self, files: int, *parts: str) -> None:
        for i in range(files):
            rows = [{"id": i * 10 + n, "part": part, "text": f"{i}"} for n, part in enumerate(parts or ("a",))]
            self.ok("WRITE", records=rows)


@contextmanager
def after_each_group(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> Iterator[None]:
    """Have something happen when a group's new files are written, and nothing of them is committed."""
    real = merge.rewrite

    def rewrite(*args: Any) -> Any:
        written = real(*args)
        then()
        return written

    with monkeypatch.context() as patch:
        patch.setattr(merge, "rewrite", rewrite)
        yield


@pytest.mark.parametrize(
    ("operation", "fields", "left"),
    thorough_after(
        1,
        [
            ("DELETE", {"filter": {"id": 10}}, [0, 20]),
            ("UPDATE", {"filter": {"id": 10}, "updates": {"text": "new"}}, [0, 10, 20]),
            ("UPSERT", {"records": [{"id": 10, "part": "a", "text": "new"}]}, [0, 10, 20]),
        ],
    ),
)
def test_rows_changed_meanwhile_stay_as_the_writer_made_them(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch, operation: str, fields: dict[str, Any], left: list[int]
) -> None:
    table = Table(firn, tenant)
    table.fill(3)
    with after_each_group(monkeypatch, lambda: table.ok(operation, **fields)):
        answer = table.ok("COMPACT")
    assert (answer["compacted"], answer["stats"]["conflicts"]) == (False, 1)
    assert "changed by other writers" in answer["reason"]
    rows = table.rows()
    assert [row["id"] for row in rows] == left
    assert all(row["text"] == "new" for row in rows if row["id"] == 10)
    assert table.on_disk() == table.in_snapshots()
    assert table.compaction_folders() == []
    # What was beaten is taken up next time.
    assert table.ok("COMPACT", force=True)["compacted"]
    assert table.rows() == rows


def test_a_partition_that_was_changed_keeps_no_other_from_being_merged(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(firn, tenant, partitioned=True)
    table.fill(3, "a", "b", "c")
    once = iter([True])

    def delete_one() -> None:
        if next(once, False):
            table.ok("DELETE", filter={"id": 11})

    with after_each_group(monkeypatch, delete_one):
        stats = table.ok("COMPACT")["stats"]
    assert (stats["conflicts"], stats["partitions_compacted"], stats["groups_failed"]) == (1, 2, 0)
    assert [row["id"] for row in table.rows()] == [0, 1, 2, 10, 12, 20, 21, 22]
    assert table.on_disk() == table.in_snapshots()


def test_rows_written_meanwhile_are_there(firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(firn, tenant)
    table.fill(3)
    with after_each_group(monkeypatch, lambda: table.ok("WRITE", records=[{"id": 99}])):
        stats = table.ok("COMPACT")["stats"]
    assert (stats["conflicts"], stats["files_before"], stats["files_after"]) == (0, 4, 2)
    assert [row["id"] for row in table.rows()] == [0, 10, 20, 99]


def test_a_compaction_in_the_background_shows_its_progress_and_can_be_cancelled(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(firn, tenant)
    table.fill(3)
    before, reached, go_on = table.rows(), threading.Event(), threading.Event()

    def stop_here() -> None:
        reached.set()
        assert go_on.wait(30)

    with after_each_group(monkeypatch, stop_here):
        job_id = table.ok("COMPACT", **{"async": True})["job_id"]
        assert reached.wait(30)
        job = firn.client.get(f"/jobs/{job_id}").json()["job"]
        assert (job["state"], job["kind"], job["progress"]["files_total"]) == ("running", "COMPACT", 3)
        firn.client.delete(f"/jobs/{job_id}")
        go_on.set()
        wait_until(lambda: firn.client.get(f"/jobs/{job_id}").json()["job"]["state"] == "cancelled", 30)
    assert table.rows() == before
    assert table.on_disk() == table.in_snapshots()

    job_id = table.ok("COMPACT", **{"async": True})["job_id"]
    wait_until(lambda: firn.client.get(f"/jobs/{job_id}").json()["job"]["state"] == "done", 30)
    job = firn.client.get(f"/jobs/{job_id}").json()["job"]
    assert (job["result"]["compacted"], job["result"]["stats"]["files_after"]) == (True, 1)
    progress = job["progress"]
    assert (progress["files_done"], progress["bytes_done"]) == (progress["files_total"], progress["bytes_total"])
    log = table.ok("COMPACTION_LOG")["compactions"]
    assert [entry["state"] for entry in log] == ["done", "cancelled"]


def test_a_job_that_fails_half_way_leaves_no_file(firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(firn, tenant)
    table.fill(4)
    real = rewriting._for_writers

    def broken(*args: Any) -> Any:
        # The first task writes its file, the second fails.
        rows = real(*args)
        return rows.repartition(2).selectExpr(
            "if(id = 30, cast(raise_error('broken') as bigint), id) id", "part", "text"
        )

    before = table.rows()
    with monkeypatch.context() as patch:
        patch.setattr(rewriting, "_for_writers", broken)
        assert not firn.post({"operation": "COMPACT", **table.address})["success"]
    assert table.rows() == before
    assert table.on_disk() == table.in_snapshots()


class Client(threading.Thread):
    """Changes rows that are its own, again and again; `state` is what was acknowledged."""

    def __init__(self, table: Table, number: int, until: float) -> None:
        super().__init__(daemon=True)
        self.table, self.number, self.until = table, number, until
        self.state: dict[int, str] = {}
        self.changes = 0
        self.errors: list[Any] = []
        self._firn = Firn(table.firn.base_url)

    def run(self) -> None:
        try:
            while time.monotonic() < self.until:
                self._step()
                self.changes += 1
        except BaseException as e:
            self.errors.append(e)
        finally:
            self._firn.client.close()

    def _step(self) -> None:
        step, part = self.changes % 6, "abcd"[self.number % 4]
        key = self.number * 1_000_000 + self.changes // 6
        if step in (0, 1, 2, 5):
            rows = {key * 10 + step + n * 10_000_000_000: f"w{self.changes}" for n in range(2)}
            operation = "WRITE" if step != 2 else "UPSERT"
            self._ok(operation, records=[{"id": i, "part": part, "text": t} for i, t in rows.items()])
            self.state |= rows
        elif step == 3 and self.state:
            some = sorted(self.state)[:: max(1, len(self.state) // 3)][:3]
            self._ok("UPSERT", records=[{"id": i, "part": part, "text": f"u{self.changes}"} for i in some])
            self.state |= dict.fromkeys(some, f"u{self.changes}")
        elif self.state:
            gone = sorted(self.state)[-1]
            self._ok("DELETE", filter={"id": gone})
            del self.state[gone]

    def _ok(self, operation: str, **fields: Any) -> None:
        answer = self._firn.post({"operation": operation, **self.table.address, **fields})
        if not answer["success"]:
            self.errors.append(answer["error"])


@pytest.mark.parametrize(
    ("clients", "seconds"),
    [
        pytest.param(6, 12, marks=pytest.mark.thorough),
        pytest.param(16, 120, marks=[pytest.mark.large, pytest.mark.timeout(420)]),
    ],
)
def test_compactions_in_a_loop_under_clients_lose_nothing_and_refuse_nobody(
    firn: Firn, tenant: str, clients: int, seconds: int
) -> None:
    table = Table(firn, tenant, partitioned=True)
    until = time.monotonic() + seconds
    threads = [Client(table, number, until) for number in range(clients)]
    for thread in threads:
        thread.start()
    merged, conflicts = 0, 0
    while time.monotonic() < until:
        stats = table.ok("COMPACT", min_files=2, max_files=10_000, snapshot_retention_hours=0)["stats"]
        merged += stats["files_compacted"]
        conflicts += stats["conflicts"]
    for thread in threads:
        thread.join(60)
    assert [error for thread in threads for error in thread.errors] == []
    model = {key: text for thread in threads for key, text in thread.state.items()}
    assert {row["id"]: row["text"] for row in table.rows()} == model
    assert len(table.rows()) == len(model)
    assert merged > 0, f"nothing was merged; {conflicts} conflicts"
    assert all(thread.changes > 3 for thread in threads), [thread.changes for thread in threads]


BESIDE: list[tuple[str, str, dict[str, Any], list[int]]] = [
    ("auto", "DELETE", {"filter": {"id": {"in": [0, 10]}}}, [15, 20]),
    ("auto", "DELETE", {"filter": {"id": {"lt": 20}}}, [20]),
    ("merge_on_read", "UPDATE", {"filter": {"id": 10}, "updates": {"text": "new"}}, [0, 10, 15, 20]),
    ("auto", "UPSERT", {"records": [{"id": 10, "part": "a", "text": "new"}, {"id": 30}]}, [0, 10, 15, 20, 30]),
    ("auto", "DELETE", {"all": True}, []),
    ("merge_on_read", "DELETE", {"filter": {"id": 15}}, [0, 10, 20]),
]


@pytest.mark.parametrize(("row_level", "operation", "fields", "left"), thorough_after(1, BESIDE), ids=str)
def test_rows_deleted_meanwhile_are_deleted_from_the_merged_file(
    firn: Firn,
    tenant: str,
    monkeypatch: pytest.MonkeyPatch,
    row_level: str,
    operation: str,
    fields: dict[str, Any],
    left: list[int],
) -> None:
    table = Table(firn, tenant, row_level=row_level)
    table.ok("WRITE", records=[{"id": n, "part": "a", "text": "0"} for n in (0, 10, 15)])
    table.ok("WRITE", records=[{"id": 20, "part": "a", "text": "0"}])
    with after_each_group(monkeypatch, lambda: table.ok(operation, **fields)):
        answer = table.ok("COMPACT", force=True)
    assert (answer["compacted"], answer["stats"]["conflicts"]) == (True, 0)
    rows = table.rows()
    assert [row["id"] for row in rows] == left
    assert all(row["text"] == "new" for row in rows if row["id"] == 10 and operation != "DELETE")
    assert list_files(table.loaded).deletes == 1
    assert table.on_disk() == table.in_snapshots()
    assert table.ok("COMPACT", force=True)["compacted"]
    assert table.rows() == rows
    assert list_files(table.loaded).deletes == 0


def test_of_rows_deleted_meanwhile_only_the_last_are_searched_while_writers_wait(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark searches many rows before the table's lock is held; what is deleted after that is found beside them."""
    table = Table(firn, tenant, row_level="auto")
    for file in range(2):
        table.ok("WRITE", records=[{"id": file * 10 + n, "part": "a", "text": "0"} for n in range(10)])
    found_by_spark = list[list[int]]()
    search, find = merge.find_late_deletes, carry_over._places

    def searched(*args: Any) -> None:
        search(*args)
        table.ok("DELETE", filter={"id": 15})

    def found(session: Any, planned: Any, rows: SnapshotFiles, *args: Any) -> Any:
        found_by_spark.append(sorted(len(positions) for positions in rows.places.values()))
        return find(session, planned, rows, *args)

    monkeypatch.setattr(moved_rows, "MOST_ROWS", 2)
    monkeypatch.setattr(merge, "_MOST_SEARCHES", 1)
    monkeypatch.setattr(merge, "find_late_deletes", searched)
    monkeypatch.setattr(carry_over, "_places", found)
    with after_each_group(monkeypatch, lambda: table.ok("DELETE", filter={"id": {"in": [3, 4, 12]}})):
        answer = table.ok("COMPACT", force=True)
    assert (answer["compacted"], answer["stats"]["conflicts"]) == (True, 0)
    assert found_by_spark == [[1, 2]]
    assert [row["id"] for row in table.rows()] == [n for n in range(20) if n not in (3, 4, 12, 15)]


@pytest.mark.thorough
def test_each_compaction_merges_while_a_client_deletes_rows_in_a_loop(firn: Firn, tenant: str) -> None:
    # With auto, a DELETE may write small files again with the rows of a WRITE, and nothing to merge is left.
    table = Table(firn, tenant, row_level="merge_on_read")
    for i in range(6):
        table.ok("WRITE", records=[{"id": i * 100 + n, "part": "a"} for n in range(100)])
    stop, deleted = threading.Event(), list[int]()

    def delete() -> None:
        for n in range(600):
            if stop.is_set():
                return
            table.ok("DELETE", filter={"id": n})
            deleted.append(n)

    client = threading.Thread(target=delete)
    client.start()
    try:
        merged = []
        for i in range(3):
            table.ok("WRITE", records=[{"id": 1000 + i, "part": "a"}])
            merged.append(table.ok("COMPACT", force=True)["compacted"])
    finally:
        stop.set()
        client.join()
    assert merged == [True] * 3
    assert deleted, "nothing was deleted beside the compactions"
    assert [row["id"] for row in table.rows()] == [n for n in range(600) if n not in deleted] + [1000, 1001, 1002]


@pytest.mark.thorough
def test_a_merge_removes_delete_files_whose_data_files_another_program_removed(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant, row_level="merge_on_read")
    for ids in ((1, 2), (3, 4), (5, 6)):
        table.ok("WRITE", records=[{"id": n} for n in ids])
    table.ok("DELETE", filter={"id": 1})
    loaded = table.loaded
    [path] = [file.path for file in list_files(loaded).data if file.deletes]

    def remove(session: Any) -> None:
        iceberg = load_table(session, loaded.spark_name)
        [task] = each(tasks(iceberg, loaded.current_snapshot_id or 0, [path]))
        iceberg.newDelete().deleteFile(task.file()).commit()

    firn.app.engine.run(remove)
    assert list_files(table.loaded).deletes == 1
    assert table.ok("COMPACT", force=True)["compacted"]
    assert list_files(table.loaded).deletes == 0
    assert [row["id"] for row in table.rows()] == [3, 4, 5, 6]

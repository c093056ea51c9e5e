"""A repartition beside readers and writers: nobody is refused, and every row is there once, all the time."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from service.ledger.jobs import JobRecords
from service.maintenance.repartition import repartition as module
from tests.harness import Firn, wait_until
from tests.integration.repartitioning import BY_PRODUCT, Table, after_each_batch, once_after_a_batch, row
from tests.support.marks import thorough_after

MONTH = {"partitions": [{"field": "at", "transform": "month"}]}


@pytest.mark.parametrize(
    ("change", "expected"),
    thorough_after(
        1,
        [
            (lambda t: t.write_rows(100, 101), [*range(20), 100, 101]),
            (lambda t: t.ok("DELETE", filter={"id": {"in": [3, 4]}}), [i for i in range(20) if i not in (3, 4)]),
            (lambda t: t.ok("DELETE", filter={"id": {"gte": 0}}), []),
            (lambda t: t.ok("UPDATE", filter={"id": 7}, updates={"product": "p9"}), [*range(20)]),
            (lambda t: t.ok("UPSERT", records=[{"id": 7, "product": "p9"}, row(100)]), [*range(20), 100]),
            (lambda t: t.ok("WRITE", mode="overwrite", records=[row(7), row(8)]), [7, 8]),
            (lambda t: t.compact(), [*range(20)]),
            (lambda t: t.delete_elsewhere("id IN (5, 6)"), [i for i in range(20) if i not in (5, 6)]),
        ],
    ),
    ids=["write", "delete", "delete-all", "update", "upsert", "overwrite", "compact", "elsewhere"],
)
def test_what_others_commit_meanwhile_is_in_the_result(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch, change: Callable[[Table], object], expected: list[int]
) -> None:
    table = Table(firn, tenant)
    table.fill(2)
    seen: list[Any] = []

    def meanwhile() -> None:
        change(table)
        seen.append(table.rows())

    with once_after_a_batch(monkeypatch, meanwhile):
        answer = table.repartition(partition=BY_PRODUCT, batch_size=5)
    assert answer["stats"]["rounds"] == 2
    assert table.rows() == seen[0]
    assert table.ids() == table.by_pyiceberg() == expected
    assert answer["stats"]["records"] == len(expected)
    assert len(table.specs()) <= 1
    assert table.description["partition"] == answer["partition"]
    assert table.on_disk() == table.in_snapshots()


@pytest.mark.thorough
def test_the_table_is_what_it_was_until_it_is_what_it_shall_be(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(firn, tenant)
    table.fill(3)
    described, seen = table.description, []
    with after_each_batch(monkeypatch, lambda: seen.append((table.description, table.ids(), table.specs()))):
        table.repartition(partition=BY_PRODUCT, batch_size=10, transform={"twice": {"expression": "price * 2"}})
    assert len(seen) == 3
    assert all(found == (described, list(range(30)), {0}) for found in seen)
    assert list(table.description["schema"]["fields"])[-1] == "twice"
    assert {r["twice"] - 2 * r["price"] for r in table.rows()} == {0}


@pytest.mark.thorough
@pytest.mark.parametrize("more", [{}, {"transform": {"twice": {"expression": "price * 2"}}}])
def test_an_edit_that_waited_for_the_last_round_finds_the_new_layout_and_columns(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    table = Table(firn, tenant)
    table.fill(2)
    real, done = module.commit, []

    def commit(*args: Any) -> Any:
        thread = threading.Thread(
            target=lambda: done.append(table.ok("UPDATE", filter={"id": 3}, updates={"price": 0}))
        )
        thread.start()
        time.sleep(0.5)
        assert not done
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(module, "commit", commit)
        table.repartition(partition=BY_PRODUCT, **more)
    wait_until(lambda: done, 30)
    assert done[0]["records_updated"] == 1
    assert table.specs() == {1}
    assert table.ids() == list(range(20))
    assert {row.get("twice", 2 * row["price"]) - 2 * row["price"] for row in table.rows()} == {0}


@pytest.mark.thorough
@pytest.mark.parametrize("times", [1, 9])
def test_programs_that_append_in_the_moment_of_the_commit_are_not_passed_over(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    table = Table(firn, tenant)
    table.fill(2)
    real, left = module.commit, iter(range(times))

    def append_elsewhere() -> None:
        number = next(left, None)
        if number is not None:
            name = table.loaded.spark_name
            text = (
                f"INSERT INTO {name} SELECT id + {100 * (number + 1)}, product, at, day, price FROM {name} WHERE id = 1"
            )
            firn.app.engine.run(lambda session: session.sql(text).collect())

    def commit(*args: Any) -> Any:
        append_elsewhere()
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(module, "commit", commit)
        answer = table.repartition(partition=BY_PRODUCT)
    added = min(times, 4)
    assert answer["stats"]["records"] == 20 + added
    assert table.ids() == table.by_pyiceberg() == [*range(20), *(100 * n + 1 for n in range(1, added + 1))]
    # What came with the last try stays where it is, until it is compacted or repartitioned again.
    assert table.specs() == ({1} if times == 1 else {0, 1})
    if times > 1:
        assert table.repartition(partition=BY_PRODUCT)["stats"]["files_before"] == answer["stats"]["files_after"]
        assert table.specs() == {1}
        assert len(table.ids()) == 24


@pytest.mark.thorough
def test_rows_without_their_derived_columns_are_never_left(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(firn, tenant)
    table.fill(1)
    real = module.commit

    def commit(*args: Any) -> Any:
        name = table.loaded.spark_name
        text = f"INSERT INTO {name} SELECT max(id) + 1, 'x', NULL, NULL, 1.0 FROM {name}"
        firn.app.engine.run(lambda session: session.sql(text).collect())
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(module, "commit", commit)
        table.fail("COMMIT_CONFLICT", partition=MONTH, transform={"half": {"expression": "price / 2"}})
    assert "half" not in table.description["schema"]["fields"]
    assert table.on_disk() == table.in_snapshots()


def test_a_change_of_columns_by_another_program_ends_it(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(firn, tenant)
    table.fill(1)

    def add_column() -> None:
        from pyiceberg.types import LongType

        with table.loaded.iceberg.update_schema() as change:
            change.add_column("other", LongType())

    with once_after_a_batch(monkeypatch, add_column):
        error = table.fail("COMMIT_CONFLICT", partition=BY_PRODUCT)
    assert "columns or partitioning" in error["message"]
    assert table.ids() == list(range(10))
    assert table.on_disk() == table.in_snapshots()


def test_a_repartition_in_the_background_shows_its_progress_and_can_be_cancelled(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(firn, tenant)
    table.fill(3)
    before, reached, go_on = table.rows(), threading.Event(), threading.Event()

    def stop_here() -> None:
        reached.set()
        assert go_on.wait(30)

    def job(job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = firn.client.get(f"/jobs/{job_id}").json()["job"]
        return found

    request = {"partition": BY_PRODUCT, "batch_size": 10, "async": True, "idempotency_key": "k"}
    with after_each_batch(monkeypatch, stop_here):
        job_id = table.repartition(**request)["job_id"]
        assert reached.wait(30)
        progress = job(job_id)["progress"]
        assert (job(job_id)["state"], job(job_id)["kind"]) == ("running", "REPARTITION")
        assert (progress["phase"], progress["round"], progress["files_total"]) == ("rewriting", 1, 15)
        firn.client.delete(f"/jobs/{job_id}")
        go_on.set()
        wait_until(lambda: job(job_id)["state"] == "cancelled", 30)
    assert table.rows() == before
    assert table.specs() == {0}
    assert table.on_disk() == table.in_snapshots()
    assert firn.app.parts[JobRecords].with_leftover_files() == []

    # The key stands for what came to nothing no longer.
    job_id = table.repartition(**request)["job_id"]
    wait_until(lambda: job(job_id)["state"] == "done", 60)
    assert table.repartition(**request)["job_id"] == job_id
    done = job(job_id)
    assert (done["result"]["repartitioned"], done["result"]["stats"]["records"]) == (True, 30)
    assert done["progress"]["phase"] == "done"
    assert done["progress"]["files_done"] == done["progress"]["files_total"]
    assert table.rows() == before


@pytest.mark.thorough
def test_two_repartitions_of_one_table_happen_one_after_the_other(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.fill(2)
    answers: list[dict[str, Any]] = []
    threads = [
        threading.Thread(target=lambda layout=layout: answers.append(table.repartition(partition=layout)))
        for layout in (BY_PRODUCT, BY_PRODUCT)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(answer["repartitioned"] for answer in answers) == [False, True]
    assert table.ids() == list(range(20))


class Client(threading.Thread):
    """Changes rows that are its own, and reads all, again and again; `state` is what was acknowledged."""

    def __init__(self, table: Table, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.table, self.number, self.stop = table, number, stop
        self.state: dict[int, float] = {}
        self.changes = 0
        self.errors: list[Any] = []
        self._firn = Firn(table.firn.base_url)

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self._step()
                self._look()
                self.changes += 1
        except BaseException as e:
            self.errors.append(e)
        finally:
            self._firn.client.close()

    def _step(self) -> None:
        base = self.number * 1_000_000
        new = [base + self.changes * 10 + n for n in range(3)]
        kind = self.changes % 4
        if kind in (0, 2):
            self._ok("WRITE", records=[row(i) for i in new])
            self.state |= {i: i / 4 for i in new}
        elif kind == 1 and self.state:
            some = sorted(self.state)[::3][:2]
            self._ok("UPDATE", filter={"id": {"in": some}}, updates={"price": -1.5})
            self.state |= dict.fromkeys(some, -1.5)
        elif self.state:
            gone = sorted(self.state)[-1]
            self._ok("DELETE", filter={"id": gone})
            del self.state[gone]

    def _look(self) -> None:
        """What is its own is there, once and as it left it, whatever else there is."""
        base = self.number * 1_000_000
        mine = {"id": {"gte": base, "lt": base + 1_000_000}}
        rows = self._ok("QUERY", filter=mine, limit=100_000)["data"]
        found = sorted((r["id"], float(r["price"])) for r in rows)
        if found != sorted(self.state.items()):
            self.errors.append((found, sorted(self.state.items())))

    def _ok(self, operation: str, **fields: Any) -> dict[str, Any]:
        answer = self._firn.post({"operation": operation, **self.table.address, **fields})
        if not answer["success"]:
            self.errors.append(answer["error"])
        return answer


@pytest.mark.parametrize(
    ("clients", "times"),
    [
        pytest.param(3, 2, marks=pytest.mark.thorough),
        pytest.param(8, 12, marks=[pytest.mark.large, pytest.mark.timeout(900)]),
    ],
)
def test_readers_and_writers_see_every_row_once_while_a_table_is_repartitioned_again_and_again(
    firn: Firn, tenant: str, clients: int, times: int
) -> None:
    table = Table(firn, tenant)
    table.fill(4, rows=25)
    stop = threading.Event()
    threads = [Client(table, number, stop) for number in range(1, clients + 1)]
    for thread in threads:
        thread.start()
    try:
        layouts = [BY_PRODUCT, MONTH, {"partitions": [{"field": "id", "transform": "bucket", "num_buckets": 3}]}]
        rounds = []
        for n in range(times):
            answer = table.repartition(partition=layouts[n % 3], batch_size=30)
            rounds.append(answer["stats"]["rounds"])
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert [error for thread in threads for error in thread.errors] == []
    model = {i: i / 4 for i in range(100)} | {k: v for thread in threads for k, v in thread.state.items()}
    assert {r["id"]: float(r["price"]) for r in table.rows()} == model
    assert len(table.rows()) == len(model)
    assert all(thread.changes > 2 for thread in threads), [thread.changes for thread in threads]
    assert max(rounds) > 1, "nobody changed anything meanwhile"

"""SIGKILL half-way through a repartition: the table as it was, nothing left behind, a second try that completes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from service.model.names import TableName
from service.writes.bulk.decode import ARROW
from tests.faults.evidence import Disk, locked
from tests.faults.points import stopped
from tests.faults.test_leftovers import on_disk, referred_to
from tests.faults.victim import RestartedService, Victim
from tests.harness import Firn, wait_until
from tests.support.marks import thorough_except

NAME = TableName("repartition-kills", "default", "kept")
ADDRESS = {"tenant_id": NAME.tenant, "namespace": NAME.namespace, "table": NAME.table}
SCHEMA = {
    "fields": {
        "id": {"type": "long", "required": True},
        "payload": {"type": "string"},
        "at": {"type": "timestamp"},
    }
}
LAYOUTS = (
    {"partitions": [{"field": "payload"}]},
    {"partitions": [{"field": "at", "transform": "day"}]},
)
PATIENCE_S = 60
Stage = Callable[[Victim, dict[str, Any]], AbstractContextManager[bool]]


@pytest.fixture(scope="module")
def victim(service: RestartedService) -> Victim:
    made = Victim(service, NAME)
    made.firn.ok({"operation": "CREATE_TABLE", **ADDRESS, "schema": SCHEMA})
    return made


def files_of_repartitions(disk: Disk) -> set[Path]:
    return set((disk.metadata().parent.parent / "data").glob("repartition-*/**/*.parquet"))


@contextmanager
def rewriting(victim: Victim, request: dict[str, Any]) -> Iterator[bool]:
    """New files are being written; none is in a snapshot."""
    before = files_of_repartitions(victim.disk)
    send(victim, request)
    wait_until(lambda: files_of_repartitions(victim.disk) - before, PATIENCE_S, every=0.002)
    [jvm] = victim.process.jvms()
    with stopped(jvm):
        yield not (files_of_repartitions(victim.disk) - before) & referred_to(victim.disk)


@contextmanager
def metadata_written(victim: Victim, request: dict[str, Any]) -> Iterator[bool]:
    """The swap waits for the catalog."""
    with locked(victim.disk.catalog):
        send(victim, request)
        batch = at_the_swap(victim)
        yield batch not in victim.disk.committed()


@contextmanager
def swapped(victim: Victim, request: dict[str, Any]) -> Iterator[bool]:
    """The table is repartitioned; that it is cannot be noted."""
    with locked(victim.disk.catalog) as catalog:
        send(victim, request)
        batch = at_the_swap(victim)
        with locked(victim.disk.ledger):
            catalog.release()
            wait_until(lambda: batch in victim.disk.committed(), PATIENCE_S)
            yield True


@contextmanager
def making_another(victim: Victim, request: dict[str, Any]) -> Iterator[bool]:
    """The files of a new table are there, and the table is about to be."""
    request |= {"target_table": "made"}
    with locked(victim.disk.catalog):
        send(victim, request)
        wait_until(lambda: list(folder_of_new(victim).rglob("*.metadata.json")), PATIENCE_S)
        yield True


STAGES = [rewriting, metadata_written, swapped, making_another]


def at_the_swap(victim: Victim) -> str:
    """The batch whose metadata is written."""
    found: list[str] = []

    def look() -> bool:
        found[:] = [batch for batch in victim.disk.begun() if victim.disk.uncommitted(batch)]
        return bool(found)

    wait_until(look, PATIENCE_S, every=0.01)
    return found[0]


def folder_of_new(victim: Victim) -> Path:
    beside = victim.disk.metadata().parent.parent.parent
    return next(iter(beside.glob("made-*")), beside / "none")


def send(victim: Victim, request: dict[str, Any]) -> None:
    """Send a REPARTITION that nobody hears the answer of."""
    victim.send_unheard({"operation": "REPARTITION", **ADDRESS, **request})


def partition(victim: Victim) -> list[str]:
    described = victim.firn.ok({"operation": "DESCRIBE_TABLE", **ADDRESS})["description"]
    return [p["field"] for p in described["partition"]["partitions"]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stage", thorough_except([swapped], STAGES), ids=lambda stage: stage.__name__)
def test_a_service_killed_while_it_repartitions_has_the_same_rows_in_one_layout_or_the_other(
    victim: Victim, stage: Stage
) -> None:
    first = victim.first_id()
    for i in range(3):
        rows = [{"id": first + 10 * i + n, "payload": f"p{n}", "at": f"2024-05-0{i + 1}T00:00:00"} for n in range(5)]
        victim.firn.ok({"operation": "WRITE", **ADDRESS, "records": rows})
    before = partition(victim)
    layout = LAYOUTS[0] if before != ["payload"] else LAYOUTS[1]
    ids = victim.disk.ids()
    request = {"partition": layout, "idempotency_key": stage.__name__, "batch_size": 5}
    with stage(victim, request) as was_there:
        victim.kill()
    victim.start()
    victim.process.wait_until_ready()
    assert was_there
    assert victim.disk.ids() == ids
    wanted = [p["field"] for p in layout["partitions"]]
    assert partition(victim) == (wanted if stage is swapped else before)
    # What it wrote itself is removed at the start, by nobody's asking.
    assert files_of_repartitions(victim.disk) <= referred_to(victim.disk)
    assert not folder_of_new(victim).exists()
    assert victim.firn.ok({"operation": "LIST_TABLES", "tenant_id": NAME.tenant})["tables"] == [NAME.table]
    victim.firn.ok({"operation": "CLEAN_ORPHANS", **ADDRESS, "older_than_hours": 0})
    wait_until(lambda: on_disk(victim.disk) == referred_to(victim.disk), 30)
    # The second try completes, or finds that the first did.
    again = {"operation": "REPARTITION", **ADDRESS, **request}
    answer = victim.firn.ok(again)
    assert (answer["repartitioned"], answer["stats"]["records"]) == (True, len(ids))
    assert victim.disk.ids() == ids
    if stage is making_another:
        assert len(victim.firn.rows(NAME.tenant, "made")) == len(ids)
        victim.firn.ok({"operation": "DROP_TABLE", **ADDRESS, "table": "made", "purge": True, "confirm": True})
    else:
        assert partition(victim) == wanted


BIG = TableName("repartition-kills", "default", "ticks")
TICKS = {"tenant_id": BIG.tenant, "namespace": BIG.namespace, "table": BIG.table}
TICK = {
    "id": {"type": "long", "required": True},
    "product_id": {"type": "string"},
    "ts": {"type": "timestamp"},
    "date": {"type": "date"},
    "best_bid": {"type": "double"},
    "best_ask": {"type": "double"},
}
PRODUCTS, DAYS, CHUNK = 40, 25, 500_000
_FIRST_DAY, _DAY_US = 19_844, 86_400_000_000


def ticks(first: int, count: int) -> pa.Table:
    """So many ticks: of all products by turns, a day's one after the other."""
    ids = range(first, first + count)
    days = [_FIRST_DAY + i // (CHUNK // 2) % DAYS for i in ids]
    moments = [day * _DAY_US + i * 7919 % _DAY_US for i, day in zip(ids, days, strict=True)]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "product_id": pa.array([f"P-{i % PRODUCTS:03}" for i in ids]),
            "ts": pa.array(moments, pa.timestamp("us")),
            "date": pa.array(days, pa.int32()).cast(pa.date32()),
            "best_bid": pa.array([100 + i % 977 / 16 for i in ids]),
            "best_ask": pa.array([100.25 + i % 977 / 16 for i in ids]),
        }
    )


def fill(firn: Firn, rows: int) -> None:
    path = f"/tables/{BIG.tenant}/{BIG.namespace}/{BIG.table}/records"
    for first in range(0, rows, CHUNK):
        sink = pa.BufferOutputStream()
        table = ticks(first, min(CHUNK, rows - first))
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        response = firn.client.post(path, content=sink.getvalue().to_pybytes(), headers={"Content-Type": ARROW})
        assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(1_000_000, marks=[pytest.mark.thorough, pytest.mark.timeout(600)]),
        pytest.param(10_000_000, marks=[pytest.mark.large, pytest.mark.timeout(3600)]),
    ],
)
def test_a_large_table_killed_half_way_is_whole_and_the_second_try_completes(
    tmp_path_factory: pytest.TempPathFactory, rows: int
) -> None:
    service = RestartedService(tmp_path_factory.mktemp("large") / "home")
    try:
        victim = Victim(service, BIG)
        by_date = {"partitions": [{"field": "date"}]}
        victim.firn.ok({"operation": "CREATE_TABLE", **TICKS, "schema": {"fields": TICK}, "partition": by_date})
        fill(victim.firn, rows)
        wanted = {"partitions": [{"field": "product_id"}, {"field": "ts", "transform": "day"}]}
        request = {"operation": "REPARTITION", **TICKS, "partition": wanted, "batch_size": rows // 8}
        estimate = victim.firn.ok({**request, "estimate": True})["estimate"]
        plan = victim.firn.ok({**request, "dry_run": True})["plan"]
        counted = figures(victim)
        assert (estimate["records"], plan["records"], counted[0]["n"]) == (rows, rows, rows)

        job = victim.firn.ok({**request, "async": True})["job_id"]
        wait_until(lambda: halfway(victim, job), 600, every=0.05)
        assert files_of_repartitions(victim.disk)
        victim.kill()
        victim.start()
        victim.process.wait_until_ready()
        assert figures(victim) == counted
        described = victim.firn.ok({"operation": "DESCRIBE_TABLE", **TICKS})["description"]
        assert [p["field"] for p in described["partition"]["partitions"]] == ["date"]
        assert not files_of_repartitions(victim.disk)
        assert victim.firn.client.get(f"/jobs/{job}").json()["job"]["state"] == "interrupted"

        stats = victim.firn.ok({**request, "delete_source": False})["stats"]
        assert (stats["records"], stats["validated"]) == (rows, True)
        assert (stats["partitions_after"], stats["batches"]) == (estimate["partition_count"], plan["batches"])
        assert figures(victim) == counted
        listed = victim.firn.ok({"operation": "LIST_PARTITIONS", **TICKS, "limit": 100_000})["partitions"]
        found = {str(p["partition"]): p["records"] for p in listed}
        assert found == {str(p["partition"]): p["records"] for p in estimate["partitions"]}
        changes_leave_the_counts_they_announced(victim, rows)
    finally:
        service.close()


def changes_leave_the_counts_they_announced(victim: Victim, rows: int) -> None:
    """Dry runs of every change write nothing; then one of every tenth row a second time, and those removed again."""
    before = figures(victim)
    first = ticks(0, 1000)
    batch = [{**row, "ts": row["ts"].isoformat(), "date": row["date"].isoformat()} for row in first.to_pylist()]
    asked: list[dict[str, Any]] = [
        {"operation": "UPDATE", "filter": {"id": {"lt": 1000}}, "updates": {"product_id": "none"}},
        {"operation": "DELETE", "filter": {"id": {"lt": 1000}}},
        {"operation": "UPSERT", "records": batch, "key_cols": ["id"]},
        {"operation": "WRITE", "mode": "overwrite", "records": batch},
        {"operation": "DEDUPLICATE", "key_cols": ["id"]},
    ]
    previews = [victim.firn.ok({**TICKS, **request, "dry_run": True})["plan"] for request in asked]
    assert figures(victim) == before
    assert (previews[0]["records_updated"], previews[1]["records_deleted"]) == (1000, 1000)
    assert (previews[2]["records_updated"], previews[2]["records_inserted"]) == (0, 0)
    assert previews[2]["records_unchanged"] == 1000
    assert previews[4]["records_removed"] == 0

    fill(victim.firn, rows // 10)
    request = {"operation": "DEDUPLICATE", **TICKS, "key_cols": ["id"]}
    announced = victim.firn.ok({**request, "dry_run": True})["plan"]["records_removed"]
    assert figures(victim)[0]["n"] == rows + rows // 10
    assert (announced, victim.firn.ok(request)["records_removed"]) == (rows // 10, rows // 10)
    assert figures(victim) == before


def halfway(victim: Victim, job: str) -> bool:
    found = victim.firn.client.get(f"/jobs/{job}").json()["job"]
    assert found["state"] in ("queued", "running"), found
    progress = found["progress"]
    return progress["bytes_total"] > 0 and progress["bytes_done"] * 2 >= progress["bytes_total"]


def figures(victim: Victim) -> list[dict[str, Any]]:
    sql = "SELECT count(*) AS n, count(DISTINCT id) AS ids, sum(id) AS s, min(ts) AS a, max(ts) AS b FROM ticks"
    data: list[dict[str, Any]] = victim.firn.ok({"operation": "QUERY", "tenant_id": BIG.tenant, "sql": sql})["data"]
    return data

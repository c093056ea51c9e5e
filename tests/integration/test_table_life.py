"""Tables that are renamed, dropped and brought back, on disk and in Spark: their rows, and whose files are whose."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.errors import InternalError
from service.model.names import TableName
from service.operations import shared_edits
from service.pipeline.idempotency import IdempotencyKeys
from service.tables.life import TableLifecycle
from tests.harness import Firn, wait_until
from tests.support.marks import thorough_after

PAGES = {"fields": {"id": {"type": "long", "required": True}, "page": {"type": "string"}}, "primary_key": ["id"]}


def ask(firn: Firn, operation: str, tenant: str, table: str, **fields: Any) -> dict[str, Any]:
    return firn.ok({"operation": operation, "tenant_id": tenant, "table": table, **fields})


def create(firn: Firn, tenant: str, table: str, **fields: Any) -> None:
    ask(firn, "CREATE_TABLE", tenant, table, schema=PAGES, **fields)


def write(firn: Firn, tenant: str, table: str, *ids: int) -> dict[str, Any]:
    return ask(firn, "WRITE", tenant, table, records=[{"id": i, "page": f"p{i}"} for i in ids])


def ids(firn: Firn, tenant: str, table: str, **query: Any) -> list[int]:
    return sorted(row["id"] for row in firn.rows(tenant, table, **query))


def kept(firn: Firn, tenant: str, table: str) -> Table:
    return firn.app.parts[Catalog].load(TableName(tenant, "default", table))


def files(table: Table) -> dict[str, bytes]:
    root = Path(urlparse(table.location).path)
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_a_renamed_table_takes_every_operation_under_its_new_name_and_none_under_the_old(
    firn: Firn, tenant: str
) -> None:
    create(firn, tenant, "old")
    write(firn, tenant, "old", 1, 2)
    assert ids(firn, tenant, "old") == [1, 2]
    ask(firn, "RENAME_TABLE", tenant, "old", new_name="new")
    write(firn, tenant, "new", 3)
    ask(firn, "UPSERT", tenant, "new", records=[{"id": 1, "page": "x"}])
    ask(firn, "DELETE", tenant, "new", filter={"id": 2})
    ask(firn, "COMPACT", tenant, "new", force=True)
    assert ids(firn, tenant, "new") == [1, 3]
    for operation, fields in (
        ("WRITE", {"records": [{"id": 9}]}),
        ("QUERY", {}),
        ("DELETE", {"filter": {"id": 1}}),
        ("DESCRIBE_TABLE", {}),
    ):
        firn.fail({"operation": operation, "tenant_id": tenant, "table": "old", **fields}, "TABLE_NOT_FOUND", 404)
    assert ids(firn, tenant, "new") == [1, 3]


@pytest.mark.parametrize(
    "operation",
    thorough_after(
        3, ["ALTER_TABLE", "ROLLBACK", "UPDATE", "REINITIALISE_TABLE", "DELETE", "UPSERT", "DEDUPLICATE", "WRITE"]
    ),
)
def test_a_change_whose_answer_was_lost_is_found_on_the_table_that_was_renamed_since(
    firn: Firn, tenant: str, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> bytes:
        raise InternalError("the answer was lost")

    create(firn, tenant, "t")
    first = write(firn, tenant, "t", 1)["metadata"]["snapshot_id"]
    write(firn, tenant, "t", 2, 2)
    fields: dict[str, dict[str, Any]] = {
        "ALTER_TABLE": {"rename_columns": {"page": "sheet"}},
        "REINITIALISE_TABLE": {"confirm": True, "schema": {"fields": {"n": {"type": "long"}}}},
        "ROLLBACK": {"as_of": first},
        "UPDATE": {"updates": {"page": "x"}, "filter": {"id": 1}},
        "DELETE": {"filter": {"id": 1}},
        "UPSERT": {"records": [{"id": 1, "page": "x"}], "key_cols": ["id"]},
        "DEDUPLICATE": {"key_cols": ["page"]},
        "WRITE": {"mode": "overwrite", "records": [{"id": 3}]},
    }
    request = {"operation": operation, "tenant_id": tenant, "table": "t", "idempotency_key": "k", **fields[operation]}
    with monkeypatch.context() as patched:
        patched.setattr(IdempotencyKeys, "store", lost)
        # Responses of a shared commit are stored with it.
        patched.setattr(shared_edits, "may_share", lambda request: False)
        firn.fail(request, "INTERNAL_ERROR", 500)
    ask(firn, "RENAME_TABLE", tenant, "t", new_name="new")
    before = kept(firn, tenant, "new").metadata_location
    answer = firn.ok(request)
    assert kept(firn, tenant, "new").metadata_location == before
    if operation == "ALTER_TABLE":
        assert list(answer["schema"]["fields"]) == ["id", "sheet"]
    else:
        assert answer["metadata"]["snapshot_id"] == str(kept(firn, tenant, "new").current_snapshot_id)
    assert firn.ok(request) == answer


@pytest.mark.parametrize("purged", ["renamed", "recreated"])
def test_purging_a_renamed_table_or_the_one_made_under_its_old_name_leaves_the_others_files_alone(
    firn: Firn, tenant: str, purged: str
) -> None:
    create(firn, tenant, "t")
    write(firn, tenant, "t", 1)
    ask(firn, "RENAME_TABLE", tenant, "t", new_name="renamed")
    create(firn, tenant, "t")
    write(firn, tenant, "t", 2)
    goes, stays = ("renamed", "t") if purged == "renamed" else ("t", "renamed")
    gone, before = kept(firn, tenant, goes), files(kept(firn, tenant, stays))
    assert before
    answer = ask(firn, "DROP_TABLE", tenant, goes, purge=True, confirm=True)
    assert answer["purged"]
    assert files(gone) == {}
    assert not Path(urlparse(gone.location).path).exists()
    assert files(kept(firn, tenant, stays)) == before
    assert ids(firn, tenant, stays) == [2 if stays == "t" else 1]


def test_a_dropped_table_comes_back_with_its_rows_history_backups_policy_and_schedules(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "t", properties={"compaction": {"min_files_to_compact": 7}, "description": "ours"})
    first = write(firn, tenant, "t", 1, 2)["metadata"]["snapshot_id"]
    ask(firn, "DELETE", tenant, "t", filter={"id": 2}, create_backup=True)
    task = {"operation": "COMPACT"}
    ask(firn, "CREATE_SCHEDULE", tenant, "t", name="nightly", cron="0 2 * * *", task=task)

    def state() -> list[Any]:
        asked = [
            ask(firn, operation, tenant, "t") for operation in ("DESCRIBE_TABLE", "LIST_BACKUPS", "LIST_SCHEDULES")
        ]
        return [{k: v for k, v in answer.items() if k != "metadata"} for answer in asked]

    before, on_disk = state(), files(kept(firn, tenant, "t"))
    dropped = ask(firn, "DROP_TABLE", tenant, "t")
    firn.fail({"operation": "QUERY", "tenant_id": tenant, "table": "t"}, "TABLE_NOT_FOUND", 404)
    listed = firn.ok({"operation": "LIST_TABLES", "tenant_id": tenant, "include_dropped": True})
    assert listed["tables"] == []
    assert [one["table_id"] for one in listed["dropped"]] == [dropped["table_id"]]
    ask(firn, "RESTORE_TABLE", tenant, "t")
    assert state() == before
    assert files(kept(firn, tenant, "t")) == on_disk
    assert ids(firn, tenant, "t") == [1]
    assert ids(firn, tenant, "t", as_of=first) == [1, 2]
    [backup] = ask(firn, "LIST_BACKUPS", tenant, "t")["backups"]
    ask(firn, "RESTORE_BACKUP", tenant, "t", name=backup["name"])
    assert ids(firn, tenant, "t") == [1, 2]


def test_a_dropped_table_comes_back_beside_the_one_that_has_its_name(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "t")
    write(firn, tenant, "t", 1)
    ask(firn, "DROP_TABLE", tenant, "t")
    create(firn, tenant, "t")
    write(firn, tenant, "t", 2)
    request = {"operation": "RESTORE_TABLE", "tenant_id": tenant, "table": "t"}
    assert "new_name" in firn.fail(request, "TABLE_EXISTS", 409)["message"]
    firn.ok({**request, "new_name": "before"})
    assert (ids(firn, tenant, "t"), ids(firn, tenant, "before")) == ([2], [1])


def test_maintenance_removes_the_files_of_a_dropped_table_after_its_retention(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "t")
    write(firn, tenant, "t", 1)
    table = kept(firn, tenant, "t")
    ask(firn, "DROP_TABLE", tenant, "t")
    life = firn.app.parts[TableLifecycle]
    life.remove_overdue()
    assert files(table)
    in_a_week = time.time_ns() // 1_000_000 + 168 * 3_600_000 + 1
    now, life._now_ms = life._now_ms, lambda: in_a_week
    try:
        assert life.remove_overdue() >= 1
    finally:
        life._now_ms = now
    assert not Path(urlparse(table.location).path).exists()
    firn.fail({"operation": "RESTORE_TABLE", "tenant_id": tenant, "table": "t"}, "TABLE_NOT_FOUND", 404)


@pytest.mark.parametrize(
    ("work", "what"),
    thorough_after(
        2,
        [
            ("COMPACT", "RENAME_TABLE"),
            ("REPARTITION", "DROP_TABLE"),
            ("COMPACT", "DROP_TABLE"),
            ("REPARTITION", "RENAME_TABLE"),
        ],
    ),
)
def test_work_in_progress_on_a_table_that_is_dropped_leaves_nothing_and_harms_nothing(
    firn: Firn, tenant: str, work: str, what: str
) -> None:
    create(firn, tenant, "t")
    for i in range(6):
        write(firn, tenant, "t", i)
    folder = Path(urlparse(kept(firn, tenant, "t").location).path)
    fields = {"partition": {"partitions": [{"field": "page"}]}} if work == "REPARTITION" else {"force": True}
    going = {"new_name": "new"} if what == "RENAME_TABLE" else {}
    order, uuid = firn.app.parts[Commits].locks, kept(firn, tenant, "t").uuid
    with ThreadPoolExecutor(1) as pool, order.hold(uuid):
        gone = pool.submit(ask, firn, what, tenant, "t", **going)
        wait_until(lambda: len(order._queues[uuid]) == 2, 30)
        job = ask(firn, work, tenant, "t", **fields, **{"async": True})["job_id"]
        # It reads and writes, and then stands in line for its commit behind the one that takes the table away.
        wait_until(lambda: any(folder.rglob(f"{work.lower()}-*/**/*.parquet")), 60)
    gone.result(30)
    wait_until(lambda: firn.client.get(f"/jobs/{job}").json()["job"]["state"] == "failed", 60)
    assert firn.client.get(f"/jobs/{job}").json()["job"]["error"]["code"] == "TABLE_NOT_FOUND"
    assert not list(folder.rglob(f"{work.lower()}-*/**/*.parquet"))
    if what == "DROP_TABLE":
        ask(firn, "RESTORE_TABLE", tenant, "t", new_name="new")
    assert ids(firn, tenant, "new") == list(range(6))


def test_what_was_done_under_the_old_name_is_undone_and_told_under_the_new_one(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "old")
    write(firn, tenant, "old", 1, 2)
    request_id = write(firn, tenant, "old", 3)["metadata"]["request_id"]
    ask(firn, "RENAME_TABLE", tenant, "old", new_name="new")
    reported = [one["request_ids"] for one in ask(firn, "HISTORY", tenant, "new")["snapshots"]]
    assert [request_id] in reported
    ask(firn, "UNDO", tenant, "new", request_id=request_id)
    assert ids(firn, tenant, "new") == [1, 2]

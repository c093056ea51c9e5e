"""How answers are shown: what a table's life says is there, and what the next command needs is whole."""

import io
import json
from typing import Any

import pytest

from handlers.repartition import Repartition
from service.cli.connection.lists import whole_list
from tests.unit.cli.test_commands import Service, Typing, firn

BACKUP = "backup-20260301T100000000Z-reinitialise_table-1f0c9a7e"
UUID = "84f0f3c9-b1a0-4a6d-8f6c-5e1d2b7a9f30"
REQUEST = "84f0f3c9b1a04a6d8f6c5e1d2b7a9f30"


def shown(line: list[str], **answer: Any) -> list[str]:
    done = firn(line, Service(**answer))
    assert (done.code, done.err) == (0, "")
    return done.out.splitlines()


def at_eighty(line: list[str], monkeypatch: pytest.MonkeyPatch, **answer: Any) -> list[str]:
    """What is shown in a terminal of eighty columns."""
    from service.cli.main import main

    monkeypatch.setenv("COLUMNS", "80")
    out = Typing()
    assert main(line, {"PAGER": "cat"}, stdin=io.StringIO(), stdout=out, connection=Service(**answer)) == 0
    return out.getvalue().splitlines()


def snapshot(**more: Any) -> dict[str, Any]:
    figures = dict.fromkeys(("records_added", "records_removed", "records_updated", "files_added", "files_removed"), 0)
    message = {"snapshot_id": "4113542698571253187", "committed_at": "2026-03-01T10:00:00Z", "operation": "UPDATE"}
    return {**message, "request_ids": [REQUEST], **figures, **more}


def history(shown_: int, total: int, *options: str) -> str:
    snapshots = [snapshot()] * shown_
    line = ["table", "history", "t", *options]
    return shown(line, snapshots=snapshots, total=total)[-1]


def test_history_tells_rows_that_were_changed() -> None:
    update = snapshot(records_updated=5, files_added=1, files_removed=1)
    upsert = snapshot(operation="UPSERT", records_added=1200, records_updated=3, request_ids=["a", "b"])
    compact = snapshot(operation="COMPACT", files_added=1, files_removed=9, request_ids=[])
    lines = shown(["table", "history", "t"], snapshots=[update, upsert, compact], total=3)
    assert [line.split()[3:] for line in lines[1:]] == [
        ["UPDATE", "~5", "+1", "-1", REQUEST],
        ["UPSERT", "+1,200", "~3", "-", "a"],
        [],
        ["COMPACT", "-", "+1", "-9", "-"],
        [],
    ]
    assert lines[3].split() == ["b"]


def test_history_has_every_request_at_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = snapshot(operation="WRITE", records_added=2, request_ids=["a" * 32, "b" * 32])
    lines = at_eighty(["table", "history", "t"], monkeypatch, snapshots=[shared, snapshot(request_ids=[])], total=2)
    assert lines[0].split() == ["SNAPSHOT", "TIME", "OPERATION", "ROWS", "FILES"]
    assert lines[2:4] == [f"  request {'a' * 32}", f"  request {'b' * 32}"]
    assert (lines[4].split()[3], lines[5]) == ("UPDATE", "2 snapshots")


def test_history_says_how_many_snapshots_there_are_in_all() -> None:
    assert history(2, 2) == "2 snapshots"
    assert history(1, 1) == "1 snapshot"
    answer = {"snapshots": [snapshot()] * 100, "total": 250, "next_cursor": "more"}
    last = shown(["table", "history", "t", "--limit", "100"], **answer)[-1]
    assert last == "100 of 250 snapshots; there are older ones, use --limit to see more"


class Pages(Service):
    """Answers with one page after the other of the numbers below `total`; a page has `most` at most."""

    def __init__(self, total: int, most: int) -> None:
        super().__init__()
        self.total, self.most = total, most

    def send(self, request: Any, key: str | None = None, body: bytes | None = None) -> dict[str, Any]:
        self.asked.append(request)
        start = int(request.get("cursor", 0))
        end = min(self.total, start + min(self.most, request.get("limit", self.most)))
        more = {"next_cursor": str(end)} if end < self.total else {}
        return {"success": True, "namespaces": [f"n{i}" for i in range(start, end)], "metadata": {}, **more}


def test_a_list_is_printed_whole_however_many_pages_it_has() -> None:
    service = Pages(7, 3)
    assert firn(["namespace", "list"], service).out.split() == [f"n{i}" for i in range(7)]
    assert [request.get("cursor") for request in service.asked] == [None, "3", "6"]
    assert json.loads(firn(["namespace", "list", "--json"], Pages(7, 3)).out)["namespaces"] == [
        f"n{i}" for i in range(7)
    ]


@pytest.mark.parametrize(("most", "asked"), [(2, [2]), (3, [3]), (5, [5, 2]), (9, [9, 6, 3])])
def test_a_limit_is_for_the_whole_list(most: int, asked: list[int]) -> None:
    service = Pages(7, 3)
    found = whole_list(service.send, {"operation": "LIST_NAMESPACES", "limit": most}, ("namespaces",))
    assert found["namespaces"] == [f"n{i}" for i in range(min(most, 7))]
    assert ("next_cursor" in found) == (most < 7)
    assert [request["limit"] for request in service.asked] == asked


def test_a_page_that_fails_fails_the_list() -> None:
    class Failing(Pages):
        def send(self, request: Any, key: str | None = None, body: bytes | None = None) -> dict[str, Any]:
            if "cursor" in request:
                return {"success": False, "error": {"code": "INVALID_REQUEST", "message": "no luck"}}
            return super().send(request, key, body)

    assert firn(["namespace", "list"], Failing(7, 3)).code == 1


def test_the_states_to_compare_are_sent_as_they_are_written() -> None:
    for message in ("4113542698571253187", "9" * 5000, "eve"):
        service = Service(changes=[], records_inserted=0, records_deleted=0, records_updated=0)
        assert firn(["table", "diff", "t", message, message], service).code == 0
        assert (service.asked[0]["from_snapshot"], service.asked[0]["to_snapshot"]) == (message, message)


def test_backups_have_their_whole_names_at_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    result = {"name": BACKUP, "operation": "REINITIALISE_TABLE", "records": 123456, "bytes": 2**30}
    lines = at_eighty(
        ["backup", "list", "t"], monkeypatch, backups=[{**result, "expires_at": "2026-03-01T10:00:00Z"}] * 200
    )
    assert len(lines) == 203
    assert all(line.startswith(f"{BACKUP}  2026-03-01 10:00Z") for line in lines[1:-2])
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "200 backups"
    assert lines[-2] == "3 more columns (--json has all): ROWS, SIZE, BEFORE"


def test_dropped_tables_have_their_whole_ids_at_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = [{"table": "orders", "table_id": UUID, "expires_at": "2026-03-01T10:00:00Z"}] * 200
    lines = at_eighty(["table", "list", "--dropped"], monkeypatch, tables=[], dropped=dropped)
    assert lines == [
        *["orders  dropped, restorable until 2026-03-01 10:00Z as", f"  {UUID}"] * 200,
        "0 tables in default.default",
    ]


def test_the_backup_that_a_command_made_has_its_whole_name(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = at_eighty(
        ["table", "reinitialise", "t", "--backup"], monkeypatch, records_deleted=3, backup=BACKUP, split_points=None
    )
    assert lines[-2:] == ["the previous state is kept as", f"  {BACKUP}"]


def test_status_says_of_a_table_that_it_is_offline() -> None:
    result = {"namespace": "n", "files": 9, "small_files": 9, "bytes": 9, "recommended": False, "mode": "auto"}
    tables = [{**result, "table": "a", "online": False}, {**result, "table": "b", "online": True}]
    lines = shown(["table", "status"], recommendations=tables)
    assert [line.split()[-1] for line in lines[1:3]] == ["offline", "needed"]


def described(**more: Any) -> list[str]:
    result = {
        "schema": {"fields": {"id": {"type": "long"}}},
        "partition": {},
        "properties": {},
        "row_count": 0,
        "file_count": 0,
        "small_files_count": 0,
        "total_bytes": 0,
        "snapshot_count": 0,
        "current_snapshot_id": None,
        "compaction": {"enabled": True, "mode": "auto"},
    }
    return shown(["table", "describe", "t"], description={**result, **more})


def test_describe_says_where_a_table_is_split() -> None:
    assert not any(line.startswith("split") for line in described())
    assert [line for line in described(split_points=["h", "p"]) if line.startswith("split")] == ["split at    h, p"]
    [line] = [line for line in described(split_points=list(range(1000))) if line.startswith("split")]
    assert line.endswith("  0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 990 more")


def test_describe_says_that_a_table_is_offline() -> None:
    assert "offline     skipped by scheduled maintenance" in described(online=False)


def job(**more: Any) -> dict[str, Any]:
    table = {"tenant_id": "acme", "namespace": "shop", "table": "orders_of_all_branches_since_2019"}
    message = {"id": REQUEST, "kind": "REPARTITION", "table": table, "state": "running", "cancelling": False}
    return {**message, "created_at": "2026-03-01T10:00:00Z", "ended_at": None, **more}


def test_jobs_have_their_whole_ids_at_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [job(), job(cancelling=True), job(state="interrupted")] * 60
    lines = at_eighty(["job", "list", "--limit", "180"], monkeypatch, jobs=jobs, next_cursor="more")
    assert max(map(len, lines)) <= 80
    assert [line.split()[:2] for line in lines[1:4]] == [
        [REQUEST, "running"],
        [REQUEST, "cancelling"],
        [REQUEST, "interrupted"],
    ]
    assert lines[-1] == "180 jobs; there are older ones, use --limit to see more"
    assert [line.split()[3] for line in lines[1:3]] == ["shop.order~since_2019"] * 2, "a name can be told from others"
    assert lines[-2] == "2 more columns (--json has all): STARTED, ENDED"


def test_jobs_are_those_of_the_namespace_that_is_named() -> None:
    service = Service(jobs=[])
    firn(["job", "list", "--namespace", "shop", "--limit", "5"], service)
    assert service.asked == [{"operation": "LIST_JOBS", "tenant_id": "default", "namespace": "shop", "limit": 5}]
    firn(["job", "list", "-A"], service)
    assert service.asked[1] == {"operation": "LIST_JOBS", "tenant_id": "default", "scope": "tenant"}


def test_a_compaction_that_is_not_worth_it_names_the_option_that_makes_it_all_the_same() -> None:
    reason = "1 small file(s), but no partition has the 3 that make merging worth it; force: true merges from 2"
    stats = {"files_before": 1, "files_after": 1, "compaction_time_ms": 0}
    service = Service(compacted=False, reason=reason, stats=stats)
    assert firn(["table", "compact", "t"], service).out.endswith("worth it; --force merges from 2\n")
    assert "force" not in service.asked[0]
    firn(["table", "compact", "t", "--force"], service)
    assert service.asked[-1]["force"] is True


def test_every_option_of_repartition_is_one_of_the_command() -> None:
    options = {
        "--partition-by=day": ("partition", {"partitions": [{"field": "day"}]}),
        "--derive=a=b": ("transform", {"a": {"expression": "b"}}),
        "--compression=zstd": ("compression", "zstd"),
        "--batch-size=1000": ("batch_size", 1000),
        "--no-validate": ("validate", False),
        "--keep-old": ("delete_source", False),
        "--backup-retention-hours=5": ("backup_retention_hours", 5),
        "--target-table=u": ("target_table", "u"),
        "--estimate": ("estimate", True),
    }
    service = Service(success=False, error={"code": "X", "message": "x"})
    firn(["table", "repartition", "t", *options], service)
    assert {name: service.asked[0][name] for name, _ in options.values()} == dict(options.values())
    own = {
        "operation",
        "tenant_id",
        "namespace",
        "table",
        "timeout_ms",
        "confirm",
        "async",
        "dry_run",
        "idempotency_key",
    }
    fields = {field.alias or name for name, field in Repartition.model_fields.items()}
    assert fields - own == {name for name, _ in options.values()}
    wrong = firn(["table", "repartition", "t", "--partition-by=day", "--keep-old", "--delete-source"], service)
    assert (wrong.code, "contradict each other" in wrong.err) == (2, True)


def test_an_empty_default_namespace_is_shown_with_those_that_have_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = at_eighty(["table", "list"], monkeypatch, tables=[], offline=[], namespaces_with_tables=["lab", "shop"])
    assert lines[-1] == "there are tables in lab, shop; name one with --namespace"


def test_dynamic_tables_and_those_that_are_offline_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"tables": ["a", "b", "c", "d"], "offline": ["b", "d"], "dynamic": ["c", "d"]}
    lines = at_eighty(["table", "list"], monkeypatch, **tables)
    assert lines[:4] == ["a", "b  offline", "c  dynamic", "d  dynamic, offline"]


def test_tables_are_listed_with_details() -> None:
    details = {"table": "orders", "records": 12000, "files": 3, "small_files_count": 1, "bytes": 2048}
    service = Service(
        tables=["orders"], offline=[], details=[{**details, "online": True, "dynamic": False, "changed_at": None}]
    )
    lines = firn(["table", "list", "--details"], service).out.splitlines()
    assert service.asked[0]["details"] is True
    assert lines[0].split() == ["TABLE", "ROWS", "FILES", "SMALL", "SIZE", "CHANGED", "ONLINE", "DYNAMIC"]
    assert lines[1].split() == ["orders", "12,000", "3", "1", "2.0", "KiB", "-", "yes", "no"]

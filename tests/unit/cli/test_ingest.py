"""The commands about tables that take a file a day: what they send, and what they print."""

import io
import json
import re
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.cli.command import UsageError
from service.cli.day_files import upload_range
from service.cli.main import main
from tests.cli import Called
from tests.unit.cli.test_commands import Service, Typing, firn

TABLE = """\
name: sales
storage: {type: local, base_path: data/tables/sales/}  # where files are
ingestion:
  dataset_config: configs/sales_dataset.yaml
  watch: {folder: incoming, pattern: "sales_{date}.csv"}
"""
DATASET = "columns:\n  - {name: id, type: BIGINT}\n"
ADDRESS = {"tenant_id": "default", "namespace": "default", "table": "sales"}
INGESTED = {
    "date": "2024-01-01",
    "period": "2024-01",
    "records_read": 90,
    "records_ingested": 88,
    "records_rejected": 2,
    "records_quarantined": 2,
    "quarantine_table": "sales__quarantine",
    "rejects": {"quantity > 0": 1, "price: not a DOUBLE": 1},
    "records_replaced": 0,
}


class Ingesting(Service):
    """A service that also keeps what is uploaded."""

    def upload(self, path: str, media_type: str, chunks: Callable[[], Iterable[bytes]], key: str) -> dict[str, Any]:
        self.asked.append((path, b"".join(chunks())))
        return self.answer


class Waiting(Service):
    """A service whose jobs never end; Ctrl-C is pressed when a job is looked at."""

    def __init__(self) -> None:
        super().__init__(job_id="j1")
        self.cancelled: list[str] = []

    def job(self, job_id: str) -> dict[str, Any]:
        raise KeyboardInterrupt

    def cancel(self, job_id: str) -> dict[str, Any]:
        self.cancelled.append(job_id)
        return self.answer


class Answering(Service):
    """A service with a response for each operation, or for its dry run."""

    def __init__(self, **answers: Any) -> None:
        super().__init__()
        self.answers = answers

    def send(self, request: Any, key: str | None = None, body: bytes | None = None) -> dict[str, Any]:
        self.asked.append(request)
        name = request["operation"] + ("_DRY" if request.get("dry_run") else "")
        answer = self.answers[name]
        return {"success": True, **(answer.pop(0) if isinstance(answer, list) else answer)}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a table file, its dataset file and a file to ingest."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sales_table.yaml").write_text(TABLE)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "sales_dataset.yaml").write_text(DATASET)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sales_2024-01-01.csv").write_text("id\n1\n")
    return tmp_path


def sent(service: Service) -> dict[str, Any]:
    """The one request that was sent, without its key."""
    (request,) = service.asked
    return {name: value for name, value in request.items() if name != "idempotency_key"}


def test_a_table_file_is_sent_with_its_dataset_and_local_folders_become_absolute(folder: Path) -> None:
    service = Service(table_created=True)
    done = firn(["table", "create", "sales_table.yaml"], service)
    assert done == Called(0, "✓ Table created: sales\n  Base path: data/tables/sales/\n", "")
    request = sent(service)
    assert request == {"operation": "CREATE_TABLE", **ADDRESS, "config": request["config"], "dataset": DATASET}
    assert request["config"] == TABLE.replace("data/tables/sales/", f"'{folder}/data/tables/sales/'").replace(
        "folder: incoming", f"folder: '{folder}/incoming'"
    )


def test_a_service_on_another_machine_gets_the_table_file_as_it_is() -> None:
    service = Service(table_created=True)
    assert firn(["table", "create", "sales_table.yaml", "--url", "http://h:1"], service).code == 0
    assert sent(service)["config"] == TABLE


@pytest.mark.parametrize("path", ["/srv/sales/", "s3://bucket/sales/", ""])
def test_a_path_that_starts_nowhere_in_the_working_directory_stays(folder: Path, path: str) -> None:
    text = f'name: sales\nstorage: {{type: s3, base_path: "{path}"}}\n'
    (folder / "t.yaml").write_text(text)
    service = Service(table_created=True)
    assert firn(["table", "create", "t.yaml"], service).code == 0
    assert sent(service)["config"].replace("'", '"') == text


def test_a_table_file_with_an_unknown_key_is_sent_because_the_service_names_its_line(folder: Path) -> None:
    (folder / "t.yaml").write_text("name: sales\nstorrage: {}\n")
    service = Service()
    service.answer = {"success": False, "error": {"code": "INVALID_REQUEST", "message": "config: line 2: storrage"}}
    done = firn(["table", "create", "t.yaml"], service)
    assert done == Called(1, "", "firn: INVALID_REQUEST: config: line 2: storrage\n")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["table", "create", "t.yaml"], "t.yaml: ingestion.dataset_config: no.yaml cannot be read"),
        (["table", "create", "broken.yaml"], "broken.yaml is not YAML: line 2"),
        (["table", "create", "unnamed.yaml"], "unnamed.yaml: name is missing; give the table's name"),
        (["table", "ingest", "sales", "no.csv", "--date", "2024-01-01"], "no.csv is not a file; check the path"),
        (["table", "ingest", "sales", "data/sales_2024-01-01.csv", "--date", "1.1.24"], "'1.1.24' is not a date"),
        (
            ["table", "ingest", "sales", "data/sales_2024-01-01.csv", "--date", "2024-01-01", "--dataset-config", "x"],
            "--dataset-config: x cannot be read",
        ),
        (
            ["table", "ingest-range", "sales", "{date}.csv", "--from", "2024-02-01", "--to", "2024-01-01"],
            "--from 2024-02-01 is after --to 2024-01-01",
        ),
        (["table", "replay", "sales", "--date", "2024-01-01", "--run", "r"], "exclude each other"),
        (["table", "export", "sales", "--date", "2024-01-01", "--period", "2024-01"], "exclude each other"),
        (["table", "apply", "sales"], "sales is not a table file"),
        (["table", "accept-drift", "sales", "--write"], "--write needs a table file"),
        (["table", "compact", "sales", "--delete-source"], "--delete-source needs --period"),
        (["load", "data/sales_2024-01-01.csv", "sales_table.yaml"], "`firn table ingest`"),
        (["table", "create", "sales", "--dataset-config", "x.yaml"], "--dataset-config needs a table file"),
        (["table", "watch", "sales", "--interval", "0"], "--interval 0 is too short"),
    ],
)
def test_a_wrong_call_says_why_and_sends_nothing(line: list[str], says: str, folder: Path) -> None:
    (folder / "t.yaml").write_text("name: sales\ningestion: {dataset_config: no.yaml}\n")
    (folder / "broken.yaml").write_text("name: sales\nstorage: {a: b: c}\n")
    (folder / "unnamed.yaml").write_text("storage: {type: local, base_path: x}\n")
    service = Service()
    done = firn(line, service)
    assert (done.code, done.out, service.asked) == (2, "", [])
    assert says in done.err


@pytest.mark.parametrize(
    ("table", "address"),
    [
        ("sales_table.yaml", ADDRESS),
        ("sales", ADDRESS),
        ("shop.sales", {**ADDRESS, "namespace": "shop"}),
    ],
)
def test_both_spellings_ingest_a_file_by_its_absolute_path(folder: Path, table: str, address: dict[str, str]) -> None:
    service = Service(**INGESTED)
    done = firn(["table", "ingest", table, "data/sales_2024-01-01.csv", "--date", "2024-01-01"], service)
    assert done.out == (
        "✓ Ingested 88 rows\n"
        "  2 rows rejected, 2 quarantined in sales__quarantine\n"
        "    1  price: not a DOUBLE\n"
        "    1  quantity > 0\n"
        f"  Destination: {address['namespace']}.sales, 2024-01\n"
    )
    path = str(folder / "data/sales_2024-01-01.csv")
    assert sent(service) == {"operation": "INGEST", **address, "source": path, "date": "2024-01-01", "async": True}


def test_a_service_on_another_machine_gets_the_bytes_of_a_file() -> None:
    service = Ingesting(**INGESTED)
    line = ["table", "ingest", "sales", "data/sales_2024-01-01.csv", "--date", "2024-01-01", "--mode", "append"]
    assert firn([*line, "--dry-run", "--url", "http://h:1"], service).code == 0
    ((path, body),) = service.asked
    assert (urlsplit(path).path, body) == ("/tables/default/default/sales/ingest", b"id\n1\n")
    assert parse_qs(urlsplit(path).query) == {
        "async": ["true"],
        "name": ["sales_2024-01-01.csv"],
        "date": ["2024-01-01"],
        "mode": ["append"],
        "dry_run": ["true"],
    }


def test_a_service_reads_an_s3_url_itself_wherever_it_is() -> None:
    service = Service(**INGESTED)
    line = ["table", "ingest", "sales", "s3://b/x.csv", "--date", "2024-01-01", "--url", "http://h:1"]
    assert firn(line, service).code == 0
    assert sent(service)["source"] == "s3://b/x.csv"


def test_an_unchanged_file_says_so() -> None:
    service = Service(date="2024-01-01", period="2024-01", unchanged=True)
    done = firn(["table", "ingest", "sales", "data/sales_2024-01-01.csv", "--date", "2024-01-01"], service)
    assert done.out == "✓ Unchanged: data/sales_2024-01-01.csv is ingested for 2024-01-01 already\n"


def test_a_dry_run_says_what_would_be_and_how_to_do_exactly_that() -> None:
    more = {"records_replaced": 80, "files_rewritten": 1, "bytes_rewritten": 2048, "plan_token": "t1"}
    drift = {"new": ["store"], "retyped": {"price": "VARCHAR"}}
    plan = {**INGESTED, "rejects": {}, "records_rejected": 0, "records_quarantined": 0, "drift": drift, **more}
    service = Service(dry_run=True, plan=plan)
    done = firn(["table", "ingest", "sales", "data/sales_2024-01-01.csv", "--date", "2024-01-01", "--dry-run"], service)
    assert done.out == (
        "88 rows would be ingested\n"
        "  0 rows rejected\n"
        "  new in the file: store\n"
        "  retyped in the file: price (VARCHAR)\n"
        "  80 rows of 2024-01-01 would be replaced\n"
        "  1 file with other dates, 2.0 KiB, would be rewritten\n"
        "  Destination: default.sales, 2024-01\n"
        "ingest exactly this with --plan t1\n"
    )


def test_a_table_that_does_not_exist_names_the_command_that_creates_it() -> None:
    service = Service()
    service.answer = {"success": False, "error": {"code": "TABLE_NOT_FOUND", "message": "there is no table"}}
    line = ["table", "ingest", "sales_table.yaml", "data/sales_2024-01-01.csv", "--date", "2024-01-01"]
    assert firn(line, service).err == (
        "firn: TABLE_NOT_FOUND: there is no table; `firn table create sales_table.yaml` creates it\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        ["ingest", "sales", "data/sales_2024-01-01.csv", "--date", "2024-01-01"],
        ["ingest-range", "sales", "data/sales_{date}.csv", "--from", "2024-01-01", "--to", "2024-01-02"],
        ["export", "sales"],
    ],
)
def test_ctrl_c_cancels_the_work(line: list[str]) -> None:
    service = Waiting()
    done = firn(["table", *line], service)
    assert (done.code, service.cancelled) == (130, ["j1"])
    assert done.err.endswith("firn: cancelled job j1\n")


RANGE = ["table", "ingest-range", "sales", "data/sales_{date}.csv", "--from", "2024-01-01", "--to", "2024-01-05"]


def test_a_range_names_bad_days_and_fails_but_counts_the_others(folder: Path) -> None:
    service = Service(
        days_ingested=2,
        days_unchanged=1,
        days_missing=2,
        days_failed=1,
        records_ingested=2239,
        records_rejected=3,
        records_quarantined=3,
        days=[
            {"date": "2024-01-01", "state": "ingested", "rejects": {"id: no value": 1}},
            {"date": "2024-01-03", "state": "ingested", "rejects": {"id: no value": 1, "id: not a BIGINT": 1}},
            {"date": "2024-01-02", "state": "failed", "error": {"code": "FILE_REJECTED", "message": "too many"}},
            {"date": "2024-01-04", "state": "missing"},
            {"date": "2024-01-05", "state": "missing"},
        ],
    )
    done = firn(RANGE, service)
    assert done == Called(
        1,
        "✓ Ingested 2 days (2,239 rows)\n"
        "  3 rows rejected, 3 quarantined\n"
        "    2  id: no value\n"
        "    1  id: not a BIGINT\n"
        "  1 day unchanged\n"
        "  2 days without a file: 2024-01-04 to 2024-01-05\n"
        "  FAILED 2024-01-02: FILE_REJECTED: too many\n"
        "  Destination: default.sales\n",
        "",
    )
    assert sent(service) == {
        "operation": "INGEST_RANGE",
        **ADDRESS,
        "source": str(folder / "data/sales_{date}.csv"),
        "from": "2024-01-01",
        "to": "2024-01-05",
        "async": True,
    }


def test_a_range_of_local_files_is_sent_day_by_day_to_a_service_on_another_machine(folder: Path) -> None:
    (folder / "data" / "sales_2024-01-03.csv").write_text("id\n3\n")
    service = Ingesting(**INGESTED)
    done = firn([*RANGE, "--url", "http://h:1", "--json"], service)
    assert [(parse_qs(urlsplit(path).query)["date"], body) for path, body in service.asked] == [
        (["2024-01-01"], b"id\n1\n"),
        (["2024-01-03"], b"id\n3\n"),
    ]
    response = json.loads(done.out)
    assert [(day["date"][-2:], day["state"]) for day in response["days"]] == [
        ("01", "ingested"),
        ("02", "missing"),
        ("03", "ingested"),
        ("04", "missing"),
        ("05", "missing"),
    ]
    counts = {name: response[name] for name in ("days_ingested", "days_missing", "days_failed", "records_ingested")}
    assert counts == {"days_ingested": 2, "days_missing": 3, "days_failed": 0, "records_ingested": 176}


WATCHED = {
    "files_found": 3,
    "files_ingested": 1,
    "files_unchanged": 1,
    "files_waiting": 0,
    "files_failed": 1,
    "files": [
        {"path": "in/a.csv", "date": "2024-01-01", "state": "ingested"},
        {"path": "in/b.csv", "date": "2024-01-02", "state": "failed", "error": "bad"},
    ],
}
SHOWN = "✓ Ingested in/a.csv for 2024-01-01\nFAILED in/b.csv: bad\n"


def test_watch_once_shows_one_round_and_fails_if_a_file_did() -> None:
    done = firn(["table", "watch", "sales", "--once"], Service(**WATCHED))
    assert done == Called(1, f"{SHOWN}3 files: 1 ingested, 1 unchanged, 0 waiting, 1 failed\n", "")


def test_watch_repeats_rounds_until_ctrl_c_and_shows_only_what_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("service.cli.commands.ingest.time.sleep", sleep)
    nothing = {**WATCHED, "files_ingested": 0, "files_failed": 0, "files": []}
    again = {**WATCHED, "files_ingested": 0, "files": [WATCHED["files"][1]]}
    service = Answering(WATCH=[nothing, WATCHED, again])
    done = firn(["table", "watch", "sales", "--interval", "7"], service)
    assert (done.code, done.out, pauses) == (130, SHOWN, [7, 7, 7])


def test_replay_says_how_many_rows_the_corrected_rules_let_in() -> None:
    service = Service(records_read=12, records_ingested=10, records_rejected=2)
    done = firn(["table", "replay", "sales_table.yaml", "--from", "2024-01-01", "--to", "2024-01-31"], service)
    assert done.out == "✓ Replayed 12 quarantined rows: 10 ingested\n  2 rows rejected\n"
    request = {"operation": "REPLAY", **ADDRESS, "from": "2024-01-01", "to": "2024-01-31"}
    assert sent(service) == request


CHANGES = [{"column": "store", "change": "added", "to": "VARCHAR"}]


def test_accepted_drift_is_written_to_the_dataset_file_if_that_is_asked_for(folder: Path) -> None:
    service = Service(changes=CHANGES, dataset="columns: []\n")
    done = firn(["table", "accept-drift", "sales_table.yaml", "--write"], service)
    assert done == Called(0, "✓ Accepted 1 change\n  store added: VARCHAR\n", "")
    assert (folder / "configs/sales_dataset.yaml").read_text() == "columns: []\n"


def test_accepted_drift_is_shown_if_the_dataset_file_does_not_have_it(folder: Path) -> None:
    service = Service(changes=CHANGES, dataset="columns: []\n")
    done = firn(["table", "accept-drift", "sales_table.yaml"], service)
    assert "configs/sales_dataset.yaml does not have this yet" in done.out
    assert done.out.endswith("columns: []\n")
    assert (folder / "configs/sales_dataset.yaml").read_text() == DATASET


PLAN = {
    "plan": {
        "changes": [
            {"path": "description", "from": None, "to": "new"},
            {"path": "filters", "from": [{"column": "a"}, {"column": "b"}], "to": [{"column": "b"}, {"column": "c"}]},
            {"path": "compaction.strategy.type", "from": "monthly", "to": "weekly", "effect": "periods are weeks"},
        ]
    }
}
LINES = (
    '  + description: "new"\n'
    "  ~ filters\n"
    '      - {"column": "a"}\n'
    '      + {"column": "c"}\n'
    '  ~ compaction.strategy.type: "monthly" -> "weekly"  (periods are weeks)\n'
)


def applying() -> Answering:
    return Answering(APPLY_TABLE_DRY={**PLAN, "dry_run": True}, APPLY_TABLE={**PLAN["plan"], "applied": True})


def test_apply_shows_the_difference_and_asks() -> None:
    service = applying()
    done = firn(["table", "apply", "sales_table.yaml"], service, Typing("no\n"))
    assert (done.code, len(service.asked)) == (4, 1)
    assert done.err.startswith(LINES)
    done = firn(["table", "apply", "sales_table.yaml"], service, Typing("yes\n"))
    assert done.out == f"✓ Applied 3 changes to default.sales\n{LINES}"
    assert {key: service.asked[-1][key] for key in ("operation", "table", "dataset")} == {
        "operation": "APPLY_TABLE",
        "table": "sales",
        "dataset": DATASET,
    }


def test_control_characters_of_a_difference_do_not_reach_the_terminal() -> None:
    planned = {"plan": {"changes": [{"path": "description", "from": "old\x1b[2J", "to": "new"}]}}
    done = firn(["table", "apply", "sales_table.yaml"], Answering(APPLY_TABLE_DRY=planned), Typing("no\n"))
    assert '  ~ description: "old\\x1b[2J" -> "new"' in done.err


def test_a_dry_run_of_apply_only_shows_the_difference() -> None:
    service = applying()
    done = firn(["table", "apply", "sales_table.yaml", "--dry-run"], service)
    assert done == Called(0, f"3 changes to default.sales would be applied\n{LINES}", "")
    assert [request.get("dry_run") for request in service.asked] == [True]


def test_apply_without_a_difference_does_not_ask() -> None:
    service = Answering(APPLY_TABLE_DRY={"plan": {"changes": []}, "dry_run": True})
    done = firn(["table", "apply", "sales_table.yaml"], service)
    assert done == Called(0, "default.sales is as sales_table.yaml says; nothing to change\n", "")


def test_a_merged_month_is_shown_with_its_file_and_the_files_that_were_deleted(folder: Path) -> None:
    period = {"period": "2024-01", "records": 2239, "files_before": 31, "files_after": 1, "source_files_deleted": 31}
    period["output"] = str(folder / "data/tables/sales/2024-01.parquet")
    service = Service(compacted=True, stats={}, periods=[period], periods_skipped=[])
    done = firn(["table", "compact", "sales_table.yaml", "--period", "2024-01", "--delete-source"], service)
    assert done.out == (
        "✓ Compacted 31 files (2,239 rows)\n  Output: data/tables/sales/2024-01.parquet\n  Deleted 31 source files\n"
    )
    request = sent(service)
    assert (request["period"], request["delete_source"], request["table"]) == ("2024-01", True, "sales")


def test_periods_that_are_not_due_are_named_with_the_reason() -> None:
    skipped = [{"period": "2024-02", "reason": "dates are missing", "missing_dates": ["2024-02-03", "2024-02-04"]}]
    service = Service(compacted=False, stats={}, periods=[], periods_skipped=skipped)
    done = firn(["table", "compact", "sales", "--period", "due"], service)
    assert done.out == "2024-02 left out: dates are missing: 2024-02-03 to 2024-02-04\n"


STATUS = {
    "ingestions": 31,
    "first_date": "2024-01-01",
    "last_date": "2024-02-01",
    "missing_dates": ["2024-01-05"],
    "records": 2239,
    "files": 2,
    "bytes": 4096,
    "compactions": 1,
    "first_compacted_period": "2024-01",
    "last_compacted_period": "2024-01",
    "periods": [
        {"period": "2024-01", "days": 30, "missing_dates": ["2024-01-05"], "records": 2200, "files": 1, "bytes": 4000}
        | {"compacted": True},
    ],
    "errors": [
        {"date": "2024-01-05", "source": "a.csv", "message": "INVALID_FILE"} | {"refused_at": "2024-01-06T03:00:00Z"}
    ],
    "ledger": "/srv/.firn/ledger.db",
}


def test_the_status_of_a_table_names_the_ledger_and_the_missing_dates() -> None:
    service = Service(**STATUS)
    done = firn(["table", "status", "sales_table.yaml"], service)
    assert sent(service) == {"operation": "TABLE_STATUS", **ADDRESS}
    for line in (
        "dates          2024-01-01 to 2024-02-01",
        "missing dates  1: 2024-01-05",
        "rows           2,239",
        "compacted      2024-01",
        "ledger         /srv/.firn/ledger.db",
        "2024-01    30  2,200      1  3.9 KiB  yes        2024-01-05",
    ):
        assert line in done.out.splitlines(), done.out
    assert re.search(r"^2024-01-05 +2024-01-06 03:00Z +a\.csv +INVALID_FILE$", done.out, re.MULTILINE), done.out


def test_the_status_of_all_tables_is_as_before() -> None:
    service = Service(recommendations=[])
    assert firn(["table", "status"], service).code == 0
    assert sent(service) == {"operation": "RECOMMEND", "tenant_id": "default"}


ROWS = {"data": [{"product": "Bagel", "sold": 3}], "metadata": {"has_more": False}}


def test_a_query_by_sql_names_its_tables_in_the_namespace_of_the_table() -> None:
    service = Service(**ROWS)
    done = firn(["table", "query", "shop.sales", "SELECT 1", "--limit", "5"], service)
    assert done.out == "product  sold\nBagel       3\n✓ 1 row returned\n"
    request = {"operation": "QUERY", "tenant_id": "default", "namespace": "shop", "sql": "SELECT 1", "limit": 5}
    assert sent(service) == request


def test_a_query_without_sql_reads_the_table() -> None:
    service = Service(**ROWS)
    assert firn(["table", "query", "sales_table.yaml", "-o", "csv"], service).out == "product,sold\nBagel,3\n"
    assert sent(service) == {"operation": "QUERY", **ADDRESS, "limit": 100}


def test_an_exported_file_is_the_destination_of_an_ingest(folder: Path) -> None:
    (folder / "t.yaml").write_text("name: sales\nexport: true\nstorage: {type: local, base_path: out}\n")
    line = ["table", "ingest", "t.yaml", "data/sales_2024-01-01.csv", "--date", "2024-01-01"]
    assert firn(line, Service(**INGESTED)).out.endswith("  Destination: default.sales, 2024-01\n")
    (folder / "out").mkdir()
    (folder / "out" / "2024-01-01.parquet").touch()
    assert firn(line, Service(**INGESTED)).out.endswith("  Destination: out/2024-01-01.parquet\n")


def test_an_export_names_its_files(folder: Path) -> None:
    files = [
        {"path": str(folder / "out" / f"2024-01-{day:02}.parquet"), "records": 5, "bytes": 900} for day in range(1, 13)
    ]
    done = firn(["table", "export", "sales_table.yaml"], Service(files=files, files_written=12, files_current=3))
    assert done.out.startswith("✓ Exported 12 files\n  out/2024-01-01.parquet: 5 rows, 900 B\n")
    assert done.out.endswith("  and 2 more files\n  3 files up to date\n")
    dry = firn(["table", "export", "sales", "--dry-run"], Service(dry_run=True, plan={"files": [{"path": "x"}]}))
    assert dry.out == "1 file would be written\n  x\n"


class Fetching(Service):
    """A service that responds with rows as an Arrow stream."""

    def fetch(self, request: dict[str, Any], media_type: str) -> Any:
        self.asked.append((request["operation"], media_type))
        return self.answer["stream"] if self.answer["success"] else self.answer


def test_parquet_has_the_rows_with_their_types() -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "at": pa.array([0, 1], pa.timestamp("us", "UTC"))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    service = Fetching(stream=sink.getvalue().to_pybytes())
    out = io.TextIOWrapper(io.BytesIO())
    line = ["table", "query", "sales", "SELECT 1", "-o", "parquet"]
    assert main(line, {}, stdin=io.StringIO(), stdout=out, stderr=io.StringIO(), connection=service) == 0
    assert pq.read_table(io.BytesIO(out.buffer.getvalue())).equals(rows)
    assert service.asked == [("QUERY", "application/vnd.apache.arrow.stream")]
    service.answer = {"success": False, "error": {"code": "X", "message": "no luck"}}
    assert firn(line, service) == Called(1, "", "firn: X: no luck\n")


@pytest.mark.parametrize("source", ["sales.csv", "{year}.csv", "{hour}_{date}.csv"])
def test_the_files_of_dates_that_are_sent_need_a_path_for_each_date(source: str) -> None:
    day = date(2024, 1, 1)
    with pytest.raises(UsageError, match=re.escape(f"'{source}' cannot be used: ")):
        upload_range(Service(), {"source": source}, [day, day], "%Y-%m-%d", lambda _: None)

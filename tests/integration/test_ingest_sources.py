"""Files to ingest, wherever they come from: uploaded, split, changed while they are read; and the log of them."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from service.engine.jobs.ingest import files
from service.ledger.ingestions import IngestionRecords
from service.ledger.ledger import Ledger
from tests.harness import Firn, wait_until
from tests.support.ingesting import HEADER, IngestedTable, row, sha256
from tests.support.marks import thorough_after


@pytest.fixture
def sales(firn: Firn, tenant: str, tmp_path: Path) -> IngestedTable:
    return IngestedTable(firn, tenant, tmp_path)


def upload(table: IngestedTable, content: str, query: str, **headers: str) -> dict[str, Any]:
    path = f"/tables/{table.tenant}/default/sales/ingest?{query}"
    body: dict[str, Any] = table.firn.client.post(path, content=content.encode(), headers=headers).json()
    return body


def test_an_uploaded_file_is_ingested_and_not_kept(sales: IngestedTable) -> None:
    content = HEADER + row(1) + row("x")
    done = upload(sales, content, "date=2024-01-01&name=jan.csv")
    assert (done["success"], done["records_ingested"], done["content_hash"]) == (True, 1, sha256(content))
    assert [r["_firn_file"] for r in sales.dated()] == ["jan.csv"]
    assert upload(sales, content, "date=2024-01-01&name=jan.csv")["unchanged"] is True
    assert list((sales.firn.home / "spool").iterdir()) == []


def test_an_upload_with_a_key_is_ingested_once(sales: IngestedTable) -> None:
    content = HEADER + row(1)
    query = "date=2024-01-01&mode=append&name=a.csv"
    first = upload(sales, content, query, **{"Idempotency-Key": "k"})
    assert upload(sales, content, query, **{"Idempotency-Key": "k"}) == first
    assert sales.ids() == [1]
    assert upload(sales, HEADER + row(2), query, **{"Idempotency-Key": "k"})["error"]["code"] == "KEY_REUSED"


@pytest.mark.parametrize(
    ("query", "field"),
    [("", "date"), ("date=x", "date"), ("date=2024-01-01&mod=append", "mod"), ("date=2024-01-01&async=1", "async")],
)
def test_a_wrong_parameter_of_an_upload_is_named(sales: IngestedTable, query: str, field: str) -> None:
    answer = upload(sales, HEADER, query)
    assert (answer["success"], answer["error"]["field"]) == (False, field)


@pytest.mark.parametrize(
    "name", thorough_after(2, ["_a.csv", "[a]*{b} #%25?.csv", ".a.csv", "[a]*{b}.csv", "a b#%25?.csv", "é:ü.csv"])
)
def test_a_file_may_have_any_name(sales: IngestedTable, name: str) -> None:
    done = sales.ingest("2024-01-01", HEADER + row(1) + row("x"), name)
    assert (done["records_ingested"], done["records_rejected"]) == (1, 1)
    assert [r["_firn_file"].rpartition("/")[2] for r in sales.dated()] == [name]


@pytest.mark.thorough
def test_rejects_have_their_line_also_in_a_file_of_several_splits(
    sales: IngestedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MIN_SPLIT", 4096)
    monkeypatch.setattr(files, "_MAX_SPLIT", 4096)
    width = len(row(10000))
    # Lines of different lengths, some of which begin exactly where a split does.
    lines = [row(n if n % 7 else "x", product="p" * (n % 13)) for n in range(1, 2000)]
    text = HEADER + "".join(lines)
    start = 4096 - len(HEADER)
    aligned = HEADER + row(1, product="p" * (start - width)) + "".join(lines)
    for day, content in (("2024-01-01", text), ("2024-01-02", aligned), ("2024-01-03", text.replace("\n", "\r\n"))):
        done = sales.ingest(day, content)
        assert done["records_rejected"] == 1999 // 7
        found = {r["line"]: r["raw"] for r in sales.quarantined() if r["ingest_date"] == day}
        expected = content.replace("\r\n", "\n").split("\n")
        assert found == {n: line for n, line in enumerate(expected, 1) if line.startswith("x,")}


def test_the_log_is_rebuilt_from_the_table(sales: IngestedTable) -> None:
    content = HEADER + row(1) + row("x")
    sales.ingest("2024-01-01", content)
    sales.ingest("2024-01-02", HEADER + row(2))
    records = IngestionRecords(sales.firn.app.parts[Ledger])
    before = records.done(sales.loaded.uuid)
    with closing(sqlite3.connect(sales.firn.home / "ledger.db")) as ledger, ledger:
        assert ledger.execute("DELETE FROM ingestions WHERE table_uuid = ?", (sales.loaded.uuid,)).rowcount == 2
    assert sales.ingest("2024-01-01", content)["unchanged"] is True
    assert records.done(sales.loaded.uuid) == before
    assert sales.ids() == [1, 2]


def test_sqlite3_reads_the_log_while_the_service_runs(sales: IngestedTable) -> None:
    content = HEADER + row(1) + row("x")
    done = sales.ingest("2024-01-01", content)
    sales.refuse("INVALID_FILE", "2024-01-02", "")
    with closing(sqlite3.connect(f"file:{sales.firn.home / 'ledger.db'}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        tenant = (sales.tenant,)
        log = [
            dict(r) for r in connection.execute("SELECT * FROM ingestion_log WHERE tenant_id = ? ORDER BY 5", tenant)
        ]
        [registered] = connection.execute("SELECT * FROM table_registry WHERE tenant_id = ?", tenant)
        assert (registered["table_name"], registered["dates"], registered["refused"]) == ("sales", 1, 1)
    assert [(one["ingest_date"], one["state"]) for one in log] == [("2024-01-01", "done"), ("2024-01-02", "refused")]
    assert (log[0]["run_id"], log[0]["content_hash"]) == (done["run_id"], sha256(content))
    assert (log[0]["records_read"], log[0]["records_ingested"], log[0]["records_rejected"]) == (2, 1, 1)


def test_an_ingest_in_the_background_is_a_job(sales: IngestedTable) -> None:
    path = sales.file("a.csv", HEADER + row(1) + row("x"))
    job = sales.ok("INGEST", source=str(path), date="2024-01-01", **{"async": True})["job_id"]
    shown: dict[str, Any] = {}

    def has_ended() -> bool:
        shown.update(sales.firn.client.get(f"/jobs/{job}").json()["job"])
        return shown["state"] not in ("queued", "running")

    wait_until(has_ended, 60)
    assert (shown["kind"], shown["state"], shown["result"]["records_ingested"]) == ("INGEST", "done", 1)
    assert (shown["progress"]["records_read"], shown["progress"]["records_rejected"]) == (2, 1)


def test_an_empty_day_has_no_rows(sales: IngestedTable) -> None:
    sales.ingest("2024-01-01", HEADER + row(1))
    done = sales.ingest("2024-01-01", HEADER)
    assert (done["records_read"], done["records_ingested"], done["records_replaced"]) == (0, 0, 1)
    assert sales.rows() == []
    assert sales.ingest("2024-01-01", HEADER)["unchanged"] is True

"""The service ingests the new files of watched folders by itself, and on request."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from service.ingest.tasks.watch import Watcher
from tests.harness import Firn, wait_until
from tests.support.ingesting import HEADER, IngestedTable, row


def watched(firn: Firn, tenant: str, folder: Path, **watch: Any) -> IngestedTable:
    rules = {"folder": str(folder), "pattern": "sales_{date}.csv", **watch}
    return IngestedTable(firn, tenant, folder, ingestion={"watch": rules})


@pytest.fixture
def watching(firn: Firn) -> Iterator[None]:
    """The service's watcher looks again and again, for one test."""
    watcher = replace(firn.app.parts[Watcher], every_s=0.2, _stopping=Event())
    watcher.start()
    yield
    watcher.close(60)


@pytest.mark.usefixtures("watching")
def test_the_service_ingests_new_changed_and_late_files_by_itself(firn: Firn, tenant: str, tmp_path: Path) -> None:
    table = watched(firn, tenant, tmp_path, settle_seconds=0)
    table.file("sales_2024-01-02.csv", HEADER + row(2))
    wait_until(lambda: table.ids() == [2], 60)
    table.file("sales_2024-01-01.csv", HEADER + row(1))
    table.file("sales_2024-01-02.csv", HEADER + row(20) + row(21))
    wait_until(lambda: table.ids() == [1, 20, 21], 60)
    assert sorted(os.listdir(tmp_path)) == ["sales_2024-01-01.csv", "sales_2024-01-02.csv"]


def test_a_round_on_request_reads_what_is_complete(firn: Firn, tenant: str, tmp_path: Path) -> None:
    table = watched(firn, tenant, tmp_path, done_marker="{file}.done")
    for day in (1, 2):
        table.file(f"sales_2024-01-0{day}.csv", HEADER + row(day))
    waiting = table.ok("WATCH")
    assert (waiting["files_found"], waiting["files_waiting"]) == (2, 2)
    table.file("sales_2024-01-02.csv", "id,other\n1,2\n")
    for day in (1, 2):
        table.file(f"sales_2024-01-0{day}.csv.done", "")
    done: dict[str, Any] = {}

    def is_done() -> bool:  # by this request, or by the service's own round
        done.update(table.ok("WATCH"))
        return bool(done["files_waiting"] == 0)

    wait_until(is_done, 60)
    assert (done["files_ingested"] + done["files_unchanged"], done["files_failed"]) == (1, 1)
    [failed] = [one for one in done["files"] if one["state"] == "failed"]
    assert (failed["date"], Path(failed["path"]).name) == ("2024-01-02", "sales_2024-01-02.csv")
    assert "columns" in failed["error"]
    assert table.ids() == [1]


def test_a_table_without_a_folder_is_refused(firn: Firn, tenant: str, tmp_path: Path) -> None:
    assert IngestedTable(firn, tenant, tmp_path).fail("INVALID_REQUEST", "WATCH")["field"] == "table"

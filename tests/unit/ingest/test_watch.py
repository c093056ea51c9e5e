"""A watched folder: each new or changed file is ingested once, by one of several instances, in order of date."""

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from service.catalog.tables import Catalog, Table
from service.errors import InvalidFile, InvalidRequest
from service.ingest.day_files import DayFile, FileOutcome
from service.ingest.files import read_dataset, read_table_file
from service.ingest.history import IngestHistory
from service.ingest.sources.roots import Roots
from service.ingest.tables import ingestion_layout, ingestion_properties
from service.ingest.tasks.backfill import DayOutcome
from service.ingest.tasks.watch import Watcher
from service.ledger.ingestions import IngestionRecord, IngestionRecords
from service.ledger.jobs import JobRecords
from service.model.call import Call
from service.model.ingest.fingerprint import fingerprint_of
from service.model.ingest.reserved import DATASET_PROPERTY, dataset_of
from service.model.names import TableName
from service.model.times import now_ms
from tests.fakes import FakeOwners, MuteLedger
from tests.unit.iceberg_tables import open_catalog

NAME = TableName("acme", "shop", "sales")
OLD_S = 1_700_000_000


@dataclass
class Folder:
    """A watched folder, its table, and instances of the service that ingest without reading."""

    home: Path
    watch: dict[str, Any] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)
    """The names of files that were ingested, in order."""
    bad: set[str] = field(default_factory=set)
    seen: set[bytes] = field(default_factory=set)
    during: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        self.files = self.home / "in"
        self.files.mkdir()
        self.catalog: Catalog = open_catalog(self.home / "data")
        self._create()

    def replace_table(self) -> None:
        """What another program does: it drops the table, and creates another one of its name."""
        self.catalog.drop(self.table, purge=False)
        self._create()

    def _create(self) -> None:
        config = {
            "name": "sales",
            "ingestion": {"watch": {"folder": str(self.files), "pattern": "sales_{date}.csv", **self.watch}},
        }
        table_file, dataset = read_table_file(config), read_dataset({"columns": [{"name": "id", "type": "BIGINT"}]})
        schema, partition = ingestion_layout(dataset)
        properties = {"format-version": "2", **ingestion_properties(table_file, dataset)}
        self.catalog.create(NAME, schema, partition, properties)

    @property
    def table(self) -> Table:
        return self.catalog.load(NAME)

    def instance(self, owners: FakeOwners | None = None) -> Watcher:
        ledger = MuteLedger(f"sqlite:///{self.home / 'ledger.db'}")
        if owners is not None:
            ledger.owners = owners
        history = IngestHistory(IngestionRecords(ledger))

        def ingest(table: Table, files: Sequence[DayFile], call: Call) -> Iterator[DayOutcome]:
            for file in files:
                self.during()
                yield self._ingest(history, table, file)

        return Watcher(self.catalog, Roots(), history, JobRecords(ledger), ingest)

    def put(self, day: int, content: str = "x", seconds: int = 0) -> Path:
        path = self.files / f"sales_2024-01-{day:02}.csv"
        path.write_text(content)
        os.utime(path, (OLD_S + seconds, OLD_S + seconds))
        return path

    def _ingest(self, history: IngestHistory, table: Table, file: DayFile) -> DayOutcome:
        name = Path(file.source.name).name
        content, now = Path(file.source.place).read_bytes(), now_ms()
        outcome = FileOutcome(file.day, "2024-01", file.source.name)
        if content in self.seen:
            return DayOutcome(file.day, "unchanged", file.source.name, outcome)
        self.read.append(name)
        assert file.version is not None
        is_bad = name in self.bad
        record = IngestionRecord(
            uuid.uuid4().hex,
            str(file.day),
            file.source.name,
            "",
            fingerprint_of(dataset_of(table.properties)),
            "restate",
            file_bytes=file.version[0],
            file_modified_ms=file.version[1],
            ended_ms=now,
            state="refused" if is_bad else "done",
            error="it is bad" if is_bad else None,
        )
        history.record(table, [record])
        if is_bad:
            return DayOutcome(file.day, "failed", file.source.name, outcome, InvalidFile("it is bad"))
        self.seen.add(content)
        return DayOutcome(file.day, "ingested", file.source.name, outcome)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def states(watcher: Watcher, folder: Folder) -> list[str]:
    return [one.state for one in watcher.round(folder.table, Call())]


def test_new_files_are_ingested_once_in_order_of_date(folder: Folder) -> None:
    for day in (3, 1, 2):
        folder.put(day, f"{day}")
    (folder.files / "notes.txt").write_text("no date")
    watcher = folder.instance()
    assert states(watcher, folder) == ["ingested"] * 3
    assert folder.read == [f"sales_2024-01-0{day}.csv" for day in (1, 2, 3)]
    assert states(watcher, folder) == ["unchanged"] * 3
    assert states(folder.instance(), folder) == ["unchanged"] * 3, "also after a restart"
    assert sorted(os.listdir(folder.files)) == ["notes.txt", *(f"sales_2024-01-0{day}.csv" for day in (1, 2, 3))]


def test_late_and_changed_files_are_ingested_whenever_they_come(folder: Folder) -> None:
    watcher = folder.instance()
    folder.put(5, "5")
    states(watcher, folder)
    folder.put(1, "1")
    folder.put(5, "5 again", seconds=9)
    assert states(watcher, folder) == ["ingested", "ingested"]
    assert folder.read[1:] == ["sales_2024-01-01.csv", "sales_2024-01-05.csv"]


def test_a_file_that_was_written_again_as_it_was_is_read_once_more_only(folder: Folder) -> None:
    watcher = folder.instance()
    folder.put(1, "1")
    states(watcher, folder)
    folder.put(1, "1", seconds=60)
    assert [states(watcher, folder) for _ in range(2)] == [["unchanged"], ["unchanged"]]
    records = watcher.history.records.of_table(folder.table.uuid)
    assert [one.state for one in records] == ["done", "unchanged"]
    assert folder.read == ["sales_2024-01-01.csv"]


def test_a_refused_file_is_tried_again_once_it_or_the_dataset_changes(folder: Folder) -> None:
    watcher, name = folder.instance(), "sales_2024-01-01.csv"
    folder.bad.add(name)
    folder.put(1, "1")
    [first] = watcher.round(folder.table, Call())
    [again] = watcher.round(folder.table, Call())
    assert [(one.state, one.error) for one in (first, again)] == [("failed", "it is bad")] * 2
    assert folder.read == [name]
    folder.put(1, "other", seconds=9)
    assert states(watcher, folder) == ["failed"]
    assert folder.read == [name] * 2
    with folder.table.iceberg.transaction() as change:
        change.set_properties({DATASET_PROPERTY: '{"columns":[{"name":"id","type":"VARCHAR"}]}'})
    folder.bad.clear()
    assert states(watcher, folder) == ["ingested"]
    assert folder.read == [name] * 3


def test_a_file_that_may_not_be_complete_waits(tmp_path: Path) -> None:
    folder = Folder(tmp_path, {"done_marker": "{file}.done"})
    path = folder.put(1)
    watcher = folder.instance()
    assert states(watcher, folder) == ["waiting"]
    path.with_name(path.name + ".done").touch()
    assert states(watcher, folder) == ["ingested"]


def test_while_one_instance_ingests_the_others_leave_the_folder_alone(folder: Folder) -> None:
    one = FakeOwners("one")
    first, second = folder.instance(one), folder.instance(one.beside("two"))
    folder.put(1, "1")
    seen: list[list[str]] = []
    # The lock belongs to a thread: the other instance looks from one of its own.
    folder.during = lambda: _in_thread(lambda: seen.append(states(second, folder)))
    assert states(first, folder) == ["ingested"]
    assert seen == [["waiting"]]
    assert states(second, folder) == ["unchanged"]
    assert folder.read == ["sales_2024-01-01.csv"]


def test_two_rounds_in_one_process_do_not_read_a_file_twice(folder: Folder) -> None:
    watcher = folder.instance()
    folder.put(1, "1")
    seen: list[list[str]] = []
    folder.during = lambda: seen.append(states(watcher, folder))
    assert states(watcher, folder) == ["ingested"]
    assert seen == [["waiting"]]


def test_every_table_that_watches_a_folder_is_found_without_the_ledger(folder: Folder) -> None:
    folder.put(1, "1")
    assert [one.state for one in folder.instance().look()] == ["ingested"]


def test_all_tables_are_looked_at_only_once_and_only_if_the_ledger_knows_none(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[tuple[str, str]] = []
    list_tables = Catalog.list_tables
    monkeypatch.setattr(Catalog, "list_tables", lambda *a: listed.append(a[1:]) or list_tables(*a))
    first = folder.instance()
    for _ in range(3):
        first.look()
    assert listed == [("acme", "shop")]
    for _ in range(3):
        folder.instance().look()
    assert listed == [("acme", "shop")], "the ledger knows the table by then"


def test_another_table_of_a_name_that_the_ledger_knows_is_left_alone(folder: Folder) -> None:
    watcher = folder.instance()
    watcher.look()
    folder.replace_table()
    folder.put(1, "1")
    assert watcher.look() == []


def test_a_round_without_news_does_not_wait_for_others_who_write_to_the_ledger(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = folder.instance()
    folder.put(1, "1")
    watcher.look()

    def writes(*_: object) -> None:
        raise AssertionError("it writes to the ledger")

    monkeypatch.setattr(MuteLedger, "_writing", writes)
    watcher.history.complete(folder.table)


def test_one_table_that_fails_does_not_stop_the_others(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    watcher = folder.instance()
    watcher.look()
    folder.put(1, "1")

    def fail() -> None:
        raise InvalidRequest("no room")

    folder.during = fail
    assert watcher.look() == watcher.look() == []
    assert caplog.text.count("no room") == 1, "it is logged once"
    folder.during = lambda: None
    assert [one.state for one in watcher.look()] == ["ingested"]


def test_a_stop_cancels_the_round_in_progress(folder: Folder) -> None:
    watcher = folder.instance()
    folder.put(1, "1")
    folder.put(2, "2")
    reached, calls = threading.Event(), []

    def ingest(table: Table, files: Sequence[DayFile], call: Call) -> Iterator[DayOutcome]:
        calls.append(call)
        cancelled = threading.Event()
        call.on_cancel(cancelled.set)
        reached.set()
        assert cancelled.wait(30)
        call.check()
        yield from ()

    watcher.ingest, watcher.every_s = ingest, 0.01
    watcher.start()
    assert reached.wait(30)
    watcher.close(30)
    assert watcher._thread is not None
    assert not watcher._thread.is_alive()
    assert len(calls) == 1


def test_a_table_that_watches_nothing_is_refused(folder: Folder) -> None:
    with folder.table.iceberg.transaction() as change:
        change.set_properties({"firn.ingest.table": '{"name":"sales"}'})
    with pytest.raises(InvalidRequest, match="watches no folder"):
        folder.instance().round(folder.table, Call())


def test_the_date_is_that_of_the_name(folder: Folder) -> None:
    folder.put(7)
    assert [one.day for one in folder.instance().round(folder.table, Call())] == [date(2024, 1, 7)]


def _in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()

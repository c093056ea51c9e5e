"""Exported files follow the table: written once, again if its rows changed, and never older than the table."""

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.catalog.tables import Catalog, Table
from service.commits.holds import SnapshotHolds
from service.errors import InvalidRequest, StorageUnavailable
from service.ingest.exports.exports import Exports, ExportSelection
from service.ingest.exports.state import DatedChange, ExportState
from service.ingest.history import IngestHistory
from service.ingest.sources.roots import Roots
from service.ingest.tables import ingestion_layout, ingestion_properties
from service.ledger.exports import ExportRecord, ExportRecords
from service.ledger.ingestions import IngestionRecord, IngestionRecords, as_summary
from service.model.call import Call
from service.model.ingest.dataset import Dataset
from service.model.ingest.reserved import INGEST_PROPERTY
from service.model.ingest.table_file import TableFile
from tests.fakes import MuteLedger
from tests.unit.iceberg_tables import ORDERS, open_catalog

DAY, NEXT = date(2024, 1, 1), date(2024, 1, 2)
ALL = ExportSelection()


class Exporting:
    """An ingestion table without Spark, and its exported files."""

    def __init__(self, home: Path, ledger: str = "ledger.db", **config: Any) -> None:
        self.home, self.runs = home, 0
        self.catalog: Catalog = open_catalog(home / "home")
        storage = {"type": "local", "base_path": str(home / "out"), "format": "parquet"}
        self.config = TableFile.model_validate({"name": "orders", "export": True, "storage": storage, **config})
        dataset = Dataset.model_validate({"columns": [{"name": "id", "type": "BIGINT"}]})
        properties = ingestion_properties(self.config, dataset)
        self.table: Table = self.catalog.create(ORDERS, *ingestion_layout(dataset), properties)
        self.open(ledger)

    def open(self, ledger: str, roots: Roots | None = None) -> None:
        """Begin with a ledger that may be empty."""
        records = MuteLedger(f"sqlite:///{self.home / ledger}")
        history = IngestHistory(IngestionRecords(records))
        self.exports = Exports(self.catalog, SnapshotHolds(), history, ExportRecords(records), roots or Roots())

    def ingest(self, day: date, *ids: int, **summary: str) -> None:
        """Add the rows of a file of a date."""
        self.runs += 1
        run = IngestionRecord(f"run{self.runs}", str(day), "f.csv", "h", "d", "append", ended_ms=self.runs)
        found = summary or {INGEST_PROPERTY: json.dumps(as_summary([run]))}
        period = f"{day:%Y-%m}"
        rows = [{"id": i, "_firn_period": period, "_firn_date": day, "_firn_file": "f.csv"} for i in ids]
        self.loaded.iceberg.append(pa.Table.from_pylist(rows, _SCHEMA), snapshot_properties=found)

    @property
    def loaded(self) -> Table:
        return self.catalog.load(ORDERS)

    def after(self, *days: date) -> list[str]:
        return self.exports.after_ingest(self.loaded, days)

    def run(self, selection: ExportSelection = ALL) -> tuple[list[str], int]:
        done = self.exports.run(self.loaded, selection, Call())
        return [Path(one.path).name for one in done.written], done.current

    def files(self) -> dict[str, list[int]]:
        found = sorted((self.home / "out").rglob("*.parquet"))
        return {path.name: sorted(pq.read_table(path)["id"].to_pylist()) for path in found}


_SCHEMA = pa.schema(
    [("id", pa.int64()), ("_firn_period", pa.string()), ("_firn_date", pa.date32()), ("_firn_file", pa.string())]
)


@pytest.fixture
def sales(tmp_path: Path) -> Exporting:
    return Exporting(tmp_path)


def test_an_ingest_writes_the_file_of_its_date_only(sales: Exporting) -> None:
    sales.ingest(DAY, 1)
    sales.ingest(NEXT, 2)
    assert sales.after(NEXT) == []
    assert sales.files() == {"2024-01-02.parquet": [2]}


def test_the_file_of_a_date_is_written_without_reading_the_manifests_of_other_periods(sales: Exporting) -> None:
    sales.ingest(date(2023, 12, 31), 0)
    snapshot = sales.loaded.iceberg.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(sales.loaded.iceberg.io):
        Path(manifest.manifest_path.removeprefix("file://")).unlink()
    sales.ingest(DAY, 1)
    assert sales.after(DAY) == []
    assert sales.after(date(2023, 12, 31)) != []


def test_export_writes_what_is_missing_and_nothing_twice(sales: Exporting) -> None:
    sales.ingest(DAY, 1)
    sales.ingest(NEXT, 2)
    sales.after(NEXT)
    assert sales.run() == (["2024-01-01.parquet"], 1)
    assert sales.run() == ([], 2)
    (sales.home / "out/2024-01-02.parquet").unlink()
    assert sales.run() == (["2024-01-02.parquet"], 1)


def test_a_file_is_out_of_date_once_its_own_date_is_ingested_again(sales: Exporting) -> None:
    sales.ingest(DAY, 1)
    sales.ingest(NEXT, 2)
    sales.run()
    sales.ingest(DAY, 10)
    assert sales.run() == (["2024-01-01.parquet"], 1)
    assert sales.files() == {"2024-01-01.parquet": [1, 10], "2024-01-02.parquet": [2]}


def test_a_change_of_unknown_rows_makes_every_file_out_of_date(sales: Exporting) -> None:
    sales.ingest(DAY, 1)
    sales.ingest(NEXT, 2)
    sales.run()
    sales.ingest(NEXT, 20, note="an edit")
    assert sales.run() == (["2024-01-01.parquet", "2024-01-02.parquet"], 0)


def test_a_merged_period_has_a_file_too_and_may_replace_those_of_its_days(sales: Exporting) -> None:
    for day in (DAY, NEXT):
        sales.ingest(day, day.day)
        sales.after(day)
    kept, _ = sales.exports.after_compaction(sales.loaded, "2024-01", delete_days=False)
    assert (kept.days_deleted, sorted(sales.files())) == (
        0,
        ["2024-01-01.parquet", "2024-01-02.parquet", "2024-01.parquet"],
    )
    replaced, _ = sales.exports.after_compaction(sales.loaded, "2024-01", delete_days=True)
    assert (replaced.written, replaced.days_deleted) == (None, 2)
    assert sales.files() == {"2024-01.parquet": [1, 2]}
    sales.ingest(NEXT, 20)
    assert sales.after(NEXT) == []
    assert sales.files() == {"2024-01.parquet": [1, 2, 20]}
    assert sales.run() == ([], 1)


def test_without_a_ledger_the_files_are_written_again(sales: Exporting) -> None:
    sales.ingest(DAY, 1)
    sales.run()
    sales.open("new.db")
    assert sales.run() == (["2024-01-01.parquet"], 0)
    assert sales.run() == ([], 1)


def test_a_file_that_cannot_be_written_is_a_warning_and_the_next_export_writes_it(sales: Exporting) -> None:
    (sales.home / "out").write_text("not a folder")
    sales.ingest(DAY, 1)
    [warning] = sales.after(DAY)
    assert "send EXPORT to repeat it" in warning
    (sales.home / "out").unlink()
    assert sales.run() == (["2024-01-01.parquet"], 0)


def test_a_table_that_does_not_export_writes_files_on_request_only(tmp_path: Path) -> None:
    sales = Exporting(tmp_path, export=False)
    sales.ingest(DAY, 1)
    assert sales.after(DAY) == []
    assert not (tmp_path / "out").exists()
    assert sales.run(ExportSelection((DAY, DAY))) == (["2024-01-01.parquet"], 0)
    assert sales.run(ExportSelection(period="2024-01")) == (["2024-01.parquet"], 0)
    assert sales.run(ExportSelection((NEXT, date(2024, 1, 5)))) == ([], 0)


@pytest.mark.parametrize("selection", [ExportSelection((NEXT, NEXT)), ExportSelection(period="2024-02")])
def test_what_was_not_ingested_is_not_exported_as_an_empty_file(sales: Exporting, selection: ExportSelection) -> None:
    sales.ingest(DAY, 1)
    with pytest.raises(InvalidRequest, match="nothing was ingested for"):
        sales.run(selection)
    assert sales.run() == (["2024-01-01.parquet"], 0)


def test_patterns_name_the_files_and_csv_is_written_on_request(tmp_path: Path) -> None:
    storage = {"type": "local", "base_path": str(tmp_path / "out"), "format": "csv"}
    hive = {"strategy": "hive", "pattern": "year={year}/month={month}/day={day}/data.csv"}
    sales = Exporting(tmp_path, storage=storage, partitioning=hive)
    sales.ingest(DAY, 1)
    sales.after(DAY)
    assert (tmp_path / "out/year=2024/month=01/day=01/data.csv").read_text() == '"id"\n1\n'


def test_what_a_killed_export_left_is_deleted_by_a_later_one_and_nothing_else(sales: Exporting) -> None:
    sales.ingest(DAY, 1)
    sales.run()
    out, id = sales.home / "out", "0123456789abcdef" * 2
    left, young, others = out / f".2024-01-01.parquet.{id}.tmp", out / f".young.{id}.tmp", out / ".theirs.tmp"
    for path in (left, young, others):
        path.write_text("half a file")
    for path in (left, others):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    assert sales.run() == ([], 1)
    assert [path.exists() for path in (left, young, others)] == [False, True, True]


def test_a_folder_outside_of_the_allowed_ones_is_refused(sales: Exporting) -> None:
    sales.ingest(DAY, 1)
    sales.open("ledger.db", Roots((str(sales.home / "in"),)))
    with pytest.raises(InvalidRequest) as refused:
        sales.run()
    assert refused.value.field == "config.storage.base_path"
    with pytest.raises(InvalidRequest):
        sales.exports.check(sales.config, ORDERS)
    assert len(sales.after(DAY)) == 1  # an ingest that is committed does not fail


def test_a_table_without_a_folder_cannot_be_exported(tmp_path: Path) -> None:
    sales = Exporting(tmp_path, export=False, storage=None)
    with pytest.raises(InvalidRequest, match="base_path"):
        sales.run()


def test_a_file_from_a_newer_snapshot_than_the_tables_is_out_of_date() -> None:
    state = ExportState(5, {"2024-01-01": ["a"]}, (DatedChange(5, frozenset({"2024-01-01"})),))
    written = ExportRecord("p", state.digest([DAY]), 5, 1, 1, 0)
    assert state.is_current(written, [DAY])
    rolled_back = ExportState(4, state.runs)
    assert not rolled_back.is_current(written, [DAY])
    assert not ExportState(5, {"2024-01-01": ["b"]}).is_current(written, [DAY])


def test_a_folder_that_cannot_be_written_is_named(sales: Exporting) -> None:
    (sales.home / "out").write_text("not a folder")
    sales.ingest(DAY, 1)
    with pytest.raises(StorageUnavailable, match="out"):
        sales.run()

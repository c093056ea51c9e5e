"""Exported files follow the table: written once, again if its rows changed, and never older than the table."""

import json
import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.catalog.tables import Catalog, Table
from service.commits.holds import SnapshotHolds
from service.engine.jobs.stream import select_visible
from service.engine.queries.batches import RowBatches
from service.errors import Forbidden, InvalidRequest, StorageUnavailable
from service.guard.policies import Policies
from service.ingest.exports.exports import Exports, ExportSelection
from service.ingest.exports.folders import SENDERS
from service.ingest.exports.state import DatedChange, ExportState
from service.ingest.exports.visible import folder_of
from service.ingest.history import IngestHistory
from service.ingest.sources.roots import Roots
from service.ingest.tables import ingestion_layout, ingestion_properties
from service.ledger.exports import ExportRecord, ExportRecords
from service.ledger.ingestions import IngestionRecord, IngestionRecords, as_summary
from service.model.call import Call
from service.model.identity.principal import Claim, Grant, Principal
from service.model.ingest.dataset import Dataset
from service.model.ingest.reserved import INGEST_PROPERTY
from service.model.ingest.table_file import TableFile
from service.model.policy.policy import POLICY_PROPERTY, PolicyRule, TablePolicy
from tests.fakes import MuteLedger
from tests.unit.iceberg_tables import ORDERS, open_catalog

DAY, NEXT = date(2024, 1, 1), date(2024, 1, 2)
ALL = ExportSelection()


class OneBatch(RowBatches):
    """A row with this id."""

    def __init__(self, id: int) -> None:
        self.batch = pa.record_batch({"id": [id]})
        self.schema = self.batch.schema
        self.closed = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter([self.batch])

    def close(self) -> None:
        self.closed = True


class VisibleRow:
    """An engine that shows one row of each file."""

    def __init__(self) -> None:
        self.id = 1000
        self.batches: list[OneBatch] = []

    def cancel(self, tag: str) -> None: ...

    def run_for(self, call: Call, job: Any, *asked: Any) -> OneBatch:
        assert job is select_visible
        self.batches.append(OneBatch(self.id))
        return self.batches[-1]


class Exporting:
    """An ingestion table without Spark, and its exported files."""

    def __init__(self, home: Path, ledger: str = "ledger.db", **config: Any) -> None:
        self.home, self.runs, self.engine = home, 0, VisibleRow()
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
        parts = (self.catalog, Policies(self.catalog), SnapshotHolds(), history, ExportRecords(records))
        self.exports = Exports(self.engine, *parts, roots or Roots())  # type: ignore[arg-type]

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

    def run(self, selection: ExportSelection = ALL, call: Call | None = None) -> tuple[list[str], int]:
        done = self.exports.run(self.loaded, selection, call or Call())
        return [Path(one.path).name for one in done.written], done.current

    def files(self) -> dict[str, list[int]]:
        found = sorted((self.home / "out").rglob("*.parquet"))
        return {path.name: sorted(pq.read_table(path)["id"].to_pylist()) for path in found}


def sender(name: str, **claims: Claim) -> Call:
    """The call of a sender to whom the table's policy shows a part."""
    return Call(principal=Principal(name, (Grant("writer"),), "jwt", claims))


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


class TestASenderWhomAPolicyBinds:
    """It gets files of its own, with what it may see."""

    @pytest.fixture
    def sales(self, tmp_path: Path) -> Exporting:
        sales = Exporting(tmp_path)
        sales.ingest(DAY, 1)
        self.protect(sales, {"id": {"lt": {"principal": "claims.most"}}})
        return sales

    def protect(self, sales: Exporting, rows: Any, **columns: str) -> None:
        policy = TablePolicy({"writer": PolicyRule(rows, columns)}, "salt")
        sales.catalog.set_properties(sales.loaded, {POLICY_PROPERTY: policy.text})

    def test_neither_reads_nor_replaces_those_of_the_table_or_of_others(self, sales: Exporting) -> None:
        assert sales.run() == (["2024-01-01.parquet"], 0)
        ann, bob = sender("jwt:ann", most=2), sender("jwt:bob", most=2)
        assert sales.run(call=ann) == sales.run(call=bob) == (["2024-01-01.parquet"], 0)
        assert sales.run() == sales.run(call=ann) == sales.run(call=bob) == ([], 1)
        found = {
            path.parent.name: pq.read_table(path)["id"].to_pylist()
            for path in sales.home.rglob("*.parquet")
            if "out" in path.parts
        }
        assert found.pop("out") == [1]
        assert sorted(name[:8] for name in found) == ["jwt_ann-", "jwt_bob-"]
        assert list(found.values()) == [[1000], [1000]]
        assert all(one.closed for one in sales.engine.batches)
        # An ingest brings only the table's files up to date; its senders ask for theirs.
        sales.ingest(DAY, 2)
        assert sales.after(DAY) == []
        assert (sales.run(), sales.run(call=ann)) == (([], 1), (["2024-01-01.parquet"], 0))

    def test_gets_them_again_if_it_sees_something_else(self, sales: Exporting) -> None:
        assert sales.run(call=sender("jwt:ann", most=2)) == (["2024-01-01.parquet"], 0)
        assert sales.run(call=sender("jwt:ann", most=3)) == (["2024-01-01.parquet"], 0)
        assert sales.run(call=sender("jwt:ann", most=3)) == ([], 1)
        self.protect(sales, {"id": {"lt": 3}}, id="null")
        assert sales.run(call=sender("jwt:ann", most=3)) == (["2024-01-01.parquet"], 0)
        # Also if it sees all by now: these are the table's files.
        sales.catalog.set_properties(sales.loaded, {POLICY_PROPERTY: None})
        sales.run(call=sender("jwt:ann"))
        assert pq.read_table(sales.home / "out/2024-01-01.parquet")["id"].to_pylist() == [1]

    @pytest.mark.parametrize("name", ["jwt:../../etc", "jwt:a/b", "acme/loader", "jwt:" + "x" * 300, "jwt:\u00e4\0"])
    def test_has_a_folder_in_that_of_the_table_whatever_its_name_is(self, name: str, sales: Exporting) -> None:
        sales.run(call=sender(name, most=2))
        [path] = (sales.home / "out").rglob("*.parquet")
        assert path.parent.parent == sales.home / "out" / SENDERS
        assert folder_of(sender(name).principal) != folder_of(sender(name + "_").principal)

    def test_gets_nothing_if_it_sees_no_column(self, sales: Exporting) -> None:
        self.protect(sales, None, id="hidden")
        with pytest.raises(Forbidden, match="no column"):
            sales.run(call=sender("jwt:ann"))

    @pytest.mark.parametrize("where", ["base_path", "pattern"])
    def test_has_a_folder_that_no_table_may_use(self, where: str, tmp_path: Path) -> None:
        config = {
            "base_path": {"storage": {"type": "local", "base_path": str(tmp_path / SENDERS), "format": "csv"}},
            "pattern": {"partitioning": {"strategy": "hive", "pattern": SENDERS + "/{year}-{month}-{day}.parquet"}},
        }[where]
        sales = Exporting(tmp_path, **config)
        with pytest.raises(InvalidRequest, match=SENDERS):
            sales.exports.check(sales.config, ORDERS)

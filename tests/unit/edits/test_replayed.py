"""What a change of rows says about the replayed rows that it takes away. Without Spark."""

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from service.catalog.tables import Table
from service.edits.replayed import ReplayedRows
from service.ingest.tables import ingestion_layout, ingestion_properties
from service.ledger.ingestions import IngestionRecord, IngestionRecords, IngestMode, as_summary
from service.model.ingest.dataset import Dataset
from service.model.ingest.reserved import INGEST_PROPERTY
from service.model.ingest.table_file import TableFile
from service.model.times import now_ms
from tests.fakes import MuteLedger
from tests.unit.iceberg_tables import ORDERS, open_catalog

_SCHEMA = pa.schema(
    [("id", pa.int64()), ("_firn_period", pa.string()), ("_firn_date", pa.date32()), ("_firn_file", pa.string())]
)


class Sales:
    """An ingestion table, of which the ledger knows what the test says."""

    def __init__(self, home: Path) -> None:
        self.catalog = open_catalog(home / "home")
        dataset = Dataset.model_validate({"columns": [{"name": "id", "type": "BIGINT"}]})
        properties = ingestion_properties(TableFile.model_validate({"name": "orders"}), dataset)
        self.catalog.create(ORDERS, *ingestion_layout(dataset), properties)
        self.records = IngestionRecords(MuteLedger(f"sqlite:///{home / 'ledger.db'}"))
        self.replayed, self.runs = ReplayedRows(self.records), 0

    @property
    def table(self) -> Table:
        return self.catalog.load(ORDERS)

    def commit(self, mode: IngestMode, day: str = "2024-01-01", rows: int = 1, is_recorded: bool = True) -> int:
        """The snapshot of an ingest or a replay."""
        self.runs += 1
        run = IngestionRecord(
            f"run{self.runs}", day, f"f{self.runs}.csv", "h", "d", mode, records_ingested=rows, ended_ms=now_ms()
        )
        summary = {INGEST_PROPERTY: json.dumps(as_summary([run]))}
        row = {"id": 1, "_firn_period": day[:7], "_firn_date": date.fromisoformat(day), "_firn_file": "f.csv"}
        self.table.iceberg.append(pa.Table.from_pylist([row], _SCHEMA), snapshot_properties=summary)
        [made] = [one for one in self.table.snapshots() if one.snapshot_id == self.table.current_snapshot_id]
        run = IngestionRecord(**{**vars(run), "snapshot_id": made.snapshot_id, "ended_ms": made.timestamp_ms})
        if is_recorded:
            self.records.add(ORDERS, self.table.uuid, [run])
        return made.snapshot_id

    def lost(self, to_id: int) -> list[str]:
        return self.replayed.lost_by_return(self.table, to_id, self.table.current_snapshot_id)


@pytest.fixture
def sales(tmp_path: Path) -> Sales:
    return Sales(tmp_path)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_the_replays_after_the_state_are_named_with_the_way_out(sales: Sales, is_recorded: bool) -> None:
    sales.commit("restate")
    before = sales.commit("replay", rows=2)
    sales.commit("replay", rows=3, is_recorded=is_recorded)
    after = sales.commit("restate", "2024-01-02")
    [warning] = sales.lost(before)
    assert warning.startswith("3 rows that REPLAY had taken from the quarantine")
    assert "2024-01-01 (run run3, file f3.csv)" in warning
    assert "run2" not in warning
    assert f"ROLLBACK to snapshot {after}" in warning
    assert sales.lost(after) == []


def test_rows_of_a_date_that_was_ingested_again_are_not_taken_away_by_the_return(sales: Sales) -> None:
    before = sales.commit("restate")
    sales.commit("replay")
    sales.commit("restate")
    assert sales.lost(before) == []


def test_a_replay_whose_snapshot_has_expired_counts_if_it_is_newer_than_the_state(sales: Sales) -> None:
    sales.commit("replay")
    before = sales.commit("restate", "2024-01-02")
    expired = sales.commit("replay", "2024-01-02")
    sales.commit("restate", "2024-01-03")
    sales.table.iceberg.maintenance.expire_snapshots().by_id(expired).commit()
    assert "1 row that REPLAY" in sales.lost(before)[0]
    assert "2024-01-01" not in sales.lost(before)[0]


def test_an_undo_names_the_replay_that_it_undoes(sales: Sales) -> None:
    sales.commit("restate")
    made = sales.commit("replay")
    [warning] = sales.replayed.lost_by_undo(sales.table, [made], None)
    assert warning.endswith("to get them back, INGEST the files of these dates again")
    assert sales.replayed.lost_by_undo(sales.table, [1], None) == []

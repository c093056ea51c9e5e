"""What the ledger keeps of requests that share a commit with edits comes back as it was."""

from pathlib import Path

import pyarrow as pa

from service.ledger.ledger import NewBatch
from service.ledger.requests import requests_by_batch
from service.ledger.undo_records import UndoRecords
from service.model.keyed.apply import apply_changes
from service.model.keyed.changes import AddRows, KeyedChange, RowCounts
from service.model.keyed.records import RequestPart, RequestRows, read_rows, rows_of
from service.model.names import TableName
from tests.fakes import QuickLedger
from tests.unit.model.keyed.test_apply import SCHEMA, as_found, put, table

ROW = {**dict.fromkeys(SCHEMA.names), "tags": ["a"]}
PARTS = (
    RequestPart("UPSERT", RowCounts(updated=1), 1, 1, 3, "key-1"),
    RequestPart("WRITE", RowCounts(inserted=2), key=None),
)
ORDERS = TableName("acme", "shop", "orders")


def kept(until_ms: int = 2**60) -> RequestRows:
    changes: list[KeyedChange] = [put({"id": 1, "region": "n"}), AddRows(table([{**ROW, "id": 2}, {**ROW, "id": 3}]))]
    return rows_of(apply_changes(SCHEMA, as_found([{**ROW, "id": 1}]), changes), 4, until_ms)


def test_the_rows_of_each_request_come_back() -> None:
    rows = kept()
    again = read_rows(rows.packed(), 4, 2**60)
    for one in (rows, again):
        assert one.of("removed", [0]).to_pylist() == [{**ROW, "id": 1}]
        assert one.of("added", [0]).to_pylist() == [{**ROW, "id": 1, "region": "n"}]
        assert [row["id"] for row in one.of("added", [0, 1]).to_pylist()] == [1, 2, 3]
        assert one.of("removed", [1]) == pa.Table.from_pylist([], schema=one.removed.schema)


def test_the_ledger_keeps_parts_with_the_batch_and_rows_until_they_cannot_be_undone(tmp_path: Path) -> None:
    ledger = QuickLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    for name, until_ms in (("old", 1), ("new", 2**60)):
        ledger.begin(NewBatch(name, ORDERS, "uuid-1", "MIXED", ["a", "b"], 3, parts=PARTS, rows=kept(until_ms)))
    ledger.forget(0, 0)
    notes = UndoRecords(ledger)
    assert notes.rows_by_request("old") is None
    found = notes.rows_by_request("new")
    assert found is not None
    assert (found.schema_id, found.until_ms, found.counts) == (4, 2**60, {"removed": [1, 0], "added": [1, 2]})
    batch = ledger.find("old")
    assert batch is not None
    assert batch.parts == PARTS
    assert (batch.part_of("key-1"), batch.part_of("another")) == (PARTS[0], None)
    assert requests_by_batch(ledger, ["old"])["old"].parts == PARTS

"""Which files an ingest need not read again: the table has their rows, as the current rules give them."""

from pathlib import Path
from typing import Any

import pytest

from service.ingest.files import read_dataset
from service.ingest.history import IngestHistory
from service.ingest.tables import ingestion_layout, ingestion_properties
from service.ledger.ingestions import IngestionRecord, IngestionRecords, IngestMode
from service.model.ingest.fingerprint import converts_alike, fingerprint_of
from service.model.ingest.table_file import TableFile
from tests.fakes import MuteLedger
from tests.unit.iceberg_tables import ORDERS, open_catalog

DAY = "2024-01-01"
COLUMNS: list[dict[str, Any]] = [{"name": "id", "type": "BIGINT"}]


def rules(**more: Any) -> str:
    return fingerprint_of(read_dataset({"columns": COLUMNS, **more}))


def at_least(number: int) -> str:
    return rules(filters=[{"column": "id", "operator": ">=", "value": number}])


OLD, NEW, OTHER = at_least(5), at_least(1), at_least(3)
CONVERTED = rules(csv={"delimiter": ";"})
Done = tuple[IngestMode, str, str]


@pytest.mark.parametrize(
    ("done", "wanted", "passes", "known"),
    [
        ([("restate", "a", OLD)], OLD, False, True),
        ([("restate", "a", OLD)], NEW, True, False),
        ([("restate", "b", NEW)], NEW, True, False),
        ([("restate", "a", OLD), ("replay", "a", NEW)], NEW, True, True),
        ([("restate", "a", OLD), ("replay", "a", NEW)], NEW, False, False),
        ([("restate", "a", OLD), ("replay", "a", NEW)], OLD, True, False),
        ([("restate", "a", OLD), ("replay", "a", OTHER), ("replay", "a", NEW)], NEW, True, True),
        ([("restate", "a", OLD), ("replay", "a", NEW), ("replay", "a", OTHER)], NEW, True, False),
        ([("restate", "a", NEW), ("replay", "a", NEW)], NEW, False, True),
        ([("restate", "a", CONVERTED), ("replay", "a", NEW)], NEW, True, False),
        ([("restate", "a", OLD), ("replay", "a", CONVERTED), ("replay", "a", NEW)], NEW, True, False),
        ([("restate", "a", OLD), ("append", "b", NEW), ("replay", "a", NEW)], NEW, True, False),
        ([("append", "a", OLD), ("replay", "a", NEW)], NEW, True, False),
        ([("restate", "b", OLD), ("replay", "b", NEW), ("restate", "a", NEW)], NEW, False, True),
    ],
)
def test_a_file_is_known_if_the_date_has_what_the_current_rules_make_of_it(
    tmp_path: Path, done: list[Done], wanted: str, passes: bool, known: bool
) -> None:
    catalog = open_catalog(tmp_path / "home")
    dataset = read_dataset({"columns": COLUMNS})
    properties = ingestion_properties(TableFile.model_validate({"name": "orders"}), dataset)
    table = catalog.create(ORDERS, *ingestion_layout(dataset), properties)
    history = IngestHistory(IngestionRecords(MuteLedger(f"sqlite:///{tmp_path / 'ledger.db'}")))
    for i, (mode, content, by) in enumerate(done):
        history.record(table, [IngestionRecord(f"run{i}", DAY, "f", content, by, mode, ended_ms=i)])
    file = IngestionRecord("", DAY, "", "a", wanted, "restate")
    assert history.has(table, file, lambda: passes) is known


def test_rules_convert_alike_if_only_their_filters_and_names_differ() -> None:
    assert converts_alike(OLD, NEW)
    assert converts_alike(OLD, rules(name="sales", description="daily"))
    assert not converts_alike(OLD, rules(on_error="null"))
    assert not converts_alike(OLD, fingerprint_of(read_dataset({"columns": [{"name": "id", "type": "INTEGER"}]})))
    assert len({OLD, NEW, rules(name="sales"), fingerprint_of(None)}) == 4
    assert len(OLD) == 64

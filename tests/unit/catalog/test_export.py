"""Files for readers without Iceberg."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.catalog.files.export import ExportFolder, all_rows
from service.catalog.tables import Table
from service.model.schema.definition import parse_schema
from tests.unit.iceberg_tables import ORDERS, open_catalog

COLUMNS = {"day": {"type": "date"}, "amount": {"type": "decimal(10,2)"}, "note": {"type": "string"}}
ROWS = [
    (date(2024, 1, 1), Decimal("1.50"), 'a "quoted", note'),
    (date(2024, 1, 2), Decimal("2.00"), None),
    (date(2024, 1, 1), None, "two\nlines"),
]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = open_catalog(tmp_path / "home").create(ORDERS, parse_schema({"fields": COLUMNS}), (), {})
    made.iceberg.append(pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in ROWS], _arrow()))
    return made


def _arrow() -> pa.Schema:
    return pa.schema([("day", pa.date32()), ("amount", pa.decimal128(10, 2)), ("note", pa.string())])


def write(folder: ExportFolder, table: Table, path: str) -> int:
    snapshot = table.current_snapshot_id
    assert snapshot is not None
    form = "csv" if path.endswith(".csv") else "parquet"
    rows = all_rows(table, snapshot, {"day": date(2024, 1, 1)})
    return folder.write(rows, path, form).records  # type: ignore[arg-type]


def test_an_exported_file_has_the_rows_of_its_value_and_no_marks_of_iceberg(table: Table, tmp_path: Path) -> None:
    folder = ExportFolder(f"{tmp_path}/out/", {})
    assert write(folder, table, "a/b.parquet") == 2
    found = pq.read_table(tmp_path / "out/a/b.parquet")
    assert found.to_pylist() == [dict(zip(COLUMNS, row, strict=True)) for row in ROWS if row[0] == date(2024, 1, 1)]
    assert all(not field.metadata for field in found.schema)
    assert folder.paths() == ["a/b.parquet"]


def test_csv_quotes_text_and_leaves_nulls_empty(table: Table, tmp_path: Path) -> None:
    write(ExportFolder(str(tmp_path / "out"), {}), table, "day.csv")
    text = (tmp_path / "out/day.csv").read_text()
    assert text == '"day","amount","note"\n2024-01-01,1.50,"a ""quoted"", note"\n2024-01-01,,"two\nlines"\n'


def test_a_file_without_rows_still_has_its_columns(table: Table, tmp_path: Path) -> None:
    snapshot = table.current_snapshot_id
    assert snapshot is not None
    folder = ExportFolder(str(tmp_path), {})
    none = all_rows(table, snapshot, {"day": date(2030, 1, 1)})
    assert folder.write(none, "none.parquet", "parquet").records == 0
    assert pq.read_schema(tmp_path / "none.parquet").names == list(COLUMNS)


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ExportFolder(str(tmp_path / "out"), {})
    write(folder, table, "day.csv")
    before = (tmp_path / "out/day.csv").read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(Exception, match="No space left"):
        write(folder, table, "day.csv")
    assert (tmp_path / "out/day.csv").read_bytes() == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["day.csv"]


def test_deleted_files_take_empty_folders_with_them(table: Table, tmp_path: Path) -> None:
    folder = ExportFolder(str(tmp_path / "out"), {})
    write(folder, table, "year=2024/month=01/a.csv")
    write(folder, table, "year=2024/b.csv")
    assert folder.delete(["year=2024/month=01/a.csv", "missing.csv"]) == 1
    assert folder.paths() == ["year=2024/b.csv"]
    assert not (tmp_path / "out/year=2024/month=01").exists()

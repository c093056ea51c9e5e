"""Files merged by Arrow: the same rows in their order, as Iceberg knows the columns, or a refusal."""

import pickle
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.engine.jobs.arrow.files import FileShape, MergePart, SchemaDiffers, field, local_path, merge

SCHEMA = pa.schema(
    [
        field("id", pa.int64(), True, 1),
        field("name", pa.string(), False, 2),
        field("price", pa.decimal128(10, 2), False, 3),
        field("x", pa.float64(), False, 4),
        field("day", pa.date32(), False, 5),
        field("at", pa.timestamp("us", tz="UTC"), False, 6),
    ]
)
SHAPE = FileShape(SCHEMA, "zstd", 1 << 20)


def row(i: int) -> dict[str, object]:
    none = i % 7 == 3
    return {
        "id": i,
        "name": None if none else f"n{i}",
        "price": None if none else Decimal(i) / 100,
        "x": float("nan") if i % 5 == 0 else i / 3,
        "day": date(2024, 1, 1 + i % 28),
        "at": datetime(2024, 1, 1, 12, 0, 0, i, UTC),
    }


def files(folder: Path, count: int, each: int, schema: pa.Schema = SCHEMA) -> list[str]:
    paths = []
    for i in range(count):
        path = folder / f"day=1 %2F {i:03d}.parquet"
        rows = pa.Table.from_pylist([row(i * each + k) for k in range(each)], schema=schema)
        pq.write_table(rows, path, store_schema=False, store_decimal_as_integer=True)
        paths.append(f"file:{path}")
    return paths


def read(part: MergePart) -> pa.Table:
    return pq.read_table(local_path(part.to), partitioning=None)


def test_the_rows_of_all_files_come_in_their_order_with_their_field_ids(tmp_path: Path) -> None:
    part = MergePart(files(tmp_path, 7, 11), f"file://{tmp_path}/out/new.parquet")
    assert merge(part, SHAPE) == 77
    found = read(part)
    expected = pa.Table.from_pylist([row(i) for i in range(77)], schema=SCHEMA)
    assert str(found.to_pylist()) == str(expected.to_pylist())  # as text, for nan is not equal to itself
    assert found.schema.equals(SCHEMA, check_metadata=True)
    assert pq.ParquetFile(local_path(part.to)).schema.equals(pq.ParquetFile(local_path(part.paths[0])).schema)


def test_row_groups_are_as_large_as_they_should_be_and_no_larger(tmp_path: Path) -> None:
    paths = files(tmp_path, 20, 50)
    each = pq.ParquetFile(local_path(paths[0])).read().nbytes
    part = MergePart(paths, f"file:{tmp_path}/new.parquet")
    merge(part, FileShape(SCHEMA, "snappy", 4 * each))
    rows = pq.ParquetFile(local_path(part.to)).metadata
    assert [rows.row_group(i).num_rows for i in range(rows.num_row_groups)] == [200] * 5
    assert rows.row_group(0).column(0).compression == "SNAPPY"


def test_a_column_whose_values_come_again_has_a_dictionary_and_others_have_none(tmp_path: Path) -> None:
    part = MergePart(files(tmp_path, 4, 100), f"file:{tmp_path}/new.parquet")
    merge(part, SHAPE)
    columns = pq.ParquetFile(local_path(part.to)).metadata.row_group(0)
    encoded = {columns.column(i).path_in_schema: columns.column(i).has_dictionary_page for i in range(6)}
    assert encoded == {"id": False, "name": False, "price": False, "x": False, "day": True, "at": False}


@pytest.mark.parametrize(
    "other",
    [
        pa.schema([*list(SCHEMA)[:-1], field("at", pa.timestamp("us"), False, 6)]),
        pa.schema([*list(SCHEMA)[:-1], field("at", pa.timestamp("us", tz="UTC"), False, 7)]),
        pa.schema([*list(SCHEMA)[:-1], field("when", pa.timestamp("us", tz="UTC"), False, 6)]),
        pa.schema([field("id", pa.int64(), False, 1), *list(SCHEMA)[1:]]),
        pa.schema(list(SCHEMA)[:-1]),
    ],
    ids=["another type", "another id", "another name", "not required", "a column less"],
)
def test_a_file_of_another_schema_is_refused_and_nothing_is_left(tmp_path: Path, other: pa.Schema) -> None:
    odd = pa.Table.from_pylist([], schema=other)
    pq.write_table(odd, tmp_path / "odd.parquet", store_schema=False)
    part = MergePart([*files(tmp_path, 2, 3), f"file:{tmp_path}/odd.parquet"], f"file:{tmp_path}/new.parquet")
    with pytest.raises(SchemaDiffers):
        merge(part, SHAPE)
    assert not (tmp_path / "new.parquet").exists()


def test_text_that_its_writer_called_large_is_text(tmp_path: Path) -> None:
    large = pa.schema([f if f.name != "name" else f.with_type(pa.large_string()) for f in SCHEMA])
    first = files(tmp_path, 2, 3)
    pq.write_table(pa.Table.from_pylist([row(6)], schema=large), tmp_path / "large.parquet")
    part = MergePart([*first, f"file:{tmp_path}/large.parquet"], f"file:{tmp_path}/new.parquet")
    assert merge(part, SHAPE) == 7
    assert read(part).schema.equals(SCHEMA, check_metadata=True)


def test_a_worker_merges_with_a_low_priority(tmp_path: Path) -> None:
    part = MergePart(files(tmp_path, 2, 3), f"file:{tmp_path}/merged.parquet")
    code = (
        "import os, pickle, sys; from service.engine.jobs.arrow.files import merge_beside_changes\n"
        "print(merge_beside_changes(*pickle.load(sys.stdin.buffer)), os.getpriority(os.PRIO_PROCESS, 0))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps((part, SHAPE)), stdout=subprocess.PIPE, check=True
    )
    rows, nice = run.stdout.split()
    assert int(rows) == 6
    assert int(nice) >= 10

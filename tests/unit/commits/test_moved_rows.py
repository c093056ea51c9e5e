"""Rows that were deleted while their files were merged are found in the merged files, most of them beforehand."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.catalog.files.data_files import list_files
from service.commits.moved_rows import MovedRows
from service.engine.session.rows import plain_columns
from service.errors import StorageUnavailable
from tests.unit.commits.test_local_rows import Orders, rows

Places = list[tuple[str, list[int]]]


def merged(orders: Orders, *values: str | None, first: int = 0) -> dict[str, int]:
    return written(orders, rows(*values, first=first))


def written(orders: Orders, some: pa.Table) -> dict[str, int]:
    """A file that no snapshot has yet, with its number of rows."""
    path = f"{orders.table.location}/data/merged.parquet".removeprefix("file://")
    ids = [pa.field(f.name, f.type, metadata={"PARQUET:field_id": str(n)}) for n, f in enumerate(some.schema, 1)]
    pq.write_table(some.cast(pa.schema(ids)), path)
    return {path: some.num_rows}


def of(orders: Orders) -> MovedRows:
    return MovedRows(orders.table, plain_columns(orders.table.stored_schema))


def old_files(orders: Orders) -> list[str]:
    return sorted(file.path for file in list_files(orders.table).data)


def found(moved: MovedRows, places: Mapping[str, list[int]], files: Mapping[str, int]) -> list[list[int]] | None:
    at = moved.find({path: pa.array(some, pa.int64()) for path, some in places.items()}, files)
    assert at is None or at.keys() <= files.keys()
    return None if at is None else [some.to_pylist() for some in at.values()]


def two_of_three_equal_rows(tmp_path: Path) -> tuple[MovedRows, list[str], dict[str, int]]:
    """Three old files with a row each, and a merged file with two such rows."""
    orders = Orders(tmp_path)
    for _ in range(3):
        orders.add("CH")
    twice = rows("CH", "CH").set_column(0, "id", pa.array([0, 0], pa.int64()))
    return of(orders), old_files(orders), written(orders, twice)


def test_rows_are_found_in_a_file_that_no_snapshot_has_yet(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.add("CH", "AT", "CH")
    [old] = old_files(orders)
    assert found(of(orders), {old: [0, 2]}, merged(orders, "DE", "CH", "AT", "CH", first=-1)) == [[1, 3]]


def test_of_equal_rows_as_many_are_found_as_are_wanted(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.add("CH")
    orders.add("CH")
    one, other = old_files(orders)
    files = merged(orders, "CH")
    assert found(of(orders), {one: [0]}, files) == [[0]]
    assert found(of(orders), {one: [0], other: [0]}, files) is None


def test_an_equal_row_that_was_found_before_is_not_found_again_for_another(tmp_path: Path) -> None:
    moved, (one, two, three), files = two_of_three_equal_rows(tmp_path)
    assert found(moved, {one: [0]}, files) in ([[0]], [[1]])
    assert found(moved, {one: [0], two: [0]}, files) == [[0, 1]]
    assert found(moved, {one: [0], two: [0], three: [0]}, files) is None


def test_what_was_found_before_needs_no_reading(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.add(*"abcdef")
    [old] = old_files(orders)
    moved, files = of(orders), merged(orders, *"abcdef")
    assert found(moved, {old: [1, 4]}, files) == [[1, 4]]
    Path(next(iter(files))).unlink()
    assert found(moved, {old: [4]}, files) == [[4]]
    with pytest.raises(StorageUnavailable):
        found(moved, {old: [4, 5]}, files)


def test_in_other_files_it_is_searched_again(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.add(*"abcdef")
    [old] = old_files(orders)
    moved, files = of(orders), merged(orders, *"abcdef")
    assert found(moved, {old: [1]}, files) == [[1]]
    [path] = files
    Path(path).rename(f"{path}.parquet")
    assert found(moved, {old: [1]}, {f"{path}.parquet": 6}) == [[1]]


def test_a_row_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.add(*"abc")
    [old] = old_files(orders)
    assert found(of(orders), {old: [0, 1]}, merged(orders, "x", "b")) is None


def kept(moved: MovedRows, places: Mapping[str, list[int]], found: Mapping[str, list[int]]) -> None:
    """Remember what Spark has found."""
    old, new = ({path: pa.array(at, pa.int64()) for path, at in some.items()} for some in (places, found))
    moved.keep(old, new)


def test_rows_are_searched_beside_those_that_spark_has_found(tmp_path: Path) -> None:
    moved, (one, two, three), files = two_of_three_equal_rows(tmp_path)
    [path] = files
    kept(moved, {one: [0]}, {path: [0]})
    assert found(moved, {one: [0]}, files) == [[0]]
    assert found(moved, {one: [0], two: [0]}, files) == [[0, 1]]
    assert found(moved, {one: [0], two: [0], three: [0]}, files) is None


def test_what_spark_has_found_does_not_count_if_these_rows_are_no_longer_deleted(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.add(*"abc")
    [old] = old_files(orders)
    moved, files = of(orders), merged(orders, *"abc")
    kept(moved, {old: [0, 1]}, {next(iter(files)): [0, 1]})
    assert found(moved, {old: [1, 2]}, files) == [[1, 2]]


def test_many_rows_are_left_to_spark_unless_it_has_found_them(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.add("a")
    [old] = old_files(orders)
    moved, files = of(orders), merged(orders, *("a" * 20_001))
    many = {f"{old}.gone": list(range(20_000))}
    assert found(moved, many | {old: [0]}, files) is None
    kept(moved, many, {next(iter(files)): list(range(1, 20_001))})
    assert found(moved, many | {old: [0]}, files) == [list(range(20_001))]

"""A table's files are listed from its manifests, and a manifest that has been read is not read again."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from service.catalog.files.data_files import DataFile, ManifestCache, count_rows, list_files, matching_files
from service.catalog.files.manifests import live_files
from service.catalog.tables import Catalog, Table
from tests.unit.iceberg_tables import ORDERS, append, make_table, open_catalog


class CountingIO(PyArrowFileIO):
    """Reads as ever, and notes what is opened."""

    def __init__(self, properties: dict[str, Any]) -> None:
        super().__init__(properties)
        self.opened: list[str] = []

    def new_input(self, location: str) -> InputFile:
        self.opened.append(location)
        return super().new_input(location)


@dataclass
class Shop:
    """A table, loaded anew for each look at it."""

    catalog: Catalog
    made: Table

    def look(self) -> tuple[Table, CountingIO]:
        table = self.catalog.load(ORDERS)
        table.iceberg.io = io = CountingIO(table.iceberg.io.properties)
        return table, io

    def manifests_read(self) -> int:
        table, io = self.look()
        list_files(table)
        return sum(path.endswith(".avro") and "snap-" not in path for path in io.opened)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    catalog = open_catalog(tmp_path)
    return Shop(catalog, make_table(catalog, partitioned=True))


def test_the_list_of_a_snapshot_s_manifests_is_read_once(shop: Shop) -> None:
    append(shop.made, "de", "fr")
    for lists in (1, 0):
        table, io = shop.look()
        assert len(list_files(table).data) == 2
        assert sum("snap-" in path for path in io.opened) == lists


def as_pyiceberg_reads_them(table: Table) -> list[DataFile]:
    """The same files, by PyIceberg's own reading of everything."""
    snapshot = table.iceberg.current_snapshot()
    assert snapshot is not None
    found = []
    for manifest in snapshot.manifests(table.iceberg.io):
        for entry in manifest.fetch_manifest_entry(table.iceberg.io):
            f = entry.data_file
            group = (manifest.partition_spec_id, *(f.partition[i] for i in range(len(f.partition))))
            number = entry.sequence_number
            assert number is not None
            found.append(DataFile(f.file_path, f.file_size_in_bytes, f.record_count, group, sequence_number=number))
    return found


def delete(table: Table, name: str) -> None:
    """Take a file out of a table; its manifest then says that it was deleted."""
    snapshot = table.iceberg.current_snapshot()
    assert snapshot is not None
    listed = [
        e.data_file for m in snapshot.manifests(table.iceberg.io) for e in m.fetch_manifest_entry(table.iceberg.io)
    ]
    with table.iceberg.transaction() as transaction, transaction.update_snapshot().overwrite() as change:
        for file in listed:
            if name in file.file_path:
                change.delete_data_file(file)


def test_the_files_are_those_that_pyiceberg_finds(shop: Shop) -> None:
    append(shop.made, "de", "at", None, rows=3)
    append(shop.made, "de", rows=5)
    table, _ = shop.look()
    assert list(list_files(table).data) == as_pyiceberg_reads_them(table)
    assert {f.group for f in list_files(table).data} == {(0, "de"), (0, "at"), (0, None)}
    assert matching_files(table, None) == list_files(table).data
    assert count_rows(table) == 3 * 3 + 5


def test_only_manifests_that_are_new_are_read(shop: Shop) -> None:
    for _ in range(4):
        append(shop.made, "de")
    assert shop.manifests_read() == 4
    assert shop.manifests_read() == 0
    append(shop.made, "at")
    append(shop.made, "at")
    assert shop.manifests_read() == 2
    assert len(list_files(shop.look()[0]).data) == 6


def test_every_snapshot_has_its_own_files(shop: Shop) -> None:
    made = [append(shop.made, "de", *["at"] * i) for i in range(3)]
    table, _ = shop.look()
    assert [len(list_files(table, snapshot_id).data) for snapshot_id in made] == [1, 3, 6]


def test_files_that_were_deleted_are_not_listed(shop: Shop) -> None:
    append(shop.made, "de", "at", rows=2)
    append(shop.made, "at", rows=2)
    delete(shop.made, "0-0")
    table, _ = shop.look()
    assert {f.group for f in list_files(table).data} == {(0, "at")}
    assert list(list_files(table).data) == as_pyiceberg_reads_them(table)
    assert count_rows(table) == 4


def test_a_filter_finds_the_files_of_its_partitions(shop: Shop) -> None:
    append(shop.made, "de", "at")
    append(shop.made, "de")
    table, _ = shop.look()
    found = matching_files(table, '{"type": "eq", "term": "country", "value": "de"}')
    assert sorted(f.path for f in found) == sorted(f.path for f in list_files(table).data if f.group == (0, "de"))


def test_a_table_without_a_snapshot_has_no_files(shop: Shop) -> None:
    table, _ = shop.look()
    assert (list_files(table).data, matching_files(table, None), count_rows(table)) == ((), (), 0)


def test_a_manifest_is_read_for_its_data_files_alone(shop: Shop) -> None:
    append(shop.made, "de", rows=7)
    table, io = shop.look()
    snapshot = table.iceberg.current_snapshot()
    assert snapshot is not None
    [manifest] = snapshot.manifests(io)
    [(path, size, rows, partition, _)] = live_files(io.new_input(manifest.manifest_path))
    assert (path, size, rows, partition) == (f"{table.location}/data/0-0.parquet", 1000, 7, ["de"])


def listing(path: str, count: int) -> tuple[DataFile, ...]:
    return tuple(DataFile(f"{path}/{i}", 1, 1, (0,)) for i in range(count))


def test_what_was_not_asked_for_the_longest_is_forgotten_first() -> None:
    known = ManifestCache(30)
    for path in ("a", "b"):
        known.put(path, listing(path, 12))
    assert known.get("a") == listing("a", 12)
    known.put("c", listing("c", 12))
    assert known.get("b") is None
    assert (known.get("a"), known.get("c")) == (listing("a", 12), listing("c", 12))


def test_no_more_is_remembered_than_there_is_room_for() -> None:
    known = ManifestCache(100)
    for i in range(1000):
        known.put(f"empty-{i}", ())
        known.put(f"some-{i}", listing("x", i % 7))
    remembered = [p for i in range(1000) for p in (f"empty-{i}", f"some-{i}") if known.get(p) is not None]
    assert 20 <= len(remembered) <= 100
    known.put("too-much", listing("x", 100))
    assert known.get("too-much") is None
    assert known.get(remembered[-1]) is not None

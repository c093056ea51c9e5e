"""A table's metadata is parsed once per file; what is loaded is always the newest."""

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyiceberg.io import InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from service.catalog import connect
from service.model.names import TableName
from service.model.schema.definition import parse_schema
from service.settings import load

SCHEMA = parse_schema({"fields": {"id": {"type": "long"}}})


def test_metadata_is_parsed_again_only_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It also notices should PyIceberg read metadata by another way."""
    parsed: list[str] = []
    parse, parse_with = FromInputFile.table_metadata, connect._parse_with

    def counting(file: InputFile) -> TableMetadata:
        parsed.append(file.location)
        return parse(file)

    def counting_with(file: InputFile, known: Iterable[Snapshot]) -> TableMetadata | None:
        parsed.append(file.location)
        return parse_with(file, known)

    monkeypatch.setattr(FromInputFile, "table_metadata", connect._MetadataCache(counting))
    monkeypatch.setattr(connect, "_parse_with", counting_with)
    catalog = connect.connect(load({"FIRN_HOME": str(tmp_path)}))
    names = [TableName("t", "default", name) for name in ("a", "b")]
    for name in names:
        catalog.create(name, SCHEMA, (), {})
    parsed.clear()
    first = catalog.load(names[0])
    for _ in range(3):
        assert [catalog.load(name).name for name in names] == names
    assert len(parsed) == len(set(parsed)) <= 2
    parsed.clear()
    catalog.load(names[0]).iceberg.transaction().set_properties({"x": "1"}).commit_transaction()
    assert catalog.load(names[0]).properties["x"] == "1"
    assert "x" not in first.properties
    assert catalog.load(names[0]).properties["x"] == "1"
    assert len(parsed) == 1


def _metadata(snapshots: int) -> dict[str, Any]:
    """Metadata of a table with so many snapshots, the first of which has expired."""
    ids = range(2**62 + 1, 2**62 + 1 + snapshots)
    return {
        "format-version": 2,
        "table-uuid": "f2f8d796-a055-4d75-aece-013100000000",
        "location": "file:/t",
        "last-sequence-number": snapshots,
        "last-updated-ms": 1_700_000_000_000,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [
            {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}
        ],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {},
        "current-snapshot-id": ids[-1],
        "refs": {"main": {"snapshot-id": ids[-1], "type": "branch"}},
        "snapshots": [
            {
                "snapshot-id": i,
                "parent-snapshot-id": i - 1,
                "sequence-number": i - 2**62,
                "timestamp-ms": 1_700_000_000_000 + i - 2**62,
                "summary": {"operation": "append", "added-records": "3"},
                "manifest-list": f"file:/t/{i}.avro",
                "schema-id": 0,
            }
            for i in ids
        ],
    }


@pytest.mark.parametrize("name", ["2.metadata.json", "2.gz.metadata.json"])
def test_known_snapshots_are_not_parsed_again_and_the_result_is_the_same(name: str, tmp_path: Path) -> None:
    known = TableMetadataUtil.parse_obj(_metadata(3)).snapshots
    text = orjson.dumps(_metadata(4))
    (tmp_path / name).write_bytes(gzip.compress(text) if ".gz." in name else text)
    parsed = connect._parse_with(PyArrowFileIO().new_input(str(tmp_path / name)), known)
    assert parsed == TableMetadataUtil.parse_raw(text.decode())
    assert parsed is not None
    assert all(new is old for new, old in zip(parsed.snapshots, known, strict=False))
    assert parsed.snapshots[3].sequence_number == 4


@pytest.mark.parametrize(
    "text", [b"{", b"[]", b"{}", b'{"snapshots": [{}]}', b'{"format-version": 2, "snapshots": []}']
)
def test_a_malformed_file_is_left_to_the_parser_that_says_so(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "2.metadata.json").write_bytes(text)
    assert connect._parse_with(PyArrowFileIO().new_input(str(tmp_path / "2.metadata.json")), []) is None

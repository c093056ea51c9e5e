"""A table's metadata is parsed once per file; what is loaded is always the newest."""

from pathlib import Path

import pytest
from pyiceberg.io import InputFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from service.catalog import connect
from service.model.names import TableName
from service.model.schema.definition import parse_schema
from service.settings import load

SCHEMA = parse_schema({"fields": {"id": {"type": "long"}}})


def test_metadata_is_parsed_again_only_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It also notices should PyIceberg read metadata by another way."""
    parsed: list[str] = []
    parse = FromInputFile.table_metadata

    def counting(file: InputFile) -> TableMetadata:
        parsed.append(file.location)
        return parse(file)

    monkeypatch.setattr(FromInputFile, "table_metadata", connect._MetadataCache(counting))
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

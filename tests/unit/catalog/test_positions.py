"""The positions of deleted rows are read in this process: from Parquet files, and from deletion vectors."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.manifest import DataFile as ListedFile
from pyiceberg.typedef import Record
from pyroaring import BitMap

from service.catalog.files.manifests import delete_entries, live_deletes
from service.catalog.files.positions import positions
from service.catalog.tables import Table
from tests.unit.iceberg_tables import make_table, open_catalog

_MAGIC = b"PFA1"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return make_table(open_catalog(tmp_path))


def vectors(path: Path, deleted: Mapping[str, Sequence[int]]) -> str:
    """A Puffin file with the deletion vectors of some data files, as the specification of the format has it."""
    body, blobs = _MAGIC, []
    for file, some in deleted.items():
        blob = _vector(some)
        about = {"type": "deletion-vector-v1", "fields": [], "snapshot-id": -1, "sequence-number": -1}
        place = {"offset": len(body), "length": len(blob)}
        blobs.append({**about, **place, "properties": {"referenced-data-file": file, "cardinality": str(len(some))}})
        body += blob
    footer = json.dumps({"blobs": blobs}).encode()
    body += _MAGIC + footer + len(footer).to_bytes(4, "little") + bytes(4) + _MAGIC
    path.write_bytes(body)
    return str(path)


def _vector(some: Sequence[int]) -> bytes:
    """A bitmap for each 2^32 positions."""
    keys = sorted({position >> 32 for position in some})
    vector = len(keys).to_bytes(8, "little")
    for key in keys:
        bitmap = BitMap([position & 0xFFFFFFFF for position in some if position >> 32 == key])
        vector += key.to_bytes(4, "little") + bitmap.serialize()
    marked = bytes.fromhex("D1D33964") + vector
    return len(marked).to_bytes(4, "big") + marked + bytes(4)


@pytest.mark.parametrize("some", [[0], [5, 7, 100_000], [3, 2**32 + 9], list(range(1000))], ids=lambda s: len(s))
def test_a_vector_names_the_rows_of_one_data_file(table: Table, tmp_path: Path, some: list[int]) -> None:
    puffin = vectors(tmp_path / "some.puffin", {"other": [1, 2], "data": some})
    found = positions(table, "data", [puffin])
    assert found.type == pa.int64()
    assert found.to_pylist() == some
    assert positions(table, "absent", [puffin]).to_pylist() == []


def test_delete_files_of_both_kinds_are_read_together(table: Table, tmp_path: Path) -> None:
    parquet = tmp_path / "some.parquet"
    pq.write_table(pa.table({"file_path": ["data", "other", "data"], "pos": [4, 1, 9]}), parquet)
    puffin = vectors(tmp_path / "some.puffin", {"data": [4, 5]})
    assert sorted(positions(table, "data", [str(parquet), puffin]).to_pylist()) == [4, 5, 9]


def test_data_files_whose_vectors_share_a_file_have_their_own_positions(table: Table, tmp_path: Path) -> None:
    puffin = vectors(tmp_path / "some.puffin", {"one": [1, 2], "other": [3]})
    assert [positions(table, path, [puffin]).to_pylist() for path in ("one", "other")] == [[1, 2], [3]]


def listed(path: Path, *entries: tuple[ManifestEntryStatus, int | None, str, str]) -> Path:
    """A manifest of deletion vectors: for each its status, the snapshot that set it, the data file, and its own
    path."""
    schema = MANIFEST_ENTRY_SCHEMAS[3]
    records = [
        ManifestEntry.from_args(
            3,
            status=status,
            snapshot_id=snapshot_id,
            data_file=ListedFile.from_args(
                3,
                content=DataFileContent.POSITION_DELETES,
                file_path=own,
                file_format=FileFormat.PUFFIN,
                partition=Record(),
                record_count=2,
                file_size_in_bytes=44,
                referenced_data_file=data,
            ),
        )
        for status, snapshot_id, data, own in entries
    ]
    output = PyArrowFileIO().new_output(str(path))
    with AvroOutputFile[ManifestEntry](output, schema, "manifest_entry") as file:
        file.write_block(records)
    return path


def test_a_manifest_says_which_data_file_a_vector_is_for(tmp_path: Path) -> None:
    added, removed = ManifestEntryStatus.ADDED, ManifestEntryStatus.DELETED
    path = listed(tmp_path / "m.avro", (added, None, "data", "new.puffin"), (removed, 7, "data", "old.puffin"))
    manifest = PyArrowFileIO().new_input(str(path))
    found = [(one.status, one.snapshot_id, one.applies_to, one.path) for one in delete_entries(manifest)]
    assert found == [(added, None, "data", "new.puffin"), (removed, 7, "data", "old.puffin")]
    assert list(live_deletes(manifest)) == [("data", 2, "new.puffin")]

"""Read the data files that a manifest lists, cheaply.

PyIceberg's own reader makes objects of every column's statistics and resolves the Avro schema again for each manifest.
A check for small files needs no statistics, and nearly all manifests of a table have the same schema.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFile, AvroFileHeader
from pyiceberg.avro.reader import Reader, StructReader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import InputFile
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.typedef import Record
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

# Iceberg's field ids, and the positions we read them into. Manifests of format 1 list data files and have no `content`.
_ENTRY = {0: 0, 2: 1, 3: 2, 1: 3}  # status, data_file, sequence_number, snapshot_id
_DATA_FILE = {134: 0, 100: 1, 104: 2, 103: 3, 102: 4}  # content, file_path, file_size_in_bytes, record_count, partition
_BOUNDED_FILE = {134: 0, 100: 1, 125: 2, 128: 3}  # content, file_path, lower_bounds, upper_bounds
# content, record_count, lower_bounds, upper_bounds, referenced_data_file, file_path
_DELETE_FILE = {134: 0, 103: 1, 125: 2, 128: 3, 143: 4, 100: 5}
_FILE_PATH = 2_147_483_546  # the column of a delete file that names the file of a deleted row


def live_files(manifest: InputFile) -> Iterator[tuple[str, int, int, list[Any], int | None]]:
    """Path, bytes, rows, partition values and data sequence number of every live data file of a manifest. A file
    without a number has that of the manifest."""
    with _Manifest(manifest, _DATA_FILE) as entries:
        for entry in entries:
            status, file, number, _ = entry._data
            content, path, size, rows, partition = file._data
            if status != ManifestEntryStatus.DELETED and content in (None, DataFileContent.DATA):
                yield path, size, rows, partition._data, number


def file_bounds(manifest: InputFile) -> Iterator[tuple[str, dict[int, tuple[bytes | None, bytes | None]]]]:
    """The path of every live data file of a manifest, and the least and greatest value of its columns by field id."""
    with _Manifest(manifest, _BOUNDED_FILE) as entries:
        for entry in entries:
            status, file, *_ = entry._data
            content, path, lower, upper = file._data
            if status != ManifestEntryStatus.DELETED and content in (None, DataFileContent.DATA):
                lower, upper = lower or {}, upper or {}
                yield path, {field: (low, upper.get(field)) for field, low in lower.items()}


@dataclass(frozen=True, slots=True)
class DeleteEntry:
    """What a manifest says about one delete file."""

    status: int
    snapshot_id: int | None
    """The snapshot that set the status; None if it is that of the manifest."""
    applies_to: str | None
    """The data file; None if it may apply to several, or deletes by value."""
    rows: int
    path: str


def delete_entries(manifest: InputFile) -> Iterator[DeleteEntry]:
    """The delete files that a manifest lists. PyIceberg's own reader does not read which data file a deletion vector
    is for."""
    with _Manifest(manifest, _DELETE_FILE) as entries:
        for entry in entries:
            status, file, _, snapshot_id = entry._data
            content, rows, lower, upper, referenced, path = file._data
            yield DeleteEntry(status, snapshot_id, _applies_to(content, lower, upper, referenced), rows, path)


def live_deletes(manifest: InputFile) -> Iterator[tuple[str | None, int, str]]:
    """For each live delete file: the data file that it applies to, how many of its rows it deletes, and its own path.
    None instead of the data file if it may apply to several, or deletes by value."""
    for one in delete_entries(manifest):
        if one.status != ManifestEntryStatus.DELETED:
            yield one.applies_to, one.rows, one.path


def _applies_to(
    content: int, lower: Mapping[int, bytes] | None, upper: Mapping[int, bytes] | None, referenced: str | None
) -> str | None:
    """The only data file that a delete file applies to, by its metadata; None if there may be several."""
    if content != DataFileContent.POSITION_DELETES or referenced is not None:
        return referenced
    first, last = (bounds.get(_FILE_PATH) if bounds else None for bounds in (lower, upper))
    return first.decode() if first is not None and first == last else None


class _Manifest(AvroFile[Record]):
    """An Avro file of manifest entries; only some of their fields are read."""

    def __init__(self, manifest: InputFile, places: dict[int, int]) -> None:
        super().__init__(manifest)
        self._places = tuple(places.items())

    def __enter__(self) -> "_Manifest":
        with self.input_file.open() as stream:
            self.decoder = new_decoder(stream.read())
        self.header = _header_reader().read(self.decoder)
        self.reader = _entry_reader(self.header.meta["avro.schema"], self._places)
        return self


@lru_cache(maxsize=1)
def _header_reader() -> Reader:
    return construct_reader(META_SCHEMA, {-1: AvroFileHeader})


@lru_cache(maxsize=256)
def _entry_reader(avro_schema: str, places: tuple[tuple[int, int], ...]) -> Reader:
    entry = construct_reader(AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema)))
    assert isinstance(entry, StructReader)
    return _only(entry, _ENTRY, {2: dict(places)})


def _only(struct: StructReader, places: dict[int, int], inner: dict[int, dict[int, int]]) -> StructReader:
    """A reader that reads these fields of a struct, by id, into the given positions and skips the others."""
    fields: list[tuple[int | None, Reader]] = []
    for field, (_, reader) in zip(struct.struct.fields, struct.field_readers, strict=True):
        if field.field_id in inner and isinstance(reader, StructReader):
            reader = _only(reader, inner[field.field_id], {})
        fields.append((places.get(field.field_id), reader))
    return StructReader(tuple(fields), Record, struct.struct)

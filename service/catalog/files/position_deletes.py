"""The positions of deleted rows, as the delete files of a snapshot name them."""

import threading
from collections.abc import Iterable
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cachetools import LRUCache
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent

from service.catalog.files.columns import UnreadableFile
from service.catalog.files.data_files import DataFile, ManifestCache
from service.catalog.files.manifests import DeleteFile, live_delete_files
from service.catalog.tables import Table
from service.catalog.translate import translated

_CACHE_BYTES = 32 << 20
_cache: LRUCache[str, pa.Table] = LRUCache(_CACHE_BYTES, getsizeof=lambda rows: rows.nbytes + 500)
_lock = threading.Lock()
_listed: ManifestCache[DeleteFile] = ManifestCache(100_000)


def deleted_positions(table: Table, files: Iterable[DataFile]) -> dict[str, frozenset[int]]:
    """The positions of the deleted rows of some data files of the current state; files without any are left out.

    Raises UnreadableFile if the table has delete files of another kind.
    """
    wanted, found = list(files), dict[str, set[int]]()
    with translated():
        io = table.iceberg.io
        for delete, number in _delete_files(table):
            if not delete.has_positions:
                raise UnreadableFile(f"{delete.path} is a delete file that Spark has to read")
            for file in wanted:
                # Deletes concern the rows that were there when they were committed.
                if number >= file.sequence_number and delete.may_name(file.path):
                    found.setdefault(file.path, set()).update(_positions(io, delete, file.path))
    return {path: frozenset(positions) for path, positions in found.items() if positions}


def _delete_files(table: Table) -> Iterable[tuple[DeleteFile, int]]:
    """The delete files, with their sequence numbers."""
    snapshot, io = table.iceberg.current_snapshot(), table.iceberg.io
    for manifest in snapshot.manifests(io) if snapshot else ():
        if manifest.content == ManifestContent.DELETES and (
            manifest.has_added_files() or manifest.has_existing_files()
        ):
            listed = _listed.get(manifest.manifest_path)
            if listed is None:
                listed = tuple(live_delete_files(io.new_input(manifest.manifest_path)))
                _listed.put(manifest.manifest_path, listed)
            for delete in listed:
                number = manifest.sequence_number if delete.sequence_number is None else delete.sequence_number
                yield delete, number or 0


def _positions(io: FileIO, delete: DeleteFile, path: str) -> list[int]:
    with _lock:
        rows = _cache.get(delete.path)
    if rows is None:
        with io.new_input(delete.path).open() as stream, pq.ParquetFile(stream) as file:
            rows = file.read(columns=["file_path", "pos"], use_threads=False)
        with _lock, suppress(ValueError):  # larger than the whole cache
            _cache[delete.path] = rows
    positions: list[int] = rows.filter(pc.equal(rows["file_path"], path))["pos"].to_pylist()
    return positions

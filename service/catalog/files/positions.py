"""Which rows of a data file its delete files name, read from these in process."""

import threading
from collections.abc import Iterable
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cachetools import LRUCache
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from service.catalog.files.data_files import PUFFIN, TableFiles
from service.catalog.lineage import FileChanges
from service.catalog.tables import Table
from service.catalog.translate import translated

_KEPT_BYTES = 32 << 20
# For the process, by the paths of a data file and its delete files, which never change.
_known: LRUCache[tuple[str, ...], pa.Array] = LRUCache(_KEPT_BYTES, getsizeof=lambda found: found.nbytes + 500)
_lock = threading.Lock()


def positions(table: Table, path: str, delete_files: Iterable[str]) -> pa.Array:
    """The distinct positions that delete files with positions have for a data file."""
    files = tuple(delete_files)
    if not files:
        return pa.array([], pa.int64())
    with _lock:
        found = _known.get((path, *files))
    if found is None:
        found = pc.unique(pa.concat_arrays([_read(table, path, file) for file in files]))
        with _lock, suppress(ValueError):  # larger than the whole cache
            _known[path, *files] = found
    return found


def rows_deleted(table: Table, changes: FileChanges) -> dict[str, pa.Array]:
    """The places of the rows that a commit deleted in files that it left."""
    return {
        path: _without(positions(table, path, by.added), positions(table, path, by.replaced))
        for path, by in changes.deleted.items()
    }


def rows_between(table: Table, one: TableFiles, other: TableFiles) -> dict[str, pa.Array]:
    """The places of rows that only the first of two states has, in files that both have. Both must be `counted`."""
    then = {file.path: file.deletes for file in other.data}
    found = {}
    for file in one.data:
        deletes = then.get(file.path, file.deletes)
        if deletes != file.deletes:
            places = _without(positions(table, file.path, deletes), positions(table, file.path, file.deletes))
            if len(places):
                found[file.path] = places
    return found


def _without(some: pa.Array, others: pa.Array) -> pa.Array:
    return some.filter(pc.invert(pc.is_in(some, value_set=others)))


def _read(table: Table, path: str, delete_file: str) -> pa.Array:
    with translated(), table.iceberg.io.new_input(delete_file).open() as stream:
        if delete_file.endswith(PUFFIN):
            return _in_vector(stream.read(), path)
        rows = pq.read_table(stream, columns=["file_path", "pos"])
    of_file = rows.filter(pc.equal(rows["file_path"], path))
    return of_file["pos"].combine_chunks().cast(pa.int64())


def _in_vector(puffin: bytes, path: str) -> pa.Array:
    """The positions of a data file's deletion vector."""
    vectors = deletion_vectors_from_puffin_file(PuffinFile(puffin))
    chunks = [chunk for one in vectors if one.referenced_data_file == path for chunk in one.to_vector().chunks]
    return pa.concat_arrays([pa.array([], pa.int64()), *(chunk.cast(pa.int64()) for chunk in chunks)])

"""Writes and merges Parquet files with Arrow.

Spark sends this module to its workers, so it imports nothing else of Firn.
"""

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FIELD_ID = b"PARQUET:field_id"
# A column is written without a dictionary if more than this part of its first values is distinct.
_SAMPLE_ROWS, _DISTINCT = 20_000, 0.8
_NICE = 10


class SchemaDiffers(Exception):
    """A file does not have exactly the expected schema."""


@dataclass(frozen=True)
class MergePart:
    """Files to merge into one file, in order. All paths have a scheme."""

    paths: Sequence[str]
    to: str


@dataclass(frozen=True)
class FileShape:
    """The files' schema, with Iceberg's field ids, and how to write them."""

    schema: pa.Schema
    codec: str
    group_bytes: int
    file_bytes: int = 512 << 20
    level: int | None = None
    """Of compression; None for the codec's own."""

    def options(self, first: pa.Table) -> dict[str, Any]:
        """The options of Arrow's writer for a file that begins with these rows."""
        return {
            "use_dictionary": _repeating(first),
            "compression": self.codec,
            "compression_level": self.level,
            "store_schema": False,
            "store_decimal_as_integer": True,
            "write_page_index": True,
        }


def merge_beside_changes(part: MergePart, shape: FileShape) -> int:
    """Merge files in one of Spark's Python workers, which do nothing else: with a low priority from then on."""
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    return merge(part, shape)


def merge(part: MergePart, shape: FileShape) -> int:
    """Merge files into one, and return how many rows it has. Holds at most a row group and a file in memory."""
    pa.set_cpu_count(1)  # a task has one core
    _forget_archives()
    to = local_path(part.to)
    os.makedirs(os.path.dirname(to), exist_ok=True)
    rows = 0
    groups = _groups(part.paths, shape)
    first = next(groups, shape.schema.empty_table())
    try:
        with pq.ParquetWriter(to, shape.schema, **shape.options(first)) as writer:
            for table in itertools.chain([first], groups):
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                rows += table.num_rows
    except BaseException:
        _remove(to)
        raise
    return rows


def write(rows: pa.Table, shape: FileShape, location: str) -> None:
    """Write rows with the schema of the shape into one file."""
    to = local_path(location)
    os.makedirs(os.path.dirname(to), exist_ok=True)
    in_group = max(1, -(-rows.num_rows // max(1, rows.nbytes // shape.group_bytes)))
    try:
        with pq.ParquetWriter(to, shape.schema, **shape.options(rows)) as writer:
            writer.write_table(rows, row_group_size=in_group)
    except BaseException:
        _remove(to)
        raise


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)


def _forget_archives() -> None:
    """Let the next task of this worker start faster.

    Before each task, Spark clears Python's import caches, so that Python reads PySpark's whole archive again, which
    takes 0.18 s. Its modules are also installed as files.
    """
    sys.path[:] = [path for path in sys.path if not path.endswith(".zip")]
    for path in [path for path in sys.path_importer_cache if ".zip" in path]:
        del sys.path_importer_cache[path]


def _groups(paths: Sequence[str], shape: FileShape) -> Iterator[pa.Table]:
    """The rows of the files, in pieces of the size of a row group."""
    waiting: list[pa.Table] = []
    size, checked = 0, None
    for path in paths:
        with pq.ParquetFile(local_path(path)) as file:
            if checked is None or not file.schema.equals(checked):
                found = file.schema_arrow
                if len(found) != len(shape.schema) or not all(map(_same, found, shape.schema)):
                    raise SchemaDiffers(f"{path} has {found}")
                checked = file.schema
            for i in range(file.num_row_groups):
                piece = file.read_row_group(i, use_threads=False)
                size += piece.nbytes
                if waiting and piece.schema != waiting[0].schema:  # such as text that was written as large text
                    piece = piece.cast(waiting[0].schema)
                waiting.append(piece)
                if size >= shape.group_bytes:
                    yield pa.concat_tables(waiting).cast(shape.schema)
                    waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting).cast(shape.schema)


def _repeating(table: pa.Table) -> list[str]:
    """The columns whose values repeat, so that a dictionary saves space."""
    some = table.slice(0, _SAMPLE_ROWS)
    most = some.num_rows * _DISTINCT
    return [name for name in table.column_names if pc.count_distinct(some[name]).as_py() <= most]


def _same(found: pa.Field, wanted: pa.Field) -> bool:
    ids = ((field.metadata or {}).get(FIELD_ID) for field in (found, wanted))
    return (
        found.name == wanted.name
        and found.nullable == wanted.nullable
        and len(set(ids)) == 1
        and (found.type == wanted.type or (pa.types.is_large_string(found.type) and pa.types.is_string(wanted.type)))
    )


def local_path(location: str) -> str:
    """A location's path on this machine. Like Hadoop, it does not decode percent codes."""
    return "/" + location.removeprefix("file:").lstrip("/")


def field(name: str, kind: pa.DataType, required: bool, field_id: int) -> pa.Field:
    """A column with its Iceberg field id."""
    return pa.field(name, kind, nullable=not required, metadata={FIELD_ID: str(field_id).encode()})

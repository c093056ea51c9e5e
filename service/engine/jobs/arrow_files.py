"""Parquet files read and written by Arrow. Spark sends this module to its workers, so it imports nothing of ours."""

import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_FIELD_ID = b"PARQUET:field_id"
# A column is written without a dictionary if so great a part of its first values is distinct.
_LOOKED_AT, _DISTINCT = 20_000, 0.8


class SchemaDiffers(Exception):
    """A file does not have exactly the schema that all should have."""


@dataclass(frozen=True)
class MergePart:
    """Files whose rows become one file, in their order."""

    paths: Sequence[str]
    """With a scheme, as `to`."""
    to: str


@dataclass(frozen=True)
class FileShape:
    """What the files are like, and how they are written."""

    schema: pa.Schema
    """With Iceberg's field ids."""
    codec: str
    group_bytes: int


def merge(part: MergePart, shape: FileShape) -> int:
    """Write one file of several, and return how many rows it has. Memory is bounded by a row group and a file."""
    pa.set_cpu_count(1)  # a task has one core
    _forget_archives()
    to = local_path(part.to)
    os.makedirs(os.path.dirname(to), exist_ok=True)
    rows = 0
    groups = _groups(part.paths, shape)
    first = next(groups, shape.schema.empty_table())
    try:
        with pq.ParquetWriter(
            to,
            shape.schema,
            use_dictionary=_repeating(first),
            compression=shape.codec,
            store_schema=False,
            store_decimal_as_integer=True,
            write_page_index=True,
        ) as writer:
            for table in itertools.chain([first], groups):
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                rows += table.num_rows
    except BaseException:
        if os.path.exists(to):
            os.unlink(to)
        raise
    return rows


def _forget_archives() -> None:
    """Let the next task of this worker begin at once.

    Before each task, Spark has Python forget where modules are, so that Python reads PySpark's whole archive again,
    which takes 0.18 s. What is in there is also installed as files.
    """
    sys.path[:] = [path for path in sys.path if not path.endswith(".zip")]
    for path in [path for path in sys.path_importer_cache if ".zip" in path]:
        del sys.path_importer_cache[path]


def _groups(paths: Sequence[str], shape: FileShape) -> Iterator[pa.Table]:
    """The rows of the files, in pieces as large as a row group should be."""
    waiting: list[pa.Table] = []
    size, alike = 0, None
    for path in paths:
        with pq.ParquetFile(local_path(path)) as file:
            if alike is None or not file.schema.equals(alike):
                _check(file.schema_arrow, shape.schema, path)
                alike = file.schema
            for i in range(file.num_row_groups):
                piece = file.read_row_group(i, use_threads=False)
                size += piece.nbytes
                if waiting and piece.schema != waiting[0].schema:  # text that its writer called large, perhaps
                    piece = piece.cast(waiting[0].schema)
                waiting.append(piece)
                if size >= shape.group_bytes:
                    yield pa.concat_tables(waiting).cast(shape.schema)
                    waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting).cast(shape.schema)


def _repeating(table: pa.Table) -> list[str]:
    """The columns whose values repeat, so that a dictionary pays."""
    some = table.slice(0, _LOOKED_AT)
    most = some.num_rows * _DISTINCT
    return [name for name in table.column_names if pc.count_distinct(some[name]).as_py() <= most]


def _check(found: pa.Schema, wanted: pa.Schema, path: str) -> None:
    same = len(found) == len(wanted) and all(map(_same, found, wanted))
    if not same:
        raise SchemaDiffers(f"{path} has {found}")


def _same(found: pa.Field, wanted: pa.Field) -> bool:
    ids = ((field.metadata or {}).get(_FIELD_ID) for field in (found, wanted))
    return (
        found.name == wanted.name
        and found.nullable == wanted.nullable
        and len(set(ids)) == 1
        and (found.type == wanted.type or (pa.types.is_large_string(found.type) and pa.types.is_string(wanted.type)))
    )


def local_path(location: str) -> str:
    """A location's path on this machine. Hadoop does not decode percent codes in it."""
    return "/" + location.removeprefix("file:").lstrip("/")


def field(name: str, kind: pa.DataType, required: bool, field_id: int) -> pa.Field:
    """A column as Iceberg has it in files."""
    return pa.field(name, kind, nullable=not required, metadata={_FIELD_ID: str(field_id).encode()})

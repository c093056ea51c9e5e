"""Parquet files read and written by Arrow, in Spark's Python workers: this module travels to them, and imports nothing of ours."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

_FIELD_ID = b"PARQUET:field_id"


class Odd(Exception):
    """A file is not of the very schema that all are said to have."""


@dataclass(frozen=True)
class Part:
    """Files whose rows become one file, in their order."""

    paths: Sequence[str]
    to: str


@dataclass(frozen=True)
class Shape:
    """What the files are like, and what is written."""

    schema: pa.Schema
    """With the field ids that Iceberg knows the columns by."""
    codec: str
    group_bytes: int


def merge(part: Part, shape: Shape) -> int:
    """Write one file of several; how many rows it has. Memory is bounded by a row group and a file."""
    pa.set_cpu_count(1)  # a task has one core
    os.makedirs(os.path.dirname(part.to), exist_ok=True)
    rows = 0
    try:
        with pq.ParquetWriter(
            part.to,
            shape.schema,
            compression=shape.codec,
            store_schema=False,
            store_decimal_as_integer=True,
            write_page_index=True,
        ) as writer:
            for table in _groups(part.paths, shape):
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                rows += table.num_rows
    except BaseException:
        if os.path.exists(part.to):
            os.unlink(part.to)
        raise
    return rows


def _groups(paths: Sequence[str], shape: Shape) -> Iterator[pa.Table]:
    """The rows of the files, in pieces as large as a row group should be."""
    waiting: list[pa.Table] = []
    size = 0
    for path in paths:
        with pq.ParquetFile(path) as file:
            _check(file.schema_arrow, shape.schema, path)
            pieces = [file.read_row_group(i, use_threads=False) for i in range(file.num_row_groups)]
        for piece in pieces:
            waiting.append(piece.cast(shape.schema))
            size += piece.nbytes
            if size >= shape.group_bytes:
                yield pa.concat_tables(waiting)
                waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _check(found: pa.Schema, wanted: pa.Schema, path: str) -> None:
    same = len(found) == len(wanted) and all(map(_same, found, wanted))
    if not same:
        raise Odd(f"{path} has {found}")


def _same(found: pa.Field, wanted: pa.Field) -> bool:
    ids = ((field.metadata or {}).get(_FIELD_ID) for field in (found, wanted))
    return (
        found.name == wanted.name
        and found.nullable == wanted.nullable
        and len(set(ids)) == 1
        and (found.type == wanted.type or (pa.types.is_large_string(found.type) and pa.types.is_string(wanted.type)))
    )


def field(name: str, kind: pa.DataType, required: bool, field_id: int) -> pa.Field:
    """A column as Iceberg has them in files."""
    return pa.field(name, kind, nullable=not required, metadata={_FIELD_ID: str(field_id).encode()})

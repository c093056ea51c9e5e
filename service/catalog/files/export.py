"""Write some rows of a table as one file for readers without Iceberg, on a local disk or in S3, without a Spark job."""

import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from pyarrow.fs import FileSelector, FileType
from pyiceberg.expressions import And, EqualTo
from pyiceberg.io.pyarrow import PyArrowFileIO

from service.catalog.tables import Table
from service.catalog.translate import translated

ExportFormat = Literal["parquet", "csv"]
_GROUP_ROWS = 1 << 18
# A file that is being written; one that is older than this was left by a process that was killed.
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")
_LEFT_AFTER_S = 24 * 3600


@dataclass(frozen=True)
class ExportedFile:
    path: str
    records: int
    bytes: int


class ArrowRows(Protocol):
    """Rows in batches, to be read once."""

    @property
    def schema(self) -> pa.Schema: ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...


@contextmanager
def all_rows(table: Table, snapshot_id: int, values: Mapping[str, str | date]) -> Iterator[ArrowRows]:
    """The rows of a snapshot with these values of columns, with the columns that requests can name."""
    equal = cast(Any, EqualTo)  # its declaration knows no dates, which are literals too
    scan = table.iceberg.scan(
        row_filter=reduce(And, (equal(column, value) for column, value in values.items())),
        selected_fields=table.schema.names,
        snapshot_id=snapshot_id,
    )
    with scan.to_arrow_batch_reader() as batches:
        yield batches


class ExportFolder:
    """The folder of a table's exported files: a path, or `s3://bucket/prefix`."""

    def __init__(self, base: str, properties: Mapping[str, str]) -> None:
        """`properties` are those of the catalog's storage, with its credentials."""
        self._base = base.rstrip("/")
        self._is_remote = base.startswith("s3://")
        self._io = PyArrowFileIO(dict(properties))

    def write(self, rows: AbstractContextManager[ArrowRows], path: str, format: ExportFormat) -> ExportedFile:
        """Write rows in place of the file that had this path. Readers see the old file or the new one, never a part."""
        place, records = self._place(path), 0
        with translated(), self._output(place) as sink, rows as batches:
            schema = batches.schema
            with _writer(sink, schema, format) as writer:
                for group in _groups(batches, schema):
                    writer.write_table(group)
                    records += group.num_rows
            size = sink.tell()
        return ExportedFile(place, records, size)

    def delete(self, paths: Sequence[str]) -> int:
        """Delete files; returns how many there were."""
        deleted = 0
        with translated():
            for path in paths:
                if self._exists(path):
                    deleted += 1
                    self._delete(path)
        return deleted

    def remove_leftovers(self) -> None:
        """Delete the unfinished files of processes that were killed. In S3 there are none."""
        if self._is_remote:
            return
        with translated():
            for path in Path(self._base).rglob(".*.tmp"):
                with suppress(FileNotFoundError):
                    if _UNFINISHED.fullmatch(path.name) and time.time() - path.stat().st_mtime > _LEFT_AFTER_S:
                        path.unlink()

    def paths(self) -> list[str]:
        """The paths of all files in the folder, in order."""
        with translated():
            if not self._is_remote:
                root = Path(self._base)
                return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and p.name[0] != ".")
            storage, folder = self._remote("")
            found = storage.get_file_info(FileSelector(folder, allow_not_found=True, recursive=True))
            return sorted(f.path.removeprefix(folder).lstrip("/") for f in found if f.type == FileType.File)

    def _place(self, path: str) -> str:
        return f"{self._base}/{path}"

    @contextmanager
    def _output(self, place: str) -> Iterator[BinaryIO]:
        if self._is_remote:
            # An object appears with its last byte.
            stream = cast(BinaryIO, self._io.new_output(place).create(overwrite=True))
            with stream:
                yield stream
            return
        final = Path(place)
        final.parent.mkdir(parents=True, exist_ok=True)
        unfinished = final.with_name(f".{final.name}.{uuid.uuid4().hex}.tmp")
        try:
            with unfinished.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(final)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise

    def _exists(self, path: str) -> bool:
        if not self._is_remote:
            return Path(self._place(path)).is_file()
        storage, file = self._remote(path)
        return bool(storage.get_file_info(file).type == FileType.File)

    def _delete(self, path: str) -> None:
        if self._is_remote:
            storage, file = self._remote(path)
            storage.delete_file(file)
            return
        local, root = Path(self._place(path)), Path(self._base)
        local.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            for folder in local.parents:
                if folder == root:
                    return
                folder.rmdir()

    def _remote(self, path: str) -> tuple[Any, str]:
        scheme, host, file = PyArrowFileIO.parse_location(self._place(path).rstrip("/"))
        return self._io.fs_by_scheme(scheme, host), file


def _writer(sink: BinaryIO, schema: pa.Schema, format: ExportFormat) -> Any:
    if format == "csv":
        return csv.CSVWriter(sink, schema)
    # Field ids and other marks of Iceberg mean nothing to other readers.
    plain = pa.schema([field.remove_metadata() for field in schema])
    return pq.ParquetWriter(sink, plain, compression="zstd")


def _groups(batches: Any, schema: pa.Schema) -> Iterator[pa.Table]:
    """The batches, gathered into row groups of a good size."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _GROUP_ROWS:
            yield pa.Table.from_batches(waiting, schema)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)

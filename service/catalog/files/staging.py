"""Stage the rows of a bulk load as Parquet files of an internal table, which Spark can read wherever it runs."""

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as i
from pyiceberg.io import OutputFile, OutputStream
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from service.catalog.tables import Catalog, Table
from service.catalog.translate import translated
from service.model.names import TableName
from service.model.schema.types import Array, ColumnType, Field, Map, Primitive, Struct, TableSchema

log = logging.getLogger("firn.staging")

# Not a valid name, so no request can name this tenant.
INTERNAL_TENANT, WARM_UP_NAMESPACE, _NAMESPACE = "_firn", "warm", "bulk"
# Small enough for the tasks of one job to share the rows evenly.
_GROUP_BYTES = 4 << 20
_GROUP_ROWS = 1 << 20
_FILE_BYTES = 128 << 20
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class LastingFiles:
    """How to write files that can become those of a table: the options of Arrow's writer by the first rows, and the
    sizes of row groups and of files."""

    table: Table
    options: Callable[[pa.Table], Mapping[str, Any]]
    group_bytes: int
    file_bytes: int


@dataclass
class _File:
    output: OutputFile
    stream: OutputStream
    writer: pq.ParquetWriter
    footer: list[Any]
    bytes: int = 0
    rows: int = 0


class Staging:
    """The staged rows of one load. Used by one thread at a time; its creator must call `discard`."""

    def __init__(
        self, catalog: Catalog, schema: TableSchema, arrow: pa.Schema, lasting: LastingFiles | None = None
    ) -> None:
        """`arrow` is the schema of the batches to come. With `lasting`, the files can become those of a table, if the
        internal table gives its columns the same field ids."""
        self._catalog = catalog
        name = TableName(INTERNAL_TENANT, _NAMESPACE, f"load_{uuid.uuid4().hex}")
        self._table = catalog.create(name, staged_schema(schema), (), {})
        self._schema = _with_ids(arrow, self._table)
        fits = lasting is not None and _field_ids(lasting.table) == _field_ids(self._table)
        self._lasting = lasting if fits else None
        self._group_bytes = self._lasting.group_bytes if self._lasting else _GROUP_BYTES
        self._file: _File | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._waiting_rows = 0
        self.rows = self.bytes = 0
        self.paths: list[str] = []

    @property
    def schema(self) -> pa.Schema:
        """The files' schema, with their field ids."""
        return self._schema

    @property
    def lasts(self) -> bool:
        """Whether the files can become those of the table."""
        return self._lasting is not None

    @property
    def spark_name(self) -> str:
        return self._table.spark_name

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch; at most some megabytes are held in memory."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._waiting_rows += batch.num_rows
        self.rows += batch.num_rows
        if self._waiting_bytes >= self._group_bytes or self._waiting_rows >= _GROUP_ROWS:
            with translated():
                self._write_group()

    def finish(self) -> None:
        """Write what is left; the rows can be read after this."""
        with translated():
            self._write_group()
            self._close_file()

    def discard(self) -> None:
        """Remove every file. The next start removes what could not be removed here."""
        file, self._file = self._file, None
        try:
            if file is not None:
                file.writer.close()
                file.stream.close()
                self._table.iceberg.io.delete(file.output.location)
        except Exception as e:
            log.warning("a file of an abandoned load could not be removed: %s", e)
        _remove(self._catalog, self._table)

    def _write_group(self) -> None:
        if not self._waiting_rows:
            return
        columns = pa.Table.from_batches(self._waiting).columns
        self._waiting.clear()
        self._waiting_bytes = self._waiting_rows = 0
        group = pa.Table.from_arrays(columns, schema=self._schema)
        if self._file is None:
            self._file = self._open_file(group)
        file = self._file
        # A large batch becomes several row groups of about equal size.
        file.writer.write_table(group, row_group_size=-(-group.num_rows // max(1, group.nbytes // self._group_bytes)))
        file.rows += group.num_rows
        file.bytes += group.nbytes
        self.bytes += group.nbytes
        if file.stream.tell() >= self._lasting.file_bytes if self._lasting else file.bytes >= _FILE_BYTES:
            self._close_file()

    def _open_file(self, first: pa.Table) -> _File:
        iceberg = self._table.iceberg
        output = iceberg.io.new_output(f"{self._table.location}/data/{uuid.uuid4().hex}.parquet")
        stream = output.create()
        footer: list[Any] = []
        options = self._lasting.options(first) if self._lasting else self._passing()
        writer = pq.ParquetWriter(stream, self._schema, metadata_collector=footer, **options)
        return _File(output, stream, writer, footer)

    def _passing(self) -> dict[str, Any]:
        """The options for files that Spark reads once and soon."""
        # On a local disk compression costs more than it saves; over a network it pays.
        local = self._table.location.startswith("file:")
        return {
            "compression": "none" if local else "zstd",
            "compression_level": None if local else 1,
            "use_dictionary": False,
            "write_statistics": False,
            "store_schema": False,
        }

    def _close_file(self) -> None:
        """Close the file and commit it, so that dropping the table removes it."""
        file, self._file = self._file, None
        if file is None:
            return
        file.writer.close()
        file.stream.close()
        data_file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.output.location,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=file.rows,
            file_size_in_bytes=len(file.output),
            split_offsets=_offsets(file.footer[0]),
            spec_id=0,
        )
        iceberg = self._table.iceberg
        with iceberg.transaction() as change, change.update_snapshot().fast_append() as append:
            append.append_data_file(data_file)
        self.paths.append(file.output.location)


def remove_leftovers(catalog: Catalog) -> None:
    """Remove the internal tables of loads and warm-ups that a crash interrupted."""
    for namespace in (_NAMESPACE, WARM_UP_NAMESPACE):
        for name in catalog.list_tables(INTERNAL_TENANT, namespace):
            try:
                table = catalog.load(TableName(INTERNAL_TENANT, namespace, name))
            except Exception as e:  # nothing of this kind may keep the service from starting
                log.warning("an internal table of an earlier process cannot be read: %s", e)
                continue
            _remove(catalog, table)


def _remove(catalog: Catalog, table: Table) -> None:
    try:
        catalog.drop(table, purge=True)
    except Exception as e:
        log.warning("an internal table could not be removed; the next start will remove it: %s", e)


def staged_schema(schema: TableSchema) -> TableSchema:
    """The same columns in types that Spark has; a uuid becomes text."""
    return TableSchema(tuple(_staged_field(f) for f in schema.fields))


def _staged_field(field: Field) -> Field:
    return Field(field.name, _staged(field.type), field.required)


def _staged(kind: ColumnType) -> ColumnType:
    match kind:
        case Primitive("uuid"):
            return Primitive("string")
        case Array():
            return Array(_staged(kind.items), kind.items_required)
        case Map():
            return Map(_staged(kind.key), _staged(kind.value), kind.value_required)
        case Struct():
            return Struct(tuple(_staged_field(f) for f in kind.fields))
    return kind


def _field_ids(table: Table) -> list[tuple[str, int]]:
    return [(field.name, field.field_id) for field in table.iceberg.schema().fields]


def _with_ids(arrow: pa.Schema, table: Table) -> pa.Schema:
    """The schema with field ids, by which Iceberg finds columns in a file."""
    fields = zip(arrow, table.iceberg.schema().fields, strict=True)
    return pa.schema([_with_id(have, f.field_id, f.field_type) for have, f in fields])


def _with_id(have: pa.Field, number: int, kind: i.IcebergType) -> pa.Field:
    return pa.field(have.name, _type_with_ids(have.type, kind), have.nullable, {_FIELD_ID: str(number)})


def _type_with_ids(have: pa.DataType, kind: i.IcebergType) -> pa.DataType:
    match kind:
        case i.ListType():
            return pa.list_(_with_id(have.value_field, kind.element_id, kind.element_type))
        case i.MapType():
            return pa.map_(
                _with_id(have.key_field, kind.key_id, kind.key_type),
                _with_id(have.item_field, kind.value_id, kind.value_type),
            )
        case i.StructType():
            return pa.struct([_with_id(have.field(n), f.field_id, f.field_type) for n, f in enumerate(kind.fields)])
    return have


def _offsets(footer: Any) -> list[int]:
    """The start of each row group, where a reader may split the file."""
    return [footer.row_group(n).column(0).data_page_offset for n in range(footer.num_row_groups)]

"""Tables on a catalog of their own, made and changed through PyIceberg: as Spark would, without a JVM."""

from pathlib import Path

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from service.catalog.connect import connect
from service.catalog.tables import Catalog, Table
from service.model.names import BATCH_PROPERTY, CATALOG, TableName
from service.model.schema.definition import parse_schema
from service.model.schema.partition import parse_partition
from service.settings import load
from tests.memory_catalog import MemoryCatalog

ORDERS = TableName("acme", "shop", "orders")
SCHEMA = {"fields": {"id": {"type": "long"}, "country": {"type": "string"}}}
BY_COUNTRY = {"partitions": [{"field": "country", "transform": "identity"}]}


def connected(home: Path) -> Catalog:
    """The service's own, in a database."""
    return connect(load({"FIRN_HOME": str(home)}))


def open_catalog(home: Path) -> Catalog:
    """One that nobody else sees; its files lie where the service would have them."""
    warehouse = load({"FIRN_HOME": str(home)}).catalog.warehouse or ""
    return Catalog(MemoryCatalog(CATALOG, warehouse=warehouse), warehouse)


def make_table(catalog: Catalog, *, partitioned: bool = False, **properties: str) -> Table:
    schema = parse_schema(SCHEMA)
    partition = parse_partition(BY_COUNTRY if partitioned else None, schema)
    return catalog.create(ORDERS, schema, partition, {"format-version": "2", **properties})


def append(table: Table, *countries: str | None, batch: str = "", rows: int = 1, path: str | None = None) -> int:
    """A commit of one file for each country, none of which is really there; the snapshot it made."""
    iceberg = table.iceberg
    before = iceberg.current_snapshot()
    count = len(before.manifests(iceberg.io)) if before else 0
    with (
        iceberg.transaction() as transaction,
        transaction.update_snapshot({BATCH_PROPERTY: batch}).fast_append() as files,
    ):
        for i, country in enumerate(countries):
            partition = Record(country) if table.partition else Record()
            files.append_data_file(data_file(path or f"{table.location}/data/{count}-{i}.parquet", partition, rows))
    made = iceberg.current_snapshot()
    assert made is not None
    return made.snapshot_id


def data_file(path: str, partition: Record, rows: int) -> DataFile:
    """A file that is not really there."""
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows,
        file_size_in_bytes=1000,
        column_sizes={1: 40, 2: 60},
        value_counts={1: rows, 2: rows},
        null_value_counts={1: 0, 2: 0},
        nan_value_counts={},
        lower_bounds={1: b"\x01" + bytes(7)},
        upper_bounds={1: b"\x02" + bytes(7)},
        key_metadata=None,
        split_offsets=[4],
        equality_ids=None,
        sort_order_id=None,
        spec_id=0,
    )

"""What is staged is what Iceberg reads, in few files of small row groups, and nothing of it stays."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.types import StringType

from service.catalog.connect import connect
from service.catalog.files import staging
from service.catalog.files.staging import Staging, remove_leftovers, staged_schema
from service.catalog.tables import Catalog, Table
from service.model.names import TableName
from service.model.records import read_records
from service.model.schema.definition import parse_schema
from service.model.schema.types import TableSchema
from service.settings import load
from service.writes.bulk.target import lasting_files, target_schema
from tests.strategies import records, same, schemas

NUMBERS = parse_schema({"fields": {"id": {"type": "long", "required": True}, "name": {"type": "string"}}})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def catalog(home: Path) -> Catalog:
    return connect(load({"FIRN_HOME": str(home)}))


@pytest.fixture(autouse=True)
def _leaves_nothing(home: Path, catalog: Catalog) -> Iterator[None]:
    yield
    assert catalog.list_tables("_firn", "bulk") == []
    assert list(home.glob("warehouse/_firn__bulk/*")) == []


def read(catalog: Catalog) -> pa.Table:
    [name] = catalog.list_tables("_firn", "bulk")
    return catalog.load(TableName("_firn", "bulk", name)).iceberg.scan().to_arrow()


def written(catalog: Catalog) -> pa.Table:
    """What the files themselves hold."""
    [name] = catalog.list_tables("_firn", "bulk")
    location = catalog.load(TableName("_firn", "bulk", name)).location.removeprefix("file://")
    return pa.concat_tables(pq.read_table(path) for path in sorted(Path(location).rglob("*.parquet")))


def started(catalog: Catalog, schema: TableSchema = NUMBERS) -> Staging:
    return Staging(catalog, schema, target_schema(schema))


def rows(count: int, start: int = 0) -> pa.RecordBatch:
    numbers = range(start, start + count)
    columns = [pa.array(numbers, pa.int64()), pa.array([f"n{i}" for i in numbers])]
    return pa.RecordBatch.from_arrays(columns, schema=target_schema(NUMBERS))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_type_is_read_back_equal(catalog: Catalog, data: st.DataObject) -> None:
    schema = data.draw(schemas(max_columns=4))
    values = read_records(schema, data.draw(records(schema, min_size=1)))
    target = target_schema(schema)
    table = pa.Table.from_arrays([pa.array(values[f.name], f.type) for f in target], schema=target)
    load_ = started(catalog, schema)
    try:
        for batch in table.to_batches(max_chunksize=2):
            load_.write(batch)
        load_.finish()
        assert load_.rows == table.num_rows
        assert same(written(catalog).to_pylist(), table.to_pylist())
    finally:
        load_.discard()


def test_a_uuid_is_staged_as_its_text() -> None:
    schema = parse_schema(
        {"fields": {"u": {"type": "uuid"}, "l": {"type": "array", "items": "uuid"}, "n": {"type": "long"}}}
    )
    assert [str(f.type) for f in staged_schema(schema).fields] == ["string", "array<string>", "long"]


def test_files_are_closed_at_their_size_and_can_be_split(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_GROUP_ROWS", 1000)
    monkeypatch.setattr(staging, "_FILE_BYTES", 100_000)
    load_ = started(catalog)
    for i in range(20):
        load_.write(rows(1000, 1000 * i))
    load_.finish()
    found = read(catalog)
    assert sorted(found["id"].to_pylist()) == list(range(20_000))
    assert len(load_.paths) == 4
    [name] = catalog.list_tables("_firn", "bulk")
    tasks = list(catalog.load(TableName("_firn", "bulk", name)).iceberg.scan().plan_files())
    assert sorted(len(task.file.split_offsets or []) for task in tasks) == [2, 6, 6, 6]
    load_.discard()


TABLES = itertools.count()


def lasting_table(catalog: Catalog, schema: TableSchema = NUMBERS, **properties: str) -> Table:
    """A table that Firn could have created, with small files."""
    small = {"write.parquet.row-group-size-bytes": "8192", "write.target-file-size-bytes": "5000"}
    name = TableName("shop", "default", f"t{next(TABLES)}")
    return catalog.create(name, schema, (), {**small, "write.parquet.compression-codec": "zstd", **properties})


def test_lasting_files_have_what_a_tables_own_files_have(catalog: Catalog) -> None:
    schema = target_schema(NUMBERS)
    load_ = Staging(catalog, NUMBERS, schema, lasting_files(lasting_table(catalog), schema))
    assert load_.lasts
    for i in range(10):
        load_.write(rows(1000, 1000 * i))
    load_.finish()
    assert sorted(read(catalog)["id"].to_pylist()) == list(range(10_000))
    assert len(load_.paths) > 1, "a file is complete at its size"
    for path in load_.paths:
        file = pq.ParquetFile(path.removeprefix("file://"))
        assert file.schema_arrow.equals(load_.schema, check_metadata=True)
        column = file.metadata.row_group(0).column(0)
        assert (column.compression, column.is_stats_set, column.has_column_index) == ("ZSTD", True, True)
    load_.discard()


def test_files_cannot_last_in_a_table_whose_columns_have_other_field_ids(catalog: Catalog) -> None:
    table = lasting_table(catalog)
    with table.iceberg.update_schema() as change:
        change.delete_column("name")
        change.add_column("name", StringType())
    table = catalog.load(table.name)
    schema = target_schema(table.schema)
    load_ = Staging(catalog, table.schema, schema, lasting_files(table, schema))
    assert not load_.lasts
    load_.discard()


@pytest.mark.parametrize(
    ("fields", "properties"),
    [
        ({"one": {"type": "uuid"}}, {}),
        ({"list": {"type": "array", "items": "long"}}, {}),
        ({}, {"write.parquet.row-group-size-bytes": str(64 << 20)}),
        ({}, {"write.parquet.bloom-filter-enabled.column.id": "true"}),
    ],
    ids=["uuid", "nested", "large groups", "bloom filter"],
)
def test_spark_writes_the_files_of_other_tables(
    catalog: Catalog, fields: dict[str, Any], properties: dict[str, str]
) -> None:
    schema = parse_schema({"fields": {"id": {"type": "long"}, **fields}})
    assert lasting_files(lasting_table(catalog, schema, **properties), target_schema(schema)) is None


def test_what_is_given_up_in_the_middle_of_a_file_leaves_nothing(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_GROUP_ROWS", 10)
    load_ = started(catalog)
    load_.write(rows(20))
    assert load_.paths == []
    load_.discard()


def test_sweeping_removes_what_others_left(catalog: Catalog) -> None:
    for count in itertools.repeat(5, 2):
        left = started(catalog)
        left.write(rows(count))
        left.finish()
    assert len(catalog.list_tables("_firn", "bulk")) == 2
    remove_leftovers(catalog)


def test_sweeping_goes_on_where_one_cannot_be_read(catalog: Catalog, home: Path) -> None:
    broken, whole = started(catalog), started(catalog)
    for load_ in (broken, whole):
        load_.write(rows(5))
        load_.finish()
    names = catalog.list_tables("_firn", "bulk")
    metadata = [*home.glob(f"warehouse/_firn__bulk/*{names[0].rpartition('-')[2][:12]}*/metadata/*.metadata.json")]
    texts = {path: path.read_bytes() for path in metadata}
    for path in metadata:
        path.write_bytes(b"not metadata")
    remove_leftovers(catalog)
    assert catalog.list_tables("_firn", "bulk") == names[:1]
    for path, text in texts.items():
        path.write_bytes(text)
    remove_leftovers(catalog)

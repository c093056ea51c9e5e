"""Many small local files of plain columns are merged by Arrow: the same rows and figures, or else by Spark itself."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.types import LongType

from service.catalog.tables import Catalog
from service.engine.jobs import rewrite as rewriting
from service.model.names import TableName
from tests.harness import Firn
from tests.integration.test_other_readers import by_duckdb, by_pyiceberg, foreign

FIELDS: dict[str, Any] = {
    "id": {"type": "long", "required": True},
    "kind": {"type": "string"},
    "text": {"type": "string"},
    "price": {"type": "decimal(10,2)"},
    "x": {"type": "double"},
    "at": {"type": "timestamptz"},
}
FILES, EACH = 120, 5
BY_KIND = {"partitions": [{"field": "kind", "transform": "identity"}]}


@pytest.fixture
def by_arrow(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each group that was merged, whether Arrow did it."""
    seen: list[bool] = []
    real: Callable[..., Any] = rewriting.merged

    def merged(*arguments: Any) -> Any:
        files = real(*arguments)
        seen.append(files is not None)
        return files

    monkeypatch.setattr(rewriting, "merged", merged)
    return seen


@pytest.fixture
def address(firn: Firn, tenant: str) -> dict[str, Any]:
    address = {"tenant_id": tenant, "table": "t"}
    properties = {"properties": {"compaction": {"max_files_per_compaction": 10_000}}}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": {"fields": FIELDS}, "partition": BY_KIND, **properties})
    fill(firn, tenant, FILES)
    return address


def fill(firn: Firn, tenant: str, files: int) -> None:
    """So many files of one partition and one of another, in one commit of another program's."""
    table = foreign(firn, tenant)
    count = files * EACH
    rows = [
        {
            "id": i,
            "kind": "many",
            "text": None if i % 3 else f"text {i} é",
            "price": None if i % 4 else i,
            "x": float("nan") if i % 5 == 0 else i / 3,
            "at": i * 1_000_003,
        }
        for i in range(count)
    ]
    plain = pa.schema([("id", "int64"), ("kind", "string"), ("text", "string"), ("price", pa.decimal128(10, 2))])
    plain = plain.append(pa.field("x", "float64")).append(pa.field("at", pa.timestamp("us", tz="UTC")))
    plain = plain.set(0, pa.field("id", "int64", nullable=False))
    data = pa.Table.from_pylist(rows, schema=plain)
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        for i in range(files):
            part = data.slice(i * EACH, EACH)
            for file in _dataframe_to_data_files(change.table_metadata, part, table.io):
                append.append_data_file(file)


def compacted(firn: Firn, address: dict[str, Any], **asked: Any) -> dict[str, Any]:
    stats: dict[str, Any] = firn.ok({"operation": "COMPACT", **address, **asked})["stats"]
    return stats


def test_every_row_and_value_is_there_for_every_reader_and_in_its_order(
    firn: Firn, tenant: str, address: dict[str, Any], by_arrow: list[bool]
) -> None:
    before = {row["id"]: row for row in firn.rows(tenant, "t")}
    # Files of one commit are in the order of their names.
    files = sorted(task.file.file_path for task in foreign(firn, tenant).scan().plan_files())
    in_order = [n for path in files for n in pq.read_table(path.removeprefix("file://"))["id"].to_pylist()]
    stats = compacted(firn, address)
    assert by_arrow == [True]
    assert (stats["files_before"], stats["files_after"], stats["groups_failed"]) == (FILES, 1, 0)
    assert stats["spark_jobs"] == 1
    assert str(firn.rows(tenant, "t")) == str([before[n] for n in in_order])
    assert str(by_pyiceberg(firn, tenant)) == str(by_duckdb(firn, tenant))
    # What Iceberg knows of the file: its bounds and counts prune, and its schema is the table's.
    [task] = foreign(firn, tenant).scan(EqualTo("id", 7)).plan_files()
    assert task.file.record_count == FILES * EACH
    assert task.file.null_value_counts
    assert task.file.null_value_counts[3] == FILES * EACH - len(range(0, 600, 3))
    assert list(foreign(firn, tenant).scan(EqualTo("id", FILES * EACH)).plan_files()) == []
    assert firn.rows(tenant, "t", filter={"text": "text 30 é"})[0]["id"] == 30


@pytest.mark.thorough
def test_files_of_an_earlier_schema_are_merged_by_spark_itself(
    firn: Firn, tenant: str, address: dict[str, Any], by_arrow: list[bool]
) -> None:
    with foreign(firn, tenant).update_schema() as change:
        change.add_column("later", LongType())
    assert compacted(firn, address)["files_after"] == 1
    assert by_arrow == [False]
    assert {row["later"] for row in firn.rows(tenant, "t")} == {None}
    assert len(firn.rows(tenant, "t")) == FILES * EACH


@pytest.mark.thorough
def test_rows_that_another_engine_deleted_beside_stay_deleted(
    firn: Firn, tenant: str, address: dict[str, Any], by_arrow: list[bool]
) -> None:
    name = firn.app.parts[Catalog].load(TableName(tenant, "default", "t")).spark_name

    def delete_beside(session: Any) -> None:
        session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
        session.sql(f"DELETE FROM {name} WHERE id % 2 = 0")

    firn.app.engine.run(delete_beside)
    compacted(firn, address)
    assert by_arrow == [False]
    assert [row["id"] for row in firn.rows(tenant, "t", sort=["id"])] == list(range(1, FILES * EACH, 2))


@pytest.mark.thorough
def test_another_compression_is_what_is_written(
    firn: Firn, tenant: str, address: dict[str, Any], by_arrow: list[bool]
) -> None:

    compacted(firn, address, compression="snappy")
    assert by_arrow == [True]
    [task] = foreign(firn, tenant).scan().plan_files()
    file = pq.ParquetFile(task.file.file_path.removeprefix("file://").removeprefix("file:"))
    assert file.metadata.row_group(0).column(0).compression == "SNAPPY"

"""Files that Arrow writes in process are as Spark would have written them; of the others, Spark writes them."""

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from service.catalog.files.data_files import list_files
from service.engine.jobs.arrow import write as arrow_write
from tests.harness import Firn
from tests.support.tables import TableById

PLAIN = {
    "id": {"type": "long", "required": True},
    "text": {"type": "string"},
    "number": {"type": "integer"},
    "price": {"type": "decimal(9,2)"},
    "large": {"type": "decimal(30,4)"},
    "ratio": {"type": "double"},
    "part": {"type": "float"},
    "day": {"type": "date"},
    "at": {"type": "timestamp"},
    "seen": {"type": "timestamptz"},
    "raw": {"type": "binary"},
    "good": {"type": "boolean"},
}
ROWS = [
    {
        **{
            "id": 1,
            "text": "a" * 40 + "ü",
            "number": -5,
            "price": "1.25",
            "large": "-12345678901234567890.5",
            "ratio": 0.1,
        },
        **{"part": 0.1, "day": "1969-12-31", "at": "1900-01-01T00:00:00.000001", "seen": "2024-02-29T12:00:00Z"},
        **{"raw": "AAE=", "good": True},
    },
    {"id": 2, "text": "", "ratio": "Infinity", "part": -0.0, "at": "2024-01-01", "seen": "1800-01-01T00:00:00"},
    {"id": 3, "ratio": -0.0, "good": False},
]
FEW = {"fields": {"id": {"type": "long"}, "text": {"type": "string"}}}


def writers(table: TableById) -> set[str]:
    """Which libraries wrote the table's files."""
    paths = [Path(file.path.removeprefix("file:")) for file in list_files(table.loaded).data]
    return {pq.ParquetFile("/" + str(path).lstrip("/")).metadata.created_by.partition(" ")[0] for path in paths}


def statistics(table: TableById) -> list[dict[str, Any]]:
    """What the metadata says of each file, but for its name and size."""
    wanted = ("record_count", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds", "partition")
    files = table.loaded.iceberg.inspect.files().to_pylist()
    return [{name: file[name] for name in wanted if name in file} for file in files]


def spark_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_write, "plain_shape", lambda session, iceberg: None)


def test_a_file_of_every_plain_type_is_as_spark_writes_it(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, sparks = (TableById(firn, tenant, name, schema={"fields": PLAIN}) for name in ("mine", "sparks"))
    mine.ok("WRITE", records=ROWS)
    assert writers(mine) == {"parquet-cpp-arrow"}
    with monkeypatch.context() as patch:
        spark_only(patch)
        sparks.ok("WRITE", records=ROWS)
    assert writers(sparks) == {"parquet-mr"}
    assert mine.rows() == sparks.rows()
    assert statistics(mine) == statistics(sparks)
    assert mine.sql("SELECT * FROM {t} ORDER BY id") == sparks.sql("SELECT * FROM {t} ORDER BY id")
    for condition in (
        {"at": {"lt": "1950-01-01T00:00:00"}},
        {"price": "1.25"},
        {"text": {"gte": "a"}},
        {"raw": "AAE="},
    ):
        assert mine.ids(filter=condition) == sparks.ids(filter=condition) == [1]


@pytest.mark.parametrize(
    "create",
    [
        {"schema": FEW, "partition": {"partitions": [{"field": "id", "transform": "bucket", "num_buckets": 2}]}},
        {"schema": {"fields": {**FEW["fields"], "list": {"type": "array", "items": "long"}}}},
        {"schema": {"fields": {**FEW["fields"], "one": {"type": "uuid"}}}},
    ],
    ids=["partitioned", "nested", "uuid"],
)
def test_spark_writes_all_other_files(firn: Firn, tenant: str, create: dict[str, Any]) -> None:
    table = TableById(firn, tenant, **create)
    table.ok("WRITE", records=[{"id": 1}])
    table.bulk_load("id\n2\n", "text/csv")
    assert writers(table) == {"parquet-mr"}
    assert table.ids() == [1, 2]


def test_a_sorted_table_is_written_in_its_order(firn: Firn, tenant: str) -> None:
    table = TableById(firn, tenant, schema=FEW)
    table.sql("ALTER TABLE {t} WRITE ORDERED BY id")
    table.ok("WRITE", records=[{"id": 3}, {"id": 1}, {"id": 2}])
    assert writers(table) == {"parquet-mr"}
    assert [row.id for row in table.sql("SELECT id FROM {t}")] == [1, 2, 3]


def test_shared_edits_are_written_too(firn: Firn, tenant: str) -> None:
    table = TableById(firn, tenant, schema={**FEW, "primary_key": ["id"]})
    table.ok("WRITE", records=[{"id": 1, "text": "a"}, {"id": 2, "text": "b"}])
    table.ok("UPSERT", records=[{"id": 2, "text": "c"}, {"id": 3, "text": "d"}])
    assert writers(table) == {"parquet-cpp-arrow"}
    assert [row["text"] for row in table.rows()] == ["a", "c", "d"]


def test_a_file_that_cannot_be_described_is_deleted(firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = TableById(firn, tenant, schema=FEW)
    table.write({"id": 1})

    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("no")

    with monkeypatch.context() as patch:
        patch.setattr(arrow_write, "described", fail)
        table.fail("INTERNAL_ERROR", "WRITE", records=[{"id": 2}])
    assert table.on_disk() == table.in_snapshots()


class TestBulkLoads:
    def test_the_staged_file_becomes_the_tables(self, firn: Firn, tenant: str) -> None:
        table = TableById(firn, tenant, schema=FEW)
        table.bulk_load("id,text\n" + "\n".join(f"{i},t{i % 3}" for i in range(5000)), "text/csv")
        assert writers(table) == {"parquet-cpp-arrow"}
        assert table.ids() == list(range(5000))
        assert table.ids(filter={"id": {"gte": 4998}}) == [4998, 4999]
        [counted] = statistics(table)
        assert counted["record_count"] == 5000
        assert table.on_disk() == table.in_snapshots()
        [file] = list_files(table.loaded).data
        assert os.stat("/" + file.path.removeprefix("file:").lstrip("/")).st_nlink == 1

    def test_a_table_with_other_columns_than_it_was_created_with_is_loaded_as_ever(
        self, firn: Firn, tenant: str
    ) -> None:
        table = TableById(firn, tenant, schema=FEW)
        table.ok("ALTER_TABLE", drop_columns=["text"])
        table.ok("ALTER_TABLE", add_columns={"more": {"type": "string"}})
        table.bulk_load("id,more\n1,a\n2,\n", "text/csv")
        assert [(row["id"], row["more"]) for row in table.rows()] == [(1, "a"), (2, None)]

    def test_if_the_files_are_on_another_disk_spark_writes_them_again(
        self, firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def link(*_: Any) -> None:
            raise OSError(18, "Invalid cross-device link")

        table = TableById(firn, tenant, schema=FEW)
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", link)
            table.bulk_load("id,text\n1,a\n", "text/csv")
        assert writers(table) == {"parquet-mr"}
        assert table.rows() == [{"id": 1, "text": "a"}]
        assert table.on_disk() == table.in_snapshots()

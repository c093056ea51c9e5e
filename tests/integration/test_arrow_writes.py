"""Files that Arrow writes are as Spark would have written them; where they would not be, Spark writes them."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from service.catalog.files.data_files import list_files
from service.engine.jobs import append as appends
from service.engine.jobs import rewrite as rewriting
from service.engine.jobs.arrow import merge as merging
from service.engine.jobs.arrow import stage as staging
from service.writes.bulk import load as loading
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
    "never": {"type": "double"},
}
ODD: list[dict[str, Any]] = [
    {"id": 1, "text": "a" * 40 + "ü", "number": -5, "price": "1.25", "large": "-12345678901234567890.5", "ratio": 0.1},
    {"id": 2, "part": 0.1, "day": "1969-12-31", "at": "1900-01-01T00:00:00.000001", "seen": "2024-02-29T12:00:00Z"},
    {"id": 3, "raw": "AAE=", "good": True, "text": "", "ratio": "NaN", "part": "NaN", "never": "NaN"},
    {"id": 4, "ratio": "Infinity", "part": -0.0, "at": "2024-01-01", "seen": "1800-01-01T00:00:00", "good": False},
]
ROWS = [*ODD, *({"id": i, "text": f"t{i}"} for i in range(5, 1005))]
FEW = {"fields": {"id": {"type": "long"}, "text": {"type": "string"}}}
MANY = [{"id": i, "text": f"t{i % 3}"} for i in range(1500)]
CSV = "id,text\n" + "".join(f"{row['id']},{row['text']}\n" for row in MANY)
ARROW, SPARK = "parquet-cpp-arrow", "parquet-mr"


@contextmanager
def by_spark() -> Iterator[None]:
    """Spark writes all files during the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appends, "stage_here", lambda *_: None)
        patch.setattr(loading, "lasting_files", lambda *_: None)
        yield


def writers(table: TableById) -> set[str]:
    """Which libraries wrote the table's files."""
    paths = (Path(file.path.removeprefix("file://").removeprefix("file:")) for file in list_files(table.loaded).data)
    return {pq.ParquetFile(path).metadata.created_by.partition(" ")[0] for path in paths}


def statistics(table: TableById) -> list[dict[str, Any]]:
    """What the metadata says of each file, but for its name and size."""
    wanted = ("record_count", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    files = table.loaded.iceberg.inspect.files().to_pylist()
    return [{name: file[name] if name == wanted[0] else sorted(file[name] or []) for name in wanted} for file in files]


def test_rows_of_every_plain_type_are_stored_and_counted_as_spark_does(firn: Firn, tenant: str) -> None:
    mine, sparks = (TableById(firn, tenant, name, schema={"fields": PLAIN}) for name in ("mine", "sparks"))
    mine.ok("WRITE", records=ROWS)
    with by_spark():
        sparks.ok("WRITE", records=ROWS)
    assert (writers(mine), writers(sparks)) == ({ARROW}, {SPARK})
    assert mine.rows() == sparks.rows()
    assert statistics(mine) == statistics(sparks)
    assert str(mine.sql("SELECT * FROM {t} ORDER BY id")) == str(sparks.sql("SELECT * FROM {t} ORDER BY id"))
    for condition, found in (
        ({"at": {"lt": "1950-01-01T00:00:00"}}, [2]),
        ({"price": "1.25"}, [1]),
        ({"text": {"starts_with": "aaa"}}, [1]),
        ({"raw": "AAE="}, [3]),
    ):
        assert mine.ids(filter=condition) == sparks.ids(filter=condition) == found


def test_the_staged_files_of_a_bulk_load_become_the_tables_own(firn: Firn, tenant: str) -> None:
    mine, sparks = (TableById(firn, tenant, name, schema=FEW) for name in ("mine", "sparks"))
    mine.bulk_load(CSV, "text/csv")
    with by_spark():
        sparks.bulk_load(CSV, "text/csv")
    assert (writers(mine), writers(sparks)) == ({ARROW}, {SPARK})
    assert mine.rows() == sparks.rows() == MANY
    assert statistics(mine) == statistics(sparks)
    assert mine.on_disk() == mine.in_snapshots()
    [path] = mine.current_files()
    assert os.stat(path.removeprefix("file://").removeprefix("file:")).st_nlink == 1, "the staged name is gone"


def loaded_with_long_texts(firn: Firn, tenant: str) -> TableById:
    """Several row groups, one of which has a text for which Arrow leaves out the ends."""
    table = TableById(firn, tenant, schema=FEW)
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.parquet.row-group-size-bytes'='4096')")  # several of them
    texts = ["k" * 900] * 8 + ["zz" * 3000] + ["k" * 900] * 8
    table.bulk_load("id,text\n" + "".join(f"{i},{text}\n" for i, text in enumerate(texts)), "text/csv")
    return table


def test_rows_with_long_texts_are_found_in_files_of_several_row_groups(firn: Firn, tenant: str) -> None:
    table = loaded_with_long_texts(firn, tenant)
    assert writers(table) == {ARROW}
    assert table.ids(filter={"text": {"gt": "y"}}) == [8]
    [counted] = statistics(table)
    assert (2, ("z" * 15 + "{").encode()) in counted["upper_bounds"]


@pytest.mark.thorough
def test_they_are_found_after_a_compaction(firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = loaded_with_long_texts(firn, tenant)
    table.ok("WRITE", records=[{"id": 100, "text": "k"}])
    monkeypatch.setattr(merging, "_MANY_FILES", 1)
    real: Callable[..., Any] = rewriting.merged
    made: list[Any] = []
    monkeypatch.setattr(rewriting, "merged", lambda *args: made.append(real(*args)) or made[-1])
    table.ok("COMPACT", force=True)
    assert made
    assert made[0] is not None, "Arrow has merged the files"
    assert table.ids(filter={"text": {"gt": "y"}}) == [8]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "create",
    [
        {"schema": FEW, "partition": {"partitions": [{"field": "id", "transform": "bucket", "num_buckets": 2}]}},
        {"schema": {"fields": {**FEW["fields"], "list": {"type": "array", "items": "long"}}}},
        {"schema": {"fields": {**FEW["fields"], "one": {"type": "uuid"}}}},
    ],
    ids=["partitioned", "nested", "uuid"],
)
def test_spark_writes_the_files_of_other_tables(firn: Firn, tenant: str, create: dict[str, Any]) -> None:
    table = TableById(firn, tenant, **create)
    table.ok("WRITE", records=MANY)
    table.bulk_load("id,text\n5000,t\n", "text/csv")
    assert writers(table) == {SPARK}
    assert table.ids() == [*range(1500), 5000]


@pytest.mark.thorough
def test_spark_computes_derived_columns_and_then_writes_them(firn: Firn, tenant: str) -> None:
    table = TableById(firn, tenant, schema=FEW)
    table.write({"id": -1})
    table.ok("REPARTITION", transform={"twice": {"expression": "id * 2"}})
    table.ok("WRITE", records=MANY)
    table.bulk_load("id,text\n5000,t\n", "text/csv")
    assert writers(table) == {SPARK}
    assert [row["twice"] for row in table.rows()] == [2 * number for number in (-1, *range(1500), 5000)]


@pytest.mark.thorough
def test_a_sorted_table_is_written_in_its_order(firn: Firn, tenant: str) -> None:
    table = TableById(firn, tenant, schema=FEW)
    table.sql("ALTER TABLE {t} WRITE ORDERED BY id DESC")
    table.ok("WRITE", records=MANY)
    assert writers(table) == {SPARK}
    assert [row.id for row in table.sql("SELECT id FROM {t}")] == list(range(1499, -1, -1))
    table.bulk_load("id,text\n1,a\n2,b\n", "text/csv")
    assert writers(table) == {SPARK}


@pytest.mark.thorough
def test_a_table_with_other_columns_than_it_was_created_with_is_loaded_by_spark(firn: Firn, tenant: str) -> None:
    table = TableById(firn, tenant, schema=FEW)
    table.ok("ALTER_TABLE", drop_columns=["text"])
    table.ok("ALTER_TABLE", add_columns={"more": {"type": "string"}})
    table.bulk_load("id,more\n1,a\n2,\n", "text/csv")
    assert [(row["id"], row["more"]) for row in table.rows()] == [(1, "a"), (2, None)]
    table.ok("WRITE", records=[{"id": i, "more": "b"} for i in range(3, 2000)])
    assert writers(table) == {ARROW, SPARK}
    assert table.ids(filter={"more": "b"}) == list(range(3, 2000))


@pytest.mark.thorough
def test_files_are_closed_at_the_tables_size(firn: Firn, tenant: str) -> None:
    table = TableById(firn, tenant, schema=FEW, properties={"target_file_size_mb": 1})
    chance = random.Random(3)
    count = 400_000
    lines = "".join(f"{i},{chance.getrandbits(64):x}\n" for i in range(count))
    table.bulk_load("id,text\n" + lines, "text/csv")
    assert writers(table) == {ARROW}
    sizes = [os.path.getsize(path.removeprefix("file://").removeprefix("file:")) for path in table.current_files()]
    # A file ends with the row group that reaches the size.
    assert len(sizes) > 1
    assert max(sizes) < 9 << 20
    assert table.sql("SELECT count(DISTINCT id) AS n FROM {t}")[0].n == count


@pytest.mark.thorough
class TestIfTheDiskRefuses:
    def test_a_second_name_spark_writes_the_rows_again(
        self, firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def link(*_: Any) -> None:
            raise OSError(18, "Invalid cross-device link")

        table = TableById(firn, tenant, schema=FEW)
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", link)
            table.bulk_load(CSV, "text/csv")
        assert writers(table) == {SPARK}
        assert table.rows() == MANY
        assert table.on_disk() == table.in_snapshots()

    def test_arrows_file_spark_writes_the_rows(self, firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def write(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        table = TableById(firn, tenant, schema=FEW)
        with monkeypatch.context() as patch:
            patch.setattr(staging, "write", write)
            table.ok("WRITE", records=MANY)
        assert writers(table) == {SPARK}
        assert table.rows() == MANY


@pytest.mark.thorough
def test_a_file_that_cannot_be_described_is_deleted(firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = TableById(firn, tenant, schema=FEW)

    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("no")

    with monkeypatch.context() as patch:
        patch.setattr(staging, "described", fail)
        table.fail("INTERNAL_ERROR", "WRITE", records=MANY)
    assert table.on_disk() == table.in_snapshots() == set()

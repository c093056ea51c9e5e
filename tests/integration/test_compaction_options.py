"""What a COMPACT may ask for besides merging: an order of rows, a codec, fewer manifests, its own measure of small."""

import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from service.engine.jobs import rewrite as rewriting
from tests.harness import Firn, wait_until
from tests.integration.test_other_readers import by_duckdb, foreign
from tests.support.marks import thorough_after
from tests.support.tables import TableById

SCHEMA = {
    "fields": {
        "id": {"type": "long", "required": True},
        "x": {"type": "integer"},
        "y": {"type": "integer"},
        "country": {"type": "string"},
        "home": {"type": "struct", "fields": {"city": {"type": "string"}}},
    }
}
BY_COUNTRY = {"partitions": [{"field": "country", "transform": "identity"}]}
FILES, ROWS = 4, 16


class Table(TableById):
    """Four files of rows in no order."""

    def __init__(self, firn: Firn, tenant: str, **create: Any) -> None:
        super().__init__(firn, tenant, **{"schema": SCHEMA, **create})
        for i in range(FILES):
            self.write(*(self.row((i * ROWS + n) * 37 % 64, i * ROWS + n) for n in range(ROWS)))

    @staticmethod
    def row(place: int, number: int) -> dict[str, Any]:
        home = {"city": f"city {place:02}"}
        return {"id": number, "x": place % 8, "y": place // 8, "country": ["de", None][number % 2], "home": home}

    def paths(self) -> list[Path]:
        tasks = foreign(self.firn, self.tenant).scan().plan_files()
        return [Path(task.file.file_path.removeprefix("file:")) for task in tasks]


def test_rows_are_sorted_by_the_columns_asked_for_also_inside_others(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    before = table.rows()
    assert table.ok("COMPACT", strategy="sort", sort_by=["y", "home.city"])["stats"]["files_after"] == 1
    [path] = table.paths()
    found = [(row["y"], row["home"]["city"]) for row in pq.read_table(path).to_pylist()]
    assert found == sorted(found)
    assert table.rows() == by_duckdb(firn, tenant) == before


@pytest.mark.thorough
def test_rows_are_sorted_within_each_partition_by_a_tables_own_policy(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant, partition=BY_COUNTRY)
    table.ok("SET_COMPACTION", strategy="sort", sort_by=["x", "id"])
    before = table.rows()
    stats = table.ok("COMPACT")["stats"]
    assert (stats["files_after"], stats["partitions_compacted"]) == (2, 2)
    for path in table.paths():
        found = [(row["x"], row["id"]) for row in pq.ParquetFile(path).read().to_pylist()]
        assert found == sorted(found)
    assert table.rows() == before


@pytest.mark.thorough
def test_rows_are_ordered_along_a_curve_through_all_columns(firn: Firn, tenant: str) -> None:
    """Of a square of 8 by 8, each quarter of the file holds a quarter of it: no column goes before the other."""
    table = Table(firn, tenant)
    before = table.rows()
    assert table.ok("COMPACT", strategy="zorder", sort_by=["x", "y"])["stats"]["files_after"] == 1
    [path] = table.paths()
    found = [(row["x"], row["y"]) for row in pq.read_table(path).to_pylist()]
    for i in range(4):
        quarter = found[i * 16 : i * 16 + 16]
        assert len({x // 4 for x, _ in quarter}) == len({y // 4 for _, y in quarter}) == 1
    assert table.rows() == by_duckdb(firn, tenant) == before


@pytest.mark.thorough
@pytest.mark.parametrize(
    "strategy", thorough_after(1, [{}, {"strategy": "sort", "sort_by": ["id"]}]), ids=["binpack", "sort"]
)
def test_the_codec_changes_on_the_way(firn: Firn, tenant: str, strategy: dict[str, Any]) -> None:
    table = Table(firn, tenant)
    before = table.rows()
    assert table.ok("COMPACT", compression="gzip", **strategy)["compacted"]
    [path] = table.paths()
    columns = pq.ParquetFile(path).metadata.row_group(0)
    assert {columns.column(i).compression for i in range(columns.num_columns)} == {"GZIP"}
    assert table.rows() == before
    # The next one, which does not ask, is of the table's own again.
    for number in range(2):
        table.ok("WRITE", records=[Table.row(0, 1000 + number)])
    table.ok("COMPACT", **strategy)
    [path] = table.paths()
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


def test_fewer_manifests_are_made_and_the_answer_names_the_newest_snapshot(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant, partition=BY_COUNTRY)
    before = table.rows()
    answer = table.ok("COMPACT", min_files=100, rewrite_manifests=True)
    assert (answer["compacted"], answer["stats"]["manifests_rewritten"]) == (False, FILES)
    iceberg = foreign(firn, tenant)
    assert len(iceberg.inspect.manifests()) == 1
    assert answer["metadata"]["snapshot_id"] == str(iceberg.metadata.current_snapshot_id)
    answer = table.ok("COMPACT", rewrite_manifests=True)
    assert (answer["compacted"], answer["stats"]["files_after"]) == (True, 2)
    assert answer["metadata"]["snapshot_id"] == str(foreign(firn, tenant).metadata.current_snapshot_id)
    assert table.rows() == before


@pytest.mark.thorough
def test_what_is_small_may_be_said(firn: Firn, tenant: str) -> None:
    """Three small files and three of 2 MB, of which a measure of 1 MB takes none."""
    table = Table(firn, tenant, properties={"compression": "uncompressed"})
    for number in range(3):
        rows = [{**Table.row(0, 1000 + number * 20 + n), "home": {"city": f"{n}" + "x" * 100_000}} for n in range(20)]
        table.ok("WRITE", records=rows)
    answer = table.ok("COMPACT", max_file_size_mb=1)
    assert (answer["stats"]["files_compacted"], answer["stats"]["files_after"]) == (FILES, 4)
    answer = table.ok("COMPACT")
    assert (answer["stats"]["files_compacted"], answer["stats"]["files_after"]) == (4, 1)


def test_a_running_spark_job_is_cancelled_with_its_job(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(firn, tenant)
    before, reached = table.rows(), threading.Event()
    real = rewriting._for_writers

    def slow(*args: Any) -> Any:
        reached.set()
        rows = real(*args)
        others = [name for name in rows.columns if name != "id"]
        slept = "if(reflect('java.lang.Thread', 'sleep', 20000L) is null, id, id) id"
        return rows.selectExpr(slept, *others)

    with monkeypatch.context() as patch:
        patch.setattr(rewriting, "_for_writers", slow)
        job_id = table.ok("COMPACT", **{"async": True})["job_id"]
        assert reached.wait(30)
        wait_until(lambda: firn.app.engine.run(active_tasks) > 0, 30)
        firn.client.delete(f"/jobs/{job_id}")
        wait_until(lambda: firn.client.get(f"/jobs/{job_id}").json()["job"]["state"] == "cancelled", 15)
    error = firn.client.get(f"/jobs/{job_id}").json()["job"]["error"]
    assert error["details"] == {"files_compacted": 0, "files_added": 0, "partitions_compacted": 0}
    assert (table.rows(), table.compaction_folders()) == (before, [])


def active_tasks(session: Any) -> int:
    tracker = session.sparkContext.statusTracker()
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(info.numActiveTasks for info in infos if info is not None)

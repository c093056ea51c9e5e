"""Appends in two steps: what is staged is nobody's until a commit says so."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from service.catalog.tables import Table
from service.engine import append as appends
from service.engine.compaction import load_table
from service.engine.rows import arrow_schema, frame
from service.names import BATCH_PROPERTY, TableName
from tests.harness import Firn

_ICEBERG = "org.apache.iceberg"


def made(firn: Firn, tenant: str, name: str = "t") -> Table:
    fields = {"id": {"type": "long", "required": True}, "kind": {"type": "string"}}
    by = {"partitions": [{"field": "kind", "transform": "identity"}]}
    firn.ok(
        {
            "operation": "CREATE_TABLE",
            "tenant_id": tenant,
            "table": name,
            "schema": {"fields": fields},
            "partition": by,
        }
    )
    return now(firn, tenant, name)


def now(firn: Firn, tenant: str, name: str = "t") -> Table:
    return firn.app.context.catalog.load(TableName(tenant, "default", name))


def rows(table: Table, *ids: int) -> pa.Table:
    return pa.table([list(ids), [f"kind {i % 3}" for i in ids]], schema=arrow_schema(table.schema))


def append(firn: Firn, table: Table, *ids: int) -> int:
    data = rows(table, *ids)
    return firn.app.engine.run(appends.append, table.spark_name, data, "b", uuid=table.uuid, schema_id=table.schema_id)


def stage(firn: Firn, table: Table, *ids: int) -> appends.Staged:
    data = rows(table, *ids)
    return firn.app.engine.run(lambda s: appends.stage(s, table.spark_name, frame(s, data)))


def ids_in(firn: Firn, tenant: str, name: str = "t") -> list[int]:
    return sorted(row["id"] for row in firn.rows(tenant, name))


def on_disk(staged: appends.Staged) -> list[bool]:
    return [Path(path.removeprefix("file:")).exists() for path in staged.paths]


def test_staged_rows_are_in_the_table_once_they_are_committed_and_not_before(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    staged = stage(firn, table, 1, 2, 3)
    assert (staged.records, on_disk(staged)) == (3, [True] * 3), "a file for each partition"
    assert ids_in(firn, tenant) == []
    snapshot_id = firn.app.engine.run(appends.commit, table.spark_name, staged, "the batch", uuid=table.uuid)
    after = now(firn, tenant)
    snapshot = after.committed_by("the batch")
    assert snapshot is not None
    assert (snapshot.snapshot_id, after.current_snapshot_id) == (snapshot_id, snapshot_id)
    assert snapshot.summary[BATCH_PROPERTY] == "the batch"
    assert ids_in(firn, tenant) == [1, 2, 3]


def test_discarded_files_are_gone(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    staged = stage(firn, table, 1, 2)
    firn.app.engine.run(appends.discard, table.spark_name, staged)
    assert on_disk(staged) == [False] * 2


def test_a_refusal_before_the_commit_leaves_neither_rows_nor_files(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)

    def refuse() -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        firn.app.engine.run(
            appends.append,
            table.spark_name,
            rows(table, 1),
            "b",
            uuid=table.uuid,
            schema_id=table.schema_id,
            before_commit=refuse,
        )
    assert now(firn, tenant).current_snapshot_id is None
    assert list(Path(table.location.removeprefix("file://")).rglob("*.parquet")) == []


def test_a_table_made_anew_under_the_same_name_takes_no_rows_meant_for_the_old_one(firn: Firn, tenant: str) -> None:
    old = made(firn, tenant)
    for i in range(8):  # so that every session knows it
        append(firn, old, i)
    staged = stage(firn, old, 10)
    firn.ok({"operation": "DROP_TABLE", "tenant_id": tenant, "table": "t", "confirm": True})
    new = made(firn, tenant)
    with pytest.raises(appends.Moved):
        append(firn, old, 9)
    with pytest.raises(appends.Moved):
        firn.app.engine.run(appends.commit, old.spark_name, staged, "b", uuid=old.uuid)
    assert ids_in(firn, tenant) == []
    append(firn, new, 1)
    assert ids_in(firn, tenant) == [1]


def test_rows_for_an_older_schema_are_not_appended(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    append(firn, table, 1)
    firn.app.engine.run(lambda s: s.sql(f"ALTER TABLE {table.spark_name} ADD COLUMN more int").collect())
    with pytest.raises(appends.Moved):
        append(firn, table, 2)
    assert ids_in(firn, tenant) == [1]


def test_commits_of_other_writers_are_built_upon(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    append(firn, table, 1)
    now(firn, tenant).iceberg.append(rows(table, 2))
    append(firn, table, 3)
    firn.ok({"operation": "DELETE", "tenant_id": tenant, "table": "t", "filter": {"id": 1}})
    append(firn, table, 4)
    assert ids_in(firn, tenant) == [2, 3, 4]


def test_manifests_are_merged_and_old_metadata_goes(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    merge = f"ALTER TABLE {table.spark_name} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '4')"
    firn.app.engine.run(lambda s: s.sql(merge).collect())
    for i in range(13):
        append(firn, table, i)
    after = now(firn, tenant)
    snapshot = after.iceberg.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(after.iceberg.io)) <= 4
    folder = Path(after.metadata_location.removeprefix("file://").removeprefix("file:")).parent
    assert len(list(folder.glob("*.metadata.json"))) == 11


def test_appends_leave_nothing_behind_in_the_jvm(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    append(firn, table, 1)
    append(firn, table, 2)

    def left(session: SparkSession) -> tuple[int, int]:
        spark = _jvm(session).org.apache.iceberg.spark
        iceberg = load_table(session, table.spark_name)
        staged = spark.FileRewriteCoordinator.get().fetchSetIds(iceberg)
        return spark.SparkTableCache.get().size(), staged.size()

    assert firn.app.engine.run(left) == (0, 0)


def test_a_commit_does_not_wait_for_the_pool_that_deletes_old_metadata(firn: Firn, tenant: str) -> None:
    """The field that says so is not Iceberg's promise; if it goes, each commit takes 10 ms more."""
    append(firn, made(firn, tenant), 1)

    def pool(session: SparkSession) -> str:
        jvm = _jvm(session)
        field = jvm.java.lang.Class.forName(f"{_ICEBERG}.hadoop.HadoopFileIO").getDeclaredField("executorService")
        field.setAccessible(True)
        return str(field.get(None).getClass().getSimpleName())

    assert firn.app.engine.run(pool) == "DirectExecutorService"


def _jvm(session: SparkSession) -> Any:
    return session._jvm

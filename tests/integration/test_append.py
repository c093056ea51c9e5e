"""Appends in two steps: what is staged is nobody's until a commit says so."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from service.catalog.tables import Catalog, Table
from service.engine.iceberg import swap as swaps
from service.engine.iceberg.staging import StagedFiles
from service.engine.iceberg.swap import TableChanged
from service.engine.iceberg.tables import load_table
from service.engine.jobs import append as appends
from service.engine.session.java import java_class
from service.engine.session.rows import arrow_schema, frame
from service.errors import CommitConflict, OutcomeUnknown, TableNotFound
from service.model.names import BATCH_PROPERTY, TableName
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
    return firn.app.parts[Catalog].load(TableName(tenant, "default", name))


def rows(table: Table, *ids: int) -> pa.Table:
    return pa.table([list(ids), [f"kind {i % 3}" for i in ids]], schema=arrow_schema(table.schema))


def append(firn: Firn, table: Table, *ids: int, gate: Callable[[], object] = lambda: None) -> int:
    return firn.app.engine.run(
        appends.append,
        table.spark_name,
        rows(table, *ids),
        "b",
        uuid=table.uuid,
        schema_id=table.schema_id,
        gate=gate,
    )


def stage(firn: Firn, table: Table, *ids: int) -> StagedFiles:
    data = rows(table, *ids)
    return firn.app.engine.run(lambda s: appends.stage(s, table.spark_name, frame(s, data)))


def ids_in(firn: Firn, tenant: str, name: str = "t") -> list[int]:
    return sorted(row["id"] for row in firn.rows(tenant, name))


def path(location: str) -> Path:
    return Path(location.removeprefix("file://").removeprefix("file:"))


def on_disk(staged: StagedFiles) -> list[bool]:
    return [path(location).exists() for location in staged.paths]


def files(table: Table) -> set[Path]:
    """What is on disk of a table, but for its metadata files: a catalog in a database leaves those of the beaten."""
    return {file for file in path(table.location).rglob("*") if file.suffix in (".avro", ".parquet")}


def held(table: Table) -> set[Path]:
    """What the table's snapshots hold: their lists of manifests, manifests and data files."""
    io, found = table.iceberg.io, set()
    for snapshot in table.iceberg.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(io):
            found.add(manifest.manifest_path)
            found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io)}
    return {path(location) for location in found}


def alter(firn: Firn, table: Table, change: str) -> None:
    firn.app.engine.run(lambda s: s.sql(f"ALTER TABLE {table.spark_name} {change}").collect())


def drop(firn: Firn, tenant: str) -> None:
    firn.ok({"operation": "DROP_TABLE", "tenant_id": tenant, "table": "t", "confirm": True})


class Once:
    """Runs something the first time it is called, and counts its calls."""

    def __init__(self, what: Callable[[], object]) -> None:
        self.calls = 0
        self._what = what

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == 1:
            self._what()


class Swapping:
    """A table whose swaps end as they are told to; all else of it is the real one's."""

    def __init__(self, iceberg: Any, swap: Callable[[Callable[[], None]], None]) -> None:
        self._iceberg = iceberg
        self._swap = swap
        self._operations = iceberg.operations()

    def newAppend(self) -> Any:
        return self._iceberg.newAppend()

    def operations(self) -> "Swapping":
        return self

    def io(self) -> Any:
        return self._operations.io()

    def current(self) -> Any:
        return self._operations.current()

    def refresh(self) -> Any:
        return self._operations.refresh()

    def commit(self, base: Any, updated: Any) -> None:
        self._swap(lambda: self._operations.commit(base, updated))


def thrown(name: str) -> Py4JJavaError:
    """What a call into the JVM raises when it throws one of Iceberg's exceptions."""
    cause = java_class("java.lang.RuntimeException")("the answer was lost")
    return Py4JJavaError("it failed", java_class(f"{_ICEBERG}.exceptions.{name}")(cause))


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
    firn.app.engine.run(appends.discard, staged)
    assert on_disk(staged) == [False] * 2


def test_a_refusal_before_the_commit_leaves_neither_rows_nor_files(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)

    def refuse() -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        append(firn, table, 1, gate=refuse)
    assert now(firn, tenant).current_snapshot_id is None
    assert files(table) == set()


def test_a_refusal_of_staged_files_leaves_them_and_nothing_else(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    staged = stage(firn, table, 1)

    def commit(gate: Callable[[], object] = lambda: None) -> int:
        return firn.app.engine.run(appends.commit, table.spark_name, staged, "b", uuid=table.uuid, gate=gate)

    with pytest.raises(ZeroDivisionError):
        commit(lambda: 1 / 0)
    assert (on_disk(staged), files(table)) == ([True], {path(staged.paths[0])})
    commit()
    assert ids_in(firn, tenant) == [1]


@pytest.mark.parametrize("merged", [False, True], ids=["as it is", "with merged manifests"])
def test_an_append_that_is_beaten_is_built_on_the_commit_that_beat_it(firn: Firn, tenant: str, merged: bool) -> None:
    table = made(firn, tenant)
    if merged:
        alter(firn, table, "SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '2')")
    append(firn, table, 1)
    look = Once(lambda: append(firn, table, 2))
    snapshot_id = append(firn, table, 3, gate=look)
    after = now(firn, tenant)
    assert look.calls == 2, "it is asked for each swap"
    assert ids_in(firn, tenant) == [1, 2, 3]
    assert (len(after.snapshots()), after.current_snapshot_id) == (3, snapshot_id)
    assert [s.summary["total-records"] for s in after.snapshots()] == ["1", "2", "3"]
    assert files(after) == held(after)


def test_an_append_that_lost_its_leave_while_it_was_beaten_is_not_committed(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    look = Once(lambda: append(firn, table, 1))

    def leave() -> None:
        if look.calls:
            raise KeyError("another has it now")
        look()

    with pytest.raises(KeyError):
        append(firn, table, 2, gate=leave)
    after = now(firn, tenant)
    assert ids_in(firn, tenant) == [1]
    assert files(after) == held(after)


def test_an_append_that_is_beaten_too_often_is_a_conflict_and_leaves_no_files(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    alter(firn, table, "SET TBLPROPERTIES ('commit.retry.num-retries' = '2')")
    beaten: list[int] = []

    def beat() -> None:
        append(firn, table, len(beaten))
        beaten.append(len(beaten))

    with pytest.raises(CommitConflict):
        append(firn, table, 99, gate=beat)
    after = now(firn, tenant)
    assert ids_in(firn, tenant) == beaten == [0, 1, 2], "the table says how many tries there are after the first"
    assert files(after) == held(after)


def test_a_schema_that_changes_just_before_the_swap_keeps_the_rows_out(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    append(firn, table, 1)
    with pytest.raises(TableChanged, match="schema"):
        append(firn, table, 2, gate=Once(lambda: alter(firn, table, "ADD COLUMN more int")))
    after = now(firn, tenant)
    assert ids_in(firn, tenant) == [1]
    assert files(after) == held(after)


def test_a_table_replaced_just_before_the_swap_gets_no_rows_meant_for_the_old_one(firn: Firn, tenant: str) -> None:
    old = made(firn, tenant)
    new: list[Table] = []

    def renew() -> None:
        drop(firn, tenant)
        new.append(made(firn, tenant))

    with pytest.raises(TableChanged, match="created again"):
        append(firn, old, 1, gate=Once(renew))
    assert ids_in(firn, tenant) == []
    assert files(old) == files(new[0]) == set()


def test_a_table_dropped_just_before_the_swap_is_gone_and_stays_gone(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    with pytest.raises(TableNotFound):
        append(firn, table, 1, gate=Once(lambda: drop(firn, tenant)))
    with pytest.raises(TableNotFound):
        now(firn, tenant)
    assert files(table) == set()
    for i in range(8):  # also by the session that found it gone
        with pytest.raises(TableNotFound):
            append(firn, table, i)
    append(firn, made(firn, tenant), 2)
    assert ids_in(firn, tenant) == [2]


@pytest.mark.parametrize("happened", [True, False])
def test_nothing_is_deleted_when_nobody_knows_whether_the_swap_happened(
    firn: Firn, tenant: str, happened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(firn, tenant)
    staged = stage(firn, table, 1)

    def swap(really: Callable[[], None]) -> None:
        if happened:
            really()
        raise thrown("CommitStateUnknownException")

    def loaded(session: SparkSession, name: str) -> Any:
        return Swapping(load_table(session, name), swap)

    monkeypatch.setattr(swaps, "current", loaded)
    with pytest.raises(OutcomeUnknown):
        firn.app.engine.run(appends.commit, table.spark_name, staged, "b", uuid=table.uuid)
    after = now(firn, tenant)
    assert ids_in(firn, tenant) == ([1] if happened else [])
    assert len(files(after)) == 3, "a data file, a manifest, a list of manifests"
    assert held(after) == (files(after) if happened else set())


def test_a_swap_that_a_broken_connection_made_twice_is_one_commit(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt finds the first one's metadata, takes it for another writer's, and says it was beaten."""
    table = made(firn, tenant)
    staged = stage(firn, table, 1)
    calls: list[None] = []

    def swap(really: Callable[[], None]) -> None:
        calls.append(really())
        raise thrown("CommitFailedException")

    def loaded(session: SparkSession, name: str) -> Any:
        return Swapping(load_table(session, name), swap)

    monkeypatch.setattr(swaps, "current", loaded)
    made_by = firn.app.engine.run(appends.commit, table.spark_name, staged, "b", uuid=table.uuid)
    after = now(firn, tenant)
    assert (len(calls), after.current_snapshot_id, after.snapshot_count) == (1, made_by, 1)
    assert ids_in(firn, tenant) == [1]
    assert held(after) == files(after)


@pytest.mark.thorough
def test_appends_of_several_sessions_to_one_table_all_land(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    writers, each = 4, 20

    def write(writer: int) -> int:
        conflicts = 0
        for i in range(each):
            while True:
                try:
                    append(firn, table, writer * each + i)
                    break
                except CommitConflict:  # as a batch of writes does
                    conflicts += 1
                    assert conflicts < 20
        return conflicts

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    after = now(firn, tenant)
    assert ids_in(firn, tenant) == list(range(writers * each))
    assert len(after.snapshots()) == writers * each
    assert files(after) == held(after)


def test_a_new_table_of_the_same_name_gets_no_rows_meant_for_the_old_one(firn: Firn, tenant: str) -> None:
    old = made(firn, tenant)
    for i in range(8):  # so that every session knows it
        append(firn, old, i)
    staged = stage(firn, old, 10)
    drop(firn, tenant)
    new = made(firn, tenant)
    with pytest.raises(TableChanged):
        append(firn, old, 9)
    with pytest.raises(TableChanged):
        firn.app.engine.run(appends.commit, old.spark_name, staged, "b", uuid=old.uuid)
    assert ids_in(firn, tenant) == []
    append(firn, new, 1)
    assert ids_in(firn, tenant) == [1]


def test_rows_for_an_older_schema_are_not_appended(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    append(firn, table, 1)
    alter(firn, table, "ADD COLUMN more int")
    with pytest.raises(TableChanged):
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
    alter(firn, table, "SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '4')")
    for i in range(13):
        append(firn, table, i)
    after = now(firn, tenant)
    snapshot = after.iceberg.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(after.iceberg.io)) <= 4
    assert len(list(path(after.metadata_location).parent.glob("*.metadata.json"))) == 11
    assert files(after) == held(after)


@pytest.mark.thorough
def test_many_appends_have_few_manifests(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    merged_at = int(table.iceberg.properties["commit.manifest.min-count-to-merge"])
    for i in range(150):
        append(firn, table, i)
    after = now(firn, tenant)
    snapshot = after.iceberg.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(after.iceberg.io)) <= merged_at < 150
    assert files(after) == held(after)


def test_appends_leave_nothing_behind_in_the_jvm(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    append(firn, table, 1)
    append(firn, table, 2)

    def left(session: SparkSession) -> tuple[int, int]:
        iceberg = load_table(session, table.spark_name)
        staged = java_class(f"{_ICEBERG}.spark.FileRewriteCoordinator").get().fetchSetIds(iceberg)
        return java_class(f"{_ICEBERG}.spark.SparkTableCache").get().size(), staged.size()

    assert firn.app.engine.run(left) == (0, 0)


def test_a_commit_does_not_wait_for_the_pool_that_deletes_old_metadata(firn: Firn, tenant: str) -> None:
    """The field that says so is not Iceberg's promise; if it goes, each commit takes 10 ms more."""
    append(firn, made(firn, tenant), 1)

    def pool(session: SparkSession) -> str:
        field = (
            java_class("java.lang.Class").forName(f"{_ICEBERG}.hadoop.HadoopFileIO").getDeclaredField("executorService")
        )
        field.setAccessible(True)
        return str(field.get(None).getClass().getSimpleName())

    assert firn.app.engine.run(pool) == "DirectExecutorService"

"""CLEAN_ORPHANS removes what nothing refers to, and never a file that is, or is about to be, a snapshot's."""

import gzip
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from service.catalog.files.storage import stored_files
from service.engine.iceberg.staging import StagedFiles
from service.engine.jobs import append as appends
from service.engine.jobs.orphans import compare
from service.engine.session.rows import arrow_schema, frame
from service.jobs.job import BULK, BulkProgress
from service.jobs.jobs import Jobs
from service.ledger.ledger import Ledger, NewBatch
from service.maintenance.orphans.orphans import Orphans
from service.model.call import Call
from service.model.times import HOUR_MS, now_ms
from tests.harness import Firn
from tests.support.tables import ServedTable

FIELDS = {"fields": {"id": {"type": "long", "required": True}, "kind": {"type": "string"}}, "primary_key": ["id"]}
BY_KIND = {"partitions": [{"field": "kind", "transform": "identity"}]}
DAYS = 24 * 3600


class Shop(ServedTable):
    """A table in a local folder, and whoever leaves things in it."""

    def __init__(self, firn: Firn, tenant: str, table: str = "t", **create: Any) -> None:
        super().__init__(firn, tenant, table, **{"schema": FIELDS, **create})

    def write(self, *ids: int, kind: str = "a") -> int:
        answer = self.ok("WRITE", records=[{"id": i, "kind": kind} for i in ids])
        return int(answer["metadata"]["snapshot_id"])

    def clean(self, **fields: Any) -> dict[str, Any]:
        return self.ok("CLEAN_ORPHANS", **fields)

    def on_disk(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}

    def plant(self, *paths: str, days: float = 4, text: bytes = b"junk") -> set[str]:
        """Files that belong to nothing, as old as that."""
        for path in paths:
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_bytes(text)
            self.age(path, days=days)
        return set(paths)

    def age(self, *paths: str, days: float = 4) -> None:
        then = time.time() - days * DAYS
        for path in paths:
            os.utime(self.folder / path, (then, then))

    def stage(self, *ids: int) -> StagedFiles:
        """Data files of rows that nobody has committed."""
        table = self.loaded
        rows = pa.table([list(ids), ["a"] * len(ids)], schema=arrow_schema(table.schema))

        def job(session: SparkSession) -> StagedFiles:
            return appends.stage(session, table.spark_name, frame(session, rows))

        return self.firn.app.engine.run(job)

    def commit(self, staged: StagedFiles) -> None:
        table = self.loaded
        self.firn.app.engine.run(appends.commit, table.spark_name, staged, "elsewhere", uuid=table.uuid)

    def paths(self, staged: StagedFiles) -> list[str]:
        return [os.path.relpath(path.removeprefix("file:"), self.folder) for path in staged.paths]


@contextmanager
def between(orphans: Orphans, then: Callable[[], object]) -> Iterator[Orphans]:
    """The same, but something happens right after the first comparison."""
    calls: list[int] = []
    run = orphans.engine.run

    def running(job: Any, *args: Any, **kwargs: Any) -> Any:
        found = run(job, *args, **kwargs)
        if job is compare and not calls:
            calls.append(1)
            then()
        return found

    class Hooked:
        pass

    hooked: Any = Hooked()
    hooked.run = running
    yield replace(orphans, engine=hooked)
    assert calls


PLANTED = [
    "data/kind=a/00000-1-junk.parquet",
    "data/kind=a%2Fb/with a space & (1) é%20ü.parquet",
    "data/deep/er/and/deeper/x.parquet",
    "data/_temporary/0/part-0.parquet",
    "data/_SUCCESS",
    "data/.hidden",
    "data/.gone.parquet.crc",
    "metadata/snap-1-1-junk.avro",
    "metadata/junk-m0.avro",
    "metadata/00099-junk.metadata.json",
    "metadata/#?[0].stats",
    "at the top.txt",
]


def test_exactly_what_nothing_refers_to_and_is_old_goes(firn: Firn, tenant: str) -> None:
    """From a table with everything: old snapshots, a tag, edits, a compaction, an expiry, delete files."""
    shop = Shop(firn, tenant, partition=BY_KIND)
    first = shop.write(1, 2)
    shop.sql("ALTER TABLE {t} CREATE TAG first")
    shop.write(3, kind="b/c d%é")
    shop.ok("UPSERT", records=[{"id": 1, "kind": "z"}, {"id": 4, "kind": "b/c d%é"}])
    shop.ok("DELETE", filter={"id": 2})
    shop.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    shop.write(*range(10, 20))
    shop.sql("DELETE FROM {t} WHERE id = 12")
    shop.ok("COMPACT", force=True, snapshot_retention_hours=0)
    last = [shop.write(i) for i in range(30, 33)]
    shop.sql("DELETE FROM {t} WHERE id = 11")
    before = {snapshot.snapshot_id: shop.ids(as_of=snapshot.snapshot_id) for snapshot in shop.loaded.snapshots()}
    assert {first, *last} <= before.keys()

    live = shop.on_disk()
    shop.age(*live, days=30)  # however old, what is live stays
    old = shop.plant(*PLANTED)
    young = shop.plant("data/kind=a/young.parquet", "metadata/young.avro", days=2)
    asked = shop.clean(dry_run=True)["plan"]
    assert asked["files_removed"] == len(old)
    assert (set(asked["files"]), asked["bytes_removed"]) == (old, 4 * len(old))
    assert shop.on_disk() == live | old | young
    removed = shop.clean()
    assert (removed["files_found"], removed["files_removed"], set(removed["files"])) == (len(old), len(old), old)
    assert shop.on_disk() == live | young
    assert shop.clean(older_than_hours=24)["files_removed"] == len(young)
    assert shop.on_disk() == live
    assert before == {snapshot_id: shop.ids(as_of=snapshot_id) for snapshot_id in before}
    assert [row.id for row in shop.sql("SELECT id FROM {t} VERSION AS OF 'first' ORDER BY id")] == [1, 2]
    assert shop.clean()["files_found"] == 0


def test_alone_it_removes_files_of_any_age(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant)
    shop.write(1)
    live = shop.on_disk()
    staged = shop.stage(7)
    [made] = shop.paths(staged)
    assert {made} < shop.on_disk() - live
    answer = shop.clean(older_than_hours=0)
    assert (answer["files_removed"], answer["files"]) == (1, [made])
    assert (shop.on_disk(), shop.ids()) == (live, [1])


def test_checksums_stay_as_long_as_their_files_do_and_no_longer(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant)
    shop.write(1)
    live = shop.on_disk()
    checksums = {path for path in live if path.endswith(".crc")}
    shop.age(*checksums, days=30)
    assert checksums
    shop.plant("data/x.parquet", "data/.x.parquet.crc", "data/.crc", days=5)
    answer = shop.clean()
    # A file's own checksum goes with it and does not count.
    assert set(answer["files"]) == {"data/x.parquet", "data/.crc"}
    assert answer["files_removed"] == 2
    assert shop.on_disk() == live


class TestSlowWriters:
    """What somebody has written and not committed yet is not removed, however old it is."""

    def test_the_files_of_a_writer_that_is_noted_stay(self, firn: Firn, tenant: str) -> None:
        shop = Shop(firn, tenant)
        shop.write(1)
        with firn.app.parts[Jobs].begin(BULK, shop.loaded, BulkProgress(), Call()) as job:
            staged = shop.stage(7, 8)
            junk = shop.plant("data/junk.parquet", days=20)
            begun_long_ago(firn, job.id, days=10)
            shop.age(*shop.paths(staged), days=9)
            answer = shop.clean()
            assert set(answer["files"]) == junk
            assert answer["held_back_by"].startswith("a bulk load that began at 20")
            error = firn.fail({"operation": "CLEAN_ORPHANS", **shop.address, "older_than_hours": 3}, "INVALID_REQUEST")
            assert error["field"] == "older_than_hours"
            assert "a bulk load that began at" in error["message"]
            shop.commit(staged)
        assert shop.ids() == [1, 7, 8]
        answer = shop.clean(older_than_hours=0)
        assert (answer["files_found"], "held_back_by" in answer) == (0, False)
        assert shop.ids() == [1, 7, 8]

    @pytest.mark.thorough
    def test_the_files_of_a_change_without_an_end_stay(self, firn: Firn, tenant: str) -> None:
        shop = Shop(firn, tenant)
        shop.write(1)
        firn.app.parts[Ledger].begin(NewBatch("slow", shop.name, shop.loaded.uuid, "UPSERT", ["r"]))
        staged = shop.stage(7)
        shop.age(*shop.paths(staged), days=2)
        begun_long_ago(firn, "slow", days=3)
        answer = shop.clean(older_than_hours=24)
        assert (answer["files_found"], answer["held_back_by"][:33]) == (0, "the change UPSERT that began at 2")
        error = firn.fail({"operation": "CLEAN_ORPHANS", **shop.address, "older_than_hours": 0}, "INVALID_REQUEST")
        assert "the change UPSERT" in error["message"]
        firn.app.parts[Ledger].end("slow", None)
        assert shop.clean(older_than_hours=24)["files_removed"] == 1

    def test_a_bulk_load_is_noted_while_its_files_are_nobodys(
        self, firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shop = Shop(firn, tenant)
        shop.write(1)
        errors: list[dict[str, Any]] = []
        commit = appends.commit

        def slow(*args: Any, **kwargs: Any) -> int:
            assert len([path for path in shop.on_disk() if path.endswith(".parquet")]) == 2
            shop.age(*shop.on_disk(), days=30)
            # The commit has the table's turn: what takes it would wait for this.
            jobs = firn.app.parts[Jobs]
            errors.extend({"what": jobs.what(job)} for job in jobs.writing(shop.loaded.uuid))
            return commit(*args, **kwargs)

        monkeypatch.setattr(appends, "commit", slow)
        url = f"/tables/{tenant}/default/t/records"
        body = firn.client.post(url, content=b'{"id": 2}\n', headers={"Content-Type": "application/x-ndjson"})
        assert body.status_code == 200, body.text
        assert errors == [{"what": "a bulk load"}]
        assert shop.clean(older_than_hours=0)["files_found"] == 0
        assert shop.ids() == [1, 2]

    @pytest.mark.thorough
    def test_what_another_program_commits_after_the_listing_stays(self, firn: Firn, tenant: str) -> None:
        """Files written days ago by a program that nobody knows of, and committed at the worst moment."""
        shop = Shop(firn, tenant)
        shop.write(1)
        folder = firn.home / f"{tenant}.parquet"
        pa.parquet.write_table(
            pa.table([[7], ["x"]], schema=pa.schema([pa.field("id", pa.int64(), False), ("kind", pa.string())])), folder
        )
        shutil.copy(folder, shop.folder / "data" / "theirs.parquet")
        shop.age("data/theirs.parquet", days=20)
        junk = shop.plant("data/junk.parquet", days=20)

        def theirs() -> None:
            shop.loaded.iceberg.add_files([f"{shop.loaded.location}/data/theirs.parquet"])

        with between(firn.app.parts[Orphans], theirs) as orphans:
            cleaned = orphans.clean(shop.loaded, now_ms() - 72 * HOUR_MS)
        assert (cleaned.removed, {file.path for file in cleaned.files}) == (1, junk)
        assert shop.ids() == [1, 7]


class TestRefusals:
    def test_a_table_whose_files_are_not_its_own_alone_keeps_all(self, firn: Firn, tenant: str) -> None:
        shop = Shop(firn, tenant)
        shop.write(1)
        shop.sql("ALTER TABLE {t} SET TBLPROPERTIES ('gc.enabled' = 'false')")
        shop.plant("data/junk.parquet")
        error = firn.fail({"operation": "CLEAN_ORPHANS", **shop.address}, "INVALID_REQUEST", 400)
        assert "gc.enabled" in error["message"]
        assert "data/junk.parquet" in shop.on_disk()

    @pytest.mark.parametrize("packed", [False, True])
    def test_a_folder_with_another_tables_metadata_in_it_is_left_alone(
        self, firn: Firn, tenant: str, packed: bool
    ) -> None:
        shop = Shop(firn, tenant)
        shop.write(1)
        others = json.dumps({"format-version": 2, "table-uuid": "00000000-0000-0000-0000-000000000001"}).encode()
        name = "inner/metadata/00001-x.gz.metadata.json" if packed else "inner/metadata/00001-x.metadata.json"
        shop.plant(name, text=gzip.compress(others) if packed else others, days=0)
        live = shop.on_disk() | shop.plant("inner/data/x.parquet", days=30)
        error = firn.fail({"operation": "CLEAN_ORPHANS", **shop.address}, "INVALID_REQUEST", 400)
        assert name in error["message"]
        assert shop.on_disk() == live

    def test_where_others_may_be_writing_unseen_a_day_is_the_least(self, firn: Firn, tenant: str) -> None:
        shop = Shop(firn, tenant)
        shop.write(1)
        orphans = replace(firn.app.parts[Orphans], alone=False)
        shop.plant("data/young.parquet", days=0.9)
        with pytest.raises(Exception, match="send 24 or more"):
            orphans.clean_now(shop.loaded, now_ms())
        assert orphans.clean(shop.loaded, now_ms()).files == ()
        assert "data/young.parquet" in shop.on_disk()


def test_a_listing_tells_every_file_once_with_its_size(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant)
    shop.write(1)
    shop.plant("data/a b/.x", text=b"12345")
    (shop.folder / "data" / "link").symlink_to("/etc")
    found = {file.path: file.bytes for file in stored_files(shop.loaded)}
    assert found == {path: (shop.folder / path).stat().st_size for path in shop.on_disk() if "link" not in path}
    assert found["data/a b/.x"] == 5


def begun_long_ago(firn: Firn, ident: str, days: float) -> None:
    """Have the ledger say that somebody began days ago."""
    then = now_ms() - round(days * DAYS * 1000)
    with firn.app.parts[Ledger]._writing() as connection:
        connection.exec_driver_sql("UPDATE jobs SET started_ms = ? WHERE id = ?", (then, ident))
        connection.exec_driver_sql("UPDATE batches SET begun_ms = ? WHERE batch = ?", (then, ident))

"""What nothing refers to goes, what somebody may still commit stays: whoever writes, and whenever the commit comes."""

import os
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from service.catalog.files import storage
from service.catalog.files.storage import checksum_name, checksummed_file, stored_files, unlink
from service.catalog.tables import Catalog, Table
from service.engine.jobs.orphans import OrphanFiles, compare
from service.errors import CommitConflict, InvalidRequest, TableNotFound
from service.jobs.job import BULK
from service.jobs.jobs import Jobs
from service.ledger.ledger import Ledger, NewBatch
from service.maintenance.orphans.orphans import TRIES, Orphans, OrphansResult
from service.model.times import HOUR_MS, now_ms
from tests.fakes import FakeOwners, QuickLedger
from tests.jobs import begin, jobs_on, table_of
from tests.support.composed import Composed
from tests.unit.iceberg_tables import ORDERS, append, make_table, open_catalog


@dataclass
class FakeEngine:
    """Compares as Iceberg does, by what PyIceberg reads; `compared` is called after each comparison."""

    catalog: Catalog
    compared: Callable[[], object] = lambda: None
    comparisons: list[Sequence[str]] = field(default_factory=list)

    def run(self, job: Any, name: str, paths: Sequence[str]) -> OrphanFiles:
        assert job is compare
        table = self.catalog.load(ORDERS)
        assert name == table.spark_name
        self.comparisons.append(paths)
        live = referred_to(table)
        found = OrphanFiles(table.metadata_location, tuple(path for path in paths if path not in live))
        self.compared()
        return found


def referred_to(table: Table) -> set[str]:
    iceberg = table.iceberg
    found = {table.metadata_location, *(entry.metadata_file for entry in iceberg.metadata.metadata_log)}
    for snapshot in iceberg.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(iceberg.io):
            found.add(manifest.manifest_path)
            found.update(entry.data_file.file_path for entry in manifest.fetch_manifest_entry(iceberg.io))
    return found


class Shop(Composed):
    """A table of one snapshot in a folder of its own, and whoever leaves files there."""

    def __init__(self, home: Path) -> None:
        catalog = open_catalog(home)
        super().__init__(home / "ledger.db", catalog=catalog, engine=FakeEngine(catalog))
        self.jobs = self.parts[Jobs]
        make_table(catalog)
        self.commit()

    @property
    def table(self) -> Table:
        return self.catalog.load(ORDERS)

    @property
    def folder(self) -> Path:
        return Path(self.table.location.removeprefix("file://"))

    def orphans(self, *, alone: bool = True) -> Orphans:
        return Orphans(self.engine, self.catalog, self.commits, self.ledger, self.jobs, alone)

    def clean(self, hours: int = 72, **how: bool) -> OrphansResult:
        return self.orphans().clean(self.table, now_ms() - hours * HOUR_MS, **how)

    def clean_now(self) -> OrphansResult:
        return self.orphans().clean_now(self.table, now_ms() + 1000)

    def commit(self, batch: str = "") -> str:
        """A snapshot of one more data file, which is there; the file."""
        before = referred_to(self.table)
        append(self.table, None, batch=batch)
        [path] = [path for path in referred_to(self.table) - before if path.endswith(".parquet")]
        self.plant(os.path.relpath(path.removeprefix("file://"), self.folder), hours=0)
        return path

    def plant(self, *paths: str, hours: float = 1000) -> set[str]:
        for path in paths:
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_bytes(b"1234")
        self.age(*paths, hours=hours)
        return set(paths)

    def age(self, *paths: str, hours: float = 1000) -> None:
        then = time.time() - hours * 3600
        for path in paths:
            os.utime(self.folder / path, (then, then))

    def on_disk(self) -> set[str]:
        return {file.path for file in stored_files(self.table)}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def paths(cleaned: OrphansResult) -> set[str]:
    return {file.path for file in cleaned.files}


def test_nothing_is_removed_where_the_work_was_given_to_somebody_else(shop: Shop) -> None:
    def taken() -> None:
        raise CommitConflict("this run was taken over")

    shop.plant("data/x.parquet")
    for clean in (shop.orphans().clean, shop.orphans().clean_now):
        with pytest.raises(CommitConflict, match="taken over"):
            clean(shop.table, now_ms() - 72 * HOUR_MS, still_ours=taken)
    assert "data/x.parquet" in shop.on_disk()


names = st.sampled_from(
    ["data/x.parquet", "data/a b/é%20.parquet", "data/_t/0", ".y", "metadata/z.avro", "metadata/9.metadata.json"]
)


@given(
    planted=st.dictionaries(names, st.integers(0, 200)),
    hours=st.integers(24, 150),
    started=st.none() | st.integers(0, 200),
)
@given_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_exactly_what_is_older_than_asked_and_than_whoever_writes_goes(
    shop: Shop, planted: dict[str, int], hours: int, started: int | None
) -> None:
    assume(started is None or started + 1 != hours)  # which is older is a matter of milliseconds then
    live = {path for path in shop.on_disk() if f"{shop.table.location}/{path}" in referred_to(shop.table)}
    for path in shop.on_disk() - live:  # of the example before
        (shop.folder / path).unlink()
    shop.age(*live, hours=10_000)
    for path, age in planted.items():
        shop.plant(path, hours=age + 0.5)
    with begin(shop.jobs, BULK, shop.table) as job:
        if started is not None:
            then = now_ms() - started * HOUR_MS
            with shop.ledger._writing() as connection:
                connection.exec_driver_sql("UPDATE jobs SET started_ms = ? WHERE id = ?", (then, job.id))
        cleaned = shop.clean(hours)
    limit = max(hours, (0 if started is None else started) + 1)  # an hour's grace
    gone = {path for path, age in planted.items() if age >= limit}
    assert paths(cleaned) == gone
    assert (cleaned.removed, cleaned.bytes) == (len(gone), 4 * len(gone))
    assert shop.on_disk() == live | (planted.keys() - gone)
    assert (cleaned.held_back_by is None) == (limit == hours)


def test_of_any_age_only_while_nobody_is_at_work(shop: Shop) -> None:
    young = shop.plant("data/young.parquet", hours=0)
    with begin(shop.jobs, "COMPACT", shop.table), pytest.raises(InvalidRequest) as refused:
        shop.clean_now()
    assert refused.value.field == "older_than_hours"
    assert "a compaction that began at" in refused.value.message
    shop.ledger.begin(NewBatch("b", ORDERS, shop.table.uuid, "UPSERT", ["r"]))
    with pytest.raises(InvalidRequest, match="the change UPSERT that began at"):
        shop.clean_now()
    shop.commit("b")  # it has happened, and only its note is late
    assert paths(shop.clean_now()) == young


def test_writers_of_other_tables_and_of_instances_that_are_gone_keep_nothing(shop: Shop) -> None:
    young = shop.plant("data/young.parquet", hours=0)
    Ledger.begin(shop.ledger, NewBatch("b", ORDERS, "another", "UPSERT", ["r"]))
    others = QuickLedger(str(shop.ledger._engine.url))
    others.begin(NewBatch("c", ORDERS, shop.table.uuid, "UPSERT", ["r"]))
    with begin(shop.jobs, BULK, table_of("another")), begin(jobs_on(others), BULK, shop.table):
        assert paths(shop.clean_now()) == young


@pytest.mark.parametrize("shared", [False, True])
def test_where_others_cannot_be_seen_young_files_stay(shop: Shop, shared: bool) -> None:
    shop.plant("data/young.parquet", hours=23)
    if shared:
        shop.ledger.owners = FakeOwners("here")
    orphans = shop.orphans(alone=shared)
    with pytest.raises(InvalidRequest, match="send 24 or more"):
        orphans.clean_now(shop.table, now_ms())
    assert orphans.clean(shop.table, now_ms()).files == ()
    assert "data/young.parquet" in shop.on_disk()


def test_what_is_committed_after_it_was_found_stays(shop: Shop) -> None:
    """A stranger writes a file, waits for days, and commits between the comparison and the removal."""
    theirs = f"data/{len(shop.table.snapshots())}-0.parquet"
    junk = shop.plant("data/junk.parquet")
    shop.plant(theirs)

    def commit() -> None:
        shop.engine.compared = lambda: None
        append(shop.table, None)

    shop.engine.compared = commit
    cleaned = shop.clean()
    assert f"{shop.table.location}/{theirs}" in referred_to(shop.table)
    assert (paths(cleaned), cleaned.removed) == (junk, 1)
    # The second comparison is of what the first one found.
    assert [len(asked) for asked in shop.engine.comparisons] == [len(junk) + 1, len(junk) + 1]
    assert theirs in shop.on_disk()


def test_a_table_that_never_holds_still_is_left_alone(shop: Shop) -> None:
    junk = shop.plant("data/junk.parquet")
    shop.engine.compared = lambda: append(shop.table, None)
    with pytest.raises(CommitConflict, match="nothing was removed"):
        shop.clean()
    assert len(shop.engine.comparisons) == TRIES + 1
    assert junk < shop.on_disk()


def test_another_table_of_that_name_is_left_alone(shop: Shop) -> None:
    shop.plant("data/junk.parquet")
    table = shop.table

    def swap_tables() -> None:
        shop.catalog.drop(table, purge=False)
        make_table(shop.catalog)

    shop.engine.compared = swap_tables
    with pytest.raises(TableNotFound):
        shop.clean()
    assert (Path(table.location.removeprefix("file://")) / "data/junk.parquet").exists()


def test_a_dry_run_removes_nothing_and_does_not_wait_for_the_table(shop: Shop) -> None:
    junk = shop.plant("data/junk.parquet")
    with shop.commits.locks.hold(shop.table.uuid):
        cleaned = shop.clean(dry_run=True)
    assert (paths(cleaned), cleaned.removed) == (junk, 0)
    assert junk < shop.on_disk()


def test_checksums_go_when_their_files_have_gone(shop: Shop) -> None:
    live = next(path for path in shop.on_disk() if path.startswith("data/"))
    kept = f"data/{checksum_name(Path(live).name)}"
    shop.plant(kept, "data/x", "data/.x.crc", "data/.gone.crc")
    shop.plant("data/.just-gone.crc", hours=1)
    assert paths(shop.clean()) == {"data/x", "data/.gone.crc"}
    assert {kept, "data/.just-gone.crc"} < shop.on_disk()
    assert "data/.x.crc" not in shop.on_disk()


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_that_another_table_lives_in_too_is_left_alone(shop: Shop, packed: bool) -> None:
    other = b'{"table-uuid" : "00000000-0000-0000-0000-000000000001", "location": "x"}'
    pack = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    path = "inner/metadata/v1.metadata.json"
    shop.plant("data/junk.parquet", path)
    (shop.folder / path).write_bytes(pack.compress(other) + pack.flush() if packed else other)
    with pytest.raises(InvalidRequest, match="another table has its metadata"):
        shop.clean()
    (shop.folder / path).write_bytes(b"\x1f\x8bno" if packed else other.replace(b"table-uuid", b"uuid"))
    assert paths(shop.clean()) == {"data/junk.parquet"}  # the other is young again


class TestStorage:
    def test_every_file_is_listed_once_by_its_path_and_none_that_a_link_leads_to(self, shop: Shop) -> None:
        shop.plant("data/a b/é%20.x", ".hidden", hours=2)
        (shop.folder / "linked").symlink_to("/etc")
        (shop.folder / "data" / "link.parquet").symlink_to("/etc/hostname")
        os.close(os.open(os.fsencode(shop.folder) + b"/data/\xff.parquet", os.O_CREAT))
        found = {file.path: file for file in stored_files(shop.table)}
        assert {"data/a b/é%20.x", ".hidden"} < found.keys()
        assert not [path for path in found if "link" in path or "\udcff" in path]
        hidden = found[".hidden"]
        assert hidden.bytes == 4
        assert hidden.modified_ms == (shop.folder / ".hidden").stat().st_mtime_ns // 1_000_000

    def test_a_folder_that_is_gone_has_no_files(self, shop: Shop) -> None:
        table = shop.table
        shop.catalog.drop(table, purge=True)
        assert stored_files(table) == []

    def test_storage_elsewhere_is_listed_likewise(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        """By PyArrow, which knows them all; a local folder stands for the others here."""
        here = stored_files(shop.table)
        monkeypatch.setattr(storage, "is_local", lambda location: False)
        shop.plant("data/a b/é%20.x")
        there = {file.path: file for file in stored_files(shop.table)}
        assert {file.path for file in here} | {"data/a b/é%20.x"} == there.keys()
        assert there[here[0].path] == here[0]

    def test_deleting_counts_what_was_there(self, tmp_path: Path) -> None:
        for name in ("a b%.x", ".a b%.x.crc", "keep"):
            (tmp_path / name).touch()
        assert unlink([f"file:{tmp_path}/a b%.x", f"file://{tmp_path}/gone", f"{tmp_path}"]) == 1
        assert {path.name for path in tmp_path.iterdir()} == {"keep"}

    @given(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1))
    def test_a_checksum_says_whose_it_is(self, name: str) -> None:
        assert checksummed_file(f"data/{checksum_name(name)}") == f"data/{name}"
        assert checksummed_file(checksum_name(name)) == name
        assert checksummed_file("data/..crc") is None


def test_the_folder_of_a_compaction_goes_with_its_last_file_and_no_other_folder_does(tmp_path: Path) -> None:
    mine, other = tmp_path / f"data/compact-{'0a' * 16}", tmp_path / "data/compact-1"
    for folder in (mine / "day=1", mine / "day=2", other):
        folder.mkdir(parents=True)
        (folder / "file.parquet").touch()
    unlink([f"{mine}/day=1/file.parquet", f"{other}/file.parquet"])
    assert (mine / "day=2").exists()
    assert not (mine / "day=1").exists()
    unlink([f"{mine}/day=2/file.parquet"])
    assert not mine.exists()
    assert other.exists()

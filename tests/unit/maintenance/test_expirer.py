"""Old snapshots go in the table's turn, by what its metadata says then; what somebody needs stays."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table as IcebergTable

from service.catalog.history import history
from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.commits.holds import AWAITED, BUILT_ON, READ, SnapshotHolds
from service.engine.iceberg.expire import remove, unneeded_files
from service.errors import CommitConflict, StorageUnavailable
from service.jobs.jobs import Jobs
from service.ledger.jobs import JobRecord
from service.ledger.ledger import NewBatch
from service.maintenance.expire.expirer import TRIES, Expirer, built_on_by_other_instances
from service.maintenance.expire.retention import ExpiryResult, KeptSnapshot
from service.maintenance.orphans.orphans import SLACK_MS
from service.settings import IcebergSettings, Settings, SnapshotSettings
from tests.fakes import FakeOwners
from tests.jobs import begin
from tests.support.composed import Composed
from tests.unit.iceberg_tables import ORDERS, append, make_table, open_catalog

KEEP_TWO = SnapshotSettings(keep_last=2, hourly_for_hours=0)


@dataclass
class FakeEngine:
    """Takes snapshots out of a table's metadata as the JVM would, and says that nobody needs some files then."""

    catalog: Catalog
    conflicts: int = 0
    broken: bool = False
    asked: int = 0
    files: list[Path] = field(default_factory=list)
    turn_taken: list[bool] = field(default_factory=list)
    before_remove: Callable[[], Any] = lambda: None
    commits: Commits = field(init=False)

    def run(self, job: Any, *args: Any) -> Any:
        self.turn_taken.append(self._somebody_has_the_turn())
        if job is unneeded_files:
            self.asked += 1
            if self.broken:
                raise StorageUnavailable("the disk is gone")
            return [f"file://{path}" for path in self.files]
        assert job is remove
        self.before_remove()
        return self._remove(*args)

    def _remove(self, name: str, location: str, snapshots: Iterable[int], refs: Iterable[str]) -> object:
        table = self.catalog.load(ORDERS)
        assert name == table.spark_name
        if self.conflicts or table.metadata_location != location:
            self.conflicts = max(0, self.conflicts - 1)
            raise CommitConflict("beaten")
        for ref in refs:
            table.iceberg.manage_snapshots().remove_tag(ref).commit()
        table.iceberg.refresh().maintenance.expire_snapshots().by_ids(list(snapshots)).commit()
        return object()

    def _somebody_has_the_turn(self) -> bool:
        table_uuid = self.catalog.load(ORDERS).uuid
        served: list[bool] = []

        def serve() -> None:
            served.append(True)
            self.commits.locks.release(table_uuid)

        self.commits.locks.request(table_uuid, serve)
        return not served


class Shop(Composed):
    """A table, who needs what of it, and what lets go of the rest."""

    def __init__(self, home: Path, **properties: str) -> None:
        catalog = open_catalog(home)
        settings = Settings(iceberg=IcebergSettings(snapshots=KEEP_TWO))
        super().__init__(home / "ledger.db", catalog=catalog, engine=FakeEngine(catalog), settings=settings)
        self.engine.commits = self.commits
        self.holds, self.jobs, self.expirer = self.parts[SnapshotHolds], self.parts[Jobs], self.parts[Expirer]
        self.table = make_table(catalog, **properties)
        self.made = [append(self.table, batch=f"batch-{i}") for i in range(6)]

    @property
    def iceberg(self) -> IcebergTable:
        return self.catalog.load(ORDERS).iceberg

    def by_policy(self, slack: int = 1) -> int:
        return self.expirer.by_policy(ORDERS, self.table.uuid, slack)

    def left(self) -> list[int]:
        """Which of the snapshots are left, by number."""
        kept = {s.snapshot_id for s in self.catalog.load(ORDERS).snapshots()}
        return [i for i, snapshot_id in enumerate(self.made) if snapshot_id in kept]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_what_the_policy_does_not_keep_goes_and_its_files_are_deleted_after_the_turn(shop: Shop) -> None:
    assert shop.by_policy() == 1
    assert shop.left() == [4, 5]
    assert shop.engine.asked == 1
    assert shop.engine.turn_taken == [True, False]


def test_fewer_than_are_worth_a_commit_stay(shop: Shop) -> None:
    assert shop.by_policy(slack=5) == 1
    assert (shop.left(), shop.engine.turn_taken) == ([0, 1, 2, 3, 4, 5], [])
    assert shop.by_policy(slack=4) == 4
    assert shop.left() == [4, 5]


def test_a_snapshot_that_is_read_stays_until_it_is_read(shop: Shop) -> None:
    with shop.holds.reading(shop.table.uuid, shop.made[1]), shop.holds.reading(shop.table.uuid, None):
        shop.by_policy()
        assert shop.left() == [1, 4, 5]
    shop.by_policy()
    assert shop.left() == [4, 5]


def test_a_change_that_takes_long_keeps_all_that_came_after_its_beginning(shop: Shop) -> None:
    with shop.holds.building_on(shop.table.uuid, shop.made[2]):
        shop.by_policy()
        assert shop.left() == [2, 3, 4, 5]


def test_what_another_instance_builds_on_stays_until_it_has_ended_or_is_gone(shop: Shop) -> None:
    here = FakeOwners("here")
    there = here.beside("there")
    shop.ledger.owners = there
    with begin(shop.jobs, "COMPACT", shop.table):
        shop.ledger.owners = here
        shop.by_policy()
        assert shop.left() == [0, 1, 2, 3, 4, 5]  # all are of the last hour, by which clocks may differ
        there.close()
        shop.by_policy()
        assert shop.left() == [4, 5]


def test_before_what_another_instance_builds_on_the_oldest_go(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have found the last snapshot from before it began."""
    at = [version.timestamp_ms for version in history(shop.catalog.load(ORDERS)).versions]
    theirs = JobRecord("w", "COMPACT", ORDERS, owner="there", started_ms=at[3] + SLACK_MS)
    shop.ledger.owners = FakeOwners("here")
    monkeypatch.setattr(shop.jobs, "writing", lambda _: [theirs])
    kept = built_on_by_other_instances(shop.jobs, shop.catalog.load(ORDERS))
    first = next(i for i, time in enumerate(at) if time == at[3])
    assert set(kept) == set(shop.made[max(0, first - 1) :])


def test_a_hold_is_of_one_table_and_counts_as_often_as_it_is_taken(shop: Shop) -> None:
    uuid, first = shop.table.uuid, shop.made[0]
    with shop.holds.reading("another", first):
        assert shop.holds.held(uuid) == set()
        with shop.holds.reading(uuid, first):
            with shop.holds.reading(uuid, first):
                pass
            assert shop.holds.held(uuid) == {first}
    assert (shop.holds.held(uuid), shop.holds.held("another")) == (set(), set())


def test_what_an_answer_is_still_to_be_made_from_stays(shop: Shop) -> None:
    """A change whose end is not noted may have made a snapshot; one with a key whose answer is not kept made one.

    What such a change was made on stays too: the rows it concerned are counted there.
    """

    def begin(batch: str) -> None:
        shop.ledger.begin(NewBatch(batch, ORDERS, shop.table.uuid, "WRITE", ["r"], 1, {f"key-{batch}": "print"}))

    for batch in ("batch-1", "batch-2", "batch-3"):
        begin(batch)
    shop.ledger.end("batch-2", shop.made[2])
    shop.ledger.end("batch-3", shop.made[3], {"key-batch-3": b"{}"})
    shop.by_policy()
    assert shop.left() == [0, 1, 2, 4, 5]


def test_tags_stay_readable_until_their_own_time_is_over(shop: Shop) -> None:
    shop.table.iceberg.manage_snapshots().create_tag(shop.made[0], "first").commit()
    shop.table.iceberg.manage_snapshots().create_tag(shop.made[1], "brief", max_ref_age_ms=1).commit()
    shop.by_policy()
    assert shop.left() == [0, 4, 5]
    assert set(shop.iceberg.refs()) == {"main", "first"}


def test_a_table_whose_files_are_not_its_own_alone_keeps_everything(tmp_path: Path) -> None:
    shop = Shop(tmp_path, **{"gc.enabled": "false"})
    shop.by_policy()
    expired = shop.expirer.by_age(shop.table, 0)
    assert (expired.snapshots, expired.files, len(expired.kept)) == (0, 0, 5)
    assert {"gc.enabled" in kept.reason for kept in expired.kept} == {True}
    assert shop.left() == [0, 1, 2, 3, 4, 5]


def test_a_table_has_its_own_policy_before_the_settings(tmp_path: Path) -> None:
    shop = Shop(tmp_path, **{"firn.snapshots.keep_last": "4"})
    shop.by_policy()
    assert shop.left() == [2, 3, 4, 5]


def test_another_table_of_that_name_is_left_alone(shop: Shop) -> None:
    assert shop.expirer.by_policy(ORDERS, "another", 1) == 1
    assert shop.left() == [0, 1, 2, 3, 4, 5]


def test_an_expiry_that_loses_a_race_is_decided_again(shop: Shop) -> None:
    def commit_once() -> None:
        if len(shop.made) == 6:
            shop.made.append(append(shop.catalog.load(ORDERS)))

    shop.engine.before_remove = commit_once
    shop.by_policy()
    assert shop.left() == [5, 6]


def test_one_that_is_beaten_again_and_again_gives_up(shop: Shop) -> None:
    shop.engine.conflicts = TRIES
    with pytest.raises(CommitConflict):
        shop.by_policy()
    assert (shop.left(), shop.engine.asked) == ([0, 1, 2, 3, 4, 5], 0)


def test_by_age_nothing_goes_where_the_work_was_given_to_somebody_else(shop: Shop) -> None:
    def taken() -> None:
        raise CommitConflict("this run was taken over")

    with pytest.raises(CommitConflict, match="taken over"):
        shop.expirer.by_age(shop.table, 0, taken)
    assert (shop.left(), shop.engine.asked) == ([0, 1, 2, 3, 4, 5], 0)


def test_files_that_cannot_be_deleted_fail_nothing(shop: Shop) -> None:
    shop.engine.broken = True
    assert shop.expirer.by_age(shop.table, 0) == ExpiryResult(5, 0)
    assert shop.left() == [5]


def test_files_are_counted_that_were_there_to_delete(shop: Shop, tmp_path: Path) -> None:
    """Iceberg names them; one that somebody was quicker to delete is no failure, and no deletion."""
    shop.engine.files = [tmp_path / name for name in ("a b.parquet", "50%.avro", "gone.avro")]
    for path in (*shop.engine.files[:2], tmp_path / ".a b.parquet.crc"):
        path.touch()
    assert shop.expirer.by_age(shop.table, 0) == ExpiryResult(5, 2)
    assert not any(path.exists() for path in (*shop.engine.files, tmp_path / ".a b.parquet.crc"))


def test_by_age_what_is_held_stays_and_the_rest_is_counted(shop: Shop) -> None:
    table: Table = shop.catalog.load(ORDERS)
    assert shop.expirer.by_age(table, 1) == ExpiryResult()
    with shop.holds.reading(table.uuid, shop.made[3]):
        assert shop.expirer.by_age(table, 0) == ExpiryResult(4, 0, (KeptSnapshot(shop.made[3], READ),))
    assert shop.left() == [3, 5]


def test_by_age_what_stays_though_it_is_old_is_named(shop: Shop) -> None:
    """What is too young, and the current snapshot, is no news."""
    shop.table.iceberg.manage_snapshots().create_tag(shop.made[0], "first").commit()
    shop.table.iceberg.manage_snapshots().create_branch(shop.made[1], "side").commit()
    shop.ledger.begin(NewBatch("batch-3", ORDERS, shop.table.uuid, "WRITE", ["r"], 1))
    uuid = shop.table.uuid
    with shop.holds.reading(uuid, shop.made[1]), shop.holds.building_on(uuid, shop.made[4]):
        expired = shop.expirer.by_age(shop.table, 0)
    assert expired.snapshots == 0
    assert [(shop.made.index(kept.snapshot_id), kept.reason) for kept in expired.kept] == [
        (0, "tag first"),
        (1, f"branch side; {READ}"),
        (2, AWAITED),
        (3, AWAITED),
        (4, BUILT_ON),
    ]

"""Backups as a table's metadata has them: listed, compared, let go of, without a JVM."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.catalog.tables import Table
from service.commits.backups import BackupFigures, Backups, backups_of, figures, find, named
from service.edits.restore import NOT_DONE, Restores, of_backup
from service.engine.jobs.restore import count_writers
from service.errors import BackupNotFound, CommitConflict, TableNotFound
from service.model.call import Call, IdempotencyKey
from service.model.times import HOUR_MS
from tests.support.composed import Composed
from tests.unit.iceberg_tables import ORDERS, append, make_table, open_catalog
from tests.unit.maintenance import test_policy

ASK = Call("r")


class House(Composed):
    """Backups of one table, in a real catalog."""

    def __init__(self, home: Path) -> None:
        super().__init__(home / "ledger.db", catalog=open_catalog(home))
        self.backups, self.restores = self.parts[Backups], self.parts[Restores]
        make_table(self.catalog)

    @property
    def table(self) -> Table:
        return self.catalog.load(ORDERS)

    def keep(self, made_ms: int = 0, keep_ms: int | None = HOUR_MS, operation: str = "UPDATE") -> str:
        """Tag what is current as a backup that was made then."""
        name = named(operation, made_ms)
        self.tag(name, keep_ms)
        return name

    def tag(self, name: str, keep_ms: int | None = None) -> None:
        table = self.table
        assert table.current_snapshot_id is not None
        table.iceberg.manage_snapshots().create_tag(table.current_snapshot_id, name, keep_ms).commit()

    def retry(self, key: IdempotencyKey) -> Call:
        noted = self.ledger.key(key.id)
        return Call("again", key, noted.batch if noted else None)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_backups_are_those_tags_that_bear_such_a_name_newest_first(house: House) -> None:
    assert backups_of(house.table) == []
    append(house.table, None)
    old, new, middle = (house.keep(made_ms) for made_ms in (1000, 3000, 2000))
    house.tag("my-own")
    house.table.iceberg.manage_snapshots().create_branch(house.table.current_snapshot_id or 0, named("X", 9)).commit()
    found = backups_of(house.table)
    assert [backup.name for backup in found] == [new, middle, old]
    assert {backup.snapshot_id for backup in found} == {house.table.current_snapshot_id}


def test_a_backup_ends_so_long_after_its_snapshot_or_not_at_all(house: House) -> None:
    append(house.table, None)
    made_ms = house.table.snapshots()[0].timestamp_ms
    made = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=made_ms)
    hour, never, practically_never = (house.keep(keep_ms=keep_ms) for keep_ms in (HOUR_MS, None, 2**62))
    ends = {backup.name: backup.expires_at for backup in backups_of(house.table)}
    assert ends == {hour: made + timedelta(hours=1), never: None, practically_never: None}


@pytest.mark.parametrize("told", [True, False], ids=["by the summary", "by the files"])
def test_a_backup_holds_what_its_snapshot_held(house: House, monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    append(house.table, None, None, rows=7)
    name = house.keep()
    backup = find(house.table, name)
    append(house.table, None, rows=100)
    if not told:
        real = Table.snapshot
        monkeypatch.setattr(Table, "snapshot", lambda self, number: replace(real(self, number), summary={}))
    assert figures(house.table, backup) == BackupFigures(14, 2, 2000)


def test_a_table_and_a_backup_differ_in_the_files_that_only_one_has(house: House) -> None:
    append(house.table, "a", rows=2)
    name = house.keep()
    [kept] = [task.file for task in house.table.iceberg.scan().plan_files()]
    append(house.table, "b", rows=3)
    with house.table.iceberg.transaction() as change, change.update_snapshot().overwrite() as files:
        files.delete_data_file(kept)
    found = house.restores.differing(house.table, find(house.table, name).snapshot_id, Call("r"))
    assert (found.rows_before, found.rows_after) == (3, 2)
    assert (len(found.back), len(found.gone), found.back & found.gone) == (1, 1, frozenset())
    planned: list[Any] = []
    engine = SimpleNamespace(run_for=lambda call, job, *args: planned.append(job) or 7)
    restores = replace(house.restores, engine=cast(Any, engine))
    told = restores.preview(house.table, of_backup(name), Call("r"))
    assert (told.files_added, told.is_estimate, planned) == (7, False, [count_writers]), "Spark's plan says how many"
    assert (told.restored, told.reason, told.files_removed) == (False, "this was a dry run", 1)
    name = house.keep(1)
    same = house.restores.preview(house.table, of_backup(name), Call("r"))
    assert (same.restored, same.reason, same.files_removed, same.files_added) == (False, NOT_DONE, 0, 0)


def test_a_deleted_backup_is_gone_and_all_else_stays(house: House) -> None:
    append(house.table, None)
    name, other = house.keep(1), house.keep(2)
    house.tag("my-own")
    before = house.table
    house.backups.delete(before, name, ASK)
    assert [backup.name for backup in backups_of(house.table)] == [other]
    assert set(house.table.iceberg.metadata.refs) == {"main", "my-own", other}
    assert (house.table.current_snapshot_id, house.table.snapshot_count) == (before.current_snapshot_id, 1)


@pytest.mark.parametrize("name", ["my-own", "main", "backup-20240501T101112045Z-update-0123abcd", ""])
def test_nothing_but_a_backup_can_be_deleted(house: House, name: str) -> None:
    append(house.table, None)
    house.tag("my-own")
    before = house.table.metadata_location
    for call in (ASK, Call("r", IdempotencyKey("DELETE_BACKUP", ORDERS, "k", "print"))):
        with pytest.raises(BackupNotFound) as refused:
            house.backups.delete(house.table, name, call)
        assert (refused.value.field, refused.value.suggestion) == ("name", None)
    assert house.table.metadata_location == before
    assert house.ledger.unfinished() == []


def test_a_misspelt_backup_is_told_with_the_nearest_and_an_unlike_one_with_the_newest(house: House) -> None:
    append(house.table, None)
    names = [house.keep(i) for i in range(8)]
    with pytest.raises(BackupNotFound) as refused:
        find(house.table, names[3][:-1])
    assert refused.value.suggestion == names[3]
    with pytest.raises(BackupNotFound) as refused:
        find(house.table, "yesterday")
    assert refused.value.suggestion is None
    assert ", ".join(reversed(names[3:])) in refused.value.message
    assert names[2] not in refused.value.message


class TestKeys:
    @staticmethod
    def key() -> IdempotencyKey:
        return IdempotencyKey("DELETE_BACKUP", ORDERS, "k", "print")

    def test_a_deletion_is_noted_before_it_happens_and_its_end_after(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(house.table, None)
        name, key = house.keep(), self.key()
        real = house.catalog.remove_tag
        noted: list[str] = []

        def remove(table: Table, tag: str) -> Table:
            noted.extend(batch.operation for batch in house.ledger.unfinished())
            return real(table, tag)

        monkeypatch.setattr(house.catalog, "remove_tag", remove)
        house.backups.delete(house.table, name, Call("r", key))
        assert noted == ["DELETE_BACKUP"]
        assert house.ledger.unfinished() == []
        house.backups.delete(house.table, name, house.retry(key))

    @pytest.mark.parametrize("happened", [True, False])
    def test_after_a_crash_it_has_happened_or_is_done_now(
        self, house: House, monkeypatch: pytest.MonkeyPatch, happened: bool
    ) -> None:
        append(house.table, None)
        name, key = house.keep(), self.key()
        real = house.catalog.remove_tag

        def crash(table: Table, tag: str) -> Table:
            if happened:
                real(table, tag)
            raise KeyboardInterrupt

        monkeypatch.setattr(house.catalog, "remove_tag", crash)
        with pytest.raises(KeyboardInterrupt):
            house.backups.delete(house.table, name, Call("r", key))
        monkeypatch.undo()
        house.backups.delete(house.table, name, house.retry(key))
        assert backups_of(house.table) == []
        house.commits.batches.recover()
        assert house.ledger.unfinished() == []

    def test_one_that_was_beaten_for_good_is_known_not_to_have_happened(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(house.table, None)
        name, key = house.keep(), self.key()

        def beaten(table: Table, tag: str) -> Table:
            raise CommitConflict("many times in a row")

        monkeypatch.setattr(house.catalog, "remove_tag", beaten)
        with pytest.raises(CommitConflict):
            house.backups.delete(house.table, name, Call("r", key))
        monkeypatch.undo()
        assert house.ledger.unfinished() == []
        house.backups.delete(house.table, name, house.retry(key))
        assert backups_of(house.table) == []


class TestOthers:
    def test_a_deletion_yields_to_commits_and_comes_to_pass_all_the_same(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(house.table, None)
        name = house.keep()
        count = test_policy.TestOtherWriters.beaten(monkeypatch, 3)
        house.backups.delete(house.table, name, ASK)
        assert count[0] == 4
        assert backups_of(house.table) == []

    def test_a_backup_that_another_has_deleted_counts_as_deleted(self, house: House) -> None:
        append(house.table, None)
        name, stale = house.keep(), house.table
        house.backups.delete(house.table, name, ASK)
        house.backups.delete(stale, name, ASK)
        assert backups_of(house.table) == []

    @pytest.mark.parametrize("do", ["delete", "remove_tag"])
    def test_a_replaced_table_loses_nothing(self, house: House, do: str) -> None:
        append(house.table, None)
        name, stale = house.keep(), house.table
        house.catalog.drop(stale, purge=False)
        make_table(house.catalog)
        append(house.table, None)
        house.tag(name)
        acts: dict[str, Callable[[], Any]] = {
            "delete": lambda: house.backups.delete(stale, name, ASK),
            "remove_tag": lambda: house.catalog.remove_tag(stale, name),
        }
        with pytest.raises(TableNotFound):
            acts[do]()
        assert [backup.name for backup in backups_of(house.table)] == [name]

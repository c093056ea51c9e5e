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


class Setup(Composed):
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
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_backups_are_those_tags_that_bear_such_a_name_newest_first(setup: Setup) -> None:
    assert backups_of(setup.table) == []
    append(setup.table, None)
    old, new, middle = (setup.keep(made_ms) for made_ms in (1000, 3000, 2000))
    setup.tag("my-own")
    setup.table.iceberg.manage_snapshots().create_branch(setup.table.current_snapshot_id or 0, named("X", 9)).commit()
    found = backups_of(setup.table)
    assert [backup.name for backup in found] == [new, middle, old]
    assert {backup.snapshot_id for backup in found} == {setup.table.current_snapshot_id}


def test_a_backup_ends_so_long_after_its_snapshot_or_not_at_all(setup: Setup) -> None:
    append(setup.table, None)
    made_ms = setup.table.snapshots()[0].timestamp_ms
    made = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=made_ms)
    hour, never, practically_never = (setup.keep(keep_ms=keep_ms) for keep_ms in (HOUR_MS, None, 2**62))
    ends = {backup.name: backup.expires_at for backup in backups_of(setup.table)}
    assert ends == {hour: made + timedelta(hours=1), never: None, practically_never: None}


@pytest.mark.parametrize("result", [True, False], ids=["by the summary", "by the files"])
def test_a_backup_holds_what_its_snapshot_held(setup: Setup, monkeypatch: pytest.MonkeyPatch, result: bool) -> None:
    append(setup.table, None, None, rows=7)
    name = setup.keep()
    backup = find(setup.table, name)
    append(setup.table, None, rows=100)
    if not result:
        real = Table.snapshot
        monkeypatch.setattr(Table, "snapshot", lambda self, number: replace(real(self, number), summary={}))
    assert figures(setup.table, backup) == BackupFigures(14, 2, 2000)


def test_a_table_and_a_backup_differ_in_the_files_that_only_one_has(setup: Setup) -> None:
    append(setup.table, "a", rows=2)
    name = setup.keep()
    [kept] = [task.file for task in setup.table.iceberg.scan().plan_files()]
    append(setup.table, "b", rows=3)
    with setup.table.iceberg.transaction() as change, change.update_snapshot().overwrite() as files:
        files.delete_data_file(kept)
    found = setup.restores.differing(setup.table, find(setup.table, name).snapshot_id, Call("r"))
    assert (found.rows_before, found.rows_after) == (3, 2)
    assert (len(found.back), len(found.gone), found.back & found.gone) == (1, 1, frozenset())
    planned: list[Any] = []
    engine = SimpleNamespace(run_for=lambda call, job, *args: planned.append(job) or 7)
    restores = replace(setup.restores, engine=cast(Any, engine))
    result = restores.preview(setup.table, of_backup(name), Call("r"))
    assert (result.files_added, result.is_estimate, planned) == (7, False, [count_writers]), (
        "Spark's plan says how many"
    )
    assert (result.restored, result.reason, result.files_removed) == (False, "this was a dry run", 1)
    name = setup.keep(1)
    same = setup.restores.preview(setup.table, of_backup(name), Call("r"))
    assert (same.restored, same.reason, same.files_removed, same.files_added) == (False, NOT_DONE, 0, 0)


def test_a_deleted_backup_is_gone_and_all_else_stays(setup: Setup) -> None:
    append(setup.table, None)
    name, other = setup.keep(1), setup.keep(2)
    setup.tag("my-own")
    before = setup.table
    setup.backups.delete(before, name, ASK)
    assert [backup.name for backup in backups_of(setup.table)] == [other]
    assert set(setup.table.iceberg.metadata.refs) == {"main", "my-own", other}
    assert (setup.table.current_snapshot_id, setup.table.snapshot_count) == (before.current_snapshot_id, 1)


@pytest.mark.parametrize("name", ["my-own", "main", "backup-20240501T101112045Z-update-0123abcd", ""])
def test_nothing_but_a_backup_can_be_deleted(setup: Setup, name: str) -> None:
    append(setup.table, None)
    setup.tag("my-own")
    before = setup.table.metadata_location
    for call in (ASK, Call("r", IdempotencyKey("DELETE_BACKUP", ORDERS, "k", "print"))):
        with pytest.raises(BackupNotFound) as refused:
            setup.backups.delete(setup.table, name, call)
        assert (refused.value.field, refused.value.suggestion) == ("name", None)
    assert setup.table.metadata_location == before
    assert setup.ledger.unfinished() == []


def test_a_misspelt_backup_is_told_with_the_nearest_and_an_unlike_one_with_the_newest(setup: Setup) -> None:
    append(setup.table, None)
    names = [setup.keep(i) for i in range(8)]
    with pytest.raises(BackupNotFound) as refused:
        find(setup.table, names[3][:-1])
    assert refused.value.suggestion == names[3]
    with pytest.raises(BackupNotFound) as refused:
        find(setup.table, "yesterday")
    assert refused.value.suggestion is None
    assert ", ".join(reversed(names[3:])) in refused.value.message
    assert names[2] not in refused.value.message


class TestKeys:
    @staticmethod
    def key() -> IdempotencyKey:
        return IdempotencyKey("DELETE_BACKUP", ORDERS, "k", "print")

    def test_a_deletion_is_noted_before_it_happens_and_its_end_after(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(setup.table, None)
        name, key = setup.keep(), self.key()
        real = setup.catalog.remove_tag
        noted: list[str] = []

        def remove(table: Table, tag: str) -> Table:
            noted.extend(batch.operation for batch in setup.ledger.unfinished())
            return real(table, tag)

        monkeypatch.setattr(setup.catalog, "remove_tag", remove)
        setup.backups.delete(setup.table, name, Call("r", key))
        assert noted == ["DELETE_BACKUP"]
        assert setup.ledger.unfinished() == []
        setup.backups.delete(setup.table, name, setup.retry(key))

    @pytest.mark.parametrize("happened", [True, False])
    def test_after_a_crash_it_has_happened_or_is_done_now(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch, happened: bool
    ) -> None:
        append(setup.table, None)
        name, key = setup.keep(), self.key()
        real = setup.catalog.remove_tag

        def crash(table: Table, tag: str) -> Table:
            if happened:
                real(table, tag)
            raise KeyboardInterrupt

        monkeypatch.setattr(setup.catalog, "remove_tag", crash)
        with pytest.raises(KeyboardInterrupt):
            setup.backups.delete(setup.table, name, Call("r", key))
        monkeypatch.undo()
        setup.backups.delete(setup.table, name, setup.retry(key))
        assert backups_of(setup.table) == []
        setup.commits.batches.recover()
        assert setup.ledger.unfinished() == []

    def test_one_that_was_beaten_for_good_is_known_not_to_have_happened(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(setup.table, None)
        name, key = setup.keep(), self.key()

        def beaten(table: Table, tag: str) -> Table:
            raise CommitConflict("many times in a row")

        monkeypatch.setattr(setup.catalog, "remove_tag", beaten)
        with pytest.raises(CommitConflict):
            setup.backups.delete(setup.table, name, Call("r", key))
        monkeypatch.undo()
        assert setup.ledger.unfinished() == []
        setup.backups.delete(setup.table, name, setup.retry(key))
        assert backups_of(setup.table) == []


class TestOthers:
    def test_a_deletion_yields_to_commits_and_comes_to_pass_all_the_same(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(setup.table, None)
        name = setup.keep()
        count = test_policy.TestOtherWriters.beaten(monkeypatch, 3)
        setup.backups.delete(setup.table, name, ASK)
        assert count[0] == 4
        assert backups_of(setup.table) == []

    def test_a_backup_that_another_has_deleted_counts_as_deleted(self, setup: Setup) -> None:
        append(setup.table, None)
        name, stale = setup.keep(), setup.table
        setup.backups.delete(setup.table, name, ASK)
        setup.backups.delete(stale, name, ASK)
        assert backups_of(setup.table) == []

    @pytest.mark.parametrize("do", ["delete", "remove_tag"])
    def test_a_replaced_table_loses_nothing(self, setup: Setup, do: str) -> None:
        append(setup.table, None)
        name, stale = setup.keep(), setup.table
        setup.catalog.drop(stale, purge=False)
        make_table(setup.catalog)
        append(setup.table, None)
        setup.tag(name)
        acts: dict[str, Callable[[], Any]] = {
            "delete": lambda: setup.backups.delete(stale, name, ASK),
            "remove_tag": lambda: setup.catalog.remove_tag(stale, name),
        }
        with pytest.raises(TableNotFound):
            acts[do]()
        assert [backup.name for backup in backups_of(setup.table)] == [name]

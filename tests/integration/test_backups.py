"""Backups: what they hold comes back whole, by a change like any other, and stays as long as it is to be kept."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from service.catalog.history import history
from service.commits.backups import Backups, backups_of, find, named
from service.commits.commit import Commits
from service.edits.restore import Restores, of_backup
from service.engine.iceberg.swap import CommitTarget, Tag, swap
from service.engine.iceberg.tables import load_table
from service.engine.jobs.restore import RestoreJob, restore
from service.errors import BackupNotFound, CommitConflict, RowCountMismatch, TableNotFound
from service.ledger.ledger import Ledger
from service.model.call import Call, IdempotencyKey
from service.model.times import HOUR_MS
from tests.harness import Firn, wait_until
from tests.support.tables import ServedTable

FIELDS = {"fields": {"id": {"type": "long"}, "kind": {"type": "string"}}}
BY_KIND = {"partitions": [{"field": "kind", "transform": "identity"}]}


class Shop(ServedTable):
    """A table, and what is done with its backups."""

    def __init__(self, firn: Firn, tenant: str, **create: Any) -> None:
        super().__init__(firn, tenant, **{"schema": FIELDS, **create})

    def refused(self, operation: str, code: str, status: int = 400, **parts: Any) -> dict[str, Any]:
        return self.firn.fail({"operation": operation, **self.address, **parts}, code, status)

    def write(self, *ids: int, kind: str = "a", **parts: Any) -> int:
        answer = self.ok("WRITE", records=[{"id": i, "kind": kind} for i in ids], **parts)
        return int(answer["metadata"]["snapshot_id"])

    def rows(self, **query: Any) -> list[tuple[int, str]]:
        found = self.firn.rows(self.address["tenant_id"], "t", projection=["id", "kind"], sort=["id"], **query)
        return [(row["id"], row["kind"]) for row in found]

    def keep(self, hours: int = 1, operation: str = "UPDATE") -> str:
        """Make a backup of what the table holds, as the change of an edit does that changes nothing."""
        table, name = self.loaded, named(operation, 1_714_558_272_045)

        def change(session: SparkSession) -> int:
            target = CommitTarget(session, table.spark_name, table.uuid, None)
            iceberg = target.load()
            return swap(target, iceberg, iceberg.newAppend(), lambda _: None, tag=Tag(name, hours * HOUR_MS))

        self.firn.app.engine.run(change)
        return name

    def restore(self, name: str, **parts: Any) -> dict[str, Any]:
        return self.ok("RESTORE_BACKUP", name=name, **parts)

    def backups(self) -> list[str]:
        return [backup["name"] for backup in self.ok("LIST_BACKUPS")["backups"]]


@pytest.fixture
def shop(firn: Firn, tenant: str) -> Shop:
    return Shop(firn, tenant)


def test_a_restored_table_holds_the_backups_rows_and_all_of_its_history(shop: Shop) -> None:
    shop.write(1, 2, 3)
    name = shop.keep()
    shop.ok("UPDATE", filter={"id": 1}, updates={"kind": "b"})
    shop.ok("DELETE", filter={"id": 2})
    shop.write(4)
    before = shop.loaded
    answer = shop.restore(name)
    assert answer == {
        "success": True,
        "restored": True,
        "records_before": 3,
        "records_after": 3,
        "files_removed": 2,
        "files_added": 1,
        "metadata": answer["metadata"],
    }
    assert shop.rows() == [(1, "a"), (2, "a"), (3, "a")]
    after = shop.loaded
    snapshot = after.snapshot(int(answer["metadata"]["snapshot_id"]))
    assert (snapshot.snapshot_id, snapshot.parent_id) == (after.current_snapshot_id, before.current_snapshot_id)
    assert {s.snapshot_id for s in before.snapshots()} < {s.snapshot_id for s in after.snapshots()}
    assert shop.rows(as_of=before.current_snapshot_id) == [(1, "b"), (3, "a"), (4, "a")]


@pytest.mark.thorough
def test_only_files_that_differ_are_rewritten_and_none_is_put_back_as_it_was(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, partition=BY_KIND)
    for kind in "abc":
        shop.write(ord(kind), kind=kind)
    name = shop.keep()
    held = {row.file_path for row in shop.sql("SELECT file_path FROM {t}.files")}
    shop.ok("DELETE", filter={"kind": "a"})
    shop.write(1, kind="d")
    answer = shop.restore(name)
    assert (answer["files_removed"], answer["files_added"]) == (1, 1)
    assert shop.rows() == [(97, "a"), (98, "b"), (99, "c")]
    [new] = {row.file_path for row in shop.sql("SELECT file_path FROM {t}.files")} - held
    assert [r.kind for r in shop.sql(f"SELECT kind FROM {{t}} WHERE _file = '{new}'")] == ["a"]
    assert len(held & {row.file_path for row in shop.sql("SELECT file_path FROM {t}.files")}) == 2


def test_a_restore_can_be_taken_back_where_it_made_a_backup(shop: Shop) -> None:
    shop.write(1)
    name = shop.keep()
    shop.write(2)
    made = shop.restore(name, create_backup=True, backup_retention_hours=5)["backup"]
    assert shop.rows() == [(1, "a")]
    assert shop.backups() == [made, name]
    assert shop.restore(made)["records_after"] == 2
    assert shop.rows() == [(1, "a"), (2, "a")]


def test_an_empty_state_can_be_kept_and_restored(shop: Shop) -> None:
    shop.write(1)
    shop.ok("DELETE", all=True)
    name = shop.keep()
    shop.write(2)
    answer = shop.restore(name)
    assert (answer["records_before"], answer["records_after"], answer["files_added"]) == (1, 0, 0)
    assert shop.rows() == []
    assert shop.restore(name)["restored"] is False


def test_what_only_compactions_changed_is_what_the_backup_holds(shop: Shop) -> None:
    for i in range(4):
        shop.write(i)
    name = shop.keep()
    tag = next(b.snapshot_id for b in backups_of(shop.loaded) if b.name == name)
    shop.sql(f"CALL firn.system.rollback_to_snapshot('{'.'.join(shop.loaded.name.identifier)}', {tag})")
    assert shop.ok("COMPACT", force=True)["compacted"]
    shop.ok("COMPACT", force=True, rewrite_manifests=True)
    before = shop.loaded.metadata_location
    for parts in ({}, {"dry_run": True}, {"create_backup": True}):
        answer = shop.restore(name, **parts)
        assert answer.get("restored", False) is False
        answer = answer.get("plan", answer)
        assert answer["reason"] == "the table holds what the backup holds already"
        assert (answer["records_before"], answer["records_after"], "backup" in answer) == (4, 4, False)
    assert shop.loaded.metadata_location == before


def test_a_dry_run_says_what_a_restore_does_and_changes_nothing(shop: Shop) -> None:
    shop.write(1, 2)
    name = shop.keep()
    shop.ok("DELETE", filter={"id": 1})
    shop.write(3)
    before = shop.loaded.metadata_location
    dry = shop.restore(name, dry_run=True, create_backup=True)
    assert set(dry) == {"success", "dry_run", "plan", "metadata"}
    reported = dry["plan"]
    assert "reason" not in reported
    assert shop.loaded.metadata_location == before
    done = shop.restore(name)
    for figure in ("records_before", "records_after", "files_removed", "files_added"):
        assert reported[figure] == done[figure]


def test_backups_are_listed_newest_first_with_what_they_hold(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, partition=BY_KIND)
    assert shop.backups() == []
    shop.write(1, kind="a")
    shop.write(2, 3, kind="b")
    files = {row.file_path: row.file_size_in_bytes for row in shop.sql("SELECT * FROM {t}.files")}
    held = shop.loaded.current_snapshot_id
    first = shop.keep(hours=3, operation="UPSERT")
    shop.sql("ALTER TABLE {t} CREATE TAG `my-own`")
    shop.write(4)
    made = shop.restore(first, create_backup=True)["backup"]
    [newer, older] = shop.ok("LIST_BACKUPS")["backups"]
    assert (newer["name"], newer["operation"], newer["records"]) == (made, "RESTORE_BACKUP", 4)
    assert older == {
        "name": first,
        "snapshot_id": str(held),
        "created_at": "2024-05-01T10:11:12.045000Z",
        "expires_at": older["expires_at"],
        "operation": "UPSERT",
        "records": 3,
        "files": 2,
        "bytes": sum(files.values()),
    }
    left = datetime.fromisoformat(older["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=3, minutes=-5) < left <= timedelta(hours=3)
    week = datetime.fromisoformat(newer["expires_at"]) - datetime.fromisoformat(newer["created_at"])
    assert abs(week - timedelta(hours=168)) < timedelta(minutes=1)
    assert shop.rows(as_of=held) == [(1, "a"), (2, "b"), (3, "b")]


def test_a_tables_options_for_edits_are_described(firn: Firn, tenant: str) -> None:
    options_given = {"create_backup": True, "backup_retention_hours": 7}
    shop = Shop(firn, tenant, properties={"edits": options_given})
    assert shop.ok("DESCRIBE_TABLE")["description"]["properties"]["edits"] == options_given
    shop.write(1)
    name = shop.keep()
    shop.write(2)
    made = shop.restore(name)["backup"]
    assert shop.backups() == [made, name]
    assert "backup" not in shop.restore(made, create_backup=False)


class TestRefusals:
    def test_a_backup_that_is_not_there_is_told_with_the_nearest_that_is(self, shop: Shop) -> None:
        shop.write(1)
        shop.sql("ALTER TABLE {t} CREATE TAG `my-own`")
        for operation in ("RESTORE_BACKUP", "DELETE_BACKUP"):
            refused = shop.refused(operation, "BACKUP_NOT_FOUND", 404, name="my-own")
            assert (refused["field"], "it has none" in refused["message"]) == ("name", True)
        name = shop.keep()
        for operation in ("RESTORE_BACKUP", "DELETE_BACKUP"):
            refused = shop.refused(operation, "BACKUP_NOT_FOUND", 404, name=name[:-1])
            assert refused["suggestion"] == name
        assert shop.backups() == [name]

    def test_a_retention_without_a_backup_is_refused_and_nothing_is_restored(self, shop: Shop) -> None:
        shop.write(1)
        name = shop.keep()
        shop.write(2)
        for parts in ({}, {"create_backup": False}, {"dry_run": True}):
            refused = shop.refused("RESTORE_BACKUP", "INVALID_REQUEST", name=name, backup_retention_hours=1, **parts)
            assert refused["field"] == "backup_retention_hours"
        assert len(shop.rows()) == 2

    def test_rows_that_do_not_add_up_are_not_published(self, shop: Shop) -> None:
        shop.write(1, 2, 3)
        name = shop.keep()
        shop.ok("DELETE", filter={"id": 1})
        table, firn = shop.loaded, shop.firn
        found = replace(
            firn.app.parts[Restores].differing(table, find(table, name).snapshot_id, Call("r")), rows_after=4
        )
        order = RestoreJob(table.spark_name, table.uuid, table.schema_id, found, "b", lambda: None)
        on_disk = shop.on_disk()
        with pytest.raises(
            RowCountMismatch, match=r"^Row count mismatch: .* 4 rows.* 3; nothing was changed"
        ) as refused:
            firn.app.engine.run(restore, order)
        assert refused.value.details == {"expected": 4, "found": 3}
        assert shop.loaded.metadata_location == table.metadata_location
        assert shop.on_disk() == on_disk, "what was written for it is gone"

    def test_a_restore_that_lost_its_leave_is_not_published(self, shop: Shop) -> None:
        shop.write(1)
        name = shop.keep()
        shop.write(2)
        table, firn = shop.loaded, shop.firn
        found = firn.app.parts[Restores].differing(table, find(table, name).snapshot_id, Call("r"))
        order = RestoreJob(table.spark_name, table.uuid, table.schema_id, found, "b", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            firn.app.engine.run(restore, order)
        assert shop.loaded.metadata_location == table.metadata_location


class TestOthers:
    """Other writers, retries, and other programs."""

    def test_a_restore_never_covers_what_it_has_not_seen(self, shop: Shop) -> None:
        shop.write(1)
        name = shop.keep()
        shop.write(2)
        engine, restores = shop.firn.app.engine, shop.firn.app.parts[Restores]

        def order(leave: Callable[[], object]) -> RestoreJob:
            table = shop.loaded
            found = restores.differing(table, find(table, name).snapshot_id, Call("r"))
            return RestoreJob(table.spark_name, table.uuid, table.schema_id, found, "b", leave)

        early = order(lambda: None)
        shop.write(3)
        with pytest.raises(CommitConflict):
            engine.run(restore, early)
        with pytest.raises(CommitConflict):
            engine.run(restore, order(lambda: shop.write(4)))
        assert [i for i, _ in shop.rows()] == [1, 2, 3, 4]

    def test_a_restore_that_loses_a_race_starts_again(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        shop.write(1)
        name = shop.keep()
        shop.write(2)
        commits = shop.firn.app.parts[Commits]
        beaten: list[str] = []

        def beat(batch: str) -> None:
            if not beaten:
                shop.sql("INSERT INTO {t} VALUES (3, 'b')")
            beaten.append(batch)

        monkeypatch.setattr(commits, "must_be_ours", beat)
        answer = shop.restore(name, create_backup=True)
        assert len(set(beaten)) == 2, "what it was beaten by is not in the table's state that was compared"
        assert (answer["records_before"], shop.rows()) == (3, [(1, "a")])
        assert shop.restore(answer["backup"])["records_after"] == 3
        assert [i for i, _ in shop.rows()] == [1, 2, 3]

    def test_a_write_that_comes_meanwhile_is_before_the_restore_or_stays(self, shop: Shop) -> None:
        shop.write(1, 2)
        name = shop.keep()
        acknowledged: dict[int, int] = {}

        def write(client: int) -> None:
            for i in range(client, client + 8):
                acknowledged[i] = shop.write(i)

        with ThreadPoolExecutor(4) as pool:
            writing = [pool.submit(write, client) for client in (100, 200, 300, 400)]
            wait_until(lambda: len(acknowledged) > 4, 30, every=0.01)
            restored = int(shop.restore(name)["metadata"]["snapshot_id"])
            for each in writing:
                each.result()
        order = [version.snapshot_id for version in history(shop.loaded).versions]
        later = [i for i, made in acknowledged.items() if order.index(made) > order.index(restored)]
        assert len(acknowledged) == 32
        assert [i for i, _ in shop.rows()] == [1, 2, *sorted(later)]

    def test_a_key_makes_it_happen_once(self, shop: Shop) -> None:
        shop.write(1)
        name = shop.keep()
        shop.write(2)
        key = {"idempotency_key": "k"}
        first = shop.restore(name, create_backup=True, **key)
        shop.write(3)
        assert shop.restore(name, create_backup=True, **key) == first
        assert [i for i, _ in shop.rows()] == [1, 3]
        gone = shop.ok("DELETE_BACKUP", name=name, **key)
        assert shop.ok("DELETE_BACKUP", name=name, **key) == gone
        assert shop.backups() == [first["backup"]]
        shop.refused("DELETE_BACKUP", "BACKUP_NOT_FOUND", 404, name=name, idempotency_key="another")

    def test_an_answer_that_was_lost_is_made_again(self, shop: Shop) -> None:
        """As after a crash between the change and the note of its answer."""
        shop.write(1)
        name = shop.keep()
        shop.write(2)
        parts = shop.firn.app.parts
        backups, restores, ledger = parts[Backups], parts[Restores], parts[Ledger]
        key = IdempotencyKey("RESTORE_BACKUP", shop.loaded.name, "k", "print")
        tag = backups.wanted(shop.loaded, True, None, "RESTORE_BACKUP")
        first = restores.run(shop.loaded, of_backup(name), tag, Call("one", key))
        noted = ledger.key(key.id)
        assert noted is not None
        assert (noted.answer, first.restored, first.backup) == (None, True, tag and tag.name)
        other = backups.wanted(shop.loaded, True, None, "RESTORE_BACKUP")
        assert restores.run(shop.loaded, of_backup(name), other, Call("two", key, noted.batch)) == first

    def test_a_deletion_whose_answer_was_lost_is_none_the_less_one(self, shop: Shop) -> None:
        shop.write(1)
        name = shop.keep()
        backups, ledger = shop.firn.app.parts[Backups], shop.firn.app.parts[Ledger]
        key = IdempotencyKey("DELETE_BACKUP", shop.loaded.name, "k", "print")
        backups.delete(shop.loaded, name, Call("one", key))
        noted = ledger.key(key.id)
        assert noted is not None
        backups.delete(shop.loaded, name, Call("two", key, noted.batch))
        with pytest.raises(BackupNotFound):
            backups.delete(shop.loaded, name, Call("three"))

    def test_a_new_table_of_the_same_name_is_not_restored(self, shop: Shop) -> None:
        shop.write(1)
        name = shop.keep()
        stale = shop.loaded
        shop.ok("DROP_TABLE")
        shop.firn.ok({"operation": "CREATE_TABLE", **shop.address, "schema": FIELDS})
        with pytest.raises(TableNotFound):
            shop.firn.app.parts[Restores].run(stale, of_backup(name), None, Call("r"))
        with pytest.raises(TableNotFound):
            shop.firn.app.parts[Backups].delete(stale, name, Call("r"))

    def test_programs_that_delete_files_with_the_snapshot_that_removed_them_leave_a_restored_table_whole(
        self, shop: Shop
    ) -> None:
        """Iceberg's own expiry does, for a table with one branch and no tag."""
        shop.write(1)
        name = shop.keep()
        shop.write(2, mode="overwrite")
        shop.restore(name)
        shop.ok("DELETE_BACKUP", name=name)
        table = shop.loaded

        def expire(session: SparkSession) -> None:
            now_ms = time.time_ns() // 1_000_000
            load_table(session, table.spark_name).expireSnapshots().expireOlderThan(now_ms).retainLast(1).commit()

        shop.firn.app.engine.run(expire)
        assert len(shop.loaded.snapshots()) == 1
        assert shop.rows() == [(1, "a")]

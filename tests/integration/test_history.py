"""HISTORY tells every commit and who asked for it; ROLLBACK goes back to any of them, and loses nothing."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.commits.commit import Commits
from service.edits.rollback import RollbackOutcome, Rollbacks, RollbackTarget
from service.errors import SnapshotNotFound
from service.ledger.ledger import Ledger
from service.model.as_of import Moment
from service.model.call import Call, IdempotencyKey
from tests.harness import Firn
from tests.integration.test_backups import Shop
from tests.support.marks import thorough_after


@pytest.fixture
def shop(firn: Firn, tenant: str) -> Shop:
    return Shop(firn, tenant)


def history(shop: Shop, **parts: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shop.ok("HISTORY", **parts)["snapshots"]
    return found


def result(entry: dict[str, Any]) -> tuple[Any, ...]:
    """Operation, rows added, removed and updated, files added and removed."""
    figures = ("records_added", "records_removed", "records_updated", "files_added", "files_removed")
    return (entry["operation"], *(entry[name] for name in figures))


class TestHistory:
    def test_every_commit_is_told_newest_first_with_what_it_did(self, shop: Shop) -> None:
        before = datetime.now(UTC) - timedelta(seconds=1)
        first = shop.write(1, 2, 3)
        shop.ok("UPDATE", filter={"id": 1}, updates={"kind": "b"})
        shop.ok("DELETE", filter={"id": 2})
        shop.ok("UPSERT", records=[{"id": 3, "kind": "c"}, {"id": 4, "kind": "d"}], key_cols=["id"])
        shop.write(9, mode="overwrite")
        shop.write(10)
        shop.ok("COMPACT", force=True)
        shop.sql("INSERT INTO {t} VALUES (20, 'z'), (21, 'z')")
        shop.ok("ROLLBACK", as_of=first)
        found = history(shop)
        assert [result(entry) for entry in reversed(found)] == [
            ("WRITE", 3, 0, 0, 1, 0),
            ("UPDATE", 0, 0, 1, 1, 1),
            ("DELETE", 0, 1, 0, 1, 1),
            ("UPSERT", 1, 0, 1, found[5]["files_added"], 1),
            ("WRITE", 1, 2 + 1, 0, 1, found[5]["files_added"]),
            ("WRITE", 1, 0, 0, 1, 0),
            ("COMPACT", 0, 0, 0, 1, 2),
            ("append", 2, 0, 0, 1, 0),
            ("ROLLBACK", 3, 4, 0, 1, 2),
        ]
        times = [datetime.fromisoformat(entry["committed_at"]) for entry in found]
        assert times == sorted(times, reverse=True)
        assert before < times[-1]
        assert times[0] < datetime.now(UTC) + timedelta(seconds=1)
        assert [entry.get("parent_id") for entry in found] == [*(entry["snapshot_id"] for entry in found[1:]), None]
        assert [entry["is_current"] for entry in found] == [True] + [False] * 8
        assert all(entry["is_ancestor"] for entry in found)
        assert (found[1]["request_ids"], found[1]["iceberg_operation"]) == ([], "append")

    def test_requests_that_share_a_commit_are_all_named(self, shop: Shop) -> None:
        def write(number: int) -> tuple[str, str]:
            answer = shop.ok("WRITE", records=[{"id": number, "kind": "a"}])
            return answer["metadata"]["request_id"], answer["metadata"]["snapshot_id"]

        with ThreadPoolExecutor(16) as pool:
            written = list(pool.map(write, range(48)))
        found = history(shop)
        assert len(found) < 48, "no commit was shared: nothing to test"
        named = {(request, entry["snapshot_id"]) for entry in found for request in entry["request_ids"]}
        assert named == set(written)
        assert sum(entry["records_added"] for entry in found) == 48

    def test_it_comes_in_pages(self, shop: Shop) -> None:
        made = [shop.write(i) for i in range(5)]
        answer = shop.ok("HISTORY", limit=2)
        assert [entry["snapshot_id"] for entry in answer["snapshots"]] == [str(made[4]), str(made[3])]
        assert answer["total"] == 5
        shop.write(6)
        answer = shop.ok("HISTORY", limit=2, cursor=answer["next_cursor"])
        assert [entry["snapshot_id"] for entry in answer["snapshots"]] == [str(made[2]), str(made[1])]
        answer = shop.ok("HISTORY", limit=2, cursor=answer["next_cursor"])
        assert [entry["snapshot_id"] for entry in answer["snapshots"]] == [str(made[0])]
        assert "next_cursor" not in answer

    def test_tags_and_backups_are_named_on_what_they_keep(self, shop: Shop) -> None:
        shop.write(1)
        shop.sql("ALTER TABLE {t} CREATE TAG `my-own`")
        backup = shop.ok("DELETE", filter={"id": 1}, create_backup=True)["backup"]
        assert [entry["tags"] for entry in history(shop)] == [[], [backup, "my-own"]]

    def test_what_another_program_went_back_behind_is_no_ancestor(self, shop: Shop) -> None:
        first = shop.write(1)
        shop.write(2)
        shop.sql(f"CALL firn.system.rollback_to_snapshot('{'.'.join(shop.loaded.name.identifier)}', {first})")
        shop.write(3)
        found = history(shop)
        assert [(e["is_current"], e["is_ancestor"]) for e in found] == [(True, True), (False, False), (False, True)]
        assert found[0].get("parent_id") == str(first)

    def test_rows_that_delete_files_take_out_are_removed(self, shop: Shop) -> None:
        shop.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
        shop.write(1, 2, 3)
        shop.sql("DELETE FROM {t} WHERE id = 2")
        assert shop.sql("SELECT * FROM {t}.delete_files"), "nothing to test"
        assert result(history(shop)[0]) == ("delete", 0, 1, 0, 0, 0)
        shop.ok("DELETE", all=True)
        assert history(shop)[0]["records_removed"] == 2

    def test_a_table_that_holds_nothing_has_no_history_and_one_that_is_not_there_is_told(self, shop: Shop) -> None:
        answer = shop.ok("HISTORY")
        assert (answer["snapshots"], answer["total"], "next_cursor" in answer) == ([], 0, False)
        shop.firn.fail({"operation": "HISTORY", **shop.address, "table": "tt"}, "TABLE_NOT_FOUND", 404)

    def test_no_spark_job_is_started(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        shop.write(1)
        engine = shop.firn.app.engine
        monkeypatch.setattr(type(engine), "run", lambda *args, **more: 1 / 0)
        assert len(history(shop)) == 1


class TestAsOf:
    def test_a_tag_or_a_backup_names_a_state(self, shop: Shop) -> None:
        shop.write(1)
        shop.sql("ALTER TABLE {t} CREATE TAG `one`")
        backup = shop.ok("DELETE", all=True, create_backup=True)["backup"]
        shop.write(2)
        for name in ("one", backup):
            assert shop.rows(as_of=name) == [(1, "a")]
            sql = {"operation": "QUERY", **shop.address, "sql": "SELECT id FROM t", "as_of": name}
            del sql["table"]
            assert shop.firn.ok(sql)["data"] == [{"id": 1}]

    def test_a_name_that_is_none_is_refused_with_the_nearest(self, shop: Shop) -> None:
        shop.write(1)
        shop.sql("ALTER TABLE {t} CREATE TAG `release-7`")
        refused = shop.refused("QUERY", "SNAPSHOT_NOT_FOUND", 404, as_of="release-8")
        assert (refused["field"], refused["suggestion"]) == ("as_of", "release-7")

    def test_a_tag_is_one_tables_own(self, shop: Shop) -> None:
        shop.write(1)
        shop.sql("ALTER TABLE {t} CREATE TAG `one`")
        request = {"operation": "QUERY", "tenant_id": shop.address["tenant_id"], "as_of": "one"}
        two = "SELECT a.id FROM t a JOIN u ON a.id = u.id"
        shop.firn.ok(
            {"operation": "CREATE_TABLE", **shop.address, "table": "u", "schema": {"fields": {"id": {"type": "long"}}}}
        )
        assert shop.firn.fail({**request, "sql": two}, "INVALID_QUERY")["field"] == "as_of"


class TestRollback:
    def test_rows_are_as_then_and_history_stays(self, shop: Shop) -> None:
        first = shop.write(1, 2, 3)
        shop.ok("UPDATE", filter={"id": 1}, updates={"kind": "b"})
        shop.ok("DELETE", filter={"id": 2})
        last = shop.write(4)
        answer = shop.ok("ROLLBACK", as_of=first, confirm=True)
        assert answer == {
            "success": True,
            "rolled_back": True,
            "from_snapshot": str(last),
            "to_snapshot": str(first),
            "changes_undone": 3,
            "records_before": 3,
            "records_after": 3,
            "files_removed": 2,
            "files_added": 1,
            "metadata": answer["metadata"],
        }
        assert shop.rows() == [(1, "a"), (2, "a"), (3, "a")]
        assert shop.rows(as_of=last) == [(1, "b"), (3, "a"), (4, "a")]
        assert shop.ok("ROLLBACK", as_of=str(last))["changes_undone"] == 1
        assert shop.rows() == [(1, "b"), (3, "a"), (4, "a")]

    def test_a_tag_or_a_backup_names_the_state_and_a_backup_can_be_made(self, shop: Shop) -> None:
        shop.write(1)
        shop.sql("ALTER TABLE {t} CREATE TAG `2024`")
        shop.write(2)
        made = shop.ok("ROLLBACK", as_of="2024", create_backup=True)["backup"]
        assert "-rollback-" in made
        assert shop.rows() == [(1, "a")]
        assert shop.ok("ROLLBACK", as_of=made)["records_after"] == 2
        assert shop.ok("LIST_BACKUPS")["backups"][0]["operation"] == "ROLLBACK"

    def test_where_the_rows_are_the_same_nothing_is_done(self, shop: Shop) -> None:
        shop.write(1)
        first = shop.write(2)
        shop.ok("COMPACT", force=True)
        before = shop.loaded.metadata_location
        answer = shop.ok("ROLLBACK", as_of=first, create_backup=True)
        assert (answer["rolled_back"], answer["changes_undone"]) == (False, 0)
        assert answer["reason"] == "the table holds what it held then already"
        assert shop.loaded.metadata_location == before

    def test_a_dry_run_says_what_would_be_done(self, shop: Shop) -> None:
        first = shop.write(1, 2)
        shop.ok("DELETE", filter={"id": 1})
        before = shop.loaded.metadata_location
        dry = shop.ok("ROLLBACK", as_of=first, dry_run=True)
        assert set(dry) == {"success", "dry_run", "plan", "metadata"}
        would = dry["plan"]
        assert "reason" not in would
        assert shop.loaded.metadata_location == before
        assert "estimated" not in would
        did = shop.ok("ROLLBACK", as_of=first)
        figures = ("from_snapshot", "to_snapshot", "changes_undone", "records_before", "records_after")
        for name in (*figures, "files_removed", "files_added"):
            assert would[name] == did[name]

    @pytest.mark.parametrize("partition", thorough_after(1, [None, {"partitions": [{"field": "kind"}]}]))
    def test_a_dry_run_announces_as_many_files_as_then_come(
        self, firn: Firn, tenant: str, partition: dict[str, Any] | None
    ) -> None:
        shop = Shop(firn, tenant, partition=partition)
        for n in range(9):
            shop.ok("WRITE", records=[{"id": n, "kind": f"k{n % 3}"}, {"id": n + 100, "kind": f"k{n % 2}"}])
        shop.ok("DELETE", all=True, create_backup=True)
        shop.write(1)
        [backup] = shop.ok("LIST_BACKUPS")["backups"]
        would = shop.ok("RESTORE_BACKUP", as_of=backup["name"], dry_run=True)["plan"]
        did = shop.ok("RESTORE_BACKUP", as_of=backup["name"])
        assert "estimated" not in would
        assert (would["files_removed"], would["files_added"]) == (did["files_removed"], did["files_added"])
        assert did["files_added"] < 9

    def test_what_only_writing_shows_is_called_an_estimate(self, firn: Firn, tenant: str) -> None:
        shop = Shop(firn, tenant)
        before = shop.write(1, 2)
        shop.ok("REPARTITION", partition={"partitions": [{"field": "kind"}]})
        shop.ok("DELETE", all=True)
        assert shop.ok("ROLLBACK", as_of=before, dry_run=True)["plan"]["estimated"] == ["files_added"]

    def test_it_is_left_where_rows_changed_since_the_snapshot_that_was_expected(self, shop: Shop) -> None:
        first = shop.write(1)
        seen = shop.write(2)
        shop.ok("COMPACT", force=True)
        assert shop.ok("ROLLBACK", as_of=first, expected_snapshot_id=seen, dry_run=True)["plan"]["changes_undone"] == 1
        shop.write(3)
        for parts in ({}, {"dry_run": True}):
            refused = shop.refused("ROLLBACK", "PLAN_STALE", 409, as_of=first, expected_snapshot_id=seen, **parts)
            assert refused["field"] == "expected_snapshot_id"
        assert len(shop.rows()) == 3
        shop.refused("ROLLBACK", "PLAN_STALE", 409, as_of=first, expected_snapshot_id=77)

    def test_what_came_until_its_turn_is_rolled_back_and_said(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = shop.write(1)
        shop.write(2)
        commits = shop.firn.app.parts[Commits]
        beaten: list[str] = []

        def beat(batch: str) -> None:
            if not beaten:
                shop.sql("INSERT INTO {t} VALUES (3, 'b')")
            beaten.append(batch)

        monkeypatch.setattr(commits, "must_be_ours", beat)
        answer = shop.ok("ROLLBACK", as_of=first)
        assert (answer["changes_undone"], answer["records_before"]) == (2, 3)
        assert shop.rows() == [(1, "a")]
        assert shop.rows(as_of=answer["from_snapshot"]) == [(1, "a"), (2, "a"), (3, "b")]

    def test_a_state_off_the_line_can_be_had_back(self, shop: Shop) -> None:
        first = shop.write(1)
        away = shop.write(2)
        shop.sql(f"CALL firn.system.rollback_to_snapshot('{'.'.join(shop.loaded.name.identifier)}', {first})")
        answer = shop.ok("ROLLBACK", as_of=away)
        assert (answer["rolled_back"], "changes_undone" in answer) == (True, False)
        assert shop.rows() == [(1, "a"), (2, "a")]

    def test_a_key_makes_it_happen_once_and_a_lost_answer_is_made_again(self, shop: Shop) -> None:
        first = shop.write(1)
        shop.write(2)
        one = shop.ok("ROLLBACK", as_of=first, idempotency_key="k", create_backup=True)
        shop.write(3)
        assert shop.ok("ROLLBACK", as_of=first, idempotency_key="k", create_backup=True) == one
        assert [i for i, _ in shop.rows()] == [1, 3]
        rollbacks, ledger = shop.firn.app.parts[Rollbacks], shop.firn.app.parts[Ledger]
        key = IdempotencyKey("ROLLBACK", shop.loaded.name, "l", "print")

        def run(call: Call, state: Moment) -> RollbackOutcome:
            return rollbacks.run(shop.loaded, RollbackTarget(state), None, call, dry_run=False)

        told_first = run(Call("one", key), first)
        noted = ledger.key(key.id)
        assert noted is not None
        shop.write(4)
        assert run(Call("two", key, noted.batch), first) == told_first
        assert run(Call("three", key, noted.batch), 5) == told_first, "even if the snapshot has expired since"
        with pytest.raises(SnapshotNotFound):
            run(Call("four"), 5)

    def test_a_snapshot_that_is_not_there_is_told_with_the_oldest_that_is(self, shop: Shop) -> None:
        first = shop.write(1)
        shop.write(2)
        shop.write(3)
        oldest = shop.ok("COMPACT", force=True, snapshot_retention_hours=0)["metadata"]["snapshot_id"]
        refused = shop.refused("ROLLBACK", "SNAPSHOT_NOT_FOUND", 404, as_of=first)
        assert refused["field"] == "as_of"
        assert f"its oldest snapshot is {oldest}, of 20" in refused["message"]
        assert shop.refused("ROLLBACK", "SNAPSHOT_NOT_FOUND", 404, as_of="x")["field"] == "as_of"

    def test_a_state_is_named_in_one_way(self, shop: Shop) -> None:
        shop.write(1)
        assert shop.refused("ROLLBACK", "INVALID_REQUEST")["field"] == "as_of"
        for name in ("snapshot_id", "tag"):
            assert shop.refused("ROLLBACK", "UNKNOWN_FIELD", **{name: 1})["suggestion"] == "as_of"

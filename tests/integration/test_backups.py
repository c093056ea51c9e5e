"""Backups: what they hold comes back whole, by a change like any other, and stays as long as it is to be kept."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from service.catalog.tables import Table
from service.edits.backups import named
from service.engine.swap import Tag, Target, swap
from service.names import TableName
from tests.harness import Firn

HOUR_MS = 3_600_000
FIELDS = {"fields": {"id": {"type": "long"}, "kind": {"type": "string"}}}
BY_KIND = {"partitions": [{"field": "kind", "transform": "identity"}]}


class Shop:
    """A table, and what is done with its backups."""

    def __init__(self, firn: Firn, tenant: str, **create: Any) -> None:
        self.firn = firn
        self.address = {"tenant_id": tenant, "table": "t"}
        firn.ok({"operation": "CREATE_TABLE", **self.address, "schema": FIELDS, **create})

    def ask(self, operation: str, **parts: Any) -> dict[str, Any]:
        return self.firn.ok({"operation": operation, **self.address, **parts})

    def write(self, *ids: int, kind: str = "a", **parts: Any) -> int:
        answer = self.ask("WRITE", records=[{"id": i, "kind": kind} for i in ids], **parts)
        return int(answer["metadata"]["snapshot_id"])

    def rows(self, **query: Any) -> list[tuple[int, str]]:
        found = self.firn.rows(self.address["tenant_id"], "t", projection=["id", "kind"], sort=["id"], **query)
        return [(row["id"], row["kind"]) for row in found]

    def load(self) -> Table:
        return self.firn.app.context.catalog.load(TableName(self.address["tenant_id"], "default", "t"))

    def keep(self, hours: int = 1, operation: str = "UPDATE") -> str:
        """Make a backup of what the table holds, as the change of an edit does that changes nothing."""
        table, name = self.load(), named(operation, 1_714_558_272_045)

        def change(session: SparkSession) -> int:
            target = Target(session, table.spark_name, table.uuid, None)
            iceberg = target.load()
            return swap(target, iceberg, iceberg.newAppend(), lambda _: None, tag=Tag(name, hours * HOUR_MS))

        self.firn.app.engine.run(change)
        return name

    def restore(self, name: str, **parts: Any) -> dict[str, Any]:
        return self.ask("RESTORE_BACKUP", name=name, **parts)

    def backups(self) -> list[str]:
        return [backup["name"] for backup in self.ask("LIST_BACKUPS")["backups"]]

    def sql(self, text: str) -> list[Any]:
        """A statement as another program on the same catalog may run it."""

        def run(session: SparkSession) -> list[Any]:
            return session.sql(text.format(t=self.load().spark_name)).collect()

        return self.firn.app.engine.run(run)


@pytest.fixture
def shop(firn: Firn, tenant: str) -> Shop:
    return Shop(firn, tenant)


def test_a_restored_table_holds_the_backups_rows_and_all_of_its_history(shop: Shop) -> None:
    shop.write(1, 2, 3)
    name = shop.keep()
    shop.ask("UPDATE", filter={"id": 1}, updates={"kind": "b"})
    shop.ask("DELETE", filter={"id": 2})
    shop.write(4)
    before = shop.load()
    answer = shop.restore(name)
    assert answer == {
        "success": True,
        "restored": True,
        "reason": None,
        "records_before": 3,
        "records_after": 3,
        "files_removed": 2,
        "files_added": 1,
        "backup": None,
        "metadata": answer["metadata"],
    }
    assert shop.rows() == [(1, "a"), (2, "a"), (3, "a")]
    after = shop.load()
    snapshot = after.snapshot(answer["metadata"]["snapshot_id"])
    assert (snapshot.snapshot_id, snapshot.parent_id) == (after.current_snapshot_id, before.current_snapshot_id)
    assert {s.snapshot_id for s in before.snapshots()} < {s.snapshot_id for s in after.snapshots()}
    assert shop.rows(as_of=before.current_snapshot_id) == [(1, "b"), (3, "a"), (4, "a")]


def test_only_files_that_differ_are_written_anew_and_none_is_put_back_as_it_was(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, partition=BY_KIND)
    for kind in "abc":
        shop.write(ord(kind), kind=kind)
    name = shop.keep()
    held = {row.file_path for row in shop.sql("SELECT file_path FROM {t}.files")}
    shop.ask("DELETE", filter={"kind": "a"})
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
    shop.ask("DELETE", all=True)
    name = shop.keep()
    shop.write(2)
    answer = shop.restore(name)
    assert (answer["records_before"], answer["records_after"], answer["files_added"]) == (1, 0, 0)
    assert shop.rows() == []
    assert shop.restore(name)["restored"] is False

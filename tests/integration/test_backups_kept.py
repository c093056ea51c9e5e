"""How long a backup's files stay: through every kind of upkeep until its time is over, and no longer."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from service.engine.iceberg.tables import load_table
from service.maintenance.expire.expiry import SLACK
from tests.harness import Firn, wait_until
from tests.integration.test_backups import Shop

KEEP_TWO = {"snapshots": {"keep_last": 2, "hourly_for_hours": 0}}


def end(shop: Shop, name: str) -> None:
    """Have the time of a backup be over."""
    table = shop.loaded

    def shorten(session: SparkSession) -> None:
        load_table(session, table.spark_name).manageSnapshots().setMaxRefAgeMs(name, 1).commit()

    shop.firn.app.engine.run(shorten)


def test_maintenance_of_every_kind_leaves_a_backup_whole(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, properties=KEEP_TWO)
    shop.write(1)
    shop.write(2)
    name = shop.keep()
    held = shop.rows()
    [kept] = {backup["snapshot_id"] for backup in shop.ok("LIST_BACKUPS")["backups"]}
    shop.ok("UPDATE", all=True, updates={"kind": "b"})
    compacted = shop.ok("COMPACT", force=True, rewrite_manifests=True, snapshot_retention_hours=0)
    assert {"snapshot_id": kept, "reason": f"tag {name}"} in compacted["snapshots_kept"]
    for i in range(10, 10 + SLACK + 5):
        shop.write(i)
    wait_until(lambda: shop.loaded.snapshot_count < SLACK, 20)
    cleaned = shop.ok("CLEAN_ORPHANS", older_than_hours=0)
    assert cleaned["files_found"] == 0
    assert shop.rows(as_of=kept) == held
    shop.restore(name)
    assert shop.rows() == held


def test_a_backup_whose_time_is_over_goes_with_the_files_that_nothing_else_needs(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant)
    shop.write(1)
    name = shop.keep()
    shop.write(2, mode="overwrite")
    held = shop.on_disk()
    shop.ok("COMPACT", snapshot_retention_hours=0)
    assert (shop.backups(), shop.on_disk()) == ([name], held)
    end(shop, name)
    stats = shop.ok("COMPACT", snapshot_retention_hours=0)["stats"]
    assert (stats["snapshots_expired"], shop.backups()) == (1, [])
    assert len(shop.on_disk()) == 1
    assert shop.rows() == [(2, "a")]


@pytest.mark.thorough
def test_a_backup_whose_time_is_over_goes_by_the_tables_policy(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, properties=KEEP_TWO)
    shop.write(1)
    name = shop.keep()
    shop.write(2, mode="overwrite")
    end(shop, name)
    for i in range(SLACK + 5):
        shop.write(i)
    wait_until(lambda: shop.backups() == [], 20)
    shop.refused("RESTORE_BACKUP", "BACKUP_NOT_FOUND", 404, name=name)


def test_the_files_of_a_backup_that_was_deleted_go_with_the_next_expiry(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant)
    shop.write(1)
    [first] = shop.on_disk()
    name = shop.keep()
    shop.write(2, mode="overwrite")
    shop.ok("COMPACT", snapshot_retention_hours=0)
    assert first in shop.on_disk()
    assert shop.ok("DELETE_BACKUP", name=name)["backup_deleted"] is True
    assert (shop.backups(), first in shop.on_disk()) == ([], True)
    shop.ok("COMPACT", snapshot_retention_hours=0)
    assert first not in shop.on_disk()
    assert not list(Path(shop.loaded.location.removeprefix("file://")).rglob(f".{first}.crc"))

"""A table does not grow with its age: old snapshots go with the files only they need, and nothing else goes."""

from pathlib import Path
from typing import Any

import pytest

from service.commits.file_removal import delete_files
from service.commits.holds import READ, SnapshotHolds
from service.engine.iceberg.expire import remove, unneeded_files
from service.engine.jobs.select import select
from service.errors import CommitConflict, SnapshotNotFound
from service.maintenance.expire.expiry import SLACK
from service.model.query.model import TableSource
from service.model.query.plan import QueryParts, plan_query
from tests.harness import Firn, wait_until
from tests.support.tables import ServedTable

FIELDS = {"fields": {"id": {"type": "long"}}}
KEEP_THREE = {"snapshots": {"keep_last": 3, "hourly_for_hours": 0}}


class Shop(ServedTable):
    """A table that keeps its last three snapshots."""

    def __init__(self, firn: Firn, tenant: str) -> None:
        super().__init__(firn, tenant, schema=FIELDS, properties=KEEP_THREE)

    def snapshots(self) -> set[int]:
        return {s.snapshot_id for s in self.loaded.snapshots()}

    def needed(self) -> set[str]:
        """Those that its snapshots name, by PyIceberg's account."""
        iceberg = self.loaded.iceberg
        found: set[str] = set()
        for snapshot in iceberg.metadata.snapshots:
            found.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(iceberg.io):
                found.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(iceberg.io)
                found.update(entry.data_file.file_path for entry in entries)
        return {Path(path).name for path in found}


def test_old_snapshots_go_in_the_background_and_what_is_named_stays(firn: Firn, tenant: str) -> None:
    """Tags and branches that other programs made stay readable; on disk is what is needed, and nothing else."""
    shop = Shop(firn, tenant)
    made = [shop.write({"id": 0})]
    shop.sql("ALTER TABLE {t} CREATE TAG first")
    made += [shop.write({"id": i}) for i in (1, 2)]
    shop.sql("ALTER TABLE {t} CREATE BRANCH side WITH SNAPSHOT RETENTION 2 SNAPSHOTS")
    made += [shop.write({"id": i}) for i in range(3, SLACK + 10)]
    wait_until(lambda: len(shop.snapshots()) < SLACK, 20)
    wait_until(lambda: shop.on_disk("*.parquet", "*.avro") == shop.needed(), 20)
    left = shop.snapshots()
    assert left >= {made[0], made[1], made[2], *made[-3:]}
    assert not left & set(made[3:SLACK])
    assert shop.ids() == list(range(SLACK + 10))
    assert shop.ids(as_of=made[0]) == [row.id for row in shop.sql("SELECT id FROM {t} VERSION AS OF 'first'")] == [0]
    assert len(shop.sql("SELECT id FROM {t} VERSION AS OF 'side'")) == 3
    assert firn.fail({"operation": "QUERY", **shop.address, "as_of": made[5]}, "SNAPSHOT_NOT_FOUND")


def test_files_that_only_old_snapshots_had_are_deleted(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant)
    made = [shop.write({"id": i}) for i in range(4)]
    with firn.app.parts[SnapshotHolds].reading(shop.loaded.uuid, made[1]):
        before = shop.on_disk("*.parquet", "*.avro")
        answer = firn.ok({"operation": "COMPACT", **shop.address, "snapshot_retention_hours": 0})
        stats = answer["stats"]
        assert (stats["files_compacted"], stats["snapshots_expired"]) == (4, 3)
        assert answer["snapshots_kept"] == [{"snapshot_id": str(made[1]), "reason": READ}]
        assert stats["old_snapshots_kept"] == 1
        assert stats["expired_files_deleted"] == len(before - shop.on_disk("*.parquet", "*.avro")) == 2 + 2 + 3
        assert shop.ids(as_of=made[1]) == [0, 1]
        # The merged file, and the two of the snapshot that is being read.
        assert sum(name.endswith(".parquet") for name in shop.on_disk("*.parquet", "*.avro")) == 3
        assert shop.on_disk("*.parquet", "*.avro") == shop.needed()
    stats = firn.ok({"operation": "COMPACT", **shop.address, "snapshot_retention_hours": 0})["stats"]
    assert (stats["snapshots_expired"], stats["old_snapshots_kept"]) == (1, 0)
    assert sum(name.endswith(".parquet") for name in shop.on_disk("*.parquet", "*.avro")) == 1
    assert (shop.on_disk("*.parquet", "*.avro"), shop.ids()) == (shop.needed(), [0, 1, 2, 3])


def test_a_branch_with_an_age_limit_loses_nothing_that_is_not_decided_here(firn: Firn, tenant: str) -> None:
    """Iceberg's own expiry would let go of every snapshot past the limit, whoever reads it."""
    shop = Shop(firn, tenant)
    made = [shop.write({"id": i}) for i in range(4)]
    shop.sql(f"ALTER TABLE {{t}} REPLACE BRANCH main AS OF VERSION {made[-1]} WITH SNAPSHOT RETENTION 1 MINUTES")
    table = shop.loaded
    firn.app.engine.run(remove, table.spark_name, table.metadata_location, [made[0]], [])
    assert shop.snapshots() == set(made[1:])


def test_what_was_decided_by_older_metadata_is_not_done(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant)
    first = shop.write({"id": 0})
    seen = shop.loaded
    shop.write({"id": 1})
    shop.sql(f"ALTER TABLE {{t}} CREATE TAG late AS OF VERSION {first}")
    with pytest.raises(CommitConflict):
        firn.app.engine.run(remove, seen.spark_name, seen.metadata_location, [first], [])
    assert first in shop.snapshots()


def test_a_snapshot_that_is_kept_for_the_next_query_is_not_missed_when_it_has_expired(firn: Firn, tenant: str) -> None:
    """What a session remembers of it outlives it; that its files are gone is then told as what it is."""
    shop = Shop(firn, tenant)
    first = shop.write({"id": 0})
    query = plan_query(QueryParts(), TableSource(shop.loaded.spark_name, "t", shop.loaded.schema, first), [])

    def read() -> list[Any]:
        return firn.app.engine.run(select, query=query, explain=False).rows

    assert read() == [{"id": 0}]
    firn.ok({"operation": "WRITE", **shop.address, "mode": "overwrite", "records": [{"id": 1}]})
    assert read() == [{"id": 0}]
    table = shop.loaded
    removed = firn.app.engine.run(remove, table.spark_name, table.metadata_location, [first], [])
    assert delete_files(firn.app.engine, table, firn.app.engine.run(unneeded_files, removed)) > 0
    with pytest.raises(SnapshotNotFound):
        read()
    assert shop.ids() == [1]

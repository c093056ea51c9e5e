"""Which files COMPACT takes: those of the partitions that a filter names, and those of which much is deleted."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from service.catalog.files.data_files import list_files
from service.catalog.files.small import small_bytes
from service.catalog.tables import Catalog, Table
from service.maintenance.compact.compaction import Compactions
from service.maintenance.compact.report import CompactionOptions
from service.model.call import Call
from service.model.names import TableName
from service.settings import CompactionSettings
from tests.harness import Firn
from tests.integration.test_other_readers import foreign
from tests.support.marks import thorough_after
from tests.support.tables import TableById

SCHEMA = {"fields": {"id": {"type": "long", "required": True}, "at": {"type": "timestamp"}, "text": {"type": "string"}}}
ROWS = 30_000
IN_ONE_BUCKET = [n for n in range(100) if BucketTransform(4).transform(LongType())(n) == 3][:5]
IN_ANOTHER = [n for n in range(100) if BucketTransform(4).transform(LongType())(n) == 1][:5]


def ids(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": n, "at": "2024-01-01T00:00:00"} for n in numbers]


def times(*moments: str) -> list[dict[str, Any]]:
    return [{"id": i, "at": at} for i, at in enumerate(moments)]


@pytest.mark.parametrize("listed", thorough_after(1, [False, True]), ids=["object", "list"])
@pytest.mark.parametrize(
    ("by", "inside", "outside"),
    thorough_after(
        3,
        [
            ({"field": "id", "transform": "bucket", "num_buckets": 4}, ids(*IN_ONE_BUCKET), ids(*IN_ANOTHER)),
            ({"field": "id", "transform": "truncate", "width": 10}, ids(*range(10, 15)), ids(*range(20, 25))),
            (
                {"field": "at", "transform": "day"},
                times(*(f"2024-01-01T0{n}:00:00" for n in range(5))),
                times(*(f"2024-01-02T0{n}:00:00" for n in range(5))),
            ),
            (
                {"field": "at", "transform": "hour"},
                times(*(f"2024-01-01T01:0{n}:00" for n in range(5))),
                times(*(f"2024-01-01T02:0{n}:00" for n in range(5))),
            ),
        ],
    ),
    ids=["bucket", "truncate", "day", "hour"],
)
def test_a_partition_filter_takes_all_small_files_of_a_partition_whatever_values_they_hold(
    firn: Firn,
    tenant: str,
    by: dict[str, Any],
    inside: list[dict[str, Any]],
    outside: list[dict[str, Any]],
    listed: bool,
) -> None:
    """Each file has one row, and the filter names the value of one of them."""
    address = {"tenant_id": tenant, "table": "t"}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": SCHEMA, "partition": {"partitions": [by]}})
    for one, other in zip(inside, outside, strict=True):
        firn.ok({"operation": "WRITE", **address, "records": [one, other]})
    column = by["field"]
    value = inside[3][column]
    asked = [{"field": column, "operator": "eq", "value": value}] if listed else {column: value}
    [partition] = firn.ok({"operation": "LIST_PARTITIONS", **address, "partition_filter": asked})["partitions"]
    assert partition["files"] == 5
    plan = firn.ok({"operation": "COMPACT", **address, "partition_filter": asked, "dry_run": True})["plan"]
    assert (plan["files_removed"], plan["partitions_affected"]) == (5, 1)
    stats = firn.ok({"operation": "COMPACT", **address, "partition_filter": asked})["stats"]
    assert (stats["files_compacted"], stats["files_after"]) == (5, 6)
    again = firn.ok({"operation": "COMPACT", **address, "partition_filter": asked})
    assert again["reason"].startswith("1 small file(s), but no partition has")


class Deleted:
    """A table with a file of 2 MB, of which another engine deleted most rows without writing it anew."""

    def __init__(self, firn: Firn, tenant: str) -> None:
        self.firn = firn
        self.tenant = tenant
        self.address = {"tenant_id": tenant, "table": "t"}
        plain = {"compression": "uncompressed"}
        firn.ok({"operation": "CREATE_TABLE", **self.address, "schema": SCHEMA, "properties": plain})
        self.write(*range(20))
        [self.path] = self.files()
        with foreign(firn, tenant).transaction() as change:
            change.set_properties({"write.delete.mode": "merge-on-read"})

    def write(self, *numbers: int, size: int = 100_000) -> None:
        rows = [{"id": n, "text": f"{n}" + "x" * size} for n in numbers]
        self.firn.ok({"operation": "WRITE", **self.address, "records": rows})

    def delete(self) -> None:
        sql = f"DELETE FROM {self.table.spark_name} WHERE id < 15"
        self.firn.app.engine.run(lambda session: session.sql(sql))
        assert self.delete_files() == 1

    @property
    def table(self) -> Table:
        return self.firn.app.parts[Catalog].load(TableName(self.tenant, "default", "t"))

    def files(self) -> set[str]:
        return {task.file.file_path for task in foreign(self.firn, self.tenant).scan().plan_files()}

    def delete_files(self) -> int:
        return len(foreign(self.firn, self.tenant).inspect.delete_files())

    def ids(self) -> list[int]:
        return [row["id"] for row in self.firn.rows(self.tenant, "t", sort=["id"], projection=["id"])]

    def compact(self, **fields: Any) -> dict[str, Any]:
        return self.firn.ok({"operation": "COMPACT", **self.address, "max_file_size_mb": 1, **fields})


@pytest.fixture
def deleted(firn: Firn, tenant: str) -> Deleted:
    return Deleted(firn, tenant)


def test_a_file_with_many_deleted_rows_is_rewritten_by_itself(deleted: Deleted) -> None:
    assert deleted.compact()["compacted"] is False
    deleted.delete()
    answer = deleted.compact()
    assert (answer["compacted"], answer["stats"]["files_compacted"]) == (True, 1), answer
    assert (deleted.ids(), deleted.path in deleted.files()) == ([15, 16, 17, 18, 19], False)


def test_delete_files_are_found_where_a_snapshots_summary_does_not_count_them(deleted: Deleted) -> None:
    deleted.delete()
    metadata = Path(deleted.table.metadata_location.removeprefix("file:"))
    result = json.loads(metadata.read_text())
    for snapshot in result["snapshots"]:
        snapshot["summary"].pop("total-delete-files", None)
    metadata.write_text(json.dumps(result))
    (metadata.parent / f".{metadata.name}.crc").unlink(missing_ok=True)
    # Whoever has read the metadata before reads it again.
    with foreign(deleted.firn, deleted.tenant).transaction() as change:
        change.set_properties({"comment": "new"})
    assert deleted.compact()["stats"]["files_compacted"] == 1
    assert deleted.ids() == [15, 16, 17, 18, 19]


def edited(firn: Firn, tenant: str, files: int = 1, **properties: Any) -> TableById:
    """A table with files of a good size, of each of which one row is deleted by a delete file."""
    fields = {"id": {"type": "long"}, "text": {"type": "string"}}
    properties = {"row_level": "merge_on_read", **properties}
    table = TableById(firn, tenant, "edited", schema={"fields": fields}, properties=properties)
    chance = random.Random(1)
    for n in range(files):
        lines = (f"{n * ROWS + i},{chance.getrandbits(256):x}" for i in range(ROWS))
        table.bulk_load("id,text\n" + "\n".join(lines), "text/csv")
    # Not before: a load would then write several files, none of which is large enough.
    table.ok("ALTER_TABLE", set_properties={"target_file_size_mb": 1})
    table.ok("DELETE", filter={"id": {"in": [n * ROWS for n in range(files)]}})
    found = list_files(table.loaded)
    assert (len(found.data), found.deletes) == (files, files)
    assert not any("/data//" in delete for file in found.data for delete in file.deletes)
    assert min(file.bytes for file in found.data) > small_bytes(CompactionSettings(), 1)
    return table


@pytest.mark.thorough
def test_a_table_with_nothing_to_merge_is_freed_of_its_delete_files(firn: Firn, tenant: str) -> None:
    table = edited(firn, tenant)
    plan = table.ok("COMPACT", dry_run=True)["plan"]
    assert (plan["files_removed"], plan["files_added"]) == (1, 1)
    stats = table.ok("COMPACT")["stats"]
    assert (stats["files_compacted"], stats["files_removed"], stats["files_after"]) == (1, 2, 1)
    assert list_files(table.loaded).deletes == 0
    assert len(table.ids()) == ROWS - 1
    assert table.ok("COMPACT")["compacted"] is False


def test_delete_files_of_files_of_a_good_size_count_for_the_check_and_are_removed(firn: Firn, tenant: str) -> None:
    properties = {"min_files_to_compact": 3, "opportunistic_check_interval": 1}
    table = edited(firn, tenant, files=2, **properties)
    assert table.ok("WRITE", records=[{"id": -1}])["compaction_recommended"] is True
    [advice] = firn.ok({"operation": "RECOMMEND", "tenant_id": tenant, "scope": "tenant"})["recommendations"]
    assert (advice["recommended"], advice["small_files"]) == (True, 1)
    assert "2 more have delete files; merging 3 of them" in advice["reason"]
    assert "remove 2 delete file(s)" in advice["reason"]
    # As mode auto compacts, which removes no other delete files.
    options = CompactionOptions(last_deletes=False)
    done = firn.app.parts[Compactions].compact(table.loaded, options, Call("auto"))
    assert (done.stats.files_compacted, done.stats.files_removed) == (3, 5)
    assert list_files(table.loaded).deletes == 0
    assert len(table.ids()) == 2 * ROWS - 1


def test_mode_auto_leaves_the_delete_files_of_partitions_that_have_few(firn: Firn, tenant: str) -> None:
    table = edited(firn, tenant, files=1)
    options = CompactionOptions(last_deletes=False)
    assert firn.app.parts[Compactions].compact(table.loaded, options, Call("auto")).compacted is False
    assert list_files(table.loaded).deletes == 1


@pytest.mark.thorough
def test_delete_files_of_data_files_that_are_gone_are_removed(firn: Firn, tenant: str) -> None:
    """As another engine leaves them, which rewrites data files and not the delete files."""
    table = edited(firn, tenant)
    before = list_files(table.loaded)

    def rewrite(session: Any) -> None:
        options = "map('rewrite-all', 'true', 'use-starting-sequence-number', 'false')"
        name = table.loaded.spark_name.replace("`", "")
        session.sql(f"CALL firn.system.rewrite_data_files(table => '{name}', options => {options})").collect()

    firn.app.engine.run(rewrite)
    left = list_files(table.loaded)
    assert (left.deletes, left.dangling, before.dangling) == (1, 1, 0)
    reason = table.ok("COMPACT", dry_run=True)["plan"]["reason"]
    assert "1 delete file(s) of data files that are gone" in reason
    answer = table.ok("COMPACT")
    assert (answer["compacted"], answer["stats"]["files_removed"], answer["stats"]["files_compacted"]) == (True, 1, 0)
    assert list_files(table.loaded).deletes == 0
    assert len(table.ids()) == ROWS - 1
    assert table.ok("COMPACT")["compacted"] is False


@pytest.mark.thorough
def test_of_more_files_than_may_be_merged_those_of_which_much_is_deleted_go_first(deleted: Deleted) -> None:
    for n in range(100, 104):
        deleted.write(n, size=10)
    deleted.delete()
    assert deleted.compact(max_files=2)["stats"]["files_compacted"] == 2
    assert deleted.path not in deleted.files()
    assert deleted.ids() == [15, 16, 17, 18, 19, 100, 101, 102, 103]

"""Which files COMPACT takes: those of the partitions that a filter names, and those of which much is deleted."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from service.catalog.tables import Catalog, Table
from service.model.names import TableName
from tests.harness import Firn
from tests.integration.test_other_readers import foreign
from tests.support.marks import thorough_after

SCHEMA = {"fields": {"id": {"type": "long", "required": True}, "at": {"type": "timestamp"}, "text": {"type": "string"}}}
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


def test_of_more_files_than_may_be_merged_those_of_which_much_is_deleted_go_first(deleted: Deleted) -> None:
    for n in range(100, 104):
        deleted.write(n, size=10)
    deleted.delete()
    assert deleted.compact(max_files=2)["stats"]["files_compacted"] == 2
    assert deleted.path not in deleted.files()
    assert deleted.ids() == [15, 16, 17, 18, 19, 100, 101, 102, 103]

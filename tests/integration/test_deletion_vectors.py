"""A table that another program moved to format 3 gets deletion vectors, which Firn, Spark and PyIceberg read."""

from typing import Any

import pytest

from service.catalog.files.data_files import list_files
from tests.harness import Firn
from tests.integration.test_compaction_yields import after_each_group
from tests.support.tables import TableById

SCHEMA = {"fields": {"id": {"type": "long"}, "kind": {"type": "string"}, "n": {"type": "long"}}, "primary_key": ["id"]}
BY_KIND = {"partitions": [{"field": "kind", "transform": "identity"}]}


class Vectors(TableById):
    """A table whose edits write no file again."""

    def __init__(self, firn: Firn, tenant: str, **create: Any) -> None:
        create = {"schema": SCHEMA, "properties": {"row_level": "merge_on_read"}, **create}
        super().__init__(firn, tenant, "vectors", **create)

    def upgrade(self) -> None:
        self.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")

    def numbers(self) -> dict[int, int]:
        """The rows, which all readers must agree on."""
        found = {row["id"]: row["n"] for row in self.rows()}
        others = self.loaded.iceberg.scan().to_arrow().to_pylist()
        assert sorted((row["id"], row["n"]) for row in others) == sorted(found.items())
        return found

    def deletes(self) -> list[tuple[str, ...]]:
        """How the names of the delete files of each data file end, of those that have any."""
        files = list_files(self.loaded)
        assert files.counted
        return [tuple(path.rpartition(".")[2] for path in file.deletes) for file in files.data if file.deletes]


@pytest.mark.parametrize(
    "partition", [None, pytest.param(BY_KIND, marks=pytest.mark.thorough)], ids=["plain", "by kind"]
)
def test_edits_write_deletion_vectors_and_can_be_undone_compared_and_compacted(
    firn: Firn, tenant: str, partition: dict[str, Any] | None
) -> None:
    table = Vectors(firn, tenant, **({"partition": partition} if partition else {}))
    table.write(*({"id": n, "kind": "a", "n": n} for n in range(10)))
    table.upgrade()
    before = table.loaded.current_snapshot_id
    by_key = table.ok("DELETE", filter={"id": {"in": [1, 2]}})
    by_scan = table.ok("UPDATE", filter={"expression": "n > 7"}, updates={"n": {"expression": "n + 100"}})
    table.ok("UPSERT", records=[{"id": 3, "n": 33}, {"id": 50, "kind": "b", "n": 50}])
    assert table.numbers() == {0: 0, 3: 33, 4: 4, 5: 5, 6: 6, 7: 7, 8: 108, 9: 109, 50: 50}
    assert table.deletes() == [("puffin",)]
    found = table.ok("DIFF", from_snapshot=before)
    assert [found[f"records_{how}"] for how in ("inserted", "deleted", "updated")] == [1, 2, 3]
    for answer in (by_key, by_scan):
        table.ok("UNDO", request_id=answer["metadata"]["request_id"])
    rows = {n: n for n in range(10)} | {3: 33, 50: 50}
    assert table.numbers() == rows
    assert table.ok("COMPACT", force=True)["compacted"]
    assert table.deletes() == []
    assert table.numbers() == rows


def test_earlier_delete_files_become_part_of_the_vector(firn: Firn, tenant: str) -> None:
    table = Vectors(firn, tenant)
    table.write(*({"id": n, "kind": "a", "n": n} for n in range(6)))
    table.ok("DELETE", filter={"id": 1})
    assert table.deletes() == [("parquet",)]
    table.upgrade()
    table.ok("DELETE", filter={"id": 2})
    assert table.deletes() == [("puffin",)]
    assert table.numbers() == {n: n for n in (0, 3, 4, 5)}


def test_rows_that_a_delete_file_of_several_data_files_deleted_stay_deleted(firn: Firn, tenant: str) -> None:
    table = Vectors(firn, tenant)
    for first in (0, 10):
        table.write(*({"id": first + n, "kind": "a", "n": n} for n in range(4)))
    table.sql(
        "ALTER TABLE {t} SET TBLPROPERTIES "
        "('write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition')"
    )
    table.sql("DELETE FROM {t} WHERE n = 1")
    table.upgrade()
    table.ok("DELETE", filter={"id": 2})
    assert [row["id"] for row in table.rows()] == [0, 3, 10, 12, 13]
    assert sorted(table.loaded.iceberg.scan().to_arrow()["id"].to_pylist()) == [0, 3, 10, 12, 13]


@pytest.mark.thorough
def test_rows_that_are_deleted_during_a_merge_are_deleted_from_the_merged_file(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Vectors(firn, tenant)
    table.write(*({"id": n, "kind": "a", "n": n} for n in range(6)))
    table.write({"id": 6, "kind": "a", "n": 6})
    table.upgrade()
    table.ok("DELETE", filter={"id": 0})
    with after_each_group(monkeypatch, lambda: table.ok("DELETE", filter={"id": {"in": [2, 3]}})):
        answer = table.ok("COMPACT", force=True)
    assert (answer["compacted"], answer["stats"]["conflicts"]) == (True, 0)
    assert table.deletes() == [("puffin",)]
    assert table.numbers() == {n: n for n in (1, 4, 5, 6)}

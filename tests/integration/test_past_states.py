"""Earlier states of a table that has other columns since: what has no value now required is refused, what can be worked
out is, and nothing reads as a value that it was not."""

from typing import Any

import pytest

from tests.harness import Firn
from tests.support.marks import thorough_after
from tests.support.tables import ServedTable

LOOSE = {"fields": {"key": {"type": "string"}, "n": {"type": "integer"}}}
STRICT = {"fields": {"key": {"type": "string"}, "n": {"type": "integer", "required": True}}}
OTHER_KEY = {"fields": {"id": {"type": "long"}}, "primary_key": ["id"]}
ROWS = [{"key": "a", "n": 1}, {"key": None, "n": None}]


class Shop(ServedTable):
    def __init__(self, firn: Firn, tenant: str, schema: dict[str, Any] = LOOSE) -> None:
        super().__init__(firn, tenant, schema=schema)

    def written(self, *records: dict[str, Any]) -> dict[str, Any]:
        """The metadata of the response to a WRITE."""
        return dict(self.ok("WRITE", records=list(records))["metadata"])

    def afresh(self, schema: dict[str, Any]) -> dict[str, Any]:
        return self.ok("REINITIALISE_TABLE", confirm=True, create_backup=True, schema=schema)

    def refused(self, column: str, operation: str, **fields: Any) -> str:
        before = self.rows()
        for dry_run in (True, False):
            error = self.firn.fail(self.request(operation, dry_run=dry_run, **fields), "INVALID_SCHEMA", 400)
            assert error["field"] == column
            assert "set_nullable" in error["message"]
        assert self.rows() == before
        return str(error["message"])


@pytest.fixture
def shop(firn: Firn, tenant: str) -> Shop:
    return Shop(firn, tenant)


@pytest.mark.parametrize(("schema", "column"), thorough_after(1, [(OTHER_KEY, "id"), (STRICT, "n")]))
def test_rows_without_a_value_that_is_required_by_now_do_not_come_back(
    shop: Shop, schema: dict[str, Any], column: str
) -> None:
    written = shop.written(*ROWS)
    made = shop.afresh(schema)
    shop.refused(column, "ROLLBACK", as_of=written["snapshot_id"])
    shop.refused(column, "RESTORE_BACKUP", name=made["backup"])
    message = shop.refused(column, "UNDO", request_id=made["metadata"]["request_id"])
    assert ("primary_key" in message) == (column == "id")
    error = shop.firn.fail(shop.request("UNDO", request_id=written["request_id"]), "UNDO_CONFLICT", 409)
    assert error["details"]["request_ids"] == [made["metadata"]["request_id"]]


@pytest.mark.parametrize(("schema", "column"), [(OTHER_KEY, "id"), (STRICT, "n")])
def test_they_come_back_once_the_column_may_be_null(shop: Shop, schema: dict[str, Any], column: str) -> None:
    shop.write(*ROWS)
    made = shop.afresh(schema)
    shop.ok("ALTER_TABLE", primary_key=[], set_nullable={column: True})
    expected = [{"id": None}, {"id": None}] if column == "id" else ROWS
    assert shop.ok("RESTORE_BACKUP", name=made["backup"])["records_after"] == 2
    assert shop.rows(sort=["key"] if column == "n" else []) == sorted(expected, key=lambda row: bool(row.get("key")))


def test_rows_that_have_every_value_come_back_though_it_was_not_required(shop: Shop) -> None:
    one, other = {"key": "a", "n": 1}, {"key": None, "n": 0}
    written = shop.written(one)
    later = shop.written(other)
    made = shop.afresh(STRICT)
    shop.write({"key": "new", "n": 3})
    shop.ok("ROLLBACK", as_of=written["snapshot_id"])
    assert shop.rows() == [one]
    assert shop.ok("RESTORE_BACKUP", name=made["backup"])["records_after"] == 2
    assert shop.rows(sort=["n"]) == [other, one]
    shop.ok("ROLLBACK", as_of=made["metadata"]["snapshot_id"])
    shop.ok("UNDO", request_id=made["metadata"]["request_id"])
    assert shop.rows(sort=["n"]) == [other, one]
    assert later["snapshot_id"]


@pytest.mark.parametrize("schema", [OTHER_KEY, STRICT])
def test_a_difference_shows_null_for_what_was_absent(shop: Shop, schema: dict[str, Any]) -> None:
    before = shop.written(*ROWS)["snapshot_id"]
    after = shop.afresh(schema)["metadata"]["snapshot_id"]
    diff = shop.ok("DIFF", from_snapshot=before, to_snapshot=after)
    assert [diff[f"records_{what}"] for what in ("inserted", "deleted", "updated")] == [0, 2, 0]
    gone = [row["before"] for row in diff["changes"]]
    names = list(schema["fields"])
    assert sorted(gone, key=repr) == sorted(({name: row.get(name) for name in names} for row in ROWS), key=repr)


def test_the_schema_of_before_sent_again_brings_all_of_it_back(shop: Shop) -> None:
    shop.write(*ROWS)
    made = shop.afresh(OTHER_KEY)
    shop.ok("REINITIALISE_TABLE", confirm=True, schema=LOOSE)
    shop.ok("RESTORE_BACKUP", name=made["backup"])
    assert sorted(shop.rows(), key=repr) == sorted(ROWS, key=repr)


AT = {"fields": {"id": {"type": "long"}, "at": {"type": "timestamp"}}}
DAY = {"day": {"expression": "CAST(at AS date)"}}


@pytest.mark.thorough
def test_rows_of_before_a_derived_column_come_back_with_its_value(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, AT)
    first = shop.written({"id": 1, "at": "2024-05-01T10:00:00"}, {"id": 2, "at": "2024-05-02T10:00:00"})
    partition = {"partitions": [{"field": "day"}]}
    backup = shop.ok("REPARTITION", transform=DAY, partition=partition, delete_source=False)["backup"]
    assert shop.ok("RESTORE_BACKUP", name=backup)["restored"] is False, "the rows are the same"
    for operation, state in (("RESTORE_BACKUP", {"name": backup}), ("ROLLBACK", {"as_of": first["snapshot_id"]})):
        shop.write({"id": 3, "at": "2024-05-03T10:00:00"})
        shop.ok(operation, **state)
        assert [row["id"] for row in shop.rows(filter={"day": "2024-05-02"})] == [2]
        assert [row["day"] for row in shop.rows(sort=["id"])] == ["2024-05-01", "2024-05-02"]


@pytest.mark.thorough
def test_a_derived_column_that_was_null_then_is_null_again(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, AT)
    shop.write({"id": 1, "at": "2024-05-01T10:00:00"})
    shop.ok("REPARTITION", transform=DAY, partition={"partitions": []})
    state = shop.ok("UPDATE", filter={"id": 1}, updates={"day": None})["metadata"]["snapshot_id"]
    shop.ok("DELETE", all=True)
    shop.ok("ROLLBACK", as_of=state)
    assert shop.rows() == [{"id": 1, "at": "2024-05-01T10:00:00", "day": None}]

"""UPDATE and DELETE change exactly the rows they say they do, also where a filter is true of all of them or of none."""

from typing import Any

import pytest

from tests.harness import Firn
from tests.support.marks import thorough_after

SCHEMA = {
    "fields": {
        "id": {"type": "long", "required": True},
        "name": {"type": "string"},
        "kind": {"type": "string"},
    }
}
ROWS = [{"id": n, "name": None if n == 2 else f"n{n}", "kind": "old"} for n in range(4)]
# What Spark works out before it reads anything, and what it does not.
OF_ALL: list[Any] = [
    {"id": {"is_not_null": True}},
    {"not": {"id": {"is_null": True}}},
    {"id": {"not_in": []}},
    {"id": {"gte": {"field": "id"}}},
    {"or": [{"id": 1}, {"not": {"id": 1}}]},
    {"id": {"gte": -1}},
    {"id": {"lt": 5}},
    {"kind": {"like": "%"}},
    {"id": {"ne": 0.5}},
]
OF_NONE: list[Any] = [
    {"id": {"is_null": True}},
    {"name": {"gt": "n9"}},
    {"id": 0.5},
    {"id": {"lt": {"field": "id"}}},
    {"id": {"in": []}},
    {"or": [{"id": {"in": []}}]},
    {"name": {"not_in": ["x", None]}},
    {"id": {"gt": 10}},
    {"id": 1, "not": {"id": 1}},
]


@pytest.fixture
def table(firn: Firn, tenant: str) -> dict[str, Any]:
    address = {"tenant_id": tenant, "table": "t"}
    by_kind = {"partitions": [{"field": "kind", "transform": "identity"}]}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": SCHEMA, "partition": by_kind})
    firn.ok({"operation": "WRITE", **address, "records": ROWS})
    return address


@pytest.mark.parametrize("asked", thorough_after(3, OF_ALL), ids=str)
def test_a_filter_true_of_every_row_updates_and_deletes_every_row(
    firn: Firn, tenant: str, table: dict[str, Any], asked: Any
) -> None:
    updated = firn.ok({"operation": "UPDATE", **table, "updates": {"kind": "new"}, "filter": asked})
    assert updated["records_updated"] == 4
    assert [row["kind"] for row in firn.rows(tenant, "t")] == ["new"] * 4
    assert firn.ok({"operation": "DELETE", **table, "filter": asked})["records_deleted"] == 4
    assert firn.rows(tenant, "t") == []


@pytest.mark.parametrize("asked", thorough_after(4, OF_NONE), ids=str)
def test_a_filter_true_of_no_row_changes_nothing(firn: Firn, tenant: str, table: dict[str, Any], asked: Any) -> None:
    """Not a row, and not a snapshot either."""
    before = firn.ok({"operation": "DESCRIBE_TABLE", **table})["description"]
    updated = firn.ok({"operation": "UPDATE", **table, "updates": {"kind": "new"}, "filter": asked})
    deleted = firn.ok({"operation": "DELETE", **table, "filter": asked})
    assert (updated["records_updated"], deleted["records_deleted"]) == (0, 0)
    assert firn.ok({"operation": "DESCRIBE_TABLE", **table})["description"] == before
    assert firn.rows(tenant, "t", sort=["id"]) == ROWS


def test_a_whole_partition_and_a_part_of_one_are_deleted_alike(firn: Firn, tenant: str, table: dict[str, Any]) -> None:
    more = [{"id": n, "name": "x", "kind": "more"} for n in range(4, 7)]
    firn.ok({"operation": "WRITE", **table, "records": more})
    assert firn.ok({"operation": "DELETE", **table, "filter": {"kind": "old"}})["records_deleted"] == 4
    assert firn.rows(tenant, "t", sort=["id"]) == more
    assert firn.ok({"operation": "DELETE", **table, "filter": {"id": {"in": [4, 6]}}})["records_deleted"] == 2
    assert firn.rows(tenant, "t") == [more[1]]

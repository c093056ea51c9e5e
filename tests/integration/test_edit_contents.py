"""What rows hold decides whether a plan holds and a row is another one: nulls count, the order of entries does not."""

from typing import Any

import pytest

from tests.harness import Firn
from tests.support.marks import thorough_after
from tests.support.tables import TableById

TEXTS = {"type": "array", "items": "string"}
NUMBERS = {"type": "array", "items": "integer"}
PAIR = {"type": "struct", "fields": {"x": {"type": "integer"}, "y": {"type": "integer"}}}
COUNTS = {"type": "map", "key_type": "string", "value_type": "integer"}


def made(firn: Firn, tenant: str, kind: Any, row: dict[str, Any]) -> TableById:
    table = TableById(firn, tenant)
    fields = {"id": {"type": "long", "required": True}, "a": kind, "b": kind}
    table.ok("CREATE_TABLE", schema={"fields": fields, "primary_key": ["id"]})
    table.ok("WRITE", records=[{"id": 1, **row}])
    return table


@pytest.mark.parametrize(
    ("kind", "was", "becomes"),
    thorough_after(
        2,
        [
            ({"type": "integer"}, {"a": 5, "b": None}, {"a": None, "b": 5}),
            (TEXTS, {"a": []}, {"a": None}),
            (TEXTS, {"a": ["x", None]}, {"a": ["x"]}),
            (NUMBERS, {"a": [0], "b": []}, {"a": [], "b": [0]}),
            (PAIR, {"a": {"x": 1, "y": None}}, {"a": {"x": None, "y": 1}}),
            (PAIR, {"a": {"x": None, "y": None}}, {"a": None}),
            (COUNTS, {"a": {"k": None}}, {"a": {}}),
        ],
    ),
)
def test_a_plan_is_stale_once_a_null_is_elsewhere(
    firn: Firn, tenant: str, kind: Any, was: dict[str, Any], becomes: dict[str, Any]
) -> None:
    table = made(firn, tenant, kind, was)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("DELETE", {"filter": {"id": 1}}),
        ("UPSERT", {"records": [{"id": 1, **becomes}]}),
    ]
    plans = [table.ok(operation, **fields, dry_run=True)["plan"]["plan_token"] for operation, fields in asked]
    table.ok("UPDATE", filter={"id": 1}, updates=becomes)
    for (operation, fields), plan in zip(asked, plans, strict=True):
        table.fail("PLAN_STALE", operation, **fields, plan_token=plan)


@pytest.mark.thorough
def test_the_order_of_a_maps_entries_makes_no_other_row(firn: Firn, tenant: str) -> None:
    nested = {"type": "array", "items": COUNTS}
    table = made(firn, tenant, nested, {"a": [{"a": 1, "b": None}]})
    asked = {"records": [{"id": 1, "a": [{"b": None, "a": 1}]}]}
    done = table.ok("UPSERT", **asked)
    assert (done["records_updated"], done["records_unchanged"]) == (0, 1)
    plan = table.ok("DELETE", filter={"id": 1}, dry_run=True)["plan"]["plan_token"]
    table.ok("UPDATE", filter={"id": 1}, updates={"a": asked["records"][0]["a"]})
    assert table.ok("DELETE", filter={"id": 1}, plan_token=plan)["records_deleted"] == 1

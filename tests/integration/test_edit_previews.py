"""A dry run refuses what the commit would refuse, and announces what it then does."""

import pytest

from tests.harness import Firn
from tests.integration.repartitioning import Table as Repartitioned
from tests.support.marks import thorough_after
from tests.support.tables import TableById

FIELDS = {"id": {"type": "long", "required": True}, **{name: {"type": "integer"} for name in ("a", "b")}}
MANY = [{"id": i, "a": 1, "b": int(i < 39)} for i in range(40)]


@pytest.fixture
def many(firn: Firn, tenant: str) -> TableById:
    """Forty rows, of which only the last makes a division fail."""
    made = TableById(firn, tenant)
    fields = {**FIELDS, "r": {"type": "double"}}
    made.ok("CREATE_TABLE", schema={"fields": fields, "primary_key": ["id"]})
    made.ok("WRITE", records=MANY)
    return made


@pytest.mark.parametrize(
    ("code", "column", "expression"),
    thorough_after(
        2,
        [
            ("INVALID_QUERY", "r", "a / b"),
            ("INVALID_REQUEST", "id", "nullif(id, 39)"),
            ("INVALID_QUERY", "a", "2147483648 - b"),
            ("INVALID_QUERY", "r", "CAST(CASE WHEN id = 39 THEN 'x' ELSE '1' END AS double)"),
        ],
    ),
)
def test_a_value_that_cannot_be_for_one_row_is_refused_before_the_commit(
    many: TableById, code: str, column: str, expression: str
) -> None:
    asked = {"all": True, "updates": {column: {"expression": expression}}}
    planned = many.fail(code, "UPDATE", **asked, dry_run=True)
    assert many.fail(code, "UPDATE", **asked)["message"] == planned["message"]


def test_only_rows_that_are_concerned_are_computed(many: TableById) -> None:
    asked = {"filter": {"b": 1}, "updates": {"r": {"expression": "a / b"}}}
    assert many.ok("UPDATE", **asked, dry_run=True)["plan"]["records_updated"] == 39


@pytest.mark.thorough
def test_a_derived_value_that_cannot_be_is_refused_in_a_dry_run_too(firn: Firn, tenant: str) -> None:
    table = Repartitioned(firn, tenant, schema={"fields": FIELDS, "primary_key": ["id"]}, partition={"partitions": []})
    table.ok("WRITE", records=[{**row, "b": 1} for row in MANY])
    table.repartition(transform={"ratio": {"expression": "a / b"}})
    new = [{**row, "id": row["id"] + 100} for row in MANY]
    for operation, fields in (
        ("UPDATE", {"all": True, "updates": {"b": {"expression": "CASE WHEN id = 39 THEN 0 ELSE 1 END"}}}),
        ("UPSERT", {"records": MANY}),
        ("UPSERT", {"records": new}),
        ("WRITE", {"mode": "overwrite", "records": new}),
    ):
        for how in ({"dry_run": True}, {}):
            assert "cannot be computed" in table.fail("INVALID_QUERY", operation, **fields, **how)["message"]


def test_an_overwrite_announces_the_rows_that_come_and_go(many: TableById) -> None:
    asked = {"mode": "overwrite", "records": [{"id": 1}, {"id": 2}]}
    plan = many.ok("WRITE", **asked, dry_run=True)["plan"]
    assert (plan["records_inserted"], plan["records_deleted"], "records_written" in plan) == (2, 40, False)
    answer = many.ok("WRITE", **asked)
    assert [answer[f"records_{what}"] for what in ("written", "inserted", "deleted")] == [2, 2, 40]


def test_a_dry_run_refuses_what_the_request_itself_could_not_have(many: TableById) -> None:
    error = many.fail("INVALID_REQUEST", "DELETE", filter={"id": 1}, backup_retention_hours=5, dry_run=True)
    assert error["field"] == "backup_retention_hours"


@pytest.mark.thorough
def test_a_plan_for_repeated_rows_outlives_a_compaction_whatever_the_order_leaves_open(firn: Firn, tenant: str) -> None:
    table = TableById(firn, tenant)
    table.ok("CREATE_TABLE", schema={"fields": {**FIELDS, "text": {"type": "string"}}})
    for n in range(6):
        table.ok("WRITE", records=[{"id": 1, "a": n % 3, "text": f"{n} of many"}, {"id": n, "text": "x"}])
    asked = {"key_cols": ["id"], "order_by": ["a"]}
    result = [table.ok("DEDUPLICATE", **asked, keep=keep, dry_run=True)["plan"] for keep in ("first", "last")]
    table.ok("COMPACT", force=True)
    for keep, plan in zip(("first", "last"), result, strict=True):
        again = table.ok("DEDUPLICATE", **asked, keep=keep, plan_token=plan["plan_token"], dry_run=True)["plan"]
        assert again["records_removed"] == plan["records_removed"] == 6
        assert again["files_affected"] == 1 < plan["files_affected"]
    done = table.ok("DEDUPLICATE", **asked, plan_token=result[0]["plan_token"])
    assert done["records_removed"] == 6

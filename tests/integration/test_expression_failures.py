"""An expression that fails for a row names its column, or its place in the filter, and the row: wherever it runs."""

from typing import Any

import pytest

from tests.harness import Firn
from tests.integration.repartitioning import Table
from tests.support.marks import thorough_after

FIELDS = {"id": {"type": "long", "required": True}, "a": {"type": "integer"}, "b": {"type": "integer"}}
ROWS = [{"id": i, "a": 10 * i, "b": 5 - i} for i in range(5)]
DIVISION = "Division by zero; divide by nullif(divisor, 0) to get null instead"


@pytest.fixture(scope="module")
def table(firn: Firn) -> Table:
    """A table with a column that is derived by a division."""
    made = Table(
        firn,
        "tenant-failures",
        schema={"fields": FIELDS, "primary_key": ["id"]},
        partition={"partitions": [{"field": "b"}]},
    )
    made.ok("WRITE", records=ROWS)
    made.repartition(transform={"ratio": {"expression": "a / b"}})
    return made


def refused(table: Table, operation: str, **fields: Any) -> dict[str, Any]:
    """The error of a division by zero, with the rows that it left."""
    before = table.rows(sort=["id"])
    error = table.fail("INVALID_QUERY", operation, 400, **fields)
    assert table.rows(sort=["id"]) == before
    assert DIVISION in error["message"], error
    assert error["suggestion"] == "nullif(divisor, 0)"
    return error


@pytest.mark.parametrize("dry_run", thorough_after(1, [False, True]))
@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("DELETE", {}),
        pytest.param("UPDATE", {"updates": {"a": 1}}, marks=pytest.mark.thorough),
        ("UPDATE", {"updates": {"a": {"expression": "a + 1"}}}),
    ],
)
@pytest.mark.parametrize(
    ("broken", "field"),
    [
        pytest.param({"expression": "a / (id - 3) > 1"}, "filter.expression", marks=pytest.mark.thorough),
        ({"or": [{"a": 1}, {"not": {"expression": "a / (id - 3) > 1"}}]}, "filter.or[1].not.expression"),
    ],
)
def test_a_filter_names_its_place_and_a_row(
    table: Table, operation: str, fields: dict[str, Any], broken: Any, field: str, dry_run: bool
) -> None:
    error = refused(table, operation, filter=broken, dry_run=dry_run, **fields)
    assert (error["field"], error["details"]["row"]) == (field, {"id": 3, "a": 30})
    assert error["message"].startswith(f"{field}: ")


def test_the_filter_of_a_query_names_its_place_and_a_row(table: Table) -> None:
    error = refused(table, "QUERY", filter=[{"expression": "a / (id - 3) > 1"}])
    assert (error["field"], error["details"]) == ("filter[0].expression", {"row": {"id": 3, "a": 30}})
    counted = {"group_by": ["b"], "aggregations": [{"op": "count"}]}
    error = refused(table, "QUERY", **counted, having={"expression": "1 / (count - 1) > 0"})
    assert (error["field"], "details" in error) == ("having.expression", False)


def derived(error: dict[str, Any]) -> tuple[Any, ...]:
    assert error["message"].startswith("the derived column 'ratio': "), error
    return error["field"], error["details"]["column"], error["details"]["row"]


@pytest.mark.thorough
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_derived_column_is_named_by_edits(table: Table, dry_run: bool) -> None:
    error = refused(table, "UPDATE", filter={"id": 2}, updates={"b": 0}, dry_run=dry_run)
    assert derived(error) == ("ratio", "ratio", {"id": 2, "a": 20, "b": 0})
    for record in ({"id": 4, "b": 0}, {"id": 77, "a": 40, "b": 0}):
        error = refused(table, "UPSERT", records=[{"id": 1, "a": 11}, record], dry_run=dry_run)
        assert derived(error) == ("ratio", "ratio", {"id": record["id"], "a": 40, "b": 0})
    error = refused(table, "WRITE", mode="overwrite", records=[{"id": 5, "a": 1, "b": 0}], dry_run=dry_run)
    assert derived(error) == ("ratio", "ratio", {"id": 5, "a": 1, "b": 0})


def test_a_derived_column_is_named_by_a_write_and_a_bulk_load(table: Table) -> None:
    good, bad, given = {"id": 50, "a": 1, "b": 1}, {"id": 51, "a": 1, "b": 0}, {"id": 52, "a": 1, "b": 0, "ratio": 9.0}
    error = refused(table, "WRITE", records=[given, good, bad])
    assert derived(error) == ("ratio", "ratio", {"id": 51, "a": 1, "b": 0})
    path = f"/tables/{table.tenant}/default/t/records"
    answer = table.firn.client.post(path, content="id,a,b\n60,1,1\n61,1,0\n", headers={"Content-Type": "text/csv"})
    assert answer.status_code == 400
    assert derived(answer.json()["error"]) == ("ratio", "ratio", {"id": 61, "a": 1, "b": 0})


@pytest.mark.parametrize("how", thorough_after(1, [{}, {"estimate": True}, {"target_table": "elsewhere"}]))
def test_a_new_derived_column_is_named_by_a_repartition_and_its_estimate(table: Table, how: dict[str, Any]) -> None:
    transform, partition = {"part": {"expression": "a div (id - 3)"}}, {"partitions": [{"field": "part"}]}
    error = refused(table, "REPARTITION", transform=transform, partition=partition, **how)
    assert (error["field"], error["details"]) == (
        "transform.part.expression",
        {"column": "part", "row": {"id": 3, "a": 30}},
    )

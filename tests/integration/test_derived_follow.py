"""A derived column follows the columns it is derived from, unless somebody has set it by hand."""

from typing import Any

import pytest

from tests.harness import Firn
from tests.integration.repartitioning import Table
from tests.support.marks import thorough_after

SCHEMA = {
    "fields": {
        "id": {"type": "long", "required": True},
        "at": {"type": "timestamp"},
        "a": {"type": "integer"},
        "b": {"type": "integer"},
    },
    "primary_key": ["id"],
}
TRANSFORM = {"day": {"expression": "CAST(at AS date)"}, "ratio": {"expression": "a / b"}}
BY_DAY = {"partitions": [{"field": "day"}]}
ROWS = [{"id": i, "at": f"2024-05-0{i}T10:00:00", "a": 4 * i, "b": 2} for i in (1, 2, 3)]


@pytest.fixture
def table(firn: Firn, tenant: str) -> Table:
    """Three rows in three partitions by a derived column."""
    made = Table(firn, tenant, schema=SCHEMA, partition={"partitions": []})
    made.ok("WRITE", records=ROWS)
    made.repartition(transform=TRANSFORM, partition=BY_DAY)
    return made


def seen(table: Table, **query: Any) -> list[tuple[Any, ...]]:
    rows = table.rows(**query)
    return [(r["id"], r["day"], None if r["ratio"] is None else float(r["ratio"])) for r in rows]


START = [(1, "2024-05-01", 2.0), (2, "2024-05-02", 4.0), (3, "2024-05-03", 6.0)]


def test_an_update_of_what_it_reads_works_it_out_again_and_moves_the_row_to_its_partition(table: Table) -> None:
    answer = table.ok("UPDATE", filter={"id": 2}, updates={"at": "2024-06-07T00:00:00", "b": 4})
    assert (answer["records_updated"], answer["files_affected"]) == (1, 1)
    assert seen(table) == [START[0], (2, "2024-06-07", 2.0), START[2]]
    assert table.partitions() == {(("day", day),): 1 for day in ("2024-05-01", "2024-06-07", "2024-05-03")}
    assert seen(table, filter={"day": "2024-06-07"}) == [(2, "2024-06-07", 2.0)]


@pytest.mark.thorough
def test_an_expression_sees_the_values_that_the_update_gives_not_those_before(table: Table) -> None:
    swap = {"a": {"expression": "b"}, "b": {"expression": "a"}}
    table.ok("UPDATE", all=True, updates=swap)
    assert [ratio for _, _, ratio in seen(table)] == [2 / 4, 2 / 8, 2 / 12]


def test_an_update_of_other_columns_leaves_it_alone(table: Table) -> None:
    table.ok("UPDATE", filter={"id": 1}, updates={"id": 9})
    assert seen(table) == [*START[1:], (9, "2024-05-01", 2.0)]


@pytest.mark.thorough
def test_what_was_set_by_hand_stays_in_a_write_an_update_and_as_null(table: Table) -> None:
    table.ok("WRITE", records=[{**ROWS[0], "id": 4, "ratio": 77}])
    table.ok("UPDATE", filter={"id": 1}, updates={"ratio": 99})
    table.ok("UPDATE", filter={"id": 2}, updates={"ratio": None})
    table.ok("UPDATE", all=True, updates={"a": 10})
    assert [(i, ratio) for i, _, ratio in seen(table)] == [(1, 99.0), (2, None), (3, 5.0), (4, 77.0)]


@pytest.mark.thorough
def test_what_the_same_update_sets_stays_as_it_is_set(table: Table) -> None:
    table.ok("UPDATE", all=True, updates={"a": 10, "ratio": {"expression": "ratio + 1"}})
    assert [ratio for *_, ratio in seen(table)] == [3.0, 5.0, 7.0]
    table.ok("UPDATE", all=True, updates={"a": 12, "ratio": None})
    table.ok("UPDATE", all=True, updates={"a": 14})
    assert [ratio for *_, ratio in seen(table)] == [None, None, None]


@pytest.mark.thorough
def test_a_null_that_the_expression_gives_is_no_value_set_by_hand(table: Table) -> None:
    table.ok("UPDATE", all=True, updates={"a": None})
    assert [ratio for *_, ratio in seen(table)] == [None, None, None]
    table.ok("UPDATE", all=True, updates={"a": 3})
    assert [ratio for *_, ratio in seen(table)] == [1.5, 1.5, 1.5]


@pytest.mark.thorough
def test_a_row_that_could_not_be_computed_may_be_mended_and_keeps_what_was_set(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant, schema=SCHEMA, partition={"partitions": []})
    table.ok("WRITE", records=ROWS)
    # Two that share what fails: Spark computes common parts first.
    table.repartition(transform={**TRANSFORM, "more": {"expression": "a / b + 1"}})
    table.ok("WRITE", records=[{"id": 4, "at": "2024-05-04T00:00:00", "a": 1, "b": 0, "ratio": 5, "more": 6}])
    assert table.ok("UPDATE", all=True, updates={"a": 2, "b": {"expression": "b + 1"}})["records_updated"] == 4
    found = [(r["id"], float(r["ratio"]), float(r["more"])) for r in table.rows()]
    assert found == [*((i, 2 / 3, 2 / 3 + 1) for i in (1, 2, 3)), (4, 5.0, 6.0)]


def test_a_value_that_cannot_be_computed_is_an_error_and_nothing_is_changed(table: Table) -> None:
    for operation, asked in (
        ("UPDATE", {"filter": {"id": 1}, "updates": {"b": 0}}),
        ("UPSERT", {"records": [{"id": 1, "b": 0}]}),
    ):
        error = table.fail("INVALID_QUERY", operation, **asked)
        assert "cannot be computed" in error["message"]
    assert seen(table) == START
    assert table.on_disk() == table.in_snapshots()


@pytest.mark.thorough
def test_an_upsert_that_leaves_it_out_works_it_out_for_rows_that_change_and_new_ones(table: Table) -> None:
    records = [
        {"id": 1, "a": 4, "b": 2},
        {"id": 2, "at": "2024-07-01T00:00:00"},
        {"id": 3, "b": 3},
        {"id": 4, "a": 1, "b": 4},
    ]
    answer = table.ok("UPSERT", records=records)
    counts = tuple(answer[f"records_{what}"] for what in ("inserted", "updated", "unchanged"))
    assert counts == (1, 2, 1)
    assert seen(table) == [START[0], (2, "2024-07-01", 4.0), (3, "2024-05-03", 4.0), (4, None, 0.25)]


@pytest.mark.thorough
def test_what_an_upsert_sends_stays_record_by_record_and_what_was_set_by_hand_too(table: Table) -> None:
    table.ok("UPDATE", filter={"id": 3}, updates={"ratio": 55})
    records = [{"id": 1, "a": 40, "ratio": 1}, {"id": 2, "a": 40}, {"id": 3, "a": 40}]
    assert table.ok("UPSERT", records=records)["records_updated"] == 3
    assert [ratio for *_, ratio in seen(table)] == [1.0, 20.0, 55.0]
    table.ok("UPSERT", records=[{"id": 1, "a": 2, "ratio": None}, {"id": 2, "a": 2, "ratio": 3}])
    assert [ratio for *_, ratio in seen(table)] == [None, 3.0, 55.0]


@pytest.mark.thorough
def test_update_cols_says_what_records_change_and_what_is_derived_of_that_follows(table: Table) -> None:
    records = [{"id": 1, "a": 2, "b": 1000, "ratio": 1000}]
    answer = table.ok("UPSERT", records=records, update_cols=["a"])
    assert answer["records_updated"] == 1
    assert seen(table)[0] == (1, "2024-05-01", 1.0)
    answer = table.ok("UPSERT", records=records, update_cols=["a"])
    assert (answer["records_updated"], answer["records_unchanged"]) == (0, 1)


@pytest.mark.thorough
def test_as_a_key_it_finds_the_row_and_stays(table: Table) -> None:
    table.ok("UPSERT", key_cols=["day"], records=[{"id": 2, "day": "2024-05-02", "at": "2024-09-09T00:00:00"}])
    assert seen(table) == START


@pytest.mark.thorough
def test_a_dry_run_shows_what_the_commit_then_does(table: Table) -> None:
    table.ok("UPDATE", filter={"id": 2}, updates={"ratio": 8})
    for operation, asked in (
        ("UPDATE", {"filter": {"id": {"lte": 2}}, "updates": {"at": "2024-06-01T00:00:00", "a": 2}}),
        ("UPSERT", {"records": [{"id": 1, "b": 1}, {"id": 3, "a": 9}, {"id": 7, "a": 1, "b": 1}]}),
    ):
        before = {r["id"]: r for r in table.rows()}
        planned = table.ok(operation, **asked, dry_run=True)["plan"]
        made = table.ok(operation, **asked, plan_token=planned["plan_token"])
        after = {r["id"]: r for r in table.rows()}
        assert [made[n] for n in made if n.startswith("records_")] == [
            planned[n] for n in planned if n.startswith("records_")
        ]
        shown = {s["after"]["id"]: (s.get("before"), s["after"]) for s in planned["sample"]}
        assert shown == {i: (before.get(i), r) for i, r in after.items() if before.get(i) != r}


@pytest.mark.thorough
def test_partition_filter_reads_that_partition_only_and_what_leaves_it_is_found_elsewhere(table: Table) -> None:
    asked = {"partition_filter": {"day": "2024-05-02"}, "updates": {"at": "2024-05-03T00:00:00"}}
    answer = table.ok("UPDATE", all=True, **asked)
    assert (answer["records_updated"], answer["scanned_files"], answer["partitions_affected"]) == (1, 1, 1)
    assert seen(table, filter={"day": "2024-05-03"}) == [(2, "2024-05-03", 4.0), START[2]]
    assert table.ok("UPDATE", all=True, **asked)["records_updated"] == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "first", "second", "expression"),
    thorough_after(
        2,
        [
            ({"type": "uuid"}, *(f"0000000{n}-0000-4000-8000-00000000000a" for n in (1, 9)), "v"),
            ({"type": "struct", "fields": {"x": {"type": "integer"}}}, {"x": 1}, {"x": 2}, "v.x + 1"),
            (
                {"type": "map", "key_type": "string", "value_type": "long"},
                {"k": 1},
                {"k": 2},
                "coalesce(v.k, 0) + size(v)",
            ),
            ({"type": "array", "items": {"type": "string"}}, ["a"], ["b", "c"], "size(v)"),
            ({"type": "decimal(8,2)"}, "1.25", "2.50", "v * 3"),
            ({"type": "double"}, "NaN", 1.5, "v"),
            ({"type": "timestamptz"}, "2024-05-01T00:00:00Z", "2024-05-02T00:00:00Z", "CAST(v AS date)"),
            ({"type": "binary"}, "YQ==", "Yg==", "sha1(v)"),
        ],
    ),
)
def test_whatever_the_type_it_reads(
    firn: Firn, tenant: str, kind: dict[str, Any], first: Any, second: Any, expression: str
) -> None:
    schema = {"fields": {"id": {"type": "long", "required": True}, "v": kind}, "primary_key": ["id"]}
    table = Table(firn, tenant, schema=schema, partition={"partitions": []})
    table.ok("WRITE", records=[{"id": 1, "v": first}, {"id": 2, "v": second}, {"id": 3, "v": first}])
    table.repartition(transform={"d": {"expression": expression}})
    one, other, _ = (r["d"] for r in table.rows())
    table.ok("UPDATE", filter={"id": 1}, updates={"v": second})
    table.ok("UPSERT", records=[{"id": 3, "v": second}])
    assert one != other
    assert [r["d"] for r in table.rows()] == [other] * 3


@pytest.mark.thorough
def test_a_bulk_upsert_computes_it_for_new_rows_and_again_for_changed_ones(table: Table) -> None:
    path = f"/tables/{table.tenant}/default/{table.name.table}/records?mode=upsert"
    sent = {"Content-Type": "text/csv"}
    body = b"id,at,b\n2,2024-06-07T00:00:00,4\n3,2024-05-03T10:00:00,2\n9,2024-07-01T00:00:00,1\n"
    answer = table.firn.parsed(table.firn.client.post(path, content=body, headers=sent))
    assert [answer[f"records_{name}"] for name in ("inserted", "updated", "unchanged")] == [1, 1, 1]
    assert seen(table) == [START[0], (2, "2024-06-07", 2.0), START[2], (9, "2024-07-01", None)]
    refused = table.firn.parsed(table.firn.client.post(path, content=b"id,b\n1,0\n", headers=sent))
    assert (refused["error"]["field"], refused["error"]["details"]["row"]) == ("ratio", {"id": 1, "a": 4, "b": 0})

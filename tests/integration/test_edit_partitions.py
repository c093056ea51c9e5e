"""An edit that is kept to some partitions looks at no other, and brings no row to another."""

from typing import Any

import pytest

from tests.harness import Firn
from tests.support.tables import TableById

BY_KIND = {"partitions": [{"field": "kind"}]}


def made(firn: Firn, tenant: str, kind: Any, kinds: tuple[Any, ...], partition: Any = BY_KIND) -> TableById:
    """A table with a row in each partition."""
    table = TableById(firn, tenant)
    fields = {"id": {"type": "long", "required": True}, "kind": kind, "n": {"type": "integer"}}
    table.ok("CREATE_TABLE", schema={"fields": fields, "primary_key": ["id"]}, partition=partition)
    table.ok("WRITE", records=[{"id": i, "kind": kind, "n": i} for i, kind in enumerate(kinds, 1)])
    return table


@pytest.fixture
def table(firn: Firn, tenant: str) -> TableById:
    return made(firn, tenant, {"type": "string"}, ("k1", "k2"))


def test_a_record_may_leave_out_what_the_row_it_finds_has(table: TableById) -> None:
    asked = {"records": [{"id": 1, "n": 5}], "partition_filter": {"kind": "k1"}}
    result = table.ok("UPSERT", **asked, dry_run=True)["plan"]
    done = table.ok("UPSERT", **asked, plan_token=result["plan_token"])
    assert result["records_updated"] == done["records_updated"] == done["scanned_files"] == 1
    assert table.rows() == [{"id": 1, "kind": "k1", "n": 5}, {"id": 2, "kind": "k2", "n": 2}]


@pytest.mark.parametrize(
    ("records", "wrong"),
    [
        ([{"id": 1, "n": 5}, {"id": 2, "n": 5}], 1),
        ([{"id": 1, "n": 5}, {"id": 3, "kind": "k1"}, {"id": 4, "kind": None}], 2),
        ([{"id": 3, "kind": "k1"}, {"id": 1, "kind": "k2"}, {"id": 4}], 1),
    ],
)
def test_a_record_whose_row_would_lie_outside_is_refused(
    table: TableById, records: list[dict[str, Any]], wrong: int
) -> None:
    for how in ({"dry_run": True}, {}):
        error = table.fail("INVALID_RECORD", "UPSERT", records=records, partition_filter={"kind": "k1"}, **how)
        assert error["field"] == f"records[{wrong}]"
        assert "partition_filter" in error["message"]


@pytest.mark.parametrize(
    ("kind", "kinds", "wanted"),
    [
        ({"type": "binary"}, ("AQ==", "Ag=="), "Ag=="),
        ({"type": "double"}, ("Infinity", 1.5), "Infinity"),
    ],
)
def test_partitions_are_named_by_values_of_any_type(
    firn: Firn, tenant: str, kind: Any, kinds: tuple[Any, ...], wanted: Any
) -> None:
    table = made(firn, tenant, kind, kinds)
    done = table.ok("DELETE", all=True, partition_filter={"kind": wanted})
    assert (done["records_deleted"], done["scanned_files"]) == (1, 1)
    assert [row["kind"] for row in table.rows()] == [k for k in kinds if k != wanted]


UUIDS = tuple(f"{n}0000000-0000-4000-8000-00000000000{n}" for n in "17f")
BY_BUCKET = {"partitions": [{"field": "kind", "transform": "bucket", "num_buckets": 64}]}


@pytest.mark.thorough
@pytest.mark.parametrize("partition", [BY_KIND, BY_BUCKET])
def test_no_file_of_another_uuid_is_opened(firn: Firn, tenant: str, partition: Any) -> None:
    table = made(firn, tenant, {"type": "uuid"}, UUIDS, partition)
    for asked in (
        {"kind": UUIDS[0]},
        {"kind": {"in": [UUIDS[0]]}},
        {"and": [{"kind": UUIDS[0]}, {"kind": {"is_not_null": True}}]},
    ):
        for operation, fields in (
            ("DELETE", {"all": True}),
            ("UPDATE", {"filter": {"n": 1}, "updates": {"n": 2}}),
            ("UPSERT", {"records": [{"id": 1, "n": 7}]}),
            ("DEDUPLICATE", {"key_cols": ["n"]}),
        ):
            result = table.ok(operation, **fields, partition_filter=asked, dry_run=True)["plan"]
            assert result["scanned_files"] == 1
            done = table.ok(operation, **fields, partition_filter=asked, dry_run=True, plan_token=result["plan_token"])
            assert len(done["plan"]["sample"]) == (operation != "DEDUPLICATE")
    for nobody in ({"kind": "00000000-0000-4000-8000-000000000001"}, {"kind": {"in": []}}):
        assert table.ok("DELETE", all=True, partition_filter=nobody)["records_deleted"] == 0
    assert table.ok("UPDATE", all=True, updates={"n": 0}, partition_filter={"kind": UUIDS[2]})["scanned_files"] == 1
    done = table.ok(
        "WRITE", mode="overwrite", partition_filter={"kind": UUIDS[0]}, records=[{"id": 9, "kind": UUIDS[0]}]
    )
    assert (done["records_deleted"], done["records_inserted"], done["scanned_files"]) == (1, 1, 1)
    table.ok("DELETE", all=True, partition_filter={"kind": {"in": [UUIDS[1], None]}})
    assert [(row["id"], row["n"]) for row in table.rows()] == [(3, 0), (9, None)]


@pytest.mark.thorough
def test_no_row_is_lost_by_the_order_of_uuids(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant, {"type": "uuid"}, (*UUIDS, None))
    for wanted, ids in (
        ({"gt": UUIDS[0]}, [2, 3]),
        ({"lt": UUIDS[2]}, [1, 2]),
        ({"ne": UUIDS[1]}, [1, 3]),
        ({"not_in": [UUIDS[2]]}, [1, 2]),
        ({"is_null": True}, [4]),
    ):
        result = table.ok("DELETE", all=True, partition_filter={"kind": wanted}, dry_run=True)["plan"]
        assert sorted(sample["before"]["id"] for sample in result["sample"]) == ids
        assert result["scanned_files"] == len(ids)

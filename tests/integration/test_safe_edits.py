"""Edits are previewed, held to their preview, kept to partitions, counted and verified before anybody sees them."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyiceberg.types import StringType
from pyspark.sql import SparkSession

from service.catalog.tables import Catalog
from service.commits.edit_base import base_of
from service.engine.jobs.edit import find
from service.engine.jobs.edits.publish import publish
from service.errors import RowCountMismatch
from service.model.edits import ByFilter, Edit
from service.model.filters.predicates import NO_ROW, Not
from service.model.names import TableName
from tests.harness import Firn
from tests.support.marks import thorough_after
from tests.support.tables import TableById

FIELDS = {
    "id": {"type": "long", "required": True},
    "kind": {"type": "string"},
    "n": {"type": "integer"},
    "tags": {"type": "map", "key_type": "string", "value_type": "integer"},
}
BY_KIND = {"partitions": [{"field": "kind", "transform": "identity"}]}
ROWS = [{"id": i, "kind": f"k{i % 3}", "n": i, "tags": {"a": i}} for i in range(9)]


@pytest.fixture
def table(firn: Firn, tenant: str) -> TableById:
    made = TableById(firn, tenant)
    made.ok("CREATE_TABLE", schema={"fields": FIELDS, "primary_key": ["id"]}, partition=BY_KIND)
    made.ok("WRITE", records=ROWS)
    return made


EDITS: dict[str, dict[str, Any]] = {
    "update": {"operation": "UPDATE", "updates": {"n": 100}, "filter": {"n": {"gte": 4}}},
    "move": {"operation": "UPDATE", "updates": {"kind": "k9", "tags": None}, "filter": {"kind": "k1"}},
    "delete": {"operation": "DELETE", "filter": {"n": {"lt": 5}}},
    "delete a partition": {"operation": "DELETE", "filter": {"kind": "k2"}},
    "delete all": {"operation": "DELETE", "all": True},
    "upsert": {
        "operation": "UPSERT",
        "records": [{"id": 1, "n": 1}, {"id": 2, "n": -2}, {"id": 50, "kind": "new", "n": 5}],
    },
    "overwrite": {"operation": "WRITE", "mode": "overwrite", "records": [{"id": 1, "kind": "x"}, {"id": 2}]},
    "overwrite a partition": {
        "operation": "WRITE",
        "mode": "overwrite",
        "partition_filter": {"kind": "k0"},
        "records": [{"id": 77, "kind": "k0"}],
    },
}
FIGURES = ("records_updated", "records_deleted", "records_inserted", "records_unchanged")
PLACES = ("files_affected", "partitions_affected")


def figures(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in (*FIGURES, *PLACES) if name in answer}


@pytest.mark.parametrize("name", thorough_after(2, EDITS))
def test_a_dry_run_changes_nothing_and_tells_what_the_edit_then_does(table: TableById, name: str) -> None:
    edit = EDITS[name]
    state, files = table.state(), table.on_disk()
    dry = table.ok(**edit, dry_run=True)
    assert (table.state(), table.on_disk()) == (state, files)
    assert (dry["dry_run"], set(dry)) == (True, {"success", "dry_run", "plan", "metadata"})
    result = dry["plan"]
    before = table.rows()
    done = table.ok(**edit, plan_token=result["plan_token"])
    after = table.rows()
    assert figures(done) == figures(result)
    assert not done.keys() & {"dry_run", "plan", "plan_token", "sample"}
    was, is_now = Counter(map(json.dumps, before)), Counter(map(json.dumps, after))
    gone = Counter(json.dumps(s["before"]) for s in result["sample"] if "before" in s)
    come = Counter(json.dumps(s["after"]) for s in result["sample"] if "after" in s)
    assert len(result["sample"]) <= 20
    assert (gone - come, come - gone) == (was - is_now, is_now - was)
    changed = done.get("records_inserted", 0) - done.get("records_deleted", 0)
    assert len(after) - len(before) == (changed if name != "update" else 0)


def test_a_plan_holds_while_only_other_rows_change_and_when_files_are_merged(table: TableById) -> None:
    asked = {"updates": {"n": 0}, "filter": {"id": {"in": [1, 2]}}}
    plan = table.ok("UPDATE", **asked, dry_run=True)["plan"]["plan_token"]
    table.ok("WRITE", records=[{"id": 100, "kind": "k1"}, {"id": 101, "kind": "k2"}])
    table.ok("UPDATE", updates={"n": 9}, filter={"id": 5})
    table.ok("COMPACT", force=True)
    assert table.ok("UPDATE", **asked, plan_token=plan)["records_updated"] == 2


@pytest.mark.parametrize("meanwhile", ["changed", "gone", "more"])
def test_a_plan_is_stale_once_a_row_it_concerns_has_changed_or_gone_or_another_has_come(
    table: TableById, meanwhile: str
) -> None:
    asked = {"filter": {"kind": "k1"}}
    plan = table.ok("DELETE", **asked, dry_run=True)["plan"]["plan_token"]
    if meanwhile == "changed":
        table.ok("UPDATE", updates={"n": -1}, filter={"id": 4})
    elif meanwhile == "gone":
        table.ok("DELETE", filter={"id": 4})
    else:
        table.ok("WRITE", records=[{"id": 400, "kind": "k1"}])
    error = table.fail("PLAN_STALE", "DELETE", **asked, plan_token=plan)
    assert "dry_run" in error["message"]


def test_a_plan_of_an_upsert_is_stale_once_a_new_key_is_there(table: TableById) -> None:
    asked = {"records": [{"id": 60, "kind": "k1"}]}
    plan = table.ok("UPSERT", **asked, dry_run=True)["plan"]["plan_token"]
    table.ok("WRITE", records=[{"id": 60, "kind": "k2"}])
    table.fail("PLAN_STALE", "UPSERT", **asked, plan_token=plan)


@pytest.mark.thorough
def test_a_preview_and_its_edit_may_have_the_same_key(table: TableById) -> None:
    asked = {"updates": {"n": 1}, "filter": {"id": 1}, "idempotency_key": "k"}
    stale = table.ok("UPDATE", **asked, dry_run=True)["plan"]["plan_token"]
    table.ok("UPDATE", updates={"n": 77}, filter={"id": 1})
    table.fail("PLAN_STALE", "UPDATE", **asked, plan_token=stale)
    token = table.ok("UPDATE", **asked, dry_run=True)["plan"]["plan_token"]
    done = table.ok("UPDATE", **asked, plan_token=token)
    assert done["records_updated"] == 1
    assert table.ok("UPDATE", **asked, plan_token=token) == done


def test_a_plan_is_good_for_its_own_request_only(table: TableById) -> None:
    asked = {"updates": {"n": 0}, "filter": {"id": 1}}
    plan = table.ok("UPDATE", **asked, dry_run=True)["plan"]["plan_token"]
    for other in ({**asked, "updates": {"n": 1}}, {**asked, "filter": {"id": 2}}):
        assert table.fail("INVALID_REQUEST", "UPDATE", **other, plan_token=plan)["field"] == "plan_token"
    for wrong in ("x", plan[:-3], "é", "AAAA"):
        assert table.fail("INVALID_REQUEST", "UPDATE", **asked, plan_token=wrong)["field"] == "plan_token"
    # How it is made may differ.
    done = table.ok("UPDATE", **asked, plan_token=plan, create_backup=True, idempotency_key="k")
    assert done["records_updated"] == 1
    assert table.ok("UPDATE", **asked, plan_token=plan, create_backup=True, idempotency_key="k") == done


def test_a_partition_filter_keeps_other_partitions_files_closed(table: TableById) -> None:
    inside = {"partition_filter": {"kind": "k1"}}
    update = table.ok("UPDATE", updates={"n": 0}, filter={"n": {"gte": 0}}, **inside)
    assert (update["records_updated"], update["scanned_files"], update["files_affected"]) == (3, 1, 1)
    upsert = table.ok("UPSERT", records=[{"id": 1, "kind": "k1", "n": 5}, {"id": 2, "kind": "k1", "n": 5}], **inside)
    # The row 2 of another partition is not looked at: what is sent is new here.
    assert (upsert["records_updated"], upsert["records_inserted"], upsert["scanned_files"]) == (1, 1, 1)
    delete = table.ok("DELETE", all=True, partition_filter=[{"field": "kind", "operator": "eq", "value": "k1"}])
    assert (delete["records_deleted"], delete["partitions_affected"]) == (4, 1)
    assert {row["kind"] for row in table.rows()} == {"k0", "k2"}


def test_records_outside_of_the_partition_filter_are_refused(table: TableById) -> None:
    records = [{"id": 1, "kind": "k1"}, {"id": 2, "kind": "k2"}]
    for asked in ({"operation": "UPSERT"}, {"operation": "WRITE", "mode": "overwrite"}):
        error = table.fail("INVALID_RECORD", **asked, records=records, partition_filter={"kind": "k1"})
        assert error["field"] == "records[1]"
    assert table.fail("INVALID_FILTER", "DELETE", all=True, partition_filter={"n": 1})["field"] == "partition_filter"


def test_an_append_takes_nothing_that_is_an_edits(table: TableById) -> None:
    for name, value in {"dry_run": True, "plan_token": "x", "partition_filter": {}, "create_backup": True}.items():
        assert table.fail("INVALID_REQUEST", "WRITE", records=ROWS, **{name: value})["field"] == name


@pytest.mark.thorough
def test_rows_that_say_the_same_already_are_not_rewritten(table: TableById) -> None:
    files = table.on_disk()
    answer = table.ok("UPSERT", records=ROWS)
    assert (answer["records_updated"], answer["records_unchanged"], answer["files_affected"]) == (0, 9, 0)
    assert table.on_disk() == files
    one = table.ok("UPSERT", records=[*ROWS[:8], {**ROWS[8], "tags": {"a": 9}}])
    assert (one["records_updated"], one["records_unchanged"], one["files_affected"]) == (1, 8, 1)
    assert table.rows()[8]["tags"] == {"a": 9}


def test_of_records_with_one_key_the_last_counts_where_that_is_asked_for(table: TableById) -> None:
    twice = [{"id": 1, "n": 1}, {"id": 70, "n": 1}, {"id": 1, "n": 2}, {"id": 70, "kind": "z"}]
    assert table.fail("INVALID_RECORD", "UPSERT", records=twice)["field"] == "records[2]"
    answer = table.ok("UPSERT", records=twice, on_duplicate="last")
    assert (answer["records_updated"], answer["records_inserted"]) == (1, 1)
    assert [row for row in table.rows() if row["id"] in (1, 70)] == [
        {**ROWS[1], "n": 2},
        {"id": 70, "kind": "z", "n": None, "tags": None},
    ]


def test_a_record_without_its_key_is_refused(table: TableById) -> None:
    for record in ({"n": 1}, {"id": None, "n": 1}):
        assert table.fail("INVALID_RECORD", "UPSERT", records=[record])["field"] == "records[0].id"
    assert table.fail("UNKNOWN_FIELD", "UPSERT", records=[], key_cols=["idd"])["suggestion"] == "id"


def test_every_row_of_a_key_that_is_there_twice_is_updated(table: TableById) -> None:
    table.ok("WRITE", records=[ROWS[1]])
    answer = table.ok("UPSERT", records=[{"id": 1, "n": 77}])
    assert (answer["records_updated"], answer["files_affected"]) == (2, 2)
    assert [row["n"] for row in table.rows() if row["id"] == 1] == [77, 77]


@pytest.mark.thorough
def test_edits_count_right_beside_another_engines_delete_files(table: TableById) -> None:
    name = TableName(table.tenant, "default", "t")

    def delete_beside(session: SparkSession) -> None:
        spark_name = table.firn.app.parts[Catalog].load(name).spark_name
        session.sql(f"ALTER TABLE {spark_name} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
        session.sql(f"DELETE FROM {spark_name} WHERE id IN (1, 3)")

    table.firn.app.engine.run(delete_beside)
    assert table.ok("UPDATE", updates={"n": 0}, filter={"kind": "k1"})["records_updated"] == 2
    assert table.ok("DELETE", filter={"id": {"in": [0, 3]}})["records_deleted"] == 1
    assert [row["id"] for row in table.rows()] == [2, 4, 5, 6, 7, 8]
    assert table.ok("WRITE", mode="overwrite", records=[{"id": 1}])["records_deleted"] == 6
    assert [row["id"] for row in table.rows()] == [1]


def test_a_column_that_the_newest_snapshot_does_not_know_can_be_edited_by(table: TableById) -> None:
    with table.firn.app.parts[Catalog].load(TableName(table.tenant, "default", "t")).iceberg.update_schema() as change:
        change.add_column("colour", StringType())
    assert (
        table.ok("UPDATE", updates={"colour": "red"}, filter={"colour": None, "id": {"lt": 2}})["records_updated"] == 2
    )
    assert table.ok("UPSERT", records=[{"id": 2, "colour": "blue"}])["records_updated"] == 1
    assert [row["colour"] for row in table.rows()][:4] == ["red", "red", "blue", None]


def test_an_edit_whose_rows_do_not_add_up_is_not_published_and_leaves_nothing(table: TableById) -> None:
    loaded = table.firn.app.parts[Catalog].load(TableName(table.tenant, "default", "t"))
    state, files = table.state(), table.on_disk()
    true = base_of(loaded)
    wrong = _with_one_row_more(true)
    edit = Edit(loaded.schema, ByFilter(Not(NO_ROW), ()))
    with (
        pytest.raises(RowCountMismatch, match=r"^Row count mismatch"),
        table.firn.app.engine.lend() as session,
        find(session, wrong, edit) as found,
    ):
        publish(found, "b" * 32, {}, lambda: None)
    assert (table.state(), table.on_disk()) == (state, files)


def _with_one_row_more(base: Any) -> Any:
    path = next(iter(base.rows))
    return type(base)(**{**vars(base), "rows": {**base.rows, path: base.rows[path] + 1}})


@pytest.mark.thorough
@pytest.mark.parametrize("rounds", [3, 10])
def test_concurrent_upserts_of_one_new_key_insert_one_row(table: TableById, rounds: int) -> None:
    """Ten clients, some rounds, overlapping keys: one row a key, and all that was counted adds up."""
    inserted = updated = unchanged = sent = 0
    with ThreadPoolExecutor(10) as clients:
        for turn in range(rounds):
            batches = [
                [{"id": 1000 + (c + k) % 12, "kind": f"k{turn % 3}", "n": c} for k in range(3)] for c in range(10)
            ]
            for answer in clients.map(lambda records: table.ok("UPSERT", records=records), batches):
                inserted += answer["records_inserted"]
                updated += answer["records_updated"]
                unchanged += answer["records_unchanged"]
                sent += 3
    ids = Counter(row["id"] for row in table.rows(filter={"id": {"gte": 1000}}))
    assert ids == {1000 + i: 1 for i in range(12)}
    assert inserted == 12
    assert inserted + updated + unchanged == sent


@pytest.mark.thorough
def test_of_each_key_the_first_or_the_last_row_in_an_order_stays(table: TableById) -> None:
    table.ok("WRITE", records=[{"id": 1, "kind": "k2", "n": 50}, {"id": 1, "kind": "k0", "n": None}, {"id": 2, "n": 9}])
    for keep, order, left in (
        ("first", ["n"], {1: None, 2: 2}),
        ("last", ["n"], {1: 50, 2: 9}),
        ("first", [{"field": "n", "order": "desc"}], {1: 50, 2: 9}),
        ("last", [{"field": "n", "nulls_first": False}], {1: None, 2: 9}),
    ):
        asked = {"order_by": order, "keep": keep}
        result = table.ok("DEDUPLICATE", **asked, dry_run=True)["plan"]
        assert result["records_removed"] == len(result["sample"]) == 3
        assert table.ok("UPSERT", records=[], dry_run=True)["plan"]["records_inserted"] == 0
        gone = {(s["before"]["id"], s["before"]["n"]) for s in result["sample"]}
        assert {(r["id"], r["n"]) for r in table.rows(filter={"id": {"in": [1, 2]}})} - gone == set(left.items())
    done = table.ok("DEDUPLICATE", **asked, plan_token=result["plan_token"])
    assert figures(done) == figures(result)
    assert {r["id"]: r["n"] for r in table.rows()} == {i: i for i in range(9)} | left
    assert table.ok("DEDUPLICATE")["records_removed"] == 0


@pytest.mark.thorough
def test_the_order_may_be_by_what_lies_inside_a_struct_or_a_map(firn: Firn, tenant: str) -> None:
    meta = {"type": "struct", "fields": {"version": {"type": "integer"}}}
    tags = {"type": "map", "key_type": "string", "value_type": "integer"}
    table = TableById(firn, tenant)
    table.ok("CREATE_TABLE", schema={"fields": {"id": {"type": "long"}, "meta": meta, "tags": tags}})
    rows = [{"id": 1, "meta": {"version": n}, "tags": {"it's": n % 3}} for n in range(5)]
    table.ok("WRITE", records=rows)
    asked = {"key_cols": ["id"], "order_by": ["tags.it's", {"field": "meta.version", "order": "desc"}]}
    assert table.ok("DEDUPLICATE", **asked, dry_run=True)["plan"]["records_removed"] == 4
    for field, kind in (("meta", "struct"), ("tags", "map")):
        assert kind in table.fail("INVALID_REQUEST", "DEDUPLICATE", key_cols=["id"], order_by=[field])["message"]
    error = table.fail("UNKNOWN_FIELD", "DEDUPLICATE", key_cols=["id"], order_by=["meta.versoin"])
    assert (error["field"], error["suggestion"]) == ("order_by[0].field", "meta.version")
    table.ok("DEDUPLICATE", **asked)
    assert table.rows() == [{"id": 1, "meta": {"version": 3}, "tags": {"it's": 0}}]


def test_keys_that_are_null_are_one_key_and_other_partitions_are_left_alone(table: TableById) -> None:
    table.ok("WRITE", records=[{"id": 20, "kind": None}, {"id": 21, "kind": None}, {"id": 22, "kind": "k1"}])
    kept = table.ok("DEDUPLICATE", key_cols=["kind"], order_by="id", partition_filter={"kind": {"is_null": True}})
    assert (kept["records_removed"], kept["scanned_files"]) == (1, 1)
    assert [r["id"] for r in table.rows(filter={"id": {"gte": 20}})] == [20, 22]
    assert table.fail("UNKNOWN_FIELD", "DEDUPLICATE", key_cols=["kinds"])["suggestion"] == "kind"
    assert table.fail("INVALID_REQUEST", "DEDUPLICATE", order_by=["tags"])["field"] == "order_by[0].field"

"""A table in another layout: the same rows in other partitions, published at once."""

import json
from typing import Any

import pytest
from pyiceberg.transforms import BucketTransform

from service.engine.jobs import relayout
from service.maintenance.repartition.repartition import Repartitions
from tests.harness import Firn
from tests.integration.repartitioning import BY_DAY, BY_PRODUCT, SCHEMA, Table, row
from tests.integration.test_bulk import loaded
from tests.support.marks import thorough_after


def test_the_same_rows_lie_in_the_partitions_that_were_asked_for(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.fill()
    before = table.rows()
    answer = table.repartition(partition=BY_PRODUCT)
    assert (answer["repartitioned"], "reason" in answer) == (True, False)
    assert table.rows() == before
    assert table.by_pyiceberg() == [r["id"] for r in before]
    stats = answer["stats"]
    assert (stats["records"], stats["partitions_before"], stats["partitions_after"]) == (30, 5, 15)
    assert (stats["files_before"], stats["files_after"]) == (15, 15)
    assert stats["validated"]
    assert answer["partition"] == table.description["partition"]
    assert [p["name"] for p in answer["partition"]["partitions"]] == ["product", "at_day"]
    expected = {(("product", r["product"]), ("at_day", r["day"])) for r in map(row, range(30))}
    assert set(table.partitions()) == expected
    assert sum(table.partitions().values()) == 30


EVERY_TYPE = {
    "fields": {
        "id": {"type": "long", "required": True},
        "i": {"type": "integer"},
        "f": {"type": "float"},
        "d": {"type": "double"},
        "s": {"type": "string"},
        "b": {"type": "boolean"},
        "day": {"type": "date"},
        "ts": {"type": "timestamp"},
        "tz": {"type": "timestamptz"},
        "n": {"type": "decimal(12,3)"},
        "bin": {"type": "binary"},
        "u": {"type": "uuid"},
        "inner": {"type": "struct", "required": True, "fields": {"x": {"type": "long"}, "y": {"type": "string"}}},
        "m": {"type": "map", "key_type": "string", "value_type": {"type": "array", "items": "double"}},
        "l": {"type": "array", "items": {"type": "struct", "fields": {"a": {"type": "string"}, "b": {"type": "uuid"}}}},
    }
}


def full(n: int) -> dict[str, Any]:
    if n % 5 == 4:
        return {"id": n, "inner": {"x": None, "y": None}}
    key = f"{n:08x}-1234-5678-9abc-{n * 7919:012x}"
    return {
        "id": n,
        "i": n - 20,
        "f": [0.0, -0.0, "NaN", 1.5][n % 4],
        "d": [-0.0, 0.0, "Infinity", "NaN", 2.5][n % 5],
        "s": "äöü日本"[: n % 6] + str(n % 3),
        "b": n % 2 == 0,
        "day": f"19{60 + n % 30}-0{n % 9 + 1}-11",
        "ts": f"20{10 + n % 5}-0{n % 9 + 1}-1{n % 3}T0{n % 9}:00:00.123456",
        "tz": f"1969-12-31T2{n % 4}:59:59.999999Z",
        "n": f"{n - 15}.125",
        "bin": "AAEC" if n % 2 else "/w==",
        "u": key,
        "inner": {"x": n % 4, "y": None if n % 2 else "y"},
        "m": {"b": [1.0, None, "NaN"], "a": None} if n % 2 else {},
        "l": [{"a": None, "b": key}, None, {"a": "x", "b": None}] if n % 3 else [],
    }


@pytest.mark.parametrize(
    "fields",
    thorough_after(
        1,
        [
            [{"field": "i"}, {"field": "b"}],
            [{"field": "f"}],
            [{"field": "d"}, {"field": "s"}],
            [{"field": "bin"}, {"field": "n"}],
            [{"field": "u"}],
            [{"field": "u", "transform": "bucket", "num_buckets": 4}, {"field": "day", "transform": "year"}],
            [{"field": "ts", "transform": "hour"}],
            [{"field": "tz", "transform": "month"}, {"field": "tz", "transform": "bucket", "num_buckets": 3}],
            [{"field": "s", "transform": "truncate", "width": 2}, {"field": "i", "transform": "truncate", "width": 10}],
            [
                {"field": "n", "transform": "truncate", "width": 50},
                {"field": "bin", "transform": "bucket", "num_buckets": 2},
            ],
            [{"field": "inner.x"}, {"field": "day"}],
            [{"field": "ts", "transform": "day"}, {"field": "day", "transform": "bucket", "num_buckets": 2}],
            [],
        ],
    ),
    ids=lambda fields: "-".join(f"{f['field']}.{f.get('transform', 'identity')}" for f in fields) or "none",
)
def test_every_transform_of_every_type_gives_the_partitions_that_were_estimated(
    firn: Firn, tenant: str, fields: list[dict[str, Any]]
) -> None:
    table = Table(firn, tenant, schema=EVERY_TYPE, partition={"partitions": []})
    table.ok("WRITE", records=[full(n) for n in range(40)])
    table.ok("WRITE", records=[full(n) for n in range(40, 60)])
    before = table.rows()
    layout = {"partitions": fields}
    estimate = table.repartition(partition=layout, estimate=True)["estimate"]
    answer = table.repartition(partition=layout)
    if fields:
        assert answer["stats"]["partitions_after"] >= 1
        assert table.rows() == before
    else:
        assert answer["reason"] == "the table is partitioned like this already"
        return
    listed = table.ok("LIST_PARTITIONS")["partitions"]
    if fields[0]["field"] not in ("f", "d"):  # 0.0 and -0.0 are one value to a count, and two to files
        assert {str(p["partition"]): p["records"] for p in listed} == {
            str(p["partition"]): p["records"] for p in estimate["partitions"]
        }
    assert (estimate["records"], estimate["bytes"]) == (60, answer["stats"]["bytes_before"])
    assert table.by_pyiceberg() == list(range(60))


def test_a_table_that_is_partitioned_like_this_is_left_alone(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.fill(2)
    head = table.loaded.current_snapshot_id
    answer = table.repartition(partition=BY_DAY)
    assert (answer["repartitioned"], answer["reason"]) == (False, "the table is partitioned like this already")
    assert table.loaded.current_snapshot_id == head == int(answer["metadata"]["snapshot_id"])
    assert table.on_disk() == table.in_snapshots()
    # Another codec is a reason, the one that it has is none.
    assert not table.repartition(compression="zstd")["repartitioned"]
    assert table.repartition(compression="snappy", partition=BY_DAY)["repartitioned"]
    assert table.description["properties"]["compression"] == "snappy"
    assert table.ids() == list(range(20))


@pytest.mark.thorough
def test_files_that_another_program_left_in_an_older_partitioning_are_all_that_is_rewritten(
    firn: Firn, tenant: str
) -> None:
    table = Table(firn, tenant)
    table.fill(1)
    with table.loaded.iceberg.update_spec() as change:
        change.remove_field("day").add_identity("product")
    table.write_rows(*range(100, 106))
    assert table.specs() == {0, 1}
    answer = table.repartition(partition={"partitions": [{"field": "product"}]})
    assert (answer["repartitioned"], answer["stats"]["files_before"]) == (True, 8)
    summary = table.loaded.snapshot(int(answer["metadata"]["snapshot_id"])).summary
    assert (summary["deleted-data-files"], summary["operation"]) == ("5", "replace")
    assert table.specs() == {1}
    assert table.ids() == [*range(10), *range(100, 106)]


@pytest.mark.thorough
def test_tables_without_rows_can_be_repartitioned(firn: Firn, tenant: str) -> None:
    empty, emptied = Table(firn, tenant, name="empty"), Table(firn, tenant, name="emptied")
    emptied.fill(1)
    emptied.ok("DELETE", filter={"id": {"gte": 0}})
    for table in (empty, emptied):
        assert table.repartition(partition=BY_PRODUCT, estimate=True)["estimate"]["partition_count"] == 0
        answer = table.repartition(partition=BY_PRODUCT, delete_source=False)
        assert answer["repartitioned"]
        assert (answer["stats"]["records"], answer["stats"]["files_after"]) == (0, 0)
        table.write_rows(1, 2)
        assert set(table.partitions()) == {(("product", f"p{i}"), ("at_day", f"2024-05-{i + 1:02}")) for i in (1, 2)}


@pytest.mark.thorough
def test_a_table_goes_from_one_layout_to_others_and_back(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.fill(2)
    buckets = [{"partitions": [{"field": "id", "transform": "bucket", "num_buckets": n}]} for n in (2, 4)]
    layouts = [BY_PRODUCT, *buckets, {"partitions": []}, BY_DAY, buckets[0]]
    names = []
    for n, layout in enumerate(layouts):
        answer = table.repartition(partition=layout, batch_size=7)
        names.append([p["name"] for p in answer["partition"]["partitions"]])
        assert answer["stats"]["batches"] > 1
        table.write_rows(100 + n)
        assert table.ids() == table.by_pyiceberg() == [*range(20), *range(100, 101 + n)]
        assert len(table.specs()) == 1
    assert names == [["product", "at_day"], ["id_bucket"], ["id_bucket_4"], [], ["day"], ["id_bucket"]]
    # Spark lists the partitions of all of them side by side.
    listed = firn.app.engine.run(lambda s: s.sql(f"SELECT * FROM {table.loaded.spark_name}.partitions").collect())
    assert sum(found["record_count"] for found in listed) == 26


@pytest.mark.thorough
def test_everything_else_works_on_a_repartitioned_table(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.fill(2)
    table.repartition(partition=BY_PRODUCT)
    table.fill(4)
    table.ok("UPSERT", records=[{"id": 3, "product": "p9"}, row(999)])
    table.ok("UPDATE", filter={"id": 4}, updates={"product": "p8"})
    table.ok("DELETE", filter={"id": {"in": [5, 6]}})
    rows = table.rows()
    assert len(rows) == 20 + 40 + 1 - 4
    compacted = table.ok("COMPACT", force=True, min_files=2)
    assert compacted["compacted"]
    assert table.rows() == rows
    assert table.by_pyiceberg() == [r["id"] for r in rows]
    only = table.rows(filter={"product": "p8"})
    assert {r["id"] for r in only} == {4}
    listed = table.ok("LIST_PARTITIONS", partition_filter={"product": "p9"})["partitions"]
    assert [p["partition"]["product"] for p in listed] == ["p9"] * len(listed) != []


@pytest.mark.thorough
def test_the_old_layout_is_kept_as_a_backup_where_that_is_wanted(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.fill(2)
    head = table.loaded.current_snapshot_id
    answer = table.repartition(partition=BY_PRODUCT, delete_source=False, backup_retention_hours=5)
    refs = table.loaded.iceberg.metadata.refs
    assert refs[answer["backup"]].snapshot_id == head
    assert answer["backup"].startswith("backup-")
    assert "-repartition-" in answer["backup"]
    plain = table.repartition(partition=BY_DAY)
    assert "backup" not in plain
    assert set(table.loaded.iceberg.metadata.refs) == {"main", answer["backup"]}
    sql = f"SELECT count(*) FROM {table.loaded.spark_name} VERSION AS OF '{answer['backup']}'"
    assert firn.app.engine.run(lambda s: s.sql(sql).collect()[0][0]) == 20


def test_rows_that_another_program_deleted_stay_deleted(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant, partition={"partitions": []})
    table.fill(2)
    table.delete_elsewhere("id IN (3, 13)")
    assert table.loaded.iceberg.current_snapshot().summary["total-delete-files"] != "0"
    answer = table.repartition(partition=BY_PRODUCT)
    assert (answer["stats"]["records"], answer["stats"]["validated"]) == (18, True)
    assert table.ids() == table.by_pyiceberg() == [i for i in range(20) if i not in (3, 13)]


def test_a_repartition_asked_for_twice_with_a_key_happens_once(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.fill(1)
    first = table.repartition(partition=BY_PRODUCT, idempotency_key="k")
    snapshots = table.loaded.snapshot_count
    again = table.repartition(partition=BY_PRODUCT, idempotency_key="k")
    assert again["stats"] == first["stats"]
    assert table.loaded.snapshot_count == snapshots


def test_an_answer_that_was_lost_is_made_again_from_the_snapshot(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(firn, tenant)
    table.fill(1)
    request = {"operation": "REPARTITION", **table.address, "partition": BY_PRODUCT, "idempotency_key": "k"}
    with monkeypatch.context() as patch:
        patch.setattr(type(firn.app.parts[Repartitions]), "_outcome", lambda *args: 1 / 0)
        firn.fail(request, "INTERNAL_ERROR")
    snapshots = table.loaded.snapshot_count
    answer = firn.ok(request)
    assert (answer["repartitioned"], answer["stats"]["records"], answer["stats"]["rounds"]) == (True, 10, 1)
    assert table.loaded.snapshot_count == snapshots


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (["id + 1 AS id", "product", "at", "day", "price"], "CHECKSUM_MISMATCH", "Checksum mismatch"),
        (["id", "product", "at", "day", "CAST(NULL AS DOUBLE) AS price"], "CHECKSUM_MISMATCH", "Checksum mismatch"),
    ],
)
def test_rows_that_changed_on_their_way_are_not_published(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch, change: list[str], code: str, said: str
) -> None:
    table = Table(firn, tenant)
    table.fill(2)
    before, head = table.rows(), table.loaded.current_snapshot_id
    real = relayout._arranged
    with monkeypatch.context() as patch:
        patch.setattr(relayout, "_arranged", lambda *args: real(*args).selectExpr(*change))
        error = table.fail(code, status=500, partition=BY_PRODUCT)
    assert said in error["message"]
    assert (table.rows(), table.loaded.current_snapshot_id) == (before, head)
    assert table.on_disk() == table.in_snapshots()
    assert table.description["partition"] == {"partitions": [{"field": "day", "transform": "identity", "name": "day"}]}


def test_an_expression_that_fails_names_its_column_and_a_row(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.fill(1)
    transform = {"twice": {"expression": "price * 2"}, "share": {"expression": "10 / (id - 3)"}}
    error = table.fail("INVALID_QUERY", status=400, transform=transform)
    assert (error["field"], error["details"]["column"]) == ("transform.share.expression", "share")
    assert error["details"]["row"]["id"] == 3


@pytest.mark.parametrize("validate", thorough_after(1, [True, False]))
def test_rows_that_got_lost_on_their_way_are_missed(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch, validate: bool
) -> None:
    table = Table(firn, tenant)
    table.fill(2)
    real = relayout._arranged
    with monkeypatch.context() as patch:
        patch.setattr(relayout, "_arranged", lambda *args: real(*args).where("id <> 7"))
        error = table.fail("ROW_COUNT_MISMATCH", status=500, partition=BY_PRODUCT, validate=validate)
    assert error["message"].startswith("Row count mismatch")
    assert table.ids() == list(range(20))
    assert table.on_disk() == table.in_snapshots()
    answer = table.repartition(partition=BY_PRODUCT, validate=validate)
    assert answer["stats"]["validated"] is validate
    assert ("checksum" in answer["stats"]) is validate


@pytest.mark.thorough
def test_the_checksum_is_that_of_the_rows_wherever_they_lie(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant, schema=EVERY_TYPE, partition={"partitions": []})
    table.ok("WRITE", records=[full(n) for n in range(30)])
    layouts = [[{"field": "s"}], [{"field": "u", "transform": "bucket", "num_buckets": 3}], [{"field": "id"}]]
    answers = [table.repartition(partition={"partitions": fields}, batch_size=5) for fields in layouts]
    sums = {answer["stats"]["checksum"] for answer in answers}
    assert len(sums) == 1
    table.ok("UPDATE", filter={"id": 3}, updates={"s": "other"})
    assert table.repartition(partition={"partitions": []})["stats"]["checksum"] not in sums


@pytest.mark.thorough
def test_a_file_with_more_rows_than_batch_size_is_rewritten_in_parts(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant, partition={"partitions": []})
    table.write_rows(*range(30))
    table.ok("DELETE", filter={"id": {"in": [1, 29]}})
    table.delete_elsewhere("id = 7")
    every = [n for n in range(30) if n not in (1, 7, 29)]
    plan = table.repartition(partition={"partitions": [{"field": "product"}]}, dry_run=True, batch_size=8)["plan"]
    stats = table.repartition(partition={"partitions": [{"field": "product"}]}, batch_size=8)["stats"]
    assert (plan["batches"], stats["batches"], stats["records"]) == (4, 4, 27)
    assert table.ids() == table.by_pyiceberg() == every


def test_a_plan_says_what_would_be_rewritten_and_changes_nothing(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.fill(3)
    head, files = table.loaded.current_snapshot_id, table.on_disk()
    plan = table.repartition(partition=BY_PRODUCT, dry_run=True, batch_size=4)["plan"]
    assert (plan["files_removed"], plan["records"], plan["batches"], plan["partitions_after"]) == (15, 30, 8, 15)
    estimate = table.repartition(partition=BY_PRODUCT, estimate=True)["estimate"]
    assert (table.loaded.current_snapshot_id, table.on_disk()) == (head, files)
    stats = table.repartition(partition=BY_PRODUCT, batch_size=4)["stats"]
    assert (stats["files_before"], stats["batches"], stats["partitions_after"]) == (15, 8, 15)
    assert stats["bytes_before"] == plan["bytes_removed"] == estimate["bytes"]
    assert sum(p["records"] for p in estimate["partitions"]) == estimate["records"] == stats["records"]
    assert not table.repartition(partition=BY_PRODUCT, dry_run=True)["plan"]["files_removed"]


@pytest.mark.thorough
def test_with_delete_source_the_old_files_are_deleted_at_once(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.fill(2)
    rows, files = table.rows(), table.on_disk()
    answer = table.repartition(partition=BY_PRODUCT, delete_source=True)
    assert answer["expired_files_deleted"] > 0
    assert not files & table.on_disk()
    assert table.description["snapshot_count"] == 1
    assert table.rows() == rows
    again = table.repartition(partition=BY_PRODUCT, delete_source=True)
    assert (again["repartitioned"], "expired_files_deleted" in again) == (False, False)


@pytest.mark.parametrize(
    ("fields", "code", "field", "said"),
    [
        ({}, "INVALID_REQUEST", "partition", "there is nothing to do"),
        (
            {"partition": {"partitions": [{"field": "prodct"}]}},
            "INVALID_SCHEMA",
            "partition.partitions[0].field",
            "Partition columns not found: prodct; did you mean 'product'?",
        ),
        ({"partition": BY_PRODUCT, "estimate": True, "dry_run": True}, "INVALID_REQUEST", "dry_run", "either"),
        ({"partition": BY_PRODUCT, "batch_size": 0}, "INVALID_REQUEST", "batch_size", "at least 1"),
        ({"partition": BY_PRODUCT, "target_table": "a b"}, "INVALID_REQUEST", "target_table", "is not a name"),
        ({"partition": BY_PRODUCT, "target_table": "t"}, "TABLE_EXISTS", "target_table", "already exists"),
        (
            {
                "partition": BY_PRODUCT,
                "target_table": "new",
                "delete_source": False,
                "backup_retention_hours": 3,
            },
            "INVALID_REQUEST",
            "backup_retention_hours",
            "leave it out",
        ),
        (
            {"partition": BY_PRODUCT, "backup_retention_hours": 3},
            "INVALID_REQUEST",
            "backup_retention_hours",
            "send delete_source: false",
        ),
        (
            {"transform": {"x": {"expression": "prodct"}}},
            "UNKNOWN_FIELD",
            "transform.x.expression",
            "did you mean 'product'?",
        ),
        (
            {"transform": {"day": {"expression": "id"}}},
            "INVALID_SCHEMA",
            "transform.day",
            "the table already has a column 'day'",
        ),
        (
            {"transform": {"at_day": {"expression": "id"}}, "partition": BY_PRODUCT},
            "INVALID_SCHEMA",
            "partition.partitions[1].name",
            "is the name of column",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_changed(
    firn: Firn, tenant: str, fields: dict[str, Any], code: str, field: str, said: str
) -> None:
    table = Table(firn, tenant)
    table.write_rows(1)
    for more in ({}, {"async": True}):
        error = table.fail(code, **fields, **more)
        assert (error["field"], said in error["message"]) == (field, True), error
    assert table.loaded.snapshot_count == 1
    assert table.loaded.schema.names == tuple(SCHEMA["fields"])


@pytest.mark.thorough
def test_rows_that_lie_by_the_hash_of_a_uuid_can_be_loaded_and_compacted_too(firn: Firn, tenant: str) -> None:
    schema = {"fields": {"id": {"type": "long"}, "u": {"type": "uuid"}}}
    by_hash = {"partitions": [{"field": "u", "transform": "bucket", "num_buckets": 5}]}
    table = Table(firn, tenant, schema=schema, partition=by_hash)
    records = [{"id": n, "u": f"{n * 7919 % 4096:08x}-0000-4000-8000-{n:012x}"} for n in range(200)]
    body = "\n".join(json.dumps(r) for r in records[:150]).encode()
    assert loaded(firn, tenant, body)["records_written"] == 150
    table.ok("WRITE", records=records[150:])
    with table.loaded.iceberg.update_spec() as change:
        change.remove_field("u_bucket").add_field("u", BucketTransform(3), "u_three")
    compacted = table.ok("COMPACT", force=True)
    assert (compacted["compacted"], compacted["stats"]["groups_failed"]) == (True, 0)
    assert table.ids() == list(range(200))
    assert table.repartition(partition=by_hash)["repartitioned"]
    assert table.ids() == table.by_pyiceberg() == list(range(200))

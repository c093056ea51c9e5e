"""REINITIALISE_TABLE: emptied in one commit; and split by ranges of the first key, which every way of writing fills and
no answer shows."""

import base64
import json
from bisect import bisect_right
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.catalog.files.data_files import list_files
from service.engine.iceberg.staging import StagedFiles
from service.engine.iceberg.swap import TableChanged
from service.engine.jobs import append as appends
from service.engine.session.rows import arrow_schema
from service.writes.bulk.load import Bulk
from tests.harness import Firn, wait_until
from tests.support.marks import thorough_after, thorough_except
from tests.support.tables import ServedTable

SCHEMA = {
    "fields": {
        "key": {"type": "string", "required": True},
        "n": {"type": "integer"},
        "day": {"type": "date"},
    },
    "primary_key": ["key"],
}
DAYS = {"partitions": [{"field": "day", "transform": "month"}]}
POINTS = ["g", "n", "t"]


class Shop(ServedTable):
    def __init__(self, firn: Firn, tenant: str, **create: Any) -> None:
        super().__init__(firn, tenant, **{"schema": SCHEMA, **create})

    def ok(self, operation: str, **fields: Any) -> dict[str, Any]:
        answer = super().ok(operation, **fields)
        assert "_firn_" not in json.dumps(answer, default=str)
        return answer

    def refused(self, code: str, **fields: Any) -> dict[str, Any]:
        return self.fail(code, "REINITIALISE_TABLE", **{"confirm": True, **fields})

    def state(self) -> str:
        return self.loaded.metadata_location

    def load(self, *keys: str) -> None:
        """Write by a bulk load."""
        body = "\n".join(json.dumps({"key": key, "n": 1, "day": "2024-01-31"}) for key in keys)
        self.bulk_load(body, "application/x-ndjson")

    def afresh(self, **fields: Any) -> dict[str, Any]:
        return self.ok("REINITIALISE_TABLE", confirm=True, **fields)

    def write(self, *keys: str) -> None:
        self.ok("WRITE", records=[{"key": key, "n": 1, "day": "2024-01-31"} for key in keys])

    def keys(self, **query: Any) -> list[str]:
        return sorted(row["key"] for row in self.firn.rows(self.tenant, "t", **query))

    def check_ranges(self, points: list[str] = POINTS) -> None:
        """Each file that the table has holds keys of one range, and is in that range's partition."""
        found = 0
        for file in list_files(self.loaded).data:
            rows = pq.ParquetFile(Path(urlparse(file.path).path)).read().to_pylist()
            numbers = {bisect_right(points, row["key"]) for row in rows}
            assert numbers == {row["_firn_range"] for row in rows}
            assert len(numbers) == 1
            assert f"/_firn_range={numbers.pop()}/" in file.path
            found += len(rows)
        assert found == len(self.keys())


@pytest.fixture
def shop(firn: Firn, tenant: str) -> Shop:
    return Shop(firn, tenant)


def encoded(points: list[str]) -> list[str]:
    return [base64.b64encode(point.encode()).decode() for point in points]


def test_all_contents_go_in_one_commit_and_the_history_and_a_backup_stay(shop: Shop) -> None:
    shop.write("a", "b")
    before = shop.loaded.current_snapshot_id
    answer = shop.afresh(create_backup=True)
    assert (answer["records_deleted"], answer["files_deleted"]) == (2, 1)
    assert shop.keys() == []
    assert shop.keys(as_of=before) == ["a", "b"]
    shop.write("c")
    assert shop.keys() == ["c"]
    shop.ok("RESTORE_BACKUP", name=answer["backup"])
    assert shop.keys() == ["a", "b"]


def test_it_needs_to_be_confirmed(shop: Shop) -> None:
    shop.write("a")
    assert shop.refused("CONFIRMATION_REQUIRED", confirm=False)["field"] == "confirm"
    assert shop.keys() == ["a"]


def test_nobody_is_asked_to_confirm_what_would_be_refused(shop: Shop) -> None:
    assert shop.refused("INVALID_SCHEMA", confirm=False, schema={"fields": {}})
    assert shop.refused("TABLE_NOT_FOUND", confirm=False, table="nosuch")


@pytest.mark.thorough
def test_an_empty_table_can_be_reinitialised(shop: Shop) -> None:
    assert shop.afresh(split_points=POINTS)["records_deleted"] == 0
    shop.write("a")
    shop.check_ranges()


@pytest.mark.parametrize(
    "sent",
    thorough_after(
        1,
        [
            {"split_points": POINTS},
            {"split_points": "g\nn\nt"},
            {"split_points": "g\r\nn\r\nt\r\n"},
            {"split_points": encoded(POINTS), "split_points_base64": True},
            {"split_points": "\n".join(encoded(POINTS)), "split_points_base64": True},
        ],
    ),
    ids=["list", "lines", "lines of Windows", "base64 list", "base64 lines"],
)
def test_files_land_in_the_ranges_asked_for_however_they_were_sent(shop: Shop, sent: dict[str, Any]) -> None:
    assert shop.afresh(**sent)["split_points"] == POINTS
    keys = ["", "a", "g", "gé", "mzz", "n", "t", "u", "é", "😀"]
    shop.write(*keys)
    shop.check_ranges()
    ranges = {(p["range"].get("from"), p["range"].get("before")) for p in shop.ok("LIST_PARTITIONS")["partitions"]}
    assert ranges == {(None, "g"), ("g", "n"), ("n", "t"), ("t", None)}
    assert shop.ok("DESCRIBE_TABLE")["description"]["split_points"] == POINTS


class TestEveryWay:
    """Of writing fills the column, and none of reading shows it."""

    @pytest.fixture(params=thorough_except(["partitioned"], ["plain", "partitioned"]))
    def split(self, firn: Firn, tenant: str, request: pytest.FixtureRequest) -> Shop:
        shop = Shop(firn, tenant, **({"partition": DAYS} if request.param == "partitioned" else {}))
        shop.write("old")
        shop.afresh(split_points=POINTS)
        return shop

    @pytest.mark.thorough
    def test_writes_and_edits(self, split: Shop) -> None:
        split.write("a", "h", "o", "z")
        split.check_ranges()
        split.ok("UPSERT", records=[{"key": "a", "n": 2}, {"key": "p", "n": 2}, {"key": "u"}])
        split.check_ranges()
        split.ok("UPDATE", updates={"n": {"expression": "n + 1"}}, filter={"key": {"gte": "h"}})
        split.check_ranges()
        split.ok("UPDATE", updates={"key": {"expression": "concat('z', key)"}}, filter={"key": {"lt": "p"}})
        assert split.keys() == ["p", "u", "z", "za", "zh", "zo"]
        split.check_ranges()
        split.ok("DELETE", filter={"key": "zh"})
        split.check_ranges()
        split.write("p")
        split.ok("DEDUPLICATE", key_cols=["key"])
        split.check_ranges()
        split.ok("WRITE", mode="overwrite", records=[{"key": key} for key in "ahoz"], create_backup=True)
        split.check_ranges()
        backup = split.ok("LIST_BACKUPS")["backups"][0]["name"]
        split.ok("RESTORE_BACKUP", name=backup)
        assert split.keys() == ["p", "u", "z", "za", "zo"]
        split.check_ranges()
        before = split.loaded.current_snapshot_id
        request_id = split.ok("WRITE", records=[{"key": "b"}, {"key": "v"}])["metadata"]["request_id"]
        split.ok("DELETE", filter={"key": {"gte": "za"}})
        split.ok("UNDO", request_id=request_id)
        assert split.keys() == ["p", "u", "z"]
        split.check_ranges()
        assert split.ok("DIFF", from_snapshot=before)["records_deleted"] == 2
        split.ok("ROLLBACK", as_of=before)
        assert split.keys() == ["p", "u", "z", "za", "zo"]
        split.check_ranges()

    @pytest.mark.thorough
    def test_bulk_loads_compactions_and_repartitions(self, split: Shop) -> None:
        for _ in range(3):
            split.load(*"ahozbipy")
        split.check_ranges()
        planned = split.ok("COMPACT", force=True, dry_run=True)
        assert planned["plan"]
        split.ok("COMPACT", force=True)
        split.check_ranges()
        assert len(split.loaded.iceberg.inspect.files()) <= 8
        split.write("q")
        split.ok("REPARTITION", partition={"partitions": [{"field": "n", "transform": "bucket", "num_buckets": 2}]})
        split.check_ranges()
        split.write("r", "a1")
        split.check_ranges()
        partition = split.ok("DESCRIBE_TABLE")["description"]["partition"]["partitions"]
        assert [one["field"] for one in partition] == ["n"]

    def test_answers(self, split: Shop) -> None:
        split.write("a", "h")
        split.ok("QUERY")
        assert list(split.ok("QUERY", sql="SELECT * FROM t ORDER BY key")["data"][0]) == ["key", "n", "day"]
        split.firn.fail(split.request("QUERY", sql="SELECT _firn_range FROM t"), "INVALID_QUERY")
        split.firn.fail(split.request("QUERY", projection=["_firn_range"]), "UNKNOWN_FIELD")
        split.firn.fail(split.request("WRITE", records=[{"key": "x", "_firn_range": 3}]), "INVALID_RECORD")
        split.firn.fail(split.request("UPDATE", updates={"_firn_range": 3}, all=True), "UNKNOWN_FIELD")
        split.firn.fail(split.request("ALTER_TABLE", drop_columns=["_firn_range"]), "UNKNOWN_FIELD")
        for accept in ("text/csv", "application/vnd.apache.arrow.stream"):
            for asked in (split.request("QUERY"), split.request("QUERY", sql="SELECT * FROM t")):
                sent = split.firn.client.post("/database", json=asked, headers={"Accept": accept})
                assert sent.status_code == 200
                assert b"_firn_" not in sent.content
        split.ok("DESCRIBE_TABLE")
        preview = split.ok("UPDATE", updates={"n": 5}, filter={"key": "a"}, dry_run=True)
        assert preview["plan"]["sample"]


def test_records_written_while_the_table_is_split_again_land_in_its_new_ranges(shop: Shop) -> None:
    """As by another instance, between the writing of its files and its commit."""
    shop.afresh(split_points=POINTS)
    table, other = shop.loaded, ["c", "k", "x"]
    rows = pa.table([["a", "h"], [1, 1], [None, None]], schema=arrow_schema(table.schema))
    again = iter([lambda: shop.afresh(split_points=other)])

    def append() -> int:
        return shop.firn.app.engine.run(
            appends.append,
            table.spark_name,
            rows,
            "b",
            uuid=table.uuid,
            schema_id=table.schema_id,
            gate=lambda: next(again, lambda: None)(),
        )

    with pytest.raises(TableChanged, match="ranges of"):
        append()
    assert shop.keys() == []
    append()
    shop.check_ranges(other)


def test_a_bulk_load_while_the_table_is_split_again_lands_in_its_new_ranges(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.afresh(split_points=POINTS)
    other, moves = ["c", "k", "x"], []
    bulk = shop.firn.app.parts[Bulk]
    move = bulk._move

    def moved_late(*args: Any) -> StagedFiles:
        staged = move(*args)
        if not moves:
            shop.afresh(split_points=other)
        moves.append(staged)
        return staged

    monkeypatch.setattr(bulk, "_move", moved_late)
    shop.load(*"ahozbipy")
    shop.check_ranges(other)
    assert len(moves) == 2
    assert not any(Path(urlparse(path).path).exists() for path in moves[0].paths)


def test_the_key_may_be_renamed_and_widened_and_not_dropped(shop: Shop) -> None:
    shop.afresh(schema={"fields": {"id": {"type": "integer"}}, "primary_key": ["id"]}, split_points="-5\n0\n100")
    shop.ok("ALTER_TABLE", rename_columns={"id": "key"}, change_types={"id": "long"})
    shop.ok("WRITE", records=[{"key": key} for key in (-(2**40), -5, -1, 0, 99, 100, 2**40)])
    shop.check_ranges([-5, 0, 100])  # type: ignore[list-item]  # keys that are numbers
    shop.afresh(schema=shop.ok("DESCRIBE_TABLE")["description"]["schema"])
    shop.ok("WRITE", records=[{"key": key} for key in (-(2**40), -5, 2**40)])
    shop.check_ranges([-5, 0, 100])  # type: ignore[list-item]  # keys that are numbers
    error = shop.firn.fail(
        shop.request("ALTER_TABLE", drop_columns=["key"], primary_key=[], add_columns={"x": {"type": "long"}}),
        "INVALID_SCHEMA",
    )
    assert "REINITIALISE_TABLE" in error["message"]


@pytest.mark.parametrize(
    ("kind", "points", "keys"),
    thorough_after(
        2,
        [
            ("long", [10, 2**40], [9, 10, 2**40, 2**40 + 1]),
            ("timestamptz", ["2024-01-01T00:00:00+02:00"], ["2023-12-31T21:59:59Z", "2023-12-31T22:00:00Z"]),
            ("decimal(10,2)", ["1.50", "2.50"], ["1.49", "1.50", "2.49", "2.51"]),
            ("date", ["2024-01-01", "2024-02-01"], ["2023-12-31", "2024-01-01", "2024-02-02"]),
            ("timestamp", ["2024-01-01T00:00:00"], ["2023-12-31T23:59:59.999999", "2024-01-01T00:00:00"]),
            (
                "uuid",
                ["80000000-0000-0000-0000-000000000000"],
                ["7" * 8 + "-0000-0000-0000-000000000000", "f" * 8 + "-0000-0000-0000-000000000000"],
            ),
        ],
    ),
)
def test_keys_of_every_type_that_has_an_order(shop: Shop, kind: str, points: list[Any], keys: list[Any]) -> None:
    shop.afresh(schema={"fields": {"id": {"type": kind}}, "primary_key": ["id"]}, split_points=points)
    for key in keys:
        shop.ok("WRITE", records=[{"id": key}])
    answer = shop.ok("LIST_PARTITIONS")["partitions"]
    assert sum(p["files"] for p in answer) == len(keys)
    assert len(answer) == len(points) + 1


class TestRefused:
    @pytest.mark.parametrize(
        ("sent", "field"),
        [
            ({"split_points": ["n", "g"]}, "split_points[1]"),
            ({"split_points": ["n", "n"]}, "split_points[1]"),
            ({"split_points": []}, "split_points"),
            ({"split_points": ""}, "split_points"),
            ({"split_points": 5}, "split_points"),
            ({"split_points": [None]}, "split_points[0]"),
            ({"split_points": [5]}, "split_points[0]"),
            ({"split_points": ["%%"], "split_points_base64": True}, "split_points[0]"),
            ({"split_points": ["/w=="], "split_points_base64": True}, "split_points[0]"),
            ({"split_points": [f"{i:05}" for i in range(1001)]}, "split_points"),
            ({"split_points_base64": True}, "split_points"),
        ],
    )
    def test_points_that_cannot_be(self, shop: Shop, sent: dict[str, Any], field: str) -> None:
        assert shop.refused("INVALID_REQUEST", **sent)["field"] == field

    def test_a_table_without_a_key(self, shop: Shop) -> None:
        schema = {"fields": {"n": {"type": "long"}}}
        assert "primary_key" in shop.refused("INVALID_REQUEST", schema=schema, split_points=[1])["message"]

    def test_a_schema_that_lacks_what_the_partitioning_is_made_of(self, firn: Firn, tenant: str) -> None:
        shop = Shop(firn, tenant, partition=DAYS)
        schema = {"fields": {"key": {"type": "string"}}, "primary_key": ["key"]}
        assert "delete_partitions" in shop.refused("INVALID_SCHEMA", schema=schema)["message"]

    @pytest.mark.parametrize("kind", ["string", "long", "boolean"])
    def test_a_schema_that_gives_what_the_partitioning_is_made_of_another_type(
        self, firn: Firn, tenant: str, kind: str
    ) -> None:
        shop = Shop(firn, tenant, partition=DAYS)
        schema = {"fields": {"key": {"type": "string"}, "day": {"type": kind}}}
        message = shop.refused("INVALID_SCHEMA", schema=schema)["message"]
        assert "month cannot use 'day'" in message
        assert "delete_partitions" in message
        assert shop.afresh(schema=schema, delete_partitions=True)["partition"] == {"partitions": []}

    @pytest.mark.parametrize("fields", [{}, {"delete_partitions": True}])
    @pytest.mark.parametrize("name", ["day_month", "Day_Month"])
    def test_a_column_that_is_called_like_a_partition(
        self, firn: Firn, tenant: str, fields: dict[str, Any], name: str
    ) -> None:
        shop = Shop(firn, tenant, partition=DAYS)
        schema = {"fields": {"day": {"type": "date"}, name: {"type": "string"}}}
        assert shop.refused("INVALID_SCHEMA", schema=schema, **fields)["field"] == f"schema.fields.{name}"
        shop.afresh(delete_partitions=True)
        assert "is or was the name of a partition" in shop.refused("INVALID_SCHEMA", schema=schema, **fields)["message"]

    def test_a_column_of_another_type_that_was_a_partition_by_itself(self, firn: Firn, tenant: str) -> None:
        shop = Shop(firn, tenant, partition={"partitions": [{"field": "day"}]})
        shop.write("a")
        other = {"fields": {"day": {"type": "string"}}}
        assert (
            "is or was the name of a partition"
            in shop.refused("INVALID_SCHEMA", schema=other, delete_partitions=True)["message"]
        )
        shop.afresh(schema={"fields": {"n": {"type": "long"}}}, delete_partitions=True)
        shop.refused("INVALID_SCHEMA", schema=other)
        shop.afresh(schema={"fields": {"day": {"type": "date"}}})
        shop.ok("WRITE", records=[{"day": "2024-01-31"}])
        assert shop.firn.rows(shop.tenant, "t") == [{"day": "2024-01-31"}]

    def test_a_schema_whose_first_key_is_another_than_that_of_the_ranges(self, shop: Shop) -> None:
        shop.afresh(split_points=POINTS)
        schema = {"fields": {"n": {"type": "long"}}, "primary_key": ["n"]}
        assert "split_points" in shop.refused("INVALID_SCHEMA", schema=schema)["message"]


def test_another_schema_takes_the_place_of_the_old_one_whose_rows_can_still_be_read(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant, partition=DAYS)
    shop.write("a")
    before = shop.loaded.current_snapshot_id
    schema = {"fields": {"id": {"type": "long"}, "n": {"type": "string"}}, "primary_key": ["id"]}
    answer = shop.afresh(schema=schema, delete_partitions=True)
    assert answer["partition"] == {"partitions": []}
    assert list(answer["schema"]["fields"]) == ["id", "n"]
    shop.ok("WRITE", records=[{"id": 1, "n": "one"}])
    assert firn.rows(tenant, "t") == [{"id": 1, "n": "one"}]
    assert firn.rows(tenant, "t", as_of=before) == [{"key": "a", "n": 1, "day": "2024-01-31"}]
    shop.ok("COMPACT", force=True)
    shop.ok("LIST_PARTITIONS")
    shop.ok("DELETE", filter={"id": 1})


def test_split_points_stay_until_partitions_are_deleted_or_others_are_sent(shop: Shop) -> None:
    shop.afresh(split_points=POINTS)
    assert shop.afresh()["split_points"] == POINTS
    assert shop.afresh(split_points=["k"])["split_points"] == ["k"]
    shop.write("a", "z")
    shop.check_ranges(["k"])
    assert "split_points" not in shop.afresh(delete_partitions=True)
    shop.write("a", "z")
    assert len(list_files(shop.loaded).data) == 1
    assert "_firn_range" not in {f.name for f in shop.loaded.iceberg.schema().fields}
    shop.afresh(split_points=POINTS)
    shop.write("a", "z")
    shop.check_ranges()


def test_with_a_key_it_happens_once(shop: Shop) -> None:
    shop.write("a")
    first = shop.afresh(idempotency_key="k")
    shop.write("b")
    assert shop.afresh(idempotency_key="k") == first
    assert shop.keys() == ["b"]


def test_writers_that_come_meanwhile_are_before_it_or_after_it(shop: Shop) -> None:
    shop.write("a")
    jobs = []
    for i in range(8):
        request = shop.request("WRITE", records=[{"key": f"k{i}"}])
        jobs.append(shop.firn.app.pipeline.submit(request))
        if i == 3:
            jobs.append(
                shop.firn.app.pipeline.submit(shop.request("REINITIALISE_TABLE", confirm=True, split_points=POINTS))
            )
    wait_until(lambda: all(job.done() for job in jobs), 60)
    assert [job.result().status for job in jobs] == [200] * 9
    shop.check_ranges()

"""A body of any size is merged by key in one commit, as one UPSERT of the same records would be."""

import io
import json
import random
from decimal import Decimal
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from service.writes.bulk.decode import ARROW, CSV, NDJSON, PARQUET
from tests.harness import Firn
from tests.support.marks import thorough_after
from tests.support.tables import TableById

FIELDS = {
    "id": {"type": "long", "required": True},
    "name": {"type": "string"},
    "n": {"type": "integer"},
    "price": {"type": "decimal(8,2)"},
}
COUNTS = ("records_inserted", "records_updated", "records_unchanged")


class Merged(TableById):
    def __init__(self, firn: Firn, tenant: str, name: str = "t", **create: Any) -> None:
        schema = {"fields": FIELDS, "primary_key": ["id"]}
        super().__init__(firn, tenant, name, **{"schema": schema, **create})

    def send(self, body: bytes, kind: str = NDJSON, query: str = "", **headers: str) -> httpx.Response:
        path = f"/tables/{self.tenant}/default/{self.name.table}/records?mode=upsert{query}"
        return self.firn.client.post(path, content=body, headers={"Content-Type": kind, **headers}, timeout=600)

    def merge(self, body: bytes, kind: str = NDJSON, query: str = "", **headers: str) -> dict[str, Any]:
        response = self.send(body, kind, query, **headers)
        answer = self.firn.parsed(response)
        assert answer["success"], answer
        return answer

    def refuse(self, code: str, body: bytes, kind: str = NDJSON, query: str = "") -> dict[str, Any]:
        before = self.state()
        error: dict[str, Any] = self.firn.parsed(self.send(body, kind, query))["error"]
        assert (error["code"], self.state()) == (code, before), error
        return error

    @property
    def commits(self) -> int:
        return len(self.loaded.snapshots())


def ndjson(records: list[dict[str, Any]]) -> bytes:
    return "\n".join(json.dumps(record, default=str) for record in records).encode()


def columns(records: list[dict[str, Any]]) -> pa.Table:
    types = {"id": pa.int64(), "name": pa.string(), "n": pa.int32(), "price": pa.decimal128(8, 2)}
    return pa.table({name: pa.array([r[name] for r in records], types[name]) for name in records[0]})


def body_of(kind: str, records: list[dict[str, Any]]) -> bytes:
    if kind == NDJSON:
        return ndjson(records)
    table = columns(records)
    sink = io.BytesIO()
    if kind == PARQUET:
        pq.write_table(table, sink)
    elif kind == CSV:
        arrow_csv.write_csv(table, sink)
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    return sink.getvalue()


def merged(rows: dict[int, dict[str, Any]], records: list[dict[str, Any]]) -> dict[str, int]:
    """Change the rows as an upsert of the records would; returns its counts."""
    counts = dict.fromkeys(COUNTS, 0)
    for record in records:
        was = rows.get(record["id"])
        after = {**(was or dict.fromkeys(FIELDS)), **record}
        counts["records_inserted" if was is None else f"records_{'unchanged' if was == after else 'updated'}"] += 1
        rows[record["id"]] = after
    return counts


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "price": None if row["price"] is None else Decimal(row["price"])} for row in rows]


@pytest.mark.parametrize("row_level", thorough_after(1, ["merge_on_read", "copy_on_write"]))
def test_random_records_change_the_table_as_they_change_a_dict(firn: Firn, tenant: str, row_level: str) -> None:
    table = Merged(firn, tenant, properties={"row_level": row_level})
    choose = random.Random(row_level)
    rows: dict[int, dict[str, Any]] = {}
    for kind in (ARROW, NDJSON, CSV, NDJSON, PARQUET):
        names = choose.sample(["name", "n", "price"], choose.randrange(1, 4))
        values = {
            "name": lambda: choose.choice(["a", "b", None]),
            "n": lambda: choose.choice([1, 2, None]),
            "price": lambda: choose.choice([Decimal("1.50"), Decimal("2.00"), None]),
        }
        records = [{"id": i, **{name: values[name]() for name in names}} for i in choose.sample(range(30), 15)]
        if kind == NDJSON:  # each record lacks what it lacks
            records = [{k: v for k, v in record.items() if k == "id" or choose.random() < 0.7} for record in records]
        expected, commits = merged(rows, records), table.commits
        done = table.merge(body_of(kind, records), kind)
        assert {name: done[name] for name in COUNTS} == expected
        changes = expected["records_inserted"] + expected["records_updated"]
        assert table.commits - commits == (1 if changes else 0)
        assert shown(table.rows()) == [rows[i] for i in sorted(rows)]


@pytest.mark.thorough
def test_keys_that_occur_twice_are_refused_or_the_last_one_counts(firn: Firn, tenant: str) -> None:
    table = Merged(firn, tenant)
    records = [{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 3}, {"id": 2, "n": 4}, {"id": 1, "n": 5}]
    error = table.refuse("INVALID_RECORD", ndjson(records))
    assert error["details"] == {"record": 3, "first": 1}
    done = table.merge(ndjson(records), query="&on_duplicate=last")
    assert [done[name] for name in COUNTS] == [3, 0, 0]
    assert [row["n"] for row in table.rows()] == [5, 4, 3]


@pytest.mark.thorough
def test_a_new_row_needs_every_required_column_and_an_existing_row_keeps_its_own(firn: Firn, tenant: str) -> None:
    fields = {**FIELDS, "name": {"type": "string", "required": True}}
    table = Merged(firn, tenant, schema={"fields": fields, "primary_key": ["id"]})
    table.write({"id": 1, "name": "x"}, {"id": 2, "name": "x"})
    error = table.refuse("INVALID_RECORD", ndjson([{"id": 1, "n": 1}, {"id": 9, "n": 1}, {"id": 8}]))
    assert error["details"] == {"record": 1}
    error = table.refuse("INVALID_RECORD", ndjson([{"id": 1}, {"id": 2, "name": None}]))
    assert error["details"] == {"line": 2, "record": 1, "field": "name"}
    table.refuse("INVALID_RECORD", b"id,name\n1,\n", CSV)
    assert table.merge(b"id,n\n1,7\n2,8\n", CSV)["records_updated"] == 2
    assert [(row["name"], row["n"]) for row in table.rows()] == [("x", 7), ("x", 8)]


def test_it_is_undone_repeated_and_backed_up_like_an_upsert(firn: Firn, tenant: str) -> None:
    table = Merged(firn, tenant)
    table.write({"id": 1, "n": 1}, {"id": 2, "n": 2})
    before = table.rows()
    key = {"Idempotency-Key": "once"}
    body = ndjson([{"id": 2, "n": 3}, {"id": 3, "n": 3}])
    done = table.merge(body, query="&create_backup=true", **key)
    assert table.merge(body, query="&create_backup=true", **key) == done
    assert table.commits == 2
    newest = table.ok("HISTORY")["snapshots"][0]
    assert (newest["operation"], newest["records_added"], newest["records_updated"]) == ("UPSERT", 1, 1)
    assert [backup["name"] for backup in table.ok("LIST_BACKUPS")["backups"]] == [done["backup"]]
    table.ok("UNDO", request_id=done["metadata"]["request_id"])
    assert table.rows() == before


@pytest.mark.thorough
def test_older_rows_of_a_key_are_replaced_if_asked(firn: Firn, tenant: str) -> None:
    table = Merged(firn, tenant)
    for n in range(3):
        table.write({"id": 1, "n": n, "name": f"{n}"}, {"id": 2, "n": n})
    done = table.merge(b"id,n\n1,9\n2,2\n3,3\n", CSV, "&on_multiple=replace")
    assert [done[name] for name in (*COUNTS, "records_replaced")] == [1, 1, 1, 4]
    assert [(row["id"], row["n"], row["name"]) for row in table.rows()] == [(1, 9, "2"), (2, 2, None), (3, 3, None)]


@pytest.mark.thorough
def test_a_job_has_the_counts_as_its_result(firn: Firn, tenant: str) -> None:
    table = Merged(firn, tenant)
    table.write({"id": 1, "n": 1})
    accepted = table.merge(b"id,n\n1,2\n5,5\n", CSV, "&async=true&key_cols=id")
    job: dict[str, Any] = {}
    while job.get("state") not in ("done", "failed"):
        job = firn.parsed(firn.client.get(f"/jobs/{accepted['job_id']}"))["job"]
    assert [job["result"][name] for name in COUNTS] == [1, 1, 0], job


def test_one_that_is_cancelled_changes_nothing(firn: Firn, tenant: str) -> None:
    table = Merged(firn, tenant)
    table.write({"id": 1, "n": 1})
    table.refuse("DEADLINE_EXCEEDED", b"id,n\n1,2\n", CSV, "&timeout_ms=1")
    assert [row["n"] for row in table.rows()] == [1]


@pytest.mark.thorough
def test_it_merges_into_partitions_and_into_a_table_without_rows(firn: Firn, tenant: str) -> None:
    table = Merged(firn, tenant, partition={"partitions": [{"field": "name"}]})
    rows = b"".join(b"%d,p%d,%d\n" % (i, i % 3, i) for i in range(30))
    assert table.merge(b"id,name,n\n" + rows, CSV)["records_inserted"] == 30
    done = table.merge(b"id,name\n1,p1\n2,p0\n3,p9\n", CSV)
    assert [done[name] for name in COUNTS] == [0, 2, 1]
    assert [(row["name"], row["n"]) for row in table.rows()[:5]] == [
        *(("p0", 0), ("p1", 1), ("p0", 2), ("p9", 3), ("p1", 4))
    ]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?mode=merge", "mode"),
        ("?key_cols=id", "key_cols"),
        ("?mode=upsert&key_cols=", "key_cols"),
        ("?mode=upsert&key_cols=nothing", "key_cols[0]"),
        ("?mode=upsert&on_duplicate=first", "on_duplicate"),
        ("?mode=upsert&on_multiple=last", "on_multiple"),
        ("?mode=upsert&create_backup=1", "create_backup"),
        ("?mode=upsert&create_backup=true&backup_retention_hours=0", "backup_retention_hours"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(firn: Firn, tenant: str, query: str, field: str) -> None:
    table = Merged(firn, tenant)
    path = f"/tables/{tenant}/default/t/records{query}"
    response = firn.client.post(path, content=b"id\n1\n", headers={"Content-Type": CSV})
    assert response.status_code == 400
    assert firn.parsed(response)["error"]["field"] == field
    assert table.rows() == []


@pytest.mark.large
def test_a_million_records_are_merged_into_two_million_rows(firn: Firn, tenant: str) -> None:
    table = Merged(firn, tenant)
    table.bulk_load(body_of(ARROW, [{"id": i, "n": 0} for i in range(2_000_000)]), ARROW)
    records = [{"id": i, "n": i % 2} for i in range(1_500_000, 2_500_000)]
    done = table.merge(body_of(ARROW, records), ARROW)
    assert [done[name] for name in COUNTS] == [500_000, 250_000, 250_000]
    [figures] = firn.ok({"operation": "QUERY", "tenant_id": tenant, "sql": "SELECT count(*) AS c, sum(n) AS n FROM t"})[
        "data"
    ]
    assert (figures["c"], figures["n"]) == (2_500_000, 500_000)

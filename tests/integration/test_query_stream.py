"""QUERY as CSV and as an Arrow stream, on real Spark: every row in order, and nothing left when it is over."""

import http.client
import itertools
import json
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.catalog.tables import Catalog
from service.commits.holds import SnapshotHolds
from service.engine.session.conf import spool
from service.engine.session.rows import arrow_schema, json_rows
from service.model import wire
from service.model.names import TableName
from service.model.schema.definition import describe_schema
from service.model.schema.types import Field, Primitive, TableSchema
from tests.contract import rich
from tests.harness import Firn, wait_until
from tests.strategies import json_text, records, schemas
from tests.support.clients import computing
from tests.support.marks import thorough_after
from tests.unit.queries.test_stream_csv import as_json, cells

ARROW = "application/vnd.apache.arrow.stream"
CSV = "text/csv"
FILES, EACH = 6, 50_000
ROWS = FILES * EACH
TENANT = "streams"
_tables = itertools.count(1)


def asked(tenant: str, accept: str, **query: Any) -> dict[str, Any]:
    content = wire.render({"operation": "QUERY", "tenant_id": tenant, **query})
    return {"content": content, "headers": {"Accept": accept}}


def arrow(firn: Firn, tenant: str, **query: Any) -> pa.Table:
    answer = firn.client.post("/database", **asked(tenant, ARROW, **query))
    assert (answer.status_code, answer.headers["content-type"]) == (200, ARROW), answer.text
    table = pa.ipc.open_stream(answer.content).read_all()
    table.validate(full=True)
    return table


def csv(firn: Firn, tenant: str, **query: Any) -> list[list[str | None]]:
    answer = firn.client.post("/database", **asked(tenant, CSV, **query))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/csv; charset=utf-8"), answer.text
    return cells(answer.content)


def refused(firn: Firn, tenant: str, accept: str = CSV, **query: Any) -> tuple[int, str, str | None]:
    answer = firn.client.post("/database", **asked(tenant, accept, **query))
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    return answer.status_code, error["code"], error.get("field")


@pytest.fixture(scope="module")
def big(firn: Firn) -> dict[str, Any]:
    """A table of 300,000 rows, in files that Spark reads as a part of the answer each."""
    fields = {"id": {"type": "long", "required": True}, "name": {"type": "string"}, "group": {"type": "integer"}}
    address = {"tenant_id": TENANT, "table": "big"}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": {"fields": fields}})
    name = firn.app.parts[Catalog].load(TableName(TENANT, "default", "big")).spark_name

    def fill(session: Any) -> None:
        session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('read.split.open-file-cost' = '134217728')")
        session.sql(
            f"INSERT INTO {name} SELECT id, concat('name ', id), CAST(id % 10 AS INT) FROM range(0, {ROWS}, 1, {FILES})"
        )

    firn.app.engine.run(fill)
    return address


@pytest.fixture
def nothing_left(firn: Firn) -> Iterator[None]:
    """After the test no session is lent, no snapshot held and no file of an answer or a shuffle left by it."""
    before = spooled(firn)
    yield
    wait_until(lambda: not firn.app.pipeline.busy, 20)
    wait_until(lambda: len(firn.app.engine._idle) == firn.app.settings.spark.sessions, 20)
    holds, table = firn.app.parts[SnapshotHolds], firn.app.parts[Catalog].load(TableName(TENANT, "default", "big"))
    assert holds.held(table.uuid) == set()
    wait_until(lambda: not spooled(firn) - before, 20)


def spooled(firn: Firn) -> set[str]:
    found = spool(firn.home).rglob("*")
    return {path.name for path in found if path.name.startswith(("rdd_", "shuffle_"))}


@pytest.mark.parametrize("examples", thorough_after(1, [2, 8]))
def test_every_type_reads_as_in_json_and_has_the_tables_arrow_type(firn: Firn, tenant: str, examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        drawn = data.draw(schemas(max_columns=4))
        schema = TableSchema((Field("row number", Primitive("long"), True), *drawn.fields))
        sent = [{"row number": i, **row} for i, row in enumerate(data.draw(records(drawn, min_size=1)))]
        address = {"tenant_id": tenant, "table": f"types-{next(_tables)}"}
        firn.ok({"operation": "CREATE_TABLE", **address, "schema": describe_schema(schema)})
        assert firn.post(json_text({"operation": "WRITE", **address, "records": sent}))["success"]
        query = {"table": address["table"], "sort": "row number"}
        rows = orjson.loads(firn.send({"operation": "QUERY", "tenant_id": tenant, **query}).content)["data"]
        table = arrow(firn, tenant, **query)
        assert orjson.loads(wire.render(json_rows(table))) == rows
        assert table.schema == arrow_schema(schema)
        header, *lines = csv(firn, tenant, **query)
        assert header == [field.name for field in schema.fields]
        assert lines == [[as_json(value) for value in row.values()] for row in rows]

    holds()


def test_the_arrow_stream_holds_what_pyiceberg_reads(firn: Firn, tenant: str) -> None:
    for request in rich.GIVEN:
        firn.ok({**request, "tenant_id": tenant})
    expected = firn.app.parts[Catalog].load(TableName(tenant, "default", "rich")).iceberg.scan().to_arrow()
    got = arrow(firn, tenant, table="rich", sort="id")
    for name in expected.column_names:
        column = expected.sort_by("id")[name].to_pylist()
        if name == "key":  # Spark has no type for it
            column = [None if value is None else str(value) for value in column]
        assert str(got[name].to_pylist()) == str(column), name


def test_there_is_no_row_limit_and_the_snapshot_is_named(firn: Firn, big: dict[str, Any], nothing_left: None) -> None:
    answer = firn.client.post("/database", **asked(TENANT, CSV, table="big", projection=["id"]))
    assert answer.content.count(b"\r\n") == ROWS + 1
    table = firn.app.parts[Catalog].load(TableName(TENANT, "default", "big"))
    assert answer.headers["x-firn-snapshot-id"] == str(table.current_snapshot_id)
    assert answer.headers["x-request-id"]
    assert sorted(arrow(firn, TENANT, table="big")["id"].to_pylist()) == list(range(ROWS))


@pytest.mark.parametrize(
    ("query", "expected"),
    thorough_after(
        1,
        [
            ({"sort": "id", "limit": 150_000, "offset": 100_001}, range(100_001, 250_001)),
            ({"sort": "id", "offset": 299_990}, range(299_990, ROWS)),
            ({"sort": "id", "limit": 5, "offset": 7}, range(7, 12)),
            ({"sort": "id", "limit": 2_000_000_000, "offset": 2_000_000_000}, range(0)),
            ({"sort": {"field": "id", "order": "desc"}}, range(ROWS - 1, -1, -1)),
            ({"sort": "id", "limit": 150_000}, range(150_000)),
        ],
    ),
)
def test_rows_come_in_the_order_of_sort_cut_as_asked(
    firn: Firn, big: dict[str, Any], nothing_left: None, query: dict[str, Any], expected: range
) -> None:
    assert arrow(firn, TENANT, table="big", projection=["id"], **query)["id"].to_pylist() == list(expected)


@pytest.mark.parametrize(
    ("sql", "beside", "expected"),
    thorough_after(
        3,
        [
            ("SELECT id FROM big ORDER BY id DESC", {}, range(ROWS - 1, -1, -1)),
            (
                "SELECT id FROM big ORDER BY id LIMIT 200000 OFFSET 7",
                {"offset": 3, "limit": 150_000},
                range(10, 150_010),
            ),
            ("SELECT id FROM big ORDER BY id LIMIT :n", {"params": {"n": 3}}, range(3)),
            ("SELECT id FROM big ORDER BY id DESC LIMIT 200000", {}, range(ROWS - 1, ROWS - 200_001, -1)),
            ("WITH b AS (SELECT id FROM big) SELECT id FROM b ORDER BY id LIMIT 200000", {}, range(200_000)),
            (
                "SELECT id FROM (SELECT id FROM big ORDER BY id LIMIT 120000) ORDER BY id DESC",
                {},
                range(119_999, -1, -1),
            ),
        ],
    ),
)
def test_rows_of_sql_come_in_its_order(
    firn: Firn, big: dict[str, Any], nothing_left: None, sql: str, beside: dict[str, Any], expected: range
) -> None:
    assert arrow(firn, TENANT, sql=sql, **beside)["id"].to_pylist() == list(expected)


@pytest.mark.thorough
def test_groups_and_joins_stream_too(firn: Firn, big: dict[str, Any], nothing_left: None) -> None:
    query = {"table": "big", "group_by": ["group"], "aggregations": [{"op": "count"}], "sort": "group"}
    assert csv(firn, TENANT, **query) == [["group", "count"], *([str(i), "30000"] for i in range(10))]
    joined = arrow(
        firn, TENANT, table="big", join={"table": "big", "alias": "o", "on": "id"}, projection=["big.id", "o.name"]
    )
    assert (joined.column_names, joined.num_rows) == (["big.id", "o.name"], ROWS)


def test_without_rows_there_are_still_the_columns(firn: Firn, big: dict[str, Any], nothing_left: None) -> None:
    none = {"table": "big", "filter": {"id": -1}}
    assert csv(firn, TENANT, **none) == [["id", "name", "group"]]
    table = arrow(firn, TENANT, **none)
    assert (table.num_rows, table.column_names) == (0, ["id", "name", "group"])
    firn.ok(
        {
            "operation": "CREATE_TABLE",
            "tenant_id": TENANT,
            "table": "empty",
            "schema": {"fields": {"a": {"type": "long"}}},
        }
    )
    assert csv(firn, TENANT, table="empty") == [["a"]]


def test_what_is_refused_is_refused_in_json(firn: Firn, big: dict[str, Any], nothing_left: None) -> None:
    assert refused(firn, TENANT, table="none") == (404, "TABLE_NOT_FOUND", "table")
    assert refused(firn, TENANT, table="big", sort="none")[:2] == (400, "UNKNOWN_FIELD")
    assert refused(firn, TENANT, sql="SELECT 1 / (id - 7) AS x FROM big") == (400, "INVALID_QUERY", "sql")
    assert refused(firn, TENANT, sql="SELECT CAST(unhex('ff') AS STRING) AS t FROM big") == (
        400,
        "INVALID_QUERY",
        "sql",
    )
    assert refused(firn, TENANT, sql="SELECT make_ym_interval(1, 2) AS i FROM big") == (400, "INVALID_QUERY", "sql")
    assert refused(firn, TENANT, "text/html", table="big") == (400, "INVALID_REQUEST", "Accept")


@pytest.mark.thorough
def test_the_limit_of_100_000_binds_json(firn: Firn, big: dict[str, Any]) -> None:
    for accept in ("", "*/*", "application/json", "application/json, text/csv"):
        assert refused(firn, TENANT, accept, table="big", limit=100_001) == (400, "INVALID_REQUEST", "limit")
    assert len(firn.rows(TENANT, "big", limit=100_000)) == 100_000
    assert len(csv(firn, TENANT, table="big", projection=["id"], limit=100_001)) == 100_002
    assert refused(firn, TENANT, table="big", limit=0)[2] == "limit"


def test_what_has_no_rows_to_stream_answers_in_json(firn: Firn, big: dict[str, Any]) -> None:
    plan = firn.client.post("/database", **asked(TENANT, CSV, table="big", explain=True))
    assert "BatchScan" in plan.json()["plan"]
    listed = firn.client.post(
        "/database",
        content=wire.render({"operation": "LIST_TABLES", "tenant_id": TENANT}),
        headers={"Accept": "text/html"},
    )
    assert listed.json()["success"] is True
    query = {"operation": "QUERY", "tenant_id": TENANT, "table": "big", "limit": 1}
    event = {"httpMethod": "POST", "path": "/database", "headers": {"Accept": CSV}, "body": json.dumps(query)}
    assert json.loads(firn.event(event)["body"])["metadata"]["row_count"] == 1


def test_http_1_0_cannot_tell_a_broken_answer_and_gets_none(firn: Firn, big: dict[str, Any]) -> None:
    body = asked(TENANT, CSV, table="big")["content"]
    url = httpx.URL(firn.base_url)
    with closing(socket.create_connection((url.host, url.port), 10)) as connection:
        head = f"POST /database HTTP/1.0\r\nAccept: {CSV}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, json.loads(answer.read())["error"]["field"]) == (400, "Accept")


@pytest.mark.parametrize("accept", thorough_after(1, [CSV, ARROW]))
def test_a_failure_after_the_first_byte_breaks_the_connection(
    firn: Firn, big: dict[str, Any], nothing_left: None, accept: str
) -> None:
    # Only the last file has this row, and it is not read before the first ones are sent.
    query = asked(TENANT, accept, sql=f"SELECT id, 1 / (id - {ROWS - 1}) AS x, name FROM big")
    with firn.client.stream("POST", "/database", **query) as answer:
        assert answer.status_code == 200
        pieces = answer.iter_raw()
        assert next(pieces)
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
    asked_again = urllib.request.Request(f"{firn.base_url}/database", query["content"], {"Accept": accept})
    with urllib.request.urlopen(asked_again) as plain, pytest.raises(http.client.IncompleteRead):
        plain.read()


def test_when_its_client_goes_all_that_worked_for_it_ends(firn: Firn, big: dict[str, Any], nothing_left: None) -> None:
    # A second of work for each part: the query could not end by itself as soon.
    slow = "SELECT id, name, repeat(name, 200) AS long FROM big"
    with firn.client.stream("POST", "/database", **asked(TENANT, CSV, sql=slow)) as answer:
        pieces = answer.iter_raw()
        next(pieces)
        assert firn.app.pipeline.busy
        assert any(name.startswith("rdd_") for name in spooled(firn))


@pytest.mark.thorough
def test_a_client_that_goes_before_the_first_byte_ends_its_query(
    firn: Firn, big: dict[str, Any], nothing_left: None
) -> None:
    # 300 million rows to group: more than a minute.
    long = "SELECT a.id, max(b.name) AS n FROM big a JOIN big b ON a.id % 300 = b.id % 300 GROUP BY a.id"
    with computing(firn, {"operation": "QUERY", "tenant_id": TENANT, "sql": long}, accept=CSV):
        pass
    # Its cores are free again.
    started = time.monotonic()
    assert len(firn.rows(TENANT, "big", filter={"id": 1})) == 1
    assert time.monotonic() - started < 20


def test_a_slow_client_holds_its_snapshot_and_no_session(firn: Firn, big: dict[str, Any], tenant: str) -> None:
    holds, table = firn.app.parts[SnapshotHolds], firn.app.parts[Catalog].load(TableName(TENANT, "default", "big"))
    with firn.client.stream("POST", "/database", **asked(TENANT, ARROW, table="big", sort="id")) as answer:
        pieces = answer.iter_bytes()
        start = next(pieces)
        assert len(firn.app.engine._idle) == firn.app.settings.spark.sessions
        assert holds.held(table.uuid) == {table.current_snapshot_id}
        firn.ok({"operation": "DELETE", "tenant_id": TENANT, "table": "big", "filter": {"id": {"gte": ROWS - 5}}})
        restored = [{"id": i, "name": f"name {i}", "group": i % 10} for i in range(ROWS - 5, ROWS)]
        whole = start + b"".join(pieces)
    firn.ok({"operation": "WRITE", "tenant_id": TENANT, "table": "big", "records": restored})
    assert pa.ipc.open_stream(whole).read_all()["id"].to_pylist() == list(range(ROWS))


@pytest.mark.thorough
def test_pyarrow_reads_batch_by_batch_off_the_wire(firn: Firn, big: dict[str, Any], nothing_left: None) -> None:
    query = asked(TENANT, ARROW, table="big", projection=["id"], sort="id")
    request = urllib.request.Request(f"{firn.base_url}/database", query["content"], {"Accept": ARROW})
    with urllib.request.urlopen(request) as answer, pa.ipc.open_stream(answer) as batches:
        ids = [value for batch in batches for value in batch["id"].to_pylist()]
    assert ids == list(range(ROWS))

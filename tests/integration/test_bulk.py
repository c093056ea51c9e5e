"""Bodies of any size become one commit or none, in the three forms they come in, and leave nothing behind."""

import itertools
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.catalog.files.data_files import list_files
from service.catalog.files.staging import Staging, remove_leftovers
from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.engine.session.java import java_class
from service.engine.session.rows import to_arrow
from service.model.names import TableName
from service.model.records import read_records
from service.model.schema.definition import describe_schema
from service.model.schema.partition import parse_partition
from service.model.schema.types import Field, Primitive, TableSchema
from service.writes.bulk.decode import ARROW, CSV, NDJSON
from service.writes.bulk.load import Bulk
from service.writes.bulk.target import target_schema
from tests.faults.process import Process
from tests.harness import Firn, wait_until
from tests.strategies import json_text, partitions, records, same, schemas
from tests.support.clients import active_stages

PEOPLE = {"fields": {"id": {"type": "long", "required": True}, "name": {"type": "string"}, "at": {"type": "timestamp"}}}
_tables = itertools.count(1)


def create(firn: Firn, tenant: str, table: str = "t", schema: dict[str, Any] = PEOPLE, **fields: Any) -> None:
    firn.ok({"operation": "CREATE_TABLE", "tenant_id": tenant, "table": table, "schema": schema, **fields})


def load(
    firn: Firn, tenant: str, content: Any, kind: str = NDJSON, table: str = "t", query: str = "", **headers: str
) -> httpx.Response:
    path = f"/tables/{tenant}/default/{table}/records{query}"
    return firn.client.post(path, content=content, headers={"Content-Type": kind, **headers})


def loaded(firn: Firn, *args: Any, **kwargs: Any) -> dict[str, Any]:
    response = load(firn, *args, **kwargs)
    body = firn.parsed(response)
    assert (response.status_code, body["success"]) == (200, True), body
    return body


def refused(firn: Firn, code: str, status: int, *args: Any, **kwargs: Any) -> dict[str, Any]:
    response = load(firn, *args, **kwargs)
    body = firn.parsed(response)
    assert (response.status_code, body.get("error", {}).get("code")) == (status, code), body
    error: dict[str, Any] = body["error"]
    return error


def stream(table: pa.Table, rows: int = 65_536) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    raw: bytes = sink.getvalue().to_pybytes()
    return raw


def numbers(count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(count)), "name": pa.array([f"n{i % 97}" for i in range(count)])})


def kept(firn: Firn, tenant: str, table: str = "t") -> Table:
    return firn.app.parts[Catalog].load(TableName(tenant, "default", table))


def history(firn: Firn, tenant: str, table: str = "t") -> list[Any]:
    return kept(firn, tenant, table).snapshots()


def files(firn: Firn, tenant: str) -> list[Path]:
    """What is on disk, whether or not a snapshot holds it."""
    return list(Path(kept(firn, tenant).location.removeprefix("file://")).rglob("*.parquet"))


def staged(firn: Firn) -> list[str]:
    """What loads have under the warehouse, on disk and in the catalog."""
    kept = firn.app.parts[Catalog].list_tables("_firn", "bulk")
    return [*kept, *(str(path) for path in firn.home.glob("warehouse/_firn__bulk/**/*.parquet"))]


def ids(firn: Firn, tenant: str, table: str = "t") -> list[int]:
    return sorted(row["id"] for row in firn.rows(tenant, table, projection=["id"]))


class Slow:
    """A body that begins and then waits to be let go on."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        yield self._parts[0]
        self.begun.set()
        assert self.go_on.wait(60)
        yield from self._parts[1:]


class Sending:
    """A load that another thread sends. When it is made, the service has taken the load on, or refused it."""

    def __init__(self, firn: Firn, tenant: str, body: Slow, **kwargs: Any) -> None:
        self.body = body
        bulk = firn.app.parts[Bulk]
        before = bulk.under_way
        self._client = Firn(firn.base_url)
        self._thread = threading.Thread(target=self._send, args=(tenant,), kwargs=kwargs, daemon=True)
        self._thread.start()
        assert body.begun.wait(60)
        wait_until(lambda: bulk.under_way > before or not self._thread.is_alive(), 60, every=0.01)

    def _send(self, tenant: str, **kwargs: Any) -> None:
        self._response = load(self._client, tenant, iter(self.body), **kwargs)

    def finish(self) -> httpx.Response:
        self.body.go_on.set()
        self._thread.join(60)
        self._client.client.close()
        return self._response


@pytest.fixture(autouse=True)
def _leaves_nothing(firn: Firn) -> Iterator[None]:
    yield
    wait_until(lambda: staged(firn) == [], 60)


ANN_AND_NOBODY = {"name": ["Ann", None], "id": [1, 2]}


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (NDJSON, b'{"id": 1, "name": "Ann", "at": "2024-01-01T00:00:00"}\n\n{"name": null, "id": 2}\n'),
        (CSV, b"at,name,id\n2024-01-01T00:00:00,Ann,1\n,,2\n"),
        (ARROW, stream(pa.table({"at": pa.array([1_704_067_200, None], pa.timestamp("s")), **ANN_AND_NOBODY}))),
    ],
    ids=["ndjson", "csv", "arrow"],
)
def test_each_form_says_the_same(firn: Firn, tenant: str, kind: str, content: bytes) -> None:
    create(firn, tenant)
    answer = loaded(firn, tenant, content, kind)
    [snapshot] = history(firn, tenant)
    assert {k: v for k, v in answer.items() if k != "metadata"} == {
        "success": True,
        "records_written": 2,
        "compaction_recommended": False,
    }
    assert answer["metadata"]["snapshot_id"] == str(snapshot.snapshot_id)
    assert answer["metadata"]["batch"] == {"requests": 1, "records": 2}
    assert firn.rows(tenant, "t", sort=["id"]) == [
        {"id": 1, "name": "Ann", "at": "2024-01-01T00:00:00"},
        {"id": 2, "name": None, "at": None},
    ]


@settings(
    max_examples=6,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(st.data(), st.booleans())
def test_every_type_in_any_partitioning_is_read_back_equal(
    firn: Firn, tenant: str, data: st.DataObject, arrow: bool
) -> None:
    schema = data.draw(schemas(max_columns=4).filter(lambda s: "row number" not in s.names))
    by = data.draw(partitions(schema))
    assert len(parse_partition(by, schema)) == len(by["partitions"])
    numbered = TableSchema((Field("row number", Primitive("long"), True), *schema.fields))
    sent = [{"row number": i, **row} for i, row in enumerate(data.draw(records(schema, min_size=1)))]
    name = f"types-{next(_tables)}"
    create(firn, tenant, name, describe_schema(numbered), partition=by)
    if arrow:
        content, kind = stream(to_arrow(numbered, read_records(numbered, sent)), 3), ARROW
    else:
        content, kind = "\n".join(map(json_text, sent)).encode(), NDJSON
    assert loaded(firn, tenant, content, kind, name)["records_written"] == len(sent)
    got = firn.rows(tenant, name, sort=[{"field": "row number"}])
    assert same(read_records(numbered, got), read_records(numbered, sent))


def test_a_load_is_one_commit_of_few_files_a_partition(firn: Firn, tenant: str) -> None:
    by = {"partitions": [{"field": "id", "transform": "bucket", "num_buckets": 5, "name": "b"}]}
    create(firn, tenant, partition=by)
    assert loaded(firn, tenant, stream(numbers(300_000)), ARROW)["records_written"] == 300_000
    [snapshot] = history(firn, tenant)
    assert snapshot.counted("added-records") == 300_000
    made = list_files(kept(firn, tenant)).data
    assert len({file.group for file in made}) == 5
    assert len(made) <= 10
    asked = [{"op": "count"}, {"op": "sum", "field": "id"}]
    [counted] = firn.ok({"operation": "QUERY", "tenant_id": tenant, "table": "t", "aggregations": asked})["data"]
    assert sorted(counted.values()) == [300_000, 300_000 * 299_999 // 2]


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        (NDJSON, b'{"id": 1}\n' * 50_000 + b'{"id": "x"}\n', "line 50001: id: 'x' is not a long"),
        (CSV, b"id\n" + b"1\n" * 400_000 + b"x\n", "line 400002: id: 'x' is not a long"),
        (ARROW, stream(numbers(200_000))[:-2000], "not a whole Arrow IPC stream"),
    ],
    ids=["ndjson", "csv", "arrow"],
)
def test_one_record_that_does_not_fit_refuses_all(
    firn: Firn, tenant: str, kind: str, content: bytes, said: str
) -> None:
    create(firn, tenant)
    code = "INVALID_REQUEST" if kind == ARROW else "INVALID_RECORD"
    assert said in refused(firn, code, 400, tenant, content, kind)["message"]
    assert history(firn, tenant) == []
    assert staged(firn) == []


def test_a_refusal_reaches_a_client_that_still_sends(firn: Firn, tenant: str) -> None:
    create(firn, tenant)

    def body() -> Iterator[bytes]:
        yield b'{"id": "x"}\n'
        for _ in range(200):
            yield b'{"id": 1}\n' * 10_000

    assert refused(firn, "INVALID_RECORD", 400, tenant, body())["details"]["line"] == 1


def test_nothing_to_write_commits_nothing(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    for kind, content in ((NDJSON, b""), (CSV, b"id\n"), (ARROW, stream(numbers(0)))):
        answer = loaded(firn, tenant, content, kind)
        assert (answer["records_written"], "batch" in answer["metadata"]) == (0, False)
    assert history(firn, tenant) == []


@pytest.mark.parametrize(
    ("code", "status", "said", "how"),
    [
        ("INVALID_REQUEST", 400, "Content-Type is 'application/json'", {"kind": "application/json"}),
        ("INVALID_REQUEST", 400, "Content-Encoding is 'gzip'", {"Content-Encoding": "gzip"}),
        ("INVALID_REQUEST", 400, "did you mean async?", {"query": "?asyn=true"}),
        ("INVALID_REQUEST", 400, "async is 'yes'", {"query": "?async=yes"}),
        ("INVALID_REQUEST", 400, "timeout_ms is '1s'", {"query": "?timeout_ms=1s"}),
        ("INVALID_REQUEST", 400, "timeout_ms is '0'", {"query": "?timeout_ms=0"}),
        ("INVALID_REQUEST", 400, "cancel its job", {"query": "?async=true&timeout_ms=10"}),
        ("INVALID_REQUEST", 400, "mode is 'overwrite'", {"query": "?mode=overwrite"}),
        ("INVALID_REQUEST", 400, "Idempotency-Key has 201 characters", {"Idempotency-Key": "k" * 201}),
        ("INVALID_REQUEST", 400, "table: '_x' is not a name", {"table": "_x"}),
        ("TABLE_NOT_FOUND", 404, "there is no table 'tt'", {"table": "tt"}),
    ],
)
def test_what_a_request_says_beside_its_body_is_checked(
    firn: Firn, tenant: str, code: str, status: int, said: str, how: dict[str, str]
) -> None:
    create(firn, tenant)
    assert said in refused(firn, code, status, tenant, b'{"id": 1}', **how)["message"]
    assert history(firn, tenant) == []


def test_a_load_is_cancelled_at_its_deadline_and_leaves_nothing(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    error = refused(firn, "DEADLINE_EXCEEDED", 504, tenant, b'{"id": 1}\n', query="?timeout_ms=1")
    assert "timeout_ms" in error["message"]
    assert firn.rows(tenant, "t") == []
    assert loaded(firn, tenant, b'{"id": 1}\n', query="?timeout_ms=600000")["records_written"] == 1


def test_firns_own_tables_cannot_be_named(firn: Firn) -> None:
    assert "tenant_id: '_firn' is not a name" in refused(firn, "INVALID_REQUEST", 400, "_firn", b"")["message"]


def test_the_records_route_takes_post_and_the_job_route_get_and_delete(firn: Firn, tenant: str) -> None:
    read, posted = firn.client.get(f"/tables/{tenant}/default/t/records"), firn.client.post("/jobs/x")
    assert (read.status_code, posted.status_code) == (405, 405)
    assert "takes POST, not GET" in firn.parsed(read)["error"]["message"]
    assert "takes GET and DELETE, not POST" in firn.parsed(posted)["error"]["message"]


def test_a_load_counts_as_one_write(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    counts = [loaded(firn, tenant, stream(numbers(1000)), ARROW).get("small_files_count") for _ in range(5)]
    assert counts[:4] == [None] * 4
    assert counts[4] >= 5


def test_a_job_tells_of_a_load_in_the_background(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    response = load(firn, tenant, stream(numbers(100_000)), ARROW, query="?async=true")
    answer = firn.parsed(response)
    assert (response.status_code, answer["status_url"]) == (202, f"/jobs/{answer['job_id']}")
    seen: list[dict[str, Any]] = []

    def ended() -> bool:
        seen.append(firn.parsed(firn.client.get(answer["status_url"]))["job"])
        return seen[-1]["state"] != "running"

    wait_until(ended, 60, every=0.02)
    job = seen[-1]
    assert (job["state"], job["kind"], job["progress"]["records"]) == ("done", "BULK", 100_000)
    assert job["result"]["records_written"] == 100_000
    assert job["result"]["metadata"]["request_id"] == answer["metadata"]["request_id"]
    assert job["result"]["metadata"]["snapshot_id"] == str(history(firn, tenant)[0].snapshot_id)
    assert {"staged", "writing", "committing", "done"} >= {s["progress"]["phase"] for s in seen}
    assert firn.client.get("/jobs/none").status_code == 404


def test_a_job_whose_table_is_dropped_fails_and_says_so(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    body = Slow(b'{"id": 1}\n', b'{"id": 2}\n')
    sending = Sending(firn, tenant, body, query="?async=true")
    wait_until(lambda: firn.app.parts[Bulk].under_way > 0, 30)  # it has found its table
    firn.ok({"operation": "DROP_TABLE", "tenant_id": tenant, "table": "t"})
    answer = firn.parsed(sending.finish())

    def job() -> dict[str, Any]:
        found: dict[str, Any] = firn.parsed(firn.client.get(answer["status_url"]))["job"]
        return found

    wait_until(lambda: job()["state"] != "running", 30)
    assert (job()["state"], job()["error"]["code"]) == ("failed", "TABLE_NOT_FOUND")


def test_a_job_that_is_cancelled_before_its_commit_leaves_nothing_behind(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    with firn.app.parts[Commits].locks.hold(kept(firn, tenant).uuid):
        url = firn.parsed(load(firn, tenant, stream(numbers(1000)), ARROW, query="?async=true"))["status_url"]

        def job() -> dict[str, Any]:
            found: dict[str, Any] = firn.parsed(firn.client.get(url))["job"]
            return found

        wait_until(lambda: job()["progress"]["phase"] == "committing", 30)
        result = firn.parsed(firn.client.delete(url))["job"]
        assert (result["state"], result["cancelling"]) == ("running", True)
    wait_until(lambda: job()["state"] != "running", 30)
    assert (job()["state"], job()["error"]["code"], "cancelling" in job()) == ("cancelled", "CANCELLED", False)
    assert firn.parsed(firn.client.delete(url))["job"] == job()
    wait_until(lambda: staged(firn) == [], 60)
    assert (history(firn, tenant), files(firn, tenant)) == ([], [])
    loaded(firn, tenant, b'{"id": 7}\n')


def test_a_job_that_is_done_stays_done_when_it_is_cancelled(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    url = firn.parsed(load(firn, tenant, b'{"id": 7}\n', query="?async=true"))["status_url"]
    wait_until(lambda: firn.parsed(firn.client.get(url))["job"]["state"] == "done", 30)
    assert firn.parsed(firn.client.delete(url))["job"]["state"] == "done"
    assert ids(firn, tenant) == [7]
    assert firn.client.delete("/jobs/none").status_code == 404


def test_what_is_wrong_with_a_body_is_said_at_once_also_in_the_background(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    refused(firn, "INVALID_RECORD", 400, tenant, b'{"id": "x"}', query="?async=true")


def test_one_load_too_many_is_refused_at_once_and_there_is_room_again_after(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    most = firn.app.parts[Bulk]._room.at_most
    under_way = [Sending(firn, tenant, Slow(b'{"id": %d}\n' % i, b"")) for i in range(most)]
    # Not by asking for a place: who asks has one for a moment, and one of these would find none.
    wait_until(lambda: firn.app.parts[Bulk].under_way == most, 60)
    started = time.monotonic()
    response = load(firn, tenant, b'{"id": 7}\n')
    assert time.monotonic() - started < 1
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    assert firn.parsed(response)["error"]["code"] == "TOO_MANY_REQUESTS"
    assert [sending.finish().status_code for sending in under_way] == [200] * most
    loaded(firn, tenant, b'{"id": 7}\n')
    assert ids(firn, tenant) == [*range(most), 7]


def test_writes_do_not_wait_for_a_body(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    sending = Sending(firn, tenant, Slow(b'{"id": 1}\n', b'{"id": 2}\n'))
    firn.ok({"operation": "WRITE", "tenant_id": tenant, "table": "t", "records": [{"id": 3}]})
    assert ids(firn, tenant) == [3]
    assert sending.finish().status_code == 200
    assert ids(firn, tenant) == [1, 2, 3]


def test_a_client_that_vanishes_has_written_nothing_and_is_logged(
    firn: Firn, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "firn.bulk")
    create(firn, tenant)
    address = httpx.URL(firn.base_url)
    for declared in ("Content-Length: 5000000", "Transfer-Encoding: chunked"):
        with socket.create_connection((address.host, address.port or 80)) as connection:
            head = (
                f"POST /tables/{tenant}/default/t/records HTTP/1.1\r\nHost: x\r\nContent-Type: {NDJSON}\r\n{declared}"
            )
            rows = b'{"id": 1}\n' * 200_000
            sent = rows if "Length" in declared else b"%x\r\n%s\r\n" % (len(rows), rows)
            connection.sendall(head.encode() + b"\r\n\r\n" + sent)
            wait_until(lambda: staged(firn) != [], 60)
        wait_until(lambda: staged(firn) == [], 60)
    assert history(firn, tenant) == []
    wait_until(lambda: caplog.text.count("aborted: its client disconnected during the upload") == 2, 60)
    wait_until(lambda: load(firn, tenant, b'{"id": 1}\n').status_code == 200, 60)


def test_a_table_that_another_took_the_place_of_gets_nothing(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    sending = Sending(firn, tenant, Slow(b'{"id": 1}\n', b'{"id": 2}\n'))
    firn.ok({"operation": "DROP_TABLE", "tenant_id": tenant, "table": "t"})
    create(firn, tenant)
    assert firn.parsed(sending.finish())["error"]["code"] in ("COMMIT_CONFLICT", "TABLE_NOT_FOUND")
    assert history(firn, tenant) == []
    assert files(firn, tenant) == []


def test_a_schema_that_changed_meanwhile_is_a_conflict_and_leaves_no_files(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    sending = Sending(firn, tenant, Slow(b'{"id": 1}\n', b'{"id": 2}\n'))
    with kept(firn, tenant).iceberg.update_schema() as change:
        change.rename_column("name", "called")
    error = firn.parsed(sending.finish())["error"]
    assert (error["code"], error["retryable"]) == ("COMMIT_CONFLICT", True)
    assert history(firn, tenant) == []
    assert files(firn, tenant) == []


def test_the_same_key_and_body_have_one_effect_and_one_answer(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    key = {"Idempotency-Key": "k1"}
    first = load(firn, tenant, b'{"id": 1}\n', **key)
    assert load(firn, tenant, iter([b'{"id"', b": 1}\n"]), **key).content == first.content
    refused(firn, "KEY_REUSED", 422, tenant, b'{"id": 2}\n', **key)
    refused(firn, "KEY_REUSED", 422, tenant, b"id\n1\n", CSV, **key)
    in_background = {"query": "?async=true", "Idempotency-Key": "k2"}
    jobs = {firn.parsed(load(firn, tenant, b'{"id": 3}\n', **in_background))["job_id"] for _ in range(3)}
    assert len(jobs) == 1
    wait_until(lambda: len(history(firn, tenant)) == 2, 30)
    assert ids(firn, tenant) == [1, 3]


def test_a_key_of_a_refused_load_is_free(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    refused(firn, "INVALID_RECORD", 400, tenant, b'{"id": "x"}\n', **{"Idempotency-Key": "k"})
    loaded(firn, tenant, b'{"id": 1}\n', **{"Idempotency-Key": "k"})


def test_equal_loads_with_one_key_at_once_have_one_effect(firn: Firn, tenant: str) -> None:
    create(firn, tenant)
    sending = [
        Sending(firn, tenant, Slow(b'{"id": 1}\n', b'{"id": 2}\n'), **{"Idempotency-Key": "both"}) for _ in range(2)
    ]
    for one in sending:
        one.body.go_on.set()
    answers = [one.finish() for one in sending]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    assert ids(firn, tenant) == [1, 2]


def test_what_a_crash_left_is_swept(firn: Firn) -> None:
    schema = TableSchema((Field("id", Primitive("long")),))
    left = Staging(firn.app.parts[Catalog], schema, target_schema(schema))
    left.write(pa.record_batch({"id": [1, 2]}, target_schema(schema)))
    left.finish()
    assert len(staged(firn)) == 2
    remove_leftovers(firn.app.parts[Catalog])
    assert staged(firn) == []


# It makes 2.5 GB of rows and sends them, in a process of its own.
_CLIENT = """
import sys, httpx, pyarrow as pa
rows = 50_000
batch = pa.record_batch({"id": pa.array(range(rows)), "name": pa.array([f"name-{i}" * 3 for i in range(rows)])})
class Sink:
    closed = False
    parts = []
    def write(self, data): self.parts.append(bytes(data)); return len(data)
    def flush(self): pass
    def close(self): pass
def body():
    sink = Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), batch.schema) as writer:
        for _ in range(int(sys.argv[2]) // batch.nbytes):
            writer.write_batch(batch)
            yield b"".join(sink.parts)
            sink.parts.clear()
    yield b"".join(sink.parts)
headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
print(httpx.post(sys.argv[1], content=body(), headers=headers, timeout=600).text)
"""


def resident_mb(process: int) -> int:
    status = (Path("/proc") / str(process) / "status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) // 1024


@pytest.mark.large
@pytest.mark.timeout(600)
def test_gigabytes_pass_through_bounded_memory(tmp_path: Path) -> None:
    size = 2_500_000_000
    with Process(tmp_path / "home") as service:
        service.wait_until_ready()
        firn = service.firn
        fields = {"id": {"type": "long"}, "name": {"type": "string"}}
        create(firn, "a", schema={"fields": fields})
        idle = peak = resident_mb(service.id)
        url = f"{firn.base_url}/tables/a/default/t/records"
        client = subprocess.Popen([sys.executable, "-c", _CLIENT, url, str(size)], stdout=subprocess.PIPE, text=True)
        while client.poll() is None:
            peak = max(peak, resident_mb(service.id))
            time.sleep(0.05)
        answer = json.loads(client.communicate()[0])
        assert answer["success"], answer
        assert answer["records_written"] > 60_000_000
        [counted] = firn.ok({"operation": "QUERY", "tenant_id": "a", "table": "t", "aggregations": [{"op": "count"}]})[
            "data"
        ]
        assert list(counted.values()) == [answer["records_written"]]
        assert peak - idle < 600, f"{peak} MiB at most, {idle} MiB idle"


def test_the_job_of_a_load_shows_the_rows_that_are_written_of_all(firn: Firn, tenant: str) -> None:
    by = {"field": "id", "transform": "bucket", "num_buckets": 2}  # Spark writes the files of partitions
    create(firn, tenant, partition={"partitions": [by]})
    tags_before = seen_tags()
    url = firn.parsed(load(firn, tenant, stream(numbers(50_000)), ARROW, query="?async=true"))["status_url"]

    def job() -> dict[str, Any]:
        found: dict[str, Any] = firn.parsed(firn.client.get(url))["job"]
        return found

    wait_until(lambda: job()["state"] == "done", 60)
    progress = job()["progress"]
    assert (progress["records_done"], progress["records_total"], progress["remaining_ms"]) == (50_000, 50_000, 0)
    assert progress["records_per_s"] > 0
    # Spark itself counts them, too, so that the figures move while it writes.
    written = {firn.app.engine.rows_written(tag) for tag in seen_tags() - tags_before if tag.startswith("bulk-")}
    assert 50_000 in written


def seen_tags() -> set[str]:
    """The tags of the Spark jobs of this process."""
    from pyspark import SparkContext

    assert SparkContext._active_spark_context
    store = SparkContext._active_spark_context._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    listed = (jobs.apply(i).jobTags().mkString("\n") for i in range(jobs.size()))
    return {tag for text in listed for tag in str(text).split("\n")}


@contextmanager
def jvm_log() -> Iterator[Callable[[], str]]:
    """Reads what the JVM logs during the block."""
    writer = java_class("java.io.StringWriter")()
    root = java_class("org.apache.logging.log4j.LogManager").getContext(False).getConfiguration().getRootLogger()
    appender = java_class("org.apache.logging.log4j.core.appender.WriterAppender")
    added = appender.createAppender(None, None, writer, "of-a-test", False, True)
    added.start()
    root.addAppender(added, None, None)
    try:
        yield lambda: str(writer.toString())
    finally:
        root.removeAppender("of-a-test")


def test_cancelling_a_load_while_spark_writes_it_logs_no_stack_trace(
    firn: Firn, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = {"tenant_id": tenant, "table": "t"}
    create(firn, tenant)
    text = f"replace(concat(CAST(id AS string), 'a'), 'a', '{'b' * 2000}')"  # so that each row takes a while
    slow = {"slow": {"expression": f"sha2(reverse({text}), 512)"}}
    firn.ok({"operation": "REPARTITION", **table, "transform": slow})
    with jvm_log() as logged:
        before = active_stages()
        url = firn.parsed(load(firn, tenant, stream(numbers(500_000)), ARROW, query="?async=true"))["status_url"]

        def job() -> dict[str, Any]:
            found: dict[str, Any] = firn.parsed(firn.client.get(url))["job"]
            return found

        wait_until(lambda: bool(active_stages() - before), 60)
        assert job()["progress"]["phase"] == "writing"
        firn.client.delete(url)
        wait_until(lambda: job()["state"] != "running", 60)
        assert job()["state"] == "cancelled"
        wait_until(lambda: not active_stages() - before, 60)
        wait_until(lambda: staged(firn) == [], 60)
        assert "\tat " not in logged()
    assert not [record for record in caplog.records if record.exc_info]

"""Clients that are slow, send too much, or open too many connections, at a real server without Spark."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from service.api import http
from service.api.connections import HEAD_BYTES, bounded
from service.api.exchange import JsonResponse
from service.api.server import Server
from service.app import App
from service.settings import load
from tests.harness import wait_until

LIMITS = {
    "FIRN_LIMITS__CLIENT_TIMEOUT_S": "1",
    "FIRN_LIMITS__CLIENT_BYTES_PER_S": "1000000",
    "FIRN_LIMITS__CONNECTIONS": "40",
    "FIRN_LIMITS__BODY_MB": "1",
    "FIRN_LIMITS__STREAM_IDLE_TIMEOUT_S": "2",
}
HEALTH = b"GET /health HTTP/1.1\r\nHost: firn\r\n\r\n"


class Site:
    """A service whose Spark was never started, behind the real server."""

    def __init__(self, home: Path) -> None:
        self.app = App(load({"FIRN_HOME": str(home), **LIMITS}), [])
        self.http = http.create(self.app)
        self.protocol: Any = bounded(self.app.settings.limits)
        config: Any = uvicorn.Config(
            self.http, "127.0.0.1", 0, log_config=None, http=self.protocol, ws="none", timeout_graceful_shutdown=1
        )
        self.server = Server(config, lambda: None)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        wait_until(lambda: self.server.started, 30, every=0.01)

    @property
    def budget(self) -> Any:
        return self.http.state.api.budget

    @property
    def connections(self) -> int:
        return int(self.protocol.shares.taken)

    def connect(self) -> socket.socket:
        port = self.server.servers[0].sockets[0].getsockname()[1]
        return socket.create_connection(("127.0.0.1", port), timeout=30)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(30)
        self.app.stop()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("home"))
    yield site
    site.stop()


@pytest.fixture
def site(served: Site) -> Iterator[Site]:
    """It is left without connections and without memory that requests hold."""
    yield served
    wait_until(lambda: (served.connections, served.budget.taken) == (0, 0), 30, every=0.01)


def response(connection: socket.socket) -> tuple[int, dict[str, str], Any]:
    """The status, the headers and the body of a response, whose connection is closed after it if it says so."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65536)
        if not part:
            return 0, {}, received
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    while len(body) < int(headers["content-length"]):
        body += connection.recv(65536)
    return int(lines[0].split()[1]), headers, json.loads(body)


def refusal(connection: socket.socket) -> tuple[int, str]:
    status, headers, body = response(connection)
    assert body["success"] is False
    assert set(body["error"]) <= {"code", "message", "field", "suggestion", "retryable", "details"}
    assert body["metadata"] == {"request_id": headers["x-request-id"]}
    return status, body["error"]["code"]


def head(path: str = "/database", **headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: firn", *(f"{n.replace('_', '-')}: {v}" for n, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def closed(connection: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        return connection.recv(65536) == b""
    return True


def test_a_client_that_sends_nothing_is_disconnected(site: Site) -> None:
    with site.connect() as silent:
        assert closed(silent)


def test_a_head_that_takes_too_long_is_refused_and_the_connection_closed(site: Site) -> None:
    with site.connect() as slow:
        slow.sendall(b"POST /database HT")
        assert refusal(slow) == (408, "REQUEST_TIMEOUT")
        assert closed(slow)


def drip(connection: socket.socket, part: bytes, stop: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while not stop.wait(0.05):
            connection.sendall(part)


@pytest.mark.parametrize(
    ("sent", "part"),
    [
        (head(Content_Length="100000"), b"x"),
        (head(Transfer_Encoding="chunked"), b"1\r\nx\r\n"),
        (head("/2015-03-31/functions/function/invocations", Content_Length="100000"), b"x"),
    ],
    ids=["declared", "chunked", "event"],
)
def test_a_body_that_drips_is_refused_holds_no_thread_and_gives_its_memory_back(
    site: Site, sent: bytes, part: bytes
) -> None:
    stop = threading.Event()
    with site.connect() as slow, site.connect() as other:
        slow.sendall(sent)
        dripping = threading.Thread(target=drip, args=(slow, part, stop))
        dripping.start()
        try:
            wait_until(lambda: site.budget.taken > 0, 30, every=0.002)
            assert sum(site.app.pipeline._threads.waiting().values()) == 0
            assert threading.active_count() < 60
            other.sendall(HEALTH)
            assert response(other)[0] == 200
            assert refusal(slow) == (408, "REQUEST_TIMEOUT")
        finally:
            stop.set()
            dripping.join()


def test_a_bulk_load_and_an_upload_that_drip_free_their_places(site: Site) -> None:
    table = {"tenant_id": "a", "table": "t", "schema": {"fields": {"id": {"type": "long"}}}}
    created = site.app.pipeline.submit({"operation": "CREATE_TABLE", **table}).result(30)
    assert created.status == 200, created.body
    for path in ("/tables/a/default/t/records", "/tables/a/default/t/ingest?date=2024-01-31"):
        with site.connect() as slow:
            slow.sendall(head(path, Content_Type="application/x-ndjson", Content_Length="1000") + b'{"id"')
            status, code = refusal(slow)
            assert (status, code) in {(408, "REQUEST_TIMEOUT"), (400, "INVALID_REQUEST")}, (path, status, code)
        wait_until(lambda: site.app.pipeline.admission.in_progress == 0, 30, every=0.01)


@pytest.mark.parametrize(
    "sent",
    [
        head(X_Long="a" * (HEAD_BYTES + 1000)),
        head("/database?" + "a" * (HEAD_BYTES + 1000)),
        b"POST /database HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % i for i in range(20_000)) + b"\r\n",
    ],
    ids=["header", "URL", "headers"],
)
def test_a_head_that_is_too_large_is_refused(site: Site, sent: bytes) -> None:
    with site.connect() as greedy:
        with contextlib.suppress(OSError):
            greedy.sendall(sent)
        assert refusal(greedy) in {(431, "HEAD_TOO_LARGE"), (400, "INVALID_REQUEST")}


def test_what_is_not_http_is_refused_in_the_one_shape(site: Site) -> None:
    with site.connect() as other:
        other.sendall(b"\x16\x03\x01\x02\x00 not HTTP\r\n\r\n")
        assert refusal(other) == (400, "INVALID_REQUEST")


def test_a_body_over_the_limit_is_refused_before_it_is_received_or_while_it_is(site: Site) -> None:
    with site.connect() as declared:
        declared.sendall(head(Content_Length=str(5 << 20)))
        assert refusal(declared) == (413, "BODY_TOO_LARGE")
    with site.connect() as chunked:
        chunked.sendall(head(Transfer_Encoding="chunked"))
        most = 0
        with contextlib.suppress(OSError):
            for _ in range(64):
                chunked.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
                most = max(most, site.budget.taken)
        assert refusal(chunked) == (413, "BODY_TOO_LARGE")
        assert most <= 9 * (1 << 20)


@pytest.mark.parametrize("declared", [True, False])
def test_a_client_that_sends_all_of_a_body_that_is_too_large_and_then_reads_gets_the_refusal(
    site: Site, declared: bool
) -> None:
    size = 20 << 20
    how = {"Content_Length": str(size)} if declared else {"Transfer_Encoding": "chunked"}
    with site.connect() as stubborn:
        stubborn.sendall(head(**how, Connection="close"))
        for _ in range(size >> 20):
            part = b" " * (1 << 20)
            stubborn.sendall(part if declared else b"100000\r\n" + part + b"\r\n")
        if not declared:
            stubborn.sendall(b"0\r\n\r\n")
        assert refusal(stubborn) == (413, "BODY_TOO_LARGE")


def test_one_address_leaves_connections_to_others_and_further_ones_are_told_when_to_come_back(site: Site) -> None:
    share = site.protocol.shares.at_most
    held = [site.connect() for _ in range(share)]
    wait_until(lambda: site.connections == share, 30, every=0.002)
    with site.connect() as further:
        further.sendall(HEALTH)
        status, headers, body = response(further)
        assert (status, headers["retry-after"], body["error"]["code"]) == (429, "1", "TOO_MANY_REQUESTS")
    assert site.protocol.shares.take("10.0.0.1") is None  # as another address would
    site.protocol.shares.leave("10.0.0.1")
    for connection in held:
        connection.close()
    wait_until(lambda: site.connections == 0, 30, every=0.01)
    with site.connect() as again:
        again.sendall(HEALTH)
        assert response(again)[0] == 200


def test_a_large_response_that_nobody_reads_is_given_up(site: Site) -> None:
    size, sent = 40 << 20, threading.Event()

    async def large(scope: Any, receive: Any, send: Any) -> None:
        await JsonResponse(b"[" + b" " * size + b"]")({**scope, "app": site.http}, receive, send)
        sent.set()

    site.http.mount("/large", large)
    with site.connect() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.sendall(b"GET /large/ HTTP/1.1\r\nHost: firn\r\n\r\n")
        wait_until(lambda: site.budget.taken >= size, 30, every=0.002)
        assert sent.wait(30)
        wait_until(lambda: site.connections == 0, 30, every=0.01)


def test_a_large_response_that_is_read_is_whole(site: Site) -> None:
    body = json.dumps(list(range(500_000))).encode()

    async def large(scope: Any, receive: Any, send: Any) -> None:
        await JsonResponse(body)({**scope, "app": site.http}, receive, send)

    site.http.mount("/whole", large)
    with site.connect() as reader:
        reader.sendall(b"GET /whole/ HTTP/1.1\r\nHost: firn\r\n\r\n")
        assert response(reader)[2] == list(range(500_000))


def test_a_request_that_follows_on_the_same_connection_is_answered(site: Site) -> None:
    with site.connect() as connection:
        for _ in range(3):
            connection.sendall(HEALTH)
            assert response(connection)[0] == 200
        connection.sendall(HEALTH + HEALTH)  # pipelined
        received = b""
        while received.count(b"HTTP/1.1 200") < 2:
            part = connection.recv(65536)
            assert part, received
            received += part

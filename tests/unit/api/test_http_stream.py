"""A streamed answer over real HTTP: whole, or visibly broken; and what becomes of it when its client goes."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
import uvicorn

from service.api import http
from service.app import App
from service.errors import EngineUnavailable
from service.model import wire
from service.model.call import Call
from service.operations.operation import Parts, Request, Result, operation
from service.pipeline.pipeline import Pipeline
from service.queries.streaming.streams import Stream
from service.settings import Settings, load
from tests.harness import free_port, wait_until

CHUNK = b"x" * 256 * 1024


@dataclass
class Source:
    """What the next stream sends, and what was done with it."""

    chunks: Iterator[bytes] = field(default_factory=lambda: iter([b"one,", b"two"]))
    cancelled: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)
    wait: threading.Event | None = None


source = Source()
pool = ThreadPoolExecutor(4)


class Read(Request):
    operation: Literal["READ"]


@operation(Read, Result, pool="queries")
def read(request: Read, call: Call) -> "Result | Stream":
    """Stream what the test says."""
    if call.accept != "text/csv":
        return Result()
    with ExitStack() as held:
        held.callback(source.let_go.set)
        held.enter_context(call.cancelling(source.cancelled.set))
        source.opened.set()
        if source.wait:
            assert source.wait.wait(20)
        stream = Stream("text/csv", "r1", source.chunks, pool, source.cancelled.set, held.pop_all())
        stream.snapshot_id = 7
        return stream


class Service:
    ready, state, busy, query_process = True, "ready", False, None

    def __init__(self, settings: Settings, parts: Parts, pipeline: Pipeline) -> None:
        self.settings = settings
        self.parts = parts
        self.pipeline = pipeline

    def start(self) -> None: ...
    def stop(self) -> None: ...


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    app = App(load({"FIRN_HOME": str(tmp_path), "FIRN_LIMITS__STREAM_IDLE_TIMEOUT_S": "1"}), [])
    pipeline = Pipeline([read], app.parts, app.settings.limits)
    yield Service(app.settings, app.parts, pipeline)
    pipeline.close()
    app.stop()


@pytest.fixture
def pipeline(service: Service) -> Pipeline:
    return service.pipeline


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    """A client of a server that has one operation, which streams; `source` is fresh."""
    global source
    source = Source()
    port = free_port()
    edge: Any = http.create(service)
    server = uvicorn.Server(uvicorn.Config(edge, port=port, log_level="critical", timeout_graceful_shutdown=1))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # not on this thread
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
        wait_until(lambda: client.get("/health").status_code == 200, 10)
        yield client
    server.should_exit = True
    thread.join(30)


REQUEST = wire.render({"operation": "READ", "tenant_id": "a"})
CSV = {"Accept": "text/csv", "X-Request-Id": "r1"}


def forever() -> Iterator[bytes]:
    while True:
        yield CHUNK


def broken(error: Exception) -> Iterator[bytes]:
    yield b"one,"
    raise error


def test_a_stream_is_sent_whole_with_its_type_its_snapshot_and_its_request(client: httpx.Client) -> None:
    answer = client.post("/database", content=REQUEST, headers=CSV)
    assert (answer.status_code, answer.content) == (200, b"one,two")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert (answer.headers["x-request-id"], answer.headers["x-firn-snapshot-id"]) == ("r1", "7")
    assert source.let_go.wait(30)
    assert not source.cancelled.is_set()
    # The connection is as good as before.
    assert client.post("/database", content=REQUEST).json()["success"] is True


@pytest.mark.parametrize("error", [EngineUnavailable("the engine is gone"), RuntimeError("a defect")])
def test_a_failure_on_the_way_breaks_the_connection(client: httpx.Client, pipeline: Pipeline, error: Exception) -> None:
    source.chunks = broken(error)
    with pytest.raises(httpx.RemoteProtocolError):
        client.post("/database", content=REQUEST, headers=CSV)
    assert source.let_go.wait(30)
    wait_until(lambda: not pipeline.busy, 5)


def test_a_stream_is_in_progress_until_it_is_closed(client: httpx.Client, pipeline: Pipeline) -> None:
    source.chunks = forever()
    with client.stream("POST", "/database", content=REQUEST, headers=CSV) as answer:
        pieces = answer.iter_raw()
        next(pieces)
        assert not pipeline.drain(0.1)
    wait_until(lambda: not pipeline.busy, 5)


def test_a_stream_is_cancelled_and_closed_when_its_client_disconnects(client: httpx.Client) -> None:
    source.chunks = forever()
    with client.stream("POST", "/database", content=REQUEST, headers=CSV) as answer:
        pieces = answer.iter_raw()
        next(pieces)
        assert not source.cancelled.is_set()
    assert source.cancelled.wait(30)
    assert source.let_go.wait(30)


def test_a_client_that_disconnects_before_the_first_byte_cancels_its_query(client: httpx.Client) -> None:
    source.wait = threading.Event()
    head = f"POST /database HTTP/1.1\r\nHost: firn\r\nAccept: text/csv\r\nContent-Length: {len(REQUEST)}\r\n\r\n"
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as leaving:
        leaving.sendall(head.encode() + REQUEST)
        assert source.opened.wait(30)
    assert source.cancelled.wait(30)
    source.wait.set()
    assert source.let_go.wait(30)


def test_a_client_that_takes_nothing_is_given_up(client: httpx.Client) -> None:
    source.chunks = forever()
    with client.stream("POST", "/database", content=REQUEST, headers=CSV) as answer:
        assert answer.status_code == 200
        assert source.let_go.wait(30)
    assert source.cancelled.is_set()


def test_a_client_slower_than_its_stream_gets_all_of_it(client: httpx.Client) -> None:
    source.chunks = iter([CHUNK] * 40)
    size = 0
    with client.stream("POST", "/database", content=REQUEST, headers=CSV) as answer:
        for i, piece in enumerate(answer.iter_raw(1024 * 1024)):
            size += len(piece)
            if i < 4:
                threading.Event().wait(0.3)
    assert size == 40 * len(CHUNK)

"""The HTTP edge: the header that makes a change happen once, and the bounds on what requests may hold."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx
import pytest

from service.api import http
from service.app import App
from service.catalog.tables import Table
from service.errors import Cancelled, LedgerUnavailable, TooManyRequests
from service.jobs.background import Background
from service.jobs.job import BulkProgress
from service.jobs.jobs import Jobs
from service.ledger.ledger import Ledger
from service.model import wire
from service.model.call import Call
from service.model.names import TableName
from service.model.schema.definition import parse_schema
from service.operations.operation import ChangeRequest, Parts, Result, operation
from service.pipeline.pipeline import Pipeline
from service.settings import Settings, load
from service.writes.bulk.load import Bulk
from tests.fakes import FakeCatalog, MuteLedger

MIB = 1024 * 1024
T = TypeVar("T")


class Add(ChangeRequest):
    operation: Literal["ADD"]
    text: str = ""


class Wait(ChangeRequest):
    operation: Literal["WAIT"]
    text: str = ""


class Done(Result):
    key: str | None
    length: int


waiting: list[tuple[Call, "Future[bytes]"]] = []


@operation(Add, Done, pool="edits")
def add(request: Add, call: Call) -> Done:
    """Say which key it came with."""
    return Done(key=call.key.text if call.key else None, length=len(request.text))


@operation(Wait, Done, pool="inline")
def wait(request: Wait, call: Call) -> "Done | Future[bytes]":
    """Be answered when the test says so."""
    waiting.append((call, Future()))
    return waiting[-1][1]


class Service:
    """As much of a service as its edge needs."""

    ready, state = True, "ready"
    query_process: str | None = None

    busy = False

    def __init__(self, settings: Settings, parts: Parts, pipeline: Pipeline) -> None:
        self.settings = settings
        self.parts = parts
        self.pipeline = pipeline
        self.door = http.create(self)

    def start(self) -> None: ...
    def stop(self) -> None: ...


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """The real parts of a service whose Spark was never started."""
    limits = {"FIRN_LIMITS__MEMORY_MB": "64", "FIRN_LIMITS__BODY_MB": "4", "FIRN_LIMITS__TENANT_SHARE": "100"}
    app = App(load({"FIRN_HOME": str(tmp_path_factory.mktemp("home")), **limits}), [])
    yield app
    app.stop()


@pytest.fixture
def service(app: App, tmp_path: Path) -> Iterator[Service]:
    """A service of two operations; requests may hold 64 MiB together, which is 8 MiB of JSON."""
    waiting.clear()
    ledger = MuteLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    parts = app.parts.replaced({Ledger: ledger})
    pipeline = Pipeline([add, wait], parts, app.settings.limits)
    yield Service(app.settings, parts, pipeline)
    for _, answer in waiting:
        if not answer.done():
            answer.set_result(b"")
    pipeline.close()


@pytest.fixture
def door(service: Service) -> Any:
    """Its ASGI application."""
    return service.door


def asked(door: Any, talk: Callable[[httpx.AsyncClient], Awaitable[T]]) -> T:
    """What comes of talking to the application."""

    async def run() -> T:
        transport = httpx.ASGITransport(door, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://firn", timeout=10) as client:
            return await talk(client)

    return asyncio.run(run())


def body(operation_: str, size: int = 0, **expected: Any) -> bytes:
    return wire.render({"operation": operation_, "tenant_id": "a", "table": "t", "text": "x" * size, **expected})


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, wire.parse(response.content)["error"]["code"]


def test_the_header_makes_a_request_happen_once(door: Any) -> None:
    async def talk(client: httpx.AsyncClient) -> list[httpx.Response]:
        headers = [{"Idempotency-Key": "k1", "X-Request-Id": f"r{i}"} for i in range(2)]
        return [await client.post("/database", content=body("ADD"), headers=h) for h in headers]

    first, second = asked(door, talk)
    assert (first.status_code, wire.parse(first.content)["key"]) == (200, "k1")
    assert second.content == first.content
    assert [r.headers["X-Request-Id"] for r in (first, second)] == ["r0", "r1"]


def test_a_key_that_was_used_for_another_request_is_422(door: Any) -> None:
    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        headers = {"Idempotency-Key": "k1"}
        await client.post("/database", content=body("ADD"), headers=headers)
        return await client.post("/database", content=body("ADD", 1), headers=headers)

    assert code(asked(door, talk)) == (422, "KEY_REUSED")


def test_when_the_memory_is_taken_the_next_is_told_to_come_back_at_once_and_others_are_served(door: Any) -> None:
    async def talk(client: httpx.AsyncClient) -> list[httpx.Response]:
        large = [asyncio.create_task(client.post("/database", content=body("WAIT", 3 * MIB))) for _ in range(2)]
        while len(waiting) < 2:
            await asyncio.sleep(0.005)
        answers = [
            await client.post("/database", content=body("ADD", 3 * MIB)),
            await client.post("/database", content=body("ADD", 10)),
            await client.get("/health"),
        ]
        for asked_for, answer in waiting:
            answer.set_result(asked_for.respond(Done(key=None, length=0)))
        assert [r.status_code for r in await asyncio.gather(*large)] == [200, 200]
        answers.append(await client.post("/database", content=body("ADD", 3 * MIB)))
        return answers

    refused, small, health, again = asked(door, talk)
    assert code(refused) == (429, "TOO_MANY_REQUESTS")
    assert refused.headers["Retry-After"] == "1"
    assert (small.status_code, health.status_code, again.status_code) == (200, 200, 200)


def test_an_operation_bypasses_the_layers_of_the_other_routes(door: Any) -> None:
    """FastAPI makes them for the first request that passes through them."""

    async def post(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await client.post("/database", content=content) for content in (body("ADD"), b"{", body("NONE"))]

    async def get(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await client.get("/database"), await client.post("/database/", content=body("ADD"))]

    assert [response.status_code for response in asked(door, post)] == [200, 400, 400]
    assert door.middleware_stack is None
    assert [response.status_code for response in asked(door, get)] == [405, 307]
    assert door.middleware_stack is not None


def test_an_unforeseen_error_outside_the_pipeline_is_answered_too(
    door: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("secret of the inside")

    monkeypatch.setattr("service.api.database.read_body", broken)

    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post("/database", content=body("ADD"))

    answer = asked(door, talk)
    assert code(answer) == (500, "INTERNAL_ERROR")
    assert "secret" not in answer.text
    assert "secret of the inside" in caplog.text


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_beyond_the_limit_is_refused_declared_or_not(door: Any, declared: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * MIB

    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post("/database", content=b"x" * (5 * MIB) if declared else chunks())

    refused = asked(door, talk)
    assert code(refused) == (413, "BODY_TOO_LARGE")
    assert "POST /tables/{tenant}/{namespace}/{table}/records" in refused.json()["error"]["message"]


def test_a_body_that_breaks_off_holds_nothing_afterwards(door: Any) -> None:
    """Clients that hang up in the middle must not use the memory up."""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/database",
        "query_string": b"",
        "headers": [],
    }

    async def hang_up() -> None:
        part = {"type": "http.request", "body": b"x" * (3 * MIB), "more_body": True}
        messages: Iterator[dict[str, Any]] = iter([part, {"type": "http.disconnect"}])

        async def receive() -> dict[str, Any]:
            return next(messages)

        async def send(message: dict[str, Any]) -> None:
            raise AssertionError("nobody is there")

        await door(scope, receive, send)

    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        for _ in range(5):
            await hang_up()
        return await client.post("/database", content=body("ADD", 3 * MIB))

    assert asked(door, talk).status_code == 200


def test_a_caller_who_hangs_up_leaves_nothing_behind(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    async def talk(client: httpx.AsyncClient) -> None:
        call = asyncio.create_task(client.post("/database", content=body("WAIT")))
        while not waiting:
            await asyncio.sleep(0.005)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert service.pipeline.busy, "what it asked for goes on"
        asked_for, answer = waiting[0]
        answer.set_result(asked_for.respond(Done(key=None, length=0)))
        assert await asyncio.to_thread(service.pipeline.drain, 5)

    asked(service.door, talk)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(("path", "methods"), http.ROUTES.items())
def test_a_wrong_method_is_405_and_names_the_right_ones(door: Any, path: str, methods: str) -> None:
    async def talk(client: httpx.AsyncClient) -> httpx.Response:
        return await client.put(
            path.format(id="x", tenant="a", namespace="b", table="t", name="t", folder="how-to", guide="upsert.md")
        )

    answer = asked(door, talk)
    assert code(answer) == (405, "METHOD_NOT_ALLOWED")
    assert f"takes {methods}, not PUT" in answer.text


@pytest.mark.parametrize("path", ["/database", "/2015-03-31/functions/function/invocations"])
def test_a_client_that_hangs_up_while_it_sends_gets_nothing_and_nothing_is_logged(
    door: Any, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang_up() -> None:
        part = {"type": "http.request", "body": b"id\n", "more_body": True}
        messages: Iterator[dict[str, Any]] = iter([part, *[{"type": "http.disconnect"}] * 3])

        async def receive() -> dict[str, Any]:
            return next(messages)

        async def send(message: dict[str, Any]) -> None:
            raise AssertionError("nobody is there")

        headers = [(b"content-type", b"text/csv")]
        scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": path, "headers": headers}
        await door({**scope, "query_string": b""}, receive, send)

    asyncio.run(hang_up())
    assert "ERROR" not in caplog.text


class TestJobs:
    """Long work is asked after, and called off, by its id."""

    @staticmethod
    def job(response: httpx.Response) -> dict[str, Any]:
        assert response.status_code == 200, response.content
        found: dict[str, Any] = wire.parse(response.content)["job"]
        return found

    @pytest.fixture
    def table(self) -> Table:
        return FakeCatalog().create(
            TableName("a", "b", "t"), parse_schema({"fields": {"id": {"type": "long"}}}), (), {}
        )

    def test_a_job_is_cancelled_by_delete_and_ends_as_cancelled(self, app: App, door: Any, table: Table) -> None:
        started, cancelled = threading.Event(), threading.Event()

        def work(running: Call) -> bytes:
            running.on_cancel(cancelled.set)
            started.set()
            assert cancelled.wait(30)
            raise Cancelled(details={"files": 2})

        path = f"/jobs/{app.parts[Background].start('COMPACT', table, BulkProgress(), Call('r'), work)}"
        assert started.wait(30)

        async def talk(client: httpx.AsyncClient) -> list[dict[str, Any]]:
            answers = [self.job(await client.get(path)), self.job(await client.delete(path))]
            while "ended_at" not in answers[-1]:
                await asyncio.sleep(0.005)
                answers.append(self.job(await client.get(path)))
            return [*answers, self.job(await client.delete(path))]

        first, result, *_, last, again = asked(door, talk)
        assert (first["state"], first["kind"], "cancelling" in first) == ("running", "COMPACT", False)
        assert result["state"] in ("running", "cancelled")
        assert result.get("cancelling", result["state"] == "cancelled")
        assert (last["state"], last["error"]["code"], last["error"]["details"]) == (
            "cancelled",
            "CANCELLED",
            {"files": 2},
        )
        assert again == last

    def test_an_unknown_job_is_404_and_other_methods_are_405(self, door: Any) -> None:
        async def talk(client: httpx.AsyncClient) -> list[httpx.Response]:
            return [await client.delete("/jobs/x"), await client.get("/jobs/x"), await client.post("/jobs/x")]

        deleted, read, posted = asked(door, talk)
        assert code(deleted) == code(read) == (404, "NOT_FOUND")
        assert code(posted) == (405, "METHOD_NOT_ALLOWED")
        assert "takes GET and DELETE, not POST" in posted.text


INVOCATIONS, RECORDS = "/2015-03-31/functions/function/invocations", "/tables/a/b/t/records"
EVENT = wire.render({"httpMethod": "POST", "path": "/database", "body": body("ADD").decode()})


class TestRetryAfter:
    """Every 429 and 503 says when to come again, whatever the route."""

    @staticmethod
    def ask(door: Any, method: str, path: str, content: bytes = b"") -> tuple[int, str | None]:
        async def talk(client: httpx.AsyncClient) -> httpx.Response:
            return await client.request(method, path, content=content, headers={"Content-Type": "application/x-ndjson"})

        answer = asked(door, talk)
        if path != INVOCATIONS:
            return answer.status_code, answer.headers.get("Retry-After")
        event = wire.parse(answer.content)
        return event["statusCode"], event["headers"].get("Retry-After")

    @pytest.mark.parametrize(
        ("path", "content"), [("/database", body("ADD")), (INVOCATIONS, EVENT), (RECORDS, b'{"id": 1}')]
    )
    def test_of_a_service_that_stops(self, service: Service, path: str, content: bytes) -> None:
        service.pipeline.drain(0)
        assert self.ask(service.door, "POST", path, content) == (503, "1")

    @pytest.mark.parametrize(("path", "content"), [("/database", body("ADD")), (INVOCATIONS, EVENT)])
    def test_of_one_with_too_many_requests(self, service: Service, path: str, content: bytes) -> None:
        service.pipeline.admission._in_threads.shares.places = 0
        assert self.ask(service.door, "POST", path, content) == (429, "1")

    def test_of_one_with_too_many_bulk_loads(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(service.parts[Bulk], "open", failing(TooManyRequests("two are under way")))
        assert self.ask(service.door, "POST", RECORDS, b'{"id": 1}') == (429, "1")

    @pytest.mark.parametrize("method", ["GET", "DELETE"])
    def test_of_jobs_whose_ledger_is_silent(
        self, method: str, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service.parts[Jobs], "record_of", failing(LedgerUnavailable("no answer")))
        # The routes were registered with the parts as they are now.
        assert self.ask(http.create(service), method, "/jobs/x") == (503, "1")

    def test_it_says_how_the_process_for_queries_is_if_there_is_one(self, service: Service) -> None:
        async def talk(client: httpx.AsyncClient) -> Any:
            return (await client.get("/ready")).json()

        assert asked(service.door, talk) == {"ready": True, "state": "ready"}
        service.query_process = "starting"
        assert asked(service.door, talk) == {"ready": True, "state": "ready", "query_process": "starting"}

    def test_of_one_that_is_not_ready(self, service: Service) -> None:
        service.ready = False
        assert self.ask(service.door, "GET", "/ready") == (503, "1")


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail

"""One tenant floods the service: others are not queued behind it, and what is too much is refused at once."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal, get_args

import httpx
import pytest

from service.api import http
from service.app import App
from service.errors import TooManyRequests
from service.fairness.crowd import Crowd
from service.metrics.metrics import Metrics
from service.model import wire
from service.model.call import Call
from service.operations.operation import Parts, Pool, Request, Result, operation
from service.pipeline.pipeline import Pipeline
from service.pipeline.response import Response
from service.settings import Settings, load
from tests.harness import wait_until
from tests.support.composed import Composed

THREADED = [pool for pool in get_args(Pool) if pool not in ("inline", "queued")]
KIND = {"metadata": "queries", "queries": "queries", "maintenance": "maintenance"}
LIMITS = {
    "FIRN_LIMITS__PENDING_QUERIES": "40",
    "FIRN_LIMITS__PENDING_WRITES": "40",
    "FIRN_LIMITS__PENDING_MAINTENANCE": "40",
    "FIRN_LIMITS__MEMORY_MB": "64",
    "FIRN_LIMITS__BODY_MB": "4",
}
MOST_OF_A_TENANT = 30


class Work(Request):
    operation: Literal["WORK"]
    pool: str = "queries"
    name: str = ""
    text: str = ""


class Done(Result):
    name: str


class Workers:
    """Work that begins when it gets a thread and ends when it is told to."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.begun: list[str] = []
        self.may_end: set[str] = set()
        self.all_may_end = False

    def work(self, name: str) -> None:
        with self.changed:
            self.begun.append(name)
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.all_may_end or name in self.may_end, 60)

    def end(self, name: str | None = None) -> None:
        with self.changed:
            self.all_may_end |= name is None
            self.may_end |= {name or ""}
            self.changed.notify_all()

    def wait_until_begun(self, condition: Callable[[list[str]], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self.begun), 60), self.begun


workers = Workers()
shared: "list[tuple[Call, Future[bytes]]]" = []


@operation(Work, Done, pool=lambda request: request.pool)
def work(request: Work, call: Call) -> "Done | Future[bytes]":
    """Wait until it may end."""
    if request.pool == "inline":
        shared.append((call, Future()))
        return shared[-1][1]
    workers.work(request.name)
    return Done(name=request.name)


class Service:
    """As much of a service as its routes need."""

    ready, state, busy = True, "ready", False

    def __init__(self, settings: Settings, parts: Parts, pipeline: Pipeline) -> None:
        self.settings, self.parts, self.pipeline = settings, parts, pipeline
        self.http = http.create(self)

    def start(self) -> None: ...
    def stop(self) -> None: ...

    def submit(self, tenant: str, name: str, pool: str) -> "Future[Response]":
        body = {"operation": "WORK", "tenant_id": tenant, "name": name, "pool": pool}
        return self.pipeline.submit(body, Call(name))


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    app = App(load({"FIRN_HOME": str(tmp_path_factory.mktemp("home")), **LIMITS}), [])
    yield app
    app.stop()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(app: App, clock: Clock) -> Iterator[Service]:
    workers.__init__()  # type: ignore[misc]
    shared.clear()
    parts = app.parts.replaced({Metrics: Metrics(), Crowd: Crowd(2, clock)})
    pipeline = Pipeline([work], parts, app.settings.limits)
    yield Service(app.settings, parts, pipeline)
    workers.end()
    for call, future in shared:
        if not future.done():
            future.set_result(call.respond(Done(name="")))
    assert pipeline.drain(60)
    pipeline.close()


def flood(service: Service, pool: str, count: int = MOST_OF_A_TENANT) -> "list[Future[Response]]":
    return [service.submit("loud", f"loud{i}", pool) for i in range(count)]


def threads_of(service: Service, pool: str) -> int:
    return service.pipeline._threads._pools[pool]._threads  # type: ignore[index]


@pytest.mark.parametrize("pool", THREADED)
def test_another_tenant_has_a_thread_at_once_or_the_next_one_that_is_free(service: Service, pool: str) -> None:
    loud = flood(service, pool)
    share = max(1, threads_of(service, pool) * 3 // 4)
    workers.wait_until_begun(lambda begun: len(begun) == share)
    quiet = service.submit("quiet", "quiet", pool)
    if threads_of(service, pool) == 1:
        wait_until(lambda: service.pipeline._threads.waiting()[pool,] == MOST_OF_A_TENANT, 60, every=0.002)
        workers.end("loud0")
    workers.wait_until_begun(lambda begun: "quiet" in begun)
    assert len(workers.begun) <= share + 1
    workers.end("quiet")
    assert quiet.result(60).status == 200
    workers.end()
    assert {done.result(60).status for done in loud} == {200}


@pytest.mark.parametrize("pool", ["queries", "edits"])
def test_a_tenant_that_floods_has_one_thread_while_another_one_sends_requests(
    service: Service, clock: Clock, pool: str
) -> None:
    share = threads_of(service, pool) * 3 // 4
    loud = flood(service, pool)
    workers.wait_until_begun(lambda begun: len(begun) == share)
    quiet = service.submit("quiet", "quiet", pool)
    workers.wait_until_begun(lambda begun: "quiet" in begun)
    clock.now += 1
    for i in range(share - 1):
        workers.end(f"loud{i}")
        assert loud[i].result(60).status == 200
    assert len(workers.begun) == share + 1
    workers.end(f"loud{share - 1}")
    workers.wait_until_begun(lambda begun: f"loud{share}" in begun)
    assert len(workers.begun) == share + 2
    workers.end("quiet")
    assert quiet.result(60).status == 200
    clock.now += 2
    workers.end(f"loud{share}")
    workers.wait_until_begun(lambda begun: len(begun) == 2 * share + 2)
    workers.end()
    assert {done.result(60).status for done in loud} == {200}


@pytest.mark.parametrize("pool", ["queries", "edits", "maintenance", "inline"])
def test_what_is_more_than_a_tenants_share_is_refused_at_once_and_others_are_admitted(
    service: Service, pool: str
) -> None:
    admitted = flood(service, pool)
    refused = [service.submit("loud", "more", pool) for _ in range(100)]
    for future in refused:
        response = future.result(60)
        error = wire.parse(response.body)["error"]
        assert (response.status, response.retry_after_s) == (429, 1)
        assert (error["code"], error["retryable"]) == ("TOO_MANY_REQUESTS", True)
        assert "FIRN_LIMITS__PENDING_" in error["message"]
    quiet = [service.submit("quiet", f"quiet{i}", pool) for i in range(10)]
    third = service.submit("third", "third", pool).result(60)
    assert "for all tenants" not in wire.parse(third.body)["error"]["message"]
    assert third.status == 429
    metrics = service.parts[Metrics].exposition()[0].decode()
    kind = KIND.get(pool, "writes")
    assert f'firn_admissions_total{{kind="{kind}",outcome="tenant_limit"}} 100.0' in metrics
    assert f'firn_admissions_total{{kind="{kind}",outcome="service_limit"}} 1.0' in metrics
    assert f'firn_tenant_requests{{kind="{kind}",tenant="loud"}} 30.0' in metrics
    if pool == "inline":
        wait_until(lambda: len(shared) == 40, 60, every=0.002)
        for call, future in shared:
            future.set_result(call.respond(Done(name="")))
    workers.end()
    assert {done.result(60).status for done in (*admitted, *quiet)} == {200}
    assert service.submit("loud", "again", "tables").result(60).status == 200


def test_a_flood_of_one_kind_leaves_room_for_the_tenants_own_requests_of_another(service: Service) -> None:
    flood(service, "queries")
    assert service.submit("loud", "more", "queries").result(60).status == 429
    change = service.submit("loud", "change", "edits")
    workers.wait_until_begun(lambda begun: "change" in begun)
    workers.end()
    assert change.result(60).status == 200


def asked(service: Service, talk: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        transport = httpx.ASGITransport(service.http, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://firn", timeout=60) as client:
            return await talk(client)

    return asyncio.run(run())


def test_health_is_answered_while_every_thread_and_all_memory_is_taken(service: Service) -> None:
    for pool in THREADED:
        for tenant in ("loud", "louder", "loudest"):
            for i in range(13):
                service.submit(tenant, f"{tenant}{i}", pool)
    blocked, seen = threading.Event(), []

    async def talk(client: httpx.AsyncClient) -> None:
        loop = asyncio.get_running_loop()
        others = [loop.run_in_executor(None, blocked.wait, 60) for _ in range(100)]
        with service.http.state.api.budget.sending("loud", 1 << 40):
            refused = await client.post("/database", content=b"{}")
            assert refused.status_code == 429
            for _ in range(20):
                seen.append((await client.get("/health")).status_code)
        blocked.set()
        await asyncio.gather(*others)

    asked(service, talk)
    assert seen == [200] * 20


async def in_parts(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 65536):
        yield body[start : start + 65536]
        await asyncio.sleep(0)


@pytest.mark.parametrize("chunked", [False, True])
def test_large_bodies_are_refused_before_they_take_all_memory_and_another_address_has_room(
    service: Service, monkeypatch: pytest.MonkeyPatch, chunked: bool
) -> None:
    body = wire.render({"operation": "WORK", "tenant_id": "loud", "pool": "queries", "text": "x" * (3 << 20)})
    budget = service.http.state.api.budget
    most = 0

    async def send(client: httpx.AsyncClient) -> httpx.Response:
        nonlocal most
        response = await client.post("/database", content=in_parts(body) if chunked else body)
        most = max(most, budget.taken)
        return response

    async def talk(client: httpx.AsyncClient) -> list[httpx.Response]:
        nonlocal most
        loud = [asyncio.create_task(send(client)) for _ in range(20)]
        while not workers.begun or budget.taken < 24 << 20 or sum(task.done() for task in loud) < 19:
            most = max(most, budget.taken)
            await asyncio.sleep(0.002)
        other = httpx.ASGITransport(service.http, raise_app_exceptions=False, client=("10.0.0.2", 1))
        async with httpx.AsyncClient(transport=other, base_url="http://firn", timeout=60) as quiet:
            sent = {"operation": "WORK", "tenant_id": "quiet", "pool": "tables", "name": "quiet"}
            waiting = asyncio.create_task(quiet.post("/database", json=sent))
            while "quiet" not in workers.begun:
                await asyncio.sleep(0.002)
            workers.end()
            assert (await waiting).status_code == 200
        return list(await asyncio.gather(*loud))

    responses = asked(service, talk)
    assert most <= budget._shares.at_most
    statuses = sorted(response.status_code for response in responses)
    assert statuses == [200, *[429] * 19]
    for response in responses:
        if response.status_code == 429:
            assert response.headers["retry-after"] == "1"
            assert "memory" in response.json()["error"]["message"]
    assert budget.taken == 0


class Shop:
    """A service with tables in memory, whose commits of a tenant can be held."""

    def __init__(self, home: Path) -> None:
        self.composed = Composed(home / "ledger.db")
        self.held, self.go = threading.Semaphore(0), threading.Event()
        self.composed.engine.writing = self.writing

    def writing(self, rows: list[dict[str, Any]]) -> None:
        if any(row["id"] == len("loud") for row in rows):
            self.held.release()
            assert self.go.wait(60)


def test_writes_to_many_tables_of_one_tenant_do_not_hold_up_those_of_another(tmp_path: Path) -> None:
    from service.model.names import TableName
    from service.writes.writes import Writes
    from tests.unit.writes.test_writes import SCHEMA

    shop = Shop(tmp_path)
    writes = shop.composed.parts[Writes]

    def write(tenant: str, table: str) -> "Future[bytes]":
        name = TableName(tenant, "default", table)
        if name not in shop.composed.catalog.tables:
            shop.composed.catalog.create(name, SCHEMA, (), {})
        return writes.append(name, [{"id": len(tenant)}], 20, Call("r"), lambda outcome: b"done")

    loud = [write("loud", f"t{i}") for i in range(50)]
    for _ in range(writes._committing._queue._at_most):
        assert shop.held.acquire(timeout=60)
    quiet = [write("quiet", f"t{i}") for i in range(3)]
    assert [future.result(60) for future in quiet] == [b"done"] * 3
    assert not any(future.done() for future in loud)
    shop.go.set()
    assert [future.result(60) for future in loud] == [b"done"] * 50


def test_bulk_loads_of_one_tenant_leave_a_place_to_others(app: App) -> None:
    from service.model.names import TableName
    from service.writes.bulk.decode import decoder
    from service.writes.bulk.load import Bulk

    bulk, decode = app.parts[Bulk], decoder("application/x-ndjson", None)
    schema = {"fields": {"id": {"type": "long"}}}
    for tenant in ("loud", "quiet"):
        sent = {"operation": "CREATE_TABLE", "tenant_id": tenant, "table": "t", "schema": schema}
        assert app.pipeline.submit(sent).result(60).status == 200
    names = {tenant: TableName(tenant, "default", "t") for tenant in ("loud", "quiet")}
    loads = [bulk.open(names["loud"], decode) for _ in range(2)]
    with pytest.raises(TooManyRequests, match="2 bulk loads of this tenant"):
        bulk.open(names["loud"], decode)
    loads.append(bulk.open(names["quiet"], decode))
    with pytest.raises(TooManyRequests, match="3 bulk loads are in progress"):
        bulk.open(names["quiet"], decode)
    for load_ in loads:
        load_.body.end()
        load_.close()
    assert bulk.under_way == 0

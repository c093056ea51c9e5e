"""Each room says what happens in it: once for each time, and where it happens."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal, cast

import httpx
import pytest

from service.api import events, http
from service.app import App
from service.commits.commit import TRIES
from service.commits.holds import SnapshotHolds
from service.commits.small_files import SmallFileChecks
from service.engine.session.engine import Engine
from service.errors import CommitConflict, LedgerUnavailable, StorageUnavailable, TableNotFound
from service.jobs.background import Background
from service.jobs.job import BulkProgress
from service.jobs.jobs import Jobs
from service.ledger.jobs import JobRecords
from service.ledger.ledger import Ledger
from service.metrics.catalogue import BULK, NONE
from service.metrics.metrics import Metrics
from service.model import wire
from service.model.call import Call, IdempotencyKey
from service.operations.operation import ChangeRequest, Parts, Request, Result, operation
from service.pipeline.pipeline import Pipeline
from service.queries.streaming.streams import Streams
from service.settings import CompactionSettings, IcebergSettings, LimitSettings, Settings, WriteQueueSettings, load
from service.writes.entry import WriteOutcome
from service.writes.writes import Writes
from tests.fakes import MuteLedger, Rows
from tests.harness import wait_until
from tests.support.composed import Composed
from tests.unit import iceberg_tables
from tests.unit.commit_setup import ASK, ORDERS, OTHERS, CommitSetup
from tests.unit.metrics.test_metrics import of, tables, value
from tests.unit.queries.test_streams import Batches, Running, read, table


class Shop(CommitSetup):
    """Writes over a setup and an engine in memory, whose commits can be held up or beaten."""

    def __init__(self, path: Path) -> None:
        settings = Settings(writes=WriteQueueSettings(linger_ms=0), limits=LimitSettings(maintenance_threads=1))
        super().__init__(path, settings=settings)
        self.writes, self.jobs = self.parts[Writes], self.parts[Jobs]

    def write(self, *ids: int) -> "Future[bytes]":
        return self.writes.append(ORDERS, [{"id": i} for i in ids], 10, Call("r"), lambda written: _said(written))

    def beaten(self, times: int) -> Callable[[Rows], None]:
        """So many commits of the next lose against another writer."""
        left = iter(range(times))

        def committing(rows: Rows) -> None:
            if next(left, None) is not None:
                raise CommitConflict("somebody else was faster")

        return committing


def _said(written: WriteOutcome) -> bytes:
    return str(written.requests_in_batch).encode()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "ledger.db")
    yield made
    made.writes.close()


class TestWrites:
    def test_a_batch_is_one_commit_of_so_many_writes_and_records_and_while_they_wait_they_are_a_queue(
        self, shop: Shop
    ) -> None:
        inside, go_on = threading.Event(), threading.Event()

        def hold(rows: Rows) -> None:
            inside.set()
            assert go_on.wait(30)

        shop.write().result(30)  # a table that is known goes straight to its queue
        shop.engine.committing = hold
        first = shop.write(0)
        assert inside.wait(30)
        others = [shop.write(i, i + 100) for i in range(1, 6)]
        assert value(shop.metrics, "firn_write_queue_requests") == 5
        assert value(shop.metrics, "firn_write_queue_tables") == 1
        go_on.set()
        assert [answer.result(30) for answer in (first, *others)] == [b"1", *[b"5"] * 5]
        wait_until(lambda: value(shop.metrics, "firn_write_queue_tables") == 0, 10, every=0.002)
        assert value(shop.metrics, "firn_write_queue_requests") == 0
        assert value(shop.metrics, "firn_batch_requests_count") == 2
        assert value(shop.metrics, "firn_batch_requests_sum") == 6
        assert value(shop.metrics, "firn_batch_records_sum") == 11
        assert value(shop.metrics, "firn_commit_seconds_count", operation="WRITE") == 2

    @pytest.mark.parametrize("times", range(TRIES + 1))
    def test_a_batch_that_is_beaten_is_tried_again_so_often_and_then_given_up(self, times: int, shop: Shop) -> None:
        shop.engine.committing = shop.beaten(times)
        answer = shop.write(1)
        given_up = times == TRIES
        assert isinstance(answer.exception(30), CommitConflict) == given_up
        retries = min(times, TRIES - 1)
        assert (value(shop.metrics, "firn_commit_retries_total", operation="WRITE") or 0) == retries
        assert (value(shop.metrics, "firn_commit_conflicts_total", operation="WRITE") or 0) == given_up
        assert value(shop.metrics, "firn_batch_requests_count") == (0 if given_up else 1)


class TestCommits:
    @pytest.mark.parametrize("times", range(TRIES + 1))
    def test_a_change_is_timed_once_it_is_made_and_every_try_before_it_counted(self, times: int, shop: Shop) -> None:
        left = iter(range(times))

        def change(current: Any, batch: str) -> None:
            if next(left, None) is not None:
                raise CommitConflict("somebody else was faster")
            shop.append(current, batch)

        def commit() -> None:
            shop.commits.commit(shop.catalog.load(ORDERS), "UPDATE", ASK, change)

        if times == TRIES:
            with pytest.raises(CommitConflict):
                commit()
        else:
            commit()
        made, retries = times < TRIES, min(times, TRIES - 1)
        assert value(shop.metrics, "firn_commit_seconds_count", operation="UPDATE") == (1 if made else None)
        assert (value(shop.metrics, "firn_commit_retries_total", operation="UPDATE") or 0) == retries
        assert (value(shop.metrics, "firn_commit_conflicts_total", operation="UPDATE") or 0) == (not made)

    def test_a_change_that_changed_nothing_is_no_commit(self, shop: Shop) -> None:
        shop.run(lambda current, batch: None)
        assert value(shop.metrics, "firn_commit_seconds_count", operation="WRITE") is None

    def test_what_could_not_be_noted_is_unsettled_until_it_is_found_out(self, shop: Shop) -> None:
        shop.ledger.mute = frozenset({"end", "find"})
        shop.run(shop.append)
        assert value(shop.metrics, "firn_unresolved_changes") == 1
        shop.ledger.mute = frozenset()
        shop.commits.batches.resolve()
        assert value(shop.metrics, "firn_unresolved_changes") == 0

    @pytest.mark.parametrize("key", [None, IdempotencyKey("DROP_TABLE", ORDERS, "k", "print")])
    def test_a_table_that_is_dropped_is_told_of_no_more_and_one_that_is_not_still_is(
        self, key: IdempotencyKey | None, shop: Shop
    ) -> None:
        for name in (ORDERS, OTHERS):
            shop.metrics.checked(name, 1)
        shop.life.drop(ORDERS, Call("r", key), purge=False)
        with pytest.raises(TableNotFound):
            shop.life.drop(ORDERS, Call("r"), purge=False)
        assert tables(shop.metrics) == {"others"}


class TestJobs:
    def test_a_job_is_there_while_it_runs_and_counted_at_each_turn(self, shop: Shop) -> None:
        jobs = shop.jobs
        of_kind = {"kind": "BULK", "state": "running"}
        good, bad, left = (jobs.accept("BULK", shop.catalog.load(ORDERS), BulkProgress(), b"{}") for _ in range(3))
        assert value(shop.metrics, "firn_jobs", **of_kind) == 3
        jobs.done(good, b"{}")
        jobs.failed(bad, b"{}")
        assert value(shop.metrics, "firn_jobs", **of_kind) == 1
        for state, times in (("running", 3), ("done", 1), ("failed", 1)):
            assert value(shop.metrics, "firn_job_states_total", kind="BULK", state=state) == times
        assert jobs.describe(left.id)["state"] == "running"

    def test_a_background_job_is_queued_and_then_runs_until_it_is_done_or_cancelled(self, shop: Shop) -> None:
        jobs, background = shop.jobs, shop.parts[Background]
        started, go_on = threading.Event(), threading.Event()

        def work(control: Call) -> bytes:
            started.set()
            assert go_on.wait(30)
            return b"{}"

        runs, waits = (
            background.start("COMPACT", shop.catalog.load(ORDERS), BulkProgress(), Call("r"), work) for _ in range(2)
        )
        assert started.wait(30)
        for state in ("running", "queued"):
            assert value(shop.metrics, "firn_jobs", kind="COMPACT", state=state) == 1
        jobs.cancel(waits)
        go_on.set()
        wait_until(lambda: jobs.describe(runs)["state"] == "done", 10, every=0.002)
        assert value(shop.metrics, "firn_jobs", kind="COMPACT", state="queued") is None
        for state, times in (("queued", 2), ("running", 1), ("done", 1), ("cancelled", 1), ("failed", 0)):
            assert value(shop.metrics, "firn_job_states_total", kind="COMPACT", state=state) == times
        background.close(30)

    @pytest.mark.parametrize(("committed", "state"), [(False, "interrupted"), (True, "done")])
    def test_one_that_an_earlier_process_left_is_counted_by_whoever_finds_out(
        self, committed: bool, state: str, shop: Shop
    ) -> None:
        left, orders = shop.jobs, shop.catalog.load(ORDERS)
        job = left.accept("BULK", orders, BulkProgress(), b'{"metadata": {}}')
        shop.commits.batches.begin("b1", orders, "WRITE", [ASK])
        left.tries(job, "b1")
        if committed:
            shop.catalog.append(ORDERS, "b1")
        shop.ledger.close()
        after = CommitSetup(shop.ledger_file, catalog=shop.catalog)
        assert after.parts[Jobs].recover() == 1
        assert value(after.metrics, "firn_job_states_total", kind="BULK", state=state) == 1

    def test_one_whose_end_could_not_be_noted_has_ended(self, shop: Shop) -> None:
        class Notes(JobRecords):
            def end(self, *message: Any) -> None:
                raise LedgerUnavailable("it does not answer")

        jobs = Jobs(Notes(shop.ledger), shop.commits, shop.metrics)
        jobs.done(jobs.accept("BULK", shop.catalog.load(ORDERS), BulkProgress(), b"{}"), b"{}")
        assert value(shop.metrics, "firn_jobs", kind="BULK", state="running") is None
        assert value(shop.metrics, "firn_job_states_total", kind="BULK", state="done") == 1


class TestUpkeep:
    """Over a real catalog, without Spark."""

    @pytest.fixture
    def maintenance(self, tmp_path: Path) -> SmallFileChecks:
        catalog = iceberg_tables.open_catalog(tmp_path)
        compaction = CompactionSettings(opportunistic_check_interval=2, min_files_to_compact=3)
        settings = Settings(iceberg=IcebergSettings(compaction=compaction))
        return Composed(tmp_path / "ledger.db", catalog=catalog, settings=settings).parts[SmallFileChecks]

    def test_a_check_is_told_of_its_table_and_so_is_what_it_recommends(self, maintenance: SmallFileChecks) -> None:
        metrics, name = maintenance.metrics, iceberg_tables.ORDERS
        table = iceberg_tables.make_table(maintenance.catalog)
        iceberg_tables.append(table, None, None)
        maintenance.check_batch(table, 1)
        assert of(metrics, name) == {}  # it was not its turn
        maintenance.check_batch(table, 1)
        assert of(metrics, name) == {"firn_table_small_files": 2, "firn_table_compaction_recommended": 0}
        iceberg_tables.append(maintenance.catalog.load(name), None)
        maintenance.check_batch(table, 2)
        assert of(metrics, name) == {"firn_table_small_files": 3, "firn_table_compaction_recommended": 1}
        assert value(metrics, "firn_recommendations_total") == 1
        assert value(metrics, "firn_small_file_checks_total") == 2


class TestStreams:
    def test_a_stream_is_counted_until_it_ends_and_ends_whole_or_broken(self) -> None:
        metrics = Metrics()
        streams = Streams(LimitSettings(streams=4), cast(Engine, Running()), SnapshotHolds(), metrics)

        def open_(batches: Batches) -> Any:
            return streams.open(lambda session, **how: batches, "csv", Call(), "r", [(table(), 7)])  # type: ignore[arg-type]

        whole, failing, left = (
            open_(Batches()),
            open_(Batches(40, 10_000, StorageUnavailable("gone"))),
            open_(Batches(1000, 10_000)),
        )
        assert value(metrics, "firn_streams") == 3
        read(whole)
        with pytest.raises(StorageUnavailable):
            read(failing)
        left.close()
        wait_until(lambda: value(metrics, "firn_stream_seconds_count") == 3, 10, every=0.002)
        assert value(metrics, "firn_streams") == 0
        assert value(metrics, "firn_streams_ended_total", outcome="complete") == 1
        assert value(metrics, "firn_streams_ended_total", outcome="broken") == 2


class Add(ChangeRequest):
    operation: Literal["ADD"]


class Hold(Request):
    operation: Literal["HOLD"]


class Refuse(Request):
    operation: Literal["REFUSE"]
    defect: bool = False


class Said(Result):
    text: str


let_go = threading.Event()


@operation(Add, Said, pool="edits")
def add(request: Add) -> Said:
    """Do it."""
    return Said(text="done")


@operation(Hold, Said, pool="queries")
def hold(request: Hold) -> Said:
    """Wait until it is let go."""
    assert let_go.wait(30)
    return Said(text="done")


@operation(Refuse, Said, pool="queries")
def refuse(request: Refuse) -> Said:
    """Refuse, or break."""
    if request.defect:
        raise KeyError("inside")
    raise TableNotFound("no such table", field="table")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """The real parts of a service whose Spark was never started."""
    made = App(load({"FIRN_HOME": str(tmp_path_factory.mktemp("home")), "FIRN_LIMITS__QUERY_THREADS": "1"}), [])
    yield made
    made.stop()


class Service:
    """As much of a service as its edge needs."""

    busy = False

    def __init__(self, settings: Settings, parts: Parts, pipeline: Pipeline) -> None:
        self.settings = settings
        self.parts = parts
        self.pipeline = pipeline
        self.ready, self.state, self.query_process = False, "starting", None

    def start(self) -> None: ...
    def stop(self) -> None: ...


@pytest.fixture
def service(app: App, tmp_path: Path) -> Iterator[Service]:
    let_go.clear()
    ledger = MuteLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    parts = app.parts.replaced({Ledger: ledger, Metrics: Metrics()})
    pipeline = Pipeline([add, hold, refuse], parts, app.settings.limits)
    yield Service(app.settings, parts, pipeline)
    let_go.set()
    pipeline.close()


def asked(service: Service, operation_: str, code: str) -> float | None:
    """How often requests of an operation were answered so."""
    return value(service.parts[Metrics], "firn_requests_total", operation=operation_, code=code)


class TestRequests:
    def test_every_request_is_counted_by_its_operation_and_by_what_it_came_to(self, service: Service) -> None:
        keyed = {"operation": "add", "tenant_id": "a", "table": "t", "idempotency_key": "k"}
        for body in (
            keyed,
            keyed,  # answered as the first was, and a request all the same
            {**keyed, "namespace": "n", "more": 1},
            {"operation": "REFUSE", "tenant_id": "a"},
            {"operation": "REFUSE", "tenant_id": "a", "defect": True},
            {"operation": "NOTHING"},
            b"{",
        ):
            service.pipeline.submit(body).result(30)
        metrics = service.parts[Metrics]
        assert asked(service, "ADD", "ok") == 2
        assert asked(service, "ADD", "UNKNOWN_FIELD") == 1
        assert asked(service, "REFUSE", "TABLE_NOT_FOUND") == 1
        assert asked(service, "REFUSE", "INTERNAL_ERROR") == 1
        assert asked(service, NONE, "UNKNOWN_OPERATION") == 1
        assert asked(service, NONE, "INVALID_REQUEST") == 1
        assert value(metrics, "firn_request_seconds_count", operation="ADD") == 3
        assert value(metrics, "firn_request_seconds_count", operation=NONE) == 2

    def test_those_that_wait_for_a_thread_are_told_by_their_pool(self, service: Service) -> None:
        metrics = service.parts[Metrics]
        held = [service.pipeline.submit({"operation": "HOLD", "tenant_id": "a"}) for _ in range(3)]
        wait_until(lambda: value(metrics, "firn_requests_waiting", pool="queries") == 2, 10, every=0.002)
        assert value(metrics, "firn_requests_in_progress") == 3
        assert value(metrics, "firn_requests_waiting", pool="edits") == 0
        let_go.set()
        assert [answer.result(30).status for answer in held] == [200] * 3
        assert value(metrics, "firn_requests_in_progress") == 0
        assert asked(service, "HOLD", "ok") == 3

    def test_an_event_that_holds_no_request_is_counted_and_one_that_does_as_its_request(self, service: Service) -> None:
        body = wire.render({"operation": "ADD", "tenant_id": "a", "table": "t"}).decode()
        for event in ("{", json.dumps({"httpMethod": "POST", "path": "/database", "body": body})):
            asyncio.run(events.respond(event, service.pipeline, Call("r")))
        assert asked(service, NONE, "INVALID_REQUEST") == 1
        assert asked(service, "ADD", "ok") == 1


class TestRoute:
    """`GET /metrics`, and what only the edge sees."""

    def ask(self, service: Service, *calls: tuple[str, str, bytes], **headers: str) -> list[httpx.Response]:
        async def run() -> list[httpx.Response]:
            transport = httpx.ASGITransport(http.create(service), raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://firn", timeout=10) as client:
                return [await client.request(m, path, content=body, headers=headers) for m, path, body in calls]

        return asyncio.run(run())

    @pytest.mark.parametrize("state", ["starting", "ready", "stopping"])
    def test_it_answers_in_every_state_of_the_service(self, state: str, service: Service) -> None:
        service.state = state
        (response,) = self.ask(service, ("GET", "/metrics", b""))
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert response.headers.get("connection") == ("close" if state == "stopping" else None)
        assert "firn_requests_in_progress 0.0" in response.text

    def test_it_answers_in_the_form_that_is_asked_for(self, service: Service) -> None:
        (response,) = self.ask(service, ("GET", "/metrics", b""), accept="application/openmetrics-text;version=1.0.0")
        assert response.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert response.text.endswith("# EOF\n")

    def test_what_the_edge_refuses_is_counted_too(self, service: Service) -> None:
        limit = service.settings.limits.body_mb << 20
        answers = self.ask(
            service,
            ("POST", "/database", b" " * (limit + 1)),
            ("GET", "/nothing", b""),
            ("POST", "/tables/a/b/c/records?nothing=1", b""),
            ("POST", "/metrics", b""),
        )
        assert [answer.status_code for answer in answers] == [413, 404, 400, 405]
        assert asked(service, NONE, "BODY_TOO_LARGE") == 1
        assert asked(service, NONE, "NOT_FOUND") == 1
        assert asked(service, NONE, "METHOD_NOT_ALLOWED") == 1
        assert asked(service, BULK, "INVALID_REQUEST") == 1

    def test_the_memory_that_requests_take_is_told_while_they_take_it(self, service: Service) -> None:
        async def run() -> float | None:
            transport = httpx.ASGITransport(http.create(service))
            async with httpx.AsyncClient(transport=transport, base_url="http://firn", timeout=10) as client:
                body = wire.render({"operation": "HOLD", "tenant_id": "a"})
                held = asyncio.create_task(client.post("/database", content=body))
                while not asked_now("firn_requests_in_progress"):
                    await asyncio.sleep(0.002)
                taken = asked_now("firn_request_memory_bytes")
                let_go.set()
                await held
                return taken

        def asked_now(name: str) -> float | None:
            return value(service.parts[Metrics], name)

        taken = asyncio.run(run())
        assert taken is not None
        assert taken > 8 * 1024
        assert asked_now("firn_request_memory_bytes") == 0

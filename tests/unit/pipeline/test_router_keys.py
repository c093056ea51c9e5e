"""With an idempotency key a request is run once and answered the same, however often and through whichever door."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

import pytest

from service.app import App
from service.commits.commit import Commits
from service.errors import CatalogUnavailable, TableNotFound
from service.jobs.job import BulkProgress, Job
from service.jobs.jobs import Jobs
from service.ledger.jobs import JobRecords
from service.ledger.ledger import Ledger, NewBatch
from service.model import wire
from service.model.call import Call
from service.model.names import TableName
from service.model.schema.types import TableSchema
from service.operations.operation import ChangeRequest, Result, TableRequest, operation
from service.pipeline.pipeline import Pipeline
from service.pipeline.response import Response
from tests.fakes import FakeCatalog, MuteLedger
from tests.harness import wait_until


class Add(ChangeRequest):
    operation: Literal["ADD"]
    number: Any = 0
    how: Literal["well", "refused", "broken"] = "well"
    held: bool = False
    dry_run: bool = False
    estimate: bool = False


class Take(ChangeRequest):
    operation: Literal["TAKE"]


class Promise(ChangeRequest):
    operation: Literal["PROMISE"]


class Begin(ChangeRequest):
    operation: Literal["BEGIN"]
    number: int = 0


class Note(ChangeRequest):
    operation: Literal["NOTE"]
    happens: bool = True
    fails: bool = False
    idle: bool = False


class Look(TableRequest):
    operation: Literal["LOOK"]


class Done(Result):
    run: int


class Accepted(Result):
    job_id: str


runs: list[Call] = []
promised: list["Future[bytes]"] = []
inside = threading.Event()
go_on = threading.Event()


@operation(Add, Done, pool="edits")
def add(request: Add, call: Call) -> Done:
    """Change something, or fail."""
    runs.append(call)
    if request.held:
        inside.set()
        assert go_on.wait(30)
    if request.how == "refused":
        raise CatalogUnavailable("no answer") if len(runs) == 1 else TableNotFound("gone")
    if request.how == "broken":
        raise KeyError("secret of the inside")
    return Done(run=len(runs))


@operation(Take, Done, pool="queries")
def take(request: Take, call: Call) -> Done:
    """Change something else."""
    runs.append(call)
    return Done(run=len(runs))


@operation(Promise, Done, pool="inline")
def promise(request: Promise, call: Call) -> "Done | Future[bytes]":
    """Response later, and store the answer."""
    runs.append(call)
    promised.append(Future())
    return promised[-1]


@operation(Begin, Accepted, pool="maintenance")
def begin(request: Begin, call: Call, jobs: Jobs) -> Accepted:
    """Begin a job, and answer with its id."""
    runs.append(call)
    return Accepted(job_id=jobs.accept("COMPACT", TABLE, BulkProgress()).id)


@operation(Note, Done, pool="edits")
def note(request: Note, call: Call, ledger: Ledger) -> Done:
    """Commit something with somebody else, unless an attempt before has."""
    runs.append(call)
    before = ledger.find(call.earlier) if call.earlier else None
    if not request.idle and (before is None or before.state != "done"):
        assert call.key
        batch, key = f"b{len(runs)}", call.key
        owner = {key.id: call.id}
        ledger.begin(NewBatch(batch, key.table, "uuid", "NOTE", ["r0", call.id], 0, {key.id: key.fingerprint}, owner))
        ledger.end(batch, 5 if request.happens or call.earlier else None)
    if request.fails:
        raise CatalogUnavailable("no answer")
    return Done(run=len(runs))


@operation(Look, Done, pool="queries")
def look(request: Look, call: Call) -> Done:
    """Change nothing."""
    runs.append(call)
    return Done(run=len(runs))


OPERATIONS = [add, take, promise, begin, note, look]
ADDRESS = {"tenant_id": "acme", "table": "orders"}
ADD = {"operation": "ADD", **ADDRESS, "number": 1}
KEYED = {**ADD, "idempotency_key": "k1"}
PROMISE = {"operation": "PROMISE", **ADDRESS, "idempotency_key": "k1"}
NOTE = {"operation": "NOTE", **ADDRESS, "idempotency_key": "k1"}
BEGIN = {"operation": "BEGIN", **ADDRESS, "idempotency_key": "k1"}
TABLE = FakeCatalog().create(TableName("acme", "default", "orders"), TableSchema(()), (), {})


@pytest.fixture
def ledger(tmp_path: Path) -> MuteLedger:
    return MuteLedger(f"sqlite:///{tmp_path / 'ledger.db'}")


class Served(Pipeline):
    """The pipeline of a service that notes in this ledger what keys and jobs come to."""

    def __init__(self, app: App, ledger: MuteLedger) -> None:
        self.jobs = Jobs(JobRecords(ledger), app.parts[Commits])
        super().__init__(OPERATIONS, app.parts.replaced({Ledger: ledger, Jobs: self.jobs}), app.settings.limits)


@pytest.fixture
def pipeline(app: App, ledger: MuteLedger) -> Iterator[Served]:
    runs.clear()
    promised.clear()
    inside.clear()
    go_on.clear()
    made = Served(app, ledger)
    yield made
    go_on.set()
    made.close()


@pytest.fixture
def again(pipeline: Served, app: App, tmp_path: Path) -> Iterator[Served]:
    """The service after a restart: a pipeline of its own on the same ledger's file."""
    ledger = MuteLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    made = Served(app, ledger)
    yield made
    made.close()


def send(pipeline: Pipeline, body: Any, request_id: str = "r1", key: str | None = None) -> Response:
    return pipeline.submit(body, Call(request_id), key).result(30)


def running(pipeline: Pipeline, requests: int = 1) -> None:
    """Return once so many requests are in progress, and a handler was called for one of them."""
    wait_until(lambda: (len(runs), pipeline.admission.in_progress) == (1, requests), 10, every=0.002)


def error(answer: Response) -> tuple[int, str, str | None]:
    message = wire.parse(answer.body)["error"]
    return answer.status, message["code"], message.get("field")


def test_the_same_again_is_answered_byte_for_byte_and_run_once(pipeline: Served) -> None:
    first = send(pipeline, KEYED, "r1")
    assert (first.status, len(runs)) == (200, 1)
    for request_id in ("r2", "r3"):
        assert send(pipeline, KEYED, request_id) == first
    assert wire.parse(first.body)["metadata"]["request_id"] == "r1"
    assert len(runs) == 1


def test_without_a_key_it_is_run_as_often_as_it_is_sent(pipeline: Served) -> None:
    answers = [send(pipeline, ADD) for _ in range(2)]
    assert [wire.parse(a.body)["run"] for a in answers] == [1, 2]
    assert send(pipeline, {**ADD, "idempotency_key": None}).status == 200
    assert len(runs) == 3


def test_it_is_the_same_after_a_restart(pipeline: Served, again: Served) -> None:
    first = send(pipeline, KEYED)
    assert send(again, KEYED) == first
    assert len(runs) == 1


@pytest.mark.parametrize(("happens", "answered"), [(True, "r1"), (False, "r2")])
def test_a_lost_response_is_rebuilt_with_the_request_id_of_the_recorded_change(
    happens: bool, answered: str, pipeline: Served, again: Served, ledger: MuteLedger
) -> None:
    body = {"operation": "NOTE", **ADDRESS, "idempotency_key": "k1", "happens": happens}
    ledger.mute = frozenset({"answer"})
    assert wire.parse(send(pipeline, body, "r1").body)["metadata"]["request_id"] == "r1"
    for request_id in ("r2", "r3"):
        assert wire.parse(send(again, body, request_id).body)["metadata"]["request_id"] == answered
    assert len(runs) == 2


def test_the_handler_is_told_the_key_and_what_is_known_of_it(pipeline: Served) -> None:
    send(pipeline, KEYED)
    key = runs[0].key
    assert key
    assert (key.operation, key.table.table, key.text) == ("ADD", "orders", "k1")
    assert (runs[0].id, runs[0].earlier) == ("r1", None)


def test_who_asks_for_a_schedule_is_asked_before_a_commit_with_a_key_too(pipeline: Served) -> None:
    asked = Call("schedule-1", commit_gate=lambda: None, requested_by="schedule nightly")
    assert pipeline.submit(KEYED, asked).result(30).status == 200
    [call] = runs
    assert call.key is not None
    assert (call.commit_gate, call.requested_by) == (asked.commit_gate, "schedule nightly")


def test_sent_many_times_at_once_it_is_run_once_and_all_are_answered_the_same(pipeline: Served) -> None:
    held = {**KEYED, "held": True}
    first = pipeline.submit(held, Call("r0"))
    assert inside.wait(30)
    others = [pipeline.submit(held, Call(f"r{i}")) for i in range(1, 30)]
    running(pipeline, 30)
    assert not any(other.done() for other in others)
    go_on.set()
    bodies = {answer.result(30).body for answer in (first, *others)}
    assert (len(bodies), len(runs)) == (1, 1)
    assert pipeline.drain(30)


def test_sent_by_many_threads_at_once_it_is_run_once(pipeline: Served) -> None:
    barrier, answers = threading.Barrier(8), []

    def client() -> None:
        barrier.wait(30)
        answers.append(send(pipeline, KEYED))

    threads = [threading.Thread(target=client) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len({a.body for a in answers}), len(answers), len(runs)) == (1, 8, 1)


@pytest.mark.parametrize(
    "other",
    [
        {"number": 2},
        {"number": "1"},
        {"number": 1.0},
        {"number": [1]},
        {"how": "well"},
    ],
)
def test_another_request_under_the_same_key_is_refused(other: dict[str, Any], pipeline: Served) -> None:
    first = send(pipeline, KEYED)
    body = wire.render({**KEYED, **other})
    assert error(send(pipeline, body)) == (422, "KEY_REUSED", "idempotency_key")
    assert send(pipeline, KEYED) == first
    assert len(runs) == 1


def test_also_while_the_first_is_in_progress(pipeline: Served) -> None:
    first = pipeline.submit({**KEYED, "held": True})
    assert inside.wait(30)
    assert error(send(pipeline, KEYED)) == (422, "KEY_REUSED", "idempotency_key")
    go_on.set()
    assert first.result(30).status == 200


@pytest.mark.parametrize(
    "same",
    [
        {"namespace": "default"},
        {"operation": "add"},
        dict(reversed(KEYED.items())),
    ],
)
def test_what_says_the_same_in_other_words_is_the_same(same: dict[str, Any], pipeline: Served) -> None:
    first = send(pipeline, KEYED)
    body = {**same, **{k: v for k, v in KEYED.items() if k not in same}}
    for again in (body, wire.render(body), wire.render(body).decode()):
        assert send(pipeline, again) == first
    assert len(runs) == 1


@pytest.mark.parametrize(
    "elsewhere",
    [{"tenant_id": "bolt"}, {"namespace": "shop"}, {"table": "others"}, {"idempotency_key": "k2"}],
)
def test_a_key_is_its_tenants_namespaces_and_tables_own(elsewhere: dict[str, Any], pipeline: Served) -> None:
    send(pipeline, KEYED)
    assert wire.parse(send(pipeline, {**KEYED, **elsewhere}).body)["run"] == 2


def test_a_key_is_its_operations_own(pipeline: Served) -> None:
    send(pipeline, KEYED)
    assert wire.parse(send(pipeline, {"operation": "TAKE", **ADDRESS, "idempotency_key": "k1"}).body)["run"] == 2


@pytest.mark.parametrize("preview", ["dry_run", "estimate"])
class TestPreviews:
    """What only asks what a change would do has no effect that could be had twice: it has no use for its key."""

    def test_it_leaves_its_key_to_the_change_itself(self, preview: str, pipeline: Served) -> None:
        assert send(pipeline, {**KEYED, preview: True}).status == 200
        first = send(pipeline, KEYED)
        assert (first.status, wire.parse(first.body)["run"]) == (200, 2)
        assert send(pipeline, KEYED) == first

    def test_it_gets_a_new_response_each_time(self, preview: str, pipeline: Served, ledger: MuteLedger) -> None:
        ledger.mute = frozenset({"key", "answer"})
        for key in (None, "k1"):
            assert send(pipeline, {**KEYED, preview: True}, key=key).status == 200
        assert [call.key for call in runs] == [None, None]

    def test_it_is_previewed_after_the_change_too(self, preview: str, pipeline: Served) -> None:
        send(pipeline, KEYED)
        assert wire.parse(send(pipeline, {**KEYED, preview: True}).body)["run"] == 2


class TestBesideTheBody:
    """The key may come as the header Idempotency-Key instead."""

    def test_it_means_the_same_in_either_place(self, pipeline: Served) -> None:
        first = send(pipeline, ADD, key="k1")
        assert send(pipeline, KEYED) == first
        assert send(pipeline, KEYED, key="k1") == first
        assert send(pipeline, {**ADD, "idempotency_key": None}, key="k1") == first
        assert len(runs) == 1
        assert runs[0].key

    @pytest.mark.parametrize("message", ["k2", 5, ["k1"], "", {}])
    def test_two_that_differ_are_refused(self, message: Any, pipeline: Served) -> None:
        answer = send(pipeline, {**ADD, "idempotency_key": message}, key="k1")
        assert error(answer) == (400, "INVALID_REQUEST", "idempotency_key")
        assert runs == []

    def test_what_changes_nothing_has_no_use_for_it(self, pipeline: Served) -> None:
        body = {"operation": "LOOK", **ADDRESS}
        assert [wire.parse(send(pipeline, body, key="k1").body)["run"] for _ in range(2)] == [1, 2]
        assert error(send(pipeline, {**body, "idempotency_key": "k1"})) == (400, "UNKNOWN_FIELD", "idempotency_key")

    @pytest.mark.parametrize("key", ["", "k" * 201])
    def test_one_that_is_too_short_or_too_long_is_refused_by_name(self, key: str, pipeline: Served) -> None:
        assert error(send(pipeline, ADD, key=key)) == (400, "INVALID_REQUEST", "idempotency_key")
        assert error(send(pipeline, {**ADD, "idempotency_key": key})) == (400, "INVALID_REQUEST", "idempotency_key")
        assert runs == []


class TestFailures:
    """A failure is told to those who wait for it, and then forgotten: the key is free to try again."""

    def test_it_is_not_kept(self, pipeline: Served) -> None:
        body = {**KEYED, "how": "refused"}
        assert error(send(pipeline, body))[1] == "CATALOG_UNAVAILABLE"
        assert error(send(pipeline, body))[1] == "TABLE_NOT_FOUND"
        assert len(runs) == 2

    @pytest.mark.parametrize(("how", "status"), [("refused", 503), ("broken", 500)])
    def test_those_who_waited_are_told_the_same(self, how: str, status: int, pipeline: Served) -> None:
        body = {**KEYED, "how": how, "held": True}
        first = pipeline.submit(body)
        assert inside.wait(30)
        others = [pipeline.submit(body) for _ in range(3)]
        running(pipeline, 4)
        go_on.set()
        reported = first.result(30)
        assert reported.status == status
        assert all(other.result(30) == reported for other in others)
        assert (len(runs), pipeline.drain(30)) == (1, True)

    def test_what_cannot_be_meant_uses_no_key_up(self, pipeline: Served) -> None:
        assert error(send(pipeline, {**KEYED, "numer": 1}))[1] == "UNKNOWN_FIELD"
        assert send(pipeline, KEYED).status == 200

    def test_a_key_whose_change_came_to_nothing_may_stand_for_another_request(
        self, pipeline: Served, ledger: MuteLedger
    ) -> None:
        """As one that was refused before anything was noted may: for the same edit by a new plan, above all."""
        send(pipeline, {**NOTE, "happens": False, "fails": True})
        [call] = runs
        assert call.key
        noted = ledger.key(call.key.id)
        assert noted is not None
        assert (noted.state, noted.answer) == ("void", None)
        first = send(pipeline, NOTE)
        assert (first.status, send(pipeline, NOTE)) == (200, first)
        assert error(send(pipeline, {**NOTE, "happens": False}))[1] == "KEY_REUSED"

    def test_that_other_request_s_answer_is_kept_as_its_own_though_it_changed_nothing(
        self, pipeline: Served, ledger: MuteLedger
    ) -> None:
        failed = {**NOTE, "happens": False, "fails": True}
        send(pipeline, failed)
        first = send(pipeline, {**NOTE, "idle": True})
        assert (first.status, send(pipeline, {**NOTE, "idle": True})) == (200, first)
        assert error(send(pipeline, failed))[1] == "KEY_REUSED"

    def test_a_key_that_cannot_be_looked_up_is_refused_and_nothing_is_run(
        self, pipeline: Served, ledger: MuteLedger
    ) -> None:
        """It may have happened already."""
        ledger.mute = frozenset({"key"})
        answer = send(pipeline, KEYED)
        assert error(answer)[:2] == (503, "LEDGER_UNAVAILABLE")
        assert (answer.retry_after_s, runs, pipeline.busy) == (1, [], False)
        assert send(pipeline, ADD).status == 200
        ledger.mute = frozenset()
        assert send(pipeline, KEYED).status == 200

    def test_an_answer_that_cannot_be_stored_is_sent_all_the_same(self, pipeline: Served, ledger: MuteLedger) -> None:
        ledger.mute = frozenset({"answer"})
        assert send(pipeline, KEYED).status == 200
        assert not pipeline.busy

    def test_a_key_of_a_request_that_was_given_up_is_free_again(self, pipeline: Served, again: Served) -> None:
        pipeline.close()
        for _ in range(2):
            assert error(send(pipeline, KEYED))[1] == "SHUTTING_DOWN"
        assert send(again, KEYED).status == 200
        assert pipeline.drain(0)


class TestLater:
    """An answer that comes later is stored by whoever makes it; those who send the same meanwhile wait for it."""

    def test_those_who_wait_are_answered_with_it(self, pipeline: Served) -> None:
        answers = [pipeline.submit(PROMISE, Call(f"r{i}")) for i in range(5)]
        running(pipeline, 5)
        assert (len(runs), any(a.done() for a in answers)) == (1, False)
        promised[0].set_result(runs[0].respond(Done(run=1)))
        assert len({a.result(30).body for a in answers}) == 1
        assert pipeline.drain(0)

    def test_its_key_is_looked_up_when_it_was_stored(self, pipeline: Served, ledger: MuteLedger) -> None:
        first = pipeline.submit(PROMISE)
        running(pipeline)
        key, body = runs[0].key, runs[0].respond(Done(run=1))
        assert key
        ledger.answer(key.id, key.fingerprint, body)
        promised[0].set_result(body)
        assert send(pipeline, PROMISE) == first.result(30)
        assert len(runs) == 1

    def test_a_caller_who_hung_up_keeps_nobody_else_waiting(self, pipeline: Served) -> None:
        first, second = pipeline.submit(PROMISE), pipeline.submit(PROMISE)
        first.cancel()
        running(pipeline, 2)
        promised[0].set_result(runs[0].respond(Done(run=1)))
        assert second.result(30).status == 200
        assert pipeline.drain(0)

    def test_a_stop_answers_all_who_wait_for_it(self, pipeline: Served) -> None:
        answers = [pipeline.submit(PROMISE) for _ in range(3)]
        running(pipeline, 3)
        assert not pipeline.drain(0.02)
        assert error(send(pipeline, PROMISE))[1] == "SHUTTING_DOWN"
        promised[0].set_exception(CatalogUnavailable("stopped"))
        assert [error(a.result(30))[1] for a in answers] == ["CATALOG_UNAVAILABLE"] * 3
        assert pipeline.drain(0)


class TestJobs:
    """An answer that names a job stands for its work: while that is under way, and once it is done."""

    def test_a_running_or_finished_job_is_named_again(self, pipeline: Served) -> None:
        first = send(pipeline, BEGIN)
        assert send(pipeline, BEGIN) == first
        pipeline.jobs.done(job_in(pipeline, first), b"{}")
        assert (send(pipeline, BEGIN), len(runs)) == (first, 1)

    @pytest.mark.parametrize("end", ["failed", "cancelled"])
    def test_after_a_job_that_did_nothing_it_is_started_again(self, end: str, pipeline: Served) -> None:
        first = send(pipeline, BEGIN)
        getattr(pipeline.jobs, end)(job_in(pipeline, first), b'{"code": "COMMIT_CONFLICT"}')
        second = send(pipeline, BEGIN)
        assert job_of(second) != job_of(first)
        assert (send(pipeline, BEGIN), len(runs)) == (second, 2)

    def test_after_a_restart_an_interrupted_job_is_started_again(self, pipeline: Served, again: Served) -> None:
        first = send(pipeline, BEGIN)
        second = send(again, BEGIN)
        assert pipeline.jobs.describe(job_of(first))["state"] == "running", "as it knew it"
        assert again.jobs.describe(job_of(first))["state"] == "interrupted"
        assert job_of(second) != job_of(first)
        assert send(again, BEGIN) == second

    def test_the_key_still_stands_for_that_request_only(self, pipeline: Served) -> None:
        pipeline.jobs.failed(job_in(pipeline, send(pipeline, BEGIN)), b"{}")
        assert error(send(pipeline, {**BEGIN, "number": 7}))[1] == "KEY_REUSED"
        assert (send(pipeline, BEGIN).status, len(runs)) == (200, 2)

    def test_a_job_that_nobody_knows_any_more_is_named_still(self, pipeline: Served, ledger: MuteLedger) -> None:
        first = send(pipeline, BEGIN)
        pipeline.jobs.failed(job_in(pipeline, first), b"{}")
        JobRecords(ledger).forget({}, 0, 2**62)
        assert (send(pipeline, BEGIN), len(runs)) == (first, 1)

    def test_where_nobody_can_say_what_became_of_it_nothing_is_begun(
        self, pipeline: Served, ledger: MuteLedger
    ) -> None:
        pipeline.jobs.failed(job_in(pipeline, send(pipeline, BEGIN)), b"{}")
        ledger.mute = frozenset({"delete_response"})
        assert error(send(pipeline, BEGIN))[:2] == (503, "LEDGER_UNAVAILABLE")
        assert (len(runs), pipeline.busy) == (1, False)
        ledger.mute = frozenset()
        assert send(pipeline, BEGIN).status == 200


def job_in(pipeline: Served, answer: Response) -> Job:
    """The job that an answer names, as its process has it."""
    return pipeline.jobs._live[job_of(answer)]


def job_of(answer: Response) -> str:
    assert answer.status == 200, answer.body
    return str(wire.parse(answer.body)["job_id"])

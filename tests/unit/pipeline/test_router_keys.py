"""With an idempotency key a request is run once and answered the same, however often and through whichever door."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from service import wire
from service.app import App
from service.commits.ask import Ask
from service.context import Context
from service.errors import CatalogUnavailable, TableNotFound
from service.jobs.job import Progress
from service.jobs.jobs import Jobs
from service.ledger.jobs import JobNotes
from service.ledger.ledger import Begun
from service.names import TableName
from service.operation import ChangeRequest, Result, TableRequest, operation
from service.router import Answer, Router
from service.schema import TableSchema
from tests.fakes import FakeCatalog, MuteLedger


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


runs: list[Context] = []
promised: list["Future[bytes]"] = []
inside = threading.Event()
go_on = threading.Event()


@operation(Add, Done, pool="edits")
def add(request: Add, context: Context) -> Done:
    """Change something, or fail."""
    runs.append(context)
    if request.held:
        inside.set()
        assert go_on.wait(10)
    if request.how == "refused":
        raise CatalogUnavailable("no answer") if len(runs) == 1 else TableNotFound("gone")
    if request.how == "broken":
        raise KeyError("secret of the inside")
    return Done(run=len(runs))


@operation(Take, Done, pool="queries")
def take(request: Take, context: Context) -> Done:
    """Change something else."""
    runs.append(context)
    return Done(run=len(runs))


@operation(Promise, Done, pool="inline")
def promise(request: Promise, context: Context) -> "Done | Future[bytes]":
    """Answer later, and store the answer."""
    runs.append(context)
    promised.append(Future())
    return promised[-1]


@operation(Begin, Accepted, pool="upkeep")
def begin(request: Begin, context: Context) -> Accepted:
    """Begin a job, and answer with its id."""
    runs.append(context)
    return Accepted(job_id=context.jobs.begin("COMPACT", TABLE, Progress()))


@operation(Note, Done, pool="edits")
def note(request: Note, context: Context) -> Done:
    """Commit something with somebody else, unless an attempt before has."""
    runs.append(context)
    ask, ledger = context.ask, context.ledger
    before = ledger.find(ask.earlier) if ask.earlier else None
    if not request.idle and (before is None or before.state != "done"):
        assert ask.key
        batch, key = f"b{len(runs)}", ask.key
        whose = {key.id: ask.request_id}
        ledger.begin(
            Begun(batch, key.table, "uuid", "NOTE", ["r0", ask.request_id], 0, {key.id: key.fingerprint}, whose)
        )
        ledger.end(batch, 5 if request.happens or ask.earlier else None)
    if request.fails:
        raise CatalogUnavailable("no answer")
    return Done(run=len(runs))


@operation(Look, Done, pool="queries")
def look(request: Look, context: Context) -> Done:
    """Change nothing."""
    runs.append(context)
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


@pytest.fixture
def router(app: App, ledger: MuteLedger) -> Iterator[Router]:
    runs.clear()
    promised.clear()
    inside.clear()
    go_on.clear()
    made = Router(OPERATIONS, with_ledger(app, ledger))
    yield made
    go_on.set()
    made.close()


@pytest.fixture
def again(router: Router, app: App, tmp_path: Path) -> Iterator[Router]:
    """The service after a restart: a router of its own on the same ledger's file."""
    ledger = MuteLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    made = Router(OPERATIONS, with_ledger(app, ledger))
    yield made
    made.close()


def with_ledger(app: App, ledger: MuteLedger) -> Context:
    """The parts of a service that note in this ledger what keys and jobs come to."""
    return replace(app.context, ledger=ledger, jobs=Jobs(JobNotes(ledger), app.context.commits))


def send(router: Router, body: Any, request_id: str = "r1", key: str | None = None) -> Answer:
    return router.submit(body, request_id, key).result(10)


def error(answer: Answer) -> tuple[int, str, str | None]:
    said = wire.parse(answer.body)["error"]
    return answer.status, said["code"], said.get("field")


def test_the_same_again_is_answered_byte_for_byte_and_run_once(router: Router) -> None:
    first = send(router, KEYED, "r1")
    assert (first.status, len(runs)) == (200, 1)
    for request_id in ("r2", "r3"):
        assert send(router, KEYED, request_id) == first
    assert wire.parse(first.body)["metadata"]["request_id"] == "r1"
    assert len(runs) == 1


def test_without_a_key_it_is_run_as_often_as_it_is_sent(router: Router) -> None:
    answers = [send(router, ADD) for _ in range(2)]
    assert [wire.parse(a.body)["run"] for a in answers] == [1, 2]
    assert send(router, {**ADD, "idempotency_key": None}).status == 200
    assert len(runs) == 3


def test_it_is_the_same_after_a_restart(router: Router, again: Router) -> None:
    first = send(router, KEYED)
    assert send(again, KEYED) == first
    assert len(runs) == 1


@pytest.mark.parametrize(("happens", "answered"), [(True, "r1"), (False, "r2")])
def test_an_answer_that_was_lost_is_made_anew_with_the_id_that_the_effect_is_noted_under(
    happens: bool, answered: str, router: Router, again: Router, ledger: MuteLedger
) -> None:
    body = {"operation": "NOTE", **ADDRESS, "idempotency_key": "k1", "happens": happens}
    ledger.mute = frozenset({"answer"})
    assert wire.parse(send(router, body, "r1").body)["metadata"]["request_id"] == "r1"
    for request_id in ("r2", "r3"):
        assert wire.parse(send(again, body, request_id).body)["metadata"]["request_id"] == answered
    assert len(runs) == 2


def test_the_handler_is_told_the_key_and_what_is_known_of_it(router: Router) -> None:
    send(router, KEYED)
    key = runs[0].ask.key
    assert key
    assert (key.operation, key.table.table, key.text) == ("ADD", "orders", "k1")
    assert (runs[0].ask.request_id, runs[0].ask.earlier) == ("r1", None)


def test_who_asks_for_a_schedule_is_asked_before_a_commit_with_a_key_too(router: Router) -> None:
    asked = Ask("schedule-1", still_ours=lambda: None, asked_by="schedule nightly")
    assert router.submit(KEYED, ask=asked).result(10).status == 200
    [context] = runs
    assert context.ask.key is not None
    assert (context.ask.still_ours, context.ask.asked_by) == (asked.still_ours, "schedule nightly")


def test_sent_many_times_at_once_it_is_run_once_and_all_are_answered_the_same(router: Router) -> None:
    held = {**KEYED, "held": True}
    first = router.submit(held, "r0")
    assert inside.wait(10)
    others = [router.submit(held, f"r{i}") for i in range(1, 30)]
    assert not any(other.done() for other in others)
    go_on.set()
    bodies = {answer.result(10).body for answer in (first, *others)}
    assert (len(bodies), len(runs)) == (1, 1)
    assert router.drain(10)


def test_sent_by_many_threads_at_once_it_is_run_once(router: Router) -> None:
    barrier, answers = threading.Barrier(8), []

    def client() -> None:
        barrier.wait(10)
        answers.append(send(router, KEYED))

    threads = [threading.Thread(target=client) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
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
def test_another_request_under_the_same_key_is_refused(other: dict[str, Any], router: Router) -> None:
    first = send(router, KEYED)
    body = wire.render({**KEYED, **other})
    assert error(send(router, body)) == (422, "KEY_REUSED", "idempotency_key")
    assert send(router, KEYED) == first
    assert len(runs) == 1


def test_also_while_the_first_is_under_way(router: Router) -> None:
    first = router.submit({**KEYED, "held": True})
    assert inside.wait(10)
    assert error(send(router, KEYED)) == (422, "KEY_REUSED", "idempotency_key")
    go_on.set()
    assert first.result(10).status == 200


@pytest.mark.parametrize(
    "same",
    [
        {"namespace": "default"},
        {"operation": "add"},
        dict(reversed(KEYED.items())),
    ],
)
def test_what_says_the_same_in_other_words_is_the_same(same: dict[str, Any], router: Router) -> None:
    first = send(router, KEYED)
    body = {**same, **{k: v for k, v in KEYED.items() if k not in same}}
    for again in (body, wire.render(body), wire.render(body).decode()):
        assert send(router, again) == first
    assert len(runs) == 1


@pytest.mark.parametrize(
    "elsewhere",
    [{"tenant_id": "bolt"}, {"namespace": "shop"}, {"table": "others"}, {"idempotency_key": "k2"}],
)
def test_a_key_is_its_tenants_namespaces_and_tables_own(elsewhere: dict[str, Any], router: Router) -> None:
    send(router, KEYED)
    assert wire.parse(send(router, {**KEYED, **elsewhere}).body)["run"] == 2


def test_a_key_is_its_operations_own(router: Router) -> None:
    send(router, KEYED)
    assert wire.parse(send(router, {"operation": "TAKE", **ADDRESS, "idempotency_key": "k1"}).body)["run"] == 2


@pytest.mark.parametrize("preview", ["dry_run", "estimate"])
class TestPreviews:
    """What only asks what a change would do has no effect that could be had twice: it has no use for its key."""

    def test_it_leaves_its_key_to_the_change_itself(self, preview: str, router: Router) -> None:
        assert send(router, {**KEYED, preview: True}).status == 200
        first = send(router, KEYED)
        assert (first.status, wire.parse(first.body)["run"]) == (200, 2)
        assert send(router, KEYED) == first

    def test_it_is_answered_anew_each_time(self, preview: str, router: Router, ledger: MuteLedger) -> None:
        ledger.mute = frozenset({"key", "answer"})
        for key in (None, "k1"):
            assert send(router, {**KEYED, preview: True}, key=key).status == 200
        assert [context.ask.key for context in runs] == [None, None]

    def test_it_is_previewed_after_the_change_too(self, preview: str, router: Router) -> None:
        send(router, KEYED)
        assert wire.parse(send(router, {**KEYED, preview: True}).body)["run"] == 2


class TestBesideTheBody:
    """The key may come as the header Idempotency-Key instead."""

    def test_it_means_the_same_in_either_place(self, router: Router) -> None:
        first = send(router, ADD, key="k1")
        assert send(router, KEYED) == first
        assert send(router, KEYED, key="k1") == first
        assert send(router, {**ADD, "idempotency_key": None}, key="k1") == first
        assert len(runs) == 1
        assert runs[0].ask.key

    @pytest.mark.parametrize("said", ["k2", 5, ["k1"], "", {}])
    def test_two_that_differ_are_refused(self, said: Any, router: Router) -> None:
        answer = send(router, {**ADD, "idempotency_key": said}, key="k1")
        assert error(answer) == (400, "INVALID_REQUEST", "idempotency_key")
        assert runs == []

    def test_what_changes_nothing_has_no_use_for_it(self, router: Router) -> None:
        body = {"operation": "LOOK", **ADDRESS}
        assert [wire.parse(send(router, body, key="k1").body)["run"] for _ in range(2)] == [1, 2]
        assert error(send(router, {**body, "idempotency_key": "k1"})) == (400, "UNKNOWN_FIELD", "idempotency_key")

    @pytest.mark.parametrize("key", ["", "k" * 201])
    def test_one_that_is_too_short_or_too_long_is_refused_by_name(self, key: str, router: Router) -> None:
        assert error(send(router, ADD, key=key)) == (400, "INVALID_REQUEST", "idempotency_key")
        assert error(send(router, {**ADD, "idempotency_key": key})) == (400, "INVALID_REQUEST", "idempotency_key")
        assert runs == []


class TestFailures:
    """A failure is told to those who wait for it, and then forgotten: the key is free to try again."""

    def test_it_is_not_kept(self, router: Router) -> None:
        body = {**KEYED, "how": "refused"}
        assert error(send(router, body))[1] == "CATALOG_UNAVAILABLE"
        assert error(send(router, body))[1] == "TABLE_NOT_FOUND"
        assert len(runs) == 2

    @pytest.mark.parametrize(("how", "status"), [("refused", 503), ("broken", 500)])
    def test_those_who_waited_are_told_the_same(self, how: str, status: int, router: Router) -> None:
        body = {**KEYED, "how": how, "held": True}
        first = router.submit(body)
        assert inside.wait(10)
        others = [router.submit(body) for _ in range(3)]
        go_on.set()
        told = first.result(10)
        assert told.status == status
        assert all(other.result(10) == told for other in others)
        assert (len(runs), router.drain(10)) == (1, True)

    def test_what_cannot_be_meant_uses_no_key_up(self, router: Router) -> None:
        assert error(send(router, {**KEYED, "numer": 1}))[1] == "UNKNOWN_FIELD"
        assert send(router, KEYED).status == 200

    def test_a_key_whose_change_came_to_nothing_may_stand_for_another_request(
        self, router: Router, ledger: MuteLedger
    ) -> None:
        """As one that was refused before anything was noted may: for the same edit by a new plan, above all."""
        send(router, {**NOTE, "happens": False, "fails": True})
        [context] = runs
        assert context.ask.key
        noted = ledger.key(context.ask.key.id)
        assert noted is not None
        assert (noted.state, noted.answer) == ("void", None)
        first = send(router, NOTE)
        assert (first.status, send(router, NOTE)) == (200, first)
        assert error(send(router, {**NOTE, "happens": False}))[1] == "KEY_REUSED"

    def test_that_other_request_s_answer_is_kept_as_its_own_though_it_changed_nothing(
        self, router: Router, ledger: MuteLedger
    ) -> None:
        failed = {**NOTE, "happens": False, "fails": True}
        send(router, failed)
        first = send(router, {**NOTE, "idle": True})
        assert (first.status, send(router, {**NOTE, "idle": True})) == (200, first)
        assert error(send(router, failed))[1] == "KEY_REUSED"

    def test_a_key_that_cannot_be_looked_up_is_refused_and_nothing_is_run(
        self, router: Router, ledger: MuteLedger
    ) -> None:
        """It may have happened already."""
        ledger.mute = frozenset({"key"})
        answer = send(router, KEYED)
        assert error(answer)[:2] == (503, "LEDGER_UNAVAILABLE")
        assert (answer.retry_after_s, runs, router.busy) == (1, [], False)
        assert send(router, ADD).status == 200
        ledger.mute = frozenset()
        assert send(router, KEYED).status == 200

    def test_an_answer_that_cannot_be_stored_is_sent_all_the_same(self, router: Router, ledger: MuteLedger) -> None:
        ledger.mute = frozenset({"answer"})
        assert send(router, KEYED).status == 200
        assert not router.busy

    def test_a_key_of_a_request_that_was_given_up_is_free_again(self, router: Router, again: Router) -> None:
        router.close()
        for _ in range(2):
            assert error(send(router, KEYED))[1] == "SHUTTING_DOWN"
        assert send(again, KEYED).status == 200
        assert router.drain(0)


class TestLater:
    """An answer that comes later is stored by whoever makes it; those who send the same meanwhile wait for it."""

    def test_those_who_wait_are_answered_with_it(self, router: Router) -> None:
        answers = [router.submit(PROMISE, f"r{i}") for i in range(5)]
        assert (len(runs), any(a.done() for a in answers)) == (1, False)
        promised[0].set_result(runs[0].reply(Done(run=1)))
        assert len({a.result(0).body for a in answers}) == 1
        assert router.drain(0)

    def test_its_key_is_looked_up_when_it_was_stored(self, router: Router, ledger: MuteLedger) -> None:
        first = router.submit(PROMISE)
        key, body = runs[0].ask.key, runs[0].reply(Done(run=1))
        assert key
        ledger.answer(key.id, key.fingerprint, body)
        promised[0].set_result(body)
        assert send(router, PROMISE) == first.result(0)
        assert len(runs) == 1

    def test_a_caller_who_hung_up_keeps_nobody_else_waiting(self, router: Router) -> None:
        first, second = router.submit(PROMISE), router.submit(PROMISE)
        first.cancel()
        promised[0].set_result(runs[0].reply(Done(run=1)))
        assert second.result(0).status == 200
        assert router.drain(0)

    def test_a_stop_answers_all_who_wait_for_it(self, router: Router) -> None:
        answers = [router.submit(PROMISE) for _ in range(3)]
        assert not router.drain(0.02)
        assert error(send(router, PROMISE))[1] == "SHUTTING_DOWN"
        promised[0].set_exception(CatalogUnavailable("stopped"))
        assert [error(a.result(0))[1] for a in answers] == ["CATALOG_UNAVAILABLE"] * 3
        assert router.drain(0)


class TestJobs:
    """An answer that names a job stands for its work: while that is under way, and once it is done."""

    def test_a_job_under_way_or_done_is_named_again(self, router: Router) -> None:
        first = send(router, BEGIN)
        assert send(router, BEGIN) == first
        router.context.jobs.done(job_of(first), b"{}")
        assert (send(router, BEGIN), len(runs)) == (first, 1)

    @pytest.mark.parametrize("end", ["failed", "cancelled"])
    def test_after_one_that_came_to_nothing_it_is_begun_anew(self, end: str, router: Router) -> None:
        first = send(router, BEGIN)
        getattr(router.context.jobs, end)(job_of(first), b'{"code": "COMMIT_CONFLICT"}')
        second = send(router, BEGIN)
        assert job_of(second) != job_of(first)
        assert (send(router, BEGIN), len(runs)) == (second, 2)

    def test_after_a_restart_an_interrupted_one_is_begun_anew(self, router: Router, again: Router) -> None:
        first = send(router, BEGIN)
        second = send(again, BEGIN)
        assert router.context.jobs.describe(job_of(first))["state"] == "running", "as it knew it"
        assert again.context.jobs.describe(job_of(first))["state"] == "interrupted"
        assert job_of(second) != job_of(first)
        assert send(again, BEGIN) == second

    def test_the_key_still_stands_for_that_request_only(self, router: Router) -> None:
        router.context.jobs.failed(job_of(send(router, BEGIN)), b"{}")
        assert error(send(router, {**BEGIN, "number": 7}))[1] == "KEY_REUSED"
        assert (send(router, BEGIN).status, len(runs)) == (200, 2)

    def test_a_job_that_nobody_knows_any_more_is_named_still(self, router: Router, ledger: MuteLedger) -> None:
        first = send(router, BEGIN)
        router.context.jobs.failed(job_of(first), b"{}")
        JobNotes(ledger).forget(2**62)
        assert (send(router, BEGIN), len(runs)) == (first, 1)

    def test_where_nobody_can_say_what_became_of_it_nothing_is_begun(self, router: Router, ledger: MuteLedger) -> None:
        router.context.jobs.failed(job_of(send(router, BEGIN)), b"{}")
        ledger.mute = frozenset({"forget_answer"})
        assert error(send(router, BEGIN))[:2] == (503, "LEDGER_UNAVAILABLE")
        assert (len(runs), router.busy) == (1, False)
        ledger.mute = frozenset()
        assert send(router, BEGIN).status == 200


def job_of(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    return str(wire.parse(answer.body)["job_id"])

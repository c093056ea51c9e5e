"""A request ends early if its caller cancels it, disconnects, or set a deadline; and no kind waits for another kind."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

import pytest

from service.app import App
from service.errors import Cancelled
from service.ledger.ledger import Ledger
from service.model import wire
from service.model.call import Call
from service.operations.operation import ChangeRequest, Request, Result, operation
from service.pipeline.pipeline import Pipeline
from service.pipeline.response import Response
from tests.fakes import MuteLedger
from tests.harness import wait_until


class Done(Result):
    run: int


class Hold(ChangeRequest):
    operation: Literal["HOLD"]


class Ask(Request):
    operation: Literal["ASK"]


class Look(Request):
    operation: Literal["LOOK"]


class Share(ChangeRequest):
    operation: Literal["SHARE"]


class Queue(ChangeRequest):
    operation: Literal["QUEUE"]


begun: list[Call] = []
shared: list["Future[bytes]"] = []
go_on = threading.Event()


def until_cancelled(call: Call) -> Done:
    """Work that ends when the call is cancelled, or the test says so."""
    begun.append(call)
    with call.cancelling(go_on.set):
        assert go_on.wait(30)
    call.check()
    return Done(run=len(begun))


@operation(Hold, Done, pool="edits")
def hold(request: Hold, call: Call) -> Done:
    """Change something, in many steps."""
    return until_cancelled(call)


@operation(Ask, Done, pool="queries")
def ask(request: Ask, call: Call) -> Done:
    """Read many rows."""
    return until_cancelled(call)


@operation(Look, Done, pool="metadata")
def look(request: Look) -> Done:
    """Read metadata."""
    return Done(run=0)


@operation(Share, Done, pool="inline")
def share(request: Share, call: Call) -> "Done | Future[bytes]":
    """Change something together with others."""
    begun.append(call)
    shared.append(Future())
    return shared[-1]


@operation(Queue, Done, pool="queued")
def queue(request: Queue, call: Call) -> "Done | Future[bytes]":
    """Change something together with others, later; until then it ends with its call."""
    return share.handler(request, call)  # type: ignore[no-any-return]


TABLE = {"tenant_id": "a", "table": "t"}
HOLD, SHARE = {"operation": "HOLD", **TABLE}, {"operation": "SHARE", **TABLE}
QUEUE = {"operation": "QUEUE", **TABLE}
ASK, LOOK = {"operation": "ASK", "tenant_id": "a"}, {"operation": "LOOK", "tenant_id": "a"}
KEY = {"idempotency_key": "k1"}
Make = Callable[..., Pipeline]


@pytest.fixture
def make(app: App, tmp_path: Path) -> Iterator[Make]:
    """Pipelines with one thread for edits and one for queries, whose limits a test can change."""
    begun.clear()
    shared.clear()
    go_on.clear()
    made: list[Pipeline] = []
    parts = app.parts.replaced({Ledger: MuteLedger(f"sqlite:///{tmp_path / 'ledger.db'}")})

    def pipeline(**changed: Any) -> Pipeline:
        limits = app.settings.limits.model_copy(update={"edit_threads": 1, "query_threads": 1, **changed})
        made.append(Pipeline([hold, ask, look, share, queue], parts, limits))
        return made[-1]

    yield pipeline
    go_on.set()
    for one in shared:
        if not one.done():
            one.set_result(b"")
    for pipeline_ in made:
        pipeline_.close()


@pytest.fixture
def pipeline(make: Make) -> Pipeline:
    return make()


def running(number: int) -> None:
    wait_until(lambda: len(begun) == number, 10, every=0.002)


def code(response: Response) -> tuple[int, str]:
    return response.status, response.code


class TestCancelled:
    def test_a_request_that_waits_for_a_thread_never_begins_and_is_answered(self, pipeline: Pipeline) -> None:
        first, waiting = Call("r1"), Call("r2")
        one, two = pipeline.submit(HOLD, first), pipeline.submit(HOLD, waiting)
        running(1)
        wait_until(lambda: pipeline.admission.in_progress == 2, 10, every=0.002)
        assert waiting.cancel()
        assert code(two.result(30)) == (409, "CANCELLED")
        assert not one.done()
        go_on.set()
        assert one.result(30).status == 200
        assert pipeline.drain(30)
        assert begun == [first]

    def test_one_that_runs_is_told_and_answered(self, pipeline: Pipeline) -> None:
        call = Call("r1")
        answer = pipeline.submit(HOLD, call)
        running(1)
        assert call.cancel()
        assert code(answer.result(30)) == (409, "CANCELLED")
        assert wire.parse(answer.result().body)["error"]["retryable"] is False

    def test_one_with_the_same_key_then_runs_by_itself(self, pipeline: Pipeline) -> None:
        first = Call("r1")
        one = pipeline.submit({**HOLD, **KEY}, first)
        running(1)
        two = pipeline.submit({**HOLD, **KEY}, Call("r2"))
        wait_until(lambda: pipeline.admission.in_progress == 2, 10, every=0.002)
        first.cancel()
        assert code(one.result(30)) == (409, "CANCELLED")
        answer = two.result(30)
        assert (answer.status, wire.parse(answer.body)["run"]) == (200, 2)
        assert [call.id for call in begun] == ["r1", "r2"]


class TestDeadline:
    def test_it_is_answered_and_its_work_is_told(self, pipeline: Pipeline) -> None:
        answer = pipeline.submit({**HOLD, "timeout_ms": 500}, Call("r1")).result(30)  # long enough to begin
        assert code(answer) == (504, "DEADLINE_EXCEEDED")
        assert "timeout_ms" in wire.parse(answer.body)["error"]["message"]
        [call] = begun
        assert call.cancelled

    def test_one_that_waits_for_a_thread_until_then_never_begins(self, pipeline: Pipeline) -> None:
        one = pipeline.submit(HOLD, Call("r1"))
        running(1)
        assert code(pipeline.submit({**HOLD, "timeout_ms": 50}).result(30)) == (504, "DEADLINE_EXCEEDED")
        go_on.set()
        assert one.result(30).status == 200
        assert len(begun) == 1

    def test_a_read_of_rows_has_one_unless_it_says_otherwise(self, make: Make) -> None:
        pipeline = make(query_timeout_s=0.05)
        assert code(pipeline.submit(ASK).result(30)) == (504, "DEADLINE_EXCEEDED")
        go_on.clear()
        before = len(begun)
        longer = pipeline.submit({**ASK, "timeout_ms": 60_000})
        running(before + 1)
        with pytest.raises(TimeoutError):
            longer.result(0.2)
        go_on.set()
        assert longer.result(30).status == 200

    def test_none_is_later_than_the_settings_allow(self, make: Make) -> None:
        pipeline = make(max_timeout_s=0.05)
        assert code(pipeline.submit({**HOLD, "timeout_ms": 60_000}).result(30)) == (504, "DEADLINE_EXCEEDED")

    def test_what_is_shared_goes_on_and_its_key_stays_taken_until_it_ends(self, pipeline: Pipeline) -> None:
        """Or the same change could be begun twice."""
        body = {**SHARE, **KEY}
        first = pipeline.submit({**body, "timeout_ms": 400}, Call("r1"))
        assert code(first.result(30)) == (503, "OUTCOME_UNKNOWN")
        assert not begun[0].cancelled
        again = pipeline.submit({**body, "timeout_ms": 400}, Call("r2")).result(30)
        assert code(again) == (503, "OUTCOME_UNKNOWN")
        for answer in (first.result(), again):
            assert (wire.parse(answer.body)["error"]["retryable"], answer.retry_after_s) == (True, 1)
        assert not pipeline.drain(0.02)
        shared[0].set_result(b"the answer")
        assert pipeline.drain(30)
        assert len(begun) == 1

    def test_an_unknown_outcome_without_a_key_must_not_be_sent_again(self, pipeline: Pipeline) -> None:
        answer = pipeline.submit({**SHARE, "timeout_ms": 400}, Call("r1")).result(30)
        assert code(answer) == (503, "OUTCOME_UNKNOWN")
        assert (wire.parse(answer.body)["error"]["retryable"], answer.retry_after_s) == (False, None)
        shared[0].set_result(b"the answer")

    def test_whoever_waits_longer_for_it_is_answered_with_what_it_came_to(self, pipeline: Pipeline) -> None:
        body = {**SHARE, **KEY, "timeout_ms": 500}
        first, second = pipeline.submit(body, Call("r1")), Call("r2")
        running(1)
        second.started += 100
        waiting = pipeline.submit(body, second)
        assert code(first.result(30)) == (503, "OUTCOME_UNKNOWN")
        shared[0].set_result(b"the answer")
        assert waiting.result(30) == Response(200, b"the answer")
        assert len(begun) == 1


class TestDisconnect:
    @staticmethod
    def gone(pipeline: Pipeline, body: dict[str, Any], then: Callable[[Call], None] = lambda call: None) -> Response:
        """The response to a request whose client disconnects while its work runs."""

        async def run() -> Response:
            left, call = asyncio.Event(), Call("r1")

            async def disconnected() -> None:
                await left.wait()

            answer = asyncio.create_task(pipeline.respond_to(body, call, None, disconnected))
            while not begun:
                await asyncio.sleep(0.002)
            left.set()
            for _ in range(50):  # turns of the loop, however long each takes
                await asyncio.sleep(0.001)
            then(call)
            return await answer

        return asyncio.run(run())

    def test_it_cancels_work_in_a_pool(self, pipeline: Pipeline) -> None:
        assert code(self.gone(pipeline, ASK)) == (409, "CANCELLED")
        assert begun[0].cancelled

    def test_it_never_cancels_what_is_shared(self, pipeline: Pipeline) -> None:
        def then(call: Call) -> None:
            assert not call.cancelled
            assert not call.cancel()
            shared[0].set_result(b"done")

        assert self.gone(pipeline, SHARE, then) == Response(200, b"done")


class TestQueued:
    """What waits to be committed with others holds no thread, and can be cancelled until that begins."""

    def test_it_waits_for_no_thread(self, pipeline: Pipeline) -> None:
        stuck = [pipeline.submit(HOLD) for _ in range(3)]
        running(1)
        waiting = [pipeline.submit(QUEUE) for _ in range(20)]
        running(21)
        for one in shared:
            one.set_result(b"done")
        assert [one.result(30) for one in waiting] == [Response(200, b"done")] * 20
        go_on.set()
        assert [one.result(30).status for one in stuck] == [200] * 3

    def test_its_client_that_disconnects_cancels_it(self, pipeline: Pipeline) -> None:
        def then(call: Call) -> None:
            with pytest.raises(Cancelled) as reason:
                call.check()
            shared[0].set_exception(reason.value)

        assert code(TestDisconnect.gone(pipeline, QUEUE, then)) == (409, "CANCELLED")

    def test_at_its_deadline_it_ends_if_its_commit_has_not_begun(self, pipeline: Pipeline) -> None:
        assert code(pipeline.submit({**QUEUE, "timeout_ms": 50}).result(30)) == (504, "DEADLINE_EXCEEDED")
        assert begun[0].cancelled
        assert pipeline.drain(30)

    def test_once_it_has_begun_the_outcome_is_unknown_at_its_deadline(self, pipeline: Pipeline) -> None:
        answer = pipeline.submit({**QUEUE, "timeout_ms": 400})
        running(1)
        begun[0].seal()
        assert code(answer.result(30)) == (503, "OUTCOME_UNKNOWN")
        shared[0].set_result(b"done")
        assert pipeline.drain(30)


def test_metadata_is_read_while_all_query_threads_are_stuck(pipeline: Pipeline) -> None:
    stuck = [pipeline.submit(ASK) for _ in range(5)]
    running(1)
    assert [pipeline.submit(LOOK).result(30).status for _ in range(3)] == [200] * 3
    assert not any(one.done() for one in stuck)
    go_on.set()
    assert [one.result(30).status for one in stuck] == [200] * 5

"""From an operation's name to its answer, in the right pool, and in no case an exception."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, Literal

import pytest

from service.app import App
from service.errors import CatalogUnavailable, TableNotFound
from service.model import wire
from service.model.call import Call
from service.operations.operation import Request, Result, operation
from service.pipeline.pipeline import Pipeline
from service.pipeline.response import Response
from service.settings import load
from tests.harness import wait_until


class Echo(Request):
    operation: Literal["ECHO"]
    text: str = ""


class Refuse(Request):
    operation: Literal["REFUSE"]
    retry: bool = False


class Break(Request):
    operation: Literal["BREAK"]


class Hold(Request):
    operation: Literal["HOLD"]


class Later(Request):
    operation: Literal["LATER"]


class Said(Result):
    text: str


held = threading.Event()
released = threading.Event()


@operation(Echo, Said, pool="queries")
def echo(request: Echo, call: Call) -> Said:
    """Say it back."""
    return Said(text=f"{request.tenant_id} {call.id} {request.text}")


@operation(Refuse, Said, pool="queries")
def refuse(request: Refuse) -> Said:
    """Refuse, always."""
    raise CatalogUnavailable("no answer") if request.retry else TableNotFound("no such table", field="table")


@operation(Break, Said, pool="queries")
def break_(request: Break) -> Said:
    """Have a defect."""
    raise KeyError("secret of the inside")


@operation(Hold, Said, pool="edits")
def hold(request: Hold) -> Said:
    """Wait until it is let go."""
    held.set()
    released.wait(30)
    return Said(text="done")


class Deferred(Future[bytes]):
    """An answer that a handler promised; `say` keeps the promise."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call
        self.thread = threading.current_thread()

    def say(self, text: str) -> None:
        self.set_result(self.call.respond(Said(text=text)))


deferred: list[Deferred] = []


@operation(Later, Said, pool="inline")
def later(request: Later, call: Call) -> "Said | Future[bytes]":
    """Answer later."""
    deferred.append(Deferred(call))
    return deferred[-1]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """The real parts of a service whose Spark was never started."""
    limits = {
        "FIRN_LIMITS__EDIT_THREADS": "1",
        "FIRN_LIMITS__PENDING_REQUESTS": "2",
        "FIRN_LIMITS__TENANT_SHARE": "100",
    }
    app = App(load({"FIRN_HOME": str(tmp_path_factory.mktemp("home")), **limits}), [])
    yield app
    app.stop()


@pytest.fixture
def pipeline(app: App) -> Iterator[Pipeline]:
    held.clear()
    released.clear()
    deferred.clear()
    made = Pipeline([echo, refuse, break_, hold, later], app.parts, app.settings.limits)
    yield made
    released.set()
    made.close()


def ask(pipeline: Pipeline, body: Any, request_id: str | None = "r1") -> tuple[int, dict[str, Any]]:
    answer = pipeline.submit(body, Call(request_id) if request_id else None).result(30)
    assert isinstance(answer, Response)
    return answer.status, wire.parse(answer.body)


def promised(number: int) -> None:
    """Return once so many handlers have promised an answer."""
    wait_until(lambda: len(deferred) == number, 10, every=0.002)


def test_a_request_reaches_its_handler_and_the_answer_its_caller(pipeline: Pipeline) -> None:
    status, said = ask(pipeline, {"operation": "ECHO", "tenant_id": "a", "text": "hi"})
    assert (status, said["success"], said["text"]) == (200, True, "a r1 hi")
    assert said["metadata"]["request_id"] == "r1"


def test_who_asks_for_a_schedule_reaches_the_handler_whole(pipeline: Pipeline) -> None:
    asked = Call("schedule-nightly-1", commit_gate=lambda: None, requested_by="schedule nightly")
    answer = pipeline.submit({"operation": "LATER", "tenant_id": "a"}, asked)
    promised(1)
    assert deferred[0].call is asked
    deferred[0].say("done")
    assert wire.parse(answer.result(30).body)["metadata"]["request_id"] == "schedule-nightly-1"


@pytest.mark.parametrize("name", ["ECHO", "echo", "Echo"])
def test_an_operations_name_is_taken_in_any_case(name: str, pipeline: Pipeline) -> None:
    assert ask(pipeline, {"operation": name, "tenant_id": "a"})[0] == 200


@pytest.mark.parametrize(
    "body", [b'{"operation": "ECHO", "tenant_id": "a"}', '{"operation": "ECHO", "tenant_id": "a"}']
)
def test_a_request_may_be_bytes_or_text(body: bytes | str, pipeline: Pipeline) -> None:
    assert ask(pipeline, body)[0] == 200


def test_a_request_without_an_id_gets_one_of_its_own(pipeline: Pipeline) -> None:
    ids = {ask(pipeline, {"operation": "ECHO", "tenant_id": "a"}, None)[1]["metadata"]["request_id"] for _ in range(3)}
    assert len(ids) == 3
    assert all(ids)


@pytest.mark.parametrize(
    ("body", "code", "field", "suggestion"),
    [
        ({"operation": "EHCO", "tenant_id": "a"}, "UNKNOWN_OPERATION", "operation", "ECHO"),
        ({"operation": "XYZZY", "tenant_id": "a"}, "UNKNOWN_OPERATION", "operation", None),
        ({"tenant_id": "a"}, "INVALID_REQUEST", "operation", None),
        ({"operation": 3, "tenant_id": "a"}, "INVALID_REQUEST", "operation", None),
        ({"operation": "ECHO"}, "INVALID_REQUEST", "tenant_id", None),
        ({"operation": "ECHO", "tenant_id": "a", "txet": ""}, "UNKNOWN_FIELD", "txet", "text"),
        ({"operation": "ECHO", "tenant_id": "a", "text": 1}, "INVALID_REQUEST", "text", None),
        ([], "INVALID_REQUEST", None, None),
        (None, "INVALID_REQUEST", None, None),
        (b"{", "INVALID_REQUEST", None, None),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused_before_any_handler(
    body: Any, code: str, field: str | None, suggestion: str | None, pipeline: Pipeline
) -> None:
    status, said = ask(pipeline, body)
    error = said["error"]
    assert (status, error["code"], error.get("field"), error.get("suggestion")) == (400, code, field, suggestion)


def test_a_handlers_refusal_is_answered_with_its_own_code_and_status(pipeline: Pipeline) -> None:
    status, said = ask(pipeline, {"operation": "REFUSE", "tenant_id": "a"})
    assert (status, said["error"]["code"], said["error"]["retryable"]) == (404, "TABLE_NOT_FOUND", False)


def test_what_may_be_tried_again_says_when(pipeline: Pipeline) -> None:
    answer = pipeline.submit({"operation": "REFUSE", "tenant_id": "a", "retry": True}).result(30)
    assert (answer.status, answer.retry_after_s) == (503, 1)


def test_a_defect_shows_an_id_and_nothing_of_the_inside(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    status, said = ask(pipeline, {"operation": "BREAK", "tenant_id": "a"})
    assert (status, said["error"]["code"]) == (500, "INTERNAL_ERROR")
    assert "secret" not in str(said)
    assert "KeyError" not in str(said)
    error_id = said["error"]["details"]["error_id"]
    assert error_id in said["error"]["message"]
    assert error_id in caplog.text
    assert "secret of the inside" in caplog.text


def test_a_busy_pool_keeps_no_other_waiting(pipeline: Pipeline) -> None:
    waiting = pipeline.submit({"operation": "HOLD", "tenant_id": "a"})
    assert held.wait(30)
    assert ask(pipeline, {"operation": "ECHO", "tenant_id": "a"})[0] == 200
    assert not waiting.done()


def test_more_requests_than_may_wait_are_told_to_come_back(pipeline: Pipeline) -> None:
    waiting = [pipeline.submit({"operation": "HOLD", "tenant_id": "a"}) for _ in range(2)]
    answer = pipeline.submit({"operation": "ECHO", "tenant_id": "a"}).result(30)
    assert (answer.status, answer.retry_after_s) == (429, 1)
    assert wire.parse(answer.body)["error"]["retryable"] is True
    released.set()
    assert [w.result(30).status for w in waiting] == [200, 200]
    assert pipeline.drain(30)


def test_a_drained_router_finishes_what_runs_and_refuses_the_rest(pipeline: Pipeline) -> None:
    waiting = pipeline.submit({"operation": "HOLD", "tenant_id": "a"})
    assert held.wait(30)
    assert not pipeline.drain(0.05)
    status, said = ask(pipeline, {"operation": "ECHO", "tenant_id": "a"})
    assert (status, said["error"]["code"]) == (503, "SHUTTING_DOWN")
    released.set()
    assert pipeline.drain(30)
    assert waiting.result(30).status == 200


def test_a_closed_router_still_answers(pipeline: Pipeline) -> None:
    pipeline.close()
    status, said = ask(pipeline, {"operation": "ECHO", "tenant_id": "a"})
    assert (status, said["error"]["code"]) == (503, "SHUTTING_DOWN")
    assert pipeline.drain(0)


LATER = {"operation": "LATER", "tenant_id": "a"}


def test_what_is_answered_inline_runs_on_the_callers_thread_and_holds_none_while_it_waits(pipeline: Pipeline) -> None:
    async def respond() -> Response:
        answer = asyncio.create_task(pipeline.respond_to(LATER, Call("r1")))
        while not deferred:
            await asyncio.sleep(0.002)
        assert (deferred[0].thread, answer.done()) == (threading.current_thread(), False)
        deferred[0].say("done")
        return await answer

    said = wire.parse(asyncio.run(respond()).body)
    assert (said["success"], said["text"], said["metadata"]["request_id"]) == (True, "done", "r1")


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (CatalogUnavailable("no answer"), 503, "CATALOG_UNAVAILABLE"),
        (TableNotFound("no such table"), 404, "TABLE_NOT_FOUND"),
        (KeyError("secret of the inside"), 500, "INTERNAL_ERROR"),
        (RecursionError(), 400, "INVALID_REQUEST"),
    ],
)
def test_a_later_failure_is_answered_as_an_early_one(
    failure: Exception, status: int, code: str, pipeline: Pipeline
) -> None:
    answer = pipeline.submit(LATER, Call("r1"))
    promised(1)
    deferred[0].set_exception(failure)
    said = wire.parse(answer.result(30).body)
    assert (answer.result().status, said["error"]["code"]) == (status, code)
    assert "secret" not in str(said)
    assert pipeline.drain(0)


def test_those_that_wait_without_a_thread_take_no_place_of_those_that_need_one(pipeline: Pipeline) -> None:
    """What bounds them is the memory they hold."""
    waiting = [pipeline.submit(LATER) for _ in range(50)]
    assert ask(pipeline, {"operation": "ECHO", "tenant_id": "a"})[0] == 200
    promised(50)
    for one in deferred:
        one.say("done")
    assert [w.result(30).status for w in waiting] == [200] * 50
    assert pipeline.drain(0)


def test_a_handler_knows_who_asks_and_how_much_it_said(pipeline: Pipeline) -> None:
    body = wire.render(LATER)
    pipeline.submit(body, Call("r1"))
    pipeline.submit(body.decode(), Call("r2"))
    pipeline.submit(LATER, Call("r3"))
    promised(3)
    assert [(d.call.id, d.call.size) for d in deferred] == [
        ("r1", len(body)),
        ("r2", len(body)),
        ("r3", 0),
    ]
    assert deferred[0].call.key is None


def test_a_stop_waits_for_those_whose_answer_is_still_to_come(pipeline: Pipeline) -> None:
    waiting = pipeline.submit(LATER)
    promised(1)
    assert not pipeline.drain(0.02)
    assert pipeline.busy
    assert ask(pipeline, LATER)[1]["error"]["code"] == "SHUTTING_DOWN"
    pipeline.close()
    assert not waiting.done()
    deferred[0].say("done")
    assert waiting.result(30).status == 200
    assert pipeline.drain(0)


def test_a_caller_who_hangs_up_leaves_nothing_behind(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    """The request goes on; its answer finds nobody."""
    inline, pooled = pipeline.submit(LATER), pipeline.submit({"operation": "HOLD", "tenant_id": "a"})
    promised(1)
    for answer in (inline, pooled):
        answer.cancel()
    assert not pipeline.drain(0.02)
    deferred[0].say("done")
    released.set()
    assert pipeline.drain(30)
    assert "Traceback" not in caplog.text


def test_only_firn_itself_may_name_tenants_of_its_own(pipeline: Pipeline) -> None:
    found, request = pipeline.parse({"operation": "echo", "tenant_id": "_firn"}, trusted=True)
    assert (found.name, request.tenant_id) == ("ECHO", "_firn")
    assert ask(pipeline, {"operation": "ECHO", "tenant_id": "_firn"})[0] == 400

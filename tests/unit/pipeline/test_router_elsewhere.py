"""Among several instances a request with a key is run once and answered the same, whichever of them it is sent to."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.errors import KeyBusy, StorageUnavailable, TableExists
from service.ledger.ledger import Ledger, NewBatch
from service.model import wire
from service.model.call import Call
from service.operations.operation import ChangeRequest, Parts, Result, operation
from service.pipeline.pipeline import Pipeline
from service.pipeline.response import Response
from service.settings import LimitSettings
from tests.fakes import FakeCatalog, FakeOwners, MuteLedger
from tests.support.composed import Composed
from tests.unit.commit_setup import ORDERS, SCHEMA


class Add(ChangeRequest):
    operation: Literal["ADD"]
    number: int = 0


class Make(ChangeRequest):
    operation: Literal["MAKE"]


class Promise(ChangeRequest):
    operation: Literal["PROMISE"]


class Done(Result):
    by: str
    snapshot: int | None


runs: list[str] = []
committing: dict[str, Callable[[], object]] = {}
"""What an instance does just before it commits."""


@operation(Add, Done, pool="edits")
def add(request: Add, call: Call, ledger: Ledger, commits: Commits, catalog: Catalog) -> Done:
    """Change something, out of the table's turn: an instance that stands still does not hold it up."""
    me = ledger.owners.me

    def change(table: Table, batch: str) -> None:
        runs.append(me)
        committing.get(me, lambda: None)()
        commits.must_be_ours(batch)
        cast(Any, catalog).append(table.name, batch)

    table = catalog.load(ORDERS)
    effect = commits.commit(table, "ADD", call, change, in_order=False)
    return Done(by=me, snapshot=effect.snapshot_id)


@operation(Make, Done, pool="queries")
def make(request: Make, ledger: Ledger) -> Done:
    """Find that it is there already, before anything is noted."""
    runs.append(ledger.owners.me)
    committing["make"]()
    raise TableExists("it is there already")


@operation(Promise, Done, pool="inline")
def promise(request: Promise, call: Call, ledger: Ledger) -> "Done | Future[bytes]":
    """Find later that another instance was quicker to begin."""
    runs.append(ledger.owners.me)
    later: Future[bytes] = Future()
    if len(runs) > 1:
        return Done(by=ledger.owners.me, snapshot=None)
    key = call.key
    assert key
    committing["promise"]()
    later.set_exception(KeyBusy("another instance works on a request with this key", frozenset({key.id})))
    return later


OPERATIONS = [add, make, promise]
ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "orders", "idempotency_key": "k1"}
ADD = {"operation": "ADD", **ADDRESS}


class Instance(Pipeline):
    """One instance of the service."""

    def __init__(self, parts: Parts, limits: LimitSettings) -> None:
        super().__init__(OPERATIONS, parts, limits)
        self.me = parts[Ledger].owners.me

    def send(self, body: Any, request_id: str = "r") -> "Future[Response]":
        return self.submit(body, Call(request_id))


class TwoInstances:
    """Several instances over one catalog and one ledger."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.catalog = FakeCatalog()
        self.catalog.create(ORDERS, SCHEMA, (), {})
        self.ledgers: dict[str, MuteLedger] = {}
        self.pipelines: list[Instance] = []
        self.owners = FakeOwners("here")
        self.here = self.instance(self.owners)
        self.there = self.instance(self.owners.beside("there"))

    def instance(self, owners: FakeOwners | None = None) -> Instance:
        composed = Composed(self.path, catalog=self.catalog, owners=owners)
        self.ledgers[composed.ledger.owners.me] = composed.ledger
        self.pipelines.append(Instance(composed.parts, composed.settings.limits))
        return self.pipelines[-1]

    def there_goes(self) -> None:
        self.ledgers["there"].owners.close()

    @property
    def effects(self) -> int:
        return sum("firn-batch" in s.summary for s in self.catalog.tables[ORDERS].history)


@pytest.fixture
def instances(tmp_path: Path) -> Iterator[TwoInstances]:
    runs.clear()
    committing.clear()
    made = TwoInstances(tmp_path / "ledger.db")
    yield made
    for pipeline in made.pipelines:
        pipeline.close()


class Held:
    """Holds an instance up just before its commits, until it is let go."""

    def __init__(self, me: str) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()
        committing[me] = self

    def __call__(self) -> None:
        self.inside.set()
        assert self.go_on.wait(30)


def body_of(answer: Response) -> dict[str, Any]:
    value: dict[str, Any] = wire.parse(answer.body)
    return value


def error(answer: Response) -> tuple[int, str]:
    return answer.status, body_of(answer)["error"]["code"]


class TestAtWork:
    """A request whose key is at work in another instance."""

    def test_it_is_answered_with_that_ones_answer_and_has_no_second_effect(self, instances: TwoInstances) -> None:
        held = Held("there")
        first = instances.there.send(ADD, "r1")
        assert held.inside.wait(30)
        others = [instances.here.send(ADD, f"r{i}") for i in range(2, 5)]
        with pytest.raises(TimeoutError):
            others[0].result(0.08)
        held.go_on.set()
        answer = first.result(30)
        assert (answer.status, body_of(answer)["by"]) == (200, "there")
        assert {other.result(30).body for other in others} == {answer.body}
        assert (runs, instances.effects, instances.catalog.fences) == (["there"], 1, [])
        assert instances.here.drain(30)

    def test_the_answer_is_there_to_be_had_after_it_too(self, instances: TwoInstances) -> None:
        first = instances.there.send(ADD).result(30)
        assert instances.here.send(ADD).result(30).body == first.body
        assert runs == ["there"]

    def test_sent_to_both_at_once_it_is_run_once(self, instances: TwoInstances) -> None:
        for turn in range(8):
            body = {**ADD, "idempotency_key": f"k{turn}"}
            answers = [instance.send(body) for instance in (instances.here, instances.there) * 3]
            reported = {answer.result(30).body for answer in answers}
            assert (len(reported), instances.effects) == (1, turn + 1)
        assert len(runs) == 8

    def test_another_request_under_its_key_is_refused(self, instances: TwoInstances) -> None:
        held = Held("there")
        first = instances.there.send(ADD)
        assert held.inside.wait(30)
        assert error(instances.here.send({**ADD, "number": 1}).result(30)) == (422, "KEY_REUSED")
        held.go_on.set()
        assert first.result(30).status == 200

    def test_when_it_fails_there_it_is_tried_here(self, instances: TwoInstances) -> None:
        held = Held("there")

        def fail() -> None:
            held()
            raise StorageUnavailable("full")

        committing["there"] = fail
        first = instances.there.send(ADD)
        assert held.inside.wait(30)
        second = instances.here.send(ADD)
        with pytest.raises(TimeoutError):
            second.result(0.05)
        held.go_on.set()
        failed, done = first.result(30), second.result(30)
        assert body_of(done)["by"] == "here"
        # The first caller gets the response of whoever took the key over before the failure was answered.
        assert failed.body == done.body or error(failed) == (503, "STORAGE_UNAVAILABLE")
        assert (runs, instances.effects) == (["there", "here"], 1)

    def test_when_patience_ends_the_caller_is_told_to_come_again(self, instances: TwoInstances) -> None:
        held = Held("there")
        first = instances.there.send(ADD)
        assert held.inside.wait(30)
        instances.here._keys._patience_s = 0
        answer = instances.here.send(ADD).result(30)
        assert (error(answer), answer.retry_after_s) == ((503, "KEY_BUSY"), 1)
        held.go_on.set()
        assert instances.here.send(ADD).result(30).body == first.result(30).body
        assert instances.effects == 1


class TestGone:
    """The other instance goes away while it is at work."""

    def test_without_having_committed_it_is_tried_here_and_it_does_not_commit_any_more(
        self, instances: TwoInstances
    ) -> None:
        held = Held("there")
        first = instances.there.send(ADD)
        assert held.inside.wait(30)
        second = instances.here.send(ADD)
        instances.there_goes()
        answer = second.result(30)
        assert (answer.status, body_of(answer)["by"]) == (200, "here")
        # It only stood still. What it answers, if it can, is what happened.
        held.go_on.set()
        assert first.result(30).body == answer.body
        assert (runs, instances.effects, len(instances.catalog.fences)) == (["there", "here"], 1, 1)

    @pytest.mark.parametrize("noted", [True, False], ids=["its end is noted", "its end is not noted"])
    def test_having_committed_its_effect_is_answered_and_not_made_again(
        self, instances: TwoInstances, noted: bool
    ) -> None:
        """Its answer was never stored."""
        instances.ledgers["there"].mute = frozenset({"answer"} if noted else {"answer", "end"})
        first = instances.there.send(ADD).result(30)
        instances.there_goes()
        answer = instances.here.send(ADD).result(3)
        assert (answer.status, body_of(answer)["snapshot"]) == (200, body_of(first)["snapshot"])
        assert instances.here.send(ADD).result(3).body == answer.body
        assert (runs, instances.effects) == (["there"], 1)

    @pytest.mark.parametrize("noted", [True, False], ids=["its end is noted", "its end is not noted"])
    def test_so_it_is_in_the_embedded_shape(self, instances: TwoInstances, noted: bool) -> None:
        before = instances.instance()
        me = before.me
        instances.ledgers[me].mute = frozenset({"answer"} if noted else {"answer", "end"})
        first = before.send(ADD).result(30)
        after = instances.instance()
        answer = after.send(ADD).result(3)
        assert (answer.status, body_of(answer)["snapshot"]) == (200, body_of(first)["snapshot"])
        assert after.send(ADD).result(3).body == answer.body
        assert (runs, instances.effects, instances.catalog.fences) == ([me], 1, [])


class TestQuicker:
    """Another instance takes the key between the claim and the note."""

    def begin_there(self, instances: TwoInstances, operation: str, answer: bytes | None) -> Callable[[], None]:
        def begin() -> None:
            ids = list(instances.here._keys._in_progress.items())
            [(key_id, (print_, _))] = ids
            there = instances.ledgers["there"]
            there.begin(NewBatch("theirs", ORDERS, "", operation, ["r0"], keys={key_id: print_}))
            there.end("theirs", None if answer is None else 7, {key_id: answer} if answer else None)

        return begin

    def test_what_it_answered_is_answered_here(self, instances: TwoInstances) -> None:
        committing["promise"] = self.begin_there(instances, "PROMISE", b"theirs")
        assert instances.here.send({"operation": "PROMISE", **ADDRESS}).result(30) == Response(200, b"theirs")
        assert runs == ["here"]

    def test_what_came_to_nothing_there_is_tried_here_again(self, instances: TwoInstances) -> None:
        committing["promise"] = self.begin_there(instances, "PROMISE", None)
        answer = instances.here.send({"operation": "PROMISE", **ADDRESS}).result(30)
        assert (body_of(answer)["by"], runs) == ("here", ["here", "here"])

    def test_a_refusal_for_what_it_has_made_is_not_told(self, instances: TwoInstances) -> None:
        committing["make"] = self.begin_there(instances, "MAKE", b"theirs")
        assert instances.here.send({"operation": "MAKE", **ADDRESS}).result(30) == Response(200, b"theirs")

    def test_another_refusal_is(self, instances: TwoInstances) -> None:
        committing["make"] = lambda: None
        assert error(instances.here.send({"operation": "MAKE", **ADDRESS}).result(30)) == (409, "TABLE_EXISTS")
        assert runs == ["here"]


class TestTheLedger:
    """It may be slow, or silent."""

    def test_a_key_that_cannot_be_looked_up_is_refused_and_nothing_is_run(self, instances: TwoInstances) -> None:
        instances.ledgers["here"].mute = frozenset({"key"})
        assert error(instances.here.send(ADD).result(30)) == (503, "LEDGER_UNAVAILABLE")
        instances.ledgers["here"].mute = frozenset()
        assert (runs, instances.here.busy) == ([], False)
        assert instances.here.send(ADD).result(30).status == 200

    def test_who_sends_a_request_does_not_wait_for_it(self, instances: TwoInstances) -> None:
        slow, ledger = threading.Event(), instances.ledgers["here"]
        look = ledger.key
        ledger.key = lambda key_id: look(key_id) if slow.wait(30) else None  # type: ignore[method-assign]
        answer = instances.here.send(ADD)
        assert not answer.done()
        slow.set()
        assert answer.result(30).status == 200

    def test_a_stop_answers_also_those_whose_keys_were_not_looked_up_yet(self, instances: TwoInstances) -> None:
        slow, ledger = threading.Event(), instances.ledgers["here"]
        look = ledger.key
        ledger.key = lambda key_id: look(key_id) if slow.wait(30) else None  # type: ignore[method-assign]
        answers = [instances.here.send({**ADD, "idempotency_key": f"k{i}"}) for i in range(20)]
        instances.here.close()
        slow.set()
        assert {error(answer.result(2)) for answer in answers} == {(503, "SHUTTING_DOWN")}
        assert instances.here.drain(1)

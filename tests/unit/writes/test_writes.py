"""WRITEs: each is checked on its own, waits without a thread, and shares a commit with whoever came with it."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from service.errors import (
    CatalogUnavailable,
    CommitConflict,
    EngineUnavailable,
    InvalidQuery,
    InvalidRecord,
    OutcomeUnknown,
    ShuttingDown,
    TableNotFound,
)
from service.ledger.ledger import NewBatch
from service.model.call import Call, IdempotencyKey
from service.model.schema.definition import parse_schema
from service.settings import CompactionSettings, IcebergSettings, Settings, WriteQueueSettings
from service.writes import writes as module
from service.writes.entry import WriteOutcome
from service.writes.writes import Writes
from tests.fakes import Rows
from tests.harness import wait_until
from tests.unit.commit_setup import NEW, ORDERS, OTHERS, SCHEMA, CommitSetup

WIDER = parse_schema({"fields": {"id": {"type": "long"}, "note": {"type": "string"}}})
OTHER = parse_schema({"fields": {"id": {"type": "string"}, "note": {"type": "string"}}})


def reply(written: WriteOutcome) -> bytes:
    return json.dumps(
        [written.records, written.snapshot_id, written.requests_in_batch, written.records_in_batch]
    ).encode()


def queued(**queue: Any) -> Settings:
    """No WRITE waits for others to come, nor looks for small files: fake tables have no files."""
    seldom = CompactionSettings(opportunistic_check_interval=1_000_000)
    return Settings(writes=WriteQueueSettings(**{"linger_ms": 0, **queue}), iceberg=IcebergSettings(compaction=seldom))


class Shop(CommitSetup):
    """Writes over a setup and an engine in memory, whose commits can be held up."""

    def __init__(self, ledger_file: Path, *, settings: Settings | None = None, **parts: Any) -> None:
        super().__init__(ledger_file, settings=settings or queued(), **parts)
        self.writes = self.parts[Writes]

    def write(self, *records: Any, name: Any = ORDERS, call: Call | None = None) -> "Future[bytes]":
        """Records, or just their ids."""
        full = [{"id": r} if isinstance(r, int) else r for r in records]
        return self.writes.append(name, full, 10, call or Call(f"r{records[:3]}"), reply)

    def see(self, *names: Any) -> None:
        """Have tables known, so that a WRITE to them goes straight to its queue."""
        for name in names or (ORDERS,):
            self.write(name=name).result(30)

    @property
    def ids(self) -> list[int]:
        return [row["id"] for row in self.engine.rows]


class Held:
    """Holds up the engine's commits, from the moment it is made until it is let go."""

    def __init__(self, shop: Shop) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()
        shop.engine.committing = self

    def __call__(self, rows: Rows) -> None:
        self.inside.set()
        assert self.go_on.wait(30)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "ledger.db")
    yield made
    made.writes.close()


def reported(answer: "Future[bytes]") -> list[Any]:
    message: list[Any] = json.loads(answer.result(30))
    return message


def test_a_write_to_an_idle_table_goes_alone_and_at_once(shop: Shop) -> None:
    assert reported(shop.write(1, 2)) == [2, 1, 1, 2]
    assert reported(shop.write(3)) == [1, 2, 1, 1]
    assert shop.ids == [1, 2, 3]


def test_those_that_come_while_a_commit_is_made_share_the_next(shop: Shop) -> None:
    shop.see()
    held = Held(shop)
    first = shop.write(0)
    assert held.inside.wait(30)
    others = [shop.write(i) for i in range(1, 21)]
    held.go_on.set()
    assert reported(first) == [1, 1, 1, 1]
    assert [reported(other) for other in others] == [[1, 2, 20, 20]] * 20
    assert (shop.ids, len(shop.engine.commits)) == (list(range(21)), 2)


def test_a_table_once_seen_is_not_looked_up_for_each_write(shop: Shop) -> None:
    shop.see()
    before = shop.catalog.loads
    for i in range(5):
        shop.write(i).result(30)
    assert shop.catalog.loads == before


def test_writes_to_two_tables_are_committed_side_by_side(shop: Shop) -> None:
    meet = threading.Barrier(2, timeout=30)
    shop.engine.committing = lambda rows: meet.wait()
    answers = [shop.write(1), shop.write(2, name=OTHERS)]
    assert [reported(a)[0] for a in answers] == [1, 1]


def test_a_waiting_write_holds_no_thread(shop: Shop) -> None:
    shop.see()
    held = Held(shop)
    answers = [shop.write(0)]
    assert held.inside.wait(30)
    before = threading.active_count()
    answers += [shop.write(i) for i in range(1, 500)]
    assert threading.active_count() <= before
    held.go_on.set()
    assert len({reported(a)[1] for a in answers}) == 2


def test_of_one_clients_two_writes_the_second_is_never_before_the_first(shop: Shop) -> None:
    """Each client sends its next write when the one before it was answered; others write meanwhile."""

    def client(number: int) -> None:
        for i in range(12):
            shop.write(number * 100 + i).result(30)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(6)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(20)
    for number in range(6):
        assert [i for i in shop.ids if i // 100 == number] == [number * 100 + i for i in range(12)]
    assert len(shop.ids) == 72


def test_whatever_fails_no_answered_record_is_missing_and_none_is_there_twice(shop: Shop) -> None:
    """Beaten, failed before the commit or after it: what was acknowledged is there once, what was refused is not."""
    turn = iter(range(10_000))

    def sometimes(*failures: Exception | None) -> Callable[[Rows], None]:
        def hook(rows: Rows) -> None:
            failure = failures[next(turn) % len(failures)]
            if failure is not None:
                raise failure

        return hook

    shop.engine.writing = sometimes(None, None, InvalidQuery("guilty"), None, EngineUnavailable("gone"))
    shop.engine.committing = sometimes(None, None, None, CommitConflict("beaten"))
    shop.engine.committed = sometimes(None, None, RuntimeError("lost the answer"), None, CommitConflict("beaten?"))
    outcome: dict[int, bool] = {}

    def client(number: int) -> None:
        for i in range(15):
            answer = shop.write(number * 100 + i)
            outcome[number * 100 + i] = answer.exception(30) is None

    clients = [threading.Thread(target=client, args=(number,)) for number in range(6)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(30)
    assert len(outcome) == 90
    assert sorted(shop.ids) == sorted(i for i, well in outcome.items() if well)
    assert 0 < len(shop.ids) < 90


def test_an_edit_in_line_has_its_turn_between_two_batches(shop: Shop) -> None:
    """However many write, nobody starves: a batch stands in line like everybody else."""
    shop.see()
    held = Held(shop)
    first = shop.write(1)
    assert held.inside.wait(30)
    edit = threading.Thread(target=shop.run, args=(shop.append,))
    edit.start()
    uuid = shop.catalog.tables[ORDERS].uuid
    wait_until(lambda: len(shop.commits.locks._queues[uuid]) == 2, 5, every=0.001)
    second = shop.write(2)
    held.go_on.set()
    edit.join(30)
    assert (reported(first)[1], reported(second)[1]) == (1, 3)
    assert shop.history() == 3


class TestRefusals:
    """A bad request is refused alone, and only for what the table is now."""

    def test_a_record_that_does_not_fit_is_refused_and_its_neighbours_are_written(self, shop: Shop) -> None:
        shop.see()
        held = Held(shop)
        answers = [shop.write(0)]
        assert held.inside.wait(30)
        answers += [shop.write(1), shop.write(2, {"id": "text"}), shop.write(3)]
        held.go_on.set()
        assert [a.exception(30) is None for a in answers] == [True, True, False, True]
        with pytest.raises(InvalidRecord, match=r"records\[1\]\.id"):
            answers[2].result()
        assert shop.ids == [0, 1, 3]

    def test_a_column_that_was_added_meanwhile_is_known(self, shop: Shop) -> None:
        shop.see()
        shop.catalog.evolve(ORDERS, WIDER)
        assert reported(shop.write({"id": 1, "note": "n"}))[0] == 1
        assert shop.engine.rows == [{"id": 1, "note": "n"}]

    def test_a_column_that_is_not_there_is_refused_after_a_second_look(self, shop: Shop) -> None:
        shop.see()
        before = shop.catalog.loads
        with pytest.raises(InvalidRecord, match="no such field"):
            shop.write({"id": 1, "note": "n"}).result(30)
        assert shop.catalog.loads == before + 1

    def test_records_that_fitted_a_table_as_it_was_are_checked_again(self, shop: Shop) -> None:
        shop.see()
        shop.catalog.evolve(ORDERS, OTHER)
        answers = [shop.write(1), shop.write({"id": None})]
        with pytest.raises(InvalidRecord):
            answers[0].result(30)
        assert reported(answers[1])[0] == 1
        assert shop.engine.rows == [{"id": None, "note": None}]

    def test_a_missing_table_is_not_found_also_when_it_was_there(self, shop: Shop) -> None:
        with pytest.raises(TableNotFound):
            shop.write(1, name=NEW).result(30)
        shop.see()
        shop.catalog.drop(shop.catalog.load(ORDERS), purge=False)
        for _ in range(2):
            with pytest.raises(TableNotFound):
                shop.write(1).result(30)
        assert shop.ids == []

    def test_a_table_found_to_be_gone_is_not_tried_any_more(self, shop: Shop) -> None:
        shop.see()
        shop.catalog.drop(shop.catalog.load(ORDERS), purge=False)
        for records in ([], [1], [2]):
            with pytest.raises(TableNotFound):
                shop.write(*records).result(30)
        assert shop.engine.tries == []

    def test_a_new_table_of_the_same_name_is_written_to(self, shop: Shop) -> None:
        shop.see()
        shop.catalog.drop(shop.catalog.load(ORDERS), purge=False)
        shop.catalog.create(ORDERS, WIDER, (), {})
        assert reported(shop.write(1))[0] == 1
        assert (shop.history(), shop.engine.rows) == (1, [{"id": 1, "note": None}])

    def test_a_table_that_is_changed_over_and_over_gives_up_in_the_end(self, shop: Shop) -> None:
        shop.see()
        shop.catalog.evolve(ORDERS, WIDER)
        schemas = [WIDER, SCHEMA] * 10
        look = shop.catalog.load

        def changing(name: Any) -> Any:
            found = look(name)
            shop.catalog.evolve(name, schemas.pop())
            return found

        shop.catalog.load = changing  # type: ignore[method-assign]  # every look is out of date at once
        with pytest.raises(CommitConflict):
            shop.write(1).result(30)
        assert shop.ids == []

    def test_a_catalog_that_is_silent_is_told_and_forgets_nothing(self, shop: Shop) -> None:
        shop.catalog.failures = [CatalogUnavailable("silent")]
        with pytest.raises(CatalogUnavailable):
            shop.write(1).result(30)
        assert reported(shop.write(1))[0] == 1

    def test_a_refused_entry_of_a_batch_whose_table_then_changes_is_not_written_later(self, shop: Shop) -> None:
        shop.see()
        held = Held(shop)
        first = shop.write(0)
        assert held.inside.wait(30)

        def writing(rows: Rows) -> None:
            if any(row["id"] == 1 for row in rows):
                if len(rows) == 1:
                    shop.catalog.evolve(ORDERS, WIDER)
                raise InvalidQuery("1 is guilty")

        shop.engine.writing = writing
        answers = [shop.write(i) for i in range(1, 5)]
        held.go_on.set()
        assert reported(first)[0] == 1
        assert [a.exception(30) is None for a in answers] == [False, True, True, True]
        assert sorted(shop.ids) == [0, 2, 3, 4]


class TestNothingToWrite:
    """A WRITE of no records is answered without a commit."""

    def test_it_is_answered_with_the_current_snapshot(self, shop: Shop) -> None:
        assert reported(shop.write()) == [0, None, 0, 0]
        shop.write(1).result(30)
        assert reported(shop.write()) == [0, 1, 0, 0]
        assert (shop.history(), len(shop.notes())) == (1, 1)

    def test_its_table_must_be_there(self, shop: Shop) -> None:
        with pytest.raises(TableNotFound):
            shop.write(name=NEW).result(30)

    def test_its_answer_is_kept_by_its_key_before_anybody_has_it(self, shop: Shop) -> None:
        key = IdempotencyKey("WRITE", ORDERS, "k1", "print")
        body = shop.write(call=Call("r1", key)).result(30)
        known = shop.ledger.key(key.id)
        assert known
        assert known.answer == body


class TestLarge:
    """A large WRITE keeps no second copy of its records, so it is checked against the table as it is now."""

    records = tuple(range(1001))

    def test_it_is_written_whole(self, shop: Shop) -> None:
        assert reported(shop.write(*self.records)) == [1001, 1, 1, 1001]
        assert reported(shop.write(*self.records)) == [1001, 2, 1, 1001]
        assert shop.ids == [*self.records, *self.records]

    def test_it_is_written_where_its_table_has_changed_since_it_was_seen(self, shop: Shop) -> None:
        shop.see()
        shop.catalog.evolve(ORDERS, WIDER)
        assert reported(shop.write(*self.records))[0] == 1001

    def test_one_that_fits_only_the_table_as_it_is_now_is_written(self, shop: Shop) -> None:
        shop.see()
        shop.catalog.evolve(ORDERS, WIDER)
        assert reported(shop.write(*({"id": i, "note": "n"} for i in self.records)))[0] == 1001


class TestAgain:
    """A WRITE with a key whose earlier attempt got no answer."""

    key = IdempotencyKey("WRITE", ORDERS, "k1", "print")

    def lost(self, shop: Shop, *ids: int) -> None:
        """A batch of two, in which one has the key, and whose end was never noted."""
        shop.see()
        held = Held(shop)
        shop.ledger.mute = frozenset({"end"})
        first = shop.write(99)
        assert held.inside.wait(30)
        both = [shop.write(*ids, call=Call("r1", self.key)), shop.write(7)]
        held.go_on.set()
        for answer in (first, *both):
            answer.result(30)
        shop.ledger.mute = frozenset()

    def test_what_happened_is_answered_from_its_snapshot_and_its_note(self, shop: Shop) -> None:
        self.lost(shop, 1, 2)
        before = list(shop.ids)
        assert reported(shop.write(1, 2, call=shop.retry(self.key))) == [2, 2, 2, 3]
        assert shop.ids == before
        known = shop.ledger.key(self.key.id)
        assert known
        assert json.loads(known.answer or b"") == [2, 2, 2, 3]
        assert known.request_id == "r1"

    def test_also_when_the_table_has_changed_since_or_is_gone(self, shop: Shop) -> None:
        self.lost(shop, 1)
        assert shop.restarted().commits.batches.recover() == 2
        shop.catalog.evolve(ORDERS, OTHER)
        shop.catalog.drop(shop.catalog.load(ORDERS), purge=False)
        assert reported(shop.write(1, call=shop.retry(self.key)))[:2] == [1, 2]

    @pytest.mark.parametrize("state", ["void", "begun"])
    def test_what_did_not_happen_is_written(self, shop: Shop, state: str) -> None:
        uuid = shop.catalog.tables[ORDERS].uuid
        shop.ledger.begin(NewBatch("b1", ORDERS, uuid, "WRITE", ["r"], keys={self.key.id: "print"}))
        if state == "void":
            shop.ledger.end("b1", None)
        answer = shop.write(1, call=shop.retry(self.key))
        assert reported(answer) == [1, 1, 1, 1]
        known = shop.ledger.key(self.key.id)
        assert known
        assert (known.answer, known.batch != "b1") == (answer.result(), True)
        assert sorted(state for state, _ in shop.notes()) == ["done", "void"]

    def test_while_nobody_can_say_it_is_not_written(self, shop: Shop) -> None:
        uuid = shop.catalog.tables[ORDERS].uuid
        shop.ledger.begin(NewBatch("b1", ORDERS, uuid, "WRITE", ["r"], keys={self.key.id: "print"}))
        shop.see()
        shop.catalog.failures = [CatalogUnavailable("silent")]
        with pytest.raises(CatalogUnavailable):
            shop.write(1, call=shop.retry(self.key)).result(30)
        assert (shop.ids, shop.notes()) == ([], [("begun", None)])

    def test_an_unknown_outcome_is_looked_up_by_the_retry(self, shop: Shop) -> None:
        """The catalog said nothing, and had committed."""

        def silent(rows: Rows) -> None:
            shop.catalog.failures = [CatalogUnavailable("silent") for _ in range(3)]
            raise OutcomeUnknown("who knows")

        shop.see()
        shop.engine.committed = silent
        with pytest.raises(OutcomeUnknown):
            shop.write(1, call=Call("r1", self.key)).result(30)
        assert reported(shop.write(1, call=shop.retry(self.key)))[:2] == [1, 1]
        assert shop.ids == [1]


class TestStopping:
    """When it is closed, whoever waits is told so, and nobody waits for ever."""

    def test_a_write_after_the_close_is_refused(self, shop: Shop) -> None:
        shop.see()
        shop.writes.close()
        for answer in (shop.write(1), shop.write(2), shop.write(1, name=NEW), shop.write()):
            with pytest.raises(ShuttingDown):
                answer.result(30)

    @pytest.mark.parametrize("settings", [{}, {"group_commit": False}, {"batch_requests": 3}])
    def test_what_is_being_committed_is_answered_and_all_who_wait_are_refused(
        self, tmp_path: Path, settings: dict[str, Any]
    ) -> None:
        shop = Shop(tmp_path / "ledger.db", settings=queued(**settings))
        shop.see()
        held = Held(shop)
        first = shop.write(0)
        assert held.inside.wait(30)
        waiting = [shop.write(i) for i in range(1, 300)]
        shop.writes.close()
        held.go_on.set()
        assert reported(first)[0] == 1
        for answer in waiting:
            assert isinstance(answer.exception(30), ShuttingDown)
        assert shop.ids == [0]
        wait_until(lambda: shop.commits.locks._queues == {}, 5, every=0.001)


def test_group_commit_can_be_switched_off(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "ledger.db", settings=queued(group_commit=False))
    held = Held(shop)
    answers = [shop.write(i) for i in range(6)]
    assert held.inside.wait(30)
    held.go_on.set()
    assert sorted(reported(a)[1] for a in answers) == [1, 2, 3, 4, 5, 6]
    assert all(reported(a)[2:] == [1, 1] for a in answers)
    shop.writes.close()


def test_queues_of_idle_tables_are_removed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_QUEUES", 2)
    for name in (ORDERS, OTHERS):
        shop.write(1, name=name).result(30)
    wait_until(lambda: all(queue.idle for queue in shop.writes._queues.values()), 5, every=0.001)
    shop.catalog.create(NEW, SCHEMA, (), {})
    shop.write(1, name=NEW).result(30)
    assert list(shop.writes._queues) == [(shop.catalog.tables[NEW].uuid, NEW)]
    shop.write(2).result(30)
    assert shop.ids == [1, 1, 1, 2]

"""A due run has one owner: whoever claims it first, until it is gone or stands still; then one other goes on."""

import json
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from service.errors import (
    Cancelled,
    CatalogUnavailable,
    CommitConflict,
    LedgerUnavailable,
    ScheduleExists,
    ScheduleNotFound,
)
from service.jobs.schedules.scheduler import AT_ONCE, ATTEMPTS, GONE_S, STALL_S, to_ms
from service.ledger.jobs import JobRecord
from service.model.names import TableName
from tests.fakes import FakeOwners, MuteLedger
from tests.schedulers import (
    ALL,
    DAY,
    OK,
    ONE,
    OTHER,
    SCHEMA,
    TWO,
    FakeResponse,
    Instance,
    SharedState,
    refused,
    schedule,
)


class Here(SharedState):
    """Instances on one ledger in a file, which are there or gone as they are told."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._owners = FakeOwners("one")

    def instance(self, me: str = "one", *, waiting: bool = False) -> Instance:
        ledger = MuteLedger(f"sqlite:///{self._path}")
        ledger.owners = self._owners if me == "one" else self._owners.beside(me)
        return Instance(ledger, self, waiting=waiting)


@pytest.fixture
def world(tmp_path: Path) -> Here:
    return Here(tmp_path / "ledger.db")


def test_a_run_begins_when_it_is_due_once_and_then_at_the_next_time(world: Here) -> None:
    one = world.instance()
    one.notes.put(schedule(), replacing=False)
    one.tick()
    assert one.pipeline.asked == []
    world.at(TWO)
    for _ in range(3):
        one.tick(1)
    assert one.pipeline.tables == ["orders"]
    assert one.found().next_ms == to_ms(TWO + DAY)
    world.at(TWO + DAY)
    one.tick(1)
    assert one.pipeline.tables == ["orders", "orders"]
    [first, second] = one.runs()
    assert (first.state, first.details["due_ms"], first.ended_ms) == ("done", to_ms(TWO), to_ms(TWO))
    assert (second.requested_by, second.fence, second.details["due_ms"]) == ("schedule", 1, to_ms(TWO + DAY))


def test_of_two_instances_that_look_at_once_one_runs_it(world: Here) -> None:
    instances = [world.instance("one"), world.instance("two")]
    instances[0].notes.put(schedule(), replacing=False)
    for night in range(5):
        world.at(TWO + night * DAY)
        start = threading.Barrier(2)

        def look(instance: Instance, start: threading.Barrier = start) -> None:
            start.wait(30)
            instance.tick(1)

        threads = [threading.Thread(target=look, args=(instance,)) for instance in instances]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sum(len(i.pipeline.asked) for i in instances) == night + 1
    assert instances[0].states() == ["done"] * 5


def test_of_two_that_saw_the_same_due_time_one_claims_it(world: Here) -> None:
    one, two = world.instance("one"), world.instance("two")
    one.notes.put(schedule(), replacing=False)
    seen = one.found()
    claims = [i.notes.claim(seen, "schedule", 1, "{}", due=True, next_ms=5) for i in (one, two)]
    assert [claim is not None for claim in claims] == [True, False]


def test_missed_runs_are_caught_up_once(world: Here) -> None:
    one = world.instance()
    one.notes.put(schedule(), replacing=False)
    world.at(TWO + 10 * DAY + timedelta(hours=3))
    for _ in range(3):
        one.tick(1)
    assert one.pipeline.tables == ["orders"]
    assert one.runs()[0].details["due_ms"] == to_ms(TWO)
    assert one.found().next_ms == to_ms(TWO + 11 * DAY)


def test_without_catching_up_they_are_left_out_and_told(world: Here) -> None:
    one = world.instance()
    one.notes.put(schedule(catch_up=False), replacing=False)
    world.at(TWO + 10 * DAY + timedelta(hours=3))
    for _ in range(3):
        one.tick(1)
    assert (one.pipeline.asked, one.states()) == ([], ["missed"])
    world.at(TWO + 11 * DAY)
    one.tick(1)
    assert (one.pipeline.tables, one.states()) == (["orders"], ["missed", "done"])


def test_what_was_due_while_the_run_before_it_went_on_runs_once_after_it(world: Here) -> None:
    one = world.instance(waiting=True)
    one.notes.put(schedule(cron="*/10 * * * *"), replacing=False)
    world.at(TWO)
    one.tick()
    world.at(TWO + timedelta(minutes=45))
    one.tick(1)
    assert len(one.work) == 1
    one.do_begun_work()
    one.tick(1)
    one.do_begun_work()
    one.tick(1)
    assert (one.pipeline.tables, one.found().next_ms) == (["orders"] * 2, to_ms(TWO + timedelta(minutes=50)))


def test_one_that_is_disabled_does_not_run_by_itself_and_does_when_told_to(world: Here) -> None:
    one = world.instance()
    one.notes.put(schedule(enabled=False, next_ms=None), replacing=False)
    world.at(TWO + DAY)
    one.tick()
    assert one.pipeline.asked == []
    live = one.run_now(one.found(), "r-1")
    assert live is not None
    ended = live.over.result(0)
    assert ended is not None
    assert (ended.state, ended.requested_by, ended.details["due_ms"]) == ("done", "request r-1", None)
    assert one.found().next_ms is None


def test_who_asks_for_a_run_moves_no_due_time_and_begins_no_second_run(world: Here) -> None:
    one, two = world.instance(waiting=True), world.instance("two")
    one.notes.put(schedule(), replacing=False)
    assert one.run_now(one.found(), "r-1") is not None
    assert two.run_now(two.found(), "r-2") is None
    world.at(TWO)
    two.tick()
    assert two.pipeline.asked == [], "the due one waits for the one under way"
    one.do_begun_work()
    two.tick(1)
    assert (one.pipeline.tables, two.pipeline.tables) == (["orders"], ["orders"])
    assert [run.requested_by for run in sorted(one.runs(), key=lambda r: r.created_ms)] == ["request r-1", "schedule"]


class TestTakingOver:
    """What an instance leaves is gone on with once, and can no longer be committed there."""

    def begun(self, world: Here, **message: Any) -> Instance:
        one = world.instance(waiting=True)
        one.notes.put(schedule(**message), replacing=False)
        world.at(TWO)
        one.tick()
        assert len(one.work) == 1
        return one

    def test_the_run_of_an_instance_that_is_gone_is_taken_over_once(self, world: Here) -> None:
        one = self.begun(world)
        two, three = world.instance("two", waiting=True), world.instance("three", waiting=True)
        two.tick()
        assert two.work == []
        one.owners.close()
        for instance in (two, three):
            instance.tick(1)
        for instance in (two, three):
            instance.tick(GONE_S)
        assert (len(two.work), len(three.work)) == (1, 0)
        two.do_begun_work()
        [run] = two.runs()
        assert (run.state, run.fence, two.pipeline.tables, three.pipeline.tables) == ("done", 2, ["orders"], [])

    def test_one_whose_instance_cannot_be_seen_for_a_moment_goes_on(self, world: Here) -> None:
        one, two = self.begun(world), world.instance("two", waiting=True)
        for _ in range(5):
            one.owners.close()  # the ledger blinks
            two.tick(1)
            one.owners.present.add("one")
            two.tick(GONE_S / 2)
            one.owners.close()
            two.tick(GONE_S / 2)
            one.owners.present.add("one")
            one.tick(10)
        assert two.work == []

    def test_a_run_of_its_own_that_an_instance_knows_nothing_of_is_gone_on_with(
        self, world: Here, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = world.instance()
        one.notes.put(schedule(), replacing=False)
        claim = one.notes.claim

        def lost(*message: Any, **named: Any) -> None:
            claim(*message, **named)
            raise LedgerUnavailable("the answer was lost")

        world.at(TWO)
        with monkeypatch.context() as patch:
            patch.setattr(one.notes, "claim", lost)
            with pytest.raises(LedgerUnavailable):
                one.tick()
        one.tick(1)
        assert one.states() == ["running"], "its claim may only just have been made"
        one.tick(GONE_S)
        assert (one.pipeline.tables, one.states(), one.found().run) == (["orders"], ["done"], None)

    def test_one_that_stands_still_is_taken_over_and_fenced_off(self, world: Here) -> None:
        one = self.begun(world)
        two = world.instance("two")
        fence = one.found().run.fence
        two.tick()
        two.tick(STALL_S - 1)
        assert two.pipeline.asked == []
        one.pipeline.before = lambda table: two.tick(1)  # in the middle of what it does
        one.do_begun_work()
        assert (one.pipeline.tables, two.pipeline.tables) == (["orders"], ["orders"])
        assert [run.fence for run in two.runs()] > [fence]
        [(_, stalled)], [(_, taker)] = one.pipeline.asked, two.pipeline.asked
        with pytest.raises(CommitConflict, match="taken over"):
            stalled.commit_gate()
        with pytest.raises(CommitConflict):  # it has ended, and been noted
            taker.commit_gate()
        [run] = one.runs()
        assert (run.state, run.fence) == ("done", 2)

    def test_one_whose_beats_are_seen_is_left_alone_however_long_it_runs(self, world: Here) -> None:
        one, two = self.begun(world), world.instance("two")
        for _ in range(30):
            one.tick(20)
            two.tick(20)
        assert two.pipeline.asked == []
        one.do_begun_work()
        assert (one.pipeline.tables, one.states()) == (["orders"], ["done"])

    def test_the_end_that_a_stalled_one_notes_late_is_refused(self, world: Here) -> None:
        one, two = self.begun(world), world.instance("two", waiting=True)
        two.tick()
        two.tick(STALL_S)
        assert len(two.work) == 1
        one.pipeline.answers["orders"] = [refused("STORAGE_UNAVAILABLE")]
        one.do_begun_work()
        assert (one.found().run, one.states()) == (two.found().run, ["running"])
        assert two.found().run.owner == "two"
        two.do_begun_work()
        assert one.states() == ["done"]

    def test_one_that_finds_its_run_taken_over_asks_for_nothing_more(self, world: Here) -> None:
        one, two = self.begun(world, **ALL), world.instance("two", waiting=True)
        two.tick()
        two.tick(STALL_S)
        one.tick(10)  # its beat is refused
        one.do_begun_work()
        assert one.pipeline.asked == []
        two.do_begun_work()
        assert two.pipeline.tables == ["orders", "people", "carts"]

    def test_the_tables_that_were_finished_are_not_begun_again(self, world: Here) -> None:
        one, two = self.begun(world, **ALL), world.instance("two")

        def die(table: str) -> None:
            if table == "people":
                one.owners.close()
                two.tick()
                two.tick(GONE_S)

        one.pipeline.before = die
        one.do_begun_work()
        assert one.pipeline.tables == ["orders", "people"]
        assert two.pipeline.tables == ["people", "carts"]
        tally = json.loads(two.runs()[0].progress)
        assert (tally["tables"], tally["done"], tally["last"]) == (3, 3, ["yard", "carts"])

    def test_a_run_that_every_instance_dies_of_is_given_up(self, world: Here) -> None:
        last = self.begun(world)
        for number in range(ATTEMPTS + 1):
            last.owners.close()
            last = world.instance(f"next-{number}", waiting=True)
            last.tick()
            last.tick(GONE_S)
        assert last.work == []
        [run] = last.runs()
        assert (run.state, run.fence) == ("failed", ATTEMPTS + 1)
        assert "not tried again" in (json.loads(run.outcome) or "")
        world.at(TWO + DAY)
        last.tick(1)
        last.do_begun_work()
        assert last.states() == ["failed", "done"]


def test_a_run_that_a_stop_interrupted_is_resumed_once_at_the_next_start(world: Here) -> None:
    one = world.instance(waiting=True)
    one.notes.put(schedule(**ALL), replacing=False)
    world.at(TWO)
    one.tick()
    one.pipeline.before = lambda table: one.scheduler.stop()
    one.do_begun_work()
    assert one.scheduler.close(0)
    assert (one.pipeline.tables, one.states(), one.found().run.owner) == (["orders"], ["interrupted"], "")
    with pytest.raises(CommitConflict):
        one.pipeline.asked[0][1].commit_gate()
    one.tick(1)
    assert one.pipeline.tables == ["orders"], "who stops begins nothing"
    again = world.instance("again")
    again.tick()
    again.tick(1)
    assert (again.pipeline.tables, again.states()) == (["people", "carts"], ["done"])


def test_one_that_is_deleted_while_it_runs_commits_nothing_more_and_leaves_nothing(world: Here) -> None:
    one = world.instance(waiting=True)
    one.notes.put(schedule(**ALL), replacing=False)
    live = one.run_now(one.found())
    assert live is not None
    one.pipeline.before = lambda table: one.schedules.delete("acme", "nightly")
    one.do_begun_work()
    with pytest.raises(CommitConflict, match="deleted"):
        one.pipeline.asked[0][1].commit_gate()
    assert one.pipeline.tables == ["orders"]
    assert live.over.result(0) is None
    assert one.notes.jobs.find(live.run.id) is None
    with pytest.raises(ScheduleNotFound):
        one.schedules.find("acme", "nightly")


def test_a_new_schedule_of_the_same_name_is_another_one(world: Here) -> None:
    one = world.instance(waiting=True)
    one.notes.put(schedule(), replacing=False)
    one.run_now(one.found())
    one.schedules.delete("acme", "nightly")
    one.notes.put(schedule(id="id-2"), replacing=False)
    one.run_now(one.found())
    assert one.found().run.fence == 1
    one.work.pop(0)()
    assert (one.pipeline.asked, one.states()) == ([], ["running"])
    one.pipeline.before = lambda table: one.pipeline.asked[-1][1].commit_gate()
    one.do_begun_work()
    assert (one.pipeline.tables, one.states()) == (["orders"], ["done"])


def test_one_that_is_replaced_goes_by_what_is_new_and_its_run_goes_on(world: Here) -> None:
    one = world.instance(waiting=True)
    one.notes.put(schedule(), replacing=False)
    world.at(TWO)
    one.tick()
    with pytest.raises(ScheduleExists):
        one.notes.put(schedule(id="id-2"), replacing=False)
    assert one.notes.put(schedule(id="id-2", table="people", next_ms=to_ms(TWO + DAY)), replacing=True)
    one.do_begun_work()
    world.at(TWO + DAY)
    one.tick(1)
    one.do_begun_work()
    assert (one.pipeline.tables, one.states()) == (["orders", "people"], ["done", "done"])


HOURLY = {"id": "id-2", "cron": "0 * * * *", "next_ms": to_ms(TWO + DAY)}


@pytest.mark.parametrize(
    ("new", "runs"),
    [
        ({"id": "id-2", "next_ms": to_ms(TWO + DAY)}, ["done"]),
        (HOURLY, ["done"]),
        ({**HOURLY, "catch_up": False}, []),
        ({**HOURLY, "enabled": False, "next_ms": None}, []),
    ],
)
def test_one_that_is_replaced_forgets_no_run_that_is_due_unless_it_does_not_catch_up(
    world: Here, new: dict[str, Any], runs: list[str]
) -> None:
    one = world.instance()
    one.notes.put(schedule(), replacing=False)
    now = TWO + timedelta(hours=1)
    one.notes.put(schedule(**new, created_ms=to_ms(now)), replacing=True)
    world.at(now)
    one.tick()
    assert one.states() == runs


def test_one_that_is_replaced_with_the_same_times_stays_due_when_it_was(world: Here) -> None:
    one = world.instance()
    one.notes.put(schedule(), replacing=False)
    before = to_ms(TWO) - 1000
    one.notes.put(schedule(id="id-2", created_ms=before, next_ms=to_ms(TWO + DAY), table="people"), replacing=True)
    assert one.found().next_ms == to_ms(TWO)
    one.notes.put(schedule(id="id-3", created_ms=before, next_ms=to_ms(TWO + DAY), cron="5 2 * * *"), replacing=True)
    assert one.found().next_ms == to_ms(TWO + DAY)


def test_one_table_that_fails_keeps_no_other_from_its_turn(world: Here) -> None:
    one = world.instance()
    one.notes.put(schedule(**ALL), replacing=False)
    one.pipeline.answers = {
        "orders": [refused("INTERNAL_ERROR")],
        "people": [{"success": True, "reason": "all is well"}],
    }
    world.at(TWO)
    one.tick()
    [run] = one.runs()
    assert (run.state, one.pipeline.tables) == ("partly", ["orders", "people", "carts"])
    reported = [(o["table"], o["state"], o["reason"], o["error"]) for o in json.loads(run.progress)["outcomes"]]
    assert reported == [
        ("orders", "failed", None, {"code": "INTERNAL_ERROR", "message": "INTERNAL_ERROR it is"}),
        ("people", "done", "all is well", None),
        ("carts", "done", None, None),
    ]


def test_how_many_tables_a_run_has_is_noted_before_the_first(world: Here) -> None:
    one, seen = world.instance(), []
    one.notes.put(schedule(**ALL), replacing=False)
    one.pipeline.before = lambda table: seen.append(json.loads(one.runs()[0].progress)["tables"])
    world.at(TWO)
    one.tick()
    assert seen == [3, 3, 3]


def test_a_table_that_is_dropped_before_its_turn_fails_no_run_but_one_that_is_for_it(world: Here) -> None:
    one = world.instance(waiting=True)
    one.notes.put(schedule(**ALL), replacing=False)

    def drop(table: str) -> None:
        world.catalog.tables.pop(OTHER, None)

    one.pipeline.before = drop
    world.at(TWO)
    one.tick()
    one.do_begun_work()
    [run] = one.runs()
    assert (run.state, one.pipeline.tables) == ("done", ["orders", "carts"])
    assert [(o["table"], o["state"]) for o in json.loads(run.progress)["outcomes"]] == [
        ("orders", "done"),
        ("people", "skipped"),
        ("carts", "done"),
    ]
    one.notes.put(schedule(id="id-2", table=OTHER.table), replacing=True)
    world.at(TWO + DAY)
    one.tick(1)
    one.do_begun_work()
    assert one.states() == ["done", "failed"]


def test_what_may_be_sent_again_is_sent_again_a_few_times(world: Here) -> None:
    one = world.instance()
    one.notes.put(schedule(**ALL), replacing=False)
    busy = refused("TOO_MANY_REQUESTS", retryable=True)
    one.pipeline.answers = {"orders": [busy, busy, OK], "people": [busy]}
    world.at(TWO)
    one.tick()
    assert one.pipeline.tables == ["orders"] * 3 + ["people"] * 3 + ["carts"]
    assert one.states() == ["partly"]


def test_a_namespace_has_its_own_tables_as_they_are_when_it_runs(world: Here) -> None:
    one = world.instance()
    one.notes.put(schedule(scope="namespace", table=None), replacing=False)
    world.catalog.create(TableName("acme", "shop", "later"), SCHEMA, (), {})
    world.catalog.create(TableName("other", "shop", "foreign"), SCHEMA, (), {})
    world.at(TWO)
    one.tick()
    assert one.pipeline.tables == ["later", "orders", "people"]


def test_who_asks_is_told_by_the_request(world: Here) -> None:
    one = world.instance()
    one.notes.put(schedule(), replacing=False)
    world.at(TWO)
    one.tick()
    [(_, call)] = one.pipeline.asked
    assert call.requested_by == "schedule nightly"
    assert call.id == f"schedule-nightly-{one.runs()[0].id[:12]}-1"


class TestWindows:
    """A scheduled compaction does not begin on a table outside of the table's window."""

    def windowed(self, world: Here, window: str) -> Instance:
        table = world.catalog.tables[ONE]
        world.catalog.tables[ONE] = replace(table, properties={"firn.compaction.window": window})
        one = world.instance()
        one.notes.put(schedule(**ALL), replacing=False)
        return one

    def test_the_table_is_left_out_and_the_run_says_why(self, world: Here) -> None:
        one = self.windowed(world, "01:00-02:00 Europe/Zurich")  # it is four there
        world.at(TWO)
        one.tick()
        assert one.pipeline.tables == ["people", "carts"]
        [run] = one.runs()
        assert run.state == "done"
        outcome = json.loads(run.progress)["outcomes"][0]
        assert (outcome["table"], outcome["state"]) == ("orders", "skipped")
        assert "01:00-02:00 Europe/Zurich" in outcome["reason"]

    def test_inside_of_it_the_table_has_its_turn(self, world: Here) -> None:
        one = self.windowed(world, "03:00-05:00 Europe/Zurich")
        world.at(TWO)
        one.tick()
        assert one.pipeline.tables == ["orders", "people", "carts"]

    def test_the_window_counts_that_is_open_when_the_work_has_its_turn(self, world: Here) -> None:
        one = self.windowed(world, "03:00-05:00 Europe/Zurich")
        begun: list[str] = []

        def wait(table: str) -> None:
            if table == "orders" and not begun:
                world.at(TWO + timedelta(hours=2))  # so long it waited for a thread
            begun.append(table)
            with suppress(Cancelled):
                one.pipeline.asked[-1][1].start_gate()

        one.pipeline.answers = {"orders": [refused("BUSY", retryable=True), OK]}
        one.pipeline.before = wait
        world.at(TWO)
        one.tick()
        outcome = json.loads(one.runs()[0].progress)["outcomes"][0]
        assert (outcome["table"], outcome["state"]) == ("orders", "skipped")
        assert "outside of the table's window" in outcome["reason"]

    def test_who_asks_for_a_run_now_gets_it_now(self, world: Here) -> None:
        one = self.windowed(world, "01:00-02:00 Europe/Zurich")
        assert one.run_now(one.found()) is not None
        assert one.pipeline.tables == ["orders", "people", "carts"]

    def test_a_window_of_no_known_place_fails_its_table_alone(self, world: Here) -> None:
        one = self.windowed(world, "01:00-02:00 Europe/Nowhere")
        world.at(TWO)
        one.tick()
        assert one.pipeline.tables == ["people", "carts"]
        assert one.states() == ["partly"]


@pytest.mark.parametrize("due", [True, False])
def test_an_offline_table_is_left_out_whoever_asks_for_the_run(world: Here, due: bool) -> None:
    table = world.catalog.tables[ONE]
    world.catalog.tables[ONE] = replace(table, properties={"firn.online": "false"})
    one = world.instance()
    one.notes.put(schedule(**ALL), replacing=False)
    if due:
        world.at(TWO)
        one.tick()
    else:
        one.run_now(one.found())
    assert one.pipeline.tables == ["people", "carts"]
    outcome = json.loads(one.runs()[0].progress)["outcomes"][0]
    assert (outcome["table"], outcome["state"], outcome["reason"]) == ("orders", "skipped", "the table is offline")


class TestSilence:
    """A catalog or a ledger that does not answer for a while."""

    def test_tables_that_cannot_be_listed_fail_the_run_with_the_reason(self, world: Here) -> None:
        one = world.instance()
        one.notes.put(schedule(**ALL), replacing=False)
        asked = []

        def silent(tenant: str) -> list[tuple[str, str]]:
            asked.append(tenant)
            raise CatalogUnavailable("no answer")

        world.catalog.list_namespaces = silent  # type: ignore[method-assign]
        world.at(TWO)
        one.tick()
        [run] = one.runs()
        assert (run.state, json.loads(run.outcome), len(asked)) == ("failed", "CATALOG_UNAVAILABLE: no answer", 3)

    def test_an_end_that_could_not_be_noted_is_noted_by_a_later_look(
        self, world: Here, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, two = world.instance(waiting=True), world.instance("two")
        one.notes.put(schedule(), replacing=False)
        live = one.run_now(one.found())
        assert live is not None

        def silent(*_: Any) -> bool:
            raise LedgerUnavailable("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(one.notes.jobs, "end_held", silent)
            one.do_begun_work()
            ended = live.over.result(0)
            assert ended is not None
            assert (ended.state, one.states()) == ("done", ["running"])
            one.tick(1)
            assert one.states() == ["running"]
        for _ in range(5):
            two.tick(STALL_S / 4)
            one.scheduler._beat()
            one.seconds += 10
        assert two.pipeline.asked == []
        one.tick(1)
        assert (one.states(), one.found().run) == (["done"], None)

    @pytest.mark.parametrize("failure", [LedgerUnavailable("not this one"), KeyError("a defect")])
    def test_an_end_that_cannot_be_recorded_keeps_neither_another_end_nor_a_due_run_from_it(
        self, world: Here, monkeypatch: pytest.MonkeyPatch, failure: Exception
    ) -> None:
        one = world.instance(waiting=True)
        one.notes.put(schedule(), replacing=False)
        one.notes.put(schedule(id="id-2", name="second", enabled=False, next_ms=None), replacing=False)
        one.notes.put(schedule(id="id-3", name="due"), replacing=False)
        for name in ("nightly", "second"):
            assert one.run_now(one.schedules.find("acme", name)) is not None
        failing: Exception = LedgerUnavailable("no answer")
        end_held, tried = one.notes.jobs.end_held, []

        def fail(held: JobRecord, ended: JobRecord) -> bool:
            tried.append(held.claim)
            if failing is not failure or held.claim == "id-1":
                raise failing
            return end_held(held, ended)

        monkeypatch.setattr(one.notes.jobs, "end_held", fail)
        one.do_begun_work()
        assert tried == ["id-1", "id-2"]
        failing = failure
        world.at(TWO)
        one.tick(1)
        assert tried == ["id-1", "id-2"] * 2
        assert one.schedules.find("acme", "second").run is None
        assert one.schedules.find("acme", "due").run is not None

    def test_an_end_that_cannot_be_noted_at_all_is_told_and_keeps_nothing_from_its_turn(
        self, world: Here, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        one = world.instance(waiting=True)
        one.notes.put(schedule(), replacing=False)
        live = one.run_now(one.found())
        assert live is not None

        def broken(*_: Any) -> bool:
            raise KeyError("a defect")

        monkeypatch.setattr(one.notes.jobs, "end_held", broken)
        one.do_begun_work()
        assert live.over.result(0) is not None
        assert one.scheduler.close(0)
        assert "could not be recorded" in caplog.text

    def test_a_ledger_that_is_silent_before_a_commit_lets_nothing_be_committed(
        self, world: Here, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = world.instance(waiting=True)
        one.notes.put(schedule(), replacing=False)
        one.run_now(one.found())
        message: list[type[Exception]] = []

        def silent(*_: Any) -> bool:
            raise LedgerUnavailable("no answer")

        def commit(table: str) -> None:
            with monkeypatch.context() as patch:
                patch.setattr(one.notes.jobs, "holds", silent)
                try:
                    one.pipeline.asked[-1][1].commit_gate()
                except LedgerUnavailable as e:
                    message.append(type(e))
            one.pipeline.asked[-1][1].commit_gate()

        one.pipeline.before = commit
        one.do_begun_work()
        assert message == [LedgerUnavailable]


def test_one_schedule_that_cannot_be_read_keeps_no_other_from_its_turn(
    world: Here, caplog: pytest.LogCaptureFixture
) -> None:
    one = world.instance()
    one.notes.put(schedule(id="id-0", name="broken", timezone="Europe/Atlantis"), replacing=False)
    one.notes.put(schedule(), replacing=False)
    world.at(TWO)
    for _ in range(3):
        one.tick(1)
    assert one.pipeline.tables == ["orders"]
    assert caplog.text.count("cannot run") == 1


def test_an_instance_runs_so_many_at_once_and_leaves_the_others_to_others(world: Here) -> None:
    one, two = world.instance(waiting=True), world.instance("two", waiting=True)
    for n in range(AT_ONCE + 2):
        one.notes.put(schedule(id=f"id-{n}", name=f"n-{n}"), replacing=False)
    world.at(TWO)
    one.tick()
    two.tick()
    assert (len(one.work), len(two.work)) == (AT_ONCE, 2)


def test_metrics_tell_how_runs_ended_and_what_is_overdue(world: Here) -> None:
    one = world.instance(waiting=True)
    one.notes.put(schedule(), replacing=False)
    one.notes.put(schedule(id="id-2", name="picky", catch_up=False), replacing=False)
    world.at(TWO + timedelta(hours=1))
    one.tick()
    figure = one.metrics.registry.get_sample_value
    assert figure("firn_schedules_overdue") == 2
    one.do_begun_work()
    one.tick(1)
    states = ("done", "missed", "failed", "partly", "interrupted")
    assert [figure("firn_schedule_runs_total", {"state": state}) for state in states] == [1, 1, 0, 0, 0]
    assert figure("firn_schedules_overdue") == 0


def test_what_others_kept_waiting_was_not_missed(world: Here) -> None:
    one = world.instance(waiting=True)
    for n in range(AT_ONCE):
        one.notes.put(schedule(id=f"id-{n}", name=f"n-{n}", next_ms=to_ms(TWO) - 1), replacing=False)
    one.notes.put(schedule(id="id-x", catch_up=False), replacing=False)
    world.at(TWO)
    one.tick()
    world.at(TWO + timedelta(hours=1))
    one.tick(1)
    assert (len(one.work), one.states()) == (AT_ONCE, [])
    one.do_begun_work()
    one.tick(1)
    one.do_begun_work()
    assert one.states() == ["done"]


def test_the_last_fifty_runs_are_kept(world: Here) -> None:
    one = world.instance()
    one.notes.put(schedule(), replacing=False)
    for night in range(60):
        world.at(TWO + night * DAY)
        one.tick(1)
    runs = one.notes.runs(["id-1"], 100)["id-1"]
    assert len(runs) == 50
    assert [run.details["due_ms"] for run in runs] == [to_ms(TWO + night * DAY) for night in range(59, 9, -1)]


def test_schedules_are_listed_by_their_names_and_with_their_own_runs(world: Here) -> None:
    one = world.instance()
    for n, name in enumerate(("b", "a", "c")):
        one.notes.put(schedule(id=f"id-{n}", name=name), replacing=False)
    one.notes.put(schedule(id="id-9", name="a", tenant="other"), replacing=False)
    world.at(TWO)
    one.pipeline.submit = lambda body, call: done()  # type: ignore[method-assign]
    one.tick()
    found = one.schedules.of_tenant("acme")
    assert [s.name for s in found] == ["a", "b", "c"]
    runs = one.schedules.runs(found, 5)
    assert {s.id: [r.claim for r in runs[s.id]] for s in found} == {s.id: [s.id] for s in found}


def done() -> "Future[Any]":
    answer: Future[Any] = Future()
    answer.set_result(FakeResponse(json.dumps(OK).encode()))
    return answer


def test_an_unknown_one_is_not_found_and_the_nearest_is_named(world: Here) -> None:
    one = world.instance()
    with pytest.raises(ScheduleNotFound, match="none yet"):
        one.schedules.find("acme", "nigthly")
    one.notes.put(schedule(), replacing=False)
    with pytest.raises(ScheduleNotFound, match="did you mean 'nightly'") as refused:
        one.schedules.find("acme", "nigthly")
    assert (refused.value.field, refused.value.suggestion) == ("name", "nightly")

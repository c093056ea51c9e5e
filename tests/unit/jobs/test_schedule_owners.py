"""A scheduled request has the rights of the schedule's creator, read anew for each request."""

from pathlib import Path

import pytest

from service.errors import LedgerUnavailable
from service.ledger.schedules import Schedule
from service.model.identity.principal import ANYONE, Grant, Principal
from tests.fakes import MuteLedger
from tests.schedulers import TWO, Instance, SharedState, schedule

ANN = Principal("acme/ann", (Grant("writer", "acme"),), "4fW9kQ0aBz")


@pytest.fixture
def one(tmp_path: Path) -> Instance:
    world = SharedState()
    world.at(TWO)
    return Instance(MuteLedger(f"sqlite:///{tmp_path / 'ledger.db'}"), world)


def test_its_requests_are_its_creators(one: Instance) -> None:
    asked: list[str | None] = []

    def principal_of(schedule: Schedule) -> Principal:
        asked.append(schedule.owner)
        return ANN

    one.scheduler.principal_of = principal_of
    one.scheduler.open(one.pipeline)
    one.notes.put(schedule(owner=ANN.dumps(), scope="namespace", table=None), replacing=False)
    one.tick()
    assert [call.principal for _, call in one.pipeline.asked] == [ANN, ANN]
    assert asked == [ANN.dumps()] * 2


def test_who_replaces_a_schedule_is_its_creator_from_then_on(one: Instance) -> None:
    one.notes.put(schedule(owner=ANYONE.dumps()), replacing=False)
    assert one.found().owner is None
    one.notes.put(schedule(owner=ANN.dumps()), replacing=True)
    assert one.found().owner == ANN.dumps()


def test_while_the_rights_cannot_be_read_nothing_is_sent(one: Instance) -> None:
    def principal_of(schedule: Schedule) -> Principal:
        raise LedgerUnavailable("no answer")

    one.scheduler.principal_of = principal_of
    one.scheduler.open(one.pipeline)
    one.notes.put(schedule(owner=ANN.dumps()), replacing=False)
    one.tick()
    assert one.pipeline.asked == []
    assert one.states() == ["failed"]

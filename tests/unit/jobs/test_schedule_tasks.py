"""A schedule's task is checked when it is made, with the operation's own model; and the tally of a run."""

from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from service.errors import FirnError, InvalidRequest
from service.jobs.schedules.tally import SHOWN, RunTally, TableOutcome
from service.jobs.schedules.task import check_task, dumps, loads
from service.model.names import TableName
from service.operations.operation import ChangeRequest, Operation, Request, Result, operation
from service.pipeline.parse import RequestParser


class Tidy(ChangeRequest):
    operation: Literal["TIDY"]
    force: bool = False
    async_: bool = Field(default=False, alias="async")
    size: int = Field(default=1, ge=1)
    filter: Any = None


class Look(Request):
    operation: Literal["LOOK"]


class Told(Result):
    pass


@operation(Tidy, Told, pool="maintenance", schedulable=True)
def tidy(request: Tidy) -> Told:
    """Tidy up."""
    return Told()


@operation(Look, Told, pool="queries")
def look(request: Look) -> Told:
    """Look."""
    return Told()


class CommitSetup:
    """As much of a router as a task is checked with."""

    def __init__(self) -> None:
        self._parser = RequestParser([tidy, look])

    def parse(self, body: Any, *, trusted: bool = False) -> tuple[Operation, Request]:
        return self._parser.parse(body, None, trusted=trusted)

    @property
    def operations(self) -> list[Operation]:
        return list(self._parser.operations.values())


def checked(task: dict[str, Any]) -> dict[str, Any]:
    return check_task(task, CommitSetup())  # type: ignore[arg-type]  # nothing is submitted


def test_a_good_task_is_kept_with_its_operation_in_capitals() -> None:
    assert checked({"operation": "tidy", "force": True}) == {"operation": "TIDY", "force": True}


@pytest.mark.parametrize(
    ("task", "code", "field", "suggestion"),
    [
        ({}, "INVALID_REQUEST", "task.operation", None),
        ({"operation": 5}, "INVALID_REQUEST", "task.operation", None),
        ({"operation": "TIDDY"}, "UNKNOWN_OPERATION", "task.operation", "TIDY"),
        ({"operation": "LOOK"}, "UNKNOWN_OPERATION", "task.operation", None),
        ({"operation": "TIDY", "froce": True}, "UNKNOWN_FIELD", "task.froce", "force"),
        ({"operation": "TIDY", "force": 1}, "INVALID_REQUEST", "task.force", None),
        ({"operation": "TIDY", "size": 0}, "INVALID_REQUEST", "task.size", None),
        ({"operation": "TIDY", "table": "orders"}, "UNKNOWN_FIELD", "task.table", None),
        ({"operation": "TIDY", "tenant_id": "other"}, "UNKNOWN_FIELD", "task.tenant_id", None),
        ({"operation": "TIDY", "namespace": "n"}, "UNKNOWN_FIELD", "task.namespace", None),
        ({"operation": "TIDY", "idempotency_key": "k"}, "UNKNOWN_FIELD", "task.idempotency_key", None),
        ({"operation": "TIDY", "async": True}, "UNKNOWN_FIELD", "task.async", None),
    ],
)
def test_a_bad_task_is_refused_by_its_field(
    task: dict[str, Any], code: str, field: str, suggestion: str | None
) -> None:
    with pytest.raises(FirnError) as refused:
        checked(task)
    error = refused.value
    assert (error.code, error.field, error.suggestion) == (code, field, suggestion)
    assert error.message.startswith(field)


def test_a_task_keeps_its_numbers_as_they_were_sent() -> None:
    task = {"operation": "TIDY", "filter": {"amount": {"gt": Decimal("0.10")}, "id": 2**63 - 1, "at": None}}
    assert loads(dumps(task)) == task
    assert str(loads(dumps(task))["filter"]["amount"]["gt"]) == "0.10"
    with pytest.raises(InvalidRequest, match="too long"):
        dumps({"operation": "TIDY", "filter": 2**70})


names = st.builds(TableName, st.just("t"), st.sampled_from("abc"), st.text("xyz-A", min_size=1, max_size=3))
states = st.sampled_from(["done", "failed", "skipped"])


@given(tables=st.lists(names, unique=True, max_size=12), stop=st.integers(0, 12))
def test_who_goes_on_with_a_run_has_what_is_left_of_it_and_no_table_twice(tables: list[TableName], stop: int) -> None:
    tally, seen = RunTally(), []
    for name in tally.left(tables)[:stop]:
        tally = tally.plus(TableOutcome(name.namespace, name.table, "done"))
        seen.append(name)
    again = RunTally.loads(tally.dumps())
    assert again == tally
    seen += again.left(tables)
    assert len(seen) == len(set(seen))
    assert set(seen) == set(tables)


@given(st.lists(states, max_size=3 * SHOWN))
def test_every_table_is_counted_and_those_that_failed_are_kept_by_name(states: list[Any]) -> None:
    tally = RunTally()
    for i, state in enumerate(states):
        tally = tally.plus(TableOutcome("n", f"t{i}", state))
    assert (tally.done, tally.failed, tally.skipped) == tuple(states.count(s) for s in ("done", "failed", "skipped"))
    assert len(tally.outcomes) == min(SHOWN, len(states))
    bad = len(states) - tally.done
    assert sum(o.state != "done" for o in tally.outcomes) == min(SHOWN, bad)
    if states:
        assert tally.outcomes[-1].table == f"t{len(states) - 1}" or states[-1] == "done"


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ([], "done"),
        (["done", "skipped"], "done"),
        (["skipped"], "done"),
        (["done", "failed"], "partly"),
        (["failed", "skipped"], "partly"),
        (["failed", "failed"], "failed"),
    ],
)
def test_a_run_has_failed_where_every_table_did(outcomes: list[Any], state: str) -> None:
    tally = RunTally()
    for i, outcome in enumerate(outcomes):
        tally = tally.plus(TableOutcome("n", f"t{i}", outcome))
    assert tally.state == state

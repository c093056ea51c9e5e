"""What a schedule runs: a request without an address, checked when the schedule is made."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol, cast

import orjson

from service.errors import FirnError, InvalidRequest, UnknownField, UnknownOperation, nearest
from service.model import wire
from service.model.call import Call
from service.model.names import TableName

_WHOSE = "the schedule names the tables"
# What has no place in a task, and why.
_NOT_HERE = {
    "tenant_id": _WHOSE,
    "namespace": _WHOSE,
    "table": _WHOSE,
    "idempotency_key": "each run is a request of its own",
    "async": "a run is in the background anyway, and ends when the work does",
}


class Schedulable(Protocol):
    """As much of an operation as matters here."""

    @property
    def name(self) -> str: ...
    @property
    def schedulable(self) -> bool: ...


class RequestResponse(Protocol):
    @property
    def body(self) -> bytes: ...


class RequestRouter(Protocol):
    """Where a schedule's requests go in: the router, which is above."""

    @property
    def operations(self) -> Sequence[Schedulable]: ...

    def parse(self, body: Any, *, trusted: bool = False) -> tuple[Any, Any]: ...

    def submit(self, body: Any, call: Call) -> "Future[Any]": ...


def check_task(task: dict[str, Any], door: RequestRouter) -> dict[str, Any]:
    """The task as it is to be kept, or a refusal that names the field in it."""
    known = [operation.name for operation in door.operations if operation.schedulable]
    for name, why in _NOT_HERE.items():
        if name in task:
            raise UnknownField(f"task.{name} does not belong in a task: {why}; leave it out", field=f"task.{name}")
    operation = task.get("operation")
    if not isinstance(operation, str):
        problem = "is missing" if operation is None else "must be text"
        raise InvalidRequest(f"task.operation {problem}; it can be {', '.join(known)}", field="task.operation")
    if operation.upper() not in known:
        near = nearest(operation, known)
        hint = f"did you mean {near}?" if near else f"it can be {', '.join(known)}"
        raise UnknownOperation(
            f"task.operation {operation[:80]!r} cannot be scheduled; {hint}", field="task.operation", suggestion=near
        )
    task = {**task, "operation": operation.upper()}
    try:
        # Any name will do: the operation's own fields are what is looked at.
        door.parse(request_of(task, TableName("any", "any", "any")), trusted=True)
    except FirnError as e:
        raise _inside_task(e) from e
    return task


def request_of(task: dict[str, Any], table: TableName) -> dict[str, Any]:
    """The request that a task is for one table."""
    return {**task, "tenant_id": table.tenant, "namespace": table.namespace, "table": table.table}


def dumps(task: dict[str, Any]) -> str:
    """A task as JSON, its numbers as they were sent."""
    try:
        return orjson.dumps(task, default=lambda number: orjson.Fragment(format(number, "f"))).decode()
    except TypeError as e:
        raise InvalidRequest("task holds a number too long to keep; send it as a string", field="task") from e


def loads(text: str) -> dict[str, Any]:
    return cast(dict[str, Any], wire.parse(text))


def _inside_task(error: FirnError) -> FirnError:
    field = f"task.{error.field}" if error.field else "task"
    said = error.message
    said = f"task.{said}" if error.field and said.startswith(error.field) else f"task: {said}"
    return type(error)(said, field=field, suggestion=error.suggestion, details=error.details)

"""The task of a schedule: a request without a table, checked when the schedule is created."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol, cast

import orjson

from service.errors import FirnError, InvalidRequest, UnknownField, UnknownOperation, nearest
from service.model import wire
from service.model.call import Call
from service.model.names import TableName

_WHOSE = "the schedule names the tables"
# Fields that do not belong in a task, and why.
_REFUSED = {
    "tenant_id": _WHOSE,
    "namespace": _WHOSE,
    "table": _WHOSE,
    "idempotency_key": "each run is a request of its own",
    "async": "a run is in the background anyway, and ends when the work does",
}


class RequestRouter(Protocol):
    """The part of the request router, which is in a package above, that schedules use."""

    @property
    def operations(self) -> Sequence[Any]: ...

    def parse(self, body: Any, *, trusted: bool = False) -> tuple[Any, Any]: ...

    def submit(self, body: Any, call: Call) -> "Future[Any]": ...


def check_task(task: dict[str, Any], router: RequestRouter) -> dict[str, Any]:
    """The task as it is stored; refusals name the field in it."""
    known = [operation.name for operation in router.operations if operation.schedulable]
    for name, why in _REFUSED.items():
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
        # Any table name will do: only the operation's own fields are checked.
        router.parse(request_of(task, TableName("any", "any", "any")), trusted=True)
    except FirnError as e:
        raise _inside_task(e) from e
    return task


def request_of(task: dict[str, Any], table: TableName) -> dict[str, Any]:
    """The task as a request for one table."""
    return {**task, "tenant_id": table.tenant, "namespace": table.namespace, "table": table.table}


def dumps(task: dict[str, Any]) -> str:
    """A task as JSON, with its numbers as they were sent."""
    try:
        return orjson.dumps(task, default=lambda number: orjson.Fragment(format(number, "f"))).decode()
    except TypeError as e:
        raise InvalidRequest("task contains a number that is too long; send it as a string", field="task") from e


def loads(text: str) -> dict[str, Any]:
    return cast(dict[str, Any], wire.parse(text))


def _inside_task(error: FirnError) -> FirnError:
    field = f"task.{error.field}" if error.field else "task"
    message = error.message
    message = f"task.{message}" if error.field and message.startswith(error.field) else f"task: {message}"
    return type(error)(message, field=field, suggestion=error.suggestion, details=error.details)

"""What an operation is: a request model, a result model, examples, and one plain function."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal, TypeVar, cast, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from service.model.call import Call
from service.model.names import TableName, check_name
from service.queries.streaming.streams import Stream

# Which threads a request runs on. "inline" neither reads nor waits: it runs on the thread that the request came on.
# "metadata" reads metadata and "tables" changes it, both without Spark: they never wait for a Spark session.
Pool = Literal["inline", "metadata", "tables", "queries", "edits", "bulk", "maintenance"]
T = TypeVar("T")
Q = TypeVar("Q", bound="Request")
R = TypeVar("R", bound="Result")
# Fields by which a change only asks what it would do.
_PREVIEWS = ("dry_run", "estimate")


class Request(BaseModel):
    """What every request carries. Unknown fields are refused; nothing is coerced."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    operation: str
    tenant_id: str = Field(description="whose data; tenants cannot meet")
    namespace: str = Field(default="default", description="a group of tables within the tenant")
    timeout_ms: int | None = Field(
        default=None,
        ge=1,
        description="cancel the request if it takes longer; at most, and by default for QUERY, what the settings say",
    )

    @field_validator("tenant_id", "namespace", "table", check_fields=False)
    @classmethod
    def _is_a_name(cls, value: str | None, info: ValidationInfo) -> str | None:
        # Firn's own tables live under a tenant that no request can name.
        if value is None or (info.context or {}).get("trusted"):
            return value
        return check_name(value, str(info.field_name))


class WideRequest(Request):
    """A request about all of a tenant's namespaces, unless it names one."""

    # Narrower than every request's: nobody assigns to a frozen model.
    namespace: str | None = Field(  # type: ignore[assignment]
        default=None, description="only this namespace; without it all of the tenant's"
    )


class TableRequest(Request):
    table: str = Field(description="the table's name")

    @property
    def table_name(self) -> TableName:
        return TableName(self.tenant_id, self.namespace, self.table)


class ChangeRequest(TableRequest):
    """A request that changes something. With a key it does so once, however often it is sent."""

    idempotency_key: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="the same key and request again: one effect, the same answer; kept for 24 hours",
    )

    @property
    def has_effect(self) -> bool:
        """Whether it is to change anything. A preview is not: it neither takes a key nor keeps its answer under one."""
        return not any(getattr(self, name, False) for name in _PREVIEWS)


class Confirmable(BaseModel):
    """A request about a table's life, history or backups: clients may confirm all of these alike, and some need it."""

    confirm: bool = Field(default=False, description="accepted, and not needed")


def omit_when_null(description: str) -> Any:
    """A field of a response that is left out if it is null."""
    return Field(default=None, description=description, json_schema_extra={"omit_when_null": True})


class Metadata(BaseModel):
    """What every success says about itself; the envelope fills in the first two."""

    model_config = ConfigDict(extra="forbid")

    request_id: str = ""
    execution_time_ms: int = 0
    snapshot_id: int | None = omit_when_null("the table's snapshot that holds the effect, or that was read")


def _add_success(schema: dict[str, Any]) -> None:
    schema["properties"] = {"success": {"const": True}, **schema["properties"]}
    schema["required"] = ["success", *schema.get("required", [])]


class Result(BaseModel):
    """The fields of an operation's response. The envelope adds `success` beside them."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_add_success)

    metadata: Metadata = Field(default_factory=Metadata)


@dataclass(frozen=True)
class Example:
    """A request as a user would send it and the answer approved for it.

    Tests, OpenAPI, Postman and the documentation all use it. `"<any>"` in the answer stands for what differs each time.
    """

    title: str
    request: dict[str, Any]
    answer: dict[str, Any]
    given: tuple[dict[str, Any], ...] = ()
    taken: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Fields of the request that are in truth what the answer to the so-manieth of `given`, from 1 on, has at a place
    such as `metadata.request_id`; the request shows what such a value looks like."""

    def after(self, answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The request, sent after what is given was answered so."""
        request = dict(self.request)
        for name, (place, path) in self.taken.items():
            request[name] = reduce(lambda value, key: value[key], path.split("."), answers[place - 1])
        return request


@dataclass(frozen=True)
class Operation:
    """A verb of the service, complete: the pipeline needs nothing else to serve it.

    `handler` takes the request and, each by its class, the parts it uses: the Call, and parts of the service. It
    returns the result, a stream, or the future of a response body that `call.respond` rendered.
    """

    name: str
    request: type[Request]
    result: type[Result]
    handler: Callable[..., Any]
    pool: Pool | Callable[[Any], Pool]
    summary: str
    examples: tuple[Example, ...] = field(default=())
    schedulable: bool = False
    """Whether a schedule may run it, on one table after another."""

    def pool_of(self, request: Request) -> Pool:
        return self.pool(request) if callable(self.pool) else self.pool

    def bind(self, parts: "Parts") -> "Callable[[Any, Call], Result | Future[bytes] | Stream]":
        """The handler with the parts it uses. Its first parameter is the request."""
        hints = get_type_hints(self.handler)
        names = list(inspect.signature(self.handler).parameters)[1:]
        for_call = [name for name in names if hints[name] is Call]
        found = {name: parts[hints[name]] for name in names if hints[name] is not Call}

        def run(request: Any, call: Call) -> "Result | Future[bytes] | Stream":
            returned: Result | Future[bytes] | Stream = self.handler(request, **dict.fromkeys(for_call, call), **found)
            return returned

        return run


class Parts:
    """The parts that the service is made of, each found by its class. `named` says the class of those that only behave
    like it."""

    def __init__(self, named: Mapping[type, object], *parts: object) -> None:
        self._parts = {**{type(part): part for part in parts}, **named}

    def __getitem__(self, kind: type[T]) -> T:
        if kind not in self._parts:
            raise LookupError(f"the service has no part of class {kind.__name__}; app.py puts the parts together")
        return cast(T, self._parts[kind])

    def replaced(self, others: Mapping[type, object]) -> "Parts":
        """The same parts, some of them others. What is already put together keeps the parts it has."""
        return Parts({**self._parts, **others})


def operation(
    request: type[Q],
    result: type[R],
    *,
    pool: Pool | Callable[[Q], Pool],
    examples: tuple[Example, ...] = (),
    schedulable: bool = False,
) -> Callable[[Callable[..., "R | Future[bytes] | Stream"]], Operation]:
    """Make an Operation of a handler; its name is the request model's literal `operation`."""
    names = get_args(request.model_fields["operation"].annotation)
    if len(names) != 1 or names[0] != names[0].upper():
        raise TypeError(f"{request.__name__}.operation must be a Literal of one upper-case name")

    def declare(handler: Callable[..., "R | Future[bytes] | Stream"]) -> Operation:
        summary = (handler.__doc__ or "").strip().partition("\n")[0]
        if not summary:
            raise TypeError(f"{handler.__name__} needs a docstring: it is the operation's summary in the documentation")
        return Operation(names[0], request, result, handler, cast(Any, pool), summary, examples, schedulable)

    return declare

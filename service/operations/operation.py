"""What an operation is: a request model, a result model, examples, and one plain function."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import reduce
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, cast, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from service.model.call import Call
from service.model.identity.principal import Access, Role
from service.model.names import TableName, check_name
from service.model.wire import omit_when_null as omit_when_null
from service.queries.streaming.streams import Stream

# The threads that a request runs on. "inline" requests neither read nor wait: they run on the thread that received
# them. So do "queued" ones until a commit that they share with others; until then they can be cancelled. "metadata"
# reads metadata and "tables" changes it, both without Spark: they never wait for a Spark session.
Pool = Literal["inline", "queued", "metadata", "tables", "queries", "edits", "bulk", "maintenance"]
Reach = Literal["namespace", "tenant", "somewhere"]
T = TypeVar("T")
Q = TypeVar("Q", bound="Request")


def _read_id(value: Any) -> Any:
    return (
        int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 19 else value
    )


SentId = Annotated[
    int,
    BeforeValidator(_read_id),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": "^[0-9]{1,19}$"}, {"type": "integer"}]}),
]
"""A 64-bit id in a request: text or a number."""
# Results are only rendered, so the model holds the text itself.
ReturnedId = Annotated[int, AfterValidator(str), WithJsonSchema({"type": "string"})]
"""A 64-bit id in a response: text, because JavaScript and other JSON parsers round numbers above 2^53."""


class Request(BaseModel):
    """The fields of every request. Unknown fields are refused; no value is coerced."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    operation: str
    tenant_id: str = Field(description="the tenant that owns the data; tenants are isolated")
    namespace: str = Field(default="default", description="a group of tables within the tenant")
    timeout_ms: int | None = Field(
        default=None,
        ge=1,
        description="cancel the request after this time; the settings hold the maximum and QUERY's default",
    )
    # Accepted everywhere, so that clients can send it with all requests. Those that need it describe it.
    confirm: bool = Field(default=False, description="accepted, but not needed")

    @property
    def reach(self) -> Reach:
        """Where its sender needs the operation's role: in its namespace, in all of the tenant, or in any namespace, if
        the operation itself checks what it reads."""
        return "tenant" if getattr(self, "scope", None) == "tenant" else "namespace"

    @field_validator("tenant_id", "namespace", "table", "new_name", "target_table", check_fields=False)
    @classmethod
    def _check_name(cls, value: str | None, info: ValidationInfo) -> str | None:
        # Firn keeps its own tables under a tenant that only trusted code can name.
        if value is None or (info.context or {}).get("trusted"):
            return value
        return check_name(value, str(info.field_name))


class TableRequest(Request):
    table: str = Field(description="the table's name")

    @property
    def table_name(self) -> TableName:
        return TableName(self.tenant_id, self.namespace, self.table)


class KeyedRequest(Request):
    """A request that changes something. With a key it takes effect once, however often it is sent."""

    idempotency_key: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="a repeated request with the same key gets the same response and has no other effect, for 24 hours",
    )

    @property
    def has_effect(self) -> bool:
        """False for a preview: it ignores the key."""
        return not (getattr(self, "dry_run", False) or getattr(self, "estimate", False))

    @property
    def key_scope(self) -> TableName:
        """What the key counts for, besides the operation: a namespace, unless a subclass says otherwise."""
        return TableName(self.tenant_id, self.namespace, "")


class ChangeRequest(KeyedRequest, TableRequest):
    """A request that changes a table."""

    @property
    def key_scope(self) -> TableName:
        return self.table_name


class ScheduleRequest(KeyedRequest):
    """A request that changes or runs a schedule."""

    name: str = Field(description="the schedule's name")

    @property
    def reach(self) -> Reach:
        """A schedule's name is unique in its tenant; the operation checks the namespace of the schedule itself."""
        return "somewhere"

    @property
    def key_scope(self) -> TableName:
        return TableName(self.tenant_id, "", self.name)


class PreviewableRequest(ChangeRequest):
    """A change that can be previewed."""

    dry_run: bool = Field(default=False, description="only report what would change")


def async_field() -> Any:
    return Field(
        default=False,
        alias="async",
        description="respond with a job's id: GET /jobs/{id} shows its progress, DELETE cancels it",
    )


class BackgroundRequest(PreviewableRequest):
    """A change that can be previewed, or run as a job."""

    async_: bool = async_field()


def _require_present(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Declare as required what every response has. Generated clients tell responses apart by it."""
    fields = model.model_fields.items()
    schema["required"] = [info.serialization_alias or name for name, info in fields if info.default is not None]


class Metadata(BaseModel):
    """The metadata of every success; the envelope fills in the first two fields."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_require_present)

    request_id: str = ""
    execution_time_ms: int = 0
    snapshot_id: ReturnedId | None = omit_when_null("the snapshot that the change made, or that was read")


def _add_success(schema: dict[str, Any], model: type[BaseModel]) -> None:
    _require_present(schema, model)
    schema["properties"] = {"success": {"const": True}, **schema["properties"]}
    schema["required"] = ["success", *schema["required"]]


class Result(BaseModel):
    """The fields of an operation's response. The envelope adds `success` beside them."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_add_success)

    when: ClassVar[str] = "The response has"
    """The documentation's words for when this is the response."""
    http_status: ClassVar[int] = 200

    metadata: Metadata = Field(default_factory=Metadata)


class AcceptedResult(Result):
    """The response to long work that goes on as a job; its HTTP status is 202."""

    when: ClassVar[str] = "With `async: true`, the HTTP status is 202, and the response has"
    http_status: ClassVar[int] = 202

    job_id: str = Field(description="the job's id")
    status_url: str = Field(description="its path: GET shows its progress and result, DELETE cancels it")

    @classmethod
    def of(cls, job_id: str, **fields: Any) -> Self:
        return cls(job_id=job_id, status_url=f"/jobs/{job_id}", **fields)


class Plan(BaseModel):
    """What a dry run says would happen, in the words of the operation's response."""

    model_config = ConfigDict(extra="forbid")


class DryRunResult(Result):
    """The response to a dry run: only what would happen. Each subclass has the `plan` of its operation."""

    when: ClassVar[str] = "With `dry_run: true`, nothing changes, and the response has"

    dry_run: Literal[True] = Field(default=True, description="true: nothing was changed")


@dataclass(frozen=True)
class Example:
    """A request as a user would send it and the approved response.

    Tests, OpenAPI, Postman and the documentation use it. `"<any>"` stands for a value that differs each time.
    """

    title: str
    request: dict[str, Any]
    answer: dict[str, Any]
    given: tuple[dict[str, Any], ...] = ()
    """Requests to send first."""
    taken: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Fields of the request whose real value comes from a response to a request in `given`: its number (1-based) and
    the path of the value, such as `metadata.request_id`. The request itself shows a typical value."""

    @property
    def status(self) -> int:
        """The HTTP status of the response."""
        return 202 if "status_url" in self.answer else 200

    def after(self, answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The request with the values that it takes from the responses to `given`."""
        taken = {
            name: reduce(lambda value, key: value[key], path.split("."), answers[number - 1])
            for name, (number, path) in self.taken.items()
        }
        return {**self.request, **taken}


@dataclass(frozen=True)
class Operation:
    """A verb of the service, with everything that the pipeline needs to serve it.

    `handler` takes the request and the parts that it uses, found by their classes: the Call and parts of the service.
    It returns the result, a stream, or a future of the response body that `call.respond` rendered.
    """

    name: str
    request: type[Request]
    result: type[Result]
    handler: Callable[..., Any]
    pool: Pool | Callable[[Any], Pool]
    summary: str
    examples: tuple[Example, ...] = field(default=())
    schedulable: bool = False
    """Whether a schedule may run it on each of its tables."""
    also: tuple[type[Result], ...] = ()
    """The other responses that it can give: to a dry run, or with `async`."""
    needs: Role | Callable[[Any], Role] = "admin"
    """The role that its sender needs. If it depends on the request, the docstring of the function says how."""

    @property
    def role(self) -> str:
        """The documentation's words for the role that its sender needs."""
        return str(self.needs.__doc__) if callable(self.needs) else f"`{self.needs}`"

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return issubclass(self.request, KeyedRequest) or self.pool == "tables"

    def access_of(self, request: Request) -> Access:
        """What the sender of a request needs."""
        role = self.needs(request) if callable(self.needs) else self.needs
        namespace = request.namespace if request.reach == "namespace" else None
        return Access(role, request.tenant_id, namespace, somewhere=request.reach == "somewhere")

    def pool_of(self, request: Request) -> Pool:
        return self.pool(request) if callable(self.pool) else self.pool

    def bind(self, parts: "Parts") -> "Callable[[Any, Call], Result | Future[bytes] | Stream]":
        """The handler with its parts filled in; LookupError if the service lacks one."""
        hints = get_type_hints(self.handler)
        names = list(inspect.signature(self.handler).parameters)[1:]
        for_call = [name for name in names if hints[name] is Call]
        found = {name: parts[hints[name]] for name in names if hints[name] is not Call}

        def run(request: Any, call: Call) -> "Result | Future[bytes] | Stream":
            returned: Result | Future[bytes] | Stream = self.handler(request, **dict.fromkeys(for_call, call), **found)
            return returned

        return run


class Parts:
    """The parts of the service, found by their classes. `named` gives the class that a substitute stands for."""

    def __init__(self, named: Mapping[type, object], *parts: object) -> None:
        self._parts = {**{type(part): part for part in parts}, **named}

    def __getitem__(self, kind: type[T]) -> T:
        if kind not in self._parts:
            raise LookupError(f"the service has no part of class {kind.__name__}; app.py composes the parts")
        return cast(T, self._parts[kind])

    def replaced(self, others: Mapping[type, object]) -> "Parts":
        """A copy with some parts replaced. Parts that already hold one of these keep it."""
        return Parts({**self._parts, **others})


def operation(
    request: type[Q],
    result: type[Result],
    *,
    pool: Pool | Callable[[Q], Pool],
    examples: tuple[Example, ...] = (),
    schedulable: bool = False,
    also: tuple[type[Result], ...] = (),
    needs: Role | Callable[[Q], Role] | None = None,
) -> Callable[[Callable[..., "Result | Future[bytes] | Stream"]], Operation]:
    """Declare a handler as an Operation, named by the literal `operation` of its request model.

    Unless `needs` says otherwise, a reader may read, and a writer may make changes.
    """
    names = get_args(request.model_fields["operation"].annotation)
    if len(names) != 1 or names[0] != names[0].upper():
        raise TypeError(f"{request.__name__}.operation must be a Literal of one upper-case name")

    def declare(handler: Callable[..., "Result | Future[bytes] | Stream"]) -> Operation:
        summary = (handler.__doc__ or "").strip().partition("\n")[0]
        if not summary:
            raise TypeError(f"{handler.__name__} needs a docstring: it is the operation's summary in the documentation")
        role = needs or ("writer" if issubclass(request, KeyedRequest) else "reader")
        fixed = (names[0], request, result, handler, cast(Any, pool), summary, examples, schedulable, also)
        return Operation(*fixed, needs=cast(Any, role))

    return declare

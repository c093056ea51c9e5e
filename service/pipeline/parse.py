"""From the JSON of a request to its operation, its checked model, and the work to do."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from service.errors import InvalidRequest, UnknownOperation, nearest
from service.model import wire
from service.model.call import Call, IdempotencyKey, fingerprint
from service.model.identity.principal import ANYONE, Access, Principal
from service.model.names import TableName
from service.model.validation import refusal
from service.operations.operation import KeyedRequest, Operation, Pool, Request, Result
from service.operations.row_access import RowAccess
from service.queries.streaming.streams import Stream

# What other systems call an operation.
_OTHER_WORDS = {
    "QUERY": (
        *("SELECT", "READ", "GET", "FIND", "SCAN", "SEARCH", "FETCH", "EXPLAIN", "COUNT", "VIEW", "SAMPLE", "HEAD"),
        *("LOOKUP", "SQL", "WITH", "TIME_TRAVEL", "DISTINCT", "AGGREGATE"),
    ),
    "WRITE": ("INSERT", "APPEND", "ADD", "PUT", "POST", "LOAD", "COPY", "IMPORT", "SAVE", "OVERWRITE"),
    "UPSERT": ("MERGE",),
    "UPDATE": ("PATCH", "MODIFY", "EDIT"),
    "DELETE": ("REMOVE", "TRUNCATE"),
    "DEDUPLICATE": ("DEDUPE", "DEDUP"),
    "CREATE_TABLE": ("CREATE",),
    "ALTER_TABLE": ("ALTER",),
    "RENAME_TABLE": ("RENAME",),
    "DROP_TABLE": ("DROP", "DELETE_TABLE"),
    "RESTORE_TABLE": ("UNDELETE", "UNDROP", "RECOVER"),
    "RESTORE_BACKUP": ("RESTORE",),
    "UNDO": ("REVERT",),
    "HISTORY": ("SNAPSHOTS", "LOG", "COMMITS", "VERSIONS"),
    "DESCRIBE_TABLE": ("DESCRIBE", "DESC", "SCHEMA", "INFO", "EXISTS"),
    "LIST_TABLES": ("SHOW", "LIST", "TABLES"),
    "LIST_JOBS": ("STATUS",),
    "CREATE_SCHEDULE": ("SCHEDULE", "CRON"),
    "COMPACT": ("OPTIMIZE", "OPTIMISE", "VACUUM", "EXPIRE_SNAPSHOTS", "REWRITE_DATA_FILES"),
}
_FORMS = {
    "QUERY": '{"operation": "QUERY", "table": "people", "filter": {"age": {"gt": 22}}, "tenant_id": …}',
    "WRITE": '{"operation": "WRITE", "table": "people", "records": [{"age": 22}], "tenant_id": …}',
}
_STATEMENT_FORM = '{"operation": "QUERY", "sql": "SELECT age FROM people", "tenant_id": …}'
_READING = {"SELECT", "READ", "GET", "FIND", "SCAN", "SEARCH", "FETCH", "SHOW", "LIST", "DESCRIBE", "VIEW", "COUNT"}


@dataclass(frozen=True)
class Work:
    """A parsed request of any kind, as the later steps of the pipeline see it.

    `run` returns the result, a stream, or the future of a rendered body that is stored under the key already.
    """

    operation: str
    access: Access
    about: TableName
    """The table that it is about; of a namespace or a tenant, the other names are empty."""
    pool: Pool
    run: Callable[[Call], "Result | Future[bytes] | Stream"]
    key: IdempotencyKey | None = None
    rows: RowAccess = RowAccess.WHOLE
    """What it has to do with the rows of the table."""


class RequestParser:
    def __init__(self, operations: Iterable[Operation]) -> None:
        self.operations: Mapping[str, Operation] = {o.name: o for o in sorted(operations, key=lambda o: o.name)}

    def parse(self, value: dict[str, Any], key: str | None, *, trusted: bool = False) -> tuple[Operation, Request]:
        """The operation and the model of a request. `key` is the idempotency key that came beside the body."""
        found = self._operation(value.get("operation"))
        value = {**value, "operation": found.name}
        if key is not None and issubclass(found.request, KeyedRequest):
            if value.get("idempotency_key") not in (None, key):
                raise InvalidRequest(
                    "idempotency_key and the header Idempotency-Key differ; send one of them", field="idempotency_key"
                )
            value["idempotency_key"] = key
        try:
            return found, found.request.model_validate(value, context={"trusted": trusted})
        except ValidationError as e:
            raise refusal(e, found.request) from e

    def _operation(self, name: Any) -> Operation:
        if not isinstance(name, str):
            problem = "is missing" if name is None else "must be text"
            raise InvalidRequest(f"operation {problem}; name one of {', '.join(self.operations)}", field="operation")
        found = self.operations.get(name.upper())
        if found is None:
            near, hint = self._hint(name)
            raise UnknownOperation(f"{name[:80]!r} is not an operation; {hint}", field="operation", suggestion=near)
        return found

    def _hint(self, name: str) -> tuple[str | None, str]:
        """The operation that a wrong name most likely meant, and a hint for the message."""
        # A statement of SQL begins with its verb; INSERT_INTO is a verb with another word of its statement.
        words = name.upper().split()
        two, word = "_".join(words[:2]), words[0] if words else ""
        if len(words) > 1 and (
            meant := next((o for o in (two, two.replace("SHOW", "LIST")) if o in self.operations), "")
        ):
            return meant, f"use {meant}"
        verbs = {word, word.removesuffix("_INTO").removesuffix("_FROM")}
        if meant := next((o for o in self.operations if verbs & {o, *_OTHER_WORDS.get(o, ())}), ""):
            form = _STATEMENT_FORM if len(words) > 1 and meant == "QUERY" else _FORMS.get(meant)
            return meant, f"use {meant}" + (f", such as {form}" if form else "")
        reading = [n for n, operation in self.operations.items() if not operation.changes]
        # Whoever wants to read must not be told to write, so what changes data has to be very similar.
        near = None if word.partition("_")[0] in _READING else nearest(name, self.operations, 0.8)
        near = near or nearest(name, reading)
        return near, f"did you mean {near}?" if near else f"valid names are {', '.join(self.operations)}"


def object_of(body: Any) -> dict[str, Any]:
    """A body, as JSON text or its value, as an object."""
    value = wire.parse(body) if isinstance(body, bytes | str) else body
    if not isinstance(value, dict):
        raise InvalidRequest('the request must be a JSON object such as {"operation": "LIST_TABLES", …}')
    return value


def scope_of(principal: Principal) -> str:
    """Keeps the idempotency keys of a principal from being those of another, who could read stored responses."""
    return "" if principal is ANYONE else principal.name


def subject_of(request: Request) -> TableName:
    """What a request is about."""
    namespace = request.namespace if request.reach == "namespace" else ""
    return TableName(request.tenant_id, namespace or "", (namespace and getattr(request, "table", None)) or "")


def key_of(
    operation: Operation, request: Request, value: dict[str, Any], principal: Principal = ANYONE
) -> IdempotencyKey | None:
    """The idempotency key of a request that has one and has an effect, with a fingerprint of all else it says."""
    if not isinstance(request, KeyedRequest) or request.idempotency_key is None or not request.has_effect:
        return None
    said = {"namespace": request.namespace, **value, "operation": operation.name}
    said.pop("idempotency_key", None)
    return IdempotencyKey(
        operation.name, request.key_scope, request.idempotency_key, fingerprint(said), scope_of(principal)
    )

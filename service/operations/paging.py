"""How every list pages: `limit` and `cursor` in the request, `next_cursor` in the response."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, model_validator

from service.catalog.tables import Snapshot, Table
from service.errors import InvalidRequest, SnapshotNotFound
from service.model import cursor
from service.model.call import fingerprint
from service.operations.operation import Request, omit_when_null

T = TypeVar("T")
# They say which page of a list to return, or how to wait for it. All other fields say which list it is.
_NOT_OF_THE_LIST = frozenset({"limit", "cursor", "timeout_ms", "confirm", "async_"})


def cursor_field() -> Any:
    return Field(
        default=None,
        min_length=1,
        max_length=1_000_000,
        description="`next_cursor` of a response to this request: return what follows; only `limit` may change",
    )


def limit_field(default: int, most: int) -> Any:
    return Field(default=default, ge=1, le=most, description="the maximum number of items in one response")


class Paged(BaseModel):
    """The fields of a request for a list."""

    limit: int = limit_field(100, 1000)
    cursor: str | None = cursor_field()

    def place(self, *kinds: type | tuple[type, ...]) -> tuple[Any, ...] | None:
        """Where this page begins, as values of these types; None at the start of the list."""
        if self.cursor is None:
            return None
        place = cursor.read(self.cursor, self._digest())
        if len(place) != len(kinds) or not all(map(isinstance, place, kinds)):
            raise cursor.refused()
        return tuple(place)

    def cursor_at(self, place: Sequence[Any]) -> str:
        """The cursor of this list at a place."""
        return cursor.write(self._digest(), place)

    def page(self, left: Iterable[T], place: Callable[[T], Sequence[Any]]) -> tuple[list[T], str | None]:
        """The first `limit` of the items that are left, and the cursor after the last of them if there are more."""
        found = list(islice(left, self.limit + 1))
        if len(found) <= self.limit:
            return found, None
        return found[:-1], self.cursor_at(place(found[-2]))

    def _digest(self) -> str:
        fields = self.model_dump(mode="python")
        return fingerprint({name: value for name, value in fields.items() if name not in _NOT_OF_THE_LIST})


def next_cursor_field() -> Any:
    return omit_when_null("the `cursor` of the next page; absent on the last page")


class Page(BaseModel):
    """The field of a response that holds one page of a list."""

    next_cursor: str | None = next_cursor_field()


def pinned(table: Table, uuid: str, snapshot_id: int) -> Snapshot:
    """The snapshot that a cursor keeps to; SnapshotNotFound if it has expired, or if the table was replaced."""
    try:
        if table.uuid == uuid:
            return table.snapshot(snapshot_id, "cursor")
    except SnapshotNotFound:
        pass
    raise SnapshotNotFound(
        f"the snapshot of {table.name.table} that cursor continues has expired; {cursor.AGAIN}", field="cursor"
    )


class ScopedRequest(Request):
    """A request about the tables of one namespace, or of all namespaces of the tenant."""

    scope: Literal["namespace", "tenant"] = Field(
        default="namespace", description="`tenant` for all namespaces of the tenant; then leave `namespace` out"
    )

    @model_validator(mode="after")
    def _check_scope(self) -> "ScopedRequest":
        check_scope(self, self.scope)
        return self

    @property
    def only_namespace(self) -> str | None:
        """The namespace that it is about; None for all."""
        return self.namespace if self.scope == "namespace" else None


def check_scope(request: Request, scope: str | None) -> None:
    """Refuse a request that names a namespace or a table and means all of the tenant."""
    for name in ("namespace", "table") if scope == "tenant" else ():
        if name in request.model_fields_set and getattr(request, name) is not None:
            raise InvalidRequest(f'{name} contradicts scope "tenant"; send only one of them', field=name)

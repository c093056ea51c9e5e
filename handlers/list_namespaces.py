"""LIST_NAMESPACES: list a tenant's namespaces."""

from typing import Literal

from pydantic import Field

from service.catalog.tables import Catalog
from service.model.call import Call
from service.operations.examples import response
from service.operations.operation import Example, Reach, Request, Result, operation
from service.operations.paging import Page, Paged, limit_field

TENANT = {"tenant_id": "acme"}
EXAMPLES = (
    Example(
        "List a tenant's namespaces",
        {"operation": "LIST_NAMESPACES", **TENANT},
        response(snapshot=False, namespaces=["lab", "shop"]),
        given=tuple({"operation": "CREATE_NAMESPACE", **TENANT, "namespace": name} for name in ("shop", "lab")),
    ),
)


class ListNamespaces(Paged, Request):
    operation: Literal["LIST_NAMESPACES"]
    limit: int = limit_field(1000, 10_000)
    # A frozen model may widen a field's type: nobody can assign to it.
    namespace: str | None = Field(default=None, description="only this namespace, if it exists")  # type: ignore[assignment]

    @property
    def reach(self) -> Reach:
        return "somewhere"


class ListNamespacesResult(Page, Result):
    namespaces: list[str] = Field(description="their names, in order")


@operation(ListNamespaces, ListNamespacesResult, pool="metadata", examples=EXAMPLES)
def list_namespaces(request: ListNamespaces, call: Call, catalog: Catalog) -> ListNamespacesResult:
    """List a tenant's namespaces by name: those that the sender may read."""
    [after] = request.place(str) or [""]
    found = (name for _, name in catalog.list_namespaces(request.tenant_id) if name > after)
    wanted = (name for name in found if request.namespace in (None, name))
    readable = (name for name in wanted if call.principal.may("reader", request.tenant_id, name))
    page, next_cursor = request.page(readable, lambda name: [name])
    return ListNamespacesResult(namespaces=page, next_cursor=next_cursor)

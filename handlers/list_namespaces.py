"""LIST_NAMESPACES: list a tenant's namespaces."""

from typing import Literal

from pydantic import Field

from service.catalog.tables import Catalog
from service.operations.examples import response
from service.operations.operation import Example, Result, TenantRequest, operation

TENANT = {"tenant_id": "acme"}
EXAMPLES = (
    Example(
        "List a tenant's namespaces",
        {"operation": "LIST_NAMESPACES", **TENANT},
        response(snapshot=False, namespaces=["lab", "shop"]),
        given=tuple({"operation": "CREATE_NAMESPACE", **TENANT, "namespace": name} for name in ("shop", "lab")),
    ),
)


class ListNamespaces(TenantRequest):
    operation: Literal["LIST_NAMESPACES"]


class ListNamespacesResult(Result):
    namespaces: list[str] = Field(description="their names, in order")


@operation(ListNamespaces, ListNamespacesResult, pool="metadata", examples=EXAMPLES)
def list_namespaces(request: ListNamespaces, catalog: Catalog) -> ListNamespacesResult:
    """List a tenant's namespaces by name."""
    found = (name for _, name in catalog.list_namespaces(request.tenant_id))
    return ListNamespacesResult(namespaces=[name for name in found if request.namespace in (None, name)])

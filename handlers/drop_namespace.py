"""DROP_NAMESPACE: an end to a namespace that holds no tables."""

from typing import Any, Literal

from pydantic import Field

from service.catalog.namespaces import drop_namespace as drop
from service.catalog.tables import Catalog
from service.errors import NamespaceNotFound
from service.operations.examples import response
from service.operations.operation import Confirmable, Example, Request, Result, operation

REQUEST = {"operation": "DROP_NAMESPACE", "tenant_id": "acme", "namespace": "lab"}


def _answer(*, dropped: bool) -> dict[str, Any]:
    return response(snapshot=False, namespace_dropped=dropped, namespace_existed=dropped)


EXAMPLES = (
    Example(
        "Drop an empty namespace", REQUEST, _answer(dropped=True), given=({**REQUEST, "operation": "CREATE_NAMESPACE"},)
    ),
    Example("Drop it if it is there", {**REQUEST, "namespace": "never_was", "if_exists": True}, _answer(dropped=False)),
)


class DropNamespace(Confirmable, Request):
    operation: Literal["DROP_NAMESPACE"]
    namespace: str = Field(description="its name")
    if_exists: bool = Field(default=False, description="succeed where there is no such namespace")


class DropNamespaceResult(Result):
    namespace_dropped: bool = Field(description="whether this request dropped it")
    namespace_existed: bool = Field(description="whether it was there")


@operation(DropNamespace, DropNamespaceResult, pool="tables", examples=EXAMPLES)
def drop_namespace(request: DropNamespace, catalog: Catalog) -> DropNamespaceResult:
    """Drop a namespace that holds no tables."""
    try:
        drop(catalog, request.tenant_id, request.namespace)
    except NamespaceNotFound:
        if not request.if_exists:
            raise
        return DropNamespaceResult(namespace_dropped=False, namespace_existed=False)
    return DropNamespaceResult(namespace_dropped=True, namespace_existed=True)

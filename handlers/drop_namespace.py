"""DROP_NAMESPACE: drop an empty namespace."""

from typing import Any, Literal

from pydantic import Field

from service.catalog.namespaces import check_can_drop
from service.catalog.namespaces import drop_namespace as drop
from service.catalog.tables import Catalog
from service.commits.commit import Commits
from service.errors import NamespaceNotEmpty, NamespaceNotFound
from service.model.call import Call
from service.operations.examples import response
from service.operations.operation import Example, KeyedRequest, Result, operation

REQUEST: dict[str, Any] = {"operation": "DROP_NAMESPACE", "tenant_id": "acme", "namespace": "lab"}
EXAMPLES = (
    Example(
        "Drop an empty namespace",
        REQUEST,
        response(snapshot=False, namespace_dropped=True, namespace_existed=True),
        given=({**REQUEST, "operation": "CREATE_NAMESPACE"},),
    ),
    Example(
        "Drop it only if it exists",
        {**REQUEST, "namespace": "never_was", "if_exists": True},
        response(snapshot=False, namespace_dropped=False, namespace_existed=False),
    ),
)


class DropNamespace(KeyedRequest):
    operation: Literal["DROP_NAMESPACE"]
    namespace: str = Field(description="the namespace's name")
    if_exists: bool = Field(default=False, description="do nothing if the namespace does not exist")


class DropNamespaceResult(Result):
    namespace_dropped: bool = Field(description="whether this request dropped it")
    namespace_existed: bool = Field(description="whether it existed before")


@operation(DropNamespace, DropNamespaceResult, pool="tables", examples=EXAMPLES, needs="admin")
def drop_namespace(request: DropNamespace, call: Call, commits: Commits, catalog: Catalog) -> DropNamespaceResult:
    """Drop a namespace that has no tables."""
    name = (request.tenant_id, request.namespace)
    existed = True
    try:
        if not commits.earlier_batch(call):
            check_can_drop(catalog, *name)
            with commits.of_namespace(name, call, NamespaceNotFound, NamespaceNotEmpty):
                drop(catalog, *name)
    except NamespaceNotFound:
        if not request.if_exists:
            raise
        existed = False
    return DropNamespaceResult(namespace_dropped=existed, namespace_existed=existed)

"""CREATE_NAMESPACE: create a namespace."""

from typing import Any, Literal

from pydantic import Field

from service.catalog.namespaces import check_can_create
from service.catalog.namespaces import create_namespace as create
from service.catalog.tables import Catalog
from service.commits.commit import Commits
from service.errors import NamespaceExists
from service.model.call import Call
from service.operations.examples import response
from service.operations.operation import Example, KeyedRequest, Result, operation

REQUEST: dict[str, Any] = {"operation": "CREATE_NAMESPACE", "tenant_id": "acme", "namespace": "lab"}
EXAMPLES = (
    Example("Create a namespace", REQUEST, response(snapshot=False, namespace_created=True, namespace_existed=False)),
    Example(
        "Create it only if it does not exist",
        {**REQUEST, "if_not_exists": True},
        response(snapshot=False, namespace_created=False, namespace_existed=True),
        given=(REQUEST,),
    ),
)


class CreateNamespace(KeyedRequest):
    operation: Literal["CREATE_NAMESPACE"]
    namespace: str = Field(description="the namespace's name")
    if_not_exists: bool = Field(default=False, description="do nothing if the namespace exists")


class CreateNamespaceResult(Result):
    namespace_created: bool = Field(description="whether this request created it")
    namespace_existed: bool = Field(description="whether it existed before")


@operation(CreateNamespace, CreateNamespaceResult, pool="tables", examples=EXAMPLES)
def create_namespace(request: CreateNamespace, call: Call, commits: Commits, catalog: Catalog) -> CreateNamespaceResult:
    """Create a namespace; CREATE_TABLE does this automatically."""
    name = (request.tenant_id, request.namespace)
    created = True
    try:
        if not commits.earlier_batch(call):
            check_can_create(catalog, *name)
            with commits.of_namespace(name, call, NamespaceExists):
                create(catalog, *name)
    except NamespaceExists:
        if not request.if_not_exists:
            raise
        created = False
    return CreateNamespaceResult(namespace_created=created, namespace_existed=not created)

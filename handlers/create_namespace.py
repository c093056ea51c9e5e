"""CREATE_NAMESPACE: a place for tables, before there are any."""

from typing import Any, Literal

from pydantic import Field

from service.catalog.namespaces import create_namespace as create
from service.catalog.tables import Catalog
from service.errors import NamespaceExists
from service.operations.examples import response
from service.operations.operation import Confirmable, Example, Request, Result, operation

REQUEST = {"operation": "CREATE_NAMESPACE", "tenant_id": "acme", "namespace": "lab"}


def _answer(*, created: bool) -> dict[str, Any]:
    return response(snapshot=False, namespace_created=created, namespace_existed=not created)


EXAMPLES = (
    Example("Make a namespace", REQUEST, _answer(created=True)),
    Example(
        "Make it only if it is not there", {**REQUEST, "if_not_exists": True}, _answer(created=False), given=(REQUEST,)
    ),
)


class CreateNamespace(Confirmable, Request):
    operation: Literal["CREATE_NAMESPACE"]
    namespace: str = Field(description="its name")
    if_not_exists: bool = Field(default=False, description="succeed where there is one of this name already")


class CreateNamespaceResult(Result):
    namespace_created: bool = Field(description="whether this request made it")
    namespace_existed: bool = Field(description="whether it was there already")


@operation(CreateNamespace, CreateNamespaceResult, pool="tables", examples=EXAMPLES)
def create_namespace(request: CreateNamespace, catalog: Catalog) -> CreateNamespaceResult:
    """Make a namespace; CREATE_TABLE makes the one that it names by itself."""
    created = create(catalog, request.tenant_id, request.namespace)
    if not created and not request.if_not_exists:
        raise NamespaceExists(
            f"namespace {request.namespace!r} exists already; choose another name, or send if_not_exists: true",
            field="namespace",
        )
    return CreateNamespaceResult(namespace_created=created, namespace_existed=not created)

"""Dynamic tables as resources: /dynamic-tables, each the same as an operation."""

from functools import partial
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Header, Query, Request
from pydantic.json_schema import SkipJsonSchema

import handlers.alter_dynamic_table
import handlers.audit_dynamic_table
import handlers.create_dynamic_table
from handlers.alter_dynamic_table import AlterDynamicTable, AlterDynamicTableResult
from handlers.audit_dynamic_table import AuditDynamicTable, AuditDynamicTableResult
from handlers.create_dynamic_table import CreateDynamicTable, CreateDynamicTableResult
from handlers.describe_dynamic_table import DescribeDynamicTable, DescribeDynamicTableResult
from handlers.drop_dynamic_table import DropDynamicTable, DropDynamicTableResult
from handlers.list_dynamic_tables import ListDynamicTables, ListDynamicTablesResult
from handlers.refresh_dynamic_table import RefreshDynamicTable, RefreshDynamicTableResult
from handlers.refresh_history import RefreshHistory, RefreshHistoryResult
from service.api.exchange import api_of, call_of, check_flag, disconnected, failures, read_body, response_of
from service.errors import InvalidRequest
from service.operations.operation import Example
from service.operations.operation import Request as OperationRequest

TABLES = "/dynamic-tables"
TABLE = TABLES + "/{name}"
REFRESH, AUDIT, HISTORY = TABLE + "/refresh", TABLE + "/audit", TABLE + "/history"
router = APIRouter(responses=failures(400, 401, 403, 404, 408, 409, 413, 422, 429, 431, 500, 503, 504))
_Text = str | SkipJsonSchema[None]
_Tenant = Annotated[_Text, Query(description="the tenant")]
_Namespace = Annotated[_Text, Query(description="the namespace; default: default")]
_Key = Annotated[
    _Text,
    Header(alias="Idempotency-Key", description="the same as `idempotency_key`", json_schema_extra={"maxLength": 200}),
]


def _param(description: str, kind: str = "string") -> Any:
    return Query(description=description, json_schema_extra={"type": kind})


_LIMIT, _CURSOR = _param("the maximum number of items", "integer"), _param("`next_cursor` of the page before")
_SCOPE, _STATE = _param("`tenant` for all namespaces of the tenant"), _param("only those in this state")


def _body(model: type[OperationRequest], example: Example) -> dict[str, Any]:
    """The body of a route: the fields of an operation, without those that the path says."""
    schema = model.model_json_schema()
    fields = {key: value for key, value in schema["properties"].items() if key not in ("operation", "table")}
    found = {"type": "object", "properties": fields, **({"$defs": schema["$defs"]} if "$defs" in schema else {})}
    shown = {key: value for key, value in example.request.items() if key not in ("operation", "table")}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": found, "example": shown}}}}


@router.get(
    TABLES,
    operation_id="list_dynamic_tables",
    summary="List dynamic tables",
    response_model=ListDynamicTablesResult,
    response_description="the dynamic tables",
)
async def list_dynamic_tables(
    request: Request,
    tenant_id: _Tenant = None,
    namespace: _Namespace = None,
    scope: Annotated[_Text, _SCOPE] = None,
    state: Annotated[_Text, _STATE] = None,
    limit: Annotated[_Text, _LIMIT] = None,
    cursor: Annotated[_Text, _CURSOR] = None,
) -> Any:
    return await _respond(request, ListDynamicTables)


@router.post(
    TABLES,
    operation_id="create_dynamic_table",
    summary="Declare a dynamic table, or replace its query",
    response_model=CreateDynamicTableResult,
    response_description="the table is declared",
    openapi_extra=_body(CreateDynamicTable, handlers.create_dynamic_table.EXAMPLES[0]),
)
async def create_dynamic_table(request: Request, key: _Key = None) -> Any:
    return await _respond(request, CreateDynamicTable, key)


@router.get(
    TABLE,
    operation_id="describe_dynamic_table",
    summary="Describe a dynamic table",
    response_model=DescribeDynamicTableResult,
    response_description="the dynamic table",
)
async def describe_dynamic_table(
    request: Request,
    name: str,
    tenant_id: _Tenant = None,
    namespace: _Namespace = None,
    refreshes: Annotated[_Text, _param("how many of the latest refreshes to return", "integer")] = None,
) -> Any:
    return await _respond(request, DescribeDynamicTable, table=name)


@router.patch(
    TABLE,
    operation_id="alter_dynamic_table",
    summary="Change the target lag of a dynamic table, suspend it, or resume it",
    response_model=AlterDynamicTableResult,
    response_description="the options and the state of the table",
    openapi_extra=_body(AlterDynamicTable, handlers.alter_dynamic_table.EXAMPLES[0]),
)
async def alter_dynamic_table(request: Request, name: str, key: _Key = None) -> Any:
    return await _respond(request, AlterDynamicTable, key, table=name)


@router.delete(
    TABLE,
    operation_id="drop_dynamic_table",
    summary="Drop a dynamic table",
    response_model=DropDynamicTableResult,
    response_description="the table is dropped",
)
async def drop_dynamic_table(
    request: Request,
    name: str,
    tenant_id: _Tenant = None,
    namespace: _Namespace = None,
    cascade: Annotated[_Text, _param("also drop those that depend on it", "boolean")] = None,
    if_exists: Annotated[_Text, _param("do nothing if it does not exist", "boolean")] = None,
    purge: Annotated[_Text, _param("delete its files at once; needs confirm", "boolean")] = None,
    confirm: Annotated[_Text, _param("needed with purge", "boolean")] = None,
    key: _Key = None,
) -> Any:
    return await _respond(request, DropDynamicTable, key, table=name)


@router.post(
    REFRESH,
    operation_id="refresh_dynamic_table",
    summary="Bring a dynamic table up to date",
    response_model=RefreshDynamicTableResult,
    response_description="the table is up to date",
)
async def refresh_dynamic_table(
    request: Request,
    name: str,
    tenant_id: _Tenant = None,
    namespace: _Namespace = None,
    cascade: Annotated[_Text, _param("also refresh those that depend on it", "boolean")] = None,
    in_background: Annotated[_Text, Query(alias="async", json_schema_extra={"type": "boolean"})] = None,
    key: _Key = None,
) -> Any:
    return await _respond(request, RefreshDynamicTable, key, table=name)


@router.post(
    AUDIT,
    operation_id="audit_dynamic_table",
    summary="Compare a dynamic table with its query, and repair it if wanted",
    response_model=AuditDynamicTableResult,
    response_description="what differs",
    openapi_extra=_body(AuditDynamicTable, handlers.audit_dynamic_table.EXAMPLES[0]),
)
async def audit_dynamic_table(request: Request, name: str, key: _Key = None) -> Any:
    return await _respond(request, AuditDynamicTable, key, table=name)


@router.get(
    HISTORY,
    operation_id="refresh_history",
    summary="List the refreshes of a dynamic table",
    response_model=RefreshHistoryResult,
    response_description="the refreshes, newest first",
)
async def refresh_history(
    request: Request,
    name: str,
    tenant_id: _Tenant = None,
    namespace: _Namespace = None,
    state: Annotated[_Text, _STATE] = None,
    since: Annotated[_Text, _param("only those that started at this time or later")] = None,
    limit: Annotated[_Text, _LIMIT] = None,
    cursor: Annotated[_Text, _CURSOR] = None,
) -> Any:
    return await _respond(request, RefreshHistory, table=name)


async def _respond(request: Request, model: type[OperationRequest], key: str | None = None, **fixed: str) -> Any:
    """The response to an operation, whose fields are the query parameters, those of the body, and the path's."""
    api, call = api_of(request), call_of(request)
    with api.budget.hold(call.sender) as held:
        body = await read_body(request, held)
        sent = await api.pipeline.value_of(body, call) if body.strip() else {}
        if not isinstance(sent, dict):
            raise InvalidRequest("the body must be a JSON object with the fields of the operation")
        operation = get_args(model.model_fields["operation"].annotation)[0]
        fields = {"operation": operation, **sent, **_parameters(request, model), **fixed}
        gone = partial(disconnected, request.receive)
        return response_of(request, await api.pipeline.respond_to(fields, call, key, gone))


def _parameters(request: Request, model: type[OperationRequest]) -> dict[str, Any]:
    """The query parameters as fields of an operation."""
    kinds = {info.alias or name: info.annotation for name, info in model.model_fields.items()}
    return {name: _typed(name, text, kinds.get(name)) for name, text in request.query_params.items()}


def _typed(name: str, text: str, kind: Any) -> Any:
    kinds = (kind, *get_args(kind))
    if bool in kinds:
        check_flag(name, text)
        return text == "true"
    if int in kinds:
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise InvalidRequest(f"{name} is {text[:80]!r}; send a whole number", field=name)
        return int(text)
    return text

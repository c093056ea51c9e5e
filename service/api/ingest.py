"""POST /tables/{tenant}/{namespace}/{table}/ingest: ingest the file in the body, which is kept on disk until then."""

import asyncio
import contextlib
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import ClientDisconnect

from handlers.ingest import IngestResult
from service.api.exchange import (
    NoResponse,
    api_of,
    authorised,
    call_of,
    check_flag,
    disconnected,
    drain,
    failures,
    received,
    response_of,
)
from service.errors import BodyTooLarge, InvalidRequest, nearest
from service.ingest.history import INGEST
from service.ingest.sources.uploads import Upload, Uploads

PATH = "/tables/{tenant}/{namespace}/{table}/ingest"
router = APIRouter()
_BOOLEANS = ("async", "dry_run", "accept_drift")
_PARAMETERS = ("date", "name", "mode", "plan_token", "timeout_ms", *_BOOLEANS)
_WRITTEN_AT_ONCE = 1 << 20
_DATE = Query(description="the date that the rows belong to, such as 2024-01-31")
_NAME = Query(description="how the rows, the log and the quarantine name the file; its ending tells the format")
_MODE = Query(
    description="replace the rows of the date, or add to them", json_schema_extra={"enum": ["restate", "append"]}
)
_KEY = Header(
    alias="Idempotency-Key", description="the same as `idempotency_key` of INGEST", json_schema_extra={"maxLength": 200}
)


def _boolean(name: str, description: str) -> Any:
    return Query(alias=name, description=description, json_schema_extra={"type": "boolean"})


@router.post(
    PATH,
    operation_id="ingest_file",
    summary="Ingest the file in the body",
    response_model=IngestResult,
    response_description="the rows are in the table",
    responses=failures(400, 401, 403, 404, 408, 409, 413, 422, 429, 431, 500, 503),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def ingest_file(
    request: Request,
    tenant: str,
    namespace: str,
    table: str,
    date: Annotated[str, _DATE] = "",
    name: Annotated[str, _NAME] = "upload",
    mode: Annotated[str, _MODE] = "restate",
    in_background: Annotated[str | SkipJsonSchema[None], _boolean("async", "respond with the id of a job")] = None,
    dry_run: Annotated[str | SkipJsonSchema[None], _boolean("dry_run", "only report what it would do")] = None,
    accept_drift: Annotated[
        str | SkipJsonSchema[None], _boolean("accept_drift", "let other columns change the table")
    ] = None,
    plan_token: Annotated[str | SkipJsonSchema[None], Query(description="from a dry run")] = None,
    timeout_ms: Annotated[
        str | SkipJsonSchema[None],
        Query(description="cancel it after this time", json_schema_extra={"type": "integer"}),
    ] = None,
    key: Annotated[str | SkipJsonSchema[None], _KEY] = None,
) -> Any:
    api, call = api_of(request), call_of(request)
    await authorised(request, tenant, namespace, table)
    uploads = api.service.parts[Uploads]
    flags = {"async": in_background, "dry_run": dry_run, "accept_drift": accept_drift}
    given = {flag: text for flag, text in flags.items() if text is not None}
    _check_parameters(request, given, date, name)
    body = {
        "operation": INGEST,
        "tenant_id": tenant,
        "namespace": namespace,
        "table": table,
        "date": date,
        "mode": mode,
        **{flag: text == "true" for flag, text in given.items()},
        **({"plan_token": plan_token} if plan_token is not None else {}),
        **({"timeout_ms": _number(timeout_ms)} if timeout_ms is not None else {}),
    }
    # A request that is refused anyway is refused before its file is received.
    await asyncio.to_thread(api.pipeline.parse, {**body, "source": name})
    with api.pipeline.admission.admit("inline", tenant):
        try:
            upload = await _received(request, uploads, name)
        except ClientDisconnect:
            return NoResponse()
        source = uploads.hold(upload)
        try:
            gone = partial(disconnected, request.receive)
            return response_of(request, await api.pipeline.respond_to({**body, "source": source}, call, key, gone))
        finally:
            if in_background != "true":
                await asyncio.to_thread(uploads.release, source, upload)


async def _received(request: Request, uploads: Uploads, name: str) -> Upload:
    upload = await asyncio.to_thread(uploads.begin, name)
    declared = request.headers.get("content-length", "")
    try:
        if declared.isdigit() and int(declared) > upload.limit_mb << 20:
            raise BodyTooLarge(f"the file is larger than {upload.limit_mb} MiB; ingest it by its path or S3 URL")
        waiting = bytearray()
        async for chunk in received(request):
            waiting += chunk
            if len(waiting) >= _WRITTEN_AT_ONCE:
                await asyncio.to_thread(upload.write, bytes(waiting))
                waiting.clear()
        await asyncio.to_thread(upload.write, bytes(waiting))
    except BaseException as e:
        with contextlib.suppress(OSError):
            uploads.discard(upload)
        if isinstance(e, BodyTooLarge):
            await drain(request)
        raise
    return upload


def _check_parameters(request: Request, flags: dict[str, str], date: str, name: str) -> None:
    for parameter in request.query_params:
        if parameter not in _PARAMETERS:
            near = nearest(parameter, _PARAMETERS)
            hint = f"did you mean {near}?" if near else f"the parameters are {', '.join(_PARAMETERS)}"
            raise InvalidRequest(
                f"{parameter[:80]!r} is not a parameter; {hint}", field=parameter[:80], suggestion=near
            )
    for flag, text in flags.items():
        check_flag(flag, text)
    if not date:
        raise InvalidRequest(
            "date is missing; send the date that the rows belong to, as ?date=2024-01-31", field="date"
        )
    if not 1 <= len(name) <= 1000 or not name.isprintable():
        raise InvalidRequest("name must have 1 to 1000 printable characters", field="name")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 14:
        raise InvalidRequest(f"timeout_ms is {text[:80]!r}; send a whole number of milliseconds", field="timeout_ms")
    return int(text)

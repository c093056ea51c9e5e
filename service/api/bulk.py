"""POST /tables/{tenant}/{namespace}/{table}/records: load a body of any size, which is staged as it arrives."""

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import ClientDisconnect

from handlers.upsert import UpsertResult
from handlers.write import Batch, WriteMetadata, WriteResult
from service.api import bulk_upsert
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
from service.commits.small_files import NOT_CHECKED
from service.errors import BodyTooLarge, Cancelled, FirnError, InvalidRequest, nearest
from service.jobs.job import BULK, Job
from service.jobs.jobs import Jobs, error_json
from service.model.call import Call, IdempotencyKey
from service.model.identity.principal import Access
from service.model.names import TableName
from service.operations.edit_requests import advice_of
from service.operations.operation import AcceptedResult, Result
from service.pipeline.parse import Work, scope_of
from service.writes.bulk.body import ClientGone
from service.writes.bulk.decode import DECODERS, Decoder, decoder
from service.writes.bulk.load import Bulk, Load, LoadResult
from service.writes.bulk.upsert import UpsertOptions

log = logging.getLogger("firn.bulk")
RECORDS = "/tables/{tenant}/{namespace}/{table}/records"
router = APIRouter()
_PARAMETERS = ("async", "mode", "timeout_ms", *bulk_upsert.PARAMETERS)
_LONGEST_KEY = 200
_BINARY = {"type": "string", "format": "binary"}
_BODIES: dict[str, Any] = {
    "application/vnd.apache.arrow.stream": {"schema": _BINARY},
    "application/vnd.apache.parquet": {"schema": _BINARY},
    "application/x-ndjson": {"schema": _BINARY, "example": '{"name": "Ann", "age": 31}\n{"name": "Bo"}\n'},
    "text/csv": {"schema": _BINARY, "example": "name,age\nAnn,31\nBo,\n"},
}
# Text to FastAPI, so that our own errors say what is wrong with it.
_ASYNC = Query(
    alias="async", description="respond with the id of a job; by default, wait", json_schema_extra={"type": "boolean"}
)
_MODE = Query(
    description="append the records, or upsert: update the rows that have their keys, and insert the other records",
    json_schema_extra={"enum": ["append", "upsert"]},
)
_KEY_COLS = Query(description="upsert: the columns that identify a row, with commas; default: the primary key")
_ON_DUPLICATE = Query(
    description="upsert: if records have the same key, refuse the load, or use the last one",
    json_schema_extra={"enum": ["refuse", "last"]},
)
_ON_MULTIPLE = Query(
    description="upsert: if several rows of the table have a record's key, update all, or keep only the newest",
    json_schema_extra={"enum": ["update_all", "replace"]},
)
_BACKUP = Query(
    description="upsert: back up the previous state; default: the table's setting",
    json_schema_extra={"type": "boolean"},
)
_BACKUP_HOURS = Query(
    description="upsert: how long to keep the backup; default: the table's",
    json_schema_extra={"type": "integer", "minimum": 1},
)
_TIMEOUT = Query(
    description="cancel the load this many milliseconds after the request arrived, unless its commit has begun",
    json_schema_extra={"type": "integer", "minimum": 1},
)
_KEY = Header(
    alias="Idempotency-Key",
    description="the same as `idempotency_key` of a WRITE",
    json_schema_extra={"maxLength": _LONGEST_KEY},
)


@router.post(
    RECORDS,
    operation_id="bulk",
    summary="Append a body of any size to a table, or upsert it, in one commit",
    response_model=WriteResult | UpsertResult,
    response_description="the records are in the table",
    responses={
        202: {"model": AcceptedResult, "description": "with async=true: received and checked"},
        **failures(400, 401, 403, 404, 408, 409, 413, 422, 429, 431, 500, 503),
    },
    openapi_extra={"requestBody": {"required": True, "content": {kind: _BODIES[kind] for kind in DECODERS}}},
)
async def bulk(
    request: Request,
    tenant: str,
    namespace: str,
    table: str,
    in_background: Annotated[str | SkipJsonSchema[None], _ASYNC] = None,
    mode: Annotated[str, _MODE] = "append",
    timeout_ms: Annotated[str | SkipJsonSchema[None], _TIMEOUT] = None,
    key_cols: Annotated[str | SkipJsonSchema[None], _KEY_COLS] = None,
    on_duplicate: Annotated[str, _ON_DUPLICATE] = "refuse",
    on_multiple: Annotated[str, _ON_MULTIPLE] = "update_all",
    create_backup: Annotated[str | SkipJsonSchema[None], _BACKUP] = None,
    backup_retention_hours: Annotated[str | SkipJsonSchema[None], _BACKUP_HOURS] = None,
    key: Annotated[str | SkipJsonSchema[None], _KEY] = None,
) -> Any:
    api, call = api_of(request), call_of(request)
    staging, jobs = api.service.parts[Bulk], api.service.parts[Jobs]
    name = await authorised(request, tenant, namespace, table)
    decode = decoder(request.headers.get("content-type"), request.headers.get("content-encoding"))
    _check_parameters(request, in_background, mode, key)
    upsert = bulk_upsert.read_parameters(mode, request.query_params)
    if timeout_ms is not None:
        _set_deadline(call, timeout_ms, in_background == "true", api.service.settings.limits.max_timeout_s)
    with api.pipeline.admission.admit("inline", tenant):
        try:
            load = await _received(request, staging, name, decode, None if upsert is None else upsert.options)
        except ClientGone:
            log.info("%s: a bulk load of %s was aborted: its client disconnected during the upload", call.id, name)
            return NoResponse()
        try:
            if upsert is not None:
                ending = Ending("UPSERT", partial(bulk_upsert.finish, api, load, upsert))
            else:
                promise = _written(LoadResult(load.records, None, NOT_CHECKED))
                ending = Ending("WRITE", lambda call: _written(staging.finish(load, call)), promise)
            keyed = None
            if key is not None:
                said = _fingerprint(request, load)
                keyed = IdempotencyKey(ending.operation, name, key, said, scope_of(call.principal))
            work = _work(staging, jobs, load, ending, keyed, in_background=in_background == "true")
            gone = partial(disconnected, request.receive)
            return response_of(request, await api.pipeline.respond_to_load(call, lambda: work, gone))
        finally:
            if not load.handed_over:
                await asyncio.to_thread(load.close)


def _check_parameters(request: Request, in_background: str | None, mode: str, key: str | None) -> None:
    for parameter in request.query_params:
        if parameter not in _PARAMETERS:
            near = nearest(parameter, _PARAMETERS)
            hint = f"did you mean {near}?" if near else f"the parameters are {', '.join(_PARAMETERS)}"
            raise InvalidRequest(
                f"{parameter[:80]!r} is not a parameter; {hint}", field=parameter[:80], suggestion=near
            )
    if mode not in ("append", "upsert"):
        raise InvalidRequest(
            f"mode is {mode[:80]!r}; send append or upsert. To replace all rows, DELETE them first, or send WRITE with "
            "mode overwrite",
            field="mode",
        )
    if in_background is not None:
        check_flag("async", in_background)
    if key is not None and not 1 <= len(key) <= _LONGEST_KEY:
        raise InvalidRequest(
            f"Idempotency-Key has {len(key)} characters; send 1 to {_LONGEST_KEY}", field="idempotency_key"
        )


def _set_deadline(call: Call, timeout_ms: str, in_background: bool, max_timeout_s: float) -> None:
    if in_background:
        raise InvalidRequest("a load with async has no timeout_ms; cancel its job instead", field="timeout_ms")
    if not re.fullmatch(r"0*[1-9]\d{0,13}", timeout_ms, re.ASCII):
        raise InvalidRequest(
            f"timeout_ms is {timeout_ms[:80]!r}; send a whole number of milliseconds", field="timeout_ms"
        )
    call.set_deadline(min(int(timeout_ms) / 1000, max_timeout_s))


def _fingerprint(request: Request, load: Load) -> str:
    """A digest of the whole request, its body included."""
    parts = [
        load.body.digest(),
        request.headers.get("content-type", ""),
        *sorted(map(str, request.query_params.multi_items())),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


async def _received(
    request: Request, bulk: Bulk, name: TableName, decode: Decoder, upsert: UpsertOptions | None
) -> Load:
    """The load of a body that was received, checked and staged; ClientGone if its client left."""
    try:
        size = request.headers.get("content-length", "")
        if size.isdigit() and int(size) > bulk.most_bytes:
            raise BodyTooLarge(
                f"the body is larger than {bulk.most_bytes >> 20} MiB; send it in parts, or raise FIRN_LIMITS__BULK_MB"
            )
        keyed = "idempotency-key" in request.headers
        load = await asyncio.to_thread(bulk.open, name, decode, keyed=keyed, upsert=upsert)
    except FirnError:
        await drain(request)
        raise
    staged = asyncio.wrap_future(load.staged)
    feeding = asyncio.create_task(_feed(request, load))
    try:
        # A refusal does not wait for a client that sends nothing more.
        await asyncio.wait((staged, feeding), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.shield(staged)
    except BaseException as e:
        load.body.abandon(ClientGone())
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        if isinstance(e, FirnError):
            await drain(request)
        await asyncio.to_thread(load.close)
        raise
    await feeding
    return load


async def _feed(request: Request, load: Load) -> None:
    """Pass the body to the load as it arrives."""
    try:
        async for chunk in received(request):
            if not await load.body.put(chunk):
                return
        load.body.end()
    except ClientDisconnect:
        load.body.abandon(ClientGone())
    except BaseException as e:
        load.body.abandon(e if isinstance(e, Exception) else ClientGone())
        raise


@dataclass(frozen=True)
class Ending:
    """What is left to do with a staged load, and the result that it has if the process ends after its commit."""

    operation: str
    run: Callable[[Call], Result]
    promise: Result | None = None
    """None if `run` records it itself."""


def _work(
    staging: Bulk, jobs: Jobs, load: Load, ending: Ending, key: IdempotencyKey | None, *, in_background: bool
) -> Work:
    """The work of a staged load, for the pipeline. In the background, its idempotency key stands for the job."""
    name = load.table.name
    needed = ending.operation, Access("writer", name.tenant, name.namespace), name
    if in_background:
        return Work(*needed, "inline", lambda call: _accept(staging, jobs, load, ending, call), key)
    return Work(*needed, "bulk", ending.run, key)


def _accept(staging: Bulk, jobs: Jobs, load: Load, ending: Ending, call: Call) -> AcceptedResult:
    promise = b"null" if ending.promise is None else call.respond(ending.promise)
    job = jobs.accept(BULK, load.table, load.progress, promise, call.without_key(load.progress))
    try:
        staging.start(load, lambda: _finish(jobs, ending, job))
    except BaseException as e:
        jobs.failed(job, error_json(job, e))
        raise
    return AcceptedResult.of(job.id)


def _finish(jobs: Jobs, ending: Ending, job: Job) -> None:
    try:
        jobs.done(job, job.call.respond(ending.run(job.call)))
    except BaseException as e:
        end = jobs.cancelled if isinstance(e, Cancelled) else jobs.failed
        end(job, error_json(job, e))


def _written(loaded: LoadResult) -> WriteResult:
    batch = Batch(requests=1, records=loaded.records) if loaded.records else None
    return WriteResult(
        records_written=loaded.records,
        **advice_of(loaded.check),
        metadata=WriteMetadata(snapshot_id=loaded.snapshot_id, batch=batch),
    )

"""The HTTP edge of bulk loads: a body of any size, streamed; and what has become of long work."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import Field
from starlette.requests import ClientDisconnect

from service import envelope
from service.bulk.body import Gone
from service.bulk.bulk import Bulk, Load
from service.bulk.decode import Decoder, decoder
from service.commits.ask import Key
from service.errors import BodyTooLarge, FirnError, InvalidRequest, nearest
from service.loads import JOB, RECORDS, Asked, Loads
from service.metrics.catalogue import BULK
from service.names import TableName, check_name
from service.operation import Result
from service.router import Answer, Router

_PARAMETERS = ("async", "mode")
_LONGEST_KEY = 200
# How long the rest of a refused body is read and thrown away, so that its client comes to read the refusal.
_DRAIN_S = 2.0


class JobResult(Result):
    job: dict[str, Any] = Field(
        description="id, kind, table, state, progress, created_at; cancelling; in the end ended_at, result or error"
    )


def register(
    app: FastAPI,
    router: Router,
    request_id: Callable[[Request], str],
    respond: Callable[[Answer, str], Response],
) -> None:
    """Add the routes."""
    loads = Loads(router)

    @app.post(RECORDS, include_in_schema=False)
    async def records(request: Request, tenant: str, namespace: str, table: str) -> Response:
        asked_id, started = request_id(request), time.monotonic()
        name, decode, in_background = _read(request, tenant, namespace, table)
        leave = contextlib.ExitStack()
        leave.enter_context(router.under_way())
        try:
            load = await _received(request, router.context.bulk, name, decode)
        except Gone:
            leave.close()
            return Response(status_code=400)  # for nobody
        except BaseException:
            leave.close()
            raise
        asked = Asked(asked_id, started, in_background, _key(request, name, load))
        answer = await asyncio.to_thread(loads.answer, load, asked, leave.close)
        told = await asyncio.shield(asyncio.wrap_future(answer))
        router.context.metrics.request(BULK, told.code, time.monotonic() - started)
        return respond(told, asked_id)

    @app.get(JOB, include_in_schema=False)
    async def job(request: Request, id: str) -> Response:
        return await answered(request, router.context.jobs.describe, id)

    @app.delete(JOB, include_in_schema=False)
    async def cancel(request: Request, id: str) -> Response:
        return await answered(request, router.context.jobs.cancel, id)

    async def answered(request: Request, ask: Callable[[str], dict[str, Any]], job_id: str) -> Response:
        asked_id, started = request_id(request), time.monotonic()
        described = await asyncio.to_thread(ask, job_id)
        elapsed = round((time.monotonic() - started) * 1000)
        return respond(Answer(200, envelope.success(JobResult(job=described), asked_id, elapsed)), asked_id)


def _read(request: Request, tenant: str, namespace: str, table: str) -> tuple[TableName, Decoder, bool]:
    """What a request says beside its body: into which table, of which form, and whether to wait."""
    name = TableName(check_name(tenant, "tenant_id"), check_name(namespace, "namespace"), check_name(table, "table"))
    decode = decoder(request.headers.get("content-type"), request.headers.get("content-encoding"))
    for parameter in request.query_params:
        if parameter not in _PARAMETERS:
            near = nearest(parameter, _PARAMETERS)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(_PARAMETERS)}"
            raise InvalidRequest(
                f"{parameter[:80]!r} is not a parameter; {hint}", field=parameter[:80], suggestion=near
            )
    mode = request.query_params.get("mode", "append")
    if mode != "append":
        raise InvalidRequest(
            f"mode is {mode[:80]!r}; a bulk load appends: DELETE the rows first, or send WRITE with mode overwrite",
            field="mode",
        )
    wanted = request.query_params.get("async", "false")
    if wanted not in ("true", "false"):
        raise InvalidRequest(f"async is {wanted[:80]!r}; send true or false", field="async")
    key = request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= _LONGEST_KEY:
        raise InvalidRequest(
            f"Idempotency-Key has {len(key)} characters; send 1 to {_LONGEST_KEY}", field="idempotency_key"
        )
    return name, decode, wanted == "true"


def _key(request: Request, name: TableName, load: Load) -> Key | None:
    """The request's idempotency key, with a fingerprint of all it says, its body too."""
    text = request.headers.get("idempotency-key")
    if text is None:
        return None
    said = [
        load.body.digest(),
        request.headers.get("content-type", ""),
        *sorted(map(str, request.query_params.multi_items())),
    ]
    return Key("WRITE", name, text, hashlib.sha256("\n".join(said).encode()).hexdigest())


async def _received(request: Request, bulk: Bulk, name: TableName, decode: Decoder) -> Load:
    """The load of a body that was received, checked and staged; Gone where its client left."""
    try:
        size = request.headers.get("content-length", "")
        if size.isdigit() and int(size) > bulk.most_bytes:
            raise BodyTooLarge(
                f"the body is larger than {bulk.most_bytes >> 20} MiB; send it in parts, or raise FIRN_LIMITS__BULK_MB"
            )
        keyed = "idempotency-key" in request.headers
        load = await asyncio.to_thread(bulk.open, name, decode, keyed=keyed)
    except FirnError:
        await _drain(request)
        raise
    staged = asyncio.wrap_future(load.staged)
    feeding = asyncio.create_task(_feed(request, load))
    try:
        # A refusal does not wait for a client that sends nothing more.
        await asyncio.wait((staged, feeding), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.shield(staged)
    except BaseException as e:
        load.body.abandon(Gone())
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        if isinstance(e, FirnError):
            await _drain(request)
        await asyncio.to_thread(load.close)
        raise
    await feeding
    return load


async def _feed(request: Request, load: Load) -> None:
    """Give the body to the load as it comes."""
    try:
        async for chunk in request.stream():
            if not await load.body.put(chunk):
                return
        load.body.end()
    except ClientDisconnect:
        load.body.abandon(Gone())
    except BaseException as e:
        load.body.abandon(e if isinstance(e, Exception) else Gone())
        raise


async def _drain(request: Request) -> None:
    if "expect" in request.headers:
        return  # the client has not begun
    # A RuntimeError says that it was all read already.
    with contextlib.suppress(TimeoutError, ClientDisconnect, RuntimeError):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in request.stream():
                pass

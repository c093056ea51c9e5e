"""The guard of all routes: a request without a valid credential is refused, whatever its path."""

from typing import Any

from fastapi import Request
from starlette.types import Message, Send

from service.api.events import INVOCATIONS
from service.api.exchange import api_of, call_of, drain
from service.errors import FirnError, Unauthenticated

_OPEN = frozenset({"/health", "/ready"})
_DOCS = ("/docs", "/openapi.json")
_OPEN_DOCS = "FIRN_AUTH__PUBLIC_DOCS=true shows the documentation, which holds no data, to everybody"
_BEARER, _API_KEY = "bearer", "apiKey"


async def refusal(request: Request) -> FirnError | None:
    """Why a request is refused before its route gets it; None if it is not. Its call then knows its sender."""
    api, path = api_of(request), request.scope["path"]
    if not api.pipeline.identities.required or _is_open(path, docs=api.service.settings.auth.public_docs):
        return None
    call = call_of(request)
    if path == INVOCATIONS and not call.credential:
        return None  # the event may have a credential, which the pipeline needs
    try:
        await api.pipeline.authenticate(call)
    except FirnError as e:
        await drain(request)
        if isinstance(e, Unauthenticated) and _is_open(path, docs=True):  # a browser sends no credential
            return Unauthenticated(f"{e.message}. {_OPEN_DOCS}")
        return e
    return None


def audited(request: Request, send: Send) -> Send:
    """Sends a response and adds the request to the audit log, unless the pipeline has."""
    pipeline, path = api_of(request).pipeline, request.scope["path"]
    if not pipeline.audit_log.on or path in _OPEN:
        return send

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            call, status = call_of(request), message["status"]
            if not call.audited:
                route = getattr(request.scope.get("route"), "path", path)
                outcome = "ok" if status < 400 else "failed"
                pipeline.audit_log.add(call, f"{request.method} {route}", outcome, status)
        await send(message)

    return sending


def declare(document: dict[str, Any]) -> None:
    """Say in the OpenAPI document which credentials the routes accept."""
    document["components"]["securitySchemes"] = {
        _BEARER: {
            "type": "http",
            "scheme": "bearer",
            "description": "an API key, or a token (JWT) of the issuer that the service trusts",
        },
        _API_KEY: {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "an API key"},
    }
    # The empty one: a service may run without authentication.
    document["security"] = [{_BEARER: []}, {_API_KEY: []}, {}]
    for path in _OPEN:
        for operation in document["paths"].get(path, {}).values():
            operation["security"] = []


def _is_open(path: str, *, docs: bool) -> bool:
    return path in _OPEN or (docs and (path in _DOCS or path.startswith("/docs/")))

"""GET /health, /ready and /metrics, for monitoring."""

import asyncio
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from service.api.events import HEALTHY
from service.api.exchange import RETRY_AFTER, api_of, call_of, closing, failures
from service.model.identity.principal import EVERY, Access

router = APIRouter()


class Health(BaseModel):
    status: Literal["healthy"]
    service: Literal["firn"]


class Readiness(BaseModel):
    ready: bool
    state: Literal["starting", "ready", "stalled", "stopping"]
    query_process: Literal["up", "starting"] | None = Field(
        default=None, description="the process for queries, if they have one; queries wait while it starts"
    )


@router.get(
    "/health",
    operation_id="health",
    summary="Liveness",
    response_model=Health,
    response_description="the process runs",
)
async def health() -> Any:
    return HEALTHY


@router.get(
    "/ready",
    operation_id="ready",
    summary="Whether requests are served at full speed",
    response_model=Readiness,
    response_model_exclude_none=True,
    response_description="yes",
    responses={503: {"model": Readiness, "description": "not yet, or no longer", "headers": RETRY_AFTER}},
)
async def ready(request: Request, response: Response) -> Any:
    service = api_of(request).service
    is_ready = service.ready
    if not is_ready:
        response.status_code = 503
        response.headers["Retry-After"] = "1"
    return {"ready": is_ready, "state": service.state, "query_process": service.query_process}


@router.get(
    "/metrics",
    operation_id="metrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    response_description="Prometheus' text format, or OpenMetrics if Accept asks for it",
    responses=failures(401, 403),
)
async def metrics(request: Request) -> Response:
    api = api_of(request)
    # They name the tables of all tenants.
    call_of(request).principal.check(Access("reader", EVERY, None))
    exposition = api.scrapes.submit(api.pipeline.metrics.exposition, request.headers.get("accept"))
    text, content_type = await asyncio.wrap_future(exposition)
    return closing(request, Response(text, media_type=content_type))

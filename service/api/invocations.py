"""POST /2015-03-31/functions/function/invocations: a request inside a Lambda-style event."""

from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from service.api import events
from service.api.exchange import api_of, call_of, closing, disconnected, failures, read_body

router = APIRouter()
_EVENT = {
    "type": "object",
    "description": "an API Gateway event (v1 or v2) whose body is a request, or a scheduled event with it in detail",
}
_BODY = '{"operation": "LIST_TABLES", "tenant_id": "acme"}'
_EXAMPLES = {
    "API Gateway v1": {"httpMethod": "POST", "path": "/database", "body": _BODY},
    "API Gateway v2": {
        "version": "2.0",
        "rawPath": "/database",
        "requestContext": {"http": {"method": "POST", "path": "/database"}},
        "body": _BODY,
    },
    "EventBridge": {"source": "aws.events", "detail": {"operation": "LIST_TABLES", "tenant_id": "acme"}},
}


class EventResponse(BaseModel):
    """The response to the request in the event."""

    statusCode: int  # the name that API Gateway expects
    headers: dict[str, str]
    body: str = Field(description="JSON text: the body that POST /database responds with")


@router.post(
    events.INVOCATIONS,
    operation_id="invocations",
    summary="Run one operation from a Lambda-style event",
    response_model=EventResponse,
    response_description='{"statusCode", "headers", "body": "<json>"}',
    responses=failures(401, 408, 413, 429, 431),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": _EVENT,
                    "examples": {name: {"value": event} for name, event in _EXAMPLES.items()},
                }
            },
        }
    },
)
async def invocations(request: Request) -> Any:
    api, call = api_of(request), call_of(request)
    with api.budget.hold(call.sender) as held:
        event = await read_body(request, held)
        body = await events.respond(event, api.pipeline, call, partial(disconnected, request.receive))
    return closing(request, Response(body, media_type="application/json", headers={"X-Request-Id": call.id}))

"""The error responses that routes declare."""

from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from service.api.docs_page import error_classes

RETRY_AFTER = {"Retry-After": {"description": "seconds to wait before trying again", "schema": {"type": "integer"}}}


class ErrorFields(BaseModel):
    """What went wrong."""

    code: str = Field(description="the kind of error, for programs")
    message: str = Field(description="what is wrong, where, and how to fix it, for people")
    field: str | SkipJsonSchema[None] = Field(default=None, description="the field of the request that is wrong")
    suggestion: str | SkipJsonSchema[None] = Field(default=None, description="the known name closest to a wrong one")
    retryable: bool = Field(description="whether the same request may succeed later")
    details: dict[str, Any] | SkipJsonSchema[None] = None


class FailureMetadata(BaseModel):
    request_id: str


class Failure(BaseModel):
    """The body of every error."""

    success: Literal[False]
    error: ErrorFields
    metadata: FailureMetadata


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route: those with these statuses, and any other."""
    declared: dict[int | str, dict[str, Any]] = {
        "default": {"model": Failure, "description": "a failure; its HTTP status fits its code"}
    }
    for status in statuses:
        codes = ", ".join(kind.code for kind in error_classes() if kind.status == status)
        declared[status] = {"model": Failure, "description": codes}
        if status in (429, 503):
            declared[status]["headers"] = RETRY_AFTER
    return declared

"""ROTATE_KEY: replace an API key by a new one."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from service.identity.api_keys import ApiKeys
from service.model.call import Call
from service.model.times import now_ms, utc, utc_or_none
from service.operations.api_key_requests import EXPIRES, ApiKeyRequest
from service.operations.examples import response
from service.operations.operation import Example, Result, omit_when_null, operation

EXAMPLES = (
    Example(
        "A new key; the old one works for another day",
        {"operation": "ROTATE_KEY", "tenant_id": "acme", "key_id": "4fW9kQ0aBz", "keep_hours": 24},
        response(
            snapshot=False,
            api_key="<any>",
            key_id="<any>",
            principal="robot",
            roles=["writer:acme"],
            old_key_ends_at="<any>",
        ),
        given=({"operation": "CREATE_KEY", "tenant_id": "acme", "principal": "robot", "roles": ["writer:acme"]},),
        taken={"key_id": (1, "key_id")},
    ),
)


class RotateKey(ApiKeyRequest):
    operation: Literal["ROTATE_KEY"]
    key_id: str = Field(min_length=1, max_length=100, description="the id of the key to replace")
    keep_hours: int = Field(
        default=24, ge=0, le=8760, description="how long the old key can still be used; 0 ends it at once"
    )
    expires_hours: int | None = EXPIRES


class RotateKeyResult(Result):
    api_key: str = Field(description="the new key; it is not stored and cannot be shown again")
    key_id: str = Field(description="its id")
    principal: str = Field(description="who uses it: as before")
    roles: list[str] = Field(description="what it may do: as before")
    expires_at: datetime | None = omit_when_null("when it expires; absent if it does not")
    old_key_ends_at: datetime = Field(description="when the old key ends at the latest")


@operation(RotateKey, RotateKeyResult, pool="tables", examples=EXAMPLES, needs="admin")
def rotate_key(request: RotateKey, call: Call, api_keys: ApiKeys) -> RotateKeyResult:
    """Create a new API key for the same principal with the same roles, and end the old one later."""
    ends_ms = now_ms() + request.keep_hours * 3_600_000
    new = api_keys.rotate(call.principal, request.tenant_id, request.key_id, request.keep_hours, request.expires_hours)
    return RotateKeyResult(
        api_key=new.text,
        key_id=new.record.id,
        principal=new.record.principal,
        roles=new.record.role_list,
        expires_at=utc_or_none(new.record.expires_ms),
        old_key_ends_at=utc(ends_ms),
    )

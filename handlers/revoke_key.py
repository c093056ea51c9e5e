"""REVOKE_KEY: end an API key."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from service.identity.api_keys import ApiKeys
from service.model.call import Call
from service.model.times import now_ms, utc
from service.operations.api_key_requests import ApiKeyRequest
from service.operations.examples import response
from service.operations.operation import Example, Result, operation

EXAMPLES = (
    Example(
        "End a key now",
        {"operation": "REVOKE_KEY", "tenant_id": "acme", "key_id": "4fW9kQ0aBz"},
        response(snapshot=False, key_id="<any>", principal="contractor", revoked_at="<any>"),
        given=({"operation": "CREATE_KEY", "tenant_id": "acme", "principal": "contractor", "roles": ["reader"]},),
        taken={"key_id": (1, "key_id")},
    ),
)


class RevokeKey(ApiKeyRequest):
    operation: Literal["REVOKE_KEY"]
    key_id: str = Field(min_length=1, max_length=100, description="the id of the key")


class RevokeKeyResult(Result):
    key_id: str = Field(description="the key's id")
    principal: str = Field(description="who used it")
    revoked_at: datetime = Field(description="when it was revoked first; on other instances it ends within 5 s")


@operation(RevokeKey, RevokeKeyResult, pool="tables", examples=EXAMPLES, needs="admin")
def revoke_key(request: RevokeKey, call: Call, api_keys: ApiKeys) -> RevokeKeyResult:
    """End an API key at once; it takes effect on all instances within 5 s."""
    record = api_keys.revoke(call.principal, request.tenant_id, request.key_id)
    return RevokeKeyResult(key_id=record.id, principal=record.principal, revoked_at=utc(record.revoked_ms or now_ms()))

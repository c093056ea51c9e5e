"""LIST_KEYS: list API keys."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from service.identity.api_keys import ApiKeys
from service.ledger.api_keys import ApiKeyRecord
from service.model.call import Call
from service.model.times import now_ms, utc, utc_or_none
from service.operations.api_key_requests import ApiKeyRequest
from service.operations.examples import response
from service.operations.operation import Example, Result, omit_when_null, operation
from service.operations.paging import Page, Paged

EXAMPLES = (
    Example(
        "List the keys of a tenant",
        {"operation": "LIST_KEYS", "tenant_id": "acme", "limit": 10},
        response(snapshot=False, keys="<any>"),
        given=({"operation": "CREATE_KEY", "tenant_id": "acme", "principal": "analyst", "roles": ["reader"]},),
    ),
)


class ListKeys(Paged, ApiKeyRequest):
    operation: Literal["LIST_KEYS"]
    principal: str | None = Field(default=None, description="only the keys of this principal")
    include_ended: bool = Field(default=False, description="also keys that expired or were revoked")


class ListedKey(BaseModel):
    key_id: str = Field(description="the key's id: the part after `firn_`")
    principal: str = Field(description="who uses it")
    name: str | None = omit_when_null("the note about it")
    roles: list[str] = Field(description="what it may do")
    live: bool = Field(description="whether it can be used: it has neither expired nor been revoked")
    created_at: datetime = Field(description="when it was created")
    created_by: str = Field(description="who created it")
    expires_at: datetime | None = omit_when_null("when it expires; absent if it does not")
    last_used_at: datetime | None = omit_when_null("when it was last used, to within some minutes; absent if never")
    revoked_at: datetime | None = omit_when_null("when it was revoked; absent if it was not")


class ListKeysResult(Page, Result):
    keys: list[ListedKey] = Field(description="newest first")


@operation(ListKeys, ListKeysResult, pool="metadata", examples=EXAMPLES, needs="admin")
def list_keys(request: ListKeys, call: Call, api_keys: ApiKeys) -> ListKeysResult:
    """List the API keys of a tenant's principals, without their secrets: those that the sender may manage."""
    after, now = request.place(int, str), now_ms()
    found = [
        record
        for record in api_keys.managed_by(call.principal, request.tenant_id)
        if request.principal in (None, record.principal) and (request.include_ended or record.is_live(now))
    ]
    left = [record for record in found if after is None or (-record.created_ms, record.id) > (-after[0], after[1])]
    page, next_cursor = request.page(left, lambda record: (record.created_ms, record.id))
    return ListKeysResult(keys=[_listed(record, now) for record in page], next_cursor=next_cursor)


def _listed(record: ApiKeyRecord, now: int) -> ListedKey:
    return ListedKey(
        key_id=record.id,
        principal=record.principal,
        name=record.name or None,
        roles=record.role_list,
        live=record.is_live(now),
        created_at=utc(record.created_ms),
        created_by=record.created_by,
        expires_at=utc_or_none(record.expires_ms),
        last_used_at=utc_or_none(record.last_used_ms),
        revoked_at=utc_or_none(record.revoked_ms),
    )

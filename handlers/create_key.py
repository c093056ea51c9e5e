"""CREATE_KEY: create an API key."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from service.identity.api_keys import ApiKeys
from service.model.call import Call
from service.model.times import utc_or_none
from service.operations.api_key_requests import EXPIRES, ApiKeyRequest, granted
from service.operations.examples import response
from service.operations.operation import Example, Result, omit_when_null, operation

EXAMPLES = (
    Example(
        "A key for a program that writes into one namespace",
        {
            "operation": "CREATE_KEY",
            "tenant_id": "acme",
            "principal": "loader",
            "roles": ["writer:acme/shop"],
            "name": "nightly load",
            "expires_hours": 2160,
        },
        response(
            snapshot=False,
            api_key="<any>",
            key_id="<any>",
            principal="loader",
            roles=["writer:acme/shop"],
            expires_at="<any>",
        ),
    ),
)


class CreateKey(ApiKeyRequest):
    operation: Literal["CREATE_KEY"]
    principal: str = Field(description="who uses the key: the name of a person or a program, which may have two")
    roles: list[str] = Field(
        min_length=1,
        max_length=100,
        description="what it may do: `reader`, `writer` or `admin` of the tenant, or with a place: `writer:acme/shop`, "
        "`reader:acme`, `admin:*`",
    )
    name: str = Field(default="", max_length=100, description="a note for people, such as what the key is for")
    expires_hours: int | None = EXPIRES


class CreateKeyResult(Result):
    api_key: str = Field(description="the key; it is not stored and cannot be shown again")
    key_id: str = Field(description="its id, by which it is listed, rotated and revoked")
    principal: str = Field(description="who uses it")
    roles: list[str] = Field(description="what it may do")
    expires_at: datetime | None = omit_when_null("when it expires; absent if it does not")


@operation(CreateKey, CreateKeyResult, pool="tables", examples=EXAMPLES, needs="admin")
def create_key(request: CreateKey, call: Call, api_keys: ApiKeys) -> CreateKeyResult:
    """Create an API key with roles; only an administrator of all that the roles reach can."""
    grants = granted(request.roles, request.tenant_id)
    new = api_keys.create(
        *(call.principal, request.tenant_id, request.principal, grants, request.name, request.expires_hours)
    )
    return CreateKeyResult(
        api_key=new.text,
        key_id=new.record.id,
        principal=new.record.principal,
        roles=new.record.role_list,
        expires_at=utc_or_none(new.record.expires_ms),
    )

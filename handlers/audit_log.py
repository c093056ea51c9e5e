"""AUDIT_LOG: who sent which requests, and their outcomes."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from service.errors import InvalidRequest
from service.identity.audit_log import AuditLog
from service.ledger.audit import AuditFilter, AuditRecord
from service.model.call import Call
from service.model.identity.principal import EVERY, Access
from service.model.times import read_time_ms, utc
from service.operations.examples import response
from service.operations.operation import Example, Reach, Request, Result, omit_when_null, operation
from service.operations.paging import Page, Paged

EXAMPLES = (
    Example(
        "Which requests were refused for want of rights",
        {"operation": "AUDIT_LOG", "tenant_id": "acme", "outcome": "FORBIDDEN", "limit": 50},
        response(snapshot=False, enabled="<any>", entries=[]),
    ),
)


class AuditLogRequest(Paged, Request):
    operation: Literal["AUDIT_LOG"]
    scope: Literal["tenant", "service"] = Field(
        default="tenant",
        description="`service`: of all tenants, with requests that named none; only for an administrator of all",
    )
    principal: str | None = Field(default=None, max_length=300, description="only requests of this sender")
    only: str | None = Field(default=None, max_length=100, description="only requests for this operation")
    outcome: str | None = Field(default=None, max_length=60, description="only this outcome: `ok`, or an error's code")
    since: str | None = Field(default=None, description="only requests at this time or later")
    before: str | None = Field(default=None, description="only requests before this time")

    @property
    def reach(self) -> Reach:
        return "tenant"


class AuditEntry(BaseModel):
    answered_at: datetime = Field(description="when it was answered")
    request_id: str = Field(description="its request id")
    principal: str | None = omit_when_null("who sent it; absent if that is not known")
    credential: str | None = omit_when_null("the id of the API key, or `jwt`")
    client: str | None = omit_when_null("the address that it came from")
    requested: str = Field(description="the operation, or the method and path of another route")
    tenant_id: str | None = omit_when_null("the tenant that it named")
    tables: list[str] = Field(description="what it was about, as `namespace/table`; `*` stands for all")
    outcome: str = Field(description="`ok`, or the code of the error")
    status: int = Field(description="the HTTP status")
    duration_ms: int = Field(description="how long it took")


class AuditLogResult(Page, Result):
    enabled: bool = Field(description="whether requests are recorded now")
    entries: list[AuditEntry] = Field(description="newest first")


@operation(AuditLogRequest, AuditLogResult, pool="metadata", examples=EXAMPLES, needs="admin")
def audit_log(request: AuditLogRequest, call: Call, audit: AuditLog) -> AuditLogResult:
    """List who sent which requests about a tenant, and how they ended, newest first."""
    if request.scope == "service":
        call.principal.check(Access("admin", EVERY, None))
    for name in ("principal", "only", "outcome"):
        if not (getattr(request, name) or "").isprintable():
            raise InvalidRequest.at(name, "has control characters, which no entry has")
    which = AuditFilter(
        None if request.scope == "service" else request.tenant_id,
        request.principal,
        request.only,
        request.outcome,
        None if request.since is None else read_time_ms(request.since, "since"),
        None if request.before is None else read_time_ms(request.before, "before"),
    )
    found = audit.find(which, request.limit + 1, request.place(int, str))
    page, next_cursor = request.page(found, lambda entry: (entry.at_ms, entry.id))
    return AuditLogResult(enabled=audit.on, entries=[_entry(each) for each in page], next_cursor=next_cursor)


def _entry(record: AuditRecord) -> AuditEntry:
    return AuditEntry(
        answered_at=utc(record.at_ms),
        request_id=record.request_id,
        principal=record.principal or None,
        credential=record.credential or None,
        client=record.client or None,
        requested=record.operation,
        tenant_id=record.tenant or None,
        tables=list(record.tables),
        outcome=record.outcome,
        status=record.status,
        duration_ms=record.duration_ms,
    )

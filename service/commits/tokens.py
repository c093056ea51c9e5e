"""Plan tokens say what a dry run saw, to hold the same request to it. They are neither secret nor stored."""

import base64
import json
from dataclasses import dataclass

from service.errors import InvalidRequest, PlanStale

_VERSION = 1
_AGAIN = "send the request with dry_run: true again for a new one"


@dataclass(frozen=True)
class PlanToken:
    """Which table and request were previewed, and a digest of the rows concerned."""

    table_uuid: str
    request: str
    digest: str

    def text(self) -> str:
        fields = json.dumps([_VERSION, self.table_uuid, self.request, self.digest], separators=(",", ":"))
        return base64.urlsafe_b64encode(fields.encode()).decode().rstrip("=")

    def check_table(self, table_uuid: str) -> None:
        if table_uuid != self.table_uuid:
            raise PlanStale(f"the table was dropped and created again since the dry run; {_AGAIN}")

    def check(self, digest: str) -> None:
        """Raise PlanStale if the rows concerned have changed."""
        if digest != self.digest:
            raise PlanStale(f"the affected rows have changed since the dry run; nothing was changed; {_AGAIN}")


def read(text: str, request: str) -> PlanToken:
    """The token that a dry run gave for this request."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        version, *fields = json.loads(raw)
        table_uuid, planned, digest = fields
        if version != _VERSION or not all(isinstance(part, str) for part in fields):
            raise ValueError(version)
    except (ValueError, TypeError) as e:
        raise InvalidRequest(f"plan_token does not come from a dry run; {_AGAIN}", field="plan_token") from e
    if planned != request:
        raise InvalidRequest(
            f"plan_token belongs to another request; send it with the request that was previewed, or {_AGAIN}",
            field="plan_token",
        )
    return PlanToken(table_uuid, planned, digest)

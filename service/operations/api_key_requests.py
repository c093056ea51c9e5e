"""What the operations on API keys share."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from service.model.identity.principal import Grant
from service.operations.operation import Reach, Request

EXPIRES: Any = Field(
    default=None, ge=1, le=87_600, description="when the key expires, in hours from now; default: never"
)


class ApiKeyRequest(Request):
    """A request about API keys. It takes no idempotency key, because the response would be stored with the secret."""

    @property
    def reach(self) -> Reach:
        return "tenant"


def granted(roles: Sequence[str], tenant: str) -> list[Grant]:
    """The roles of a request; one without a place is for its tenant."""
    return [Grant.parse(role, f"roles[{i}]", tenant) for i, role in enumerate(roles)]

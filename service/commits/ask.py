"""Who asks for a change: the request, and the idempotency key that makes it happen once."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from service.names import TableName


@dataclass(frozen=True)
class Key:
    """An idempotency key in its scope, and a fingerprint of everything else that the request says."""

    operation: str
    table: TableName
    text: str
    fingerprint: str

    @cached_property
    def id(self) -> str:
        """The same for the same key in the same scope, and for nothing else."""
        scope = [self.operation, self.table.tenant, self.table.namespace, self.table.table, self.text]
        return hashlib.sha256(json.dumps(scope).encode()).hexdigest()


@dataclass(frozen=True)
class Ask:
    """A request for a change. `earlier` is the batch that an earlier attempt with the same key was last noted in."""

    request_id: str
    key: Key | None = None
    earlier: str | None = None
    still_ours: Callable[[], None] = lambda: None
    """Called when nothing but a commit is left to do: raises if the work was given to somebody else meanwhile."""
    may_begin: Callable[[], None] = lambda: None
    """Called once the work has its turn, before anything of it is done: raises if it came too late for that."""
    asked_by: str = ""
    """What asked for it where no client did: `schedule nightly`."""


def fingerprint(request: dict[str, Any]) -> str:
    """A digest of a request, equal for requests that say the same in another order of fields."""
    try:
        text = orjson.dumps(request, default=repr, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # whole numbers beyond 64 bits, or half of a surrogate pair
        text = json.dumps(request, default=repr, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()

"""A parsed request, as the steps of the pipeline see it, whatever kind of request it is."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from service.model.call import Call, IdempotencyKey
from service.operations.operation import Pool, Result
from service.queries.streaming.streams import Stream


@dataclass(frozen=True)
class Work:
    """`run` returns the result, a stream, or the future of a rendered body that is stored under the key already."""

    operation: str
    tenant: str
    pool: Pool
    run: Callable[[Call], "Result | Future[bytes] | Stream"]
    key: IdempotencyKey | None = None
    status: int = 200
    """Of a success."""

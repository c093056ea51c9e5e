"""The threads that requests run on, in pools, so that no kind of request waits for another kind."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from typing import TypeVar

from service.fairness.crowd import Crowd
from service.fairness.threads import FairThreads
from service.model.call import Call
from service.operations.operation import Pool
from service.pipeline.admission import stopping
from service.settings import LimitSettings

T = TypeVar("T")
_PARSING_THREADS = 4


class RequestThreads:
    def __init__(self, limits: LimitSettings, crowd: Crowd) -> None:
        sizes: Mapping[Pool, int] = {
            "inline": _PARSING_THREADS,
            "metadata": limits.metadata_threads,
            "tables": limits.table_threads,
            "queries": limits.query_threads,
            "edits": limits.edit_threads,
            "bulk": limits.concurrent_bulk_loads,
            "maintenance": limits.maintenance_threads,
        }
        share = limits.tenant_share
        self._pools = {name: FairThreads(size, f"firn-{name}", share, crowd) for name, size in sizes.items()}

    def waiting(self) -> dict[tuple[str, ...], float]:
        """How many requests wait for a thread, by pool."""
        return {(name,): pool.waiting for name, pool in self._pools.items()}

    async def run(self, pool: Pool, call: Call, work: Callable[[Call], T]) -> T:
        """Run work on a thread of a pool. A call that is cancelled before its work begins does not begin."""

        def begin() -> T:
            call.check()
            return work(call)

        return await self._run(pool, call.tenant, begin, call)

    async def parse(self, sender: str, call: Call, work: Callable[[], T]) -> T:
        """Run work on a large body, of which no tenant is known yet, on a thread for such work."""
        return await self._run("inline", sender, work, call)

    async def _run(self, pool: Pool, tenant: str, work: Callable[[], T], call: Call) -> T:
        try:
            future = self._pools[pool].submit(tenant, work)
        except RuntimeError as e:
            raise stopping() from e
        with call.cancelling(future.cancel):
            try:
                # The work goes on if the task that waits for it is cancelled.
                return await asyncio.shield(asyncio.wrap_future(future))
            except (CancelledError, asyncio.CancelledError) as e:
                if not future.cancelled():
                    raise
                call.check()
                raise stopping() from e

    def close(self) -> None:
        """Cancel what has not begun; its callers get ShuttingDown."""
        for pool in self._pools.values():
            pool.shutdown(cancel=True)

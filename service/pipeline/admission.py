"""How many requests are served at a time: a bounded number of each tenant and of all; none once the service stops."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from service.errors import ShuttingDown, TooManyRequests
from service.fairness.crowd import Crowd
from service.fairness.shares import SERVICE, Shares
from service.metrics.catalogue import REQUEST_KINDS
from service.metrics.metrics import Metrics
from service.operations.operation import Pool
from service.settings import LimitSettings

_KINDS: Mapping[Pool, str] = {"metadata": "queries", "queries": "queries", "maintenance": "maintenance"}


@dataclass(frozen=True)
class _Limit:
    """A number of requests, and the setting that it comes from."""

    shares: Shares
    setting: str
    what: str


class Admission:
    def __init__(self, limits: LimitSettings, metrics: Metrics, crowd: Crowd) -> None:
        share = limits.tenant_share
        self._metrics, self._crowd = metrics, crowd
        self._changed = threading.Condition()
        self._in_progress = 0
        self._draining = False
        pending = (limits.pending_queries, limits.pending_writes, limits.pending_maintenance)
        self._kinds = {
            kind: _Limit(Shares(count, share), f"PENDING_{kind.upper()}", what)
            for kind, count, what in zip(
                REQUEST_KINDS, pending, ("reads", "changes", "maintenance requests"), strict=True
            )
        }
        # What runs inline holds memory and no thread; the HTTP routes bound the memory.
        self._in_threads = _Limit(Shares(limits.pending_requests, share), "PENDING_REQUESTS", "requests")
        self._metrics.read("firn_tenant_requests", self._by_tenant)

    @property
    def in_progress(self) -> int:
        """How many requests are being served."""
        return self._in_progress

    @contextmanager
    def admit(self, pool: Pool, tenant: str = SERVICE) -> Iterator[None]:
        """Count a tenant's request for the block; TooManyRequests or ShuttingDown if it is not admitted."""
        kind = _KINDS.get(pool, "writes")
        limits = [self._kinds[kind], *([] if pool == "inline" else [self._in_threads])]
        with self._changed:
            if self._draining:
                raise stopping()
            self._take(limits, kind, tenant)
            self._in_progress += 1
        self._metrics.admitted(kind, "admitted")
        self._crowd.enter(tenant)
        try:
            yield
        finally:
            self._crowd.leave(tenant)
            for limit in limits:
                limit.shares.leave(tenant)
            self.leave()

    def _take(self, limits: list[_Limit], kind: str, tenant: str) -> None:
        for i, limit in enumerate(limits):
            reached = limit.shares.take(tenant)
            if reached is None:
                continue
            for taken in limits[:i]:
                taken.shares.leave(tenant)
            self._metrics.admitted(kind, f"{reached}_limit")
            setting = f"FIRN_LIMITS__{limit.setting}"
            if reached == "service":
                raise TooManyRequests(
                    f"{limit.shares.places} {limit.what} wait or run already ({setting}); try again in a second"
                )
            raise TooManyRequests(
                f"{limit.shares.at_most} {limit.what} of this tenant wait or run already, of {limit.shares.places} for "
                f"all tenants ({setting}, FIRN_LIMITS__TENANT_SHARE); try again in a second"
            )

    def leave(self) -> None:
        with self._changed:
            self._in_progress -= 1
            if not self._in_progress:
                self._changed.notify_all()

    def hold(self) -> None:
        """Count one more for a request that is admitted, such as a stream that is still being sent."""
        with self._changed:
            self._in_progress += 1

    def drain(self, seconds: float) -> bool:
        """Admit no more requests and wait for those in progress; true if none is left."""
        with self._changed:
            self._draining = True
            return self._changed.wait_for(lambda: not self._in_progress, timeout=seconds)

    def _by_tenant(self) -> dict[tuple[str, ...], float]:
        counts = {kind: limit.shares.by_tenant() for kind, limit in self._kinds.items()}
        totals = sum((Counter(each) for each in counts.values()), Counter[str]())
        most = [tenant for tenant, _ in totals.most_common(self._metrics.tenants)]
        return {(tenant, kind): each.get(tenant, 0) for kind, each in counts.items() for tenant in most if tenant}


def stopping() -> ShuttingDown:
    return ShuttingDown("the service is stopping and accepts no new requests; send this one again once it is back")

"""How tenants share places, such as threads: each has its own queue and its own limit, and the queues take turns."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, ParamSpec, TypeVar

from service.fairness.crowd import Crowd

P = ParamSpec("P")
T = TypeVar("T")
# Of how many tenants that no longer wait the turns are remembered.
_FORGET = 100
SERVICE = ""
"""Whose the service's own work is. It has no limit of its own."""
_tenant: ContextVar[str] = ContextVar("tenant", default=SERVICE)


def working_for() -> str:
    """The tenant whose work this thread does."""
    return _tenant.get()


@contextmanager
def work_of(tenant: str) -> Iterator[None]:
    """The block works for a tenant."""
    token = _tenant.set(tenant)
    try:
        yield
    finally:
        _tenant.reset(token)


def for_same_tenant(work: Callable[P, T]) -> Callable[P, T]:
    """The same work, for the tenant whose work this thread does, on whatever thread it runs."""
    tenant = working_for()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with work_of(tenant):
            return work(*args, **kwargs)

    return run


def share_of(places: int, percent: int) -> int:
    """How many of a number of places one tenant may have: one less than all at most, if there are several."""
    return max(1, min(places - 1, -(-places * percent // 100))) if percent < 100 else places


class FairQueue(Generic[T]):
    """What waits for places, in a queue for each tenant, and how many places each tenant has.

    Its user holds a lock during each call.
    """

    def __init__(self, at_most: int, crowd: Crowd | None = None) -> None:
        """`at_most` is how many places one tenant may have; a loud one of the crowd may have fewer."""
        self._at_most, self._crowd = at_most, crowd
        self._taken: Counter[str] = Counter()
        self._queues: dict[str, deque[T]] = {}
        # Which turn each tenant has next. The one that comes now is the least of those that wait.
        self._turns: dict[str, int] = {}
        self._now = 0

    @property
    def waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def taken(self) -> int:
        return self._taken.total()

    def items(self) -> list[T]:
        """All that waits."""
        return [item for queue in self._queues.values() for item in queue]

    def add(self, tenant: str, item: T) -> None:
        if tenant not in self._queues:
            self._queues[tenant] = deque()
            self._turns[tenant] = max(self._now, self._turns.get(tenant, 0))
        self._queues[tenant].append(item)

    def remove(self, tenant: str, item: T) -> None:
        """Remove what no longer waits; does nothing if it does not."""
        queue = self._queues.get(tenant)
        if queue is not None and item in queue:
            queue.remove(item)
            if not queue:
                del self._queues[tenant]

    def first(self, usable: Callable[[T], bool] = lambda item: True) -> tuple[str, T] | None:
        """What comes next: of the tenant that has the fewest places, and among those the one whose turn it is."""
        found: tuple[str, T] | None = None
        best = (0, 0)
        for tenant, queue in self._queues.items():
            place = self._taken[tenant], self._turns[tenant]
            if (found and place >= best) or (tenant != SERVICE and place[0] >= self._limit_of(tenant)):
                continue
            item = next(filter(usable, queue), None)
            if item is not None:
                found, best = (tenant, item), place
        return found

    @property
    def loud_waits(self) -> bool:
        """Whether a tenant waits that may have more places once others have gone."""
        return self._crowd is not None and any(map(self._crowd.is_loud, self._queues))

    def _limit_of(self, tenant: str) -> int:
        crowd = self._crowd
        return self._at_most if crowd is None or not crowd.is_loud(tenant) else min(self._at_most, crowd.at_most)

    def take(self, tenant: str, item: T) -> None:
        """Give a place to what came first."""
        self._taken[tenant] += 1
        self.remove(tenant, item)
        self._now = max(self._now, self._turns[tenant])
        self._turns[tenant] += 1
        if len(self._turns) > 2 * len(self._queues) + _FORGET:
            self._turns = {tenant: self._turns[tenant] for tenant in self._queues}

    def forget_taken(self) -> None:
        """All places are free again, whoever had them."""
        self._taken.clear()

    def leave(self, tenant: str) -> None:
        """Give a place back."""
        self._taken[tenant] -= 1
        if not self._taken[tenant]:
            del self._taken[tenant]
        if not self._taken and not self._queues:
            self._turns.clear()
            self._now = 0


class Shares:
    """A number of places of which each tenant may have a part. Nobody waits for one. Thread-safe."""

    def __init__(self, places: int, percent: int) -> None:
        self.places, self.at_most = places, share_of(places, percent)
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        self._total = 0

    @property
    def taken(self) -> int:
        return self._total

    def by_tenant(self) -> dict[str, int]:
        with self._lock:
            return dict(self._taken)

    def take(self, tenant: str, places: int = 1) -> "str | None":
        """Take places; if they are not free, says whose limit is reached: `tenant` or `service`."""
        with self._lock:
            if self._total + places > self.places:
                return "service"
            if tenant != SERVICE and self._taken[tenant] + places > self.at_most:
                return "tenant"
            self._add(tenant, places)
            return None

    def limit(self, reached: str) -> tuple[int, str]:
        """How many places the limit that is reached allows, and whose it is, as a message says it."""
        return (self.at_most, " of this tenant") if reached == "tenant" else (self.places, "")

    def use(self, tenant: str, places: int) -> None:
        """Take places, free or not."""
        with self._lock:
            self._add(tenant, places)

    def _add(self, tenant: str, places: int) -> None:
        self._total += places
        self._taken[tenant] += places

    def leave(self, tenant: str, places: int = 1) -> None:
        with self._lock:
            self._total -= places
            self._taken[tenant] -= places
            if not self._taken[tenant]:
                del self._taken[tenant]

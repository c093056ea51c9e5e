"""Which tenants send far more than others: they get fewer places at a time while the others are there.

A free place costs the others nothing, but the work on it does: it shares the cores with theirs. So a share of the
places is not a share of the service's time.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

# The average number of a tenant's requests is over about this time.
_MEMORY_S = 5.0
# For so long after its last request a tenant's next one is expected.
_EXPECTED_S = 1.0
_LOOK_EVERY_S = 0.1
# The averages of so many tenants that no longer send requests are remembered.
_FORGET = 100
_FAR_MORE = 2


@dataclass
class _Requests:
    """Of one tenant: how many are in progress, since when, and the average until then."""

    count: int = 0
    since: float = 0.0
    average: float = 0.0

    def average_at(self, now: float) -> float:
        return self.count + (self.average - self.count) * math.exp((self.since - now) / _MEMORY_S)

    def change(self, by: int, now: float) -> None:
        self.average, self.since = self.average_at(now), now
        self.count += by


class Crowd:
    """Counts the requests of each tenant in progress. Thread-safe."""

    def __init__(self, cores: int, now: Callable[[], float] = time.monotonic) -> None:
        self._cores, self._now = cores, now
        self._lock = threading.Lock()
        self._tenants: dict[str, _Requests] = {}
        self._loud: frozenset[str] = frozenset()
        self._looked = -math.inf

    @property
    def at_most(self) -> int:
        """How many places of a kind a loud tenant has: half of the cores are for the others."""
        return max(1, self._cores // 2)

    def enter(self, tenant: str) -> None:
        with self._lock:
            now = self._now()
            if tenant not in self._tenants:
                if len(self._tenants) >= _FORGET:
                    self._tenants = {name: one for name, one in self._tenants.items() if _is_there(one, now)}
                self._tenants[tenant] = _Requests(since=now)
            self._tenants[tenant].change(1, now)

    def leave(self, tenant: str) -> None:
        with self._lock:
            self._tenants[tenant].change(-1, self._now())

    def is_loud(self, tenant: str) -> bool:
        """Whether a tenant has had more requests in progress than there are cores, and far more than another one that
        sends requests, too."""
        with self._lock:
            now = self._now()
            if now - self._looked > _LOOK_EVERY_S:
                self._loud, self._looked = self._find_loud(now), now
            return tenant in self._loud

    def _find_loud(self, now: float) -> frozenset[str]:
        averages = {name: one.average_at(now) for name, one in self._tenants.items() if _is_there(one, now)}
        most = max(self._cores, _FAR_MORE * min(averages.values(), default=0))
        return frozenset(name for name, average in averages.items() if average > most)


def _is_there(requests: _Requests, now: float) -> bool:
    return requests.count > 0 or now - requests.since < _EXPECTED_S

"""The progress of long work: what is done, of how much, how fast, and how long the rest will take."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

_MS = 1000


@dataclass
class RowProgress:
    """The progress of work that reads or writes rows. The worker writes it, anybody may read it.

    Figures are null until they are known.
    """

    phase: str = "queued"
    records_done: int | None = field(default=None, kw_only=True)
    records_total: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._started: float | None = None
        self._measure: Callable[[], int] = lambda: 0
        self._clock = time.monotonic

    def expect(self, records: int, measure: Callable[[], int] = lambda: 0) -> None:
        """More rows are to be done. The clock starts with the first of them. `measure` counts all that are done so far,
        for work that is not done in pieces."""
        if self._started is None:
            self._started = self._clock()
        self._measure = measure
        self.records_done, self.records_total = self.records_done or 0, (self.records_total or 0) + records

    def restart(self) -> None:
        """Begin again: what was done does not count."""
        self._started = self.records_done = self.records_total = None

    def done(self, records: int) -> None:
        """These rows are done."""
        self.records_done = (self.records_done or 0) + records

    def figures(self) -> dict[str, Any]:
        """What is known of it, with the rate and the time left."""
        shown = {name: value for name, value in asdict(self).items() if value is not None}
        total = self.records_total
        if self._started is None or total is None:
            return shown
        done = min(max(self.records_done or 0, self._measure()), total)
        seconds = self._clock() - self._started
        shown["records_done"] = done
        if done and seconds > 0:
            shown["records_per_s"] = round(done / seconds)
            shown["remaining_ms"] = round(seconds * (total - done) / done * _MS)
        return shown

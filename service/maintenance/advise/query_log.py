"""What queries of each table pay for its files: all are counted, now and then one is looked at closely.

In memory only: after a start it is learned anew, which takes a few queries.
"""

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from service.catalog.tables import Table
from service.engine.session.scans import Scan
from service.model.names import TableName

EVERY_S = 1.0
MOST_TABLES = 1000
SAMPLES = 64
# Kept beside the latest: so many for each of so many numbers of files opened, to learn what a file costs.
EACH, NUMBERS = 4, 16
# Of so many tables, those queried last: pairs of samples are many.
CONTRASTED = 30
# How fast a query is forgotten: after so long it counts a third of one that was just made.
MEMORY_S = 6 * 3600.0
# The rate of a table that was first seen just now is worked out as if it had been watched for so long.
WATCHED_S = 3600.0
# The warm-up's tables live under a tenant that no request can name.
_OWN = "_"


@dataclass(frozen=True, slots=True)
class QuerySample:
    """One query of a table, looked at closely."""

    at_ms: int
    """When it began: what is compacted meanwhile does not concern it."""
    total_ms: float | None
    """None where it is not the table's alone: of a join, and of a stream, whose reader sets the pace."""
    planning_ms: int
    files: int
    bytes: int
    manifests: int = 0


@dataclass(slots=True)
class _Asked:
    """What is known of one table's queries."""

    name: TableName
    first_s: float
    last_s: float
    weight: float = 0.0
    sampled_s: float = -math.inf
    samples: deque[QuerySample] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    by_files: OrderedDict[int, deque[QuerySample]] = field(default_factory=OrderedDict)

    def keep(self, sample: QuerySample) -> None:
        self.samples.append(sample)
        if sample.total_ms is None or not sample.files:
            return
        self.by_files.setdefault(sample.files, deque(maxlen=EACH)).append(sample)
        self.by_files.move_to_end(sample.files)
        if len(self.by_files) > NUMBERS:
            self.by_files.popitem(last=False)


class QueryLog:
    """Bounded: so many tables, the least recently queried are forgotten first, and so many samples of each."""

    def __init__(self, clock: Callable[[], float] = time.time, most_tables: int = MOST_TABLES) -> None:
        self._clock = clock
        self._most = most_tables
        self._lock = threading.Lock()
        self._tables: OrderedDict[str, _Asked] = OrderedDict()

    def due(self, tables: Iterable[Table]) -> bool:
        """Whether the query of these tables that is about to run should be looked at closely."""
        now = self._clock()
        with self._lock:
            found = [self._tables.get(table.uuid) for table in tables]
            due = any(asked is None or not 0 <= now - asked.sampled_s < EVERY_S for asked in found)
            if due:  # those that come meanwhile are not
                for asked in found:
                    if asked is not None:
                        asked.sampled_s = now
            return due

    def answered(self, tables: Sequence[Table], total_ms: float | None, scans: Sequence[Scan] | None) -> None:
        """Count a query of these tables; with its scans it is a sample, for which they must have been measured."""
        now = self._clock()
        each = {table.uuid: table for table in tables}
        with self._lock:
            for uuid, table in each.items():
                if table.name.tenant.startswith(_OWN):
                    continue
                asked = self._count(uuid, table.name, now)
                if scans is not None:
                    asked.sampled_s = now
                    asked.keep(_sample(table, scans, now, total_ms if len(each) == 1 else None))

    def samples(self, table_uuid: str, since_ms: int = 0) -> list[QuerySample]:
        """Oldest first."""
        with self._lock:
            asked = self._tables.get(table_uuid)
            return [sample for sample in asked.samples if sample.at_ms >= since_ms] if asked else []

    def contrasts(self) -> list[list[QuerySample]]:
        """Of each of the tables queried last, samples that opened as many different numbers of files as possible."""
        with self._lock:
            told = [asked.by_files.values() for asked in reversed(self._tables.values()) if len(asked.by_files) > 1]
            return [[sample for kept in numbers for sample in kept] for numbers in told[:CONTRASTED]]

    @property
    def empty(self) -> bool:
        return not self._tables

    def per_hour(self, table_uuid: str) -> float:
        """How many queries an hour there are lately, by all that were counted; recent ones count more."""
        now = self._clock()
        with self._lock:
            asked = self._tables.get(table_uuid)
            if asked is None:
                return 0.0
            watched = max(now - asked.first_s, WATCHED_S)
            seen = MEMORY_S * -math.expm1(-watched / MEMORY_S)
            return asked.weight * _faded(now - asked.last_s) * 3600 / seen

    def asked_since(self, moment_s: float) -> dict[TableName, str]:
        """The tables that were queried at or after a time, by name, with their UUIDs."""
        with self._lock:
            return {asked.name: uuid for uuid, asked in self._tables.items() if asked.last_s >= moment_s}

    def _count(self, uuid: str, name: TableName, now: float) -> _Asked:
        asked = self._tables.get(uuid)
        if asked is None:
            asked = self._tables[uuid] = _Asked(name, now, now)
            if len(self._tables) > self._most:
                self._tables.popitem(last=False)
        else:
            self._tables.move_to_end(uuid)
        asked.weight = asked.weight * _faded(now - asked.last_s) + 1
        asked.last_s = max(now, asked.last_s)
        return asked


def _sample(table: Table, scans: Sequence[Scan], now: float, total_ms: float | None) -> QuerySample:
    # A query that statistics answer scans nothing, and opens no file.
    shown = table.spark_name.replace("`", "")
    own = [scan for scan in scans if scan.table == shown]
    return QuerySample(
        at_ms=round(now * 1000 - (total_ms or 0)),
        total_ms=total_ms,
        planning_ms=sum(scan.planning_ms for scan in own),
        files=sum(scan.files for scan in own),
        bytes=sum(scan.bytes for scan in own),
        manifests=sum(scan.manifests for scan in own),
    )


def _faded(seconds: float) -> float:
    """What is left of a query's weight; a clock that was set back takes nothing away."""
    return math.exp(-max(seconds, 0.0) / MEMORY_S)

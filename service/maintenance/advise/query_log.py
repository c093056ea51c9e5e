"""What a table's files cost its queries: all queries are counted, and some are sampled. It is in memory only, and
learned again after a start, which takes a few queries."""

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
# Also kept, to learn what a file costs: EACH samples for each of NUMBERS different numbers of opened files.
EACH, NUMBERS = 4, 16
# The number of tables to compare samples of, those queried last: there are many pairs of samples.
CONTRASTED = 30
# How fast a query is forgotten: after this time it counts a third.
MEMORY_S = 6 * 3600.0
# The shortest time over which a table's query rate is computed.
WATCHED_S = 3600.0
# The warm-up's tables live under a tenant that no request can name.
_OWN = "_"


@dataclass(frozen=True, slots=True)
class QuerySample:
    """A sampled query of one table."""

    at_ms: int
    """When it started: a compaction in the meantime does not concern it."""
    total_ms: float | None
    """None if the time is not the table's alone: in a join, and in a stream, whose reader sets the pace."""
    planning_ms: int
    files: int
    bytes: int
    manifests: int = 0


@dataclass(slots=True)
class _TableQueries:
    """What is known about one table's queries."""

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
    """The queries of a bounded number of tables, with a bounded number of samples each; those last queried stay."""

    def __init__(self, clock: Callable[[], float] = time.time, most_tables: int = MOST_TABLES) -> None:
        self._clock = clock
        self._most = most_tables
        self._lock = threading.Lock()
        self._tables: OrderedDict[str, _TableQueries] = OrderedDict()

    def due(self, tables: Iterable[Table]) -> bool:
        """Whether to sample the query of these tables that is about to run."""
        now = self._clock()
        with self._lock:
            found = [self._tables.get(table.uuid) for table in tables]
            due = any(queries is None or not 0 <= now - queries.sampled_s < EVERY_S for queries in found)
            if due:  # queries in the meantime are not
                for queries in found:
                    if queries is not None:
                        queries.sampled_s = now
            return due

    def answered(self, tables: Sequence[Table], total_ms: float | None, scans: Sequence[Scan] | None) -> None:
        """Count a query of these tables; with its measured scans it is also a sample."""
        now = self._clock()
        each = {table.uuid: table for table in tables}
        with self._lock:
            for uuid, table in each.items():
                if table.name.tenant.startswith(_OWN):
                    continue
                queries = self._count(uuid, table.name, now)
                if scans is not None:
                    queries.sampled_s = now
                    queries.keep(_sample(table, scans, now, total_ms if len(each) == 1 else None))

    def samples(self, table_uuid: str, since_ms: int = 0) -> list[QuerySample]:
        """Oldest first."""
        with self._lock:
            queries = self._tables.get(table_uuid)
            return [sample for sample in queries.samples if sample.at_ms >= since_ms] if queries else []

    def contrasts(self) -> list[list[QuerySample]]:
        """For each of the tables queried last, samples with as many different numbers of opened files as possible."""
        with self._lock:
            by_files = [
                queries.by_files.values() for queries in reversed(self._tables.values()) if len(queries.by_files) > 1
            ]
            return [[sample for kept in numbers for sample in kept] for numbers in by_files[:CONTRASTED]]

    @property
    def empty(self) -> bool:
        return not self._tables

    def per_hour(self, table_uuid: str) -> float:
        """The recent rate of queries; the latest count most."""
        now = self._clock()
        with self._lock:
            queries = self._tables.get(table_uuid)
            if queries is None:
                return 0.0
            watched = max(now - queries.first_s, WATCHED_S)
            effective_s = MEMORY_S * -math.expm1(-watched / MEMORY_S)
            return queries.weight * _faded(now - queries.last_s) * 3600 / effective_s

    def queried_since(self, moment_s: float) -> dict[TableName, str]:
        """The UUIDs of tables that were queried at or after a time, by name."""
        with self._lock:
            return {queries.name: uuid for uuid, queries in self._tables.items() if queries.last_s >= moment_s}

    def _count(self, uuid: str, name: TableName, now: float) -> _TableQueries:
        queries = self._tables.get(uuid)
        if queries is None:
            queries = self._tables[uuid] = _TableQueries(name, now, now)
            if len(self._tables) > self._most:
                self._tables.popitem(last=False)
        else:
            self._tables.move_to_end(uuid)
        queries.weight = queries.weight * _faded(now - queries.last_s) + 1
        queries.last_s = max(now, queries.last_s)
        return queries


def _sample(table: Table, scans: Sequence[Scan], now: float, total_ms: float | None) -> QuerySample:
    # A query that is answered from statistics opens no file.
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
    """The weight of a query after some time; a clock that was set back does not reduce it."""
    return math.exp(-max(seconds, 0.0) / MEMORY_S)

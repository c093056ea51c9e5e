"""Mode `auto`: compacts tables without a request, if what queries save is worth the cost."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from service.catalog.tables import Catalog
from service.errors import FirnError, TableNotFound
from service.ledger.jobs import JobRecords
from service.maintenance.advise.advice import Advice, Adviser, CompactionHistory, why
from service.maintenance.advise.query_log import QueryLog
from service.model.names import TableName
from service.model.window import in_window

log = logging.getLogger("firn.maintenance")

ALL_EVERY_S = 3600.0
# How long a table in another mode is not looked at again.
OTHER_MODE_S = 600.0
# How long a busy service postpones the compaction of a table that is over its bound.
PATIENCE_S = 3600.0
# A compacted table rests for this multiple of its compaction's duration: at most a fiftieth of the time goes into
# compacting it.
REST = 50
# How long a table rests after a compaction that failed or merged nothing; it doubles each time.
REST_S, LONGEST_REST_S = 300.0, 86_400.0


# Merges the small files of a table; returns whether any were merged.
Compact = Callable[[TableName], bool]


@dataclass
class _Rest:
    until_s: float
    failures: int = 0


@dataclass(eq=False)
class Auto:
    """Looks, every `every_s`, at tables that were changed or queried since; at all tables once an hour."""

    catalog: Catalog
    adviser: Adviser
    queries: QueryLog
    records: JobRecords
    compact: Compact
    busy: Callable[[], bool]
    clock: Callable[[], float] = time.time
    every_s: float = 60
    _looking: threading.Lock = field(default_factory=threading.Lock)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: set[TableName] = field(default_factory=set)
    _rests: dict[TableName, _Rest] = field(default_factory=dict)
    _postponed_s: dict[TableName, float] = field(default_factory=dict)
    _all_looked_s: float = -ALL_EVERY_S  # in the first pass

    def __post_init__(self) -> None:
        self._looked_s = self.clock()

    def changed(self, name: TableName, table_uuid: str = "") -> None:
        """Look at a table in the next pass, because it was committed to."""
        with self._lock:
            self._waiting.add(name)

    def policy_changed(self, name: TableName) -> None:
        """Look at a table in the next pass, even if it rests, because its compaction policy has changed."""
        with self._lock:
            self._rests.pop(name, None)
            self._waiting.add(name)

    def run(self, stopping: threading.Event) -> None:
        """Make a pass every `every_s` seconds, on this thread, until `stopping` is set."""
        while not stopping.wait(self.every_s):
            try:
                self.look(stopping)
            except Exception as e:
                level = logging.WARNING if isinstance(e, FirnError) else logging.ERROR
                log.log(level, "tables could not be checked, trying again: %s", e, exc_info=level > logging.WARNING)

    def look(self, stopping: threading.Event | None = None) -> int:
        """One pass; returns the number of tables that were compacted."""
        with self._looking:
            self.adviser.complete()
            done = 0
            for advice, over in self._worthwhile(self._candidates(self.clock())):
                if stopping is not None and stopping.is_set():
                    break
                # Checked again, because the compactions before may have taken long.
                if not self._in_window(advice) or self._must_wait(advice.name, over):
                    continue
                with self.records.first(f"auto {advice.table_uuid}") as first:
                    if first and not self._in_progress(advice):
                        done += self._compact_now(advice)
            return done

    def _candidates(self, now: float) -> list[TableName]:
        """Tables that were changed or queried since the last pass, or had to wait; once an hour, every table."""
        found = set(self.queries.queried_since(self._looked_s))
        self._looked_s = now
        if now - self._all_looked_s >= ALL_EVERY_S:
            every = {
                TableName(tenant, namespace, table)
                for tenant, namespace in self.catalog.list_namespaces()
                for table in self.catalog.list_tables(tenant, namespace)
            }
            found |= every
            self._all_looked_s = now
            self._rests = {name: rest for name, rest in self._rests.items() if name in every}
            self._postponed_s = {name: since for name, since in self._postponed_s.items() if name in every}
        with self._lock:
            self._waiting |= found
            return [name for name in self._waiting if name not in self._rests or now >= self._rests[name].until_s]

    def _worthwhile(self, names: list[TableName]) -> list[tuple[Advice, bool]]:
        """The tables to compact now, the most worthwhile first, and whether each is over its bound. A table that is not
        worth it is not looked at again before it changes or is queried."""
        if not names:
            return []
        evidence = self.adviser.evidence()
        found = [judged for name in names if (judged := self._judge(name, evidence))]
        return sorted(found, key=lambda each: each[0].rank)

    def _in_window(self, advice: Advice) -> bool:
        return in_window(advice.policy.window, datetime.fromtimestamp(self.clock(), UTC))

    def _judge(self, name: TableName, evidence: CompactionHistory) -> tuple[Advice, bool] | None:
        with self._lock:
            self._waiting.discard(name)
        try:
            advice = self.adviser.of(self.catalog.load(name), evidence, at_once=True)
            policy = advice.policy
            # With so many small files they are merged whatever queries save.
            bound = policy.auto_small_files_factor * policy.min_files_to_compact
            # Rewriting files of a good size for few deleted rows must pay for itself.
            over = advice.worth_merging - advice.light >= bound and (advice.merge.opens_less or advice.heavy > 0)
            worth = advice.merge.opens_less and advice.forecast.worth >= policy.auto_min_worth
            if advice.mode != "auto" or not advice.online:
                self._rests[name] = _Rest(self.clock() + OTHER_MODE_S)
            elif over or worth:
                self.changed(name)  # until it is compacted
                return (advice, over) if self._in_window(advice) else None
        except TableNotFound:
            return None
        except Exception as e:  # one unreadable table must not affect the others
            log.warning("the small files of %s could not be read: %s", name, e)
            self.changed(name)
            self._rest_after_failure(name)
        return None

    def _must_wait(self, name: TableName, over: bool) -> bool:
        """Whether the service is too busy. A table over its bound waits no longer than PATIENCE_S."""
        if not self.busy():
            self._postponed_s.pop(name, None)
            return False
        since = self._postponed_s.setdefault(name, self.clock())
        if over and self.clock() - since >= PATIENCE_S:
            del self._postponed_s[name]
            return False
        return True

    def _in_progress(self, advice: Advice) -> bool:
        """Whether the table is being compacted, here or in another live instance."""
        same = (record for record in self.records.unfinished() if record.table_uuid == advice.table_uuid)
        return any(r.kind == "COMPACT" and r.started_ms and not self.records.left(r) for r in same)

    def _compact_now(self, advice: Advice) -> bool:
        name, started = advice.name, self.clock()
        log.info("compacting %s: %s", name, why(advice))
        try:
            merged = self.compact(name)
        except Exception as e:
            level = logging.WARNING if isinstance(e, FirnError) else logging.ERROR
            log.log(level, "%s could not be compacted, trying again: %s", name, e, exc_info=level > logging.WARNING)
            merged = False
        if merged:
            now = self.clock()
            self._rests[name] = _Rest(now + REST * (now - started))
        else:
            self._rest_after_failure(name)
        return merged

    def _rest_after_failure(self, name: TableName) -> None:
        failures = self._rests[name].failures + 1 if name in self._rests else 1
        pause = min(REST_S * 2 ** min(failures - 1, 30), LONGEST_REST_S)
        self._rests[name] = _Rest(self.clock() + pause, failures)

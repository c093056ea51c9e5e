"""Mode `auto`: tables that are compacted without being asked, where what queries save is worth what it costs."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from service.catalog.tables import Catalog
from service.errors import FirnError, TableNotFound
from service.ledger.jobs import JobRecords
from service.maintenance.advise.advice import Advice, Adviser, CompactionHistory
from service.maintenance.advise.query_log import QueryLog
from service.model.names import TableName
from service.model.window import in_window

log = logging.getLogger("firn.maintenance")

ALL_EVERY_S = 3600.0
# A table whose mode is another is not looked at again for so long, whatever happens to it.
OTHER_MODE_S = 600.0
# How long a busy service is waited for before a table that is over the bound is compacted all the same.
PATIENCE_S = 3600.0
# After a compaction a table is left alone for so many times as long as that took, so it gets a fiftieth of the time.
REST = 50
# After a compaction that failed, or merged nothing, a table is left alone: twice as long each time.
REST_S, LONGEST_REST_S = 300.0, 86_400.0


class Compact(Protocol):
    """Merges the small files of a table; whether any were merged."""

    def __call__(self, table: TableName, *, asked_by: str) -> bool: ...


@dataclass
class _Rest:
    until_s: float
    failures: int = 0


class Auto:
    """Looks, every `every_s`, at tables that were changed or queried since; at all tables once an hour."""

    def __init__(
        self,
        catalog: Catalog,
        adviser: Adviser,
        queries: QueryLog,
        records: JobRecords,
        compact: Compact,
        busy: Callable[[], bool],
        clock: Callable[[], float] = time.time,
        every_s: float = 60,
    ) -> None:
        self._catalog = catalog
        self._adviser = adviser
        self._queries = queries
        self._records = records
        self._compact = compact
        self._busy = busy
        self._clock = clock
        self._every_s = every_s
        self._looking = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: set[TableName] = set()
        self._rests: dict[TableName, _Rest] = {}
        self._put_off_s: dict[TableName, float] = {}
        self._looked_s = clock()
        self._all_looked_s = -ALL_EVERY_S  # in the first pass

    def changed(self, name: TableName, table_uuid: str = "") -> None:
        """A table was committed to: it is looked at in the next pass."""
        with self._lock:
            self._waiting.add(name)

    def policy_changed(self, name: TableName) -> None:
        """A table's compaction policy is another: whatever kept us from looking at it is over."""
        with self._lock:
            self._rests.pop(name, None)
            self._waiting.add(name)

    def run(self, stopping: threading.Event) -> None:
        """A pass every so often, on this thread, until told to stop."""
        while not stopping.wait(self._every_s):
            try:
                self.look(stopping)
            except FirnError as e:
                log.warning("tables could not be looked at, the next pass tries again: %s", e.message)
            except Exception:
                log.exception("tables could not be looked at, the next pass tries again")

    def look(self, stopping: threading.Event | None = None) -> int:
        """One pass; how many tables were compacted."""
        with self._looking:
            self._adviser.complete()
            worthwhile = self._worthwhile(self._candidates(self._clock()))
            done = 0
            for advice, bounded in worthwhile:
                if stopping is not None and stopping.is_set():
                    break
                # Those before it may have taken long.
                if not in_window(advice.policy.window, self._now()):
                    continue
                if self._must_wait(advice.name, bounded):
                    continue
                with self._records.first(f"auto {advice.table_uuid}") as first:
                    if first and not self._is_under_way(advice):
                        done += self._have_compacted(advice)
            return done

    def _candidates(self, now: float) -> list[TableName]:
        """What was changed or queried since the last pass, and what had to wait; now and then every table."""
        asked = set(self._queries.asked_since(self._looked_s))
        self._looked_s = now
        with self._lock:
            self._waiting |= asked
        if now - self._all_looked_s >= ALL_EVERY_S:
            every = {
                TableName(tenant, namespace, table)
                for tenant, namespace in self._catalog.list_namespaces()
                for table in self._catalog.list_tables(tenant, namespace)
            }
            self._all_looked_s = now
            self._rests = {name: rest for name, rest in self._rests.items() if name in every}
            self._put_off_s = {name: since for name, since in self._put_off_s.items() if name in every}
            with self._lock:
                self._waiting |= every
        with self._lock:
            return [name for name in self._waiting if self._is_due(name, now)]

    def _is_due(self, name: TableName, now: float) -> bool:
        rest = self._rests.get(name)
        return rest is None or now >= rest.until_s

    def _worthwhile(self, names: list[TableName]) -> list[tuple[Advice, bool]]:
        """Those to compact now, the most worthwhile first, and whether it is their bound that asks for it.

        What is not worth it is not looked at again before something happens to it.
        """
        if not names:
            return []
        evidence = self._adviser.evidence()
        found = [judged for name in names if (judged := self._judged(name, evidence))]
        return sorted(found, key=lambda each: each[0].rank)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _judged(self, name: TableName, evidence: CompactionHistory) -> tuple[Advice, bool] | None:
        with self._lock:
            self._waiting.discard(name)
        try:
            advice = self._adviser.of(self._catalog.load(name), evidence, at_once=True)
            bounded = over_bound(advice)
            if advice.mode != "auto" or not advice.online:
                self._rests[name] = _Rest(self._clock() + OTHER_MODE_S)
            elif bounded or is_worth(advice):
                self.changed(name)  # until it is compacted
                return (advice, bounded) if in_window(advice.policy.window, self._now()) else None
        except TableNotFound:
            return None
        except Exception as e:  # one unreadable table must not keep the others from being looked at
            log.warning("the small files of %s could not be looked at: %s", name, e)
            self.changed(name)
            self._let_rest(name)
        return None

    def _must_wait(self, name: TableName, bounded: bool) -> bool:
        """Whether the service has better things to do; for a table over its bound it has not for ever."""
        if not self._busy():
            self._put_off_s.pop(name, None)
            return False
        since = self._put_off_s.setdefault(name, self._clock())
        if bounded and self._clock() - since >= PATIENCE_S:
            del self._put_off_s[name]
            return False
        return True

    def _is_under_way(self, advice: Advice) -> bool:
        """Whether somebody compacts the table already, here or in another instance that is there."""
        same = (record for record in self._records.unfinished() if record.table_uuid == advice.table_uuid)
        return any(r.kind == "COMPACT" and r.started_ms and not self._records.left(r) for r in same)

    def _have_compacted(self, advice: Advice) -> bool:
        name, began = advice.name, self._clock()
        log.info("compacting %s: %s", name, _why(advice))
        try:
            merged = self._compact(name, asked_by="auto")
        except FirnError as e:
            log.warning("%s could not be compacted, it is tried again later: %s", name, e.message)
            merged = False
        except Exception:
            log.exception("%s could not be compacted, it is tried again later", name)
            merged = False
        if merged:
            now = self._clock()
            self._rests[name] = _Rest(now + REST * (now - began))
        else:
            self._let_rest(name)
        return merged

    def _let_rest(self, name: TableName) -> None:
        failures = self._rests[name].failures + 1 if name in self._rests else 1
        pause = min(REST_S * 2 ** min(failures - 1, 30), LONGEST_REST_S)
        self._rests[name] = _Rest(self._clock() + pause, failures)


def is_worth(advice: Advice) -> bool:
    """Whether queries are expected to save as many times the cost as the settings ask for."""
    return advice.merge.fewer > 0 and advice.forecast.worth >= advice.policy.auto_min_worth


def over_bound(advice: Advice) -> bool:
    """Whether there are so many small files that it need not be asked who pays for them."""
    most = advice.policy.auto_small_files_factor * advice.policy.min_files_to_compact
    return (advice.merge.fewer > 0 or advice.heavy > 0) and advice.worth_merging >= most


def _why(advice: Advice) -> str:
    expected = advice.forecast
    return (
        f"{advice.worth_merging} small files, {advice.queries.per_hour:.1f} queries an hour, "
        f"{expected.saving_ms_per_hour:.0f} ms an hour saved for {expected.cost_ms:.0f} ms: worth {expected.worth:.2f}"
    )

"""The worker: refreshes dynamic tables before they are older than their target lag, the most overdue first."""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import get_args

from service.dynamic.due import DueTable, in_groups, matches, reached, target_lag_s, urgency
from service.dynamic.freshness import Freshness, Look, MissingChanges
from service.dynamic.graph import Graph
from service.dynamic.refresh.failures import pause_s
from service.dynamic.refresh.passes import PassOptions, PassOutcome
from service.errors import Cancelled, FirnError
from service.ledger.dynamic_cursors import CursorRecords
from service.ledger.dynamic_tables import DynamicTable, DynamicTableRecords
from service.metrics.metrics import Metrics
from service.model.call import Call
from service.model.dynamic.definition import TableState
from service.model.identity.principal import LOCAL
from service.model.times import now_ms

log = logging.getLogger("firn.dynamic")

RunPass = Callable[[Collection[str], Call, PassOptions], PassOutcome]
Work = Callable[[], None]
# The ledger learns that idle tables are still right at least this often, for LIST_DYNAMIC_TABLES.
_STILL_RIGHT_S = 30.0


def _start_thread(work: Work) -> None:
    threading.Thread(target=work, name="firn-dynamic-pass", daemon=True).start()


@dataclass(frozen=True)
class WorkerOptions:
    """Which tables a worker refreshes, how often it looks for changes, and how many passes it runs at once."""

    enabled: bool = True
    interval_s: float = 5.0
    parallelism: int = 2
    tables: tuple[str, ...] = ("*",)


@dataclass(eq=False)
class DynamicWorker:
    """Looks at all tables every few seconds, and refreshes those that are due."""

    records: DynamicTableRecords
    cursors: CursorRecords
    freshness: Freshness
    run_pass: RunPass
    options: WorkerOptions = WorkerOptions()
    metrics: Metrics = field(default_factory=Metrics)
    now_ms: Callable[[], int] = now_ms
    monotonic: Callable[[], float] = time.monotonic
    begin: Callable[[Work], None] = _start_thread
    """Does a piece of work, on a thread of its own by default."""

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._running: dict[frozenset[str], Call] = {}
        self._took_s: dict[str, float] = {}
        self._paused: dict[str, tuple[int, float]] = {}
        self._thread: threading.Thread | None = None
        self._states: dict[str, int] = dict.fromkeys(get_args(TableState), 0)
        self._late = 0
        self.metrics.read("firn_dynamic_tables", lambda: {(state,): n for state, n in self._states.items()})
        self.metrics.read("firn_dynamic_tables_late", lambda: self._late)

    @property
    def busy(self) -> bool:
        """Whether a pass is in progress."""
        with self._changed:
            return bool(self._running)

    def start(self) -> None:
        """Work in the background from now on, unless it is disabled."""
        if self.options.enabled:
            self._thread = threading.Thread(target=self._work, name="firn-dynamic", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Start no more passes, and cancel those in progress, unless they are committing. Returns at once."""
        with self._changed:
            self._stopping.set()
            calls = list(self._running.values())
        for call in calls:
            call.cancel()

    def close(self, seconds: float) -> None:
        """Stop, and wait for the passes in progress."""
        self.stop()
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout=seconds)

    def look(self) -> int:
        """One round: start passes over the tables that are due, as many as may run at once. Returns their number."""
        began_ms = self.now_ms()
        tables = self.records.all()
        graph = Graph(tables)
        ours = [one for one in tables if matches(one.name, self.options.tables)]
        if not ours:
            self._states, self._late = dict.fromkeys(get_args(TableState), 0), 0
            return 0
        view = self.freshness.look(graph, self.cursors.all(), ours)
        due = self._due(graph, view, ours, began_ms)
        started = 0
        for group in in_groups(graph, due):
            started += self._start(group, reached(graph, group))
        return started

    def _work(self) -> None:
        logged = False
        while not self._stopping.is_set():
            try:
                self.look()
                logged = False
            except Exception as e:  # the next round tries again
                if not logged:
                    log.error("dynamic tables cannot be looked at: %s", e, exc_info=not isinstance(e, FirnError))
                logged = True
            self._stopping.wait(self.options.interval_s)

    def _due(self, graph: Graph, view: Look, ours: Sequence[DynamicTable], at_ms: int) -> list[DueTable]:
        due, right, late = [], [], 0
        self._states = {state: sum(one.state == state for one in ours) for state in get_args(TableState)}
        for table in ours:
            lag_s = target_lag_s(graph, table)
            missing = view.missing(table, _is_left)
            late += self._meter(table, view.lag_ms(table, at_ms), lag_s, at_ms)
            if table.state != "active":
                continue
            if missing is not None and missing == MissingChanges():
                right.append(table)
            if not table.definition.options.scheduled or table.definition.options.target_lag_s is None:
                continue
            if lag_s is None or self._waits(graph, table, at_ms):
                continue
            found = urgency(missing, lag_s, self._took_s.get(table.uuid, 0.0), at_ms)
            if found is not None:
                due.append(DueTable(table, found))
        self._late = late
        self._still_right(graph, right, at_ms)
        return due

    def _waits(self, graph: Graph, table: DynamicTable, at_ms: int) -> bool:
        """Whether a table, or one that it depends on, is to be tried again later."""
        paused = self._paused.get(table.uuid)
        if paused is not None and self.monotonic() < paused[1]:
            return True
        return any(one.retry_ms is not None and one.retry_ms > at_ms for one in graph.upstream([table.uuid]))

    def _start(self, group: Sequence[DueTable], covered: frozenset[str]) -> bool:
        """Start a pass over a group, unless another pass covers some of its tables, or there are enough."""
        call = Call(f"worker-{uuid.uuid4().hex}", requested_by="worker", principal=LOCAL)
        with self._changed:
            busy = any(covered & running for running in self._running)
            if busy or self._stopping.is_set() or len(self._running) >= self.options.parallelism:
                return False
            self._running[covered] = call
        targets = [one.table.uuid for one in group]
        self.begin(lambda: self._pass(targets, covered, call))
        return True

    def _pass(self, targets: Sequence[str], covered: frozenset[str], call: Call) -> None:
        began = self.monotonic()
        try:
            outcome = self.run_pass(targets, call, PassOptions(only_scheduled=True, waits=False))
            self._learn(outcome, targets, self.monotonic() - began)
        except Cancelled:
            log.info("a pass was cancelled, because the worker stops")
        except Exception as e:
            log.error("a pass failed, and is tried again: %s", e, exc_info=not isinstance(e, FirnError))
            self._pause(targets)
        finally:
            with self._changed:
                del self._running[covered]
                self._changed.notify_all()

    def _learn(self, outcome: PassOutcome, targets: Sequence[str], seconds: float) -> None:
        """Remember how long it took, and pause what was held back; failures are paused by the ledger."""
        for one in outcome.tables:
            if one.table.uuid not in targets:
                continue
            if one.state == "held_back":
                self._pause([one.table.uuid])
            else:
                self._paused.pop(one.table.uuid, None)
            if one.state == "done":
                before = self._took_s.get(one.table.uuid, seconds)
                self._took_s[one.table.uuid] = (before + seconds) / 2

    def _pause(self, uuids: Sequence[str]) -> None:
        for one in uuids:
            times = self._paused.get(one, (0, 0.0))[0] + 1
            self._paused[one] = times, self.monotonic() + pause_s(times)

    def _meter(self, table: DynamicTable, lag_ms: int | None, target_s: float | None, at_ms: int) -> bool:
        """Show the lag of a table, since its creation if it was never built; whether it is above the target."""
        behind_s = max(0, at_ms - table.created_ms if lag_ms is None else lag_ms) / 1000
        self.metrics.lagged(table.name, behind_s, target_s, table.failures)
        return target_s is not None and table.definition.options.scheduled and behind_s > target_s

    def _still_right(self, graph: Graph, tables: Sequence[DynamicTable], at_ms: int) -> None:
        """Record for which tables nothing is missing."""
        old = []
        for one in tables:
            every_s = min(_STILL_RIGHT_S, (target_lag_s(graph, one) or 4 * _STILL_RIGHT_S) / 4)
            if one.refreshed_ms is not None and at_ms - one.refreshed_ms >= 1000 * every_s:
                old.append(one.uuid)
        if old:
            self.records.still_right(old, at_ms)


def _is_left(table: DynamicTable) -> bool:
    """Whether passes of the worker read a table as it is."""
    return table.state != "active" or not table.definition.options.scheduled

"""A pass: one state of all base tables is pinned, then dynamic tables are refreshed in the order of their graph."""

import logging
import threading
import uuid
from collections.abc import Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from contextvars import Context
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import Literal

from service.catalog.tables import Table
from service.commits.commit import Commits
from service.commits.holds import SnapshotHolds
from service.dynamic.definitions import Definitions
from service.dynamic.graph import Graph
from service.dynamic.refresh.computation import Becomes
from service.dynamic.refresh.failures import Failures
from service.dynamic.refresh.pins import PinnedSource, SourcesDisagree, agreed_bases
from service.dynamic.refresh.refresher import Pass, Refreshed, Refresher
from service.dynamic.rights import Creators
from service.errors import Cancelled, FirnError
from service.jobs.jobs import ClaimTaken
from service.ledger.dynamic_tables import DynamicTable, RefreshRecord
from service.model.call import Call
from service.model.failures import internal_error
from service.model.times import now_ms

log = logging.getLogger("firn.dynamic")

PassState = Literal["done", "failed", "held_back", "as_it_is"]
SUSPENDED, OVERTAKEN, NOT_SCHEDULED, NOT_ALLOWED = "SUSPENDED", "OVERTAKEN", "NOT_SCHEDULED", "NOT_ALLOWED"
SOURCE_FAILED, SOURCE_NOT_BUILT, SOURCES_DISAGREE = "SOURCE_FAILED", "SOURCE_NOT_BUILT", "SOURCES_DISAGREE"
IN_PROGRESS = "IN_PROGRESS"
_TRIES = 3


@dataclass(frozen=True)
class TableInPass:
    """What a pass did with a dynamic table."""

    table: DynamicTable
    state: PassState
    reason: str | None = None
    """A stable code."""
    message: str | None = None
    """Why it was held back, or left as it is."""
    record: RefreshRecord | None = None
    error: FirnError | None = None
    source: PinnedSource | None = None
    """The table as those that depend on it read it; None if they cannot."""


@dataclass(frozen=True)
class PassOutcome:
    """What a pass did, in the order of the graph."""

    id: str
    pinned_ms: int
    tables: tuple[TableInPass, ...]

    def of(self, table_uuid: str) -> TableInPass | None:
        return next((one for one in self.tables if one.table.uuid == table_uuid), None)


@dataclass(frozen=True)
class NewDefinition:
    """A dynamic table with another definition, and what its table becomes with the rows of that."""

    table: DynamicTable
    becomes: Becomes


@dataclass(frozen=True)
class PassOptions:
    """Which tables a pass refreshes."""

    cascade: bool = False
    """Also those that depend on the targets."""
    only_scheduled: bool = False
    """Leave tables with SCHEDULER = DISABLED as they are, unless they are targets."""
    new: "NewDefinition | None" = None
    """Another definition that a table gets with its rows."""
    waits: bool = True
    """Wait for tables that are being refreshed by others; else they, and what depends on them, are held back."""


@dataclass(eq=False)
class Passes:
    """Runs passes, a number of refreshes at once in all of them."""

    definitions: Definitions
    commits: Commits
    holds: SnapshotHolds
    refresher: Refresher
    failures: Failures
    parallelism: int = 2
    creators: Creators = field(default_factory=Creators)

    def __post_init__(self) -> None:
        self._slots = threading.Semaphore(self.parallelism)

    def refresh(self, targets: Collection[str], call: Call, options: PassOptions = PassOptions()) -> PassOutcome:
        """Refresh dynamic tables, by UUID, and first all that they depend on.

        A table that fails holds back those that depend on it, and no other. If another pass refreshed some tables with
        later rows in the meantime, the targets that this concerns are refreshed by another pass. Each is refreshed with
        the rights of its creator; the sender's decide which tables are refreshed at all.
        """
        outcome = self._run(targets, call, options)
        for _ in range(_TRIES - 1):
            overtaken = any(one.reason == OVERTAKEN for one in outcome.tables)
            late = {one.table.uuid for one in outcome.tables if one.reason == SOURCES_DISAGREE} if overtaken else set()
            if not late:
                break
            again = self._run(late, call, replace(options, cascade=False))
            by_uuid = {one.table.uuid: one for one in (*outcome.tables, *again.tables)}
            outcome = PassOutcome(again.id, again.pinned_ms, tuple(by_uuid[one.table.uuid] for one in outcome.tables))
        return outcome

    def _run(self, targets: Collection[str], call: Call, options: PassOptions) -> PassOutcome:
        graph = self.definitions.graph()
        if options.new is not None:
            graph = Graph({**graph.tables, options.new.table.uuid: options.new.table}.values())
        wanted = [one.uuid for one in graph.downstream(targets)] if options.cascade else list(targets)
        tables = graph.upstream(wanted)
        pinned: dict[str, Table] = {}
        of = Pass(uuid.uuid4().hex, now_ms(), call.requested_by or f"request {call.id}", options.waits, pinned)
        with ExitStack() as held:
            run = _PassRun(self, graph, frozenset(wanted), of, call, options)
            for source in graph.base_tables(wanted):
                try:
                    table = pinned[source.uuid] = self.commits.find(source.name, source.uuid)
                except FirnError as e:  # the tables that read it fail
                    run.unreadable[source.uuid] = e
                else:
                    held.enter_context(self.holds.reading(table.uuid, table.current_snapshot_id))
            return PassOutcome(of.id, of.pinned_ms, run.all(tables))


@dataclass
class _PassRun:
    """A pass in progress."""

    passes: Passes
    graph: Graph
    targets: frozenset[str]
    of: Pass
    call: Call
    options: PassOptions
    unreadable: dict[str, FirnError] = field(default_factory=dict)
    outcomes: dict[str, TableInPass] = field(default_factory=dict)

    def all(self, tables: Sequence[DynamicTable]) -> tuple[TableInPass, ...]:
        """Refresh tables, each once its sources are; those that do not depend on each other in parallel."""
        uuids = {one.uuid for one in tables}
        by_uuid = {one.uuid: one for one in tables}
        order = TopologicalSorter(
            {one.uuid: [s.uuid for s in one.definition.sources if s.uuid in uuids] for one in tables}
        )
        order.prepare()
        with ThreadPoolExecutor(self.passes.parallelism, thread_name_prefix="firn-refresh") as pool:
            running: dict[Future[TableInPass], str] = {}
            while order.is_active():
                ready = order.get_ready()
                if len(ready) == 1 and not running:
                    # Not on another thread, for which the JVM would need another connection. As there, it is no
                    # tenant's work.
                    self.outcomes[ready[0]] = Context().run(self._one, by_uuid[ready[0]])
                    order.done(ready[0])
                    continue
                for one in ready:
                    running[pool.submit(self._one, by_uuid[one])] = one
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    uuid = running.pop(done)
                    self.outcomes[uuid] = done.result()
                    order.done(uuid)
        self.call.check()
        return tuple(self.outcomes[one.uuid] for one in tables)

    def _one(self, table: DynamicTable) -> TableInPass:
        try:
            return self._refreshed(table)
        except SourcesDisagree as e:
            return TableInPass(table, "held_back", SOURCES_DISAGREE, e.message, error=e)
        except ClaimTaken as e:
            return TableInPass(table, "held_back", IN_PROGRESS, e.message, error=e)
        except BaseException as e:
            what = f"the refresh of {table.name}"
            error = e if isinstance(e, FirnError) else internal_error(log, what, e)
            if not isinstance(error, Cancelled) and self._new(table) is None:
                self.passes.failures.failed(table, error)
            return TableInPass(table, "failed", error.code, error.message, error=error)

    def _refreshed(self, table: DynamicTable) -> TableInPass:
        if (why := self._left_as_it_is(table)) is not None:
            reason, message = why
            return TableInPass(table, "as_it_is", reason, message, source=self.passes.refresher.as_is(table))
        self.passes.creators.check(table.definition)
        sources: list[PinnedSource] = []
        for source in table.definition.sources:
            before = self.outcomes.get(source.uuid)
            if before is None:
                if source.uuid in self.unreadable:
                    raise self.unreadable[source.uuid]
                base = self.of.pinned[source.uuid]
                sources.append(PinnedSource(base, base.current_snapshot_id))
            elif before.source is None:
                return _held_back(table, before)
            else:
                sources.append(before.source)
        bases = agreed_bases(sources, self.of.pinned)
        pinned = [
            replace(one, snapshot_id=bases[one.table.uuid].snapshot_id) if one.is_base else one for one in sources
        ]
        new = self._new(table)
        with self.passes._slots:
            self.call.check()
            done: Refreshed = self.passes.refresher.run(
                *(table, pinned, bases, self.of, self.call), becomes=new.becomes if new else None
            )
        if done.record is None:
            return TableInPass(table, "as_it_is", OVERTAKEN, "a later refresh came first", source=done.source)
        self.passes.failures.succeeded(table)
        return TableInPass(table, "done", done.record.reason, record=done.record, source=done.source)

    def _new(self, table: DynamicTable) -> NewDefinition | None:
        """The new definition of a table, if it gets one."""
        new = self.options.new
        return new if new is not None and new.table.uuid == table.uuid else None

    def _left_as_it_is(self, table: DynamicTable) -> tuple[str, str] | None:
        """Why a table is not refreshed, but read as it is."""
        if self._new(table) is not None:
            return None
        if table.state != "active":
            return SUSPENDED, table.reason or "it is suspended"
        if self.options.only_scheduled and not table.definition.options.scheduled and table.uuid not in self.targets:
            return NOT_SCHEDULED, "it is refreshed only by request"
        if not self.call.principal.may("writer", table.name.tenant, table.name.namespace):
            return NOT_ALLOWED, "the sender of the request does not have the role writer in its namespace"
        return None


def _held_back(table: DynamicTable, source: TableInPass) -> TableInPass:
    name = source.table.name.table
    if source.state == "as_it_is":
        return TableInPass(table, "held_back", SOURCE_NOT_BUILT, f"its source {name} has no rows of its query yet")
    why = f"its source {name} was not refreshed: {source.message}"
    return TableInPass(table, "held_back", SOURCE_FAILED, why)

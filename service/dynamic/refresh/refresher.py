"""The refresh of one dynamic table: nothing if no row has changed, else by the change, or in full."""

import itertools
import logging
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from service.catalog.tables import Table
from service.commits.commit import CommitResult
from service.commits.locks import TableLocks
from service.dynamic.compiling import Compiled, Compiler, rows_assumed
from service.dynamic.definitions import Definitions
from service.dynamic.freshness import lag_behind
from service.dynamic.lag import LAG
from service.dynamic.refresh.choice import MeasuredRefresh
from service.dynamic.refresh.computation import Becomes, Committer, computed, is_computed_here, refresh_sources
from service.dynamic.refresh.decision import (
    RESULT_CHANGED,
    Decision,
    Situation,
    decide,
    in_full,
    measured_refreshes,
    without_query,
)
from service.dynamic.refresh.pins import Bases, KnownResult, PinnedSource, is_later, known_result
from service.dynamic.refresh.recorded import RecordedRefresh
from service.engine.jobs.dynamic.job import RefreshCounts
from service.errors import CommitConflict, InvalidSchema, RowCountMismatch
from service.jobs.job import Job
from service.jobs.jobs import ClaimTaken, Kind
from service.ledger.dynamic_cursors import CursorRecords
from service.ledger.dynamic_tables import DynamicTable, RefreshRecord
from service.ledger.ledger import Also, Transaction
from service.metrics.metrics import Metrics
from service.model.call import Call
from service.model.dynamic.definition import Definition
from service.model.dynamic.state import RefreshState
from service.model.times import now_ms

log = logging.getLogger("firn.dynamic")

REFRESH = "REFRESH"
"""The kind of job."""
_WAIT_S, _LONGEST_WAIT_S = 0.5, 600.0
_MEASURED = 100
_COMPILED = 256


@dataclass(frozen=True)
class Pass:
    """A refresh of several tables at one state of their base tables."""

    id: str
    pinned_ms: int
    requested_by: str = ""
    waits: bool = True
    """Whether to wait for a table that another instance refreshes."""
    pinned: Mapping[str, Table] = field(default_factory=dict)
    """The base tables at their pinned states, by UUID."""


@dataclass
class RefreshProgress:
    """The progress of a refresh."""

    phase: str = "waiting"
    mode: str | None = None


@dataclass(frozen=True)
class Refreshed:
    """A dynamic table after a refresh, as those that depend on it read it."""

    source: PinnedSource
    record: RefreshRecord | None
    """None if a later refresh had come first, so that nothing was done."""


@dataclass(eq=False)
class Refresher:
    """Refreshes one table at a time, also among all instances of the ledger."""

    parts: Committer
    definitions: Definitions
    cursors: CursorRecords
    compiler: Compiler
    metrics: Metrics = field(default_factory=Metrics)
    _locks: TableLocks = field(default_factory=TableLocks)
    _compiled: "OrderedDict[tuple[object, ...], Compiled]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.parts.jobs.register(REFRESH, Kind("a refresh"))

    def run(
        self,
        table: DynamicTable,
        sources: Sequence[PinnedSource],
        bases: Bases,
        of: Pass,
        call: Call,
        becomes: Becomes | None = None,
    ) -> Refreshed:
        """Refresh a table from sources at pinned snapshots; `bases` are those of the base tables behind them.

        With `becomes`, the definition is a new one, which the table gets with the rows.

        Raises what keeps it from being refreshed; then nothing was changed, and the failure is in its history.
        """
        work = _Refresh(self, table, tuple(sources), bases, of, becomes)
        result = self.parts.commits.find(table.name, table.uuid)
        if (done := work.at_once(result)) is not None:
            return done
        own = call.without_key(RefreshProgress())
        with call.cancelling(own.cancel), self.claimed(result, own, waits=of.waits, also=work.recorded.begin) as job:
            return work.under_claim(job)

    def known(self, result: Table) -> KnownResult:
        """What a result stands for."""
        return known_result(result, self.cursors.of(result.uuid))

    def as_is(self, table: DynamicTable) -> PinnedSource | None:
        """A dynamic table as it is, for those that depend on it; None if it was never built, or changed by others."""
        result = self.parts.commits.find(table.name, table.uuid)
        known = self.known(result)
        if known.state is None:
            return None
        as_of_ms = max(known.state.refreshed_ms, table.refreshed_ms or 0)
        return PinnedSource(result, result.current_snapshot_id, known.bases, as_of_ms)

    def compiled(self, definition: Definition, sources: Sequence[PinnedSource]) -> Compiled:
        """The query of a definition over its sources, which is analysed once for each of their schemas, and again
        whenever a source has twice as many rows, because it then costs more."""
        tables = tuple(source.table for source in sources)
        key = (
            *(definition.uuid, definition.version),
            *((one.name, one.uuid, one.schema_id, int(rows_assumed(one)).bit_length()) for one in tables),
        )
        with self._lock:
            found = self._compiled.get(key)
        if found is None:
            found = self.compiler.compile_definition(definition, tables)
            with self._lock:
                self._compiled[key] = found
                while len(self._compiled) > _COMPILED:
                    self._compiled.popitem(last=False)
        return replace(found, sources=tables)

    @contextmanager
    def claimed(
        self,
        result: Table,
        call: Call,
        *,
        waits: bool = True,
        also: Also | None = None,
    ) -> Iterator[Job]:
        """A job that is the only one of all instances that refreshes a table; `also` is recorded with it.

        ClaimTaken if another instance does, at once or after a long wait. The claim of one that is gone passes on.
        """
        jobs, began = self.parts.jobs, time.monotonic()
        progress = call.progress(RefreshProgress)
        with self._locks.hold(result.uuid, call.check), ExitStack() as held:
            for tries in itertools.count():
                call.start_gate()
                try:
                    claim = f"{REFRESH} {result.uuid}"
                    job = held.enter_context(jobs.begin(REFRESH, result, progress, call, claim=claim, also=also))
                    break
                except ClaimTaken:
                    if tries and (not waits or time.monotonic() - began > _LONGEST_WAIT_S):
                        raise
                    jobs.settle()
                    if tries:
                        time.sleep(_WAIT_S)
                    call.check()
            yield job


@dataclass
class _Refresh:
    """One refresh in progress."""

    parts: Refresher
    table: DynamicTable
    sources: tuple[PinnedSource, ...]
    bases: Bases
    of: Pass
    becomes: Becomes | None = None
    _seen: Situation | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        record = RefreshRecord(
            uuid.uuid4().hex,
            self.of.id,
            self.table.name,
            self.table.uuid,
            self.table.definition.version,
            requested_by=self.of.requested_by,
            pinned_ms=self.of.pinned_ms,
            started_ms=now_ms(),
        )
        reads = {one.table.uuid: one.snapshot_id for one in self.sources}
        parts = self.parts
        self.recorded = RecordedRefresh(parts.definitions.records, parts.cursors, parts.metrics, record, reads)

    def at_once(self, result: Table) -> Refreshed | None:
        """The end of the refresh if no row has changed, which needs no claim; None if there is something to do."""
        now = self._situation(result)
        if self._is_late(now):
            return self._overtaken(result, now.known)
        decision = without_query(now)
        if decision is None:
            return None
        self.recorded.complete_earlier(result, claimed=False)
        return self._unchanged(now, decision)

    def under_claim(self, job: Job) -> Refreshed:
        try:
            result = self.parts.parts.commits.find(self.table.name, self.table.uuid)
            if self.becomes is None:
                now = self.parts.definitions.of(result)
                if now.definition.version != self.table.definition.version:
                    name = result.name.table
                    raise CommitConflict(f"the query of {name} was replaced in the meantime; send it again")
                self.table = now
            self.recorded.complete_earlier(result, claimed=True)
            done = self.at_once(result)
        except BaseException:
            self.recorded.needless()
            raise
        if done is not None:
            if done.record is None:
                self.recorded.needless()
            return done
        try:
            return self._refreshed(job, result)
        except BaseException as e:
            self.recorded.fail(e)
            raise

    def _refreshed(self, job: Job, result: Table) -> Refreshed:
        job.progress.phase = "planning"
        now = self._situation(result)
        compiled = self.parts.compiled(now.definition, self.sources)
        if self.becomes is None:
            _check_columns(result, compiled)
        decision = decide(now, compiled, self._measured)
        if decision.mode == "NO_DATA":
            return self._unchanged(now, decision)
        job.progress.phase, job.progress.mode = "computing", decision.mode
        try:
            return self._computed(job, now, compiled, decision)
        except RowCountMismatch as e:
            if decision.mode == "FULL":
                raise
            log.error("%s lacks rows that its query had given, so all of it is computed: %s", result.name, e.message)
            return self._computed(job, now, compiled, in_full(now, RESULT_CHANGED))

    def _computed(self, job: Job, now: Situation, compiled: Compiled, decision: Decision) -> Refreshed:
        recorded, state, began = self.recorded, self.state, time.monotonic()
        recorded.note(mode=decision.mode, reason=decision.reason, sources=state.all, details=decision.details)
        sources = refresh_sources(compiled, self.sources, decision, reads_files=self.parts.parts.reads_files)
        if not is_computed_here(compiled, sources):
            recorded.show()

        def ended(made: CommitResult, counts: RefreshCounts, transaction: Transaction) -> None:
            self._note_counts(counts, made, now, decision, time.monotonic() - began)
            recorded.end(state, self._as_of_ms, transaction)

        made = computed(
            self.parts.parts, job, now.result, compiled, decision, sources, self.sources, state, ended, self.becomes
        )
        if not made.recorded:
            recorded.end_anyway(state, self._as_of_ms)
        recorded.count()
        return Refreshed(self._source(made.after), recorded.record)

    def _note_counts(
        self, counts: RefreshCounts, made: CommitResult, now: Situation, decision: Decision, seconds: float
    ) -> None:
        details = {
            **decision.details,
            "seconds": round(seconds, 3),
            "keys": counts.keys,
            "files_written": counts.files_written,
            "files_removed": counts.files_removed,
            "files_rewritten": counts.files_rewritten,
            LAG: None if now.known.state is None else lag_behind(now.known.bases, self.of.pinned),
        }
        self.recorded.note(
            rows_added=counts.inserted,
            rows_removed=counts.deleted,
            rows_unchanged=counts.unchanged,
            changed_rows=sum(counts.source_rows.values()),
            details={name: value for name, value in details.items() if value is not None},
            snapshot_id=made.snapshot_id,
        )

    @property
    def state(self) -> RefreshState:
        """What the rows will stand for."""
        own = tuple(source.state for source in self.sources)
        read = {one.uuid for one in own}
        behind = tuple(base for uuid, base in self.bases.items() if uuid not in read)
        return RefreshState(self.of.id, self.table.definition.version, self._as_of_ms, own, behind)

    @property
    def _as_of_ms(self) -> int:
        """The time for which the rows will be right: a source that could not be refreshed is older than the pass."""
        return min([self.of.pinned_ms, *(one.as_of_ms for one in self.sources if one.as_of_ms is not None)])

    def _situation(self, result: Table) -> Situation:
        """The table and its sources; what was found out about them stays as long as they are the same."""
        now = Situation(self.table.definition, result, self.parts.known(result), self.sources)
        if self._seen is None or not self._seen.is_same(now):
            self._seen = now
        return self._seen

    def _measured(self) -> Sequence[MeasuredRefresh]:
        latest = self.parts.definitions.records.refreshes_of(self.table.uuid, _MEASURED, state="done")
        return measured_refreshes(latest, self.table.definition.version)

    def _is_late(self, now: Situation) -> bool:
        """Whether the result stands for later rows of a source than this refresh has pinned."""
        if now.known.state is None or now.known.state.definition != now.definition.version:
            return False
        for source in self.sources:
            table, known_id = source.table, now.known.snapshots.get(source.table.uuid)
            if known_id is None or known_id == source.snapshot_id:
                continue
            if table.iceberg.snapshot_by_id(known_id) is None:  # it may be later than what was loaded, or expired
                table = self.parts.parts.commits.find(table.name, table.uuid)
            if is_later(table, known_id, source.snapshot_id):
                return True
        return False

    def _overtaken(self, result: Table, known: KnownResult) -> Refreshed:
        assert known.state is not None
        source = PinnedSource(result, result.current_snapshot_id, known.bases, known.state.refreshed_ms)
        return Refreshed(source, None)

    def _unchanged(self, now: Situation, decision: Decision) -> Refreshed:
        """Nothing is written: the ledger remembers that the rows are right for later snapshots, too."""
        assert now.known.state is not None
        recorded, state = self.recorded, self.state
        snapshot_id = now.result.current_snapshot_id
        recorded.note(mode=decision.mode, reason=decision.reason, sources=state.all, snapshot_id=snapshot_id)
        recorded.end_anyway(replace(state, pass_id=now.known.state.pass_id), self._as_of_ms)
        recorded.count()
        return Refreshed(self._source(now.result), recorded.record)

    def _source(self, result: Table) -> PinnedSource:
        """The refreshed table, as those that depend on it read it."""
        return PinnedSource(result, self.recorded.record.snapshot_id, self.bases, self._as_of_ms)


def _check_columns(result: Table, compiled: Compiled) -> None:
    """Raise InvalidSchema if the query has other columns by now than the table that holds its result."""
    has, needs = result.stored_schema.fields, compiled.schema.fields
    stored = {one.name: one.type for one in has}
    computed_now = {one.name: one.type for one in needs}
    if stored == computed_now:
        return
    names = sorted(name for name in stored.keys() | computed_now.keys() if stored.get(name) != computed_now.get(name))
    raise InvalidSchema(
        f"the query of {result.name.table} has other columns by now than its table ({', '.join(names)}), because the "
        "columns of its sources have changed; send CREATE_DYNAMIC_TABLE with replace: true",
        field="table",
    )

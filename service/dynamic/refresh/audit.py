"""AUDIT_DYNAMIC_TABLE: a result compared with its query at the snapshots that it stands for, and repaired."""

import random
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from service.catalog.tables import Table
from service.commits.commit import CommitResult
from service.dynamic.compiling import Compiled
from service.dynamic.refresh.computation import Computation, refresh_sources, work_of
from service.dynamic.refresh.pins import KnownResult, PinnedSource, last_known_result
from service.dynamic.refresh.refresher import Refresher, RefreshProgress
from service.dynamic.rights import Creators
from service.engine.jobs.dynamic.audit import AuditResult, AuditSample, audit, stage_repair
from service.engine.jobs.dynamic.job import RefreshCounts
from service.errors import InvalidRequest, SnapshotNotFound
from service.jobs.job import Job
from service.ledger.dynamic_tables import DynamicTable
from service.model.call import Call
from service.model.dynamic.plan import ReplacedKeys
from service.model.dynamic.state import RefreshState, SourceState
from service.model.schema.types import TableSchema, is_floating, without_hidden_columns

SHOWN = 20


@dataclass(frozen=True)
class AuditOptions:
    """How much to compare, and whether to repair."""

    share: float = 1.0
    """Of all keys, from 0 to 1."""
    seed: int | None = None
    repair: bool = False


@dataclass(frozen=True)
class AuditOutcome:
    """What an audit found, and did."""

    found: AuditResult
    state: RefreshState
    sources: tuple[SourceState, ...]
    keys: tuple[str, ...]
    """The columns by which rows were sampled; none if all were compared."""
    snapshot_id: int | None
    """The snapshot of the result that was compared."""
    seed: int | None = None
    repaired: CommitResult | None = None
    counts: RefreshCounts | None = None


@dataclass(frozen=True)
class Audits:
    """Compares dynamic tables with their queries."""

    refresher: Refresher
    creators: Creators = field(default_factory=Creators)

    def run(self, table: Table, dynamic: DynamicTable, options: AuditOptions, call: Call) -> AuditOutcome:
        """Compare the rows of a result with those of its query, with the rights of its creator. With `repair`, rows
        that differ are replaced."""
        self.creators.check(dynamic.definition)
        work = _Audit(self.refresher, table, dynamic, options, call)
        if not options.repair:
            return work.compare(table)
        own = call.without_key(RefreshProgress("auditing"))
        with call.cancelling(own.cancel), self.refresher.claimed(table, own) as job:
            current = self.refresher.parts.commits.find(table.name, table.uuid)
            outcome = work.compare(current)
            differs = outcome.found.missing or outcome.found.unexpected
            return work.repair(current, outcome, job) if differs or work.lost_state(current) else outcome


@dataclass
class _Audit:
    """One audit in progress."""

    refresher: Refresher
    table: Table
    dynamic: DynamicTable
    options: AuditOptions
    call: Call

    def compare(self, result: Table) -> AuditOutcome:
        known = self._known(result)
        assert known.state is not None
        sources = self._sources(known)
        compiled = self.refresher.compiled(self.dynamic.definition, sources)
        sample = self._sample(compiled)
        parts, read = self.refresher.parts, refresh_sources(compiled, sources)
        with ExitStack() as held:
            for source in sources:
                held.enter_context(parts.holds.reading(source.table.uuid, source.snapshot_id))
            held.enter_context(parts.holds.reading(result.uuid, result.current_snapshot_id))
            job = work_of(parts, result, compiled, read, {})
            self.call.computes_table = True
            found = parts.engine.run_for(self.call, audit, job, compiled.query.full, sample, SHOWN)
        shown = set(without_hidden_columns(compiled.schema).names)
        examples = tuple(
            replace(one, row={name: value for name, value in one.row.items() if name in shown})
            for one in found.examples
        )
        keys = () if sample is None else tuple(name for name in sample.columns if name in shown)
        states = tuple(source.state for source in sources)
        seed = None if sample is None else sample.seed
        return AuditOutcome(
            replace(found, examples=examples), known.state, states, keys, result.current_snapshot_id, seed
        )

    def repair(self, result: Table, outcome: AuditOutcome, job: Job) -> AuditOutcome:
        """Replace the rows that differ, in one commit with the same state."""
        sources = self._sources(self._known(result))
        compiled = self.refresher.compiled(self.dynamic.definition, sources)
        read, full = refresh_sources(compiled, sources), compiled.query.full
        work = Computation(self.refresher.parts, job, result, compiled, read, outcome.state, stage_repair, full)
        made = work.run()
        return replace(outcome, repaired=made, counts=work.counts)

    def lost_state(self, result: Table) -> bool:
        """Whether others have changed the result, so that its newest rows do not say what they stand for."""
        return self.refresher.known(result).state is None

    def _known(self, result: Table) -> KnownResult:
        """What the result stood for at its last refresh, whatever others have done to it since."""
        known = last_known_result(result, self.refresher.cursors.of(result.uuid))
        name = result.name.table
        if known.state is None:
            raise InvalidRequest.at("table", f"{name} has no rows of its query yet; send REFRESH_DYNAMIC_TABLE")
        if known.state.definition != self.dynamic.definition.version:
            raise InvalidRequest.at("table", f"the query of {name} was replaced since; send REFRESH_DYNAMIC_TABLE")
        return known

    def _sources(self, known: KnownResult) -> list[PinnedSource]:
        """The sources at the snapshots that the rows stand for."""
        found = []
        for source in self.dynamic.definition.sources:
            table = self.refresher.parts.commits.find(source.name, source.uuid)
            snapshot_id = known.snapshots[source.uuid]
            if snapshot_id is not None and table.iceberg.snapshot_by_id(snapshot_id) is None:
                raise SnapshotNotFound(
                    f"the snapshot of {table.name.table} that the rows stand for has expired, so they cannot be "
                    "computed again; send REFRESH_DYNAMIC_TABLE, which computes all of them",
                    field="table",
                )
            is_base = source.uuid not in self.refresher.definitions.graph().tables
            found.append(PinnedSource(table, snapshot_id, None if is_base else {}))
        return found

    def _sample(self, compiled: Compiled) -> AuditSample | None:
        if self.options.share >= 1:
            return None
        seed = random.randrange(1 << 31) if self.options.seed is None else self.options.seed
        return AuditSample(_key_columns(compiled), self.options.share, seed)


def _key_columns(compiled: Compiled) -> tuple[str, ...]:
    """The columns by which rows are sampled: those that the plan replaces rows by, or else all that are exact."""
    if compiled.query.not_incremental is None:
        change = compiled.query.plan(frozenset(range(len(compiled.sources)))).change
        if isinstance(change, ReplacedKeys) and change.columns:
            return change.columns
    return _exact(compiled.schema)


def _exact(schema: TableSchema) -> tuple[str, ...]:
    shown = without_hidden_columns(schema).fields
    exact = (one.name for one in shown if not is_floating(one.type))
    return tuple(exact) or tuple(one.name for one in shown)

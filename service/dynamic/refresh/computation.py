"""The computation and the commit of one refresh: result and state in one commit."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

from service.catalog.tables import Table
from service.commits.commit import AlsoRecorded, CommitResult, Commits, retried_if_changed
from service.commits.edit_base import base_of
from service.commits.holds import SnapshotHolds
from service.commits.local_rows import LocalResult, with_few_rows
from service.dynamic.compiling import Compiled
from service.dynamic.refresh.decision import Decision
from service.dynamic.refresh.pins import PinnedSource, known_result, same_rows
from service.engine.iceberg.reinitialise import ReinitialisedTable
from service.engine.jobs.dynamic.job import RefreshCounts, RefreshJob, RefreshSource, StagedRefresh
from service.engine.jobs.dynamic.refresh import PlanOf, commit_refresh, stage_all, stage_change
from service.engine.session.engine import Engine
from service.errors import CommitConflict
from service.jobs.job import Job
from service.jobs.jobs import Jobs
from service.ledger.ledger import Transaction
from service.model.dynamic.plan import IncrementalPlan
from service.model.dynamic.state import REFRESH_STATE_PROPERTY, RefreshState
from service.model.properties import edit_policy
from service.settings import EditSettings

OPERATION = "REFRESH_DYNAMIC_TABLE"
"""The operation of the commit, in the ledger."""
Becomes = Callable[[Table, Compiled], ReinitialisedTable]
"""Of a table as it is, and of another query: what the table becomes in the commit with that query's rows."""
Ended = Callable[[CommitResult, RefreshCounts, Transaction], object]
"""Records, in the transaction that ends the commit's batch, what was done."""


@dataclass(frozen=True)
class Committer:
    """The parts of the service that computations use."""

    engine: Engine
    commits: Commits
    jobs: Jobs
    holds: SnapshotHolds
    settings: EditSettings
    reads_files: bool = True
    """Whether few rows are read in this process, and not by Spark."""


@dataclass
class Computation:
    """A refresh to compute and commit."""

    parts: Committer
    job: Job
    result: Table
    compiled: Compiled
    sources: Sequence[RefreshSource]
    state: RefreshState
    stage: Callable[..., StagedRefresh]
    """The job that computes it, given the work and `how`."""
    how: PlanOf | str
    """The plan, or SQL for the whole result."""
    becomes: Becomes | None = None
    ended: Ended | None = None
    counts: RefreshCounts = field(default_factory=RefreshCounts)

    def run(self) -> CommitResult:
        """Compute without the table's lock, and commit under it. If the result's files were rewritten in the meantime,
        it is computed again under the lock; raises CommitConflict if its rows were changed."""
        before = known_result(self.result, None).state
        ready = [(self.result, self._staged(self.result))]

        @retried_if_changed()
        def change(current: Table, batch: str) -> None:
            if known_result(current, None).state != before:
                raise CommitConflict("another refresh or another program changed this table first")
            based_on, one = ready.pop() if ready else (current, self._staged(current))
            if not same_rows(current, based_on.current_snapshot_id, current.current_snapshot_id):
                _discard(one)  # others have changed rows that no query made: all of them are replaced
                one = self._staged(current)
            ours = self.job.gate_for(self.parts.commits, batch)

            def gate() -> None:
                ours()
                self.job.call.seal()

            self.parts.engine.run_for(self.job.call, commit_refresh, one, batch, gate)
            self.counts = one.counts

        try:
            also = AlsoRecorded(self._begun, self._ended)
            made = self.parts.commits.commit(self.result, OPERATION, self.job.call, change, also=also)
            self.job.end_recorded = made.recorded
            return made
        finally:
            for _, one in ready:
                _discard(one)

    def _begun(self, batch: str, transaction: Transaction) -> None:
        self.parts.jobs.tries(self.job, batch, within=transaction)

    def _ended(self, made: CommitResult, transaction: Transaction) -> None:
        if self.ended is not None:
            self.ended(made, self.counts, transaction)
        self.parts.jobs.end_within(self.job, transaction)

    def _staged(self, result: Table) -> StagedRefresh:
        summary = {REFRESH_STATE_PROPERTY: self.state.text(result.name.tenant)}
        becomes = None if self.becomes is None else self.becomes(result, self.compiled)
        work = work_of(self.parts, result, self.compiled, self.sources, summary, becomes)
        self.job.call.computes_table = True
        with self.parts.holds.building_on(result.uuid, result.current_snapshot_id):
            return self.parts.engine.run_for(self.job.call, self.stage, work, self.how)


def _discard(staged: StagedRefresh) -> None:
    with suppress(Exception):  # at worst the files become orphans
        staged.discard()


def work_of(
    parts: Committer,
    result: Table,
    compiled: Compiled,
    sources: Sequence[RefreshSource],
    summary: Mapping[str, str],
    becomes: ReinitialisedTable | None = None,
) -> RefreshJob:
    """What the engine works on: the result as it is, and the sources."""
    base = base_of(result, edit_policy(result.properties, parts.settings).row_level)
    if base.row_level == "auto" and parts.holds.is_merged(result.uuid):
        base = replace(base, row_level="merge_on_read", keeps_files=True)
    stored = LocalResult(result, compiled.schema) if parts.reads_files and becomes is None else None
    return RefreshJob(base, compiled.schema, tuple(sources), summary, becomes, stored)


def computed(
    parts: Committer,
    job: Job,
    result: Table,
    compiled: Compiled,
    decision: Decision,
    read: Sequence[RefreshSource],
    sources: Sequence[PinnedSource],
    state: RefreshState,
    ended: Ended,
    becomes: Becomes | None = None,
) -> CommitResult:
    """Compute a refresh and commit it, while its snapshots are kept; if the query is another one, with its columns."""

    def plan_of(changed: Mapping[int, int]) -> IncrementalPlan:
        return compiled.query.plan(changed.keys())

    by_change = decision.mode == "INCREMENTAL"
    stage: Callable[..., StagedRefresh] = stage_change if by_change else stage_all
    how = plan_of if by_change else compiled.query.full
    work = Computation(parts, job, result, compiled, read, state, stage, how, becomes, ended)
    with ExitStack() as held:
        for source, one in zip(sources, read, strict=True):
            # Also those between which there is a rewrite.
            ends = (end for part in one.changes for end in (part.old_id, part.new_id))
            for snapshot_id in {one.new_id, one.old_id, *ends}:
                held.enter_context(parts.holds.reading(source.table.uuid, snapshot_id))
        return work.run()


def is_computed_here(compiled: Compiled, sources: Sequence[RefreshSource]) -> bool:
    """Whether a change is expected to be computed in this process, without a Spark job."""
    changed = {one.number for one in sources if one.changes}
    read = all(one.changed is not None for one in sources if one.changes)
    return bool(changed) and read and compiled.query.plan(changed).direct is not None


def refresh_sources(
    compiled: Compiled,
    sources: Sequence[PinnedSource],
    decision: Decision | None = None,
    *,
    reads_files: bool = False,
) -> list[RefreshSource]:
    """The sources as the engine reads them; with a decision, with what changed in them."""
    changes = () if decision is None else decision.changes
    changed = {number for number, one in enumerate(changes) if one.ranges}
    here = bool(changed) and compiled.query.plan(changed).direct is not None
    found = []
    for number, (source, reads) in enumerate(zip(sources, compiled.query.sources, strict=True)):
        table = source.table
        one = RefreshSource(
            *(number, table.spark_name, table.schema_id),
            *(compiled.schemas[number], tuple(reads.columns), source.snapshot_id),
        )
        if changes:
            change = changes[number]
            one = replace(one, old_id=change.old_id, changes=change.ranges)
            one = with_few_rows(one, table, computed_here=here) if reads_files else one
        found.append(one)
    return found

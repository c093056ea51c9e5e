"""The steps of a refresh: compute the result or its change, write the rows, then make all of it in one commit.

The first two need no lock of the result's table; the last one does.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from functools import partial

from service.engine.iceberg.layout import LayoutBasis
from service.engine.iceberg.staging import StagedFiles, stage_rows
from service.engine.iceberg.swap import CommitTarget, Gate
from service.engine.iceberg.tables import as_if
from service.engine.jobs.dynamic import statements
from service.engine.jobs.dynamic.job import RefreshCounts, RefreshJob, StagedRefresh
from service.engine.jobs.dynamic.result import ResultRows
from service.engine.jobs.dynamic.settings import few_rows, for_refresh, in_one_task
from service.engine.jobs.dynamic.sources import counted_changes, open_changes, opened_rows
from service.engine.jobs.dynamic.views import RefreshViews
from service.engine.jobs.dynamic.written import RefreshFiles, live_rows
from service.engine.jobs.edits.publish import StagedEdit, commit_staged
from service.engine.session.spark_types import SparkSession
from service.engine.session.untrusted import untrusted
from service.model.dynamic.plan import RESULT, IncrementalPlan, ReplacedKeys, WeightedRows, new, old

PlanOf = Callable[[Mapping[int, int]], IncrementalPlan]
"""The plan for a refresh, by the sources that have changed and how many of their rows did. What it raises ends the
refresh."""
# Grouping rows by partition before they are written makes many files few. Sorting uses the disk instead of the heap.
_OPTIONS = {"distribution-mode": "hash", "fanout-enabled": "false"}
# Steps are computed again wherever they are read, as long as that makes no more leaves of them.
_FEW_LEAVES = 8


@untrusted("query")
def stage_all(session: SparkSession, job: RefreshJob, full_sql: str) -> StagedRefresh:
    """Compute the whole result, a SELECT over the views `s{i}_new`, in place of the table's rows.

    If the job has other columns for the table, the rows are written with these, and the commit changes both.
    """
    base = job.base
    target = CommitTarget(session, base.name, base.uuid, base.schema_id)
    iceberg, evolve = target.load(), None
    if job.becomes is not None:
        before = iceberg.operations().current()
        evolve = partial(job.becomes.evolution, basis=LayoutBasis.of(before))
        iceberg = as_if(iceberg, job.becomes.metadata(before))
    with ExitStack() as stack:
        views = RefreshViews(session, stack)
        stack.enter_context(for_refresh(session, job, full=True))
        stack.enter_context(opened_rows(views, job.sources))
        rows = session.sql(statements.typed(f"({full_sql})", job.schema))
        staged = stage_rows(iceberg, rows, _OPTIONS)
    edit = StagedEdit(target, base.snapshot_id, staged, staged.records, {}, dict(base.rows), job.summary, evolve)
    files = len(staged.files), len(base.rows)
    return StagedRefresh(
        edit, RefreshCounts(staged.records, live_rows(job), files_written=files[0], files_removed=files[1])
    )


@untrusted("query")
def stage_change(session: SparkSession, job: RefreshJob, plan_of: PlanOf) -> StagedRefresh:
    """Compute how the result changes. Rows that come out equal stay where they are.

    A source of which no row has changed in the columns that the query reads counts as unchanged. If that is every
    source, there is no plan.
    """
    with ExitStack() as stack:
        views = RefreshViews(session, stack)
        result = ResultRows(views, job, few=few_rows(job))
        counted = counted_changes(job.sources)
        if counted and (direct := plan_of(counted).direct) is not None and (found := result.direct(direct)) is not None:
            return RefreshFiles(result, *found).stage(counted)
        stack.enter_context(for_refresh(session, job))
        changed = open_changes(views, job.sources)
        if not changed:
            return _nothing(session, job)
        plan = plan_of(changed)
        words = views_read(plan)
        stack.enter_context(opened_rows(views, job.sources, words))
        if RESULT in words:
            result.open()
        reads_files = make_steps(result, plan)
        with in_one_task(session) if result.few and not reads_files else nullcontext():
            net = result.net(plan.change)
        return RefreshFiles(result, net, result.going(net)).stage(changed)


def views_read(plan: IncrementalPlan) -> frozenset[str]:
    """The words of a plan's SQL, among which are the views that it reads."""
    change = plan.change
    named = [change.view] if isinstance(change, WeightedRows) else [change.keys, change.rows]
    return frozenset(named).union(*(_words(step.sql) for step in plan.steps))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def make_steps(result: ResultRows, plan: IncrementalPlan) -> bool:
    """Make the views of a plan. Returns whether files are read for the change."""
    views, sources = result.views, result.job.sources
    reading = {name for source in sources for name in (new(source.number), old(source.number))}
    if result.rows is None:
        reading.add(RESULT)
    leaves: dict[str, int] = {}
    for step in plan.steps:
        words = re.findall(r"\w+", step.sql)
        leaves[step.view] = sum(leaves.get(word, 0) for word in words) or 1
        if not reading.isdisjoint(words):
            reading.add(step.view)
        if step.kept and not result.few:
            views.keep(step.view, step.sql)
            views.count(step.view)
        elif step.kept and (step.view in reading or leaves[step.view] > _FEW_LEAVES):
            views.keep(step.view, step.sql)
            leaves[step.view] = 1
        else:  # also if it is kept: few rows of this process are computed again in less time than keeping them takes
            views.make(step.view, step.sql)
    if isinstance(plan.change, ReplacedKeys) and RESULT in reading:
        return True
    return not reading.isdisjoint(views_read(plan))


def _nothing(session: SparkSession, job: RefreshJob) -> StagedRefresh:
    """A refresh that only changes the state."""
    base = job.base
    target = CommitTarget(session, base.name, base.uuid, base.schema_id)
    none = StagedFiles(target.load().io(), ())
    return StagedRefresh(
        StagedEdit(target, base.snapshot_id, none, 0, {}, {}, job.summary), RefreshCounts(unchanged=live_rows(job))
    )


def commit_refresh(session: SparkSession, staged: StagedRefresh, batch: str, gate: Gate) -> int:
    """Commit a refresh, with its state, and return the snapshot's id. If nothing changed, the commit has no files.

    Raises FilesChanged if the rows that it deletes were deleted or rewritten since, RowCountMismatch if the numbers of
    rows do not add up, TableChanged if the table is another one, and what the gate raises; then nothing was changed,
    and what was written is deleted.
    """
    return commit_staged(staged.edit, batch, gate)

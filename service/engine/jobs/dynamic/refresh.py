"""The steps of a refresh: compute the result or its change, write the rows, then make all of it in one commit.

The first two need no lock of the result's table; the last one does.
"""

from service.engine.iceberg.swap import Gate, Tag
from service.engine.jobs.dynamic.job import RefreshCounts, RefreshJob, StagedRefresh
from service.engine.jobs.edits.publish import commit_staged
from service.engine.session.spark_types import SparkSession
from service.model.dynamic.plan import IncrementalPlan


def stage_all(session: SparkSession, job: RefreshJob, full_sql: str) -> StagedRefresh:
    """Compute the whole result, a SELECT over the views `s{i}_new`, in place of the table's rows."""
    raise NotImplementedError


def stage_change(session: SparkSession, job: RefreshJob, plan: IncrementalPlan) -> StagedRefresh:
    """Compute how the result changes. Rows that come out equal stay where they are."""
    raise NotImplementedError


def commit_refresh(staged: StagedRefresh, batch: str, gate: Gate, tag: Tag | None = None) -> int:
    """Commit a refresh, with its state, and return the snapshot's id. If nothing changed, the commit has no files.

    Raises FilesChanged if the rows that it deletes were deleted or rewritten since, RowCountMismatch if the numbers of
    rows do not add up, TableChanged if the table is another one, and what the gate raises; then nothing was changed,
    and what was written is deleted.
    """
    return commit_staged(staged.edit, batch, gate, tag)


def replace_all(
    session: SparkSession, job: RefreshJob, full_sql: str, batch: str, gate: Gate
) -> tuple[int, RefreshCounts]:
    """Both steps of a full refresh. Returns the snapshot's id."""
    staged = stage_all(session, job, full_sql)
    return commit_refresh(staged, batch, gate), staged.counts


def apply_change(
    session: SparkSession, job: RefreshJob, plan: IncrementalPlan, batch: str, gate: Gate
) -> tuple[int, RefreshCounts]:
    """Both steps of an incremental refresh. Returns the snapshot's id."""
    staged = stage_change(session, job, plan)
    return commit_refresh(staged, batch, gate), staged.counts

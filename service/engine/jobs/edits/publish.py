"""The last steps of an edit: write the rows that it leaves or adds, then make all its changes in one commit."""

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from service.engine.iceberg import scan_tasks
from service.engine.iceberg.position_deletes import Places
from service.engine.iceberg.replace import Evolution
from service.engine.iceberg.row_replacement import RowReplacement, commit_rows
from service.engine.iceberg.staging import StagedFiles, readable, stage_rows
from service.engine.iceberg.swap import CommitTarget, Gate, Tag
from service.engine.jobs.edit import (
    SHUFFLED_BYTES,
    EditBase,
    FoundEdit,
    FoundRows,
    count_rows,
    failures_named,
    filled,
)
from service.engine.jobs.edits.staged_records import new_staged_rows
from service.engine.session.rows import frame
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql import edit_sql as sql
from service.engine.sql.sql import Parameters
from service.model.edits import ByFilter, ByKey, Edit, StagedRecords
from service.model.names import EDIT_PROPERTY, KEYS_PROPERTY

# So many changed rows are written by one task, into one file for each partition.
_FEW_ROWS = 50_000


@dataclass(frozen=True)
class StagedEdit:
    """An edit that only has to be committed."""

    target: CommitTarget
    based_on: int | None
    added: StagedFiles
    expected: int
    deleted: Places
    removed: Mapping[str, int]
    summary: Mapping[str, str]
    evolve: Callable[[Any], Evolution] | None = None
    """Of the table's newest metadata, other columns or partitioning to commit with the files."""
    no_deletes: bool = False
    """Whether the table is known to have no delete files."""


@dataclass(frozen=True)
class AppliedRows:
    """The rows that come of an edit, with those that stay of files that are written again."""

    rows: pa.Table
    kept: int = 0
    """How many of them stay."""
    again: frozenset[str] = frozenset()
    """The files that are written again. All others with rows of the edit get delete files."""


def publish(found: FoundEdit, batch: str, counts: Mapping[str, int], gate: Gate, tag: Tag | None = None) -> int:
    """Make an edit in one commit, with the counts in its summary, and return its snapshot's id.

    Raises RowCountMismatch if the numbers of rows do not add up, TableChanged if another writer committed first, and
    what the gate raises; then nothing was changed.
    """
    return commit_staged(stage(found, counts), batch, gate, tag)


def stage(found: FoundEdit, counts: Mapping[str, int]) -> StagedEdit:
    """Write the rows that an edit leaves or adds, without committing them."""
    session, base, edit, rows = found.session, found.base, found.edit, found.rows
    target = CommitTarget(session, base.name, base.uuid, base.schema_id)
    iceberg = target.load()
    updates = isinstance(edit.which, ByKey) or (isinstance(edit.which, ByFilter) and edit.which.assignments is not None)
    whole = base.whole(rows.files)
    rewritten = base.rewritten({path: n for path, n in rows.files.items() if updates or path not in whole})
    whole -= rewritten
    by_place = frozenset(rows.files.keys() - whole - rewritten)
    with failures_named(session, edit, found.source):
        staged, live = _staged(found, iceberg, rewritten, by_place | whole if updates else frozenset())
    gone = 0 if updates else sum(rows.files[path] for path in rewritten)
    changed = sum(rows.files[path] for path in by_place | whole) if updates else 0
    return StagedEdit(
        target,
        base.snapshot_id,
        staged,
        live - gone - rows.replaced + changed + rows.inserted,
        rows.places.in_files(by_place),
        {path: base.rows[path] for path in whole | rewritten},
        _summary(edit, counts),
    )


def stage_applied(
    session: SparkSession, base: EditBase, edit: Edit, rows: FoundRows, come: AppliedRows, counts: Mapping[str, int]
) -> StagedEdit:
    """Write the rows that come of an edit that was applied already."""
    target = CommitTarget(session, base.name, base.uuid, base.schema_id)
    added = stage_rows(target.load(), frame(session, come.rows).coalesce(1))
    return StagedEdit(
        target,
        base.snapshot_id,
        added,
        rows.hits + rows.inserted + come.kept,
        rows.places.in_files(rows.files.keys() - come.again),
        {path: base.rows[path] for path in come.again},
        _summary(edit, counts),
    )


def _summary(edit: Edit, counts: Mapping[str, int]) -> dict[str, str]:
    summary = {EDIT_PROPERTY: json.dumps(counts)}
    if isinstance(edit.which, ByKey):
        summary[KEYS_PROPERTY] = json.dumps(edit.which.how.keys)
    return summary


def commit_staged(staged: StagedEdit, batch: str, gate: Gate, tag: Tag | None = None) -> int:
    """Commit an edit, as `publish` does. Raises FilesChanged if its files have changed since."""
    change = RowReplacement(
        batch,
        staged.based_on,
        staged.added,
        staged.expected,
        staged.deleted,
        staged.removed,
        staged.summary,
        tag,
        staged.evolve,
        staged.no_deletes,
    )
    return commit_rows(staged.target, change, gate)


def _staged(
    found: FoundEdit, iceberg: Any, rewritten: frozenset[str], changed: frozenset[str]
) -> tuple[StagedFiles, int]:
    """Write the rows of files to rewrite, the changed rows of others, and new rows. Also returns how many rows the
    files to rewrite have now."""
    session, base, edit, new = found.session, found.base, found.edit, found.rows.new
    replaced = bool(found.rows.replaced)
    views: dict[str, DataFrame] = {}
    if found.rows.inserted:
        views[sql.NEW] = new_staged_rows(session, edit) if new is None else filled(session, edit, new)
    if found.rows.changed_records is not None:
        views[sql.RECORDS] = frame(session, found.rows.changed_records)
    parameters, parts, live = Parameters(), list[sql.SqlStatement](), 0
    with ExitStack() as stack:
        stack.enter_context(sql.viewed(views))

        def source_of(paths: frozenset[str]) -> str:
            assert base.snapshot_id is not None
            return stack.enter_context(readable(iceberg, scan_tasks.tasks(iceberg, base.snapshot_id, paths)))

        if rewritten:
            source = source_of(rewritten)
            parts.append(sql.rewritten(edit, source, parameters, replaced=replaced))
            counted = [base.live(path) for path in rewritten]
            live = count_rows(session, source) if None in counted else sum(count or 0 for count in counted)
        if changed and isinstance(edit.which, ByFilter | ByKey):
            few = sum(found.rows.files[path] for path in changed) <= _FEW_ROWS
            source = source_of(changed)
            parts.append(sql.changed_rows(edit, edit.which, source, parameters, few=few, replaced=replaced))
        if found.rows.inserted:
            parts.append(sql.new_rows(edit.schema, parameters))
        if not parts:
            return StagedFiles(iceberg.io(), ()), live
        size = base.bytes_of(rewritten) + _staged_bytes(edit)
        options = {"distribution-mode": "hash"} if size > SHUFFLED_BYTES else {}
        return stage_rows(iceberg, sql.together(parts).on(session), options), live


def _staged_bytes(edit: Edit) -> int:
    records = edit.which.records if isinstance(edit.which, ByKey) else None
    return records.bytes if isinstance(records, StagedRecords) else 0

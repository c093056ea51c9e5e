"""Edits that share a commit with others, if they name their rows by key; the others get a commit of their own."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from service.catalog.tables import Table
from service.commits.backups import Backups
from service.model.call import Call
from service.model.keyed.changes import KeyedChange
from service.operations.edit_requests import EditRequest, EditResult
from service.operations.operation import Metadata, Pool, Result
from service.writes.keyed.edit import PendingEdit, SharedEditOutcome
from service.writes.writes import Writes

E = TypeVar("E", bound=EditResult)


def edit_pool(request: EditRequest) -> Pool:
    """Where an edit runs: those that may share a commit wait for it without a thread."""
    return "queued" if may_share(request) else "edits"


def may_share(request: EditRequest) -> bool:
    """Whether an edit may share a commit, if its rows are found by key. A backup is of the state before one edit, and
    only an edit of its own is previewed, or held to its preview."""
    asks = (request.dry_run, request.plan_token, request.create_backup)
    return not any(asks) and request.backup_retention_hours is None and request.partition_filter is None


def share(
    request: EditRequest,
    call: Call,
    writes: Writes,
    backups: Backups,
    plan: Callable[[Table], KeyedChange | None],
    respond: Callable[[SharedEditOutcome], Result],
    alone: Callable[[], Result],
) -> "Result | Future[bytes]":
    """Make an edit: with others if `plan` says how, else by `alone`."""
    if not may_share(request):
        return alone()

    def plan_here(table: Table) -> KeyedChange | None:
        change = plan(table)
        return None if request.backup(backups, table) else change

    entry = PendingEdit(
        request.operation,
        request.table_name,
        call,
        call.size,
        plan_here,
        lambda outcome: call.respond(respond(outcome)),
        lambda: call.respond(alone()),
    )
    return writes.edit(entry)


def shared_edit(outcome: SharedEditOutcome, result: type[E], **counts: Any) -> E:
    """The response to an edit that shared a commit."""
    part, check = outcome.part, outcome.check
    return result.model_validate(
        {
            **counts,
            "files_affected": part.files,
            "partitions_affected": part.partitions,
            "scanned_files": part.scanned_files,
            "compaction_recommended": check.compaction_recommended,
            "small_files_count": check.small_files_count,
            "metadata": Metadata(snapshot_id=outcome.snapshot_id),
        }
    )

"""UPDATE, DELETE and UPSERT: they share a commit with others if they name their rows by key; else each has its own."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from typing import Any

from service.catalog.tables import Table
from service.commits.backups import Backups
from service.commits.commit import Commits
from service.commits.small_files import SmallFileChecks
from service.edits.edits import CheckEdit, EditCounts, Edits, PlanEdit
from service.edits.keyed import MOST_KEYS, keyed_change
from service.engine.jobs.edit import FoundRows
from service.model.call import Call
from service.model.dynamic.definition import refuse_dynamic_table
from service.model.edits import Edit
from service.model.keyed.changes import KeyedChange
from service.operations.edit_requests import EditRequest, EditResult, advice, advice_of, edit_figures, edited
from service.operations.operation import DryRunResult, Metadata, Pool, Result
from service.writes.keyed.edit import PendingEdit, SharedEditOutcome
from service.writes.writes import Writes


def edit_pool(request: EditRequest) -> Pool:
    """Where an edit runs: those that may share a commit wait for it without a thread."""
    return "queued" if may_share(request) else "edits"


def may_share(request: EditRequest) -> bool:
    """Whether an edit may share a commit, if its rows are found by key. A backup is of the state before one edit, and
    only an edit of its own is previewed, or held to its preview. Many records are not read twice to find out."""
    records = getattr(request, "records", None)
    many = isinstance(records, list) and len(records) > MOST_KEYS
    asks = (request.dry_run, request.plan_token, request.create_backup, many)
    return not any(asks) and request.backup_retention_hours is None and request.partition_filter is None


@dataclass(frozen=True)
class EditResponses:
    """The models of an operation's responses, and its own fields in them."""

    result: type[EditResult]
    dry_run: type[DryRunResult]
    fields: Callable[[EditCounts], dict[str, Any]]


@dataclass(frozen=True)
class RowEdits:
    """Makes edits of rows."""

    commits: Commits
    backups: Backups
    edits: Edits
    small_files: SmallFileChecks
    writes: Writes

    def make(
        self,
        request: EditRequest,
        call: Call,
        plan: PlanEdit,
        responses: EditResponses,
        check: CheckEdit = lambda edit, found: None,
    ) -> "Result | Future[bytes]":
        """Make an edit: `plan` says what it means for a table."""

        def planned(table: Table) -> Edit:
            refuse_dynamic_table(table.properties, table.name.table, request.operation)
            return plan(table)

        def alone() -> Result:
            table = self.commits.table(request.table_name, call)
            outcome = self.edits.run(table, request.operation, planned, request.options(self.backups), call, check)
            fields = responses.fields(outcome.counts)
            return edited(outcome, responses.result, responses.dry_run, **fields, **advice(outcome, self.small_files))

        def change(table: Table) -> KeyedChange | None:
            edit = planned(table)
            shared = keyed_change(table, edit, lambda new: check(edit, FoundRows({}, 0, new=new)))
            return None if request.backup(self.backups, table) else shared

        if not may_share(request):
            return alone()
        return self.writes.edit(
            PendingEdit(
                request.operation,
                request.table_name,
                call,
                call.size,
                change,
                lambda outcome: call.respond(_shared(outcome, responses)),
                lambda: call.respond(alone()),
            )
        )


def _shared(outcome: SharedEditOutcome, responses: EditResponses) -> EditResult:
    """The response to an edit that shared a commit."""
    part = outcome.part
    counts = EditCounts(
        **asdict(part.counts), files=part.files, partitions=part.partitions, scanned_files=part.scanned_files
    )
    metadata = Metadata(snapshot_id=outcome.snapshot_id)
    fields = {**responses.fields(counts), **edit_figures(counts), **advice_of(outcome.check)}
    return responses.result.model_validate({**fields, "metadata": metadata})

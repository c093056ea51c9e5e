"""What the requests and responses of edits share."""

from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, Field

from service.catalog.tables import Table
from service.commits import tokens
from service.commits.backups import Backups
from service.commits.small_files import NOT_CHECKED, SmallFileCheck, SmallFileChecks
from service.edits.edits import EditCounts, EditOptions, EditOutcome
from service.edits.restore import RestoreOutcome
from service.engine.iceberg.swap import Tag
from service.engine.jobs.edits.preview import RowSample
from service.errors import InvalidRequest
from service.model.call import fingerprint
from service.model.filters.filters import parse_request_filter
from service.model.filters.predicates import EVERY_ROW, And, Predicate
from service.model.filters.pruning import partition_predicate
from service.model.schema.columns import columns_of
from service.model.schema.partition import PartitionField
from service.model.schema.types import TableSchema
from service.operations.operation import (
    ChangeRequest,
    DryRunResult,
    Metadata,
    Plan,
    PreviewableRequest,
    Result,
    omit_when_null,
)
from service.settings.kinds import KeptHours

# These fields say how to make an edit. The others say which edit it is, and enter its digest.
_OPTIONS = frozenset({"dry_run", "plan_token", "idempotency_key", "create_backup", "backup_retention_hours", "confirm"})


class BackedUpRequest(ChangeRequest):
    """A change that can keep the previous state as a backup."""

    create_backup: bool | None = Field(
        default=None, description="back up the previous state; default: the table's setting"
    )
    backup_retention_hours: KeptHours | None = Field(
        default=None, description="how long to keep the backup; default: the table's"
    )

    def backup(self, backups: Backups, table: Table) -> Tag | None:
        """The tag that keeps the previous state; None if no backup is wanted."""
        return backups.wanted(table, self.create_backup, self.backup_retention_hours, self.operation)


class EditRequest(BackedUpRequest, PreviewableRequest):
    """A request that changes rows in place. It can be held to its preview."""

    partition_filter: Any = Field(
        default=None,
        description="a filter on partition columns: the edit is limited to the rows that match, and reads no files of "
        "other partitions",
    )
    plan_token: str | None = Field(
        default=None,
        min_length=1,
        max_length=4000,
        description="from a dry run of this request: commit only if the rows are still the same, or else PLAN_STALE",
    )

    def partition_rows(self, schema: TableSchema, partition: tuple[PartitionField, ...]) -> Predicate:
        """The rows that `partition_filter` limits the edit to."""
        if self.partition_filter is None:
            return EVERY_ROW
        return partition_predicate(self.partition_filter, schema, partition)

    def options(self, backups: Backups) -> EditOptions:
        """How to make the edit."""
        digest = fingerprint({k: v for k, v in self.model_dump(mode="python").items() if k not in _OPTIONS})
        token = None if self.plan_token is None else tokens.read(self.plan_token, digest)
        return EditOptions(digest, self.dry_run, token, partial(self.backup, backups), self.partition_filter)


class RowsRequest(EditRequest):
    """An edit of the rows that match a filter, or explicitly of every row."""

    filter: Any = Field(default=None, description="which rows, in either filter dialect")
    filters: Any = Field(default=None, description="another name for `filter`")
    all: bool = Field(default=False, description="every row; required if there is no filter")

    def predicate(self, schema: TableSchema, partition: tuple[PartitionField, ...]) -> Predicate:
        """The rows to edit. A missing or empty filter is refused: it must not mean every row by mistake."""
        filtered = self.filter is not None or self.filters is not None
        if self.all and filtered:
            raise InvalidRequest("all: true and a filter contradict each other; send one of them", field="all")
        if not self.all and not filtered:
            raise InvalidRequest("filter is missing; send one, or all: true for every row", field="filter")
        if not self.all and _is_empty(self.filter if self.filters is None else self.filters):
            raise InvalidRequest("filter is empty; send a condition, or only all: true for every row", field="filter")
        rows = parse_request_filter(self.filter, self.filters, columns_of(schema))
        limit = self.partition_rows(schema, partition)
        return rows if limit == EVERY_ROW else limit if rows == EVERY_ROW else And((limit, rows))


class SampledRow(BaseModel):
    """A row that an edit changes."""

    before: dict[str, Any] | None = omit_when_null("the current row; absent if it would be inserted")
    after: dict[str, Any] | None = omit_when_null("the row after the edit; absent if it would be deleted")

    @classmethod
    def of(cls, sample: RowSample) -> "SampledRow":
        return cls(before=_row(sample.before), after=_row(sample.after))


class BackedUpResult(Result):
    """The response to a change that can keep the previous state as a backup.

    The counts of an operation come in a base class after this one: pydantic puts the fields of the last base first.
    """

    backup: str | None = omit_when_null("the name of the backup of the previous state, if one was made")


class SampledPlan(Plan):
    """What a change of rows would do. The counts of an operation come in a base class after this one."""

    sample: list[SampledRow] = Field(description="up to 20 of the rows, before and after")


class EditFigures(BaseModel):
    """What every edit counts."""

    files_affected: int = Field(description="data files with rows to change; they are rewritten or removed")
    partitions_affected: int = Field(description="partitions of those files; an unpartitioned table counts as one")
    scanned_files: int = Field(description="data files opened to find the rows; 0 if metadata was enough")


class EditResult(BackedUpResult, EditFigures):
    """The response to an edit."""


class CompactionAdvice(BaseModel):
    """What the check for small files found, which every change of rows makes from time to time."""

    compaction_recommended: bool = Field(description="whether COMPACT would find enough small files to merge")
    small_files_count: int | None = omit_when_null("small files in the table; absent if this request did not check")


class EditPlan(SampledPlan, EditFigures):
    """What an edit would do."""

    plan_token: str = Field(description="send it with the same request to commit exactly this")


LOST = "rows of a REPLAY that are then neither in the table nor in its quarantine, and how to get them back"


class RestoreFigures(BaseModel):
    """What every restore of earlier rows counts."""

    records_before: int = Field(description="rows in the table before")
    records_after: int = Field(description="rows in the restored state, and in the table afterwards")
    files_removed: int = Field(description="data files removed, with rows that the restored state lacks")
    files_added: int = Field(
        description="new data files with rows that the table lacked; if `estimated` names it, the number of files that "
        "have these rows now"
    )


class RestoreResult(BackedUpResult, RestoreFigures):
    """The response to a change that restores earlier rows. The fields of an operation come in a base after this one."""

    reason: str | None = omit_when_null("why the table was not changed, if so")
    warnings: list[str] | None = omit_when_null(LOST)


class RestorePlan(Plan, RestoreFigures):
    """What a restore of earlier rows would do."""

    reason: str | None = omit_when_null("why nothing would change, if so")
    warnings: list[str] | None = omit_when_null(LOST)
    estimated: list[str] | None = omit_when_null(
        "the figures that are only estimates, as for more than 64 MB, or rows that change partitions"
    )


E = TypeVar("E", bound=EditResult)
P = TypeVar("P", bound=DryRunResult)


def restore_fields(outcome: RestoreOutcome) -> dict[str, Any]:
    """The fields of RestoreResult."""
    metadata = Metadata(snapshot_id=outcome.snapshot_id)
    return {**_restored(outcome), "reason": outcome.reason, "backup": outcome.backup, "metadata": metadata}


def restore_plan(outcome: RestoreOutcome) -> dict[str, Any]:
    """The fields of RestorePlan."""
    changes = outcome.files_removed or outcome.files_added
    estimated = ["files_added"] if outcome.is_estimate else None
    return {**_restored(outcome), "reason": None if changes else outcome.reason, "estimated": estimated}


def _restored(outcome: RestoreOutcome) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in RestoreFigures.model_fields}


def advice(outcome: EditOutcome, small_files: SmallFileChecks) -> dict[str, Any]:
    """The fields of CompactionAdvice; none for a dry run."""
    if outcome.samples is not None:
        return {}
    commit = outcome.commit
    return advice_of(small_files.check_after_write(commit.after) if commit.snapshot else NOT_CHECKED)


def advice_of(check: SmallFileCheck) -> dict[str, Any]:
    """The fields of CompactionAdvice."""
    return {"compaction_recommended": check.compaction_recommended, "small_files_count": check.small_files_count}


def edited(outcome: EditOutcome, result: type[E], preview: type[P], **counts: Any) -> E | P:
    """The response to an edit or, if it has samples, to its dry run."""
    metadata = Metadata(snapshot_id=outcome.commit.snapshot_id)
    figures = {**counts, **edit_figures(outcome.counts)}
    if outcome.samples is None:
        return result.model_validate({**figures, "backup": outcome.backup, "metadata": metadata})
    plan = {**figures, "sample": sampled(outcome.samples), "plan_token": outcome.plan_token}
    return preview.model_validate({"plan": plan, "metadata": metadata})


def edit_figures(counts: EditCounts) -> dict[str, int]:
    """The fields of EditFigures."""
    return {
        "files_affected": counts.files,
        "partitions_affected": counts.partitions,
        "scanned_files": counts.scanned_files,
    }


def sampled(samples: tuple[RowSample, ...]) -> list[SampledRow]:
    return [SampledRow.of(sample) for sample in samples]


def _row(row: Any) -> dict[str, Any] | None:
    return None if row is None else dict(row)


def _is_empty(filter_json: Any) -> bool:
    """Whether a filter has no condition at any depth."""
    if isinstance(filter_json, dict):
        return all(key in ("and", "or", "not") and _is_empty(value) for key, value in filter_json.items())
    return filter_json is None or (isinstance(filter_json, list) and all(map(_is_empty, filter_json)))

"""What the requests of several operations have in common."""

from functools import partial
from typing import Any

from pydantic import BaseModel, Field

from service.catalog.tables import Table
from service.commits.backups import Backups
from service.edits import tokens
from service.edits.edits import EditOptions, EditOutcome
from service.engine.iceberg.swap import Tag
from service.engine.jobs.edit import RowSample
from service.errors import InvalidRequest
from service.model.call import fingerprint
from service.model.filters.filters import parse_either
from service.model.filters.predicates import EVERY_ROW, And, Predicate
from service.model.filters.pruning import partition_predicate
from service.model.schema.columns import columns_of
from service.model.schema.partition import PartitionField
from service.model.schema.types import TableSchema
from service.operations.operation import ChangeRequest, Metadata, Result, omit_when_null
from service.settings import KeptHours

# What a request says of how an edit is made, not of the edit.
_HOW = frozenset({"dry_run", "plan_token", "idempotency_key", "create_backup", "backup_retention_hours"})


class BackedUpRequest(ChangeRequest):
    """A change that can keep the state before it."""

    create_backup: bool | None = Field(
        default=None, description="keep the state before as a backup, which the answer names; default: the table's own"
    )
    backup_retention_hours: KeptHours | None = Field(default=None, description="for how long; default: the table's own")

    def backup(self, backups: Backups, table: Table) -> Tag | None:
        """The tag that keeps the state before, if that is wanted."""
        return backups.wanted(table, self.create_backup, self.backup_retention_hours, self.operation)


class EditRequest(BackedUpRequest):
    """A request that changes rows in place. It can be previewed, and held to its preview."""

    partition_filter: Any = Field(
        default=None,
        description="a filter on partition columns: only rows it is true of are concerned, and no file of another "
        "partition is read",
    )
    dry_run: bool = Field(default=False, description="only say what would change, in numbers and some rows")
    plan_token: str | None = Field(
        default=None,
        min_length=1,
        max_length=4000,
        description="what a dry run of this request gave: commit only if the rows concerned are still the same",
    )

    def within(self, schema: TableSchema, partition: tuple[PartitionField, ...]) -> Predicate:
        """The rows that the edit is kept to."""
        if self.partition_filter is None:
            return EVERY_ROW
        return partition_predicate(self.partition_filter, schema, partition)

    def wish(self, backups: Backups) -> EditOptions:
        """How the edit is wanted."""
        said = fingerprint({k: v for k, v in self.model_dump(mode="python").items() if k not in _HOW})
        token = None if self.plan_token is None else tokens.read(self.plan_token, said)
        return EditOptions(said, self.dry_run, token, partial(self.backup, backups), self.partition_filter)


class RowsRequest(EditRequest):
    """A request for the rows that a filter finds, or expressly for all."""

    filter: Any = Field(default=None, description="which rows, in either filter dialect")
    filters: Any = Field(default=None, description="another name for filter")
    all: bool = Field(default=False, description="every row; needed where no filter is given")

    def predicate(self, schema: TableSchema, partition: tuple[PartitionField, ...]) -> Predicate:
        """The rows meant. A forgotten filter must not mean every row."""
        filtered = self.filter is not None or self.filters is not None
        if self.all and filtered:
            raise InvalidRequest("all: true and a filter contradict each other; send one of them", field="all")
        if not self.all and not filtered:
            raise InvalidRequest("filter is missing; say which rows, or all: true for every row", field="filter")
        if not self.all and _says_nothing(self.filter if self.filters is None else self.filters):
            raise InvalidRequest(
                "filter is empty; say which rows, or send all: true alone for every row", field="filter"
            )
        rows = parse_either(self.filter, self.filters, columns_of(schema))
        within = self.within(schema, partition)
        return rows if within == EVERY_ROW else within if rows == EVERY_ROW else And((within, rows))


class SampledRow(BaseModel):
    """A row that an edit concerns."""

    before: dict[str, Any] | None = Field(description="the row as it is; null for one that is added")
    after: dict[str, Any] | None = Field(description="the row as it would be; null for one that goes")

    @classmethod
    def of(cls, sample: RowSample) -> "SampledRow":
        return cls(before=_row(sample.before), after=_row(sample.after))


class EditResult(Result):
    """What the answers to edits have in common.

    An answer's own counts stand in a base beside this one: pydantic takes the fields of the last base first.
    """

    files_affected: int = Field(description="data files that held a row concerned; they are written anew, or go")
    partitions_affected: int = Field(description="partitions that those files lie in; of a table without, one")
    scanned_files: int = Field(description="data files that were opened to find the rows; 0 where metadata told")
    backup: str | None = omit_when_null(
        "the backup of the state before, where one was made; RESTORE_BACKUP takes its name"
    )
    dry_run: bool | None = omit_when_null("true where nothing was changed, as asked")
    sample: list[SampledRow] | None = omit_when_null("for a dry run: up to 20 of the rows, before and after")
    plan_token: str | None = omit_when_null(
        "for a dry run: send it with the same request to have just this done, or PLAN_STALE"
    )


def edit_fields(outcome: EditOutcome) -> dict[str, Any]:
    """An outcome as the fields that all edits' answers have."""
    previewed: dict[str, Any] = {}
    if outcome.samples is not None:
        sample = [SampledRow.of(s) for s in outcome.samples]
        previewed = {"dry_run": True, "sample": sample, "plan_token": outcome.plan_token}
    return {
        "files_affected": outcome.counts.files,
        "partitions_affected": outcome.counts.partitions,
        "scanned_files": outcome.counts.scanned_files,
        "backup": outcome.backup,
        "metadata": Metadata(snapshot_id=outcome.commit.snapshot_id),
        **previewed,
    }


def _row(row: Any) -> dict[str, Any] | None:
    return None if row is None else dict(row)


def _says_nothing(filter_json: Any) -> bool:
    """Whether a filter holds no condition at all, however it is nested."""
    if isinstance(filter_json, dict):
        return all(key in ("and", "or", "not") and _says_nothing(value) for key, value in filter_json.items())
    return filter_json is None or (isinstance(filter_json, list) and all(map(_says_nothing, filter_json)))

"""WRITE: append records to a table, or replace its contents."""

from concurrent.futures import Future
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.catalog.tables import Table
from service.commits.backups import Backups
from service.commits.commit import Commits
from service.commits.small_files import NOT_CHECKED, SmallFileChecks
from service.edits.edits import Edits
from service.engine.session.rows import to_arrow
from service.errors import InvalidRequest
from service.model.call import Call
from service.model.dynamic.definition import refuse_dynamic_table
from service.model.edits import ByFilter, Edit
from service.model.ingest.reserved import refuse_ingestion_table
from service.model.records import read_records
from service.operations.edit_requests import EditPlan, EditRequest, advice_of, edit_figures, sampled
from service.operations.examples import create_table, edit_response, response
from service.operations.operation import DryRunResult, Example, Metadata, Result, omit_when_null, operation
from service.writes.entry import WriteOutcome
from service.writes.writes import Writes

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "customers"}
CREATE = create_table(ADDRESS, {"name": "string", "age": "integer"}, required=["name"])
APPEND = {
    "operation": "WRITE",
    **ADDRESS,
    "records": [{"name": "Ann", "age": 31}, {"name": "Bo", "age": None}, {"name": "Cy"}],
}
OVERWRITE = {**APPEND, "mode": "overwrite", "records": [{"name": "Di", "age": 44}]}
BATCH = {"requests": "<any>", "records": "<any>"}


def _response(body: dict[str, Any], **more: Any) -> dict[str, Any]:
    metadata = {**body.pop("metadata"), **more}
    return {**body, "compaction_recommended": False, "metadata": metadata}


EXAMPLES = (
    Example("Append records", APPEND, _response(response(records_written=3), batch=BATCH), given=(CREATE,)),
    Example(
        "Replace the table's contents",
        OVERWRITE,
        _response(
            edit_response(records_written=1, records_inserted=1, records_deleted=3, scanned_files=0), batch=BATCH
        ),
        given=(CREATE, APPEND),
    ),
    Example(
        "See what replacing the contents would do",
        {**OVERWRITE, "dry_run": True},
        edit_response(
            records_inserted=1,
            records_deleted=1,
            sample=[
                {"before": {"name": "Ann", "age": 31}},
                {"after": {"name": "Di", "age": 44}},
            ],
        ),
        given=(CREATE, {**APPEND, "records": [{"name": "Ann", "age": 31}]}),
    ),
)


class Write(EditRequest):
    operation: Literal["WRITE"]
    records: list[Any] = Field(description="rows as objects; an absent column is null")
    mode: Literal["append", "overwrite"] = Field(
        default="append",
        description="add rows, or replace rows in one commit: all rows, or those that match partition_filter",
    )


class Batch(BaseModel):
    """A commit that concurrent WRITEs share."""

    model_config = ConfigDict(extra="forbid")

    requests: int = Field(description="the number of WRITEs in the commit")
    records: int = Field(description="the number of records in the commit")


class WriteMetadata(Metadata):
    batch: Batch | None = omit_when_null("the whole commit; absent if nothing was written")


class WriteResult(Result):
    records_written: int = Field(description="records written")
    records_inserted: int | None = omit_when_null("with `overwrite`: rows inserted")
    records_deleted: int | None = omit_when_null("with `overwrite`: rows replaced")
    files_affected: int | None = omit_when_null("with `overwrite`: data files that held the replaced rows")
    partitions_affected: int | None = omit_when_null("with `overwrite`: partitions of those files")
    scanned_files: int | None = omit_when_null("with `overwrite`: data files opened to find the rows")
    backup: str | None = omit_when_null("with `overwrite`: the name of the backup of the previous state")
    compaction_recommended: bool = Field(description="whether COMPACT would find enough small files to merge")
    small_files_count: int | None = omit_when_null("small files in the table; absent if this write did not check")
    metadata: WriteMetadata = Field(default_factory=WriteMetadata)


class OverwritePlan(EditPlan):
    """What a WRITE with `overwrite` would do."""

    records_inserted: int = Field(description="rows to insert")
    records_deleted: int = Field(description="rows to replace")


class WriteDryRun(DryRunResult):
    plan: OverwritePlan = Field(description="what would happen")


@operation(
    Write,
    WriteResult,
    pool=lambda request: "inline" if request.mode == "append" else "edits",
    examples=EXAMPLES,
    also=(WriteDryRun,),
)
def write(
    request: Write,
    call: Call,
    commits: Commits,
    backups: Backups,
    edits: Edits,
    small_files: SmallFileChecks,
    writes: Writes,
) -> "WriteResult | WriteDryRun | Future[bytes]":
    """Append records to a table, or replace its contents; either all of the request takes effect or none of it."""
    if request.mode == "append":
        _refuse_for_append(request)
        return writes.append(request.table_name, request.records, call.size, call, lambda w: call.respond(_result(w)))
    return _overwrite(request, call, commits, backups, edits, small_files)


def _overwrite(
    request: Write, call: Call, commits: Commits, backups: Backups, edits: Edits, small_files: SmallFileChecks
) -> WriteResult | WriteDryRun:
    table = commits.table(request.table_name, call)
    refuse_ingestion_table(table.properties, table.name.table, "WRITE")
    refuse_dynamic_table(table.properties, table.name.table, "WRITE")
    outcome = edits.run(table, "WRITE", partial(_edit, request), request.options(backups), call)
    commit, figures = outcome.commit, edit_figures(outcome.counts)
    figures |= {"records_inserted": outcome.counts.inserted, "records_deleted": outcome.counts.deleted}
    if outcome.samples is not None:
        plan = OverwritePlan(**figures, sample=sampled(outcome.samples), plan_token=outcome.plan_token or "")
        return WriteDryRun(plan=plan, metadata=Metadata(snapshot_id=commit.snapshot_id))
    check = small_files.check_after_write(commit.after) if commit.snapshot else NOT_CHECKED
    count = len(request.records)
    written = _result(WriteOutcome(count, commit.snapshot_id, 1, count, check))
    return written.model_copy(update={**figures, "backup": outcome.backup})


def _edit(request: Write, table: Table) -> Edit:
    schema, replaced = table.schema, request.partition_rows(table.schema, table.partition)
    rows = to_arrow(schema, read_records(schema, request.records))
    return Edit(schema, ByFilter(replaced), added=rows if rows.num_rows else None, derived=table.derived)


def _refuse_for_append(request: Write) -> None:
    """Refuse the fields that only an overwrite supports."""
    for name in ("dry_run", "plan_token", "partition_filter", "create_backup", "backup_retention_hours"):
        if getattr(request, name) not in (None, False):
            raise InvalidRequest(f"{name} needs mode: overwrite; an append changes no existing rows", field=name)


def _result(written: WriteOutcome) -> WriteResult:
    batch = Batch(requests=written.requests_in_batch, records=written.records_in_batch)
    return WriteResult(
        records_written=written.records,
        **advice_of(written.check),
        metadata=WriteMetadata(snapshot_id=written.snapshot_id, batch=batch if batch.requests else None),
    )

"""REINITIALISE_TABLE: empty a table, and optionally change its columns, partitioning and split points."""

from functools import partial
from typing import Any, Literal

from pydantic import Field

from service.catalog.tables import Table
from service.commits.backups import Backups, backup_of
from service.commits.commit import Commits
from service.errors import ConfirmationRequired, InvalidRequest
from service.maintenance.advise.auto import Auto
from service.model.call import Call
from service.model.dynamic.definition import refuse_dynamic_table
from service.model.ingest.reserved import refuse_ingestion_table
from service.model.schema.definition import describe_schema, parse_schema
from service.model.schema.partition import describe_partition
from service.model.schema.ranges import parse_split_points, ranges_of
from service.operations.edit_requests import BackedUpRequest
from service.operations.examples import response, write
from service.operations.operation import Example, Metadata, Result, omit_when_null, operation
from service.settings import IcebergSettings
from service.tables.reinitialise import OPERATION, Reinitialisations, ReinitialiseOptions, reinitialise_options

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "readings"}
SCHEMA = {"fields": {"sensor": {"type": "string", "required": True}, "value": {"type": "double"}}}
CREATE = {"operation": "CREATE_TABLE", **ADDRESS, "schema": {**SCHEMA, "primary_key": ["sensor"]}}
GIVEN = (CREATE, write(ADDRESS, {"sensor": "a1", "value": 0.5}))


def _response(**split: Any) -> dict[str, Any]:
    fields = {"sensor": {"type": "string", "required": True}, "value": {"type": "double", "required": False}}
    return response(
        table_reinitialised=True,
        records_deleted=1,
        files_deleted=1,
        schema={"fields": fields, "primary_key": ["sensor"]},
        partition={"partitions": []},
        **split,
    )


REQUEST = {"operation": OPERATION, **ADDRESS, "confirm": True}
EXAMPLES = (
    Example("Empty a table", REQUEST, _response(), GIVEN),
    Example(
        "Empty a table and split it by ranges of its first key",
        {**REQUEST, "split_points": ["h", "p"]},
        _response(split_points=["h", "p"]),
        GIVEN,
    ),
    Example(
        "Send the points as text, one per line, each in base64",
        {**REQUEST, "delete_partitions": True, "split_points": "aA==\ncA==\n", "split_points_base64": True},
        _response(split_points=["h", "p"]),
        GIVEN,
    ),
)


class ReinitialiseTable(BackedUpRequest):
    operation: Literal["REINITIALISE_TABLE"]
    delete_partitions: bool = Field(default=False, description="remove the partitioning and split points")
    split_points: Any = Field(
        default=None,
        description="values of the first key in order, as a list or as text with one per line; each is the first key "
        "of a range",
    )
    split_points_base64: bool = Field(default=False, description="the points, or their whole text, are in base64")
    schema_: dict[str, Any] | None = Field(
        default=None, alias="schema", description="new columns, as in CREATE_TABLE; default: keep the columns"
    )
    confirm: bool = Field(default=False, description="needed, because every row is deleted")


class ReinitialiseTableResult(Result):
    table_reinitialised: bool = Field(description="true")
    records_deleted: int = Field(description="rows deleted")
    files_deleted: int = Field(description="data files removed; they are deleted when their snapshots expire")
    schema_: dict[str, Any] = Field(serialization_alias="schema", description="the columns now")
    partition: dict[str, Any] = Field(description="the partitioning now")
    split_points: list[Any] | None = omit_when_null("the points that split the table by its first key")
    backup: str | None = omit_when_null("the name of the backup of the previous state, if one was made")


@operation(ReinitialiseTable, ReinitialiseTableResult, pool="edits", examples=EXAMPLES)
def reinitialise_table(
    request: ReinitialiseTable,
    call: Call,
    settings: IcebergSettings,
    commits: Commits,
    auto: Auto,
    backups: Backups,
    reinitialisations: Reinitialisations,
) -> ReinitialiseTableResult:
    """Delete all rows of a table, and optionally change its columns, partitioning and split points, in one commit."""
    if request.split_points is None and request.split_points_base64:
        raise InvalidRequest(
            "split_points_base64 has no meaning without split_points; send them too", field="split_points"
        )
    schema = None if request.schema_ is None else parse_schema(request.schema_)
    split = partial(parse_split_points, request.split_points, encoded=request.split_points_base64)
    table = commits.table(request.table_name, call)
    refuse_ingestion_table(table.properties, table.name.table, "REINITIALISE_TABLE")
    refuse_dynamic_table(table.properties, table.name.table, "REINITIALISE_TABLE")

    def decide(current: Table) -> ReinitialiseOptions:
        return reinitialise_options(
            current,
            schema,
            None if request.split_points is None else split,
            delete_partitions=request.delete_partitions,
            settings=settings.compaction,
        )

    if call.earlier is None:  # an earlier attempt with this key may have made the change already
        decide(table)  # refuse an impossible request before it waits for the table's lock
    tag = request.backup(backups, table)
    if not request.confirm:  # last, so that nobody confirms what would fail
        raise ConfirmationRequired(
            "REINITIALISE_TABLE deletes every row of the table; send confirm: true to do it", field="confirm"
        )
    commit = reinitialisations.run(table, decide, tag, call)
    auto.policy_changed(table.name)
    after, snapshot = commit.after, commit.snapshot
    ranges = ranges_of(after.properties)
    return ReinitialiseTableResult(
        table_reinitialised=True,
        records_deleted=snapshot.counted("deleted-records") if snapshot else 0,
        files_deleted=snapshot.counted("deleted-data-files") if snapshot else 0,
        schema_=describe_schema(after.schema),
        partition=describe_partition(after.partition),
        split_points=list(ranges.points) if ranges else None,
        backup=backup_of(snapshot) if snapshot else None,
        metadata=Metadata(snapshot_id=commit.snapshot_id),
    )

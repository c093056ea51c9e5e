"""REINITIALISE_TABLE: a table emptied, and on request with other columns, partitions and ranges."""

from typing import Any, Literal

from pydantic import Field

from service.catalog.tables import Table
from service.commits.backups import Backups, backup_of
from service.commits.commit import Commits
from service.errors import ConfirmationRequired, InvalidRequest
from service.maintenance.advise.auto import Auto
from service.model.call import Call
from service.model.schema.definition import describe_schema, parse_schema
from service.model.schema.partition import describe_partition
from service.model.schema.ranges import Ranges, parse_split_points, ranges_of
from service.model.schema.types import TableSchema
from service.operations.edit_requests import BackedUpRequest
from service.operations.examples import response
from service.operations.operation import Confirmable, Example, Metadata, Result, omit_when_null, operation
from service.settings import IcebergSettings
from service.tables.reinitialise import OPERATION, Reinitialisations, ReinitialiseOptions, reinitialise_options

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "readings"}
SCHEMA = {"fields": {"sensor": {"type": "string", "required": True}, "value": {"type": "double"}}}
CREATE = {"operation": "CREATE_TABLE", **ADDRESS, "schema": {**SCHEMA, "primary_key": ["sensor"]}}
GIVEN = (CREATE, {"operation": "WRITE", **ADDRESS, "records": [{"sensor": "a1", "value": 0.5}]})


def _answer(**split: Any) -> dict[str, Any]:
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
    Example("Empty a table", REQUEST, _answer(), GIVEN),
    Example(
        "Empty it and split it by ranges of its first key",
        {**REQUEST, "split_points": ["h", "p"]},
        _answer(split_points=["h", "p"]),
        GIVEN,
    ),
    Example(
        "The same, with the points as text, one a line, each in base64",
        {**REQUEST, "delete_partitions": True, "split_points": "aA==\ncA==\n", "split_points_base64": True},
        _answer(split_points=["h", "p"]),
        GIVEN,
    ),
)


class ReinitialiseTable(Confirmable, BackedUpRequest):
    operation: Literal["REINITIALISE_TABLE"]
    delete_partitions: bool = Field(
        default=False, description="begin without partitioning and split points; default: with those that there are"
    )
    split_points: Any = Field(
        default=None,
        description="values of the first key in order, as a list or as text with one a line: a row is in the range "
        "that begins with the last point not greater than its key",
    )
    split_points_base64: bool = Field(
        default=False, description="each point is base64 of its text, or the text with one a line is as a whole"
    )
    schema_: dict[str, Any] | None = Field(
        default=None, alias="schema", description="other columns, as CREATE_TABLE takes them; default: those there are"
    )
    confirm: bool = Field(default=False, description="needed: every row of the table goes")


class ReinitialiseTableResult(Result):
    table_reinitialised: bool = Field(description="true")
    records_deleted: int = Field(description="the rows that there were")
    files_deleted: int = Field(description="the data files that there were; they go with the snapshots that hold them")
    schema_: dict[str, Any] = Field(serialization_alias="schema", description="the columns now")
    partition: dict[str, Any] = Field(description="the partitioning now")
    split_points: list[Any] | None = omit_when_null("the points that split it by its first key")
    backup: str | None = omit_when_null("the backup of the state before, where one was made")


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
    """Delete all of a table's contents in one commit, which can replace its columns, partitioning and split points."""
    if not request.confirm:
        raise ConfirmationRequired(
            "REINITIALISE_TABLE deletes every row of the table; send confirm: true to do it", field="confirm"
        )
    if request.split_points is None and request.split_points_base64:
        raise InvalidRequest("split_points_base64 says how split_points are sent; send them too", field="split_points")
    schema = None if request.schema_ is None else parse_schema(request.schema_)
    table = commits.table(request.table_name, call)

    def decide(current: Table) -> ReinitialiseOptions:
        return reinitialise_options(
            current,
            schema,
            _split(request) if request.split_points is not None else None,
            delete_partitions=request.delete_partitions,
            settings=settings.compaction,
        )

    if call.earlier is None:  # what was done is not decided again
        decide(table)  # what cannot be is refused before anybody waits
    tag = request.backup(backups, table)
    effect = reinitialisations.run(table, decide, tag, call)
    auto.policy_changed(table.name)
    after, snapshot = effect.after, effect.snapshot
    ranges = ranges_of(after.properties)
    return ReinitialiseTableResult(
        table_reinitialised=True,
        records_deleted=snapshot.counted("deleted-records") if snapshot else 0,
        files_deleted=snapshot.counted("deleted-data-files") if snapshot else 0,
        schema_=describe_schema(after.schema),
        partition=describe_partition(after.partition),
        split_points=list(ranges.points) if ranges else None,
        backup=backup_of(snapshot) if snapshot else None,
        metadata=Metadata(snapshot_id=effect.snapshot_id),
    )


def _split(request: ReinitialiseTable) -> Any:
    def split(schema: TableSchema) -> Ranges:
        return parse_split_points(request.split_points, schema, encoded=request.split_points_base64)

    return split

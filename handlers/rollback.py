"""ROLLBACK: a table's rows as they were at an earlier snapshot."""

from typing import Any, Literal

from pydantic import Field

from service.commits.backups import Backups
from service.commits.commit import Commits
from service.edits.rollback import RollbackOutcome, Rollbacks, RollbackTarget
from service.errors import InvalidRequest
from service.model.as_of import moment
from service.model.call import Call
from service.operations.edit_requests import BackedUpRequest
from service.operations.examples import response
from service.operations.operation import Confirmable, Example, Metadata, Result, omit_when_null, operation

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "cellar"}
GIVEN: tuple[dict[str, Any], ...] = (
    {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"name": {"type": "string"}}}},
    {"operation": "WRITE", **ADDRESS, "records": [{"name": "Rioja"}, {"name": "Barolo"}, {"name": "Fendant"}]},
    {"operation": "DELETE", **ADDRESS, "filter": {"name": {"ne": "Fendant"}}},
    {"operation": "WRITE", **ADDRESS, "records": [{"name": "Merlot"}]},
)
_ANSWER: dict[str, Any] = response(
    rolled_back=True,
    reason=None,
    from_snapshot="<any>",
    to_snapshot="<any>",
    changes_undone=2,
    records_before=2,
    records_after=3,
    files_removed=2,
    files_added=1,
)
_THEN = 4358829213746520102
EXAMPLES = (
    Example(
        "Back to what the table held after a commit",
        {"operation": "ROLLBACK", **ADDRESS, "snapshot_id": _THEN},
        _ANSWER,
        given=GIVEN,
        taken={"snapshot_id": (2, "metadata.snapshot_id")},
    ),
    Example(
        "See what it would do, and only if nothing came since the last look",
        {
            "operation": "ROLLBACK",
            **ADDRESS,
            "snapshot_id": _THEN,
            "expected_snapshot_id": 1886043621045928221,
            "dry_run": True,
        },
        {**_ANSWER, "rolled_back": False, "reason": "this was a dry run"},
        given=GIVEN,
        taken={"snapshot_id": (2, "metadata.snapshot_id"), "expected_snapshot_id": (4, "metadata.snapshot_id")},
    ),
)


class Rollback(Confirmable, BackedUpRequest):
    operation: Literal["ROLLBACK"]
    snapshot_id: int | str | None = Field(
        default=None, description="the snapshot whose rows the table is to hold again, as HISTORY has it; or `tag`"
    )
    tag: str | None = Field(default=None, min_length=1, description="the tag or backup on that snapshot")
    expected_snapshot_id: int | None = Field(
        default=None,
        description="the snapshot that was current when the request was thought out: if rows changed since, "
        "PLAN_STALE, and nothing happens; default: what came until its turn is rolled back too",
    )
    dry_run: bool = Field(default=False, description="only say what would be done; nothing is changed")


class RollbackResult(Result):
    rolled_back: bool = Field(description="whether the table was changed")
    reason: str | None = Field(description="why not, where it was not")
    from_snapshot: int | None = Field(description="the state that was left, which `as_of` still reads")
    to_snapshot: int = Field(description="the snapshot whose rows the table holds now")
    changes_undone: int | None = Field(
        description="commits that changed rows between the two, compactions not among them; null where nobody "
        "knows, as snapshots between have expired, or the table was not built on that snapshot, as after another "
        "program's rollback"
    )
    records_before: int = Field(description="rows the table had")
    records_after: int = Field(description="rows it had then, and has again")
    files_removed: int = Field(description="data files with rows that it lacked then, which leave the table")
    files_added: int = Field(
        description="new data files with the rows that it lacked now; of a dry run, the files that they are read from"
    )
    backup: str | None = omit_when_null("the backup of the state before, where one was made")


@operation(Rollback, RollbackResult, pool="edits", examples=EXAMPLES)
def rollback(request: Rollback, call: Call, commits: Commits, backups: Backups, rollbacks: Rollbacks) -> RollbackResult:
    """Make a table hold exactly the rows of an earlier snapshot, as one more change of it."""
    wanted = _wanted(request)
    table = commits.table(request.table_name, call)
    tag = request.backup(backups, table)
    return _result(rollbacks.run(table, wanted, tag, call, dry_run=request.dry_run))


def _wanted(request: Rollback) -> RollbackTarget:
    if (request.snapshot_id is None) == (request.tag is None):
        said = "both are there" if request.tag is not None else "neither is there"
        raise InvalidRequest(f"send snapshot_id or tag, one of them; {said}", field="snapshot_id")
    if request.tag is not None:
        return RollbackTarget(request.tag, "tag", request.expected_snapshot_id)
    assert request.snapshot_id is not None
    state = moment(request.snapshot_id)
    if not isinstance(state, int):
        raise InvalidRequest(
            f"snapshot_id: {str(request.snapshot_id)[:80]!r} is no snapshot's id; HISTORY lists them; send the name "
            "of a tag or backup as tag",
            field="snapshot_id",
        )
    return RollbackTarget(state, "snapshot_id", request.expected_snapshot_id)


def _result(made: RollbackOutcome) -> RollbackResult:
    restored = made.restored
    return RollbackResult(
        rolled_back=restored.restored,
        reason=restored.reason,
        from_snapshot=made.from_id,
        to_snapshot=made.to_id,
        changes_undone=made.changes,
        records_before=restored.records_before,
        records_after=restored.records_after,
        files_removed=restored.files_removed,
        files_added=restored.files_added,
        backup=restored.backup,
        metadata=Metadata(snapshot_id=restored.snapshot_id),
    )

"""APPLY_TABLE: bring a table into line with its changed table file, all of it or nothing."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from service.commits.commit import Commits
from service.ingest.changes.changes import TableFileChanges
from service.ingest.sources.roots import Roots
from service.model.call import Call
from service.operations.examples import planned, response
from service.operations.ingest_requests import TableFileRequest
from service.operations.operation import (
    DryRunResult,
    Example,
    Plan,
    PreviewableRequest,
    Result,
    omit_when_null,
    operation,
)

CONFIG = {"name": "daily_orders", "description": "one file a day"}
GIVEN = ({"operation": "CREATE_TABLE", "tenant_id": "acme", "namespace": "shop", "config": CONFIG},)
REQUEST = {
    "operation": "APPLY_TABLE",
    "tenant_id": "acme",
    "namespace": "shop",
    "config": {**CONFIG, "compaction": {"trigger": {"delay_days": 7}}},
}
CHANGES: dict[str, Any] = {
    "changes": [
        {
            "path": "compaction.trigger.delay_days",
            "from": 0,
            "to": 7,
            "effect": "the schedule of compactions changes",
        }
    ]
}
EXAMPLES = (
    Example(
        "Apply a changed table file",
        REQUEST,
        response(snapshot=False, **CHANGES, applied=True),
        given=GIVEN,
    ),
    Example(
        "See what a changed table file would change",
        {**REQUEST, "dry_run": True},
        planned(snapshot=False, **CHANGES),
        given=GIVEN,
    ),
)


class ApplyTable(TableFileRequest, PreviewableRequest):
    operation: Literal["APPLY_TABLE"]

    config: Any = Field(description="the table file: its YAML as text, or the same as an object")


class FileChange(BaseModel):
    """A difference between the files and the table."""

    path: str = Field(description="the key in the table file; below `dataset`, in the dataset file")
    from_: Any = omit_when_null("the table's value; absent if it has none", "from")
    to: Any = omit_when_null("the file's value; absent if it has none")
    effect: str = Field(description="what the change does")


class ApplyTableResult(Result):
    changes: list[FileChange] = Field(description="the differences that were applied, in the order of the files")
    applied: bool = Field(description="whether this request changed the table")


class ApplyPlan(Plan):
    """What an APPLY_TABLE would change."""

    changes: list[FileChange] = Field(description="the differences that would be applied, in the order of the files")


class ApplyDryRun(DryRunResult):
    plan: ApplyPlan = Field(description="what would happen")


@operation(ApplyTable, ApplyTableResult, pool="tables", examples=EXAMPLES, also=(ApplyDryRun,))
def apply_table(
    request: ApplyTable, call: Call, commits: Commits, changes: TableFileChanges, roots: Roots
) -> ApplyTableResult | ApplyDryRun:
    """Compare a table file with its table, and apply all differences; if one cannot be applied, none is."""
    config = request.table_file
    assert config is not None
    table = commits.table(request.table_name, call)
    dataset = request.dataset_or(config.ingestion.dataset_config, roots.of(request.tenant_id))
    found = changes.check(table, config, dataset)
    shown = [FileChange(path=c.path, from_=c.before, to=c.after, effect=c.effect) for c in found.changes]
    if request.dry_run:
        return ApplyDryRun(plan=ApplyPlan(changes=shown))
    if not found.changes and changes.is_applied(table, config, dataset):
        return ApplyTableResult(changes=[], applied=False)
    changes.apply(table, config, dataset, call)
    return ApplyTableResult(changes=shown, applied=True)

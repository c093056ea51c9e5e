"""ACCEPT_DRIFT: adopt the columns of a file that was refused because they differ."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.commits.commit import Commits
from service.ingest.files import yaml_text
from service.ingest.tasks.accept import DriftAcceptance, DriftChange
from service.model.call import Call
from service.operations.examples import planned, response
from service.operations.ingest_examples import ADDRESS, CREATE
from service.operations.ingest_requests import ConfigRequest, ingested_table, parse_date
from service.operations.operation import (
    DryRunResult,
    Example,
    Plan,
    PreviewableRequest,
    Result,
    omit_when_null,
    operation,
)

NARROW = {**CREATE, "dataset": {"columns": [{"name": "order_id", "type": "BIGINT"}]}}
# It has one file, which is refused.
REFUSED = {
    "operation": "INGEST_RANGE",
    **ADDRESS,
    "source": "examples/files/orders_{date}.csv",
    "from": "2024-01-31",
    "to": "2024-01-31",
}
REQUEST: dict[str, Any] = {"operation": "ACCEPT_DRIFT", **ADDRESS}
ACCEPTED: dict[str, Any] = {
    "date": "2024-01-31",
    "source": "examples/files/orders_2024-01-31.csv",
    "changes": [
        {"column": "ordered_on", "change": "added", "to": "VARCHAR"},
        {"column": "amount", "change": "added", "to": "DOUBLE"},
        {"column": "country", "change": "added", "to": "VARCHAR"},
    ],
    "dataset": "<any>",
}
EXAMPLES = (
    Example(
        "Adopt the columns of the last refused file",
        REQUEST,
        response(snapshot=False, **ACCEPTED),
        given=(NARROW, REFUSED),
    ),
    Example(
        "See what that would change",
        {**REQUEST, "date": "2024-01-31", "dry_run": True},
        planned(snapshot=False, **ACCEPTED),
        given=(NARROW, REFUSED),
    ),
)


class AcceptDrift(ConfigRequest, PreviewableRequest):
    operation: Literal["ACCEPT_DRIFT"]
    date: str | None = Field(default=None, description="the date of the refused file; default: the last refused one")


class AcceptedChange(BaseModel):
    """A column that changes."""

    model_config = ConfigDict(populate_by_name=True)

    column: str = Field(description="its name")
    change: Literal["added", "optional", "retyped"] = Field(
        description="`optional`: files may lack it, and then it has no value"
    )
    from_: str | None = omit_when_null("its type before", serialization_alias="from")
    to: str | None = omit_when_null("its type now")


class AcceptedDriftFigures(BaseModel):
    """What is adopted, or would be."""

    date: str = Field(description="the date of the refused file")
    source: str = Field(description="the refused file")
    changes: list[AcceptedChange] = Field(description="the columns that change; none if it was accepted before")
    dataset: str = Field(description="the dataset file with the changes, in YAML")


class AcceptDriftResult(AcceptedDriftFigures, Result): ...


class AcceptDriftPlan(AcceptedDriftFigures, Plan): ...


class AcceptDriftDryRun(DryRunResult):
    plan: AcceptDriftPlan = Field(description="what would happen")


@operation(AcceptDrift, AcceptDriftResult, pool="tables", examples=EXAMPLES, also=(AcceptDriftDryRun,))
def accept_drift(
    request: AcceptDrift, call: Call, commits: Commits, acceptance: DriftAcceptance
) -> AcceptDriftResult | AcceptDriftDryRun:
    """Add the columns of a refused file to the dataset and the table, and let files lack those that it lacks."""
    table = ingested_table(request, commits, call)
    day = None if request.date is None else parse_date(request.date)
    done = acceptance.accept(table, day, call, dry_run=request.dry_run)
    figures: dict[str, Any] = {
        "date": done.record.ingest_date,
        "source": done.record.file,
        "changes": [_shown(one) for one in done.changes],
        "dataset": yaml_text(done.dataset),
    }
    return AcceptDriftDryRun(plan=AcceptDriftPlan(**figures)) if request.dry_run else AcceptDriftResult(**figures)


def _shown(change: DriftChange) -> AcceptedChange:
    return AcceptedChange(column=change.column, change=change.change, from_=change.before, to=change.after)

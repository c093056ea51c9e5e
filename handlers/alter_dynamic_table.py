"""ALTER_DYNAMIC_TABLE: change how a dynamic table is refreshed, suspend it, or resume it."""

from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from service.catalog.tables import Table
from service.commits.commit import Commits
from service.dynamic.definitions import Definitions
from service.errors import InvalidRequest
from service.model.call import Call
from service.model.dynamic.definition import TableState
from service.model.dynamic.target_lag import parse_target_lag
from service.operations.dynamic.examples import CREATED, DETAILS, OPTIONS
from service.operations.dynamic.requests import DynamicTableChange
from service.operations.dynamic.results import DeclaredOptions, declared_options
from service.operations.examples import response
from service.operations.operation import Example, Result, omit_when_null, operation

EXAMPLES = (
    Example(
        "Refresh a dynamic table less often",
        {"operation": "ALTER_DYNAMIC_TABLE", **DETAILS, "target_lag": "1 hour"},
        response(snapshot=False, **{**OPTIONS, "target_lag": "1 hour"}, dynamic_table_altered=True, state="active"),
        given=CREATED,
    ),
    Example(
        "Suspend it",
        {"operation": "ALTER_DYNAMIC_TABLE", **DETAILS, "suspend": True, "reason": "the source is being moved"},
        response(
            snapshot=False,
            **OPTIONS,
            dynamic_table_altered=True,
            state="suspended",
            reason="the source is being moved",
        ),
        given=CREATED,
    ),
)
OPERATION = "ALTER_DYNAMIC_TABLE"


class AlterDynamicTable(DynamicTableChange):
    """At least one change."""

    operation: Literal["ALTER_DYNAMIC_TABLE"]
    target_lag: str | None = Field(default=None, description="such as `5 minutes`, or `downstream`")
    scheduler: Literal["ENABLED", "DISABLED"] | None = Field(
        default=None, description="`DISABLED`: refresh it only by REFRESH_DYNAMIC_TABLE"
    )
    suspend: bool = Field(default=False, description="stop refreshing it, until it is resumed")
    resume: bool = Field(default=False, description="refresh it again, after a suspension or failures")
    reason: str | None = Field(default=None, max_length=1000, description="why it is suspended")


class AlterDynamicTableResult(DeclaredOptions, Result):
    dynamic_table_altered: bool = Field(description="true")
    state: TableState = Field(description="its state now")
    reason: str | None = omit_when_null("why it is suspended")


@operation(AlterDynamicTable, AlterDynamicTableResult, pool="tables", examples=EXAMPLES)
def alter_dynamic_table(
    request: AlterDynamicTable, call: Call, commits: Commits, definitions: Definitions
) -> AlterDynamicTableResult:
    """Change the target lag of a dynamic table, suspend it, or resume it."""
    _check(request)
    options_of_request = _options(request)
    table = commits.table(request.table_name, call)
    definitions.of(table)

    def change(current: Table, batch: str) -> Table:
        options = replace(definitions.of(current).definition.options, **options_of_request)
        changed = definitions.set_options(current, options)
        if request.suspend or request.resume:
            state: TableState = "suspended" if request.suspend else "active"
            definitions.records.set_state(current.uuid, state, request.reason)
        return changed

    after = definitions.of(commits.alter(table, OPERATION, call, change))
    return AlterDynamicTableResult(
        dynamic_table_altered=True,
        state=after.state,
        reason=after.reason,
        **declared_options(after.definition.options).model_dump(),
    )


def _check(request: AlterDynamicTable) -> None:
    if request.suspend and request.resume:
        raise InvalidRequest("suspend and resume contradict each other; send one of them", field="resume")
    if request.reason is not None and not request.suspend:
        raise InvalidRequest("reason says why a table is suspended; send suspend: true, too", field="reason")
    if not (request.suspend or request.resume or request.target_lag is not None or request.scheduler is not None):
        raise InvalidRequest("there is nothing to change; send target_lag, scheduler, suspend: true or resume: true")


def _options(request: AlterDynamicTable) -> dict[str, Any]:
    """The options that the request changes."""
    found: dict[str, Any] = {}
    if request.target_lag is not None:
        found["target_lag_s"] = parse_target_lag(request.target_lag)
    if request.scheduler is not None:
        found["scheduled"] = request.scheduler == "ENABLED"
    return found

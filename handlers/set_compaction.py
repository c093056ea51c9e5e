"""SET_COMPACTION: set a table's compaction policy, which is kept in its properties."""

from typing import Any, Literal

from pydantic import Field

from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.errors import InvalidRequest
from service.maintenance.advise.auto import Auto
from service.maintenance.policy import SNAPSHOTS, TARGET, EffectiveCompaction, check_policy, effective_policy
from service.model.call import Call
from service.model.properties import (
    CompactionOverrides,
    SnapshotOverrides,
    compaction_properties,
    snapshot_properties,
    target_size_property,
)
from service.operations.examples import DEFAULT_COMPACTION, create_table, response
from service.operations.operation import ChangeRequest, Example, Result, operation
from service.settings import IcebergSettings
from service.settings.kinds import Megabytes

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "logs"}
CREATE = create_table(ADDRESS, {"host": "string", "at": "timestamp"}, properties={"min_files_to_compact": 20})
SET = {
    "operation": "SET_COMPACTION",
    **ADDRESS,
    "mode": "auto",
    "strategy": "sort",
    "sort_by": ["host", "at"],
    "target_file_size_mb": 256,
    "window": "01:00-05:30 Europe/Zurich",
    "snapshots": {"keep_last": 20},
}
OVERRIDES = {
    "mode": "auto",
    "target_file_size_mb": 256,
    "min_files_to_compact": 20,
    "strategy": "sort",
    "sort_by": ["host", "at"],
    "window": "01:00-05:30 Europe/Zurich",
}
IN_FORCE = {
    **DEFAULT_COMPACTION,
    **OVERRIDES,
    "snapshots": {"keep_last": 20, "hourly_for_hours": 168, "keep_at_most": 300},
    "overridden": [*OVERRIDES, "snapshots.keep_last"],
}
EXAMPLES = (
    Example(
        "Compact a table automatically at night, sort it, and keep few old snapshots",
        SET,
        response(snapshot=False, compaction=IN_FORCE),
        given=(CREATE,),
    ),
    Example(
        "Return to the service's settings",
        {
            "operation": "SET_COMPACTION",
            **ADDRESS,
            **dict.fromkeys(("mode", "strategy", "sort_by", TARGET, "window", "min_files_to_compact", SNAPSHOTS)),
        },
        response(snapshot=False, compaction=DEFAULT_COMPACTION),
        given=(CREATE, SET),
    ),
)


class SetCompaction(ChangeRequest, CompactionOverrides):
    """An omitted field keeps its value; null returns to the service's setting."""

    operation: Literal["SET_COMPACTION"]
    target_file_size_mb: Megabytes | None = Field(default=None, description="the size of merged files")
    snapshots: SnapshotOverrides | None = Field(
        default=None, description="which old snapshots to keep; null returns to the service's settings for all of them"
    )


class SetCompactionResult(Result):
    compaction: EffectiveCompaction = Field(description="the table's policy now")


@operation(SetCompaction, SetCompactionResult, pool="tables", examples=EXAMPLES)
def set_compaction(
    request: SetCompaction, call: Call, settings: IcebergSettings, catalog: Catalog, commits: Commits, auto: Auto
) -> SetCompactionResult:
    """Set a table's compaction policy; an omitted field keeps its value, and null returns to the service's setting."""
    own = {*CompactionOverrides.model_fields, TARGET, SNAPSHOTS}
    given = request.model_fields_set & own
    if not given:
        raise InvalidRequest(f"there is nothing to set; send one or more of {', '.join(sorted(own))}")
    values = {name: getattr(request, name) for name in given - {TARGET, SNAPSHOTS}}
    wanted: dict[str, str | None] = compaction_properties(CompactionOverrides(**values))
    if TARGET in given:
        wanted |= target_size_property(request.target_file_size_mb, settings)
    if SNAPSHOTS in given:
        wanted |= snapshot_properties(request.snapshots)

    def change(current: Table, batch: str) -> Table:
        after: dict[str, Any] = {**current.properties, **wanted}
        kept = {name: value for name, value in after.items() if value is not None}
        check_policy(kept, settings, current.schema, given, partition=current.partition)
        return catalog.set_properties(current, wanted)

    table = commits.table(request.table_name, call)
    after = commits.alter(table, "SET_COMPACTION", call, change)
    auto.policy_changed(table.name)
    return SetCompactionResult(compaction=effective_policy(after.properties, settings))

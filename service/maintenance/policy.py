"""A table's effective compaction policy, which parts of it the table overrides, and its checks."""

from collections.abc import Callable, Mapping, Sequence, Set

from pydantic import BaseModel, ConfigDict, Field

from service.errors import InvalidRequest
from service.maintenance.compact.sorting import check_order
from service.model.properties import (
    CompactionOverrides,
    compaction_policy,
    describe,
    snapshot_policy,
    target_file_size_mb,
)
from service.model.schema.partition import PartitionField
from service.model.schema.types import TableSchema
from service.model.window import check_window
from service.model.wire import omit_when_null
from service.settings import IcebergSettings
from service.settings.kinds import Mode, Strategy

TARGET, SNAPSHOTS = "target_file_size_mb", "snapshots"


class EffectiveSnapshots(BaseModel):
    """Which old snapshots of a table are kept."""

    model_config = ConfigDict(extra="forbid")

    keep_last: int = Field(description="the number of newest snapshots to keep")
    hourly_for_hours: int = Field(description="the hours for which the last snapshot of each hour is kept, too")
    keep_at_most: int = Field(description="the most snapshots that these rules keep")


class EffectiveCompaction(BaseModel):
    """A table's effective policy: the service's settings, overridden by the table's own."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool = Field(description="whether writes check for small files, and COMPACT merges without `force`")
    mode: Mode = Field(description="`off`, `recommend` or `auto`")
    target_file_size_mb: int = Field(description="the size of merged files")
    small_file_threshold_mb: int = Field(description="files below this size are small")
    min_files_to_compact: int = Field(description="the number of small files in one partition that is worth merging")
    opportunistic_check_interval: int = Field(description="the number of writes after which small files are counted")
    max_files_per_compaction: int = Field(description="the most files that one compaction merges")
    snapshot_retention_hours: int = Field(description="the age from which a compaction expires snapshots")
    strategy: Strategy = Field(description="`binpack`, `sort` or `zorder`")
    sort_by: list[str] = Field(description="the columns that `sort` and `zorder` sort by")
    window: str | None = omit_when_null("when scheduled and automatic compactions may start; absent means always")
    snapshots: EffectiveSnapshots = Field(description="which old snapshots are kept, apart from compactions")
    overridden: list[str] = Field(
        description="the fields that the table overrides; the others are the service's settings"
    )


def effective_policy(properties: Mapping[str, str], settings: IcebergSettings) -> EffectiveCompaction:
    """The effective policy of a table with these properties."""
    policy = compaction_policy(properties, settings.compaction)
    target = target_file_size_mb(properties, settings)
    own = set(_overrides(properties)) | ({TARGET} if target != settings.write.target_file_size_mb else set())
    kept = snapshot_policy(properties, settings.snapshots).model_dump()
    own_kept = describe(properties).get(SNAPSHOTS, ())
    values = {name: getattr(policy, name) for name in CompactionOverrides.model_fields}
    values |= {TARGET: target, "sort_by": list(policy.sort_by), SNAPSHOTS: EffectiveSnapshots(**kept)}
    overridden = [name for name in EffectiveCompaction.model_fields if name in own]
    overridden += [f"{SNAPSHOTS}.{name}" for name in EffectiveSnapshots.model_fields if name in own_kept]
    return EffectiveCompaction(**values, overridden=overridden)


def check_policy(
    properties: Mapping[str, str],
    settings: IcebergSettings,
    schema: TableSchema,
    given: Set[str],
    where: Callable[[str], str] = lambda name: name,
    partition: Sequence[PartitionField] = (),
) -> None:
    """Refuse a request that makes a table's policy invalid. `properties` are the table's after the request. `given` are
    the fields that the request has; `where` returns the path of a field in the request."""
    policy = compaction_policy(properties, settings.compaction)
    if given & {"strategy", "sort_by"}:
        check_order(policy.strategy, policy.sort_by, schema, where("sort_by"), partition)
    if given & {"small_file_threshold_mb", TARGET} and "small_file_threshold_mb" in _overrides(properties):
        threshold, target = policy.small_file_threshold_mb, target_file_size_mb(properties, settings)
        if threshold >= target:
            path = where("small_file_threshold_mb" if "small_file_threshold_mb" in given else TARGET)
            raise InvalidRequest(
                f"{path}: small_file_threshold_mb ({threshold}) must be below target_file_size_mb ({target}), "
                "or every merged file would count as small again",
                field=path,
            )
    if "window" in given and policy.window is not None:
        check_window(policy.window, where("window"))


def _overrides(properties: Mapping[str, str]) -> Set[str]:
    return set(describe(properties).get("compaction", ()))

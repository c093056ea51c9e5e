"""A table's properties: what requests accept, and the Iceberg properties that store it."""

import contextlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from service.settings import CompactionSettings, EditSettings, IcebergSettings, SnapshotSettings
from service.settings.kinds import (
    Codec,
    Count,
    FileCount,
    Hours,
    KeptHours,
    Megabytes,
    Mode,
    RowLevel,
    Strategy,
    UndoHours,
    Window,
)

_CODEC = "write.parquet.compression-codec"
_TARGET = "write.target-file-size-bytes"
COMMENT = "comment"
ONLINE = "firn.online"
# The first version of the format whose delete files have positions, and the first in which they are deletion vectors.
FORMAT_WITH_POSITIONS, FORMAT_WITH_VECTORS = 2, 3
_MIB = 1024 * 1024


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _optional(description: str, **rules: Any) -> Any:
    return Field(default=None, description=description, **rules)


class CompactionOverrides(_Strict):
    """One table's overrides of the service's compaction settings."""

    enabled: bool | None = _optional("whether writes check for small files, and COMPACT merges without `force`")
    mode: Mode | None = _optional(
        "`off`: as `enabled: false`; `recommend`: say when compaction is worth it; `auto`: compact automatically"
    )
    small_file_threshold_mb: Megabytes | None = _optional("a file below this size is small")
    min_files_to_compact: FileCount | None = _optional(
        "the number of small files in one partition that are worth merging"
    )
    opportunistic_check_interval: Count | None = _optional("small files are counted once in this many writes")
    max_files_per_compaction: FileCount | None = _optional("the maximum number of files that one compaction merges")
    snapshot_retention_hours: Hours | None = _optional("a compaction expires snapshots older than this")
    strategy: Strategy | None = _optional(
        "`binpack` keeps the order of rows, `sort` and `zorder` sort them by `sort_by`"
    )
    sort_by: tuple[str, ...] | None = _optional(
        "the columns that `sort` and `zorder` sort by", max_length=16, strict=False
    )
    window: Window | None = _optional(
        "when scheduled and automatic compactions may start, such as `01:00-05:30 Europe/Zurich`; UTC without a time "
        "zone"
    )


class CompactionPolicy(CompactionSettings):
    """One table's policy: the service's settings with the table's overrides, and settings that only a table has."""

    strategy: Strategy = "binpack"
    sort_by: tuple[str, ...] = ()
    window: Window | None = None


class SnapshotOverrides(_Strict):
    """One table's overrides of the service's settings for old snapshots."""

    keep_last: Count | None = _optional("how many of the newest snapshots are kept")
    hourly_for_hours: Hours | None = _optional("for how long the last snapshot of each hour is kept in addition")
    keep_at_most: Count | None = _optional("the maximum number of snapshots that these rules keep")


class EditOverrides(_Strict):
    """One table's overrides of the service's settings for edits."""

    create_backup: bool | None = _optional(
        "whether an edit keeps the state before it, unless its request says otherwise"
    )
    backup_retention_hours: KeptHours | None = _optional(
        "how long such a backup is kept, unless the request says otherwise"
    )
    undo_retention_hours: UndoHours | None = _optional("how long UNDO can undo a change; 0: nothing is kept for it")
    row_level: RowLevel | None = _optional(
        "how edits delete and change rows: `copy_on_write` writes their files again without them, `merge_on_read` adds "
        "delete files that name them, `auto` chooses what costs less for each file"
    )


# The overrides that a table can have. Iceberg's properties have them as `firn.compaction.mode` and so on.
_GROUPS: dict[str, type[_Strict]] = {
    "compaction": CompactionOverrides,
    "snapshots": SnapshotOverrides,
    "edits": EditOverrides,
}
# The fields of these groups are also accepted outside of the group.
_FLAT = ("compaction", "edits")


def _describe_flat_overrides(schema: dict[str, Any]) -> None:
    for group in _FLAT:
        schema["properties"] |= _GROUPS[group].model_json_schema()["properties"]


class TableProperties(_Strict):
    """The `properties` of CREATE_TABLE. The fields of `compaction` and `edits` are also accepted directly in it."""

    model_config = ConfigDict(json_schema_extra=_describe_flat_overrides)

    compression: Codec | None = _optional("the Parquet codec of new files")
    description: Annotated[str, Field(max_length=4000)] | None = _optional("what the table is for")
    file_format: Literal["parquet"] = Field(default="parquet", description="the only supported format")
    target_file_size_mb: Megabytes | None = _optional("the target size of merged files")
    online: bool | None = _optional("false: schedules, mode `auto` and refreshes skip the table, as after SET_ONLINE")
    compaction: CompactionOverrides = Field(
        default=CompactionOverrides(), description="overrides of the service's compaction settings"
    )
    snapshots: SnapshotOverrides = Field(
        default=SnapshotOverrides(), description="overrides of the service's settings for old snapshots"
    )
    edits: EditOverrides = Field(default=EditOverrides(), description="overrides of the service's settings for edits")

    @model_validator(mode="before")
    @classmethod
    def _gather_flat_overrides(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        for group in _FLAT:
            value = _gathered(value, group)
        return value


def _gathered(value: dict[str, Any], group: str) -> dict[str, Any]:
    """The properties with those of one group moved into it."""
    flat = {k: v for k, v in value.items() if k in _GROUPS[group].model_fields}
    nested = value.get(group) or {}
    if not flat or not isinstance(nested, dict):
        return value
    twice = sorted(flat.keys() & nested.keys())
    if twice:
        raise ValueError(f"{twice[0]} is given twice, inside and outside of {group}; send it once")
    return {**{k: v for k, v in value.items() if k not in flat}, group: {**nested, **flat}}


def to_iceberg(properties: TableProperties, settings: IcebergSettings) -> dict[str, str]:
    """The Iceberg properties of a new table."""
    write = settings.write
    values = {
        "format-version": str(FORMAT_WITH_POSITIONS),
        "write.format.default": properties.file_format,
        _CODEC: write.compression_codec,
        _TARGET: str(write.target_file_size_mb * _MIB),
        "write.parquet.row-group-size-bytes": str(write.parquet_row_group_size * 1024),
        # Compressed, millions of rows can be so small, and to read one of them is to decode its row group.
        "write.parquet.row-group-size-track-uncompressed": "true",
        # By default a writer holds 100 rows, however large, before it first looks at the size of its row group.
        "write.parquet.row-group-check-min-record-count": "1",
        # Old metadata makes every load slower.
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "10",
        # Readers open every manifest. Merging them more often than by default costs writers no more overall.
        "commit.manifest.min-count-to-merge": "30",
        # A small batch is a single task; a shuffle would only cost time.
        "write.distribution-mode": "none",
        "write.spark.fanout.enabled": "true",
        "commit.retry.num-retries": "10",
    }
    given = changed_properties(properties, settings)
    return values | {name: value for name, value in given.items() if value is not None}


def describe(properties: Mapping[str, str]) -> dict[str, Any]:
    """A table's properties in the form of CREATE_TABLE."""
    described: dict[str, Any] = {"file_format": properties.get("write.format.default", "parquet")}
    if _CODEC in properties:
        described["compression"] = properties[_CODEC]
    if COMMENT in properties:
        described["description"] = properties[COMMENT]
    if properties.get(_TARGET, "").isdecimal():
        described["target_file_size_mb"] = max(1, int(properties[_TARGET]) // _MIB)
    if not is_online(properties):
        described["online"] = False
    return described | {group: found for group in _GROUPS if (found := _overrides(group, properties))}


def compaction_policy(properties: Mapping[str, str], settings: CompactionSettings) -> CompactionPolicy:
    """The service's compaction settings with this table's overrides."""
    return CompactionPolicy.model_validate({**settings.model_dump(), **_overrides("compaction", properties)})


def snapshot_policy(properties: Mapping[str, str], settings: SnapshotSettings) -> SnapshotSettings:
    """The service's settings for old snapshots with this table's overrides."""
    return SnapshotSettings.model_validate({**settings.model_dump(), **_overrides("snapshots", properties)})


def edit_policy(properties: Mapping[str, str], settings: EditSettings) -> EditSettings:
    """The service's settings for edits with this table's overrides."""
    return EditSettings.model_validate({**settings.model_dump(), **_overrides("edits", properties)})


def changed_properties(given: TableProperties, settings: IcebergSettings) -> dict[str, str | None]:
    """The Iceberg properties for the properties that a request sets; None removes one."""
    changed: dict[str, str | None] = {}
    for group in _GROUPS:
        changed |= _changed_overrides(group, getattr(given, group))
    named = given.model_fields_set
    if "compression" in named:
        changed[_CODEC] = given.compression or settings.write.compression_codec
    if "target_file_size_mb" in named:
        changed |= target_size_property(given.target_file_size_mb, settings)
    if "description" in named:
        changed[COMMENT] = given.description
    if "online" in named:
        changed |= online_property(given.online is not False)
    return changed


def unset_properties(name: str, settings: IcebergSettings) -> dict[str, str | None] | None:
    """The Iceberg properties that reset a property to the service's settings; None if there is no such property."""
    if name == "compression":
        return {_CODEC: settings.write.compression_codec}
    if name == "target_file_size_mb":
        return target_size_property(None, settings)
    if name == "description":
        return {COMMENT: None}
    if name == "online":
        return online_property(True)
    group, dot, key = name.partition(".")
    if group not in _GROUPS:
        return None
    known = _GROUPS[group].model_fields
    keys = [key] if dot else list(known)
    return {f"firn.{group}.{one}": None for one in keys} if known.keys() >= set(keys) else None


def property_names() -> list[str]:
    """Every name that `unset_properties` knows."""
    inner = [f"{group}.{key}" for group, model in _GROUPS.items() for key in model.model_fields]
    return ["compression", "target_file_size_mb", "description", "online", *_GROUPS, *inner]


def is_online(properties: Mapping[str, str]) -> bool:
    """Whether scheduled and automatic maintenance may work on a table."""
    return properties.get(ONLINE, "true").lower() != "false"


def online_property(online: bool) -> dict[str, str | None]:
    """The Iceberg property that stores whether a table is online."""
    return {ONLINE: None if online else "false"}


def target_file_size_mb(properties: Mapping[str, str], settings: IcebergSettings) -> int:
    text = properties.get(_TARGET, "")
    return max(1, int(text) // _MIB) if text.isdecimal() else settings.write.target_file_size_mb


def compaction_properties(overrides: CompactionOverrides) -> dict[str, str | None]:
    """The Iceberg properties that store a table's compaction overrides; None removes one."""
    return _changed_overrides("compaction", overrides)


def snapshot_properties(overrides: SnapshotOverrides | None) -> dict[str, str | None]:
    """The Iceberg properties that store a table's snapshot overrides; None removes one."""
    if overrides is None:
        return {f"firn.snapshots.{key}": None for key in SnapshotOverrides.model_fields}
    return _changed_overrides("snapshots", overrides)


def target_size_property(megabytes: int | None, settings: IcebergSettings) -> dict[str, str | None]:
    """The Iceberg property for the target size of files; by default the service's setting."""
    return {_TARGET: str((megabytes or settings.write.target_file_size_mb) * _MIB)}


def codec_of(properties: Mapping[str, str]) -> str | None:
    """The codec of a table's new files, if its properties name one."""
    return properties.get(_CODEC)


def codec_property(codec: str) -> dict[str, str]:
    """The Iceberg property for the codec of new files."""
    return {_CODEC: codec}


def _changed_overrides(group: str, overrides: _Strict) -> dict[str, str | None]:
    """The Iceberg properties for the overrides that a request sets; None removes one."""
    written = _written(group, overrides)
    return {name: written.get(name) for name in (f"firn.{group}.{key}" for key in overrides.model_fields_set)}


def _written(group: str, overrides: _Strict) -> dict[str, str]:
    values = overrides.model_dump(exclude_none=True)
    return {f"firn.{group}.{k}": value if isinstance(value, str) else json.dumps(value) for k, value in values.items()}


def _overrides(group: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """A table's overrides from its Iceberg properties, without invalid ones, which other programs may have written."""
    model = _GROUPS[group]
    found: dict[str, Any] = {}
    for key in model.model_fields:
        text = properties.get(f"firn.{group}.{key}")
        if text is None:
            continue
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        with contextlib.suppress(ValidationError):
            found[key] = getattr(model.model_validate({key: value}), key)
    return found

"""A table's properties: what requests accept, and the Iceberg properties that store it."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from service.settings import (
    Codec,
    CompactionSettings,
    Count,
    EditSettings,
    FileCount,
    Hours,
    IcebergSettings,
    KeptHours,
    Megabytes,
    Mode,
    SnapshotSettings,
    Strategy,
    UndoHours,
    Window,
)

_CODEC = "write.parquet.compression-codec"
_TARGET = "write.target-file-size-bytes"
_COMPACTION = "firn.compaction."
_SNAPSHOTS = "firn.snapshots."
_EDITS = "firn.edits."
COMMENT = "comment"
ONLINE = "firn.online"
_MIB = 1024 * 1024


class CompactionOverrides(BaseModel):
    """One table's overrides of the service's compaction settings."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    enabled: bool | None = Field(
        default=None, description="whether writes check for small files, and COMPACT merges without `force`"
    )
    mode: Mode | None = Field(
        default=None,
        description="`off`: as `enabled: false`; `recommend`: say when compaction is worth it; `auto`: compact "
        "automatically",
    )
    small_file_threshold_mb: Megabytes | None = Field(default=None, description="a file below this size is small")
    min_files_to_compact: FileCount | None = Field(
        default=None, description="the number of small files in one partition that are worth merging"
    )
    opportunistic_check_interval: Count | None = Field(
        default=None, description="small files are counted once in this many writes"
    )
    max_files_per_compaction: FileCount | None = Field(
        default=None, description="the maximum number of files that one compaction merges"
    )
    snapshot_retention_hours: Hours | None = Field(
        default=None, description="a compaction expires snapshots older than this"
    )
    strategy: Strategy | None = Field(
        default=None, description="`binpack` keeps the order of rows, `sort` and `zorder` sort them by `sort_by`"
    )
    sort_by: tuple[str, ...] | None = Field(
        default=None, max_length=16, description="the columns that `sort` and `zorder` sort by", strict=False
    )
    window: Window | None = Field(
        default=None,
        description="when scheduled and automatic compactions may start, such as `01:00-05:30 Europe/Zurich`; UTC "
        "without a time zone",
    )


class CompactionPolicy(CompactionSettings):
    """One table's policy: the service's settings with the table's overrides, and settings that only a table has."""

    strategy: Strategy = "binpack"
    sort_by: tuple[str, ...] = ()
    window: Window | None = None


class SnapshotOverrides(BaseModel):
    """One table's overrides of the service's settings for old snapshots."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    keep_last: Count | None = Field(default=None, description="how many of the newest snapshots are kept")
    hourly_for_hours: Hours | None = Field(
        default=None, description="for how long the last snapshot of each hour is kept in addition"
    )
    keep_at_most: Count | None = Field(
        default=None, description="the maximum number of snapshots that these rules keep"
    )


class EditOverrides(BaseModel):
    """One table's overrides of the service's settings for edits."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    create_backup: bool | None = Field(
        default=None, description="whether an edit keeps the state before it, unless its request says otherwise"
    )
    backup_retention_hours: KeptHours | None = Field(
        default=None, description="how long such a backup is kept, unless the request says otherwise"
    )
    undo_retention_hours: UndoHours | None = Field(
        default=None, description="how long UNDO can undo a change; 0: nothing is kept for it"
    )


# The fields of these groups are also accepted outside of the group.
_FLAT: dict[str, type[BaseModel]] = {"compaction": CompactionOverrides, "edits": EditOverrides}


def _describe_flat_overrides(schema: dict[str, Any]) -> None:
    for model in _FLAT.values():
        schema["properties"] |= model.model_json_schema()["properties"]


class TableProperties(BaseModel):
    """The `properties` of CREATE_TABLE. The fields of `compaction` and `edits` are also accepted directly in it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, json_schema_extra=_describe_flat_overrides)

    compression: Codec | None = Field(default=None, description="the Parquet codec of new files")
    description: Annotated[str, Field(max_length=4000)] | None = Field(
        default=None, description="what the table is for"
    )
    file_format: Literal["parquet"] = Field(default="parquet", description="the only supported format")
    target_file_size_mb: Megabytes | None = Field(default=None, description="the target size of merged files")
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
        for group, model in _FLAT.items():
            value = _gathered(value, group, model)
        return value


def _gathered(value: dict[str, Any], group: str, model: type[BaseModel]) -> dict[str, Any]:
    """The properties with those of one group moved into it."""
    flat = {k: v for k, v in value.items() if k in model.model_fields}
    nested = value.get(group) or {}
    if not flat or not isinstance(nested, dict):
        return value
    twice = sorted(flat.keys() & nested.keys())
    if twice:
        raise ValueError(f"{twice[0]} is given twice, inside and outside of {group}; send it once")
    return {**{k: v for k, v in value.items() if k not in flat}, group: {**nested, **flat}}


GROUPS: dict[str, tuple[str, type[BaseModel]]] = {
    "compaction": (_COMPACTION, CompactionOverrides),
    "snapshots": (_SNAPSHOTS, SnapshotOverrides),
    "edits": (_EDITS, EditOverrides),
}


def to_iceberg(properties: TableProperties, settings: IcebergSettings) -> dict[str, str]:
    """The Iceberg properties of a new table."""
    write = settings.write
    values = {
        "format-version": "2",
        "write.format.default": properties.file_format,
        _CODEC: properties.compression or write.compression_codec,
        _TARGET: str((properties.target_file_size_mb or write.target_file_size_mb) * _MIB),
        "write.parquet.row-group-size-bytes": str(write.parquet_row_group_size * 1024),
        # Old metadata makes every load slower.
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "10",
        # Readers open every manifest. Merging them more often than by default costs writers no more in all.
        "commit.manifest.min-count-to-merge": "30",
        # A small batch is a single task; shuffling it would only cost time.
        "write.distribution-mode": "none",
        "write.spark.fanout.enabled": "true",
        "commit.retry.num-retries": "10",
    }
    if properties.description is not None:
        values[COMMENT] = properties.description
    for group, (prefix, _) in GROUPS.items():
        values |= _written(prefix, getattr(properties, group))
    return values


def describe(properties: Mapping[str, str]) -> dict[str, Any]:
    """A table's properties in the form of CREATE_TABLE."""
    described: dict[str, Any] = {"file_format": properties.get("write.format.default", "parquet")}
    if _CODEC in properties:
        described["compression"] = properties[_CODEC]
    if COMMENT in properties:
        described["description"] = properties[COMMENT]
    if properties.get(_TARGET, "").isdecimal():
        described["target_file_size_mb"] = max(1, int(properties[_TARGET]) // _MIB)
    for key, (prefix, model) in GROUPS.items():
        overrides = _read(prefix, model, properties)
        if overrides:
            described[key] = overrides
    return described


def compaction_policy(properties: Mapping[str, str], settings: CompactionSettings) -> CompactionPolicy:
    """The service's compaction settings with this table's overrides."""
    overrides = _read(_COMPACTION, CompactionOverrides, properties)
    return CompactionPolicy.model_validate({**settings.model_dump(), **overrides})


def snapshot_policy(properties: Mapping[str, str], settings: SnapshotSettings) -> SnapshotSettings:
    """The service's settings for old snapshots with this table's overrides."""
    return SnapshotSettings.model_validate(
        {**settings.model_dump(), **_read(_SNAPSHOTS, SnapshotOverrides, properties)}
    )


def edit_policy(properties: Mapping[str, str], settings: EditSettings) -> EditSettings:
    """The service's settings for edits with this table's overrides."""
    return EditSettings.model_validate({**settings.model_dump(), **_read(_EDITS, EditOverrides, properties)})


def changed_properties(given: TableProperties, settings: IcebergSettings) -> dict[str, str | None]:
    """The Iceberg properties for the properties that a request sets; None removes one."""
    changed: dict[str, str | None] = {}
    for group, (prefix, _) in GROUPS.items():
        changed |= _set_overrides(prefix, getattr(given, group))
    named = given.model_fields_set
    if "compression" in named:
        changed[_CODEC] = given.compression or settings.write.compression_codec
    if "target_file_size_mb" in named:
        changed |= target_size_property(given.target_file_size_mb, settings)
    if "description" in named:
        changed[COMMENT] = given.description
    return changed


def unset_properties(name: str, settings: IcebergSettings) -> dict[str, str | None] | None:
    """The Iceberg properties that reset a property to the service's settings; None if there is no such property."""
    if name == "compression":
        return {_CODEC: settings.write.compression_codec}
    if name == "target_file_size_mb":
        return target_size_property(None, settings)
    if name == "description":
        return {COMMENT: None}
    group, dot, key = name.partition(".")
    prefix, model = GROUPS.get(group, ("", None))
    if model is None:
        return None
    keys = [key] if dot else list(model.model_fields)
    return {prefix + one: None for one in keys} if set(keys) <= model.model_fields.keys() else None


def property_names() -> list[str]:
    """Every name that `unset_properties` knows."""
    inner = [f"{group}.{key}" for group, (_, model) in GROUPS.items() for key in model.model_fields]
    return ["compression", "target_file_size_mb", "description", *GROUPS, *inner]


def is_online(properties: Mapping[str, str]) -> bool:
    """Whether scheduled and automatic maintenance may work on a table."""
    return properties.get(ONLINE, "true").lower() != "false"


def target_file_size_mb(properties: Mapping[str, str], settings: IcebergSettings) -> int:
    text = properties.get(_TARGET, "")
    return max(1, int(text) // _MIB) if text.isdecimal() else settings.write.target_file_size_mb


def compaction_properties(overrides: CompactionOverrides) -> dict[str, str | None]:
    """The Iceberg properties that hold a table's compaction overrides; None removes one."""
    return _set_overrides(_COMPACTION, overrides)


def snapshot_properties(overrides: SnapshotOverrides | None) -> dict[str, str | None]:
    """The Iceberg properties that hold a table's snapshot overrides; None, for all if there are none, removes one."""
    if overrides is None:
        return {_SNAPSHOTS + key: None for key in SnapshotOverrides.model_fields}
    return _set_overrides(_SNAPSHOTS, overrides)


def target_size_property(megabytes: int | None, settings: IcebergSettings) -> dict[str, str | None]:
    """The Iceberg property for the target size of files; by default the service's setting."""
    return {_TARGET: str((megabytes or settings.write.target_file_size_mb) * _MIB)}


def codec_of(properties: Mapping[str, str]) -> str | None:
    """The codec of a table's new files, if its properties name one."""
    return properties.get(_CODEC)


def codec_property(codec: str) -> dict[str, str]:
    """The Iceberg property for the codec of new files."""
    return {_CODEC: codec}


def _set_overrides(prefix: str, overrides: BaseModel) -> dict[str, str | None]:
    """The properties of the fields that a request sets; None removes one."""
    written = _written(prefix, overrides)
    return {prefix + key: written.get(prefix + key) for key in overrides.model_fields_set}


def _written(prefix: str, overrides: BaseModel) -> dict[str, str]:
    values = overrides.model_dump(exclude_none=True)
    return {prefix + key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def _read(prefix: str, model: type[BaseModel], properties: Mapping[str, str]) -> dict[str, Any]:
    """A model's fields from the properties, without invalid ones, which other programs may have written."""
    found: dict[str, Any] = {}
    for key in model.model_fields:
        text = properties.get(prefix + key)
        if text is None:
            continue
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        try:
            found[key] = getattr(model.model_validate({key: value}), key)
        except ValidationError:
            continue
    return found

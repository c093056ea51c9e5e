"""A table's properties: what CREATE_TABLE accepts, and how Iceberg and Firn keep it."""

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
    """What one table wants other than the service's compaction settings."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    enabled: bool | None = Field(default=None, description="whether writes check and COMPACT merges unforced")
    mode: Mode | None = Field(
        default=None,
        description="`off`: as `enabled: false`; `recommend`: say when compaction is worth it; `auto`: do it by itself",
    )
    small_file_threshold_mb: Megabytes | None = Field(default=None, description="below this size a file is small")
    min_files_to_compact: FileCount | None = Field(
        default=None, description="so many small files in one partition are worth merging"
    )
    opportunistic_check_interval: Count | None = Field(
        default=None, description="every so many writes the small files are counted"
    )
    max_files_per_compaction: FileCount | None = Field(
        default=None, description="at most so many files are merged at once"
    )
    snapshot_retention_hours: Hours | None = Field(
        default=None, description="how old a snapshot must be for a compaction to let it go"
    )
    strategy: Strategy | None = Field(
        default=None, description="`binpack` keeps the rows' order, `sort` and `zorder` sort them by `sort_by`"
    )
    sort_by: tuple[str, ...] | None = Field(
        default=None, max_length=16, description="the columns that `sort` and `zorder` sort by", strict=False
    )
    window: Window | None = Field(
        default=None,
        description="when scheduled and automatic compactions may begin, such as `01:00-05:30 Europe/Zurich`; UTC "
        "where no place is named",
    )


class CompactionPolicy(CompactionSettings):
    """What holds for one table: the service's settings, the table's overrides over them, and what only a table has."""

    strategy: Strategy = "binpack"
    sort_by: tuple[str, ...] = ()
    window: Window | None = None


class SnapshotOverrides(BaseModel):
    """What one table wants other than the service's settings for old snapshots."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    keep_last: Count | None = Field(default=None, description="so many of the newest snapshots stay")
    hourly_for_hours: Hours | None = Field(
        default=None, description="beyond those, the last snapshot of each hour stays for so many hours"
    )
    keep_at_most: Count | None = Field(default=None, description="never more than so many stay by these rules")


class EditOverrides(BaseModel):
    """What one table wants other than the service's settings for changes of rows."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    create_backup: bool | None = Field(
        default=None, description="whether a change of rows keeps the state before it, where its request does not say"
    )
    backup_retention_hours: KeptHours | None = Field(
        default=None, description="how long such a backup is kept, where the request does not say"
    )
    undo_retention_hours: UndoHours | None = Field(
        default=None, description="how long UNDO can take a change back; 0: nothing is kept for it"
    )


# The groups whose fields may also stand flat beside the other properties.
_FLAT: dict[str, type[BaseModel]] = {"compaction": CompactionOverrides, "edits": EditOverrides}


def _describe_flat_overrides(schema: dict[str, Any]) -> None:
    for model in _FLAT.values():
        schema["properties"] |= model.model_json_schema()["properties"]


class TableProperties(BaseModel):
    """The `properties` of CREATE_TABLE. What is compaction's or edits' may also stand flat beside the others."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, json_schema_extra=_describe_flat_overrides)

    compression: Codec | None = Field(default=None, description="the Parquet codec of new files")
    description: Annotated[str, Field(max_length=4000)] | None = Field(
        default=None, description="what the table is for"
    )
    file_format: Literal["parquet"] = Field(default="parquet", description="the only one there is")
    target_file_size_mb: Megabytes | None = Field(default=None, description="how large merged files should be")
    compaction: CompactionOverrides = Field(
        default=CompactionOverrides(), description="what this table wants other than the service's settings"
    )
    snapshots: SnapshotOverrides = Field(
        default=SnapshotOverrides(), description="which old snapshots this table keeps, if not those of the settings"
    )
    edits: EditOverrides = Field(
        default=EditOverrides(), description="what a change of this table's rows keeps, if not as the settings say"
    )

    @model_validator(mode="before")
    @classmethod
    def _gather_flat_overrides(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        for group, model in _FLAT.items():
            value = _gathered(value, group, model)
        return value


def _gathered(value: dict[str, Any], group: str, model: type[BaseModel]) -> dict[str, Any]:
    """The properties with those of one group inside of it, where they stood flat."""
    flat = {k: v for k, v in value.items() if k in model.model_fields}
    nested = value.get(group) or {}
    if not flat or not isinstance(nested, dict):
        return value
    twice = sorted(flat.keys() & nested.keys())
    if twice:
        raise ValueError(f"{twice[0]} is given twice, flat and inside {group}; send it once")
    return {**{k: v for k, v in value.items() if k not in flat}, group: {**nested, **flat}}


GROUPS: dict[str, tuple[str, type[BaseModel]]] = {
    "compaction": (_COMPACTION, CompactionOverrides),
    "snapshots": (_SNAPSHOTS, SnapshotOverrides),
    "edits": (_EDITS, EditOverrides),
}


def to_iceberg(properties: TableProperties, settings: IcebergSettings) -> dict[str, str]:
    """The Iceberg properties a new table gets."""
    write = settings.write
    values = {
        "format-version": "2",
        "write.format.default": properties.file_format,
        _CODEC: properties.compression or write.compression_codec,
        _TARGET: str((properties.target_file_size_mb or write.target_file_size_mb) * _MIB),
        "write.parquet.row-group-size-bytes": str(write.parquet_row_group_size * 1024),
        # Every load pays for the metadata that has piled up.
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "10",
        # Readers open every manifest. Merging them more often than Iceberg does costs writers no more in all.
        "commit.manifest.min-count-to-merge": "30",
        # A small batch is one task already; shuffling it would only cost.
        "write.distribution-mode": "none",
        "write.spark.fanout.enabled": "true",
        "commit.retry.num-retries": "10",
    }
    if properties.description is not None:
        values[COMMENT] = properties.description
    for prefix, overrides in (
        (_COMPACTION, properties.compaction),
        (_SNAPSHOTS, properties.snapshots),
        (_EDITS, properties.edits),
    ):
        values |= _written(prefix, overrides)
    return values


def describe(properties: Mapping[str, str]) -> dict[str, Any]:
    """The properties in CREATE_TABLE's form, and Iceberg's own beside them."""
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
    """The service's compaction settings with this table's overrides over them."""
    overrides = _read(_COMPACTION, CompactionOverrides, properties)
    return CompactionPolicy.model_validate({**settings.model_dump(), **overrides})


def snapshot_policy(properties: Mapping[str, str], settings: SnapshotSettings) -> SnapshotSettings:
    """Which old snapshots stay: the service's settings with this table's overrides over them."""
    return SnapshotSettings.model_validate(
        {**settings.model_dump(), **_read(_SNAPSHOTS, SnapshotOverrides, properties)}
    )


def edit_policy(properties: Mapping[str, str], settings: EditSettings) -> EditSettings:
    """What a change of rows keeps: the service's settings with this table's overrides over them."""
    return EditSettings.model_validate({**settings.model_dump(), **_read(_EDITS, EditOverrides, properties)})


def written_changes(given: TableProperties, settings: IcebergSettings) -> dict[str, str | None]:
    """The Iceberg properties that hold what a request sets of a table's properties; the others stay as they are."""
    changed: dict[str, str | None] = {}
    for prefix, part in (
        (_COMPACTION, given.compaction),
        (_SNAPSHOTS, given.snapshots),
        (_EDITS, given.edits),
    ):
        changed |= {prefix + key: _written(prefix, part).get(prefix + key) for key in part.model_fields_set}
    named = given.model_fields_set
    if "compression" in named:
        changed[_CODEC] = given.compression or settings.write.compression_codec
    if "target_file_size_mb" in named:
        changed |= written_target(given.target_file_size_mb, settings)
    if "description" in named:
        changed[COMMENT] = given.description
    return changed


def unset_changes(name: str, settings: IcebergSettings) -> dict[str, str | None] | None:
    """The same for a property that is to be as the service's settings say; None where there is none of that name."""
    if name == "compression":
        return {_CODEC: settings.write.compression_codec}
    if name == "target_file_size_mb":
        return written_target(None, settings)
    if name == "description":
        return {COMMENT: None}
    group, dot, key = name.partition(".")
    prefix, model = GROUPS.get(group, ("", None))
    if model is None:
        return None
    keys = [key] if dot else list(model.model_fields)
    return {prefix + one: None for one in keys} if set(keys) <= model.model_fields.keys() else None


def property_names() -> list[str]:
    """Every name that `unset_changes` knows."""
    inner = [f"{group}.{key}" for group, (_, model) in GROUPS.items() for key in model.model_fields]
    return ["compression", "target_file_size_mb", "description", *GROUPS, *inner]


def is_online(properties: Mapping[str, str]) -> bool:
    """Whether upkeep that nobody asks for looks after a table."""
    return properties.get(ONLINE, "true").lower() != "false"


def target_file_size_mb(properties: Mapping[str, str], settings: IcebergSettings) -> int:
    text = properties.get(_TARGET, "")
    return max(1, int(text) // _MIB) if text.isdecimal() else settings.write.target_file_size_mb


def written_compaction(overrides: CompactionOverrides) -> dict[str, str | None]:
    """The Iceberg properties that hold a table's compaction policy; None for one that is to be removed."""
    written = _written(_COMPACTION, overrides)
    return {_COMPACTION + key: written.get(_COMPACTION + key) for key in overrides.model_fields_set}


def written_snapshots(overrides: SnapshotOverrides | None) -> dict[str, str | None]:
    """The same of which old snapshots stay; without overrides all are to be removed."""
    written = _written(_SNAPSHOTS, overrides) if overrides else {}
    named = overrides.model_fields_set if overrides else SnapshotOverrides.model_fields
    return {_SNAPSHOTS + key: written.get(_SNAPSHOTS + key) for key in named}


def written_target(megabytes: int | None, settings: IcebergSettings) -> dict[str, str | None]:
    """The Iceberg property that holds how large files should be; without a wish the service's setting, as at first."""
    return {_TARGET: str((megabytes or settings.write.target_file_size_mb) * _MIB)}


def codec_of(properties: Mapping[str, str]) -> str | None:
    """The codec of a table's new files, where its properties say it."""
    return properties.get(_CODEC)


def written_codec(codec: str) -> dict[str, str]:
    """The Iceberg property that holds the codec of new files."""
    return {_CODEC: codec}


def _written(prefix: str, overrides: BaseModel) -> dict[str, str]:
    values = overrides.model_dump(exclude_none=True)
    return {prefix + key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def _read(prefix: str, model: type[BaseModel], properties: Mapping[str, str]) -> dict[str, Any]:
    """What a model's fields are by the properties; one that another program wrote and that cannot be is left out."""
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

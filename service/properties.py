"""A table's properties: what CREATE_TABLE accepts, and how Iceberg and Firn keep it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from service.settings import Codec, CompactionSettings, Count, FileCount, IcebergSettings, Megabytes

_CODEC = "write.parquet.compression-codec"
_TARGET = "write.target-file-size-bytes"
_PREFIX = "firn.compaction."
_MIB = 1024 * 1024


class CompactionOverrides(BaseModel):
    """What one table wants other than the service's compaction settings."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    enabled: bool | None = Field(default=None, description="whether writes check and COMPACT merges unforced")
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


def _describe_flat_overrides(schema: dict[str, Any]) -> None:
    schema["properties"] |= CompactionOverrides.model_json_schema()["properties"]


class TableProperties(BaseModel):
    """The `properties` of CREATE_TABLE. Compaction overrides may also stand flat beside the others."""

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

    @model_validator(mode="before")
    @classmethod
    def _gather_flat_overrides(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        flat = {k: v for k, v in value.items() if k in CompactionOverrides.model_fields}
        nested = value.get("compaction") or {}
        if not flat or not isinstance(nested, dict):
            return value
        twice = sorted(flat.keys() & nested.keys())
        if twice:
            raise ValueError(f"{twice[0]} is given twice, flat and inside compaction; send it once")
        return {**{k: v for k, v in value.items() if k not in flat}, "compaction": {**nested, **flat}}


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
        # A small batch is one task already; shuffling it would only cost.
        "write.distribution-mode": "none",
        "write.spark.fanout.enabled": "true",
        "commit.retry.num-retries": "10",
    }
    if properties.description is not None:
        values["comment"] = properties.description
    overrides = properties.compaction.model_dump(exclude_none=True)
    return values | {_PREFIX + key: str(value).lower() for key, value in overrides.items()}


def describe(properties: Mapping[str, str]) -> dict[str, Any]:
    """The properties in CREATE_TABLE's form, and Iceberg's own beside them."""
    described: dict[str, Any] = {"file_format": properties.get("write.format.default", "parquet")}
    if _CODEC in properties:
        described["compression"] = properties[_CODEC]
    if "comment" in properties:
        described["description"] = properties["comment"]
    if properties.get(_TARGET, "").isdigit():
        described["target_file_size_mb"] = max(1, int(properties[_TARGET]) // _MIB)
    overrides = _overrides(properties)
    if overrides:
        described["compaction"] = overrides
    return described


def compaction_policy(properties: Mapping[str, str], settings: CompactionSettings) -> CompactionSettings:
    """The service's compaction settings with this table's overrides over them."""
    try:
        return CompactionSettings.model_validate({**settings.model_dump(), **_overrides(properties)})
    except ValidationError:  # another program wrote them
        return settings


def target_file_size_mb(properties: Mapping[str, str], settings: IcebergSettings) -> int:
    text = properties.get(_TARGET, "")
    return max(1, int(text) // _MIB) if text.isdigit() else settings.write.target_file_size_mb


def _overrides(properties: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in CompactionOverrides.model_fields:
        text = properties.get(_PREFIX + key)
        if text in ("true", "false"):
            found[key] = text == "true"
        elif text is not None and text.isdigit():
            found[key] = int(text)
    return found

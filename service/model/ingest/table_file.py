"""The table file: what an ingestion table is called, where its exported files are, and when its periods are merged."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from service.model.ingest.patterns import check_date_format, check_pattern
from service.model.ingest.periods import Granularity
from service.model.names import check_name

QUARANTINE_SUFFIX = "__quarantine"
_MAX_NAME = 63 - len(QUARANTINE_SUFFIX)


class FileModel(BaseModel):
    """A part of a file that people write: unknown keys are refused, and types are not guessed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def check_table_name(value: str) -> str:
    """Return the name of an ingestion table, or raise ValueError if its quarantine's name would be too long."""
    if len(check_name(value, "name")) > _MAX_NAME:
        raise ValueError(f"it has {len(value)} characters; use at most {_MAX_NAME}, because of NAME{QUARANTINE_SUFFIX}")
    return value


class Storage(FileModel):
    type: Literal["local", "s3"] = Field(description="where exported files are")
    base_path: str = Field(
        min_length=1,
        description="the folder of exported files, from the working directory; for s3 `s3://bucket/prefix/`",
    )
    format: Literal["parquet", "csv"] = Field(default="parquet", description="the format of exported files")

    @model_validator(mode="after")
    def _check_base_path(self) -> Self:
        is_url = "://" in self.base_path
        if self.type == "s3" and not self.base_path.startswith("s3://"):
            raise ValueError(f"base_path {self.base_path!r} must begin with s3:// if type is s3")
        if self.type == "local" and is_url:
            raise ValueError(f"base_path {self.base_path!r} is a URL, but type is local; use a path, or type: s3")
        return self


class Partitioning(FileModel):
    strategy: Literal["flat", "hive"] = Field(
        default="flat", description="`flat`: a daily file is named by its date; `hive`: in a folder of its date"
    )
    pattern: str = Field(default="", validate_default=False, description="the path of a daily file below base_path")
    date_format: Annotated[str, AfterValidator(check_date_format)] = Field(
        default="%Y-%m-%d", description="how {date} is written"
    )

    @model_validator(mode="after")
    def _check_pattern(self) -> Self:
        needed = ("date",) if self.strategy == "flat" else ("year", "month", "day")
        if "pattern" in self.model_fields_set:
            try:
                check_pattern(self.pattern, needed, ("date", "year", "month", "day"))
            except ValueError as e:
                raise ValueError(f"pattern {self.pattern!r}: {e}") from e
        return self


class Trigger(FileModel):
    type: Literal["manual", "schedule"] = Field(default="manual", description="who starts compactions")
    delay_days: int = Field(
        default=0, ge=0, le=3650, description="a period is due this many days after its last day: late files get time"
    )
    schedule: str | None = Field(default=None, description="for `schedule`: a cron expression, such as `0 3 1 * *`")
    timezone: str | None = Field(default=None, description="for `schedule`: an IANA time zone; default: UTC")

    @model_validator(mode="after")
    def _check_schedule(self) -> Self:
        if self.type == "schedule" and self.schedule is None:
            raise ValueError('schedule is missing; write a cron expression, such as "0 3 1 * *", or type: manual')
        if self.type == "manual" and (self.schedule or self.timezone):
            raise ValueError("schedule and timezone need type: schedule; change the type, or leave them out")
        return self


class Strategy(FileModel):
    type: Granularity = Field(default="monthly", description="the period whose days become one file")
    output_pattern: str | None = Field(default=None, description="the path of a period file below base_path")
    delete_source: bool = Field(
        default=False, description="delete the daily files once their period is merged, exported ones included"
    )
    lookback_months: int | None = Field(
        default=None, ge=1, le=1200, description="how many months back to look for periods that are due; default: all"
    )

    @model_validator(mode="after")
    def _check_pattern(self) -> Self:
        needed = ("year", "month" if self.type == "monthly" else "week")
        if self.output_pattern is not None:
            try:
                check_pattern(self.output_pattern, needed, needed)
            except ValueError as e:
                raise ValueError(f"output_pattern {self.output_pattern!r}: {e}") from e
        return self


class Compaction(FileModel):
    enabled: bool = Field(default=True, description="whether periods are merged")
    trigger: Trigger = Field(default=Trigger(), description="when compactions start")
    strategy: Strategy = Field(default=Strategy(), description="which days become one file")


class Watch(FileModel):
    """A folder from which new files are ingested. Its files are never moved or deleted."""

    folder: str | None = Field(default=None, min_length=1, description="the folder, or an S3 prefix")
    prefix: str | None = Field(default=None, min_length=1, description="an S3 prefix, such as s3://bucket/daily/")
    pattern: str = Field(description="the names of its files, such as `sales_{date}.csv`")
    date_format: Annotated[str, AfterValidator(check_date_format)] | None = Field(
        default=None, description="how {date} is written in these names; default: as in partitioning"
    )
    settle_seconds: int | None = Field(
        default=None,
        ge=0,
        le=86_400,
        description="a file is read once its size and time of change have been the same for this many seconds",
    )
    done_marker: str | None = Field(
        default=None, description="a file is read once this one exists too, such as `{file}.done` or `_SUCCESS`"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.folder is None) == (self.prefix is None):
            raise ValueError("one of folder and prefix is needed, not both")
        if self.prefix is not None and not self.prefix.startswith("s3://"):
            raise ValueError(f"prefix {self.prefix!r} must begin with s3://; for a path use folder")
        if self.settle_seconds is not None and self.done_marker is not None:
            raise ValueError("settle_seconds and done_marker are two ways to tell that a file is complete; use one")
        try:
            needed = () if "{date}" not in self.pattern else ("date",)
            check_pattern(self.pattern, needed or ("year", "month", "day"), ("date", "year", "month", "day"))
        except ValueError as e:
            raise ValueError(f"pattern {self.pattern!r}: {e}") from e
        return self

    @property
    def place(self) -> str:
        """The folder or prefix."""
        return self.folder or self.prefix or ""


class Ingestion(FileModel):
    dataset_config: str | None = Field(
        default=None, min_length=1, description="the path of the dataset file, from the working directory"
    )
    watch: Watch | None = Field(default=None, description="a folder from which new files are ingested")


class TableFile(FileModel):
    """A table file."""

    name: Annotated[str, AfterValidator(check_table_name)] = Field(description="the table's name")
    namespace: str | None = Field(default=None, description="its namespace; default: that of the request, or `default`")
    description: str | None = Field(default=None, max_length=4000, description="what the table is for")
    storage: Storage | None = Field(default=None, description="where exported files are; needed for `export`")
    partitioning: Partitioning = Field(default=Partitioning(), description="how daily files are named")
    compaction: Compaction = Field(default=Compaction(), description="when days are merged into period files")
    ingestion: Ingestion = Field(default=Ingestion(), description="how files become rows")
    export: bool = Field(default=False, description="keep files under base_path, for readers without Iceberg")

    @model_validator(mode="after")
    def _check_export(self) -> Self:
        if self.export and self.storage is None:
            raise ValueError("export: true needs storage.base_path, the folder of exported files")
        ending = f".{self.format}"
        for name, pattern in (("partitioning.pattern", self.daily_pattern), ("output_pattern", self.period_pattern)):
            if not pattern.endswith(ending):
                raise ValueError(f"{name} {pattern!r} must end in {ending}, because storage.format is {self.format}")
        if self.daily_pattern == self.period_pattern:
            raise ValueError("pattern and output_pattern must differ, or a period's file would replace a day's")
        return self

    @property
    def format(self) -> str:
        return self.storage.format if self.storage else "parquet"

    @property
    def granularity(self) -> Granularity:
        return self.compaction.strategy.type

    @property
    def daily_pattern(self) -> str:
        """The path of a day's exported file below base_path."""
        if self.partitioning.pattern:
            return self.partitioning.pattern
        hive = "year={year}/month={month}/day={day}/data"
        return f"{hive if self.partitioning.strategy == 'hive' else '{date}'}.{self.format}"

    @property
    def period_pattern(self) -> str:
        """The path of a period's exported file below base_path."""
        default = {"monthly": "{year}-{month}", "weekly": "{year}-W{week}"}[self.granularity]
        return self.compaction.strategy.output_pattern or f"{default}.{self.format}"

    def stored(self) -> dict[str, Any]:
        """The file as JSON, without keys that it does not set."""
        return self.model_dump(mode="json", exclude_unset=True)

"""Typed, frozen settings: defaults here, `config/config.json` per environment over them, `FIRN_…` variables over both.

A variable is named after its setting: `FIRN_PORT`, `FIRN_ICEBERG__COMPACTION__SMALL_FILE_THRESHOLD_MB`.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

ROOT = Path(__file__).resolve().parent.parent
# Read by the Makefile, the jar cache, the choice of file and the `firn` command, not by a setting.
NOT_SETTINGS = {"FIRN_ENV", "FIRN_CONFIG", "FIRN_CACHE", "FIRN_URL", "FIRN_TENANT"}

Count = Annotated[int, Field(ge=1, le=1_000_000)]
FileCount = Annotated[int, Field(ge=2, le=1_000_000)]
Hours = Annotated[int, Field(ge=0, le=1_000_000)]
KeptHours = Annotated[int, Field(ge=1, le=1_000_000)]
# The ledger's notes of changes are kept for thirty days.
UndoHours = Annotated[int, Field(ge=0, le=720)]
Threads = Annotated[int, Field(ge=1, le=1000)]
Megabytes = Annotated[int, Field(ge=1, le=1_000_000)]
Mode = Literal["off", "recommend", "auto"]
Strategy = Literal["binpack", "sort", "zorder"]
# When scheduled and automatic upkeep may begin, by the clock of a place: "01:00-05:30 Europe/Zurich".
WINDOW = r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d( [A-Za-z0-9_+/-]+)?$"
Window = Annotated[str, Field(pattern=WINDOW)]
Codec = Literal["zstd", "snappy", "gzip", "uncompressed"]

_POSTGRESQL = re.compile(
    r"postgresql://([^\s:@/?#]+(:[^\s:@/?#]*)?@)?([\w.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?/[^\s/?#]+"
    # What libpq and the JDBC driver both know by these names.
    r"(\?(sslmode|sslrootcert)=[^\s&#]+(&(sslmode|sslrootcert)=[^\s&#]+)?)?"
)
_POSTGRESQL_FORM = (
    "postgresql://user:password@host:port/database (special characters as %-codes; ?sslmode=… may follow)"
)


class SettingsError(Exception):
    """A setting that cannot work; its message is one line that names the setting and the way out."""


class HomeInUse(SettingsError):
    """Another process owns the home."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class WriteSettings(_Section):
    target_file_size_mb: Megabytes = 128
    compression_codec: Codec = "zstd"
    parquet_row_group_size: Annotated[int, Field(ge=1, le=1_048_576)] = Field(default=8192, description="KiB")


class CompactionSettings(_Section):
    enabled: bool = True
    # "auto" compacts by itself where what queries pay for small files is more than what merging them costs.
    mode: Mode = "recommend"
    small_file_threshold_mb: Megabytes = 64
    min_files_to_compact: FileCount = 3
    opportunistic_check_interval: Count = 5
    max_files_per_compaction: FileCount = 100
    # What bounds the memory of a compaction: so much is read and written at a time, so many times side by side.
    group_mb: Megabytes = 256
    groups_at_once: Annotated[int, Field(ge=1, le=64)] = 2
    snapshot_retention_hours: Hours = 168
    # Mode auto compacts where queries are expected to save, over so many hours, so many times what merging costs …
    auto_worth: Annotated[float, Field(ge=0.001, le=1_000_000)] = 1.0
    auto_horizon_hours: Annotated[int, Field(ge=1, le=8760)] = 24
    # … and, whoever asks or does not, where there are so many times `min_files_to_compact` small files worth merging.
    auto_bound: Count = 10
    auto_every_s: Annotated[int, Field(ge=1, le=3600)] = 60

    @property
    def active(self) -> bool:
        """Whether small files are looked for and merged without being told to."""
        return self.enabled and self.mode != "off"


class SnapshotSettings(_Section):
    """Which old snapshots stay: the last ones, then the last of each hour; never more than so many in all."""

    keep_last: Count = 100
    hourly_for_hours: Hours = 168
    keep_at_most: Count = 300


class EditSettings(_Section):
    """What a change of rows leaves behind, so that it can be taken back."""

    create_backup: bool = False
    backup_retention_hours: KeptHours = 168
    undo_retention_hours: UndoHours = 24


class DroppedSettings(_Section):
    """How long a dropped table can be brought back."""

    kept_hours: KeptHours = 168


class IcebergSettings(_Section):
    write: WriteSettings = WriteSettings()
    compaction: CompactionSettings = CompactionSettings()
    snapshots: SnapshotSettings = SnapshotSettings()
    edits: EditSettings = EditSettings()
    dropped: DroppedSettings = DroppedSettings()


class SparkSettings(_Section):
    master: str = "local[*]"
    driver_memory: str = Field(default="2g", pattern=r"^[1-9][0-9]*[kmgKMG]$")
    sessions: Annotated[int, Field(ge=2, le=64)] = 4
    warm_up: bool = True
    conf: dict[str, str] = Field(default_factory=dict, description="further Spark settings, as they are")


class LedgerSettings(_Section):
    """Where the ledger is: SQLite under FIRN_HOME unless said otherwise."""

    url: str | None = None


class CatalogSettings(_Section):
    """Where tables are registered: SQLite under FIRN_HOME unless said otherwise."""

    type: Literal["sqlite", "rest", "glue", "postgresql"] = "sqlite"
    uri: str | None = None
    warehouse: str | None = None
    properties: dict[str, str] = Field(default_factory=dict, description="passed to PyIceberg and to Spark's catalog")


class WriteQueueSettings(_Section):
    """How WRITEs that come at the same time share a commit."""

    group_commit: bool = True
    # Clients answered together come back one after the other; a batch waits so long for them.
    linger_ms: Annotated[int, Field(ge=0, le=1000)] = 12
    batch_requests: Count = 2000
    batch_records: Annotated[int, Field(ge=1, le=10_000_000)] = 500_000
    batch_mb: Megabytes = 128


class LimitSettings(_Section):
    body_mb: Annotated[int, Field(ge=1, le=2048)] = 64
    bulk_mb: Megabytes = 16_384
    # Each takes one of the Spark sessions for as long as its rows move.
    bulk_at_once: Annotated[int, Field(ge=1, le=64)] = 2
    # An estimate of what the requests that are in the house take; the bytes of JSON count eightfold.
    memory_mb: Annotated[int, Field(ge=64, le=1_000_000)] = 1024
    keys_kept_hours: Annotated[int, Field(ge=1, le=8760)] = 24
    query_threads: Threads = 4
    # Most of them wait for their table's turn.
    edit_threads: Threads = 16
    upkeep_threads: Threads = 1
    # Answers on their way as CSV or Arrow, and how long a client may take nothing of one.
    streams: Annotated[int, Field(ge=1, le=500)] = 16
    stream_stall_s: Annotated[int, Field(ge=1, le=86_400)] = 300
    waiting_requests: Count = 1000
    start_wait_s: Annotated[int, Field(ge=1, le=3600)] = 120
    stop_wait_s: Annotated[int, Field(ge=1, le=21)] = 20


class MetricsSettings(_Section):
    # So many tables have series of their own in /metrics; those that were heard of least recently go first.
    tables: Annotated[int, Field(ge=0, le=100_000)] = 1000


class BackgroundSettings(_Section):
    """A service that a command has started in the background."""

    # It ends when nobody has asked it for anything for so long.
    idle_s: Annotated[int, Field(ge=1, le=86_400)] = 600


class Settings(_Section):
    environment: Literal["development", "staging", "production"] = "development"
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    home: Path = Path(".firn")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    iceberg: IcebergSettings = IcebergSettings()
    spark: SparkSettings = SparkSettings()
    catalog: CatalogSettings = CatalogSettings()
    ledger: LedgerSettings = LedgerSettings()
    writes: WriteQueueSettings = WriteQueueSettings()
    limits: LimitSettings = LimitSettings()
    metrics: MetricsSettings = MetricsSettings()
    background: BackgroundSettings = BackgroundSettings()

    def for_commands(self) -> Self:
        """The same without a warm-up: who waits for a command's answer need not wait for other kinds of job."""
        return self.model_copy(update={"spark": self.spark.model_copy(update={"warm_up": False})})


def load(environ: Mapping[str, str]) -> Settings:
    """Settings for `FIRN_ENV`, or a SettingsError that names the bad one."""
    environment = environ.get("FIRN_ENV", "development")
    known = get_args(Settings.model_fields["environment"].annotation)
    if environment not in known:
        raise SettingsError(f"FIRN_ENV is {environment!r}; it can be {', '.join(known)}")
    path = Path(environ.get("FIRN_CONFIG", ROOT / "config" / "config.json"))
    values = _read_file(path).get(environment, {})
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: {environment!r} must be an object of settings")
    for variable, keys, text in _overrides(environ):
        _set(values, keys, _parse(keys, text, variable), f"{path}: {environment}")
    try:
        settings = Settings.model_validate({**values, "environment": environment})
    except ValidationError as e:
        raise SettingsError(_explain(e, environ, path, environment)) from e
    _check_together(settings)
    home = settings.home.expanduser().absolute()
    if set("#?%") & set(str(home)):
        raise SettingsError(
            f"FIRN_HOME {home} has one of # ? % in its path, which file addresses cannot carry; choose another"
        )
    catalog = settings.catalog.model_copy(
        update={"warehouse": settings.catalog.warehouse or f"file://{home}/warehouse"}
    )
    return settings.model_copy(update={"home": home, "catalog": catalog})


def _read_file(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except OSError as e:
        raise SettingsError(f"cannot read {path} ({e.strerror}); set FIRN_CONFIG to the configuration file") from e
    except ValueError as e:
        raise SettingsError(f"{path} is not JSON: {e}") from e
    if not isinstance(value, dict):
        raise SettingsError(f"{path} must hold one object with a section per environment")
    return value


def _leaves(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _leaves(inner, (*prefix, name))
        elif name != "environment":
            yield (*prefix, name)


def variables() -> dict[str, tuple[str, ...]]:
    """Every environment variable that sets something, and the setting it sets."""
    return {"FIRN_" + "__".join(keys).upper(): keys for keys in _leaves(Settings)}


def _overrides(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...], str]]:
    known = variables()
    for variable, text in environ.items():
        if not variable.startswith("FIRN_") or variable in NOT_SETTINGS:
            continue
        if variable not in known:
            near = difflib.get_close_matches(variable, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "unset it"
            raise SettingsError(f"{variable} is not a setting; {hint}")
        yield variable, known[variable], text


def _parse(keys: tuple[str, ...], text: str, variable: str) -> Any:
    if keys[-1] not in {"conf", "properties"}:
        return text
    try:
        return json.loads(text)
    except ValueError as e:
        raise SettingsError(f"{variable} must be a JSON object of texts: {e}") from e


def _set(values: dict[str, Any], keys: tuple[str, ...], value: Any, where: str) -> None:
    for i, key in enumerate(keys[:-1]):
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise SettingsError(f"{where}.{'.'.join(keys[: i + 1])} must be an object of settings")
    values[keys[-1]] = value


def _explain(error: ValidationError, environ: Mapping[str, str], path: Path, environment: str) -> str:
    first = error.errors()[0]
    keys = tuple(str(part) for part in first["loc"])
    variable = next((v for v, k in variables().items() if k == keys[: len(k)] and v in environ), None)
    source = variable or f"{path}: {environment}.{'.'.join(keys)}"
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(".".join(keys), [".".join(k) for k in _leaves(Settings)], n=1)
        return f"{source} is not a setting" + (f"; did you mean {near[0]}?" if near else "; remove it")
    return f"{source} is {_shown(first['input'])}: {first['msg'][0].lower()}{first['msg'][1:]}"


def _shown(value: Any) -> str:
    """A value as an error may quote it: an address without who uses it."""
    return re.sub(r"://\S*@", "://…@", repr(value))


def _check_together(settings: Settings) -> None:
    threshold = settings.iceberg.compaction.small_file_threshold_mb
    target = settings.iceberg.write.target_file_size_mb
    if threshold >= target:
        raise SettingsError(
            f"iceberg.compaction.small_file_threshold_mb ({threshold}) must be below "
            f"iceberg.write.target_file_size_mb ({target}), or every compacted file would count as small again"
        )
    if settings.catalog.type != "sqlite" and not settings.catalog.warehouse:
        raise SettingsError(f"catalog.warehouse is not set; a {settings.catalog.type} catalog needs it, as s3://…")
    if settings.catalog.type in ("rest", "postgresql") and not settings.catalog.uri:
        raise SettingsError(f"catalog.uri is not set; a {settings.catalog.type} catalog needs it")
    if settings.catalog.type == "postgresql" and not _POSTGRESQL.fullmatch(settings.catalog.uri or ""):
        raise SettingsError(f"catalog.uri is no address of a PostgreSQL database; write it as {_POSTGRESQL_FORM}")
    if settings.ledger.url is None:
        return
    if not _POSTGRESQL.fullmatch(settings.ledger.url):
        raise SettingsError(
            f"ledger.url is no address of a PostgreSQL database; write it as {_POSTGRESQL_FORM}, "
            "or leave it unset for SQLite under FIRN_HOME"
        )
    if settings.catalog.type == "sqlite":
        raise SettingsError(
            "ledger.url is set, but catalog.type is sqlite: instances would share a ledger and no tables; "
            "set catalog.type to postgresql, rest or glue, or leave ledger.url unset"
        )

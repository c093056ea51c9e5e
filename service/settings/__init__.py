"""Typed, frozen settings. In increasing order of precedence: the defaults here, the environment's section of
`config/config.json`, and `FIRN_…` variables.

A variable is named after its setting: `FIRN_PORT`, `FIRN_ICEBERG__COMPACTION__SMALL_FILE_THRESHOLD_MB`.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from service.settings.expected import expected
from service.settings.kinds import (
    MEMORY,
    Codec,
    Count,
    FileCount,
    Hours,
    KeptHours,
    Megabytes,
    Mode,
    Processes,
    RowLevel,
    SettingsSection,
    UndoHours,
    as_list,
)
from service.settings.limits import LimitSettings as LimitSettings
from service.settings.security import AuditSettings, AuthSettings, TlsSettings

ROOT = Path(__file__).resolve().parents[2]
# These variables are not settings: the Makefile, the jar cache, `load` and the `firn` command read them.
NOT_SETTINGS = {"FIRN_ENV", "FIRN_CONFIG", "FIRN_CACHE", "FIRN_URL", "FIRN_TENANT", "FIRN_API_KEY"}

_POSTGRESQL = re.compile(
    r"postgresql://([^\s:@/?#]+(:[^\s:@/?#]*)?@)?([\w.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?/[^\s/?#]+"
    # The parameters that libpq and the JDBC driver have in common.
    r"(\?(sslmode|sslrootcert)=[^\s&#]+(&(sslmode|sslrootcert)=[^\s&#]+)?)?"
)
_POSTGRESQL_FORM = (
    "postgresql://user:password@host:port/database (special characters percent-encoded; ?sslmode=… may follow)"
)


class SettingsError(Exception):
    """An invalid setting. The message is one line that names the setting and says how to fix it."""


class HomeInUse(SettingsError):
    """Another process owns the home."""


class WriteSettings(SettingsSection):
    target_file_size_mb: Megabytes = 128
    compression_codec: Codec = "zstd"
    parquet_row_group_size: Annotated[int, Field(ge=1, le=1_048_576)] = Field(default=8192, description="KiB")


class CompactionSettings(SettingsSection):
    enabled: bool = True
    # "auto" compacts a table when small files cost its queries more than merging the files would.
    mode: Mode = "recommend"
    small_file_threshold_mb: Megabytes = 64
    min_files_to_compact: FileCount = 3
    opportunistic_check_interval: Count = 5
    max_files_per_compaction: FileCount = 100
    # These two bound the memory of a compaction: the size of a group of files, and how many it rewrites in parallel.
    group_mb: Megabytes = 256
    concurrent_groups: Annotated[int, Field(ge=1, le=64)] = 2
    snapshot_retention_hours: Hours = 168
    # Mode auto compacts if queries are expected to save this many times the cost of merging, within this many hours, …
    auto_min_worth: Annotated[float, Field(ge=0.001, le=1_000_000)] = 1.0
    auto_horizon_hours: Annotated[int, Field(ge=1, le=8760)] = 24
    # … or if there are this many times `min_files_to_compact` small files worth merging, whatever queries save.
    auto_small_files_factor: Count = 10
    auto_interval_s: Annotated[int, Field(ge=1, le=3600)] = 60

    @property
    def active(self) -> bool:
        """Whether Firn looks for small files, and merges them, on its own."""
        return self.enabled and self.mode != "off"


class SnapshotSettings(SettingsSection):
    """Which old snapshots are kept: the newest ones, then the last one of each hour, up to a maximum."""

    keep_last: Count = 100
    hourly_for_hours: Hours = 168
    keep_at_most: Count = 300


class EditSettings(SettingsSection):
    """What is kept so that an edit can be undone, and how rows are deleted."""

    create_backup: bool = False
    backup_retention_hours: KeptHours = 168
    undo_retention_hours: UndoHours = 72
    row_level: RowLevel = "auto"


class DroppedTableSettings(SettingsSection):
    """How long a dropped table can be restored."""

    retention_hours: KeptHours = 168


class IcebergSettings(SettingsSection):
    write: WriteSettings = WriteSettings()
    compaction: CompactionSettings = CompactionSettings()
    snapshots: SnapshotSettings = SnapshotSettings()
    edits: EditSettings = EditSettings()
    dropped_tables: DroppedTableSettings = DroppedTableSettings()


class SparkSettings(SettingsSection):
    master: str = "local[*]"
    driver_memory: str = Field(default="2g", pattern=MEMORY)
    sessions: Annotated[int, Field(ge=2, le=64)] = 5
    warm_up: bool = True
    conf: dict[str, str] = Field(default_factory=dict, description="more Spark settings, passed on unchanged")
    # Whether queries have a process of their own, with a JVM and a heap: 2. `auto`: a service with a port that runs
    # Spark itself, if the machine's memory suffices for both heaps.
    processes: Processes = "auto"
    # The heap of that process; that of `driver_memory` by default.
    query_memory: str | None = Field(default=None, pattern=MEMORY)
    query_conf: dict[str, str] = Field(
        default_factory=dict, description="in place of these in `conf`, for the process for queries"
    )


class LedgerSettings(SettingsSection):
    """Where the ledger is: in SQLite under FIRN_HOME by default."""

    url: str | None = None


class CatalogSettings(SettingsSection):
    """Where tables are registered: in SQLite under FIRN_HOME by default."""

    type: Literal["sqlite", "rest", "glue", "postgresql"] = "sqlite"
    uri: str | None = None
    warehouse: str | None = None
    properties: dict[str, str] = Field(default_factory=dict, description="passed to PyIceberg and to Spark's catalog")


class WriteQueueSettings(SettingsSection):
    """How concurrent WRITEs share a commit."""

    group_commit: bool = True
    # Clients that got their responses together send their next WRITEs one after the other; a batch waits for them,
    # up to four times as long while they keep coming.
    linger_ms: Annotated[int, Field(ge=0, le=1000)] = 12
    batch_requests: Count = 2000
    batch_records: Annotated[int, Field(ge=1, le=10_000_000)] = 500_000
    batch_mb: Megabytes = 128
    # Whether UPSERT, UPDATE and DELETE of rows that they name by key share commits, too.
    shared_edits: bool = True


class QuerySettings(SettingsSection):
    """What one query in SQL may cost. One that may cost more is refused before it runs."""

    # The largest value that a query may make, such as a text or an array, and all values of one response in JSON.
    max_value_mb: Annotated[int, Field(ge=1, le=2048)] = 64
    max_result_mb: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    # The rows that a join or a generator may make of fewer, and the steps that one row may take to compute.
    max_rows: Annotated[int, Field(ge=1, le=10**15)] = 1_000_000_000
    # What may be planned, with the query of a WITH clause at each place that names it.
    max_nodes: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    max_joins: Annotated[int, Field(ge=1, le=1000)] = 30


class IngestSettings(SettingsSection):
    # The folders and S3 prefixes whose files requests may name, with commas in a variable. None: every file that the
    # service can read.
    allowed_roots: Annotated[tuple[str, ...], BeforeValidator(as_list)] = ()
    # How often the folders of tables with `ingestion.watch` are read.
    watch_interval_s: Annotated[int, Field(ge=1, le=86_400)] = 10


class DynamicSettings(SettingsSection):
    """How dynamic tables are kept up to date."""

    # Whether this service refreshes them by their target lag. `firn worker` does only that, beside or without it.
    worker: bool = True
    # How often it looks for changes of their base tables.
    interval_s: Annotated[int, Field(ge=1, le=3600)] = 5
    # How many tables it refreshes at once; each uses a Spark session.
    parallelism: Annotated[int, Field(ge=1, le=64)] = 2
    # Which tables it refreshes, as tenant.namespace.table, with commas in a variable; `*` stands for any text.
    tables: Annotated[tuple[str, ...], BeforeValidator(as_list)] = ("*",)
    # How long source snapshots that the next refresh needs do not expire, after later ones took their place.
    keep_snapshots_hours: Hours = 168


class MetricsSettings(SettingsSection):
    # How many tables have series of their own in /metrics; those updated least recently are removed first.
    tables: Annotated[int, Field(ge=0, le=100_000)] = 1000


class BackgroundSettings(SettingsSection):
    """A service that a command started in the background."""

    # It stops after this time without a request.
    idle_timeout_s: Annotated[int, Field(ge=1, le=86_400)] = 600


class Settings(SettingsSection):
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
    queries: QuerySettings = QuerySettings()
    ingest: IngestSettings = IngestSettings()
    dynamic: DynamicSettings = DynamicSettings()
    metrics: MetricsSettings = MetricsSettings()
    background: BackgroundSettings = BackgroundSettings()
    auth: AuthSettings = AuthSettings()
    tls: TlsSettings = TlsSettings()
    audit: AuditSettings = AuditSettings()

    @property
    def authenticates(self) -> bool:
        """Whether a request needs a credential."""
        return self.environment != "development" if self.auth.required is None else self.auth.required

    def for_commands(self) -> Self:
        """The same settings without a warm-up, which would delay the command."""
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
    _override(values, environ, f"{path}: {environment}")
    try:
        settings = Settings.model_validate({**values, "environment": environment})
    except ValidationError as e:
        raise SettingsError(_explain(e, environ, path, environment)) from e
    _check_together(settings)
    home = settings.home.expanduser().absolute()
    if set("#?%") & set(str(home)):
        raise SettingsError(
            f"FIRN_HOME {home} has one of # ? % in its path, which file URLs cannot contain; choose another"
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
    """Every environment variable for a setting, and that setting's path."""
    return {"FIRN_" + "__".join(keys).upper(): keys for keys in _leaves(Settings)}


def _override(values: dict[str, Any], environ: Mapping[str, str], where: str) -> None:
    """Set the values that FIRN_… variables give."""
    known = variables()
    for variable in environ:
        if not variable.startswith("FIRN_") or variable in NOT_SETTINGS:
            continue
        if variable not in known:
            near = difflib.get_close_matches(variable, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "unset it"
            raise SettingsError(f"{variable} is not a setting; {hint}")
        *sections, name = known[variable]
        section = values
        for depth, key in enumerate(sections, 1):
            section = section.setdefault(key, {})
            if not isinstance(section, dict):
                raise SettingsError(f"{where}.{'.'.join(sections[:depth])} must be an object of settings")
        try:
            section[name] = (
                json.loads(environ[variable]) if name in {"conf", "query_conf", "properties"} else environ[variable]
            )
        except ValueError as e:
            raise SettingsError(f"{variable} must be a JSON object of strings: {e}") from e


def _explain(error: ValidationError, environ: Mapping[str, str], path: Path, environment: str) -> str:
    first = error.errors()[0]
    keys = tuple(str(part) for part in first["loc"])
    variable = next((v for v, k in variables().items() if k == keys[: len(k)] and v in environ), None)
    source = variable or f"{path}: {environment}.{'.'.join(keys)}"
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(".".join(keys), [".".join(k) for k in _leaves(Settings)], n=1)
        return f"{source} is not a setting" + (f"; did you mean {near[0]}?" if near else "; remove it")
    return f"{source} is {_shown(first['input'])}, but must be {expected(first)}"


def _shown(value: Any) -> str:
    """A value as an error may quote it: a URL without its user and password."""
    return re.sub(r"://\S*@", "://…@", repr(value))


def _check_together(settings: Settings) -> None:
    threshold = settings.iceberg.compaction.small_file_threshold_mb
    target = settings.iceberg.write.target_file_size_mb
    if threshold >= target:
        raise SettingsError(
            f"iceberg.compaction.small_file_threshold_mb ({threshold}) must be below "
            f"iceberg.write.target_file_size_mb ({target}), or every compacted file would still count as small"
        )
    if settings.catalog.type != "sqlite" and not settings.catalog.warehouse:
        raise SettingsError(
            f"catalog.warehouse is not set (FIRN_CATALOG__WAREHOUSE); a {settings.catalog.type} catalog needs it, "
            "such as s3://lake/warehouse"
        )
    if settings.catalog.type in ("rest", "postgresql") and not settings.catalog.uri:
        raise SettingsError(f"catalog.uri is not set (FIRN_CATALOG__URI); a {settings.catalog.type} catalog needs it")
    if settings.catalog.type == "postgresql" and not _POSTGRESQL.fullmatch(settings.catalog.uri or ""):
        raise SettingsError(f"catalog.uri is not a PostgreSQL URL (FIRN_CATALOG__URI); write it as {_POSTGRESQL_FORM}")
    if settings.ledger.url is None:
        return
    if not _POSTGRESQL.fullmatch(settings.ledger.url):
        raise SettingsError(
            f"ledger.url is not a PostgreSQL URL (FIRN_LEDGER__URL); write it as {_POSTGRESQL_FORM}, "
            "or leave it unset for SQLite under FIRN_HOME"
        )
    if settings.catalog.type == "sqlite":
        raise SettingsError(
            "ledger.url is set, but catalog.type is sqlite: instances would share a ledger but no tables; "
            "set FIRN_CATALOG__TYPE to postgresql, rest or glue, or leave FIRN_LEDGER__URL unset"
        )

"""Settings: defaults, the environment's section over them, variables over both; a bad one stops start-up by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.settings import Settings, SettingsError, load, variables

FROM_ISSUE = {"development": (5, 3), "staging": (75, 15), "production": (100, 20)}


@pytest.mark.parametrize("environment", FROM_ISSUE)
def test_each_environment_checks_and_recommends_as_promised(environment: str) -> None:
    settings = load({"FIRN_ENV": environment})
    compaction, write = settings.iceberg.compaction, settings.iceberg.write
    assert settings.environment == environment
    assert (compaction.opportunistic_check_interval, compaction.min_files_to_compact) == FROM_ISSUE[environment]
    assert (compaction.enabled, compaction.small_file_threshold_mb, compaction.max_files_per_compaction) == (
        True,
        64,
        100,
    )
    assert (write.target_file_size_mb, write.compression_codec, write.parquet_row_group_size) == (128, "zstd", 8192)


def test_the_defaults_are_the_ones_documented() -> None:
    settings = load({})
    assert (settings.environment, settings.host, settings.port) == ("development", "127.0.0.1", 8080)
    assert settings.home == Path.cwd() / ".firn"
    assert settings.catalog.warehouse == f"file://{Path.cwd()}/.firn/warehouse"


def test_nothing_is_read_but_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRN_PORT", "9999")
    assert load({}).port == 8080


ADDRESS = "postgresql://firn:secret@db:5432/firn"
SHARED = {
    "FIRN_CATALOG__TYPE": "postgresql",
    "FIRN_CATALOG__URI": ADDRESS,
    "FIRN_CATALOG__WAREHOUSE": "file:///srv/lake",
}
VALUES = {
    "host": "0.0.0.0",
    "home": "/srv/firn",
    "log_level": "debug",
    "compression_codec": "snappy",
    "enabled": "false",
    "warm_up": "false",
    "create_backup": "true",
    "row_level": "merge_on_read",
    "group_commit": "false",
    "shared_edits": "false",
    "worker": "false",
    "mode": "auto",
    "auto_min_worth": "2.5",
    "memory_mb": "77",
    "response_bytes": "123456",
    "max_nodes": "777",
    "small_file_threshold_mb": "33",
    "master": "local[1]",
    "driver_memory": "1g",
    "processes": "2",
    "query_memory": "1g",
    "query_conf": '{"spark.cores.max": "2"}',
    "conf": '{"spark.ui.enabled": "false"}',
    "type": "glue",
    "uri": "http://catalog.example.com",
    "url": "postgresql://firn:secret@db.example.com:5432/firn",
    "warehouse": "s3://lake/warehouse",
    "properties": '{"s3.region": "eu-west-1"}',
    "required": "true",
    "allow_unauthenticated": "true",
    "public_docs": "true",
    "allow_plain_http": "true",
    "algorithms": "RS256,ES256",
    "allowed_roots": "/srv/daily,s3://lake/daily",
}


@pytest.mark.parametrize(("variable", "keys"), variables().items(), ids=lambda v: v if isinstance(v, str) else "")
def test_every_setting_can_be_set_by_its_variable(variable: str, keys: tuple[str, ...]) -> None:
    text = VALUES.get(keys[-1], "7" if keys[-1] != "target_file_size_mb" else "77")
    environ = {"FIRN_CATALOG__TYPE": "glue", "FIRN_CATALOG__WAREHOUSE": "s3://lake/warehouse", variable: text}
    value: Any = load(environ)
    for key in keys:
        value = getattr(value, key)
    expected = json.loads(text) if text.startswith("{") else text
    value = ",".join(value) if isinstance(value, tuple) else value
    assert (str(value).lower() if isinstance(value, bool | int | float | Path) else value) == expected


def test_a_variable_goes_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"staging": {"port": 9000, "log_level": "error", "spark": {"sessions": 8}}}')
    settings = load({"FIRN_ENV": "staging", "FIRN_CONFIG": str(path), "FIRN_PORT": "9001"})
    assert (settings.port, settings.log_level, settings.spark.sessions) == (9001, "error", 8)
    assert load({"FIRN_CONFIG": str(path)}).port == 8080


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"FIRN_ENV": "prod"}, "FIRN_ENV is 'prod'; it can be development, staging, production"),
        ({"FIRN_PORT": "eighty"}, "FIRN_PORT is 'eighty', but must be a whole number"),
        ({"FIRN_PORT": "0"}, "FIRN_PORT is '0', but must be at least 1"),
        ({"FIRN_PORT": "65536"}, "FIRN_PORT is '65536'"),
        ({"FIRN_PROT": "1"}, "FIRN_PROT is not a setting; did you mean FIRN_PORT?"),
        ({"FIRN_ENVIRONMENT": "staging"}, "FIRN_ENVIRONMENT is not a setting"),
        ({"FIRN_LOG_LEVEL": "loud"}, "FIRN_LOG_LEVEL is 'loud'"),
        ({"FIRN_ICEBERG__WRITE__COMPRESSION_CODEC": "zip"}, "FIRN_ICEBERG__WRITE__COMPRESSION_CODEC is 'zip'"),
        ({"FIRN_ICEBERG__COMPACTION__ENABLED": "maybe"}, "COMPACTION__ENABLED is 'maybe', but must be true or false"),
        ({"FIRN_ICEBERG__COMPACTION__MIN_FILES_TO_COMPACT": "1"}, "MIN_FILES_TO_COMPACT is '1'"),
        ({"FIRN_ICEBERG__COMPACTION__SMALL_FILE_THRESHOLD_MB": "128"}, "small_file_threshold_mb (128) must be below"),
        ({"FIRN_SPARK__CONF": "yes"}, "FIRN_SPARK__CONF must be a JSON object"),
        ({"FIRN_SPARK__CONF": '{"a": {}}'}, "FIRN_SPARK__CONF is {}"),
        ({"FIRN_SPARK__DRIVER_MEMORY": "lots"}, "is 'lots', but must be an amount of memory such as 512m or 2g"),
        ({"FIRN_LIMITS__STOP_TIMEOUT_S": "30"}, "FIRN_LIMITS__STOP_TIMEOUT_S is '30'"),
        ({"FIRN_LIMITS__MEMORY_MB": "63"}, "FIRN_LIMITS__MEMORY_MB is '63'"),
        ({"FIRN_LIMITS__IDEMPOTENCY_KEY_RETENTION_HOURS": "0"}, "FIRN_LIMITS__IDEMPOTENCY_KEY_RETENTION_HOURS is '0'"),
        ({"FIRN_METRICS__TABLES": "-1"}, "FIRN_METRICS__TABLES is '-1'"),
        ({"FIRN_METRICS__TABLES": "100001"}, "FIRN_METRICS__TABLES is '100001'"),
        ({"FIRN_WRITES__LINGER_MS": "-1"}, "FIRN_WRITES__LINGER_MS is '-1'"),
        ({"FIRN_WRITES__LINGER_MS": "1001"}, "FIRN_WRITES__LINGER_MS is '1001'"),
        ({"FIRN_WRITES__BATCH_REQUESTS": "0"}, "FIRN_WRITES__BATCH_REQUESTS is '0'"),
        ({"FIRN_WRITES__GROUP_COMIT": "true"}, "did you mean FIRN_WRITES__GROUP_COMMIT?"),
        ({"FIRN_CATALOG__TYPE": "glue"}, "catalog.warehouse is not set"),
        ({"FIRN_CATALOG__TYPE": "rest", "FIRN_CATALOG__WAREHOUSE": "s3://a"}, "catalog.uri is not set"),
        ({"FIRN_CATALOG__TYPE": "postgresql", "FIRN_CATALOG__URI": ADDRESS}, "catalog.warehouse is not set"),
        ({"FIRN_CATALOG__TYPE": "postgresql", "FIRN_CATALOG__WAREHOUSE": "s3://a"}, "catalog.uri is not set"),
        ({**SHARED, "FIRN_CATALOG__URI": "http://u:secret@db"}, "catalog.uri is not a PostgreSQL URL"),
        ({"FIRN_LEDGER__URL": ADDRESS}, "ledger.url is set, but catalog.type is sqlite"),
        ({"FIRN_LEDGER__URI": ADDRESS}, "did you mean FIRN_LEDGER__URL?"),
        ({"FIRN_CONFIG": "/nowhere/config.json"}, "cannot read /nowhere/config.json"),
    ],
)
def test_a_bad_setting_is_named_in_one_line(environ: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(environ)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        ADDRESS,
        "postgresql://db/firn",
        "postgresql://firn@[::1]:5433/firn",
        "postgresql://firn:p%40ss%2Fword@db/firn?sslmode=verify-full&sslrootcert=/etc/ca.pem",
    ],
)
def test_a_ledger_and_a_catalog_can_be_shared_in_postgresql(address: str) -> None:
    settings = load({**SHARED, "FIRN_CATALOG__URI": address, "FIRN_LEDGER__URL": address})
    assert (settings.ledger.url, settings.catalog.uri) == (address, address)
    assert settings.catalog.warehouse == "file:///srv/lake"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "sqlite:///u:secret@ledger.db",
        "mysql://u:secret@db/firn",
        "postgres://u:secret@db/firn",
        "postgresql+psycopg://u:secret@db/firn",
        "postgresql://u:secret@db",
        "postgresql://u:secret@db:port/firn",
        "postgresql://u:sec/ret@db/firn",
        "postgresql://u:sec@ret@db/firn",
        "postgresql://u:secret@one,two/firn",
        "postgresql://u:secret@db/firn?options=-csearch_path%3Dx",
        "postgresql://u:secret@db/firn\n",
    ],
)
@pytest.mark.parametrize("variable", ["FIRN_LEDGER__URL", "FIRN_CATALOG__URI"])
def test_any_other_address_is_refused_without_repeating_its_password(address: str, variable: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load({**SHARED, variable: address})
    message = str(refused.value)
    assert message.startswith("ledger.url is " if variable == "FIRN_LEDGER__URL" else "catalog.uri is ")
    assert "postgresql://user:password@host:port/database" in message or not address
    assert "\n" not in message
    assert "sec" not in message


def test_an_address_in_the_wrong_place_is_shown_without_its_password(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"development": {"ledger": ADDRESS}}))
    with pytest.raises(SettingsError, match="ledger is 'postgresql://…@db:5432/firn'") as refused:
        load({"FIRN_CONFIG": str(path)})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "must hold one object"),
        ('{"development": []}', "'development' must be an object"),
        ('{"development": {"prot": 1}}', "development.prot is not a setting; did you mean port?"),
        ('{"development": {"iceberg": {"compaction": {"enbled": true}}}}', "did you mean iceberg.compaction.enabled?"),
        ('{"development": {"port": "high"}}', "development.port is 'high'"),
    ],
)
def test_a_bad_file_is_named_with_the_place_in_it(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(SettingsError) as refused:
        load({"FIRN_CONFIG": str(path)})
    assert says in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 1  # type: ignore[misc]

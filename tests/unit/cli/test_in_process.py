"""Commands in a process of their own without Spark: metadata is read and changed, and the home has one owner."""

from pathlib import Path
from typing import Any

import pytest

from service.cli.connection.in_process import InProcess
from service.settings import HomeInUse, SettingsError, load

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "orders"}
CREATE = {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"id": {"type": "long"}}}}
LIST = {"operation": "LIST_TABLES", "tenant_id": "acme", "namespace": "shop"}


def opened(home: Path, message: list[str] | None = None) -> InProcess:
    message = [] if message is None else message
    return InProcess.open(load({"FIRN_HOME": str(home)}), message.append, needs_spark=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def test_metadata_is_changed_and_read_without_spark_and_stays(home: Path) -> None:
    message: list[str] = []
    first = opened(home, message)
    assert first.send(CREATE)["table_created"]
    first.close()
    assert message == [f"FIRN_HOME {home} has no data yet"]
    second = opened(home, message)
    assert second.send(LIST)["tables"] == ["orders"]
    second.close()
    assert len(message) == 1


def test_a_home_has_one_owner_at_a_time(home: Path) -> None:
    first = opened(home)
    with pytest.raises(HomeInUse, match="is in use by process"):
        opened(home)
    first.close()
    opened(home).close()


def test_what_needs_spark_all_the_same_is_refused_at_once(home: Path) -> None:
    connection = opened(home)
    connection.send(CREATE)
    answer: dict[str, Any] = connection.send({"operation": "QUERY", **ADDRESS})
    assert (answer["success"], answer["error"]["code"]) == (False, "ENGINE_UNAVAILABLE")
    connection.close()


def test_a_key_beside_a_request_counts_as_one_in_it(home: Path) -> None:
    connection = opened(home)
    create = {**CREATE, "table": "keyed"}
    first = connection.send(create, "k1")
    assert connection.send(create, "k1") == first
    assert connection.send(create)["error"]["code"] == "TABLE_EXISTS"
    connection.close()


def test_a_job_that_is_not_there_is_told_as_over_http(home: Path) -> None:
    connection = opened(home)
    for ask in (connection.job, connection.cancel):
        assert ask("nope")["error"]["code"] == "NOT_FOUND"
    connection.close()


def test_a_command_that_needs_spark_names_what_is_wrong_with_java_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SettingsError, match=f"JAVA_HOME is {tmp_path}, but there is no"):
        InProcess.open(load({"FIRN_HOME": str(tmp_path / "home")}), [].append, needs_spark=True)

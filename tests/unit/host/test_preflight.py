"""What cannot work is said before anything starts, in one line that names the way out."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from service.host import preflight, presence, process_locks
from service.settings import ROOT, Settings, SettingsError


def java(folder: Path, says: str, status: int = 0) -> dict[str, str]:
    """An environment whose Java prints this version."""
    program = folder / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {status}\n")
    os.chmod(program, 0o755)
    return {"JAVA_HOME": str(folder / "jdk"), "PATH": os.environ["PATH"]}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=y\nopenjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", 0),
    ],
)
def test_the_version_is_read_from_what_java_prints(text: str, version: int) -> None:
    assert preflight.java_version(text) == version


@pytest.mark.parametrize("version", ["17.0.15", "21.0.4", "22"])
def test_a_java_that_spark_runs_on_is_accepted(tmp_path: Path, version: str) -> None:
    assert preflight.check_java(java(tmp_path, f'openjdk version "{version}"')) == int(version[:2])


@pytest.mark.parametrize(
    ("version", "much"), [("1.8.0_392", "old"), ("16.0.2", "old"), ("23", "new"), ("25.0.3", "new")]
)
def test_a_java_that_spark_does_not_run_on_is_refused(tmp_path: Path, version: str, much: str) -> None:
    with pytest.raises(
        SettingsError, match=rf"Java \d+ .* is too {much} .* 17 to 22; install Java 17, or set JAVA_HOME"
    ):
        preflight.check_java(java(tmp_path, f'openjdk version "{version}"'))


def test_a_missing_java_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^Java is missing; install Java 17"):
        preflight.check_java({"PATH": str(tmp_path)})
    assert preflight.java_home({"PATH": str(tmp_path)}) is None


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"JAVA_HOME is {tmp_path}, but there is no {tmp_path}/bin/java"):
        preflight.check_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})


def test_a_java_that_only_says_where_to_find_one_is_no_java(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is not a working Java"):
        preflight.check_java(java(tmp_path, "Unable to locate a Java Runtime.", status=1))


def test_the_java_home_is_the_named_one_else_that_of_the_path(tmp_path: Path) -> None:
    environ = java(tmp_path, 'openjdk version "17"')
    assert preflight.java_home(environ) == tmp_path / "jdk"
    assert preflight.java_home({"PATH": str(tmp_path / "jdk" / "bin")}) == tmp_path / "jdk"


def test_a_busy_port_is_said_and_another_proposed() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"port {port} on 127\.0\.0\.1 is in use; .*FIRN_PORT=\d+"):
            preflight.check_port("127.0.0.1", port)
    preflight.check_port("127.0.0.1", port)


def test_a_host_of_another_machine_is_said() -> None:
    with pytest.raises(SettingsError, match=r"FIRN_HOST '192\.0\.2\.99' is not an address of this machine"):
        preflight.check_port("192.0.2.99", 8080)


def test_a_home_that_can_be_written_is_created_and_left_empty(tmp_path: Path) -> None:
    preflight.check_home(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("below", ["file", "file/home", "file/deep/home"])
def test_a_home_on_or_below_a_file_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SettingsError, match=f"FIRN_HOME {tmp_path}/{below} cannot be written .*; set FIRN_HOME"):
        preflight.check_home(tmp_path / below)


def test_little_room_is_a_warning_not_a_refusal(tmp_path: Path) -> None:
    assert preflight.disk_warning(tmp_path, enough=0) is None
    assert "FIRN_HOME" in (preflight.disk_warning(tmp_path, enough=1 << 60) or "")


def test_examine_goes_on_after_a_check_that_failed(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, port=_free_port())
    outcomes = list(preflight.examine(settings, {"PATH": str(tmp_path)}))
    assert [ok for ok, _ in outcomes] == [False, True, True, True, True]


def test_examine_sees_a_home_that_is_in_use(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, port=_free_port())
    with process_locks.acquire(tmp_path):
        *_, (ok, text) = preflight.examine(settings, {"PATH": str(tmp_path)})
    assert not ok
    assert text.startswith(f"FIRN_HOME {tmp_path} is in use by process {os.getpid()}; stop it (`firn stop`)")


def test_examine_knows_the_service_of_its_own_home(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = Settings(home=tmp_path, port=taken.getsockname()[1])
        with process_locks.acquire(tmp_path), presence.announce(settings, background=False):
            found = list(preflight.examine(settings, dict(os.environ)))[1:]
            assert [ok for ok, _ in found] == [True] * 4, found
            assert f"used by the service of this home, process {os.getpid()}" in found[0][1]
            other = settings.model_copy(update={"home": tmp_path / "other"})
            assert [ok for ok, _ in preflight.examine(other, dict(os.environ))][1] is False
        with process_locks.acquire(tmp_path), presence.announce(settings, background=True):
            # It has no port; another program uses this one.
            assert [ok for ok, _ in preflight.examine(settings, dict(os.environ))][1] is False
        presence.withdraw(tmp_path)


def test_a_port_that_is_in_use_is_found_before_anything_is_installed() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [ROOT / ".ci" / "port"],
            env={**os.environ, "FIRN_PORT": str(port)},
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        f"firn: port {port} on 127.0.0.1 is in use; stop what listens there, or choose another"
    )
    free = {**os.environ, "FIRN_PORT": str(_free_port())}
    assert subprocess.run([ROOT / ".ci" / "port"], env=free, cwd=ROOT).returncode == 0


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("JAVA_HOME", "/nowhere", "JAVA_HOME"),
        ("FIRN_PORT", "many", "FIRN_PORT"),
        ("FIRN_HOME", f"{ROOT}/pyproject.toml/home", "FIRN_HOME"),
        ("FIRN_HOST", "192.0.2.99", "FIRN_HOST"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line_and_exits_with_1(
    tmp_path: Path, variable: str, value: str, message: str
) -> None:
    environ = {
        **{name: text for name, text in os.environ.items() if not name.startswith("FIRN_")},
        "FIRN_HOME": str(tmp_path),
        "FIRN_PORT": str(_free_port()),
        variable: value,
    }
    done = subprocess.run(
        [sys.executable, "-m", "service", "serve"], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("firn: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

"""The service that commands share: found, started once, replaced when it has ended, and ended when nobody needs it."""

import asyncio
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from service.api.server import IdleStop
from service.cli.connection import background, targets
from service.cli.connection.remote import Connection, Unreachable
from service.cli.connection.targets import ConnectionOptions, HomeConnection, open_connection
from service.host import presence
from service.settings import ROOT, SettingsError
from tests.cli import Called, call
from tests.harness import wait_until

LIST = {"operation": "LIST_TABLES", "tenant_id": "t", "namespace": "n"}


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A home whose service is a stand-in."""
    started = background.subprocess.Popen

    def fake_service(command: list[str], **options: Any) -> Any:
        assert command[:4] == [sys.executable, "-m", "service", "serve"]
        return started([sys.executable, "-m", "tests.fake_service", *command[3:]], **options)

    monkeypatch.setattr(background.subprocess, "Popen", fake_service)
    # It is there much sooner than a service.
    monkeypatch.setattr(background, "_POLL_S", 0.02)
    monkeypatch.setattr(targets, "_PAUSE_S", 0.02)
    made = {"FIRN_HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    yield made
    for pid in starts(tmp_path):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def starts(home: Path) -> list[int]:
    path = home / "started"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def connect(environ: Mapping[str, str], message: list[str] | None = None, **wanted: Any) -> Connection:
    return open_connection(
        ConnectionOptions(None, **{"needs_spark": True, **wanted}),
        environ,
        (message if message is not None else []).append,
    )


def answerer(answer: dict[str, Any]) -> int:
    """The process that gave an answer."""
    assert answer["success"], answer
    return int(answer["tables"][0])


def test_a_loop_starts_it_once_and_stop_ends_it(environ: dict[str, str], tmp_path: Path) -> None:
    message: list[str] = []
    answered = {answerer(connect(environ, message).send(LIST)) for _ in range(5)}
    assert answered == set(starts(tmp_path))
    assert len(answered) == 1
    assert message == [
        f"starting a service in the background, which takes some seconds; its log is {tmp_path}/service.log"
    ]
    assert (tmp_path / "service.log").stat().st_mode & 0o777 == 0o600
    assert call(["stop"], environ) == Called(0, "stopped\n", "")
    assert call(["stop"], environ) == Called(0, f"no service of FIRN_HOME {tmp_path} is running\n", "")


def test_commands_that_come_at_once_start_it_once(environ: dict[str, str], tmp_path: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        answered = set(pool.map(lambda _: answerer(connect({**environ, "FAKE_SERVICE": "slow"}).send(LIST)), range(6)))
    assert answered == set(starts(tmp_path))
    assert len(answered) == 1


def test_one_that_was_killed_is_replaced(environ: dict[str, str], tmp_path: Path) -> None:
    first = answerer(connect(environ).send(LIST))
    os.kill(first, signal.SIGKILL)
    second = answerer(connect(environ).send(LIST))
    assert starts(tmp_path) == [first, second]


def test_a_request_before_one_that_ends_goes_to_the_next_with_the_same_key(environ: dict[str, str]) -> None:
    opened = connect(environ)
    first = answerer(opened.send(LIST))
    asked: list[str | None] = []

    class Listening:
        """A connection that keeps the keys."""

        def __init__(self, inner: Connection) -> None:
            self._inner = inner

        def send(self, request: Any, key: str | None = None, body: bytes | None = None) -> Any:
            asked.append(key)
            answer = self._inner.send(request, key, body)
            request["namespace"] = "n"
            return answer

        def close(self) -> None:
            pass

    at_home = HomeConnection(lambda: Listening(connect(environ)))  # type: ignore[arg-type, return-value]
    second = answerer(at_home.send({**LIST, "namespace": "ending"}))
    assert first != second
    assert len(asked) == 2
    assert asked[0] is not None
    assert len(set(asked)) == 1


def test_one_that_dies_of_every_request_is_given_up(environ: dict[str, str], tmp_path: Path) -> None:
    opened = connect(environ)
    with pytest.raises(Unreachable):
        opened.send({**LIST, "namespace": "dying"})
    assert 2 <= len(starts(tmp_path)) <= 3


def test_one_that_cannot_start_is_told_with_its_reason_and_its_log(environ: dict[str, str], tmp_path: Path) -> None:
    done = call(["query", "t"], {**environ, "FAKE_SERVICE": "broken"})
    assert (done.code, done.out) == (3, "")
    assert done.err.splitlines()[-1] == (
        f"firn: the service did not start (firn: Java is missing; install Java 17); its log is {tmp_path}/service.log"
    )


def test_other_settings_are_told_and_other_data_is_refused(environ: dict[str, str], tmp_path: Path) -> None:
    first = answerer(connect(environ).send(LIST))
    message: list[str] = []
    assert answerer(connect({**environ, "FIRN_SPARK__SESSIONS": "3"}, message).send(LIST)) == first
    assert message == [
        "the service of this home was started with other settings (spark.sessions) and keeps them; `firn stop` ends it"
    ]
    with pytest.raises(SettingsError, match=r"\(catalog.warehouse\), so it has other data; `firn stop` ends it"):
        connect({**environ, "FIRN_CATALOG__WAREHOUSE": "file:///elsewhere"})


def test_a_command_without_need_of_spark_uses_it_too(environ: dict[str, str]) -> None:
    first = answerer(connect(environ).send(LIST))
    assert answerer(connect(environ, needs_spark=False).send(LIST)) == first
    assert answerer(connect(environ, background=False).send(LIST)) == first


def test_who_owns_the_home_and_listens_to_nobody_is_waited_for(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message: list[str] = []
    with (tmp_path / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with monkeypatch.context() as patience:
            patience.setattr(background, "_STOP_TIMEOUT_S", 0)
            done = call(["stop"], environ)
        assert (done.code, "does not listen" in done.err) == (1, True)
        threading.Timer(0.3, lambda: fcntl.flock(lock, fcntl.LOCK_UN)).start()
        done = call(["stop"], environ)
        assert (done.code, done.out) == (0, f"no service of FIRN_HOME {tmp_path} is running\n")
        assert done.err.startswith("firn: waiting for") or done.err.startswith("waiting for")
        fcntl.flock(lock, fcntl.LOCK_EX)

        def release() -> None:
            wait_until(lambda: message, 20, every=0.01)
            fcntl.flock(lock, fcntl.LOCK_UN)

        threading.Thread(target=release).start()
        assert answerer(connect(environ, message).send(LIST)) in starts(tmp_path)
    assert message[0].startswith(f"waiting: FIRN_HOME {tmp_path} is in use by another process")


def test_one_that_ends_as_soon_as_it_has_started_is_given_up(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "start", lambda *_: None)
    with pytest.raises(SettingsError, match="the service stops as soon as it has started"):
        connect(environ)


def test_one_that_was_started_by_hand_is_stopped_too(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = answerer(connect(environ).send(LIST))
    by_hand = presence.RunningService(first, background=False)
    monkeypatch.setattr("service.cli.connection.background.presence.find", lambda home: by_hand)
    assert call(["stop"], environ) == Called(0, "stopped\n", "")


def test_a_large_log_is_put_aside(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_MAX_LOG_BYTES", 10)
    (tmp_path / "service.log").write_text("x" * 20)
    connect(environ)
    assert (tmp_path / "service.log.1").read_text() == "x" * 20


class TestIdle:
    """The end of one that nobody uses."""

    def test_it_is_idle_since_the_last_request_ended(self) -> None:
        now = [0.0]
        going, ending = asyncio.Event(), asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            going.set()
            await ending.wait()

        idle = IdleStop(app, lambda: now[0])

        async def scenario() -> list[float]:
            seen = []
            now[0] = 5
            seen.append(idle.seconds(False))
            request = asyncio.ensure_future(idle({"type": "http"}, None, None))  # type: ignore[arg-type]
            await going.wait()
            now[0] = 100
            seen.append(idle.seconds(False))
            ending.set()
            await request
            now[0] = 107
            seen.append(idle.seconds(False))
            return seen

        assert asyncio.run(scenario()) == [5, 0, 7]

    def test_work_in_progress_keeps_it_as_long_as_it_takes(self) -> None:
        now = [0.0]
        idle = IdleStop(None, lambda: now[0])  # type: ignore[arg-type]
        now[0] = 50
        assert idle.seconds(True) == 0
        now[0] = 53
        assert idle.seconds(False) == 3

    def test_the_end_comes_once_and_not_while_somebody_is_there(self) -> None:
        busy, ended = threading.Event(), threading.Event()
        busy.set()
        idle = IdleStop(None)  # type: ignore[arg-type]
        idle.stop_after(0.05, busy.is_set, ended.set)
        time.sleep(0.2)
        assert not ended.is_set()
        busy.clear()
        assert ended.wait(20)

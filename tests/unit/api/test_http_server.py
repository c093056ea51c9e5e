"""The listening server: whoever reached it before it closed is answered."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from service.api import server as module
from service.api.server import Server
from tests.harness import wait_until

ASK = b"GET / HTTP/1.1\r\nHost: firn\r\n\r\n"


class Site:
    """A server of one page, whose loop stands still from `blocked` until `go`."""

    def __init__(self, local: socket.socket | None = None, *, alone: bool = False) -> None:
        self.blocked = threading.Event()
        self.go = threading.Event()
        config: Any = uvicorn.Config(
            self.page, "127.0.0.1", 0, interface="asgi3", log_config=None, timeout_graceful_shutdown=1
        )
        self.server = Server(config, lambda: None, local)
        self.thread = threading.Thread(target=self.server.run, args=([],) if alone else ())

    async def page(self, scope: Any, _: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/block":
            self.blocked.set()
            self.go.wait(30)
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    @property
    def port(self) -> int:
        number: int = self.server.servers[0].sockets[0].getsockname()[1]
        return number


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    made.thread.start()
    wait_until(lambda: made.server.started, 30, every=0.01)
    yield made
    made.go.set()
    made.server.should_exit = True
    made.thread.join(30)
    assert not made.thread.is_alive()


def connect(site: Site) -> socket.socket:
    return socket.create_connection(("127.0.0.1", site.port), timeout=5)


def answer(connection: socket.socket) -> bytes:
    return connection.recv(1000).split(b"\r\n")[0]


def test_connections_nobody_took_before_the_stop_are_answered(site: Site) -> None:
    blocker = connect(site)
    blocker.sendall(ASK.replace(b"/ ", b"/block "))
    assert site.blocked.wait(30)
    site.server.should_exit = True
    late = [connect(site) for _ in range(5)]
    for connection in late:
        connection.sendall(ASK)
    time.sleep(0.15)  # the loop's own look at the flag is due before its next look at the door
    site.go.set()
    assert [answer(connection) for connection in [blocker, *late]] == [b"HTTP/1.1 200 OK"] * 6


def test_a_connection_that_has_not_asked_yet_is_heard_for_a_moment(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAST_REQUESTS_S", 30)
    with connect(site) as early:
        early.sendall(ASK)
        assert answer(early) == b"HTTP/1.1 200 OK"
        port = site.port
        site.server.should_exit = True
        wait_until(lambda: not accepts(port), 30, every=0.01)
        early.sendall(ASK)
        assert answer(early) == b"HTTP/1.1 200 OK"


def accepts(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_connections_that_say_nothing_do_not_keep_it(site: Site) -> None:
    silent = connect(site)
    site.server.should_exit = True
    site.thread.join(30)
    assert not site.thread.is_alive()
    assert silent.recv(1) == b""


@pytest.mark.parametrize("alone", [False, True])
def test_a_local_socket_is_answered_too_and_closed_with_the_rest(tmp_path: Path, alone: bool) -> None:
    local = socket.socket(socket.AF_UNIX)
    local.bind(str(tmp_path / "s"))
    local.listen()
    made = Site(local, alone=alone)
    made.thread.start()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(tmp_path / "s"))
        connection.sendall(ASK)
        assert answer(connection) == b"HTTP/1.1 200 OK"
    assert len(made.server.servers) == (1 if alone else 2)
    made.server.should_exit = True
    made.thread.join(30)
    assert not made.thread.is_alive()
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(OSError):  # noqa: PT011  # by its kind: nobody listens
        late.connect(str(tmp_path / "s"))

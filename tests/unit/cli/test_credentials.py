"""The command's API key: from the environment, a profile or stdin, never from an argument; shown to nobody."""

import json
import stat
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from service.cli import profiles
from service.cli.catalogue import COMMANDS
from service.cli.connection import background
from service.cli.connection.remote import Remote, Unreachable
from service.cli.parser import SHARED
from service.identity.key_text import KeyText
from service.settings import load
from tests.cli import Called, call

KEY, OTHER = str(KeyText.new()), str(KeyText.new())
LIST = ["namespace", "list"]


class Server:
    """Keeps the headers of requests, and responds to all with an empty list."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        seen = self.headers

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                seen.append(dict(self.headers))
                body = b'{"success":true,"namespaces":[]}'
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Any:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path), "FIRN_HOME": str(tmp_path / "home")}


def test_it_comes_from_the_environment(server: Server, environ: dict[str, str]) -> None:
    assert call(LIST, {**environ, "FIRN_URL": server.url, "FIRN_API_KEY": f"{KEY}\n"}).code == 0
    assert call(LIST, {**environ, "FIRN_URL": server.url}).code == 0
    assert [headers.get("X-Api-Key") for headers in server.headers] == [KEY, None]


def test_or_from_a_profile_which_stdin_gave_it_and_only_its_user_can_read(
    server: Server, environ: dict[str, str]
) -> None:
    added = call(["profile", "add", "prod", "--url", server.url, "--api-key-stdin"], environ, stdin=f"{KEY}\n")
    assert added.code == 0
    assert stat.S_IMODE(profiles.path_of(environ).stat().st_mode) == 0o600
    assert call([*LIST, "-p", "prod"], {**environ, "FIRN_API_KEY": OTHER}).code == 0
    assert server.headers[0]["X-Api-Key"] == KEY
    listed = call(["profile", "list"], environ)
    assert KEY[:15] in listed.out
    assert KEY[16:] not in added.out + added.err + listed.out + listed.err


def test_a_login_for_a_proxy_is_sent_beside_it(server: Server, environ: dict[str, str]) -> None:
    url = server.url.replace("http://", "http://ann:pw@")
    assert call(LIST, {**environ, "FIRN_URL": url, "FIRN_API_KEY": KEY}).code == 0
    assert server.headers[0]["X-Api-Key"] == KEY
    assert server.headers[0]["Authorization"].startswith("Basic ")


def test_the_service_of_a_home_gets_it_too() -> None:
    sent: list[dict[str, str]] = []

    def transport(method: str, path: str, body: Any, headers: dict[str, str]) -> bytes:
        sent.append(headers)
        return b'{"success":true}'

    Remote("socket", transport=transport, api_key=KEY).send({"operation": "LIST_NAMESPACES"})
    Remote("socket", transport=transport, api_key=KEY).job("x")
    assert [headers["X-Api-Key"] for headers in sent] == [KEY, KEY]


@pytest.mark.parametrize("text", ["", "nonsense", "\n"])
def test_what_is_no_key_is_not_put_into_a_profile(text: str, environ: dict[str, str]) -> None:
    done = call(["profile", "add", "prod", "--api-key-stdin"], environ, stdin=text)
    assert (done.code, "stdin has no API key" in done.err) == (2, True)
    assert profiles.read(environ) == {}


@pytest.mark.parametrize("key", ["a\nb", "é", "a\0"])
def test_a_key_that_would_break_the_request_is_refused_without_being_shown(
    key: str, server: Server, environ: dict[str, str]
) -> None:
    done = call(LIST, {**environ, "FIRN_URL": server.url, "FIRN_API_KEY": f"{key}x"})
    assert done == Called(2, "", "firn: the API key has characters that no key has; copy it again\n")
    assert server.headers == []


def test_who_is_refused_is_told_where_a_key_comes_from(environ: dict[str, str]) -> None:
    error = {"code": "UNAUTHENTICATED", "message": "who is it?", "retryable": False}
    remote = Remote("socket", transport=lambda *_: json.dumps({"success": False, "error": error}).encode())
    done = call(LIST, environ, remote)
    assert (done.code, done.out) == (1, "")
    assert "UNAUTHENTICATED: who is it?" in done.err
    assert "FIRN_API_KEY" in done.err


def test_no_argument_takes_a_key() -> None:
    for command in COMMANDS:
        for argument in (*command.arguments, *SHARED):
            assert "api-key" not in argument.name or not argument.takes_value, (command.name, argument.name)


def test_it_is_in_no_message() -> None:
    remote = Remote("http://127.0.0.1:1", pauses_s=(), login="Basic secret", api_key=KEY)
    with pytest.raises(Unreachable) as refused:
        remote.send({"operation": "LIST_NAMESPACES"})
    assert KEY not in f"{refused.value} {remote!r}"


def test_a_service_in_the_background_does_not_inherit_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(background.subprocess, "Popen", lambda *line, **more: started.append({"line": line, **more}))
    settings = load({"FIRN_HOME": str(tmp_path)})
    background._spawn(settings, {"FIRN_API_KEY": KEY, "PATH": "/bin"}, tmp_path / "service.log")
    assert KEY not in str(started)
    assert started[0]["env"]["PATH"] == "/bin"


def test_the_first_key_is_made_on_the_machine_and_shown_once(environ: dict[str, str]) -> None:
    made = call(["key", "create", "ann", "--role", "admin:*", "--offline", "--json"], environ)
    assert made.code == 0
    key = made.out.partition('"api_key":"')[2].partition('"')[0]
    assert KeyText.read(key) is not None
    listed = call(["key", "list", "--offline", "--json"], environ)
    assert '"principal":"ann"' in listed.out
    assert key not in listed.out
    wrong = call(["key", "create", "ann", "--role", "owner", "--offline"], environ)
    assert (wrong.code, "'owner' is not a role" in wrong.err) == (1, True)
    assert call(["key", "create", "ann", "--expires", "soon", "--offline"], environ).code == 2

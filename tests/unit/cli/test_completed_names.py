"""Completion of names: they come from a service that runs, and from no other place."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from service.cli import profiles
from service.cli.completion.words import complete
from tests.cli import Called, call

TABLES = {"default": ["orders", "old"], "shop": ["carts", "orders"]}
COLUMNS = ["id", "item", "a b$(c)", "amount\n"]
RESPONSES: dict[str, Any] = {
    "LIST_NAMESPACES": {"namespaces": list(TABLES)},
    "LIST_BACKUPS": {"backups": [{"name": "backup-1"}]},
    "LIST_JOBS": {"jobs": [{"id": "j1"}, {"id": "k2"}]},
    "LIST_SCHEDULES": {"schedules": [{"name": "nightly"}]},
    "DESCRIBE_TABLE": {"description": {"schema": {"fields": dict.fromkeys(COLUMNS)}}},
}


class Handler(BaseHTTPRequestHandler):
    """A service with two namespaces, whose lists of tables have pages of one table."""

    requests: list[dict[str, Any]]
    is_stuck = threading.Event()
    is_over = threading.Event()

    def do_POST(self) -> None:
        if type(self).is_stuck.is_set():
            type(self).is_over.wait(60)
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).requests.append(request)
        body = json.dumps({"success": True, **self.response(request)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def response(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["operation"] != "LIST_TABLES":
            return dict(RESPONSES[request["operation"]])
        names, page = TABLES[request["namespace"]], int(request.get("cursor", 0))
        more = {"next_cursor": str(page + 1)} if page + 1 < len(names) else {}
        return {"tables": names[page : page + 1], **more}

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[str]:
    """The address of a service with names."""
    Handler.requests = []
    Handler.is_stuck.clear()
    Handler.is_over.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    with serving() as url:
        yield {"FIRN_URL": url, "XDG_CONFIG_HOME": str(tmp_path)}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["table", "describe", ""], [":files", "old", "orders", "shop.carts", "shop.orders"]),
        (["table", "describe", "shop.o"], [":files", "shop.orders"]),
        (["table", "describe", "shop/o"], [":files", "shop/orders"]),
        (["table", "describe", "-n", "shop", "ca"], [":files", "carts"]),
        (["-nshop", "table", "describe", ""], [":files", "carts", "orders"]),
        (["table", "describe", "x"], [":files"]),
        (["query", "or"], ["orders"]),
        (["schedule", "create", "n", "--table", "ol"], ["old"]),
        (["table", "list", "-n", "s"], ["shop"]),
        (["table", "list", "--namespace=s"], ["--namespace=shop"]),
        (["namespace", "drop", "s"], ["shop"]),
        (["backup", "restore", "orders", ""], ["backup-1"]),
        (["job", "show", "j"], ["j1"]),
        (["schedule", "run", ""], ["nightly"]),
        (["query", "orders", "--columns", ""], ["a b$(c)", "id", "item"]),
        (["query", "orders", "--columns", "id,it"], ["id,item"]),
        (["update", "orders", "--set", "i"], ["id=", "item="]),
        (["table", "alter", "orders", "--drop", "it"], ["item"]),
        (["table", "alter", "orders", "--add", ""], []),
        (["table", "create", "--schema=x"], [":files"]),
    ],
)
def test_names_are_offered_in_their_places(words: list[str], offered: list[str], environ: dict[str, str]) -> None:
    assert complete(words, environ) == offered


def test_the_columns_are_those_of_the_table_on_the_line(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("namespace: web\ntable: visits\n")
    complete(["--tenant", "acme", "query", "shop.orders", "--sort", ""], environ)
    complete(["table", "alter", str(tmp_path / "t.yaml"), "--nullable", ""], environ)
    assert Handler.requests == [
        {"operation": "DESCRIBE_TABLE", "tenant_id": "acme", "namespace": "shop", "table": "orders"},
        {"operation": "DESCRIBE_TABLE", "tenant_id": "default", "namespace": "web", "table": "visits"},
    ]


def test_a_profile_says_whose_names_they_are(environ: dict[str, str]) -> None:
    url = environ.pop("FIRN_URL")
    profiles.write(environ, {"prod": {"url": url, "tenant": "acme"}})
    assert complete(["-p", "prod", "job", "show", "k"], environ) == ["k2"]
    assert [each["tenant_id"] for each in Handler.requests] == ["acme"]


def test_a_service_that_does_not_respond_in_time_has_no_names(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.cli.completion.known._TIMEOUT_S", 0.05)
    Handler.is_stuck.set()
    assert complete(["job", "show", ""], environ) == []
    Handler.is_over.set()


def test_completion_starts_no_service_and_makes_no_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert complete(["table", "describe", ""], {"FIRN_HOME": str(home)}) == [":files"]
    assert complete(["job", "show", ""], {"FIRN_HOME": str(home)}) == []
    assert not home.exists()


@pytest.mark.parametrize("text", ["{broken", "[]", '{"a": 5}', "[" * 100_000])
def test_a_broken_file_of_profiles_is_one_error_and_completes_nothing(text: str, tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    path = profiles.path_of(environ)
    path.parent.mkdir()
    path.write_text(text)
    for line in (["profile", "list"], ["-p", "x", "table", "list"]):
        done = call(line, environ)
        assert (done.code, done.err.count("\n"), str(path) in done.err) == (2, 1, True)
    assert call(["__complete", "-p", ""], environ) == Called(0, "", "")
    assert call(["__complete", "-p", "x", "job", "show", ""], environ) == Called(0, "\n", "")

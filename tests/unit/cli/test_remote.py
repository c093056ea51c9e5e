"""A service behind an address: what is sent to it, and how often."""

import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

from service.cli.connection.remote import Remote, Unreachable
from tests.cli import call

DONE = b'{"success":true}'


class Line:
    """A connection that breaks so many times before an answer comes, and keeps what was sent."""

    def __init__(self, answer: bytes = DONE, breaks: int = 0) -> None:
        self.keys: list[str | None] = []
        self.bodies: list[bytes | None] = []
        self._answer = answer
        self._breaks = breaks

    def __call__(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> bytes:
        self.keys.append(headers.get("Idempotency-Key"))
        self.bodies.append(body)
        if len(self.keys) <= self._breaks:
            raise ConnectionError("it broke")
        return self._answer


def remote(line: Line) -> Remote:
    return Remote("http://firn", sleep=lambda _: None, pauses_s=(0, 0), transport=line)


WRITE: dict[str, Any] = {"operation": "WRITE", "tenant_id": "t", "table": "t"}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"idempotency_key": None},
        {"records": [{"idempotency_key": "a column"}]},
        {"records": [{"note": "idempotency_key"}]},
    ],
)
def test_a_request_of_a_file_that_has_no_key_bears_the_same_one_each_time(more: Any, tmp_path: Path) -> None:
    line = Line(breaks=2)
    path = tmp_path / "write.json"
    path.write_text(json.dumps({**WRITE, **more}))
    assert call(["call", str(path)], {}, remote(line)).code == 0
    assert len(line.keys) == 3
    assert line.keys[0] is not None
    assert len(set(line.keys)) == 1
    assert set(line.bodies) == {path.read_bytes()}, "as it stands"


def test_a_request_that_has_a_key_bears_no_other(tmp_path: Path) -> None:
    line = Line()
    path = tmp_path / "write.json"
    path.write_text(json.dumps({**WRITE, "idempotency_key": "mine"}))
    assert call(["call", str(path)], {}, remote(line)).code == 0
    assert line.keys == [None]


NOT_FIRN = [
    b'{"success": false}',
    b'{"success": false, "error": "no"}',
    b'{"success": false, "error": {"message": "no"}}',
    b'{"success": null, "error": {"code": 1}}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("answer", NOT_FIRN)
def test_an_answer_that_tells_no_error_as_firn_does_is_not_firn(answer: bytes) -> None:
    done = call(["table", "list"], {}, remote(Line(answer)))
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert done.err.startswith("firn: the server at http://firn is not Firn: ")


class Guarded:
    """A proxy that lets nobody in but with a login, and sends whoever asks for /moved to another host."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []
        guarded = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                guarded.asked.append((self.path, self.headers["Authorization"]))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"success":true,"tables":[]}')

            def do_GET(self) -> None:
                guarded.asked.append((self.path, self.headers["Authorization"]))
                self.send_response(302)
                self.send_header("Location", self.path.replace("/moved", "").replace("/jobs", "/elsewhere"))
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.host = f"127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    made = Guarded()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_login_in_the_address_is_sent_as_such(guarded: Guarded) -> None:
    line = ["table", "list", "--url", f"http://ann:p%40ss%C3%A9@{guarded.host}/firn/"]
    assert call(line, {}).code == 0
    assert guarded.asked == [("/firn/database", f"Basic {b64encode('ann:p@ssé'.encode()).decode()}")]
    assert call(["table", "list"], {"FIRN_URL": f"http://{guarded.host}"}).code == 0
    assert guarded.asked[1] == ("/database", None)


def test_it_is_not_sent_to_where_an_answer_leads(guarded: Guarded) -> None:
    call(["job", "show", "j", "--url", f"http://ann:secret@{guarded.host}"], {})
    assert guarded.asked[0] == ("/jobs/j", f"Basic {b64encode(b'ann:secret').decode()}")
    assert guarded.asked[1] == ("/elsewhere/j", None)


def test_no_message_has_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.cli.call.SHORT_PAUSES_S", ())
    done = call(["table", "list"], {"FIRN_URL": "http://ann:secret@127.0.0.1:1"})
    assert done.code == 3
    assert done.err.startswith("firn: no service responds at http://127.0.0.1:1: ")


@pytest.mark.parametrize(
    "url",
    [
        "ann:secret@host:8080",
        "ftp://ann:secret@host",
        "http://ann:secret@",
        "http://ann:se/secret@host",
        "http://ann:1/secret@host",
        "http://ann:1?secret@host",
        "http://ann:1#secret@host",
        "http://ann:secret@host:port",
        "http://ann:secret@[host",
        "http://ann:secret@host?x=1",
        "http://",
        "localhost:8080",
    ],
)
def test_what_is_no_address_is_refused_without_its_login(url: str) -> None:
    done = call(["table", "list", "--url", url], {})
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "is not the address of a service; write it as http://localhost:8080" in done.err
    assert not any(word in done.err for word in ("ann", "secret"))


def test_rows_are_fetched_in_the_media_type_that_is_asked_for_and_errors_are_read() -> None:
    seen: list[str] = []

    def answering(body: bytes) -> Remote:
        def transport(method: str, path: str, sent: Any, headers: dict[str, str]) -> bytes:
            seen.append(headers["Accept"])
            return body

        return Remote("http://firn", transport=transport)

    assert answering(b"\xff\xff rows").fetch(WRITE, "a/b") == b"\xff\xff rows"
    error = {"success": False, "error": {"code": "X", "message": "no luck"}}
    assert answering(json.dumps(error).encode()).fetch(WRITE, "a/b") == error
    assert seen == ["a/b", "a/b"]


def test_rows_that_cannot_be_fetched_name_the_address() -> None:
    with pytest.raises(Unreachable, match="no service responds at http://firn: it broke"):
        remote(Line(breaks=1)).fetch(WRITE, "a/b")


def test_a_certificate_that_is_not_trusted_is_not_taken_for_no_service() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"

    def refuse(*_: Any) -> bytes:
        raise URLError(error)

    with pytest.raises(Unreachable, match="not trusted: self-signed certificate; set SSL_CERT_FILE to its file"):
        Remote("https://firn", transport=refuse).fetch(WRITE, "a/b")

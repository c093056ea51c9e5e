"""A service behind an address: what is sent to it, and how often."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.cli.remote import Remote
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


def door(line: Line) -> Remote:
    return Remote("http://firn", pause=lambda _: None, pauses_s=(0, 0), send=line)


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
    assert call(["call", str(path)], {}, door(line)).code == 0
    assert len(line.keys) == 3
    assert line.keys[0] is not None
    assert len(set(line.keys)) == 1
    assert set(line.bodies) == {path.read_bytes()}, "as it stands"


def test_a_request_that_has_a_key_bears_no_other(tmp_path: Path) -> None:
    line = Line()
    path = tmp_path / "write.json"
    path.write_text(json.dumps({**WRITE, "idempotency_key": "mine"}))
    assert call(["call", str(path)], {}, door(line)).code == 0
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
    done = call(["table", "list"], {}, door(Line(answer)))
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert done.err.startswith("firn: what answers at http://firn is not Firn: ")

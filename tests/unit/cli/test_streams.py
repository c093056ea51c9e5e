"""The streams that a command has: whatever they are, it says what it has to say, or why it cannot, in one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.settings import ROOT

ANSWERING = (
    "import sys\nfrom service.cli.main import main\n"
    "class S:\n def send(self, r, key=None, body=None):\n"
    "  return {'success': True, 'tables': ['\\u65e5\\xe9\\U0001f600']}\n"
    "sys.exit(main(connection=S()))"
)
DEEP = "[" * 100_000  # an argument holds 128 KiB


def firn(line: str, stdin: bytes = b"", folder: Path = ROOT, **environ: str) -> "subprocess.CompletedProcess[bytes]":
    """What a shell makes of a line in which $FIRN is the command, asking a service that has one table."""
    result = {**os.environ, "PYTHONPATH": str(ROOT), "FIRN": sys.executable, "CODE": ANSWERING, **environ}
    return subprocess.run(
        ["sh", "-c", line.replace("$FIRN", '"$FIRN" -c "$CODE"')],
        input=stdin,
        capture_output=True,
        cwd=folder,
        env=result,
        timeout=60,
    )


ASCII = {"PYTHONIOENCODING": "ascii"}
C_LOCALE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize("environ", [ASCII, C_LOCALE], ids=["ascii", "C"])
def test_output_that_takes_no_such_letter_gets_it_spelt_out(environ: dict[str, str]) -> None:
    done = firn("$FIRN table list", **environ)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"\\u65e5\\xe9\\U0001f600\n"
    done = firn("$FIRN table list --json", **environ)
    assert (done.returncode, json.loads(done.stdout)["tables"]) == (0, ["日é😀"])


@pytest.mark.parametrize(
    "line", ["$FIRN table list >&-", "$FIRN table list 2>&-", "$FIRN table list --json >&- 2>&- <&-"]
)
def test_output_that_is_closed_is_no_failure(line: str) -> None:
    done = firn(line)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_closed_stream_is_not_taken_by_what_is_opened_next(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text('{"operation": "X"')
    done = firn("$FIRN call request.json 2>&-", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")


def test_where_stdin_is_closed_nobody_is_there_to_ask() -> None:
    done = firn("$FIRN table drop t --purge <&-")
    assert (done.returncode, b"There is no terminal to ask on" in done.stderr) == (4, True)
    done = firn("$FIRN call - <&-")
    assert (done.returncode, done.stderr.count(b"\n"), b"is not JSON" in done.stderr) == (2, 1, True)


def test_a_request_on_stdin_is_utf_8_whatever_the_locale_and_may_begin_with_a_mark() -> None:
    for begin in (b"", b"\xef\xbb\xbf"):
        done = firn("$FIRN call -", begin + '{"operation": "LIST_TABLES", "x": "é"}'.encode(), **ASCII)
        assert (done.returncode, done.stderr) == (0, b"")
    done = firn("$FIRN call -", b'{"operation": "\xff"}')
    assert (done.returncode, done.stderr) == (
        2,
        b"firn: stdin is not UTF-8 text: byte 15 cannot be read\n",
    )


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("$FIRN call deep.json", "deep.json"),
        ("$FIRN call - < deep.json", "stdin"),
        ("$FIRN table create deep.json", "deep.json"),
        ('$FIRN query t --where "$(cat deep.json)"', "--where"),
    ],
)
def test_json_without_a_bottom_is_refused_in_one_line(line: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text(DEEP)
    done = firn(line, folder=tmp_path)
    assert (done.returncode, done.stderr.decode()) == (2, f"firn: {what} is nested too deeply; it cannot be read\n")

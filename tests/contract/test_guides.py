"""The pages of docs/start and docs/how-to do what they show: every request, command and program, in their order.

A response may be shown in part. A value that differs each time (an id, a time, a plan token) has to have the same type;
a later block of the page may send it, and then the real one is sent.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import duckdb
import pytest

from service.model import wire
from service.settings import ROOT
from tests.harness import Firn
from tests.integration.test_other_readers import extension_path
from tests.support.marks import thorough_except

URL = "http://localhost:8080"
TENANT = re.compile(r"(?<![A-Za-z0-9])demo(?![A-Za-z0-9])")
REQUEST = re.compile(r'\s*\{\s*"operation":')
DIFFERS = re.compile(r"request_ids?|.*snapshot_id|plan_token|next_cursor|backup|job_id|status_url|.*_at|.*_ms")
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
PAGES = sorted(
    str(path.relative_to(ROOT))
    for folder in ("start", "how-to")
    for path in (ROOT / "docs" / folder).glob("*.md")
    if path.stem != "index"  # it only links the others
)
REQUESTS_ONLY = "docs/reference/queries.md"
# What these do is in the walk-through of examples/sales too, or in the examples of the operations.
COSTLY = {f"docs/how-to/{page}.md" for page in ("daily-files", "dynamic-tables", "load-files", "repartition")} | {
    REQUESTS_ONLY
}


@pytest.mark.parametrize("page", thorough_except({*PAGES} - COSTLY, [*PAGES, REQUESTS_ONLY]))
def test_every_block_of_a_page_does_what_it_shows(
    firn: Firn, tenant: str, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("FIRN_URL", firn.base_url)
    monkeypatch.setenv("FIRN_TENANT", tenant.replace("-", ""))
    monkeypatch.setattr(duckdb, "connect", _connect)
    Page(firn, tenant, requests_only=page == REQUESTS_ONLY).run((ROOT / page).read_text())


class Page:
    """Runs the blocks of one page, which share their Python names and the values that responses had."""

    def __init__(self, firn: Firn, tenant: str, *, requests_only: bool) -> None:
        self.firn = firn
        self.runners = {"json": self.send, "bash": self.command, "python": self.program}
        if requests_only:
            self.runners = {"json": self.send}
        self.names: dict[str, Any] = {}
        # What the page says, and what it is here.
        self.actual = {URL: firn.base_url, ".firn": str(firn.home)}
        # A name of letters and digits is the same in the catalog.
        self.tenant = tenant.replace("-", "")

    def run(self, text: str) -> None:
        blocks = [(found[1], textwrap.dedent(found[2])) for found in BLOCK.finditer(text)]
        ran = 0
        for (language, source), following in zip(blocks, [*blocks[1:], ("", "")], strict=True):
            if language not in self.runners or (language == "json" and not REQUEST.match(source)):
                continue
            ran += 1
            for shown, actual in self.actual.items():
                source = source.replace(shown, actual)
            source = TENANT.sub(self.tenant, source)
            self.check(language, source, self.runners[language](source), *following)
        assert ran, "the page has no block that runs"

    def check(self, language: str, source: str, output: str, after: str, shown: str) -> None:
        if after == "text":
            assert output.strip() == shown.strip(), source
        elif after == "json" and not REQUEST.match(shown):
            expected = wire.parse(shown)
            assert self.matched(wire.parse(output), expected, "") == expected, f"{source}\n{output}"
        elif language == "json":
            assert wire.parse(output)["success"], output

    def matched(self, found: Any, shown: Any, key: str) -> Any:
        """The part of a response that is shown; a value that differs each time is remembered, and given as shown."""
        if isinstance(found, dict) and isinstance(shown, dict):
            return {name: self.matched(found.get(name), value, name) for name, value in shown.items()}
        if isinstance(found, list) and isinstance(shown, list) and len(found) == len(shown) and key != "data":
            return [self.matched(*pair, key) for pair in zip(found, shown, strict=True)]
        if DIFFERS.fullmatch(key) and isinstance(found, str | int) and isinstance(shown, str):
            self.actual[str(shown)] = str(found)
            return shown
        return found

    def send(self, request: str) -> str:
        return self.firn.send(request).text

    def command(self, script: str) -> str:
        done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def program(self, source: str) -> str:
        """What a Python block prints. DuckDB's extensions are those of the packages: nothing is downloaded."""
        source = re.sub(r'connection\.sql\("(INSTALL|LOAD) iceberg"\)\n', "", source)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(source, "page", "exec"), self.names)
        return output.getvalue()


_duckdb_connect = duckdb.connect


def _connect() -> duckdb.DuckDBPyConnection:
    connection = _duckdb_connect(config={"allow_unsigned_extensions": "true"})
    for extension in ("avro", "iceberg"):
        connection.load_extension(str(extension_path(extension)))
    return connection

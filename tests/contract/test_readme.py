"""What the README and the documents show is what happens: every command and every example in them is run.

A response must be what is shown, except for values that differ each time or between machines: ids, durations, numbers
of bytes and of Spark jobs. Of these only the type has to be the same. A response may be shown in
part.

The pages of docs/start and docs/how-to are run in the order of the page. A value that differs each time and is shown in
a response (a request id, a plan token) may be sent later on the page: the real one is sent then.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from service.model import wire
from service.settings import ROOT
from tests.harness import Firn

URL = "http://localhost:8080"
TENANT = "demo"
VOLATILE = re.compile(
    r"request_id|request_ids\[\d+\]|X-Request-Id|.*snapshot_id|.*_ms|bytes_.*|.*_bytes|metadata_location|spark_jobs|"
    r"plan_token|backup|job_id|status_url|timestamp|.*_at"
)
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
PAGES = sorted(
    str(path.relative_to(ROOT)) for folder in ("start", "how-to") for path in (ROOT / "docs" / folder).glob("*.md")
)
LANGUAGES = ("expressions.md", "filters.md", "queries.md")  # of docs/reference: only their requests are run
FILTER_ROW = re.compile(r"^\|.* `([\[{].*[\]}])` \| ([\d, ]+|none) \|$", re.MULTILINE)


def test_every_command_of_the_readme_does_what_it_shows(firn: Firn, tenant: str) -> None:
    commands = 0
    for language, text, shown in _pairs((ROOT / "README.md").read_text()):
        if language != "bash":
            continue
        if text.startswith("make"):
            _check_target(text.strip())
            continue
        commands += 1
        assert shown is not None, f"no output stands below:\n{text}"
        script = text.replace(URL, firn.base_url).replace(f'"{TENANT}"', f'"{tenant}"')
        done = subprocess.run(
            ["bash", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # `tee /dev/stderr` shows what a pipe takes
            text=True,
            timeout=120,
            check=True,
        )
        found, expected = _values(done.stdout), _values(shown)
        assert_same(_part(found, expected), expected, text)
    assert commands == 5, "the README's commands were not found"


def test_the_python_of_the_readme_prints_what_it_shows(firn: Firn, tenant: str) -> None:
    [block] = [text for language, text, _ in _pairs((ROOT / "README.md").read_text()) if language == "python"]
    script = block.replace(URL, firn.base_url).replace(f'"{TENANT}-py"', f'"{tenant}"')
    assert script.count(tenant) == 1
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    shown = re.findall(r"print\(.*\)  # (.+)$", block, re.MULTILINE)
    assert len(shown) >= 5
    assert done.stdout.splitlines() == shown


@pytest.mark.parametrize("page", [*PAGES, *(f"docs/reference/{name}" for name in LANGUAGES)])
def test_every_request_command_and_program_of_a_page_does_what_it_shows(
    firn: Firn, tenant: str, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names: dict[str, Any] = {}
    replaced: dict[str, str] = {URL: firn.base_url, ".firn": str(firn.home)}
    # In the catalog, a name of letters and digits is the same as in requests.
    owner = tenant.replace("-", "")
    blocks = [(found[1], textwrap.dedent(found[2])) for found in BLOCK.finditer((ROOT / page).read_text())]
    runners = {"json": _send, "bash": _command, "python": _program} if page in PAGES else {"json": _send}
    ran = 0
    for (language, text), (after, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        run = runners.get(language)
        if run is None or (language == "json" and '"operation"' not in text):
            continue
        ran += 1
        for old, new in replaced.items():
            text = text.replace(old, new)
        output = run(firn, re.sub(r"\bdemo\b", owner, text), names)
        if after == "text":
            assert output.strip() == shown.strip(), text
        elif after == "json" and '"operation"' not in shown:
            found, expected = _values(output), _values(shown)
            part = _part(found, expected)
            assert_same(part, expected, f"{text}\n{output}")
            replaced |= _differing(part, expected)
        elif language == "json":
            assert json.loads(output)["success"], output
    assert ran


def _send(firn: Firn, request: str, _: dict[str, Any]) -> str:
    return firn.send(request).text


def _command(_: Firn, script: str, __: dict[str, Any]) -> str:
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _program(_: Firn, source: str, names: dict[str, Any]) -> str:
    """What a Python block prints; the blocks of a page share their names."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, "page", "exec"), names)
    return output.getvalue()


def _part(found: Any, shown: Any) -> Any:
    """The part of a response that a page shows."""
    if isinstance(found, dict) and isinstance(shown, dict):
        # Rows are shown whole.
        return {k: found.get(k) if k == "data" else _part(found.get(k), value) for k, value in shown.items()}
    if isinstance(found, list) and isinstance(shown, list) and len(found) == len(shown):
        return [_part(*pair) for pair in zip(found, shown, strict=True)]
    return found


def _differing(found: Any, shown: Any) -> dict[str, str]:
    """The values of a response that differ each time, by the values shown."""
    if isinstance(shown, dict):
        pairs = [(found[key], value) for key, value in shown.items()]
    elif isinstance(shown, list):
        pairs = list(zip(found, shown, strict=True))
    else:
        return {str(shown): str(found)} if found != shown else {}
    return {old: new for pair in pairs for old, new in _differing(*pair).items()}


def test_every_filter_of_the_documents_finds_the_rows_beside_it(firn: Firn, tenant: str) -> None:
    text = (ROOT / "docs/reference/filters.md").read_text()
    for language, block, _ in _pairs(text):
        if language == "json" and ("CREATE_TABLE" in block or "WRITE" in block):
            answer = firn.post(block.replace(f'"{TENANT}"', f'"{tenant}"'))
            assert answer["success"], answer
    rows = FILTER_ROW.findall(text)
    assert len(rows) > 30, "the tables of filters were not found"

    def found(source: str) -> Any:
        query = f'"operation": "QUERY", "tenant_id": "{tenant}", "table": "people", "projection": ["id"], "sort": "id"'
        answer = firn.post(f'{{{query}, "filter": {source}}}')
        return [row["id"] for row in answer["data"]] if answer["success"] else answer["error"]

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(found, [source for source, _ in rows]))
    expected = [[] if ids == "none" else [int(i) for i in ids.split(",")] for _, ids in rows]
    wrong = {rows[i][0]: answers[i] for i in range(len(rows)) if answers[i] != expected[i]}
    assert not wrong, wrong


def assert_same(found: Any, shown: Any, where: str, path: str = "") -> None:
    """Equal but for what is volatile; an event's `body` is compared as the JSON it holds."""
    key = path.rpartition(".")[2]
    if VOLATILE.fullmatch(key) and shown is not None:
        assert type(found) is type(shown), f"{path} is {found!r}, not like {shown!r}, after\n{where}"
    elif isinstance(shown, dict) and isinstance(found, dict):
        assert list(found) == list(shown), f"{path} has {list(found)}, not {list(shown)}, after\n{where}"
        for name, value in shown.items():
            assert_same(found[name], value, where, f"{path}.{name}")
    elif isinstance(shown, list) and isinstance(found, list):
        assert len(found) == len(shown), f"{path} has {len(found)} items, not {len(shown)}, after\n{where}"
        for i, value in enumerate(shown):
            assert_same(found[i], value, where, f"{path}[{i}]")
    elif key == "body" and isinstance(shown, str) and isinstance(found, str):
        expected = wire.parse(shown)
        assert_same(_part(wire.parse(found), expected), expected, where, f"{path} (read)")
    else:
        assert (type(found), found) == (type(shown), shown), f"{path} is {found!r}, not {shown!r}, after\n{where}"


def _pairs(text: str) -> Iterator[tuple[str, str, str | None]]:
    """Each block with the language it says, and the block of JSON below it that shows an answer."""
    blocks = list(BLOCK.finditer(text))
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        shown = after[2] if after and after[1] == "json" and '"operation"' not in after[2] else None
        yield block[1], block[2], shown


def _values(text: str) -> list[Any]:
    """The JSON values of a text, one after the other."""
    values, place = [], 0
    decoder = json.JSONDecoder(parse_float=Decimal)
    while text[place:].strip():
        place += len(text[place:]) - len(text[place:].lstrip())
        value, place = decoder.raw_decode(text, place)
        values.append(value)
    return values


def _check_target(command: str) -> None:
    # They are run for real elsewhere; here it is enough that make knows them and what they need.
    program, target = command.split()  # so a block that holds more than one such command is refused
    done = subprocess.run([program, "-n", target], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "python -m" in done.stdout

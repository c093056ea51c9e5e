"""What the README and the documents show is what happens: every command and every example in them is run.

A response must be what is shown, except for what differs each time or from one machine to the next: ids, durations,
numbers of bytes and of Spark's jobs, of which only the type has to be the same. A response may be shown in part.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from service.model import wire
from service.settings import ROOT
from tests.harness import Firn

URL = "http://localhost:8080"
TENANT = "demo"
VOLATILE = re.compile(
    r"request_id|plan_token|next_cursor|X-Request-Id|.*snapshot_id|.*_ms|bytes_.*|.*_bytes|metadata_location|spark_jobs"
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILTER_ROW = re.compile(r"^\|.* `([\[{].*[\]}])` \| ([\d, ]+|none) \|$", re.MULTILINE)


@pytest.mark.parametrize(("document", "least"), [("README.md", 5), ("docs/first-session.md", 10)])
def test_every_command_of_the_documents_does_what_it_shows(firn: Firn, tenant: str, document: str, least: int) -> None:
    commands = 0
    for language, text, shown in _pairs((ROOT / document).read_text()):
        if language != "bash":
            continue
        if text.startswith("make"):
            _check_target(text.strip())
            continue
        commands += 1
        assert shown is not None, f"no output stands below:\n{text}"
        script = text.replace(URL, firn.base_url).replace(f'"{TENANT}"', f'"{tenant}"')
        script = script.replace(f'\\"{TENANT}\\"', f'\\"{tenant}\\"')
        done = subprocess.run(
            ["bash", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # `tee /dev/stderr` shows what a pipe takes
            text=True,
            timeout=120,
            check=True,
        )
        found, expected = _values(done.stdout), _values(shown)
        assert_same([_part(*pair) for pair in zip(found, expected, strict=True)], expected, text)
    assert commands >= least, f"the commands of {document} were not found"


def test_the_python_of_the_readme_prints_what_it_shows(firn: Firn, tenant: str) -> None:
    [block] = [text for language, text, _ in _pairs((ROOT / "README.md").read_text()) if language == "python"]
    script = block.replace(URL, firn.base_url).replace(f'"{TENANT}-py"', f'"{tenant}"')
    assert script.count(tenant) == 1
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    shown = re.findall(r"print\(.*\)  # (.+)$", block, re.MULTILINE)
    assert len(shown) >= 5
    assert done.stdout.splitlines() == shown


@pytest.mark.parametrize("document", ["expressions.md", "filters.md"])
def test_every_request_of_the_documents_is_answered_as_shown(firn: Firn, tenant: str, document: str) -> None:
    text = (ROOT / "docs/reference" / document).read_text()
    requests = 0
    for language, block, shown in _pairs(text):
        if language != "json" or '"operation"' not in block:
            continue
        requests += 1
        answer = firn.post(block.replace(f'"{TENANT}"', f'"{tenant}"'))
        if shown is None:
            assert answer["success"], answer
        else:
            expected = wire.parse(shown)
            assert_same({key: answer.get(key) for key in expected}, expected, block)
    assert requests, f"{document} has no requests"


@pytest.mark.thorough
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


def _part(found: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """The fields of a response that are shown, at the top and one level below (`metadata`); rows are kept in full."""
    fields: dict[str, Any] = {name: found[name] for name in shown if name in found}
    for name, value in fields.items():
        if isinstance(value, dict) and isinstance(shown[name], dict):
            fields[name] = {inner: value[inner] for inner in shown[name] if inner in value}
    return fields


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

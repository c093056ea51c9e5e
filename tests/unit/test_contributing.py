"""Every file, folder and function that CONTRIBUTING.md names exists."""

import ast
import re
from pathlib import Path

import pytest

from service.settings import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
# `folder/file.py`, `folder/` or `folder/file.py:Class.method`
NAMED = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:md|toml|py))(?::([\w.]+))?`")
PLACES = sorted(set(NAMED.findall(TEXT)))
WALKS = {
    name: re.findall(r"(?m)^\d+\. .*$", steps)
    for name, steps in re.findall(r"(?ms)^\*\*([A-Z]+)\*\*\n\n(.*?)\n\n", TEXT)
}


def defines(path: Path, name: str) -> bool:
    """Whether a module has this function or class, or a class of it this method."""
    body: list[ast.stmt] = ast.parse(path.read_text()).body
    for part in name.split("."):
        found = [
            n for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and n.name == part
        ]
        if not found:
            return False
        body = found[0].body
    return True


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_what_it_names_exists(path: str, name: str) -> None:
    assert (ROOT / path).exists()
    if name:
        assert defines(ROOT / path, name)


def test_the_map_has_twenty_rows_or_more_each_with_a_place() -> None:
    [table] = re.findall(r"(?ms)^## Where do I change …\?\n\n(.*?)\n\n", TEXT)
    rows = table.splitlines()[2:]
    assert len(rows) >= 20
    assert all(NAMED.search(row.split("|")[2]) for row in rows)


def test_six_operations_are_followed_from_http_to_disk_in_at_most_twelve_steps() -> None:
    assert set(WALKS) == {"WRITE", "QUERY", "INGEST", "COMPACT", "UPDATE", "UPSERT"}
    for steps in WALKS.values():
        assert len(steps) <= 12
        assert all(name for step in steps for _, name in NAMED.findall(step)), (
            "a step names a file without its function"
        )
        assert all(NAMED.search(step) for step in steps)

"""The corpus of hostile expressions.

In `tests/integration/expression_corpus.jsonl`, texts are in parts as in the corpus of SQL. `ends` is `refused` (before
Spark gets it) or `run` (Spark computes it, and it may fail for a row).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.sql_corpus import text_of

_FILE = Path(__file__).parents[1] / "integration" / "expression_corpus.jsonl"
_TYPES = {
    **{"id": "long", "n": "integer", "s": "string", "txt": "string", "d": "date", "ts": "timestamp", "x": "double"},
    **{"dc": "decimal(10,2)", "b": "boolean", "bin": "binary", "js": "string", "deepjs": "string", "num": "string"},
    "o": "string",
}
FIELDS = {**{name: {"type": kind} for name, kind in _TYPES.items()}, "tags": {"type": "array", "items": "string"}}


@dataclass(frozen=True)
class HostileExpression:
    """An expression that gives text for a row of a table with `FIELDS`."""

    text: str
    mechanism: str
    ends: str

    def __str__(self) -> str:
        return self.text[:60]


def expressions() -> list[HostileExpression]:
    lines = [json.loads(line) for line in _FILE.read_text().splitlines()]
    return [HostileExpression(text_of(line["expression"]), line["mechanism"], line["ends"]) for line in lines]


def row(i: int, length: int) -> dict[str, Any]:
    """A row with a text of this length, and values that functions cannot read."""
    return {
        **{"id": i, "n": i % 1000, "s": f"s{i}", "txt": "a" * length + str(i), "d": "2024-01-15"},
        **{"ts": "2024-01-15T10:00:00", "x": i, "dc": "1.25", "b": i % 2 == 0, "bin": "/////w==", "o": "x"},
        **{"js": '[[[1,2],[3]],"a"]', "deepjs": "[" * 900 + "]" * 900, "num": "1e999999999", "tags": ["a", "b"]},
    }

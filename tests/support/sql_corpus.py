"""The corpus of SQL texts: hostile ones, each with its mechanism and how it ends, and ordinary ones.

In `tests/integration/sql_corpus.jsonl`, a text is in parts, of which `[part, n]` is repeated n times. `ends` is
`refused` (before a Spark job starts), `failed` (its own error, in a job or not) or `alone` (by its deadline or its
memory).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness import Firn
from tests.support.tables import ServedTable

_FILE = Path(__file__).parents[1] / "integration" / "sql_corpus.jsonl"
_TYPES = {
    **{"id": "long", "n": "integer", "s": "string", "d": "date", "ts": "timestamp", "tz": "timestamptz"},
    **{"x": "double", "dc": "decimal(10,2)", "b": "boolean", "bin": "binary"},
}
FIELDS = {**{name: {"type": kind} for name, kind in _TYPES.items()}, "tags": {"type": "array", "items": "string"}}


@dataclass(frozen=True)
class SqlText:
    """A text of the corpus; an ordinary one has no mechanism."""

    text: str
    mechanism: str | None = None
    ends: str | None = None

    def __str__(self) -> str:
        return self.text[:60]


def corpus() -> list[SqlText]:
    lines = [json.loads(line) for line in _FILE.read_text().splitlines()]
    return [SqlText(text_of(line["sql"]), line.get("mechanism"), line.get("ends")) for line in lines]


def text_of(parts: Any) -> str:
    """The text that parts of a corpus stand for."""
    if isinstance(parts, str):
        return parts
    return "".join(part if isinstance(part, str) else part[0] * part[1] for part in parts)


def row(i: int) -> dict[str, Any]:
    return {
        **{"id": i, "n": i % 1000, "s": f"s{i}", "d": "2024-01-15", "ts": "2024-01-15T10:00:00"},
        **{"x": i, "dc": "1.25", "b": i % 2 == 0, "bin": "AAAA", "tags": ["a", "b"]},
    }


def make_tables(firn: Firn, tenant: str, large: int) -> None:
    """The tables of the corpus: `t`, `u`, and `big` with so many rows."""
    ServedTable(firn, tenant, "t", schema={"fields": FIELDS}).write(*map(row, range(1000)))
    other = ServedTable(firn, tenant, "u", schema={"fields": {"id": {"type": "long"}, "name": {"type": "string"}}})
    other.write(*({"id": i, "name": f"n{i}"} for i in range(50)))
    big = ServedTable(firn, tenant, "big", schema={"fields": FIELDS})
    big.bulk_load("\n".join(json.dumps(row(i)) for i in range(large)), "application/x-ndjson")

"""How old the rows of a dynamic table are, and were: measured from when the sources of a refresh were pinned."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from service.ledger.dynamic_tables import DynamicTable, RefreshRecord


@dataclass(frozen=True)
class Lag:
    """The age of the rows, in milliseconds."""

    now_ms: int | None
    """None before the first refresh."""
    p95_ms: int | None
    """Of the greatest ages between two refreshes, 95 of 100 are not above this; None before the second refresh."""


def lag(table: DynamicTable, refreshes: Sequence[RefreshRecord], now_ms: int) -> Lag:
    """The lag of a table, by its latest refreshes."""
    now = None if table.refreshed_ms is None else max(0, now_ms - table.refreshed_ms)
    return Lag(now, p95(greatest_ages(refreshes)))


def greatest_ages(refreshes: Sequence[RefreshRecord]) -> list[int]:
    """How old the rows were at the end of each refresh, just before it brought newer ones; but the first, before which
    there were none."""
    done = sorted(
        (one for one in refreshes if one.state == "done" and one.ended_ms is not None), key=lambda one: one.pinned_ms
    )
    pairs = pairwise(done)
    return [max(0, (after.ended_ms or 0) - before.pinned_ms) for before, after in pairs]


def p95(values: Sequence[int]) -> int | None:
    """The smallest value that at least 95 of 100 do not exceed."""
    ordered = sorted(values)
    return ordered[-(-len(ordered) * 95 // 100) - 1] if ordered else None

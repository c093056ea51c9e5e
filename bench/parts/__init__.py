"""The measurements, one file for each part; its `measure()` returns a section."""

from types import ModuleType

from bench.parts import (
    age,
    bulk,
    clients,
    compact,
    dynamic,
    edits,
    flood,
    hostile,
    ingest,
    lag,
    large,
    neighbours,
    query,
    start,
    upkeep,
    upsert,
    write,
)

PARTS: dict[int, ModuleType] = {
    1: write,
    2: clients,
    3: age,
    4: query,
    5: upsert,
    6: bulk,
    7: start,
    8: compact,
    9: neighbours,
    10: ingest,
    11: edits,
    12: dynamic,
    13: large,
    14: upkeep,
    15: lag,
    16: flood,
    17: hostile,
}

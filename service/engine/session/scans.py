"""What a query's scans read: files, bytes, and how long planning took.

Iceberg reports each scan to Spark as metrics of the plan. So a report never belongs to another query, and each scan of
a join names its own table.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from service.engine.session.java import scala_items

_SCAN = "BatchScan "


@dataclass(frozen=True, slots=True)
class Scan:
    """What one scan of a table was planned to read. Planning time and manifests are 0 unless they were requested."""

    table: str
    """The name as Spark shows it, without quotes."""
    files: int
    bytes: int
    planning_ms: int = 0
    manifests: int = 0


def scans(plan: Any, *, measured: bool = False) -> tuple[Scan, ...]:
    """The scans of an executed plan; `measured` adds planning time and manifests, at the cost of more JVM calls."""
    return tuple(_scan(leaf, name, measured) for leaf, name in _leaves(plan))


def read(found: Iterable[Scan]) -> tuple[int, int]:
    """How many data files the scans were planned to read, and their bytes."""
    every = tuple(found)
    return sum(scan.files for scan in every), sum(scan.bytes for scan in every)


def _scan(leaf: Any, name: str, measured: bool) -> Scan:
    table = name.removeprefix(_SCAN).strip()
    metrics = leaf.metrics()
    if not metrics.contains("resultDataFiles"):  # not an Iceberg table
        return Scan(table, 0, 0)
    names = ["resultDataFiles", "totalDataFileSize"]
    if measured:
        names += ["totalPlanningDuration", "scannedDataManifests"]
    return Scan(table, *(int(metrics.apply(name).value()) for name in names))


def _leaves(plan: Any) -> Iterator[tuple[Any, str]]:
    """The plan's scans, each once, with their names. Adaptive execution hides them in stages, and a cache in its own
    plan; a reused stage stands for another."""
    for leaf in scala_items(plan.collectLeaves()):
        name = leaf.nodeName()
        if name.startswith("BatchScan"):
            yield leaf, name
        elif name == "AdaptiveSparkPlan":
            yield from _leaves(leaf.executedPlan())
        elif name.endswith("QueryStage"):
            yield from _leaves(leaf.plan())
        elif name == "InMemoryTableScan":
            yield from _leaves(leaf.relation().cachedPlan())

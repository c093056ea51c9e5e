"""What a query's scans read, by Iceberg's own report of each: files, bytes, and how long planning took.

Iceberg gives its scan report to Spark as metrics of the plan. So a report is never that of another query, and each
scan of a join names its own table.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_SCAN = "BatchScan "


@dataclass(frozen=True, slots=True)
class Scan:
    """What one scan of a table was planned to read; planning and manifests only if they were asked for."""

    table: str
    """As Spark shows its name, without quotes."""
    files: int
    bytes: int
    planning_ms: int = 0
    manifests: int = 0


def scans(plan: Any, *, measured: bool = False) -> tuple[Scan, ...]:
    """The scans of a plan that has been executed; `measured` asks the JVM for more."""
    return tuple(_scan(leaf, name, measured) for leaf, name in _leaves(plan))


def read(found: Iterable[Scan]) -> tuple[int, int]:
    """Data files that scans were planned to read, and their bytes."""
    files = size = 0
    for scan in found:
        files, size = files + scan.files, size + scan.bytes
    return files, size


def _scan(leaf: Any, name: str, measured: bool) -> Scan:
    table = name.removeprefix(_SCAN).strip()
    metrics = leaf.metrics()
    if not metrics.contains("resultDataFiles"):  # not an Iceberg table
        return Scan(table, 0, 0)
    files, size = _of(metrics, "resultDataFiles"), _of(metrics, "totalDataFileSize")
    if not measured:
        return Scan(table, files, size)
    return Scan(table, files, size, _of(metrics, "totalPlanningDuration"), _of(metrics, "scannedDataManifests"))


def _of(metrics: Any, name: str) -> int:
    return int(metrics.apply(name).value())


def _leaves(plan: Any) -> Iterator[tuple[Any, str]]:
    """The plan's scans, each once: adaptive execution hides them in stages, a cache in
    its own plan, and a reused stage stands for another."""
    leaves = plan.collectLeaves()
    for i in range(leaves.size()):
        leaf = leaves.apply(i)
        name = leaf.nodeName()
        if name.startswith("BatchScan"):
            yield leaf, name
        elif name == "AdaptiveSparkPlan":
            yield from _leaves(leaf.executedPlan())
        elif name.endswith("QueryStage"):
            yield from _leaves(leaf.plan())
        elif name == "InMemoryTableScan":
            yield from _leaves(leaf.relation().cachedPlan())

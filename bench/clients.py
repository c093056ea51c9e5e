"""Runs the load generator and reads its report."""

import json
import subprocess
from collections import Counter
from dataclasses import dataclass
from typing import Any

from bench.load import FIRST_ID
from bench.place import ROOT, THEIRS
from bench.service import TENANT, Service


@dataclass(frozen=True)
class LoadResult:
    """The responses that the clients of a run got."""

    latencies_ms: list[float]
    statuses: dict[str, int]
    acknowledged: frozenset[int]
    unknown: frozenset[int]
    refusal: str
    elapsed_s: float
    cpu_s: float

    @property
    def rows_per_s(self) -> float:
        return len(self.acknowledged) / self.elapsed_s

    @property
    def others(self) -> int:
        """Responses other than 200."""
        return sum(count for status, count in self.statuses.items() if status != "200")


@dataclass(frozen=True)
class RowCheck:
    """What an independent reader found of the acknowledged rows."""

    lost: int
    doubled: int
    strange: int


def write(service: Service, table: str, clients: int, **limits: Any) -> LoadResult:
    """WRITEs of `rows` each to one table, until there were `requests`, or for `seconds`."""
    plan = {"port": service.port, "tenant": TENANT, "table": table, "clients": clients, **limits}
    done = subprocess.run(
        [THEIRS, "-m", "bench.load"], cwd=ROOT, input=json.dumps(plan), stdout=subprocess.PIPE, text=True, check=True
    )
    seen = json.loads(done.stdout)
    unknown = frozenset(seen["unknown"])
    sent = range(FIRST_ID, FIRST_ID + seen["sent"])
    acknowledged = frozenset(sent) - unknown - frozenset(seen["refused"])
    if not acknowledged:
        raise RuntimeError(f"no WRITE of {seen['sent']} was acknowledged: {seen['statuses']} {seen['refusal']}")
    return LoadResult(
        seen["latencies_ms"],
        seen["statuses"],
        acknowledged,
        unknown,
        seen["refusal"],
        seen["elapsed_s"],
        seen["cpu_s"],
    )


def write_all(service: Service, table: str, clients: int, **limits: Any) -> LoadResult:
    """The same, but each WRITE must succeed."""
    result = write(service, table, clients, **limits)
    if result.others:
        raise RuntimeError(f"not every WRITE succeeded: {result.statuses} {result.refusal}")
    return result


def compare(result: LoadResult, found: list[int]) -> RowCheck:
    """Count acknowledged rows that are missing, extra copies of rows, and rows that were never acknowledged."""
    there = Counter(found)
    return RowCheck(
        lost=sum(number not in there for number in result.acknowledged),
        doubled=sum(count - 1 for count in there.values()),
        strange=len(there.keys() - result.acknowledged - result.unknown),
    )

"""QUERY, WRITE, LIST_TABLES and /health of one tenant, alone and beside another tenant that sends all it can."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

from bench.measures import FIRN, Claim, Line, Section
from bench.place import OURS, ROOT, folder, say
from bench.service import Service
from bench.stats import percentile

TITLE = "Beside a tenant that floods"
_FIELDS = {"id": {"type": "long"}, "name": {"type": "string"}}
_LOUD = "loud"
_ROWS = 20_000
_TABLES = 8
_HEAVY = "SELECT count(*) c FROM heavy a JOIN heavy b ON a.name < b.name JOIN heavy c ON b.name < c.name"
_WARM, _TIMES = 100, 100
_FLOOD_S = 100
_SHARE = 0.99
# 504 is the deadline of the request itself. A client that is still slow when the flood ends has no response yet.
_EXPECTED = {"200", "408", "413", "422", "429", "504", "still open"}


def measure() -> Section:
    with folder("flood") as home, Service(home / "firn") as service:
        return _measure(service)


def _measure(service: Service) -> Section:
    service.create("small", _FIELDS)
    for table in ("heavy", *(f"t{i}" for i in range(_TABLES))):
        service.create(table, _FIELDS, tenant_id=_LOUD)
    rows = [{"id": i, "name": str(i * 7919 % 100_003)} for i in range(_ROWS)]
    service.call("WRITE", tenant_id=_LOUD, table="heavy", records=rows)
    steps: dict[str, Callable[[int], object]] = {
        "QUERY of 10 rows": lambda i: service.call("QUERY", table="small", limit=10),
        "WRITE of 1 row": lambda i: service.call("WRITE", table="small", records=[{"id": i, "name": "x"}]),
        "LIST_TABLES": lambda i: service.call("LIST_TABLES"),
        "GET /health": lambda i: _health(service),
    }
    _round(steps, _WARM)
    say("part 16: alone")
    alone = _round(steps, _TIMES)
    plan = {"port": service.port, "tenant": _LOUD, "seconds": _FLOOD_S, "heavy": _HEAVY, "tables": _TABLES}
    with subprocess.Popen(
        [OURS, "-m", "bench.flood"], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as flood:
        assert flood.stdin is not None
        flood.stdin.write(json.dumps(plan))
        flood.stdin.close()
        time.sleep(5)
        say("part 16: beside the flood")
        with _memory(service) as memory:
            beside = _round(steps, _TIMES, until=time.monotonic() + _FLOOD_S - 15)
        assert flood.stdout is not None
        answers = flood.stdout.read()
    say(f"part 16: the flood got {answers.strip()}")
    lines, claims = [], []
    for what in steps:
        lines += [Line(f"{what}, alone", FIRN, "ms", alone[what]), Line(f"{what}, beside", FIRN, "ms", beside[what])]
        ratio = percentile(beside[what], _SHARE) / percentile(alone[what], _SHARE)
        claims.append(Claim(f"p99 of {what} beside a flood, of it alone", ratio, "most", 3))
    refused = json.loads(answers)
    odd = sum(n for seen in refused.values() for status, n in seen.items() if status not in _EXPECTED)
    claims.append(Claim("responses to the flood that are neither results nor refusals with a reason", odd, "most", 0))
    early, late = memory[: len(memory) // 3], memory[-(len(memory) // 3) :]
    grown = max(late) / max(early) if early else None
    claims.append(Claim("memory in the last third of the flood, of that in the first third", grown, "most", 1.25))
    lines[-1].more.update({"flood": refused, "memory_mib": [round(mib) for mib in memory]})
    return Section(lines, claims)


@contextmanager
def _memory(service: Service) -> Iterator[list[float]]:
    """The MiB that the service and all of its processes hold, each second of the block."""
    sizes: list[float] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(1):
            sizes.append(service.resident_mib())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield sizes
    finally:
        stop.set()
        looking.join()


def _round(
    steps: dict[str, Callable[[int], object]], times: int, until: float = float("inf")
) -> dict[str, list[float]]:
    """The milliseconds of each step, in turns, so many times or until the time is up."""
    took: dict[str, list[float]] = {what: [] for what in steps}
    for number in range(times):
        for what, step in steps.items():
            started = time.perf_counter()
            step(number)
            took[what].append((time.perf_counter() - started) * 1000)
        if time.monotonic() > until:
            break
    return took


def _health(service: Service) -> None:
    connection = HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
    finally:
        connection.close()

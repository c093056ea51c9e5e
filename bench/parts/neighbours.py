"""WRITE and LIST_TABLES of one tenant, alone and beside another tenant's queries that would never end."""

import http.client
import json
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress

from bench.measures import FIRN, Claim, Line, Section, ratio
from bench.place import folder, say
from bench.service import Service

TITLE = "Beside endless queries"
_ROWS = 60_000
_TIMES = 60
# A join of three copies of a table, which takes hours.
_ENDLESS = (
    "SELECT count(*) c FROM heavy a JOIN heavy b ON a.name < b.name JOIN heavy c ON b.name < c.name AND a.id < c.id"
)
_ENDS_AFTER_MS = 600_000
_EACH = 4


def measure() -> Section:
    with folder("neighbours") as home, Service(home / "firn") as service:
        return _measure(service)


def _measure(service: Service) -> Section:
    small = service.create("small")
    service.create("heavy", {"id": {"type": "long"}, "name": {"type": "string"}})
    for begin in range(0, _ROWS, 10_000):
        rows = [{"id": i, "name": str(i * 7919 % 100_003)} for i in range(begin, begin + 10_000)]
        service.call("WRITE", table="heavy", records=rows)
    _timed(200, lambda i: _write(service, small, i))
    alone = _round(service, small, "part 9: alone")
    for _ in range(_EACH):
        threading.Thread(target=_query, args=(service, 1.0), daemon=True).start()
    time.sleep(2)  # the first four have disconnected
    waiting = [threading.Thread(target=_query, args=(service, 900.0), daemon=True) for _ in range(_EACH)]
    for thread in waiting:
        thread.start()
    time.sleep(3)
    beside = _round(service, small, "part 9: beside four abandoned and four endless queries")
    if not all(thread.is_alive() for thread in waiting):
        raise RuntimeError("an endless query ended; this measures nothing")
    service.stop()
    lines = [
        Line("WRITE of 1 row, alone", FIRN, "ms", alone[0]),
        Line("WRITE of 1 row, beside endless queries", FIRN, "ms", beside[0]),
        Line("LIST_TABLES, alone", FIRN, "ms", alone[1]),
        Line("LIST_TABLES, beside endless queries", FIRN, "ms", beside[1]),
    ]
    return Section(lines, [Claim("WRITE beside endless queries, of WRITE alone", ratio(lines[1], lines[0]), "most", 2)])


def _round(service: Service, table: str, what: str) -> tuple[list[float], list[float]]:
    say(what)
    writes = _timed(_TIMES, lambda i: _write(service, table, i))
    return writes, _timed(_TIMES, lambda i: _list(service))


def _write(service: Service, table: str, number: int) -> None:
    service.call("WRITE", table=table, records=[{"id": number, "name": "x"}])


def _list(service: Service) -> None:
    service.call("LIST_TABLES")


def _timed(times: int, do: Callable[[int], None]) -> list[float]:
    took = []
    for number in range(times):
        started = time.perf_counter()
        do(number)
        took.append((time.perf_counter() - started) * 1000)
    return took


def _query(service: Service, seconds: float) -> None:
    """Send an endless query, and disconnect after so many seconds."""
    request = {"operation": "QUERY", "tenant_id": "bench", "table": "heavy", "sql": _ENDLESS}
    body = json.dumps({**request, "timeout_ms": _ENDS_AFTER_MS}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=seconds)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request("POST", "/database", body, {"Content-Type": "application/json"})
        connection.getresponse().read()

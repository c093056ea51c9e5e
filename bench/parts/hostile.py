"""A WRITE and a cheap QUERY, alone and beside each hostile SQL text that starts a job or runs until a bound."""

import json
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

from bench.measures import FIRN, Claim, Line, Section
from bench.place import folder, say
from bench.service import TENANT, Client, Refused, Service
from bench.stats import percentile
from tests.support.sql_corpus import FIELDS, SqlText, corpus, row

TITLE = "Beside hostile SQL"
_ROWS = 100_000
_TIMEOUT_MS = 5_000
_WARM, _TIMES = 60, 6
_SHARE = 0.99
_WRITE, _QUERY = "WRITE of 1 row", "QUERY of 1 row"


def measure() -> Section:
    with folder("hostile") as home, Service(home / "firn") as service:
        return _measure(service)


def _measure(service: Service) -> Section:
    small = {"id": {"type": "long"}, "name": {"type": "string"}}
    for table, fields in (("t", FIELDS), ("big", FIELDS), ("u", small)):
        service.create(table, fields)
    service.call("WRITE", table="t", records=[row(i) for i in range(1000)])
    rows = "\n".join(json.dumps(row(i)) for i in range(_ROWS)).encode()
    service.send(f"/tables/{TENANT}/default/big/records", rows, "application/x-ndjson")
    _both(service, _WARM)
    texts = [one for one in corpus() if one.ends in ("failed", "alone")]
    alone: dict[str, list[float]] = {_WRITE: [], _QUERY: []}
    beside: dict[str, list[float]] = {_WRITE: [], _QUERY: []}
    ends, worst = Counter[str](), dict[str, float]()
    with ThreadPoolExecutor(1) as pool:
        for one in texts:
            _add(alone, _both(service, _TIMES))
            found = _both(service, 1, pool.submit(_sent, service.port, one, ends))
            worst[str(one)] = max(ms for times in found.values() for ms in times)
            _add(beside, found)
            # What it leaves, such as tasks that end late, is part of it.
            time.sleep(1)
    say(f"part 17: {dict(ends)}; the slowest response beside each: {worst}")
    lines, claims = [], []
    for what in alone:
        lines += [Line(f"{what}, alone", FIRN, "ms", alone[what]), Line(f"{what}, beside", FIRN, "ms", beside[what])]
        for name, share in (("median", 0.5), ("p99", _SHARE)):
            ratio = percentile(beside[what], share) / percentile(alone[what], share)
            claims.append(Claim(f"{name} of {what} beside hostile SQL, of it alone", ratio, "most", 3))
    lines[-1].more["texts"] = len(texts)
    lines[-1].more["slowest"] = worst
    return Section(lines, claims)


def _both(service: Service, times: int, beside: "Future[None] | None" = None) -> dict[str, list[float]]:
    """The milliseconds of each, in turns, so many times and for as long as something else runs beside them."""
    took: dict[str, list[float]] = {_WRITE: [], _QUERY: []}
    while times > 0 or (beside is not None and not beside.done()):
        times -= 1
        took[_WRITE].append(service.timed("WRITE", table="u", records=[{"id": times, "name": "x"}])[0])
        took[_QUERY].append(service.timed("QUERY", table="u", limit=1)[0])
    if beside is not None:
        beside.result()
    return took


def _sent(port: int, one: SqlText, ends: Counter[str]) -> None:
    with closing(Client(port)) as own:
        try:
            own.call("QUERY", sql=one.text, timeout_ms=_TIMEOUT_MS, limit=10_000)
        except Refused as refusal:
            ends[str(refusal).split(":")[0].rpartition(" ")[2]] += 1
        else:
            raise AssertionError(f"hostile SQL succeeded: {one}")


def _add(to: dict[str, list[float]], found: dict[str, list[float]]) -> None:
    for what, times in found.items():
        to[what] += times

"""A hundred dynamic tables on one worker, twenty of them over sources that change all the time: how far they lag, and
what the idle ones cost."""

import http.client
import random
import re
import time
from contextlib import closing
from functools import partial
from typing import Any

from bench.measures import FIRN, Claim, Line, Section
from bench.place import folder, say
from bench.service import Client, Service, repeated

TITLE = "A hundred dynamic tables on one worker"
_LAG_S = 120
_CHANGING, _IDLE = 5, 20
_EACH = 4
_ROWS = 20_000
_FED_S = 480
_IDLE_S = 60
_PAUSE_S = 1.0
_QUERIES = (
    "SELECT region, count(*) AS n, sum(amount) AS amount FROM {t} GROUP BY region",
    "SELECT t.id, t.amount, r.manager FROM {t} t JOIN regions r ON t.region = r.region WHERE t.amount > 500",
    "SELECT customer, max(amount) AS most, count(*) AS n FROM {t} GROUP BY customer",
    "SELECT DISTINCT customer, region FROM {t}",
)


def measure() -> Section:
    with folder("lag") as home, Service(home / "firn") as service:
        regions = {"region": {"type": "long"}, "manager": {"type": "string"}}
        service.create("regions", regions)
        service.call("WRITE", table="regions", records=[{"region": n, "manager": f"manager {n}"} for n in range(10)])
        idle = [_source(service, f"idle_{n}") for n in range(_IDLE)]
        changing = [_source(service, f"changing_{n}") for n in range(_CHANGING)]
        without = _idle_cpu_s(service, "no dynamic table")
        for table in idle:
            _create(service, table)
        beside = _idle_cpu_s(service, f"{_IDLE * _EACH} idle dynamic tables")
        for table in changing:
            _create(service, table)
        began = service.cpu_s()
        # Records come, are changed, or go.
        changes = [partial(_change, table) for table in changing]
        with repeated(service, changes, _PAUSE_S) as writes:
            lags = _lags(service)
        fed = (service.cpu_s() - began) * 60 / _FED_S
        idle_tables, fed_tables = _IDLE * _EACH, _CHANGING * _EACH
        say(f"part 15: {sum(writes)} changes; the greatest lag was {max(lags):.0f} s; {fed:.1f} CPU s a minute")
        refreshes = _refreshes(service, changing)
    cpu = "CPU seconds of the service in a minute"
    lines = [
        Line(f"{cpu}, without dynamic tables", FIRN, "s", [without]),
        Line(f"{cpu}, {idle_tables} idle dynamic tables", FIRN, "s", [beside]),
        Line(f"{cpu}, {fed_tables} more over {_CHANGING} sources that change each second", FIRN, "s", [fed]),
        Line(f"greatest lag of {idle_tables + fed_tables} tables, every 5 seconds", FIRN, "s", lags),
        Line(f"refresh of one of the {fed_tables}", FIRN, "ms", refreshes),
    ]
    claims = [
        Claim(f"greatest lag of {idle_tables + fed_tables} tables, of the target lag", max(lags) / _LAG_S, "most", 1),
        Claim(f"CPU seconds in a minute for {idle_tables} idle dynamic tables", beside - without, "most", 3),
    ]
    return Section(lines, claims)


def _source(service: Service, name: str) -> str:
    number = {"type": "long"}
    service.create(name, {"id": number, "customer": number, "region": number, "amount": number})
    records = [_record(n) for n in range(_ROWS)]
    for begin in range(0, _ROWS, 10_000):
        service.call("WRITE", table=name, records=records[begin : begin + 10_000])
    return name


def _record(id: int) -> dict[str, Any]:
    chance = random.Random(id)
    return {"id": id, "customer": chance.randrange(500), "region": id % 10, "amount": chance.randrange(1000)}


def _create(service: Service, source: str) -> None:
    for number, query in enumerate(_QUERIES):
        sql = f"CREATE DYNAMIC TABLE {source}_{number} TARGET_LAG = '{_LAG_S} seconds' AS {query.format(t=source)}"
        service.call("CREATE_DYNAMIC_TABLE", sql=sql)
    say(f"part 15: the dynamic tables of {source} are built")


def _idle_cpu_s(service: Service, what: str) -> float:
    """The CPU seconds of a minute in which nothing changes."""
    service.settle(30)
    before = service.cpu_s()
    time.sleep(_IDLE_S)
    used = (service.cpu_s() - before) * 60 / _IDLE_S
    say(f"part 15: {what}: {used:.2f} CPU s a minute")
    return used


def _change(table: str, service: Client, number: int) -> None:
    id = number * 7919 % _ROWS
    if number % 5 == 3:
        service.call("UPDATE", table=table, filter={"id": id}, updates={"amount": number % 1000})
    elif number % 5 == 4:
        service.call("DELETE", table=table, filter={"id": id})
    else:
        first = _ROWS + 10 * number
        service.call("WRITE", table=table, records=[_record(n) for n in range(first, first + 10)])


def _lags(service: Service) -> list[float]:
    """The greatest lag of all tables, every five seconds, as the metrics show it."""
    found = []
    for turn in range(_FED_S // 5):
        time.sleep(5)
        with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        lags = [float(value) for value in re.findall(r"(?m)^firn_table_dynamic_lag_seconds\{.*\} (\S+)$", text)]
        found.append(max(lags, default=0.0))
        if turn % 6 == 0:
            say(f"part 15: {len(lags)} tables lag {found[-1]:.0f} s or less")
    return found


def _refreshes(service: Service, sources: list[str]) -> list[float]:
    """The milliseconds of the worker's refreshes."""
    found: list[float] = []
    for source in sources:
        for number in range(_EACH):
            listed = service.call("REFRESH_HISTORY", table=f"{source}_{number}")["refreshes"]
            found += [one["duration_ms"] for one in listed if one["requested_by"] == "worker"]
    return found

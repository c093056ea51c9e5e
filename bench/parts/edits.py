"""Edits of one row by key: alone, by many clients at once, and mixed with WRITEs."""

import http.client
import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.measures import FIRN, Claim, Line, Section, ratio
from bench.peer import Peer
from bench.place import folder, say
from bench.service import FIELDS, TENANT, Service

TITLE = "UPSERT, UPDATE and DELETE of 1 row by key"
PYICEBERG, DUCKLAKE = "PyIceberg upsert", "DuckLake, inlined"
_ROWS = 400
_ALONE, _SECONDS, _MIXED_SECONDS = 30, 6.0, 12.0
_MANY, _MIXED = 64, 12
_UPSERTS = 20
NextRequest = Callable[[random.Random, int, int], tuple[str, dict[str, Any]] | None]
"""The kind of a client's nth request, and the request; None ends the client."""


@dataclass
class Responses:
    """What clients got: milliseconds by kind of request."""

    elapsed_s: float = 0.0
    took_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def per_s(self) -> float:
        return sum(map(len, self.took_ms.values())) / self.elapsed_s


def measure() -> Section:
    with folder("edits") as home, Service(home / "firn") as service, Peer("iceberg", home) as iceberg:
        iceberg.ask("open", home=str(home / "iceberg"))
        say("part 11: warming up")
        clients(service, _filled(service, "warm"), 8, 4.0, _mixture("warm"))
        lines = [*_one_client(service), *_one_lake(home)]
        say("part 11: one client done")
        table = _filled(service, "own")
        before = service.commits(table)
        many = clients(service, table, _MANY, _SECONDS, _own_rows(table))
        changes = len(many.took_ms["UPSERT"])
        commits = 1000 * (service.commits(table) - before) / changes
        rate = Line(f"responses/s, {_MANY} clients, UPSERT of own rows", FIRN, "rows/s", [many.per_s])
        say(f"part 11: {many.per_s:,.0f} UPSERTs/s, {commits:,.0f} commits per 1,000")
        iceberg.ask("create", table="own")
        iceberg.ask("append", table="own", count=1, each=_ROWS)
        took = [iceberg.ask("upsert", table="own", ids=[n % _ROWS], more=n + 0.25) for n in range(_UPSERTS)]
        serial = Line(rate.what, PYICEBERG, "rows/s", [1000 * len(took) / sum(took)], "one after another")
        lines += [rate, serial]

        mixed = clients(service, _filled(service, "mixed"), _MIXED, _MIXED_SECONDS, _mixture("mixed"))
        alone = clients(service, _filled(service, "writes"), _MIXED, _SECONDS, _writes("writes"))
        what = f"{_MIXED} clients, 60% WRITE, 25% UPSERT, 15% DELETE"
        lines.append(Line(f"responses/s, {what}", FIRN, "rows/s", [mixed.per_s]))
        lines += [Line(f"{kind} among {what}", FIRN, "ms", took) for kind, took in sorted(mixed.took_ms.items())]
        among = next(line for line in lines if line.what == f"WRITE among {what}")
        only = Line(f"WRITE, {_MIXED} clients", FIRN, "ms", alone.took_ms["WRITE"])
        lines.append(only)
    by_what = {line.what: line for line in lines if line.who == FIRN}
    single = ratio(by_what["UPSERT, 1 client"], by_what["WRITE, 1 client"])
    claims = [
        Claim("UPSERT of 1 row / WRITE, one client", single, "most", 2.5),
        Claim(f"UPSERTs/s with {_MANY} clients / {PYICEBERG}", ratio(rate, serial), "least", 12),
        Claim("WRITE among edits / WRITE alone", ratio(among, only), "most", 3),
        Claim(f"commits per 1,000 UPSERTs, {_MANY} clients", commits, "most", 50),
    ]
    return Section(lines, claims)


def _one_client(service: Service) -> list[Line]:
    table = _filled(service, "alone")
    asks: dict[str, Callable[[int], dict[str, Any]]] = {
        "WRITE": lambda n: {"records": [_row(_ROWS + n)]},
        "UPSERT": lambda n: {"records": [{**_row(n), "amount": n + 0.5}]},
        "UPDATE": lambda n: {"filter": {"id": n}, "updates": {"amount": n + 0.75}},
        "DELETE": lambda n: {"filter": {"id": n}},
    }
    lines = []
    for operation, ask in asks.items():
        took = [service.timed(operation, table=table, **ask(number))[0] for number in range(_ALONE)]
        lines.append(Line(f"{operation}, 1 client", FIRN, "ms", took))
    return lines


def _one_lake(home: Path) -> list[Line]:
    """The same edits in a lake whose small changes stay rows in SQLite."""
    with Peer("ducklake", home) as lake:
        lake.ask("open", home=str(home / "ducklake"), inline=True)
        lake.ask("create", table="alone")
        lake.ask("fill", table="alone", count=_ROWS)
        took = {
            "UPSERT": [lake.ask("upsert", table="alone", ids=[n], more=n + 0.25) for n in range(_ALONE)],
            "UPDATE": lake.ask("update", table="alone", count=_ALONE),
            "DELETE": lake.ask("delete", table="alone", count=_ALONE),
        }
    return [Line(f"{operation}, 1 client", DUCKLAKE, "ms", each) for operation, each in took.items()]


def clients(service: Service, table: str, number: int, seconds: float, ask: NextRequest) -> Responses:
    """What a number of clients got that sent requests for a time, each on a connection of its own."""
    answers, lock, until = Responses(), threading.Lock(), time.perf_counter() + seconds
    failures: list[str] = []

    def client(who: int) -> None:
        chance, nth = random.Random(who), 0
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
        while time.perf_counter() < until and not failures:
            asked = ask(chance, who, nth)
            if asked is None:
                return
            kind, request = asked
            nth += 1
            body = json.dumps({"operation": kind, "tenant_id": TENANT, **request})
            started = time.perf_counter()
            connection.request("POST", "/database", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text, took = response.read(), (time.perf_counter() - started) * 1000
            with lock:
                answers.took_ms[kind].append(took)
                if response.status != 200:
                    failures.append(text[:400].decode(errors="replace"))

    threads = [threading.Thread(target=client, args=(who,)) for who in range(number)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.elapsed_s = time.perf_counter() - started
    if failures:
        raise RuntimeError(f"{table}: {failures[0]}")
    service.settle()
    return answers


def _filled(service: Service, table: str) -> str:
    service.create(table, FIELDS, key=["id"])
    service.call("WRITE", table=table, records=[_row(n) for n in range(_ROWS)])
    return table


def _row(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"name {number}", "amount": number % 1000 + 0.25, "moment": "2024-03-01T12:00:00"}


def _own_rows(table: str) -> NextRequest:
    each = _ROWS // _MANY

    def ask(chance: random.Random, who: int, nth: int) -> tuple[str, dict[str, Any]]:
        record = {**_row(who * each + nth % each), "amount": nth + 0.5}
        return "UPSERT", {"table": table, "records": [record]}

    return ask


def _mixture(table: str) -> NextRequest:
    def ask(chance: random.Random, who: int, nth: int) -> tuple[str, dict[str, Any]]:
        kind, key = chance.random(), chance.randrange(_ROWS)
        if kind < 0.6:
            return _writes(table)(chance, who, nth)
        if kind < 0.85:
            return "UPSERT", {"table": table, "records": [{**_row(key), "amount": nth + 0.5}]}
        return "DELETE", {"table": table, "filter": {"id": key}}

    return ask


def _writes(table: str) -> NextRequest:
    return lambda chance, who, nth: ("WRITE", {"table": table, "records": [_row(1_000_000 * (who + 1) + nth)]})

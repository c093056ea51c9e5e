"""UPSERT of 100 and 10,000 rows into a table of a million, half of them new."""

import json
import random
import time

from bench.measures import FIRN, Claim, Line, Section, ratio
from bench.parts.edits import DUCKLAKE, PYICEBERG
from bench.peer import Capped, Peer
from bench.place import folder, say
from bench.service import FIELDS, Service

TITLE = "UPSERT into 1M rows"
_TABLE = "million"
_THERE = 1_000_000
# Rows, how often, and what part of PyIceberg's time it may take at most.
_SIZES = {100: (5, 1.0), 10_000: (3, 0.6)}
_CAP_S = 90


def measure() -> Section:
    with (
        folder("upsert") as home,
        Service(home / "firn") as service,
        Peer("iceberg", home) as filler,
        Peer("iceberg", home) as iceberg,
        Peer("ducklake", home) as lake,
    ):
        service.create(_TABLE, FIELDS, key=["id"])
        filler.ask("open", home=str(service.home))
        iceberg.ask("open", home=str(home / "iceberg"))
        iceberg.ask("create", table=_TABLE)
        lake.ask("open", home=str(home / "ducklake"), inline=True)
        lake.ask("create", table=_TABLE)
        for peer in (filler, iceberg, lake):  # Firn's table gets its file from PyIceberg
            peer.ask("fill", table=_TABLE, count=_THERE)
        say("part 5: warming up")
        chance = random.Random(5)
        _upsert(service, _ids(chance, 100, -1), -1)
        lines, claims = list[Line](), list[Claim]()
        for rows, (times, most) in _SIZES.items():
            ours, theirs, lakes, capped = [], [], [], False
            for turn in range(times):
                ids = _ids(chance, rows, turn)
                ours.append(_upsert(service, ids, turn))
                service.settle()
                lakes.append(lake.ask("upsert", table=_TABLE, ids=ids, more=turn + 0.25))
                say(f"part 5: {rows:,} rows, {turn + 1} of {times}: {ours[-1]:,.0f} ms")
                if capped:
                    continue
                try:
                    theirs.append(iceberg.ask("upsert", cap=_CAP_S, table=_TABLE, ids=ids, more=turn + 0.25))
                except Capped:
                    # Its process had to be ended; how long it would have taken is not known.
                    capped = True
                    iceberg.ask("open", home=str(home / "iceberg"))
            what, note = f"UPSERT of {rows:,} rows into 1M", f"capped: more than {_CAP_S} s" if capped else ""
            firn, other = Line(what, FIRN, "ms", ours), Line(what, PYICEBERG, "ms", theirs, note)
            lines += [firn, other, Line(what, DUCKLAKE, "ms", lakes)]
            claims.append(Claim(f"{what} / {PYICEBERG}", ratio(firn, other), "most", most))
    return Section(lines, claims)


def _ids(chance: random.Random, count: int, turn: int) -> list[int]:
    """Ids of rows that are there, from all over the table, and as many new ones."""
    there = chance.sample(range(_THERE), count // 2)
    new = range(_THERE * (turn + 3) + count, _THERE * (turn + 3) + count + count - len(there))
    return [*there, *new]


def _upsert(service: Service, ids: list[int], turn: int) -> float:
    row = {"name": "new", "moment": "2024-03-01T12:00:00"}
    records = [{"id": number, **row, "amount": number % 1000 + turn + 0.25} for number in ids]
    body = {"operation": "UPSERT", "tenant_id": "bench", "table": _TABLE, "records": records}
    sent = json.dumps(body).encode()
    started = time.perf_counter()
    response = service.send("/database", sent, "application/json")
    took = (time.perf_counter() - started) * 1000
    result = (response["records_inserted"], response["records_updated"])
    assert sum(result) == len(ids), f"{result} of {len(ids)} rows"
    return took

"""WRITE of 1, 100 and 10,000 rows, one client."""

from pathlib import Path

from bench import clients
from bench.measures import FIRN, Claim, Line, Section, ratio
from bench.peer import Peer
from bench.place import folder, say
from bench.service import Service

TITLE = "WRITE, one client"
_ROUNDS = 5
_WARM = 200
# Rows in each, and how many of them in a round, each round on a new table.
_SIZES = {1: 40, 100: 20, 10_000: 10}


def measure() -> Section:
    with folder("write") as home, Service(home / "firn") as service, Peer("iceberg", home) as iceberg:
        return _measure(home, service, iceberg)


def _measure(home: Path, service: Service, iceberg: Peer) -> Section:
    ours: dict[int, list[float]] = {rows: [] for rows in _SIZES}
    theirs: dict[int, list[float]] = {rows: [] for rows in _SIZES}
    iceberg.ask("open", home=str(home / "iceberg"))
    say("part 1: warming up")
    clients.write_all(service, service.create("warm"), 1, requests=_WARM)
    for turn in range(_ROUNDS + 1):
        say(f"part 1: round {turn} of {_ROUNDS}{'' if turn else ' (not counted)'}")
        for rows, count in _SIZES.items():
            table = f"w{rows}r{turn}"
            result = clients.write_all(service, service.create(table), 1, requests=count, rows=rows)
            service.settle()
            iceberg.ask("create", table=table)
            took = iceberg.ask("append", table=table, count=count, each=rows)
            if turn:
                ours[rows] += result.latencies_ms
                theirs[rows] += took
    lines = []
    for rows in _SIZES:
        what = f"WRITE of {rows:,} row{'s' if rows > 1 else ''}, new table"
        lines += [Line(what, FIRN, "ms", ours[rows]), Line(what, "PyIceberg append", "ms", theirs[rows])]
    claims = [
        Claim("one client's p50, of PyIceberg's on a new table", ratio(*lines[:2]), "most", 3),
        # Two thirds of what it was when this was asked for.
        Claim("WRITE of 10,000 rows, of PyIceberg's time", ratio(*lines[-2:]), "most", 4.2),
    ]
    return Section(lines, claims)

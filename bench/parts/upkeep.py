"""What edits leave behind: a QUERY after thousands of updates, and appends beside COMPACT and DELETEs."""

import itertools
import random
import time
from typing import Any

from bench.measures import FIRN, Claim, Line, Section, ratio
from bench.parts.edits import clients
from bench.place import folder, say
from bench.service import FIELDS, TENANT, Client, Service, repeated

TITLE = "Reads and appends beside edits"
_ROWS, _UPDATES, _CLIENTS = 300_000, 10_000, 64
_QUERIES = 15
_COMPACTS, _FILES, _EACH = 3, 40, 20_000
# How often mode auto looks for tables, and how long its last compaction may take.
_AUTO_S, _QUIET_S = "2", 20
_FIGURES = [{"op": "count"}, {"op": "sum", "field": "amount", "alias": "total"}]


def measure() -> Section:
    with folder("upkeep") as home, Service(home / "firn", ICEBERG__COMPACTION__AUTO_INTERVAL_S=_AUTO_S) as service:
        after, compacted = _reads(service)
        appends, merged = _appends(service)
    claims = [
        Claim(f"QUERY after {_UPDATES:,} updates / on the compacted table", ratio(after, compacted), "most", 1.5),
        Claim("longest WRITE beside COMPACT and DELETEs, s", max(appends.values) / 1000, "most", 0.5),
        Claim(f"COMPACTs that merged, of {_COMPACTS}", merged, "least", _COMPACTS),
    ]
    return Section([after, compacted, appends], claims)


def _reads(service: Service) -> tuple[Line, Line]:
    """Queries after updates by key of single rows, in a table in mode auto, and once more after a forced COMPACT."""
    service.create("updated", FIELDS, key=["id"], properties={"compaction": {"mode": "auto"}})
    _load(service, "updated", range(_ROWS))
    _queries(service)
    numbers = itertools.count()

    def ask(chance: random.Random, who: int, nth: int) -> tuple[str, dict[str, Any]] | None:
        if next(numbers) >= _UPDATES:
            return None
        request = {"table": "updated", "filter": {"id": chance.randrange(_ROWS)}, "updates": {"amount": nth + 0.5}}
        return "UPDATE", request

    made = clients(service, "updated", _CLIENTS, 900, ask)
    say(f"part 14: {_UPDATES:,} updates in {made.elapsed_s:.0f} s")
    service.close()  # the service closes a connection that was idle for so long
    service.settle(_QUIET_S)
    what = f"QUERY of {_ROWS:,} rows"
    after = Line(f"{what} after {_UPDATES:,} updates", FIRN, "ms", _queries(service))
    while service.call("COMPACT", table="updated", force=True)["compacted"]:
        pass  # one compaction merges a number of files at most
    service.settle()
    return after, Line(f"{what}, compacted", FIRN, "ms", _queries(service))


def _queries(service: Service) -> list[float]:
    took = []
    for _ in range(_QUERIES):
        ms, found = service.timed("QUERY", table="updated", aggregations=_FIGURES, filter={"id": {"gte": 0}})
        took.append(ms)
        if found["data"][0]["count"] != _ROWS:
            raise RuntimeError(f"the table has {found['data'][0]['count']:,} rows")
    return took[_QUERIES // 3 :]


def _appends(service: Service) -> tuple[Line, int]:
    """One client appends and another deletes rows in loops while a table of many files is compacted several times."""
    service.create("busy", FIELDS)
    took: list[float] = []

    def write(client: Client, n: int) -> None:
        record = {"id": -n, "name": "new", "amount": 0.5, "moment": "2024-03-01T12:00:00"}
        took.append(client.timed("WRITE", table="busy", records=[record])[0])

    def delete(client: Client, n: int) -> None:
        client.call("DELETE", table="busy", filter={"id": {"in": [n, n + _EACH]}})

    merged = 0
    for turn in range(_COMPACTS):
        for number in range(_FILES):
            _load(service, "busy", range(number * _EACH, (number + 1) * _EACH))
        with repeated(service, [write, delete]):
            time.sleep(1)
            compacted = service.call("COMPACT", table="busy", force=True)
            merged += bool(compacted["compacted"])
            time.sleep(1)
        seconds = compacted["stats"]["compaction_time_ms"] / 1000
        say(f"part 14: COMPACT {turn + 1} took {seconds:.1f} s; longest WRITE so far {max(took):.0f} ms")
    return Line("WRITE beside COMPACT and DELETEs", FIRN, "ms", took, f"longest: {max(took):.0f} ms"), merged


def _load(service: Service, table: str, ids: range) -> None:
    lines = (f"{n},name {n},{n % 1000}.25,2024-03-01T12:00:00" for n in ids)
    body = ("id,name,amount,moment\n" + "\n".join(lines)).encode()
    service.send(f"/tables/{TENANT}/default/{table}/records", body, "text/csv")

"""Dynamic tables over a million facts and 100,000 customers: what a refresh costs after changes of several sizes."""

import io
import random
from typing import Any

import pyarrow as pa

from bench.measures import FIRN, Claim, Line, Section, ratio
from bench.place import folder, say
from bench.service import TENANT, Service

TITLE = "Refresh of dynamic tables"
_FACTS, _CUSTOMERS = 1_000_000, 100_000
_REGIONS = 5
_APPENDED, _UPDATED = 10_000, _FACTS // 100
_ROUNDS = 3
_MIXED = (100, 10_000, 300_000, 1_000, 30_000, 10, 200_000, 3_000, 100_000, 500)
_ARROW = "application/vnd.apache.arrow.stream"
QUERIES = {
    "aggregate of 5 groups": "SELECT region, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY region",
    "join": "SELECT o.id, o.amount, c.name, c.town FROM orders o JOIN customers c ON o.customer = c.id",
}
_NAMES = {"aggregate of 5 groups": "totals", "join": "details"}
_MODES = ("INCREMENTAL", "FULL", "AUTO")


def measure() -> Section:
    with folder("dynamic") as home, Service(home / "firn") as service:
        _fill(service)
        for what, query in QUERIES.items():
            for mode in _MODES:
                _create(service, f"{_NAMES[what]}_{mode.lower()}", mode, query)
            _create(service, f"{_NAMES[what]}_first", "INCREMENTAL", query)
        _append(service, 100)
        _round(service, "warming up")
        lines: list[Line] = []
        claims: list[Claim] = []
        changes = {
            f"{_APPENDED:,} facts are appended": lambda: _append(service, _APPENDED),
            "1% random facts are updated": lambda: _update(service, _UPDATED),
        }
        for when, change in changes.items():
            took: dict[tuple[str, str], list[float]] = {}
            for turn in range(_ROUNDS):
                change()
                for key, ms in _round(service, f"{when}, {turn + 1} of {_ROUNDS}").items():
                    took.setdefault(key, []).append(ms)
            for what in QUERIES:
                pair = [
                    Line(f"refresh of the {what} after {when}", f"{FIRN}, {mode.lower()}", "ms", took[what, mode])
                    for mode in ("INCREMENTAL", "FULL")
                ]
                lines += pair
                if "appended" in when:
                    least = 10 if what.startswith("aggregate") else 4
                    text = f"{what}: full / incremental after {when}"
                    claims.append(Claim(text, ratio(pair[1], pair[0]), "least", least))
                else:
                    text = f"{what}: incremental / full after {when}"
                    claims.append(Claim(text, ratio(pair[0], pair[1]), "most", 1.1))
        right = [_chose_faster(service, number, size) for number, size in enumerate(_MIXED)]
        share = sum(map(sum, right)) / sum(map(len, right))
        claims.append(Claim("refreshes in which AUTO picks the faster mode, of all", share, "least", 0.9))
    return Section(lines, claims)


def _create(service: Service, table: str, mode: str, query: str) -> None:
    options = f"TARGET_LAG = '1 day' REFRESH_MODE = {mode} SCHEDULER = DISABLED"
    service.call("CREATE_DYNAMIC_TABLE", sql=f"CREATE DYNAMIC TABLE {table} {options} AS {query}")


def _round(service: Service, what: str) -> dict[tuple[str, str], float]:
    """Refresh every table, and return the milliseconds by query and mode."""
    took: dict[tuple[str, str], float] = {}
    for query, name in _NAMES.items():
        for mode in _MODES:
            took[query, mode] = _refresh(service, f"{name}_{mode.lower()}")[0]
    shown = ", ".join(f"{_NAMES[query]} {mode.lower()} {ms:,.0f} ms" for (query, mode), ms in took.items())
    say(f"part 12: {what}: {shown}")
    return took


def _chose_faster(service: Service, number: int, size: int) -> list[bool]:
    """Whether AUTO chose the mode that took less time, for each query, after a change of this size. A mode that takes
    no more than a tenth longer counts as faster too, because times vary by that much.

    The first refresh after a change also reads what the others then find in memory, such as the places of deleted rows.
    So the first is of a table that is not compared.
    """
    _append(service, size) if number % 2 else _update(service, size)
    chosen = []
    for name in _NAMES.values():
        _refresh(service, f"{name}_first")
        took = {mode: _refresh(service, f"{name}_{mode.lower()}") for mode in _MODES}
        best = min(took["INCREMENTAL"][0], took["FULL"][0])
        mode = took["AUTO"][1]
        chosen.append(took[mode][0] <= 1.1 * best)
        shown = ", ".join(f"{one.lower()} {ms:,.0f} ms" for one, (ms, _) in took.items())
        say(f"part 12: {size:,} changed, {name}: {shown}; AUTO chose {mode}")
    return chosen


def _refresh(service: Service, table: str) -> tuple[float, str]:
    """The milliseconds that a refresh took, as the service says, and its mode."""
    service.settle(3)
    response = service.call("REFRESH_DYNAMIC_TABLE", table=table)
    refreshed = next(one for one in response["tables"] if one["table"] == table)
    return float(response["metadata"]["execution_time_ms"]), str(refreshed["mode"])


def _fill(service: Service) -> None:
    number, text, money = {"type": "long", "required": True}, {"type": "string"}, {"type": "decimal(12,2)"}
    service.create("customers", {"id": number, "name": text, "town": text}, key=["id"])
    fields: dict[str, Any] = {"id": number, "customer": {"type": "long"}, "region": text, "amount": money}
    service.create("orders", fields, key=["id"])
    ids = range(_CUSTOMERS)
    columns = {"id": ids, "name": [f"customer {n}" for n in ids], "town": [f"town {n % 1000}" for n in ids]}
    _send(service, "customers", pa.table({"id": pa.array(ids, pa.int64()), **_texts(columns)}))
    _send(service, "orders", _orders(range(_FACTS)))


def _texts(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: pa.array(values, pa.string()) for name, values in columns.items() if name != "id"}


_chance = random.Random(12)
_next = [_FACTS]


def _orders(ids: "range | list[int]") -> pa.Table:
    amounts = pa.array([_chance.randrange(100_000) for _ in ids], pa.int64()).cast(pa.decimal128(21, 2))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "customer": pa.array([_chance.randrange(_CUSTOMERS) for _ in ids], pa.int64()),
            "region": pa.array([f"region {_chance.randrange(_REGIONS)}" for _ in ids]),
            "amount": amounts.cast(pa.decimal128(12, 2)),
        }
    )


def _append(service: Service, count: int) -> None:
    first = _next[0]
    _next[0] += count
    _send(service, "orders", _orders(range(first, first + count)))


def _update(service: Service, count: int) -> None:
    _send(service, "orders", _orders(_chance.sample(range(_FACTS), count)), "?mode=upsert&key_cols=id")


def _send(service: Service, table: str, rows: pa.Table, parameters: str = "") -> None:
    body = io.BytesIO()
    with pa.ipc.new_stream(body, rows.schema) as stream:
        stream.write_table(rows)
    service.send(f"/tables/{TENANT}/default/{table}/records{parameters}", body.getvalue(), _ARROW)

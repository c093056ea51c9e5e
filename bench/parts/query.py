"""Point QUERYs and a GROUP BY on a thousand small files, before and after COMPACT."""

from typing import Any

from bench.measures import FIRN, Claim, Line, Section, ratio
from bench.peer import Peer
from bench.place import folder, say
from bench.service import NAMESPACE, Service

TITLE = "QUERY of 1,000 small files"
PEER = "PyIceberg scan + DuckDB"
_FILES = 1000
_ROWS = 100  # in each
_ROUNDS = 3
_POINTS = 10  # in each round
_GROUPS = 5
_TABLE = "events"
_FIELDS = {
    "id": {"type": "long", "required": True},
    "key": {"type": "string"},
    "kind": {"type": "string"},
    "amount": {"type": "double"},
}
_BY_ID = "point QUERY by id"
_BY_KEY = "point QUERY by a scattered key"
_GROUP = "GROUP BY"
_FIGURES = [{"op": "count"}, {"op": "sum", "field": "amount", "alias": "total"}]


def measure() -> Section:
    with folder("query") as home, Service(home / "firn") as service, Peer("reading", home) as peer:
        service.create(_TABLE, _FIELDS)
        peer.ask("open", home=str(service.home), namespace=NAMESPACE, table=_TABLE)
        files = peer.ask("fill", files=_FILES, each=_ROWS)
        say(f"part 4: {files} files")
        lines = _both(service, peer, f"{files:,} files")
        compacted = service.call("COMPACT", table=_TABLE, max_files=2 * _FILES)["stats"]
        service.settle()
        after = f"after COMPACT, {compacted['files_after']} file{'s' if compacted['files_after'] > 1 else ''}"
        say(f"part 4: {after}")
        lines += [Line(f"COMPACT of {files:,} files", FIRN, "ms", [compacted["compaction_time_ms"]])]
        merged = _both(service, peer, after)
    claims = [
        Claim(f"{what} after COMPACT, of PyIceberg + DuckDB's", ratio(*merged[at : at + 2]), "most", 1.5)
        for at, what in ((0, _BY_ID), (2, _BY_KEY))
    ]
    return Section(lines + merged, claims)


def _both(service: Service, peer: Peer, state: str) -> list[Line]:
    """Ours and theirs in turn, on the same table; three pairs of lines."""
    ours: dict[str, list[float]] = {_BY_ID: [], _BY_KEY: [], _GROUP: []}
    theirs: dict[str, list[float]] = {what: [] for what in ours}
    for turn in range(_ROUNDS + 1):
        say(f"part 4: {state}, round {turn} of {_ROUNDS}" if turn else f"part 4: {state}, warming up")
        ids = [(number * 30_011 + turn * 997) % (_FILES * _ROWS) for number in range(_POINTS)]
        keys = [f"key-{number:08d}" for number in ids]
        took = {
            _BY_ID: [_query(service, 1, filter={"id": number}) for number in ids],
            _BY_KEY: [_query(service, 1, filter={"key": key}) for key in keys],
            _GROUP: [_query(service, 20, group_by=["kind"], aggregations=_FIGURES) for _ in range(_GROUPS)],
        }
        service.settle()
        took_them: dict[str, list[float]] = {
            _BY_ID: peer.ask("point", column="id", values=ids),
            _BY_KEY: peer.ask("point", column="key", values=keys),
            _GROUP: peer.ask("group", times=_GROUPS),
        }
        if turn:
            for what in ours:
                ours[what] += took[what]
                theirs[what] += took_them[what]
    lines = []
    for what in ours:
        lines += [Line(f"{what}, {state}", FIRN, "ms", ours[what]), Line(f"{what}, {state}", PEER, "ms", theirs[what])]
    return lines


def _query(service: Service, expected: int, **query: Any) -> float:
    took, response = service.timed("QUERY", table=_TABLE, **query)
    rows = response["data"]
    assert len(rows) == expected, f"{len(rows)} rows, not {expected}"
    return took

"""COMPACT of a thousand files, beside tools that read and rewrite the whole table; a GROUP BY before and after it."""

from bench.measures import FIRN, Claim, Line, Section, ratio
from bench.peer import Peer
from bench.place import folder, say
from bench.service import NAMESPACE, Service

TITLE = "COMPACT of 1M rows"
_ROWS = 1_000_000
_FILES = 1000
_MANY_FILES = 5000
_ROUNDS = 5
_GROUPS = 5
_KINDS = 20
_FIELDS = {
    "id": {"type": "long", "required": True},
    "key": {"type": "string"},
    "kind": {"type": "string"},
    "amount": {"type": "double"},
}
_FIGURES = [{"op": "count"}, {"op": "sum", "field": "amount", "alias": "total"}]
_PYICEBERG = "PyIceberg scan + overwrite"
_DUCKDB = "DuckDB, Parquet files to one"


def measure() -> Section:
    with folder("compact") as home, Service(home / "firn") as service, Peer("reading", home) as peer:
        merging = _merging(service, peer)
        grouping = _grouping(service, peer)
    claims = [
        Claim("COMPACT's time, of PyIceberg's", ratio(merging[0], merging[1]), "most", 0.5),
        Claim("COMPACT's time, of DuckDB's", ratio(merging[0], merging[2]), "most", 6),
        Claim(f"GROUP BY before COMPACT on {_MANY_FILES:,} files, of after it", ratio(*grouping), "least", 5),
    ]
    return Section([*merging, *grouping], claims)


def _merging(service: Service, peer: Peer) -> list[Line]:
    """Each merges the same files, in turn: in between, the table is put back to its earlier state."""
    service.create("merged", _FIELDS)
    peer.ask("open", home=str(service.home), namespace=NAMESPACE, table="merged")
    files = peer.ask("fill", files=_FILES, each=_ROWS // _FILES)
    before = peer.ask("location")
    say(f"part 8: {files:,} files")
    took: dict[str, list[float]] = {FIRN: [], _PYICEBERG: [], _DUCKDB: []}
    for turn in range(_ROUNDS + 2):
        ours, response = service.timed("COMPACT", table="merged", max_files=2 * _FILES, expire_snapshots=False)
        stats = response["stats"]
        if stats["files_after"] != 1:
            raise RuntimeError(f"COMPACT left {stats['files_after']} files")
        service.settle()
        peer.ask("rewind", metadata=before)
        merged = {FIRN: ours, _PYICEBERG: peer.ask("overwrite", expected=_ROWS)}
        peer.ask("rewind", metadata=before)
        merged[_DUCKDB] = peer.ask("merge_in_duckdb", path=str(service.home / "duckdb.parquet"), expected=_ROWS)
        say(f"part 8: {'warming up' if turn < 2 else f'round {turn - 1} of {_ROUNDS}'}: {ours:.0f} ms")
        if turn >= 2:
            for who, ms in merged.items():
                took[who].append(ms)
    return [Line(f"{files:,} files of {_ROWS:,} rows into one", who, "ms", times) for who, times in took.items()]


def _grouping(service: Service, peer: Peer) -> list[Line]:
    service.create("grouped", _FIELDS)
    peer.ask("open", home=str(service.home), namespace=NAMESPACE, table="grouped")
    files = peer.ask("fill", files=_MANY_FILES, each=_ROWS // _MANY_FILES)
    before = [_group_by(service) for _ in range(_GROUPS + 1)][1:]
    say(f"part 8: {files:,} files, GROUP BY {min(before):.0f} ms")
    service.call("COMPACT", table="grouped", max_files=2 * _MANY_FILES, expire_snapshots=False)
    service.settle()
    after = [_group_by(service) for _ in range(_GROUPS + 1)][1:]
    say(f"part 8: after COMPACT {min(after):.0f} ms")
    return [
        Line(f"GROUP BY of {_ROWS:,} rows, {files:,} files", FIRN, "ms", before),
        Line(f"GROUP BY of {_ROWS:,} rows, after COMPACT", FIRN, "ms", after),
    ]


def _group_by(service: Service) -> float:
    took, response = service.timed("QUERY", table="grouped", group_by=["kind"], aggregations=_FIGURES)
    rows = response["data"]
    if len(rows) != _KINDS:
        raise RuntimeError(f"{len(rows)} groups, not {_KINDS}")
    return took

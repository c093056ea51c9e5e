"""One large table: an UPDATE of one row, its UNDO and the DIFF of it; and DELETE of 1 % of the rows, from all files."""

from bench.measures import FIRN, Claim, Line, Section, ratio
from bench.peer import Peer
from bench.place import folder, say
from bench.service import FIELDS, Service

TITLE = "Edits of a large table"
_ROWS, _LARGE = 2_400_000, 5_000_000
_ROUNDS = 5
_MODES = ("copy_on_write", "merge_on_read")


def measure() -> Section:
    with folder("large") as home, Service(home / "firn") as service, Peer("iceberg", home) as filler:
        filler.ask("open", home=str(service.home))
        service.create("large")
        filler.ask("fill", table="large", count=_ROWS)
        _looking_back(service, 0)
        say("part 13: warm")
        took = [_looking_back(service, turn) for turn in range(1, _ROUNDS + 1)]
        what = {name: f"{name}, 1 row of {_ROWS:,}" for name in took[0]}
        lines = [Line(what[name], FIRN, "ms", [one[name] for one in took]) for name in what]
        say("part 13: DELETE")
        for mode in _MODES:
            properties = {"row_level": mode}
            service.call("CREATE_TABLE", table=mode, schema={"fields": FIELDS}, properties=properties)
            filler.ask("fill", table=mode, count=_LARGE)
        deletes: dict[str, list[float]] = {mode: [] for mode in _MODES}
        for turn in range(_ROUNDS):
            for mode, times in deletes.items():
                ended = f"{turn + 1}7"
                ms, response = service.timed("DELETE", table=mode, filter={"name": {"ends_with": ended}})
                assert response["records_deleted"] == _LARGE // 100, response
                times.append(ms)
                service.settle()
        lines += [
            Line(f"DELETE of 1 % of {_LARGE:,} rows", f"{FIRN}, {mode}", "ms", ms) for mode, ms in deletes.items()
        ]
    by_what = {line.what: line for line in lines[: len(what)]}
    update = by_what[what["UPDATE"]]
    claims = [
        Claim("UNDO of a one-row UPDATE / the UPDATE", ratio(by_what[what["UNDO"]], update), "most", 2),
        Claim("DIFF of two rows, ms", by_what[what["DIFF"]].median, "most", 1000),
        Claim("DELETE of 1 % / copy-on-write", ratio(lines[-1], lines[-2]), "most", 0.5),
    ]
    return Section(lines, claims)


def _looking_back(service: Service, turn: int) -> dict[str, float]:
    """The milliseconds of each operation."""
    before = service.call("WRITE", table="large", records=[{"id": _ROWS + turn}])["metadata"]["snapshot_id"]
    row = _ROWS // 2 + turn * 1000
    # Found by a scan: an UPDATE by key is measured in part 11.
    one = {"id": {"gte": row, "lte": row}}
    update, changed = service.timed("UPDATE", table="large", filter=one, updates={"name": "new"})
    assert changed["records_updated"] == 1, changed
    request_id = changed["metadata"]["request_id"]
    diff, found = service.timed("DIFF", table="large", from_snapshot=before)
    assert (found["records_inserted"], found["records_deleted"]) == (1, 1), found
    dry, _ = service.timed("UNDO", table="large", request_id=request_id, dry_run=True)
    undo, undone = service.timed("UNDO", table="large", request_id=request_id)
    assert (undone["records_removed"], undone["records_restored"]) == (1, 1), undone
    service.settle()
    return {"UPDATE": update, "DIFF": diff, "dry run of UNDO": dry, "UNDO": undo}

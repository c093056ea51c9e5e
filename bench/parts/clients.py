"""WRITE of one row by many clients at once, and a count of the rows that were kept."""

from dataclasses import dataclass, field, replace
from typing import Any

from bench import clients
from bench.measures import FIRN, Claim, Line, Section, ratio
from bench.peer import Peer
from bench.place import folder, say
from bench.service import Service
from bench.stats import percentile

TITLE = "WRITE of 1 row, many clients"
ALONE = "Firn, group commit off"
PYICEBERG = "PyIceberg append"
_CLIENTS = (1, 8, 64, 256)
_ROUNDS = 5
_SECONDS = {FIRN: 8.0, ALONE: 4.0}  # after them every client still waits for its last response
_APPENDS = {PYICEBERG: 40, "DuckLake, rows in its catalog": 200, "DuckLake, a file each": 200}
_SIDE_BY_SIDE = 8


@dataclass
class Runs:
    """Every run of one tool at one number of clients."""

    rows_per_s: list[float] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)
    acknowledged: int = 0
    commits: int = 0
    other_answers: int = 0
    lost: int = 0
    doubled: int = 0
    strange: int = 0
    # How much of one core the load generator took.
    generator: list[float] = field(default_factory=list)

    @property
    def commits_per_1000(self) -> float:
        return 1000 * self.commits / self.acknowledged

    @property
    def harm(self) -> int:
        return self.lost + self.doubled + self.strange

    def add(self, result: clients.LoadResult, kept: clients.RowCheck, commits: int) -> None:
        self.rows_per_s.append(result.rows_per_s)
        self.latencies_ms += result.latencies_ms
        self.acknowledged += len(result.acknowledged)
        self.commits += commits
        self.other_answers += result.others
        self.lost += kept.lost
        self.doubled += kept.doubled
        self.strange += kept.strange
        self.generator.append(result.cpu_s / result.elapsed_s)

    def add_appends(self, took: list[float], elapsed_s: float) -> None:
        self.rows_per_s.append(len(took) / elapsed_s)
        self.latencies_ms += took

    def note(self) -> str:
        result = [f"p99 {percentile(self.latencies_ms, 0.99):,.0f} ms"]
        if self.acknowledged:
            result += [f"{self.commits_per_1000:,.0f} commits per 1,000 WRITEs"]
            result += [f"{self.acknowledged:,} rows: {self.lost} lost, {self.doubled} doubled"]
        if self.strange or self.other_answers:
            result += [f"{self.strange} that were never acknowledged, {self.other_answers} responses other than 200"]
        return ", ".join(result)

    def more(self) -> dict[str, Any]:
        if not self.acknowledged:
            return {}
        names = ("acknowledged", "commits", "other_answers", "lost", "doubled", "strange")
        figures = {name: getattr(self, name) for name in names}
        figures["commits_per_1000"] = round(self.commits_per_1000, 2)
        return figures | {"generator_cores": round(max(self.generator), 2)}


def measure() -> Section:
    with (
        folder("clients") as home,
        Service(home / "firn") as together,
        Service(home / "alone", WRITES__GROUP_COMMIT="false") as alone,
        Peer("reader", home) as reader,
        Peer("iceberg", home) as iceberg,
        Peer("ducklake", home) as inlined,
        Peer("ducklake", home) as files,
    ):
        reader.ask("open")
        iceberg.ask("open", home=str(home / "iceberg"))
        inlined.ask("open", home=str(home / "inlined"), inline=True)
        files.ask("open", home=str(home / "files"), inline=False)
        services = {FIRN: together, ALONE: alone}
        peers = dict(zip(_APPENDS, (iceberg, inlined, files), strict=True))
        ours = {(who, number): Runs() for who in services for number in _CLIENTS}
        theirs = {who: Runs() for who in peers}

        say("part 2: warming up")
        for service in services.values():
            clients.write(service, service.create("warm"), 8, seconds=4)
            service.settle()
        for who, peer in peers.items():
            _append(Runs(), peer, "warm", _APPENDS[who])
        for turn in range(1, _ROUNDS + 1):
            for number in _CLIENTS:
                for who, service in services.items():
                    _write(ours[who, number], service, reader, f"c{number}r{turn}", number, _SECONDS[who])
                    say(f"part 2: round {turn} of {_ROUNDS}, {number} clients, {who}: {_last(ours[who, number])}")
            for who, peer in peers.items():
                _append(theirs[who], peer, f"r{turn}", _APPENDS[who])
                say(f"part 2: round {turn} of {_ROUNDS}, {who}: {_last(theirs[who])}")
        side_by_side = {who: _side_by_side(peer) for who, peer in peers.items()}
    return _section(ours, theirs, side_by_side)


def _write(runs: Runs, service: Service, reader: Peer, table: str, number: int, seconds: float) -> None:
    service.create(table)
    result = clients.write(service, table, number, seconds=seconds)
    service.settle()
    found = reader.ask("ids", metadata=service.metadata(table))
    runs.add(result, clients.compare(result, found), service.commits(table))


def _append(runs: Runs, peer: Peer, table: str, count: int) -> None:
    peer.ask("create", table=table)
    took = peer.ask("append", table=table, count=count)
    runs.add_appends(took, sum(took) / 1000)


def _side_by_side(peer: Peer) -> Runs:
    peer.ask("create", table="together")
    done = peer.ask("append_together", table="together", clients=_SIDE_BY_SIDE, seconds=4)
    runs = Runs()
    runs.add_appends(done["took"], done["elapsed_s"])
    return runs


def _last(runs: Runs) -> str:
    return f"{runs.rows_per_s[-1]:,.0f} rows/s"


def _section(ours: dict[tuple[str, int], Runs], theirs: dict[str, Runs], side_by_side: dict[str, Runs]) -> Section:
    serial = {who: Line("rows/s, 1 client", who, "rows/s", runs.rows_per_s) for who, runs in theirs.items()}
    lines: list[Line] = []
    rates: dict[tuple[str, int], Line] = {}
    for (who, number), runs in sorted(ours.items(), key=lambda item: item[0][1]):
        what = f"{number} client{'s' if number > 1 else ''}"
        rate = Line(f"rows/s, {what}", who, "rows/s", runs.rows_per_s, more=runs.more())
        times = ", ".join(f"{ratio(rate, line):.1f} × {peer}" for peer, line in serial.items())
        rates[who, number] = replace(rate, note=times)
        lines += [rates[who, number], Line(f"response time, {what}", who, "ms", runs.latencies_ms, runs.note())]
    for who, runs in theirs.items():
        note = f"one after another; the first {_APPENDS[who]} to a new table"
        lines.append(Line("rows/s, 1 client", who, "rows/s", runs.rows_per_s, note))
        lines.append(Line("response time, 1 client", who, "ms", runs.latencies_ms, runs.note()))
    for who, runs in side_by_side.items():
        what, note = f"{_SIDE_BY_SIDE} clients", "threads that retry after a conflict"
        lines.append(Line(f"rows/s, {what}", who, "rows/s", runs.rows_per_s, note))
        lines.append(Line(f"response time, {what}", who, "ms", runs.latencies_ms, runs.note()))
    reference = serial[PYICEBERG]
    claims = [
        Claim(f"rows/s with {n} clients, of PyIceberg's first 40", ratio(rates[FIRN, n], reference), "least", target)
        for n, target in ((64, 12), (256, 30))
    ]
    claims += [
        Claim(f"commits per 1,000 WRITEs, {n} clients", ours[FIRN, n].commits_per_1000, "most", 50) for n in (64, 256)
    ]
    claims.append(Claim("rows lost, doubled or strange", sum(runs.harm for runs in ours.values()), "most", 0))
    return Section(lines, claims)

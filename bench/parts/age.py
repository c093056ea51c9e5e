"""What a WRITE costs as a table gets older: one client, a thousand WRITEs of one row to one table."""

import hashlib
import json
import shutil
import time
from pathlib import Path
from urllib.parse import urlsplit

from bench import clients
from bench.measures import FIRN, Claim, Line, Section, ratio
from bench.peer import Peer
from bench.place import BENCH, WORK, folder, say
from bench.service import Service

TITLE = "Age"
# The last WRITE of each stretch, and the first one that counts.
_STRETCHES = ((10, 30), (480, 500), (980, 1000))
# Another PyIceberg ages differently.
_KEPT = WORK / f"aged-{hashlib.sha256((BENCH / 'requirements.lock').read_bytes()).hexdigest()[:12]}"
_STEP = 50
# A JVM gets faster over its first hundreds of jobs, which must not be taken for what age does.
_WARM = 300
_PATIENCE_S = 15 * 60


def measure() -> Section:
    with folder("age") as home, Peer("iceberg", home) as iceberg:
        marks = _aged(iceberg)
        with Service(home / "firn") as service:
            return _measure(service, iceberg, marks)


def _measure(service: Service, iceberg: Peer, marks: dict[int, str]) -> Section:
    say("part 3: warming up")
    clients.write_all(service, service.create("warm"), 1, requests=_WARM)
    lines: list[Line] = []
    written = 0
    service.create("age")
    for first, last in _STRETCHES:
        result = clients.write_all(service, "age", 1, requests=last - written)
        written = last
        ours = result.latencies_ms[-(last - first + 1) :]
        service.settle()
        theirs = _at_age(iceberg, marks, first, last)
        what = f"WRITEs {first}–{last} to one table"
        note = "" if theirs else f"its table did not get so old within {_PATIENCE_S // 60} min"
        lines += [Line(what, FIRN, "ms", ours), Line(what, "PyIceberg append", "ms", theirs, note)]
        say(f"part 3: {what}: {lines[-2].median:.0f} ms, PyIceberg {lines[-1].median or 0:.0f} ms")
    claims = [
        Claim("p50 of the thousandth WRITE, of the tenth's", ratio(lines[4], lines[0]), "most", 1.5),
        Claim("one client's p50 at age 1,000, of PyIceberg's there", ratio(lines[4], lines[5]), "most", 1 / 3),
    ]
    return Section(lines, claims)


def _at_age(iceberg: Peer, marks: dict[int, str], first: int, last: int) -> list[float]:
    """PyIceberg's appends of a stretch, to its table as it was just before."""
    if first - 1 not in marks:
        return []
    iceberg.ask("return_to", table="age", metadata=marks[first - 1])
    took: list[float] = iceberg.ask("append", table="age", count=last - first + 1)
    return took


def _aged(iceberg: Peer) -> dict[int, str]:
    """PyIceberg's table, made once and kept: its metadata as it was just before each stretch.

    A thousand appends take it many minutes. It keeps every metadata file, so its table can be any age again.
    """
    iceberg.ask("open", home=str(_KEPT))
    listed = _KEPT / "marks.json"
    if listed.exists():
        marks = {int(age): metadata for age, metadata in json.loads(listed.read_text()).items()}
        if all(Path(urlsplit(metadata).path).exists() for metadata in marks.values()):
            return marks
    return _make(iceberg, listed)


def _make(iceberg: Peer, listed: Path) -> dict[int, str]:
    shutil.rmtree(_KEPT, ignore_errors=True)
    iceberg.ask("open", home=str(_KEPT))
    iceberg.ask("create", table="age")
    started = time.monotonic()
    marks: dict[int, str] = {}
    age = 0
    for mark in (first - 1 for first, _ in _STRETCHES):
        while age < mark:
            if time.monotonic() - started > _PATIENCE_S:
                return marks
            if age % 100 == 0:
                say(f"part 3: {age} of {_STRETCHES[-1][0]} appends of PyIceberg's; the table is kept for the next time")
            count = min(_STEP - age % _STEP, mark - age)
            iceberg.ask("append", table="age", count=count)
            age += count
        marks[mark] = iceberg.ask("location", table="age")
    listed.write_text(json.dumps(marks))
    return marks

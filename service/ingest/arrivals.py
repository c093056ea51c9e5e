"""Which files of a watched folder are to be ingested now: a pure function of what is there and what was ingested."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from service.catalog.files.source_files import SourceFile
from service.model.ingest.patterns import date_in
from service.model.ingest.table_file import Watch

DEFAULT_SETTLE_S = 5
# A file's size and time of change, as they were when it was ingested.
Version = tuple[int, int]


@dataclass(frozen=True)
class Arrival:
    """A file that is complete, and new or changed."""

    day: date
    file: SourceFile


def arrivals(
    files: Sequence[SourceFile], watch: Watch, date_format: str, ingested: Mapping[str, Version], now_ms: int
) -> list[Arrival]:
    """The files to ingest, in order of their dates.

    `ingested` has the version of each path that was ingested or refused. A file that somebody may still be writing is
    left for later: one that changed within `settle_seconds`, or whose marker does not exist yet.
    """
    names = {file.name for file in files}
    found = []
    for file in files:
        day = date_in(watch.pattern, file.name, watch.date_format or date_format)
        if day is None or ingested.get(file.path) == (file.bytes, file.modified_ms):
            continue
        if _is_complete(file, names, watch, now_ms):
            found.append(Arrival(day, file))
    return sorted(found, key=lambda arrival: arrival.day)


def _is_complete(file: SourceFile, names: set[str], watch: Watch, now_ms: int) -> bool:
    if watch.done_marker is not None:
        folder, slash, name = file.name.rpartition("/")
        return f"{folder}{slash}{watch.done_marker.replace('{file}', name)}" in names
    settle_s = DEFAULT_SETTLE_S if watch.settle_seconds is None else watch.settle_seconds
    return file.modified_ms <= now_ms - settle_s * 1000

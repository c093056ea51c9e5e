"""Ingest the files of many dates: a commit takes several of them, and a date that fails does not stop the others."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Literal

from service.catalog.files.source_files import version_of
from service.catalog.tables import Table
from service.errors import FirnError, InvalidRequest
from service.ingest.day_files import DayFile, FileOutcome, IngestOptions, IngestProgress
from service.ingest.ingests import Ingests
from service.ingest.sources.fetch import Source
from service.ingest.sources.roots import Roots
from service.jobs.jobs import Kind
from service.model.call import Call
from service.model.ingest.patterns import check_paths_of_days, fill
from service.model.ingest.reserved import dataset_of, table_file_of

DayState = Literal["ingested", "unchanged", "missing", "failed"]
INGEST_RANGE = "INGEST_RANGE"
MOST_DAYS = 3660


@dataclass
class BackfillProgress(IngestProgress):
    """The progress of a backfill, in days and rows."""

    days_total: int = 0
    days_done: int = 0


@dataclass(frozen=True)
class DayOutcome:
    """What came of one date."""

    day: date
    state: DayState
    source: str
    file: FileOutcome | None = None
    error: FirnError | None = None


@dataclass(frozen=True)
class Backfill:
    """What to ingest: the file of each date has its path by a pattern."""

    pattern: str
    first: date
    last: date
    days_per_commit: int = 31

    def days(self) -> list[date]:
        """Every date, in order. InvalidRequest if there are none, or too many."""
        count = (self.last - self.first).days + 1
        if count < 1:
            raise InvalidRequest.at("to", f"{self.last} is before {self.first}; send `from` first")
        if count > MOST_DAYS:
            raise InvalidRequest.at("to", f"these are {count} days; send at most {MOST_DAYS} at once")
        return [self.first + timedelta(i) for i in range(count)]

    def check_pattern(self) -> None:
        """Raise InvalidRequest unless each date has a path of its own."""
        try:
            check_paths_of_days(self.pattern)
        except ValueError as e:
            raise InvalidRequest.at("source", str(e)) from e


@dataclass(frozen=True)
class Backfills:
    """Ingests the files of many dates."""

    ingests: Ingests
    roots: Roots

    def __post_init__(self) -> None:
        self.ingests.parts.jobs.register(INGEST_RANGE, Kind("an ingest"))

    def check(self, backfill: Backfill, table: Table) -> None:
        """Refuse what is impossible, before anything is read."""
        backfill.check_pattern()
        days = backfill.days()
        self.roots.of(table.name.tenant).resolve(fill(backfill.pattern, days[0], self._date_format(table)))

    def run(self, table: Table, backfill: Backfill, options: IngestOptions, call: Call) -> list[DayOutcome]:
        """Ingest every date of a range, or report what that would do; the outcome of each date, in order."""
        self.check(backfill, table)
        days, date_format = backfill.days(), self._date_format(table)
        progress = call.progress(BackfillProgress)
        progress.days_total = len(days)
        found: list[DayOutcome] = []
        files: list[DayFile] = []
        for day in days:
            one = self._find(table, fill(backfill.pattern, day, date_format), day)
            if isinstance(one, DayFile):
                files.append(one)
            else:
                found.append(one)
                progress.days_done += 1
        outcomes = self.in_parts(table, files, options, call, progress, backfill.days_per_commit)
        return sorted([*found, *outcomes], key=lambda one: one.day)

    def in_parts(
        self,
        table: Table,
        files: Sequence[DayFile],
        options: IngestOptions,
        call: Call,
        progress: BackfillProgress,
        days_per_commit: int,
    ) -> Iterator[DayOutcome]:
        """Ingest files, some in each commit. What is committed stays, also if a later commit fails."""
        options = replace(options, keep_going=True)
        left = list(files)
        while left:
            call.check()
            if not options.dry_run:
                table = self.ingests.parts.commits.current(table)
            # The first file of a table without a dataset gives it one, by which the others are read.
            has_dataset = (options.dataset or dataset_of(table.properties)) is not None
            size = days_per_commit if has_dataset or options.dry_run else 1
            part, left = left[:size], left[size:]
            with _part_of(call, progress) as its_call:
                done = self.ingests.run(table, part, options, its_call)
            progress.days_done += len(part)
            for file, outcome in zip(part, done.files, strict=True):
                yield DayOutcome(file.day, _state(outcome), file.source.name, outcome, outcome.error)

    def _find(self, table: Table, name: str, day: date) -> DayFile | DayOutcome:
        try:
            place = self.roots.of(table.name.tenant).resolve(name)
            version_of(place, table.iceberg.io.properties)
        except FileNotFoundError:
            return DayOutcome(day, "missing", name)
        except FirnError as e:
            return DayOutcome(day, "failed", name, error=e)
        except OSError:  # reading it says what is wrong
            pass
        return DayFile(day, Source(place, name))

    @staticmethod
    def _date_format(table: Table) -> str:
        config = table_file_of(table.properties)
        return config.partitioning.date_format if config else "%Y-%m-%d"


def counted(days: Sequence[DayOutcome]) -> Mapping[str, int]:
    """How many dates are in each state."""
    return {state: sum(one.state == state for one in days) for state in ("ingested", "unchanged", "missing", "failed")}


def _state(outcome: FileOutcome) -> DayState:
    if outcome.error is not None:
        return "failed"
    return "unchanged" if outcome.is_unchanged else "ingested"


@contextmanager
def _part_of(call: Call, progress: IngestProgress) -> Iterator[Call]:
    """A call for one of several commits, which is cancelled with the whole. A key does not cover it."""
    part = call.without_key(progress)
    part.job_id = call.job_id
    with call.cancelling(part.cancel):
        yield part

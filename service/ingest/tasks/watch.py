"""Watch folders: new and changed files are ingested in order of their dates, each once."""

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Literal

from service.catalog.files.source_files import SourceFile, source_files
from service.catalog.tables import Catalog, Table
from service.errors import Cancelled, FirnError, InvalidRequest, TableNotFound
from service.ingest.arrivals import Arrival, Version, arrivals
from service.ingest.day_files import DayFile, IngestOptions
from service.ingest.history import IngestHistory
from service.ingest.sources.fetch import Source
from service.ingest.sources.roots import Roots
from service.ingest.tasks.backfill import BackfillProgress, Backfills, DayOutcome
from service.ledger.ingestions import IngestionRecord, RegisteredTable
from service.ledger.jobs import JobRecords
from service.model.call import Call
from service.model.ingest.fingerprint import fingerprint_of
from service.model.ingest.patterns import date_in
from service.model.ingest.reserved import dataset_of, table_file_of
from service.model.ingest.table_file import TableFile, Watch
from service.model.names import TableName
from service.model.times import now_ms

log = logging.getLogger("firn.ingest")

WatchState = Literal["ingested", "unchanged", "waiting", "failed"]
_FILES_PER_COMMIT = 31

IngestFiles = Callable[[Table, Sequence[DayFile], Call], Iterable[DayOutcome]]
"""Ingests files of one date each; the outcome of each, in the same order."""


@dataclass(frozen=True)
class WatchedFile:
    """A file of a watched folder, and what came of it."""

    path: str
    day: date
    state: WatchState
    error: str | None = None


@dataclass
class Watcher:
    """Ingests the new files of watched folders: of one table on request, of all tables every `every_s` seconds."""

    catalog: Catalog
    roots: Roots
    history: IngestHistory
    jobs: JobRecords
    ingest: IngestFiles
    every_s: float = 10
    _stopping: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _claimed: set[str] = field(default_factory=set)
    _thread: threading.Thread | None = None
    _call: Call | None = None
    _has_searched: bool = False
    _problems: dict[TableName, str] = field(default_factory=dict)

    def start(self) -> None:
        """Watch all folders, on a thread, until `stop`."""
        self._thread = threading.Thread(target=self._run, name="firn-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Cancel the round in progress, unless it is committing, and make no other. Returns at once."""
        self._stopping.set()
        with self._lock:
            call = self._call
        if call is not None:
            call.cancel()

    def close(self, seconds: float) -> None:
        """Stop, and wait for the round in progress."""
        self.stop()
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopping.wait(self.every_s):
            try:
                self.look()
            except Exception as e:  # the next round tries again
                log.warning("watched folders could not be read: %s", e, exc_info=not isinstance(e, FirnError))

    def look(self) -> list[WatchedFile]:
        """One round over the folders of all tables; what fails for one does not stop the others."""
        found: list[WatchedFile] = []
        for registered in self._watched():
            name = registered.name
            if self._stopping.is_set():
                break
            call = Call(f"watch-{uuid.uuid4().hex}", requested_by="watch")
            with self._lock:
                self._call = call
            try:
                table = self.catalog.load(name)
                if table.uuid == registered.uuid and _watch_of(table) is not None:
                    found += self.round(table, call)
                self._problems.pop(name, None)
            except Cancelled:
                break
            except TableNotFound:
                continue
            except FirnError as e:
                if self._problems.get(name) != e.message:  # once, not every few seconds
                    log.warning("the watched folder of %s could not be ingested, trying again: %s", name, e.message)
                self._problems[name] = e.message
        return found

    def round(self, table: Table, call: Call) -> list[WatchedFile]:
        """Ingest the files of a table's folder that are complete, and new or changed; every file that has a date.

        While another instance does the same, files wait for its next round, or ours.
        """
        config, watch = table_file_of(table.properties), _watch_of(table)
        if config is None or watch is None:
            raise InvalidRequest(
                f"table {table.name.table!r} watches no folder; add ingestion.watch to its table file", field="table"
            )
        folder = self.roots.of(table.name.tenant).resolve(watch.place, "ingestion.watch.folder")
        with self._claim(table) as is_ours:
            self.history.complete(table)
            known, refused = self._known(table)
            files = source_files(folder, dict(table.iceberg.io.properties), nested="/" in watch.pattern)
            date_format = config.partitioning.date_format
            due = arrivals(files, watch, date_format, known, now_ms())
            states = _states(files, watch, date_format, known, refused)
            if is_ours and due:
                self._ingest(table, due, states, call)
            return sorted(states.values(), key=lambda one: (one.day, one.path))

    def _ingest(self, table: Table, due: list[Arrival], states: dict[str, WatchedFile], call: Call) -> None:
        roots = self.roots.of(table.name.tenant)
        files = [
            DayFile(one.day, Source(roots.resolve(one.file.path), one.file.path), _version(one.file)) for one in due
        ]
        for arrival, outcome in zip(due, self.ingest(table, files, call), strict=True):
            path = arrival.file.path
            if outcome.state == "unchanged":  # it was ingested by another path, or written again as it was
                self.history.record(table, [self._unchanged(table, arrival, outcome)])
            state: WatchState = "failed" if outcome.state == "missing" else outcome.state
            error = None if outcome.error is None else outcome.error.message
            states[path] = WatchedFile(path, arrival.day, state, error)

    def _known(self, table: Table) -> tuple[dict[str, Version], dict[str, str]]:
        """The version of each path that was ingested or refused, and why the newest version of a path was refused.

        What other rules refused is not known: it is tried again.
        """
        rules = fingerprint_of(dataset_of(table.properties))
        known: dict[str, Version] = {}
        refused: dict[str, str] = {}
        for one in self.history.records.of_table(table.uuid):
            if one.mode == "replay" or (one.state == "refused" and one.dataset_hash != rules):
                continue
            known[one.file] = (one.file_bytes, one.file_modified_ms)
            refused.pop(one.file, None)
            if one.state == "refused":
                refused[one.file] = one.error or ""
        return known, refused

    @staticmethod
    def _unchanged(table: Table, arrival: Arrival, outcome: DayOutcome) -> IngestionRecord:
        file, now = arrival.file, now_ms()
        content_hash = outcome.file.content_hash if outcome.file else ""
        rules = fingerprint_of(dataset_of(table.properties))
        return IngestionRecord(
            uuid.uuid4().hex,
            str(arrival.day),
            file.path,
            content_hash,
            rules,
            "restate",
            file_bytes=file.bytes,
            file_modified_ms=file.modified_ms,
            started_ms=now,
            ended_ms=now,
            requested_by="watch",
            state="unchanged",
        )

    @contextmanager
    def _claim(self, table: Table) -> Iterator[bool]:
        """Whether nobody ingests this folder now; if so, nobody else does during the block, in any instance."""
        with self._lock:
            is_free = table.uuid not in self._claimed
            self._claimed.add(table.uuid)
        if not is_free:
            yield False
            return
        try:
            with self.jobs.first(f"watch {table.uuid}") as first:
                yield first
        finally:
            with self._lock:
                self._claimed.discard(table.uuid)

    def _watched(self) -> list[RegisteredTable]:
        """The tables that watch a folder, as the ledger knows them.

        If it knows no ingestion table at all, it may be new or lost: then every table is looked at, once per process.
        """
        if not self._has_searched and not self.history.records.knows():
            for tenant, namespace in self.catalog.list_namespaces():
                for name in self.catalog.list_tables(tenant, namespace):
                    if self._stopping.is_set():
                        return []
                    self._register(TableName(tenant, namespace, name))
        self._has_searched = True
        listed = self.history.records.tables()
        return [one for one in listed if TableFile.model_validate_json(one.table_file).ingestion.watch is not None]

    def _register(self, name: TableName) -> None:
        try:
            table = self.catalog.load(name)
            if table_file_of(table.properties) is not None:
                self.history.complete(table)
        except FirnError as e:
            log.info("%s could not be read: %s", name, e.message)


def watcher(
    catalog: Catalog, history: IngestHistory, jobs: JobRecords, backfills: Backfills, every_s: float
) -> Watcher:
    """A watcher that ingests as a backfill does."""

    def ingest(table: Table, files: Sequence[DayFile], call: Call) -> Iterable[DayOutcome]:
        progress = call.progress(BackfillProgress)
        return backfills.in_parts(table, files, IngestOptions(), call, progress, _FILES_PER_COMMIT)

    return Watcher(catalog, backfills.roots, history, jobs, ingest, every_s)


def _states(
    files: Sequence[SourceFile], watch: Watch, date_format: str, known: dict[str, Version], refused: dict[str, str]
) -> dict[str, WatchedFile]:
    """Every file with a date, by path: known files by what came of them, others as waiting."""
    found = {}
    for file in files:
        day = date_in(watch.pattern, file.name, watch.date_format or date_format)
        if day is None:
            continue
        one = WatchedFile(file.path, day, "waiting")
        if known.get(file.path) == _version(file):
            one = replace(one, state="unchanged")
            if file.path in refused:
                one = replace(one, state="failed", error=refused[file.path])
        found[file.path] = one
    return found


def _version(file: SourceFile) -> Version:
    return file.bytes, file.modified_ms


def _watch_of(table: Table) -> Watch | None:
    config = table_file_of(table.properties)
    return None if config is None else config.ingestion.watch

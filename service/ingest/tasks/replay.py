"""Run quarantined rows through the rules again, without their files. The good ones become rows of their dates.

First the good rows are marked in the quarantine with the id of their replay, and the others get their new rule. Then
the table gets the good rows, in a commit that names the replay. Last the marked rows are removed. After a crash in
between, the table says of each marked row whether it has it.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from service.catalog.files.rows import dated_rows
from service.catalog.tables import Table
from service.engine.jobs.ingest.files import find_rejects
from service.engine.jobs.ingest.restate import DatedRows
from service.errors import CommitConflict, FirnError, InvalidRequest, OutcomeUnknown
from service.ingest.day_files import DayFile, IngestOptions, IngestProgress
from service.ingest.drift import Drift
from service.ingest.prepare import PreparedFile
from service.ingest.publish import IngestParts, Publication, StagedIngest
from service.ingest.quarantine import DAY_COLUMN, HASH_COLUMN, REPLAY_COLUMN, RUN_COLUMN, quarantined_values, target_of
from service.ingest.run import IngestRun
from service.ingest.sources.fetch import FetchedFile, Source, working_folder
from service.ingest.sources.readable import SPLIT, lines_before
from service.jobs.job import Job
from service.jobs.jobs import Kind
from service.model.call import Call
from service.model.ingest.dataset import Dataset, DriftRules
from service.model.ingest.reading import LINE_COLUMN, PROBLEM_COLUMN, RAW_COLUMN, ReadableFile
from service.model.ingest.reserved import dataset_of, table_file_of
from service.model.times import now_ms

log = logging.getLogger("firn.ingest")

REPLAY = "REPLAY"
_KEY = (DAY_COLUMN, "file", HASH_COLUMN, "format", "fields")


@dataclass(frozen=True)
class QuarantinedRows:
    """Which quarantined rows to replay: all, unless it says more."""

    first: date | None = None
    last: date | None = None
    run_id: str | None = None


@dataclass(frozen=True)
class ReplayOutcome:
    """What a replay did, or would do."""

    records_read: int = 0
    records_ingested: int = 0
    rejects: dict[str, int] = field(default_factory=dict)
    snapshot_id: int | None = None


@dataclass
class _Selection:
    """The selected rows, as files that can be read like those that they are from."""

    quarantine: Table
    snapshot_id: int | None
    files: dict[tuple[Any, ...], Path] = field(default_factory=dict)
    dates: set[date] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)
    """The replays that did not get as far as the table."""


@dataclass(frozen=True)
class Replays:
    """Replays quarantined rows."""

    parts: IngestParts

    def __post_init__(self) -> None:
        self.parts.jobs.register(REPLAY, Kind("a replay"))

    def run(
        self, table: Table, wanted: QuarantinedRows, dataset: Dataset | None, call: Call, *, dry_run: bool
    ) -> ReplayOutcome:
        """Replay rows by a dataset, or the table's; rows that a replay ingested before are only removed."""
        config, dataset = table_file_of(table.properties), dataset or dataset_of(table.properties)
        if config is None:
            raise InvalidRequest(f"table {table.name.table!r} was not made from a table file", field="table")
        quarantine = self.parts.quarantines.find(table)
        if quarantine is None or quarantine.current_snapshot_id is None or dataset is None:
            return ReplayOutcome(snapshot_id=table.current_snapshot_id)
        self.parts.history.complete(table)
        # It says which rows are wrong, not which file.
        drift = DriftRules(new="ignore", missing="ignore", retyped="ignore")
        rules = dataset.model_copy(update={"max_rejects": None, "on_drift": drift})
        if dataset.on_error == "reject_file":
            rules = rules.model_copy(update={"on_error": "quarantine"})
        self.parts.preparation.adopt(table, rules, call, stores=False)
        progress = call.progress(IngestProgress)
        with working_folder(self.parts.spool) as folder:
            selection = self._select(table, quarantine, wanted, folder)
            options = IngestOptions("replay", rules, dry_run=dry_run)
            run = IngestRun(self.parts, table, config, options, call, folder, progress)
            prepared = [replace(_prepared(key, path, rules), given=dataset) for key, path in selection.files.items()]
            if dry_run:
                return _preview(run, prepared)
            if not selection.dates:
                return ReplayOutcome(snapshot_id=table.current_snapshot_id)
            with self.parts.jobs.begin(REPLAY, table, progress, call) as job:
                run.job = job
                only = None if wanted.run_id is None else (RUN_COLUMN, (wanted.run_id,))
                rows = DatedRows(DAY_COLUMN, tuple(sorted(selection.dates)), only=only)
                return self._replay(run, prepared, selection, rows, job)

    def _select(self, table: Table, quarantine: Table, wanted: QuarantinedRows, folder: Path) -> _Selection:
        """Write the selected rows into a file for each file that they are from."""
        done = self._done(table)
        found = _Selection(quarantine, quarantine.current_snapshot_id)
        writers: dict[tuple[Any, ...], pq.ParquetWriter] = {}
        try:
            for batch in dated_rows(quarantine, DAY_COLUMN, wanted.first, wanted.last, run_id=wanted.run_id):
                for key, rows in _by_file(batch, done, found):
                    if key not in writers:
                        found.files[key] = folder / f"{len(writers)}.parquet"
                        writers[key] = pq.ParquetWriter(found.files[key], SPLIT, compression="none")
                    writers[key].write_table(pa.Table.from_pylist(rows, SPLIT))
        finally:
            for writer in writers.values():
                writer.close()
        return found

    def _done(self, table: Table) -> set[str]:
        """The runs that the table has."""
        return {one.run_id for one in self.parts.history.records.done(table.uuid)}

    def _replay(
        self, run: IngestRun, prepared: list[PreparedFile], selection: _Selection, rows: DatedRows, job: Job
    ) -> ReplayOutcome:
        staged: list[StagedIngest] = []
        publication = ReplayPublication(
            parts=self.parts,
            table=run.table,
            options=run.options,
            call=run.call,
            job=job,
            started_ms=now_ms(),
            operation=REPLAY,
            selection=selection,
            rows=rows,
            staged=staged,
        )
        try:
            for one in prepared:
                staged.append(StagedIngest(run.empty(one.file), one))
                cleaning = run.write(staged[-1])
                good, run_id = staged[-1].good, staged[-1].outcome.run_id
                if good is not None and good.records:
                    values = quarantined_values(one, run_id, datetime.now(UTC), run_id)
                    target = target_of(selection.quarantine)
                    reading = (one.readable, cleaning, lines_before, target, values)
                    marked = self.parts.engine.run_for(run.call, find_rejects, *reading, good=True)
                    staged[-1].marked = marked.staged
            with_rows = [one for one in staged if one.good is not None and one.good.records]
            if with_rows:
                snapshot_id = publication.commit(with_rows)[0].snapshot_id
            else:
                snapshot_id = run.table.current_snapshot_id
                with self.parts.commits.locked(run.table, run.call):
                    publication.replace_quarantined([])
        except BaseException as e:
            if not publication.is_marked:
                publication.discard(staged)
            elif not isinstance(e, OutcomeUnknown):
                publication.discard([StagedIngest(one.outcome, one.prepared, one.good) for one in staged])
            raise
        self._remove_marked(publication, [one.outcome.run_id for one in with_rows])
        return _outcome(staged, snapshot_id)

    def _remove_marked(self, publication: "ReplayPublication", runs: list[str]) -> None:
        """Remove the rows that the table has now; if it fails, the next replay does it."""
        quarantine = self.parts.quarantines.find(publication.table)
        if not runs or quarantine is None:
            return
        rows = replace(publication.rows, only=(REPLAY_COLUMN, tuple(runs)))
        try:
            publication.replace_rows(quarantine, rows, [])
        except FirnError as e:
            log.warning("replayed rows of %s are not removed from the quarantine yet: %s", publication.table.name, e)


@dataclass(kw_only=True)
class ReplayPublication(Publication):
    """Commits the rows of a replay."""

    selection: _Selection
    rows: DatedRows
    staged: list[StagedIngest]
    is_marked: bool = False

    def replace_quarantined(self, staged: list[StagedIngest]) -> None:
        """Replace the selected rows by the marked good ones and the new rejects. The table is locked."""
        quarantine = self.parts.quarantines.find(self.table)
        current = self.parts.commits.current(self.table)
        self.parts.history.complete(current)
        done = {one.run_id for one in self.parts.history.records.done(current.uuid)}
        seen = self.selection
        if quarantine is None or quarantine.current_snapshot_id != seen.snapshot_id or seen.marks & done:
            raise CommitConflict("the quarantined rows changed in the meantime; send the request again")
        new = [files for one in self.staged for files in (one.rejects.staged, one.marked) if files is not None]
        self.is_marked = True  # from here on the quarantine may have the files
        self.replace_rows(quarantine, self.rows, new)


def _by_file(
    batch: pa.RecordBatch, done: set[str], found: _Selection
) -> Iterator[tuple[tuple[Any, ...], list[dict[str, Any]]]]:
    """The rows of a batch to replay, by the file that they are from."""
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in batch.to_pylist():
        found.dates.add(row[DAY_COLUMN])
        mark = row[REPLAY_COLUMN]
        if mark in done:
            continue
        if mark is not None:
            found.marks.add(mark)
        # A row that was no UTF-8 has this sign where the file had something else.
        is_wrong = row["column_name"] is None and "\ufffd" in (row["raw"] or "")
        text = {LINE_COLUMN: row["line"], RAW_COLUMN: row["raw"], PROBLEM_COLUMN: is_wrong}
        rows.setdefault(tuple(row[name] for name in _KEY), []).append(text)
    yield from rows.items()


def _prepared(key: tuple[Any, ...], path: Path, dataset: Dataset) -> PreparedFile:
    """The rows of a file, to be read as the file was."""
    day, name, content_hash, format, fields = key
    source = Source(name, name)
    fetched = FetchedFile(source, path, 0, content_hash, 0, format)
    how = dataset.csv
    readable = ReadableFile(
        str(path),
        path.stat().st_size,
        format,
        tuple(json.loads(fields)),
        is_split=True,
        delimiter=how.delimiter,
        quote=how.quote,
        null_values=how.null_values if format == "csv" else (),
    )
    return PreparedFile(DayFile(day, source), fetched, readable, dataset, Drift())


def _preview(run: IngestRun, prepared: list[PreparedFile]) -> ReplayOutcome:
    staged = []
    for one in prepared:
        outcome = run.counted(one)
        staged.append(StagedIngest(outcome, one))
    return _outcome(staged, run.table.current_snapshot_id)


def _outcome(staged: list[StagedIngest], snapshot_id: int | None) -> ReplayOutcome:
    rejects: dict[str, int] = {}
    for one in staged:
        for rule, count in one.outcome.rejects.items():
            rejects[rule] = rejects.get(rule, 0) + count
    read = sum(one.outcome.records_read for one in staged)
    return ReplayOutcome(read, sum(one.outcome.records_ingested for one in staged), rejects, snapshot_id)

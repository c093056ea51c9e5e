"""Ingest files: each becomes the rows of its date, and all of them are committed at once."""

import hashlib
import json
import logging
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from service.catalog.tables import Catalog, Table
from service.commits.commit import CommitResult, Commits, retried_if_changed
from service.commits.tokens import PlanToken
from service.engine.iceberg.staging import StagedFiles
from service.engine.jobs import append
from service.engine.jobs.ingest import Rejects, count_good_rows, find_rejects, stage_good_rows
from service.engine.jobs.restate import DatedRows, Replaced, RestateTarget, replaceable, restate
from service.engine.session.engine import Engine
from service.errors import FileRejected, FirnError, InternalError, InvalidRequest, OutcomeUnknown
from service.ingest.day_files import DayFile, FileOutcome, IngestOptions, IngestOutcome, IngestProgress
from service.ingest.drift import cleaning_of
from service.ingest.history import INGEST, IngestHistory
from service.ingest.prepare import Preparation, PreparedFile, fingerprint_of
from service.ingest.quarantine import DAY_COLUMN, Quarantines, fixed_values, target_of
from service.ingest.sources.fetch import FetchedFile, check_unchanged, working_folder
from service.ingest.sources.readable import count_records, lines_before
from service.jobs.job import Job
from service.jobs.jobs import Jobs, Kind
from service.ledger.ingestions import Ingestion, as_summary
from service.model.call import Call
from service.model.ingest.periods import period_of
from service.model.ingest.reading import Cleaning, Rule
from service.model.ingest.reserved import (
    DATE_FIELD,
    FILE_FIELD,
    INGEST_PROPERTY,
    PERIOD_FIELD,
    dataset_of,
    table_file_of,
)
from service.model.ingest.table_file import TableFile
from service.model.times import now_ms

log = logging.getLogger("firn.ingest")

_AT_ONCE = 2
_NOTHING = Rejects(())


@dataclass
class _Staged:
    """A file whose rows are written, but not committed."""

    outcome: FileOutcome
    prepared: PreparedFile
    good: StagedFiles | None = None
    rejects: Rejects = _NOTHING


@dataclass(frozen=True)
class Ingests:
    """Ingests files into tables that were made from a table file."""

    engine: Engine
    catalog: Catalog
    commits: Commits
    jobs: Jobs
    history: IngestHistory
    quarantines: Quarantines
    spool: Path

    def __post_init__(self) -> None:
        self.jobs.register(INGEST, Kind("an ingest"))

    def run(self, table: Table, files: Sequence[DayFile], options: IngestOptions, call: Call) -> IngestOutcome:
        """Ingest files in one commit, or report what that would do."""
        config = table_file_of(table.properties)
        if config is None:
            raise InvalidRequest(
                f"table {table.name.table!r} was not made from a table file; make one by CREATE_TABLE with config, or "
                "send WRITE or a bulk load",
                field="table",
            )
        if options.token:
            options.token.check_table(table.uuid)
        if not options.dry_run and (earlier := self.commits.earlier_result(table, call)):
            return _repeated(earlier, config)
        self.history.complete(table)
        progress = call.progress(IngestProgress)
        progress.files_total = len(files)
        with working_folder(self.spool) as folder:
            if options.dry_run:
                return _Run(self, table, config, options, call, folder, progress).preview(files)
            with self.jobs.begin(INGEST, table, progress, call) as job:
                return _Run(self, table, config, options, call, folder, progress, job).ingest(files)


@dataclass
class _Run:
    """One ingest."""

    parts: Ingests
    table: Table
    config: TableFile
    options: IngestOptions
    call: Call
    folder: Path
    progress: IngestProgress
    job: Job | None = None
    started_ms: int = field(default_factory=now_ms)
    outcomes: dict[int, FileOutcome] = field(default_factory=dict)
    """Of files that are done with, by their place in the list."""

    def ingest(self, files: Sequence[DayFile]) -> IngestOutcome:
        staged: dict[int, _Staged] = {}
        try:
            self._stage(files, staged)
            committed, replaced = self._commit([staged[i] for i in sorted(staged)])
        except BaseException as e:
            if not isinstance(e, OutcomeUnknown):  # then a snapshot may have the files
                self._discard(staged.values())
            raise
        self.progress.phase = "done"
        found = {**self.outcomes, **{i: one.outcome for i, one in staged.items()}}
        return IngestOutcome(committed, tuple(found[i] for i in sorted(found)), replaced)

    def preview(self, files: Sequence[DayFile]) -> IngestOutcome:
        prepared = self._prepare(files)
        for i, one in prepared.items():
            cleaning = self._cleaning(one, uuid.uuid4().hex)
            read = count_records(one.readable, one.fetched)
            good = self.parts.engine.run_for(self.call, count_good_rows, one.readable, cleaning)
            rejects = self._rejects(one, cleaning, None, ()) if good < read else _NOTHING
            with self._refusing(i, one.file):
                self.outcomes[i] = self._outcome(one, "", read, good, rejects, cleaning)
                self._check_rejects(one, self.outcomes[i], cleaning)
        good_days = [self.outcomes[i].day for i in prepared if self.outcomes[i].error is None]
        replaced = self._replaceable(self.table, good_days)
        outcomes = tuple(self.outcomes[i] for i in sorted(self.outcomes))
        token = PlanToken(self.table.uuid, self.options.request, _digest(outcomes, replaced))
        return IngestOutcome(CommitResult(self.table, None), outcomes, replaced, token.text())

    # Steps

    def _stage(self, files: Sequence[DayFile], staged: dict[int, _Staged]) -> None:
        prepared = self._prepare(files)
        self.progress.phase = "reading"
        self._adopt(prepared)

        def stage(i: int, one: PreparedFile) -> None:
            with self._refusing(i, one.file, one):
                staged[i] = _Staged(self._empty(one.file), one)
                self._write(staged[i])

        if len(prepared) == 1:
            for i, one in prepared.items():
                stage(i, one)
        else:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="firn-ingest") as pool:
                for done in [pool.submit(stage, i, one) for i, one in prepared.items()]:
                    done.result()
        for i in self.outcomes:
            if refused := staged.pop(i, None):
                self._discard([refused])

    def _prepare(self, files: Sequence[DayFile]) -> dict[int, PreparedFile]:
        prepared: dict[int, PreparedFile] = {}
        parts = self.parts
        properties = dict(self.table.iceberg.io.properties)
        preparation = Preparation(parts.engine, parts.catalog, parts.commits, parts.history, properties)
        before = 0

        def count(size: int) -> None:
            self.call.check()
            self.progress.bytes_read = before + size

        for i, file in enumerate(files):
            with self._refusing(i, file):
                found = preparation.prepare(self.table, file, self.options, self.folder, self.call, count)
                before += found.bytes if isinstance(found, FetchedFile) else found.fetched.bytes
                self.progress.files_read += 1
                if isinstance(found, PreparedFile):
                    prepared[i] = found
                else:
                    self.outcomes[i] = replace(
                        self._empty(file), content_hash=found.content_hash, bytes=found.bytes, is_unchanged=True
                    )
        return prepared

    def _adopt(self, prepared: dict[int, PreparedFile]) -> None:
        """Give the table the columns of the files, before rows with them are written."""
        preparation = Preparation(self.parts.engine, self.parts.catalog, self.parts.commits, self.parts.history, {})
        for i, one in prepared.items():
            with self._refusing(i, one.file):
                own = dataset_of(self.table.properties)
                stores = one.evolves or own is None
                self.table = preparation.adopt(self.table, one.dataset, self.call, stores=stores)
        for i in self.outcomes:
            prepared.pop(i, None)

    def _write(self, staged: _Staged) -> None:
        """Write the rows of a file into data files, and its rejects into those of the quarantine."""
        one = staged.prepared
        run_id = uuid.uuid4().hex
        cleaning = self._cleaning(one, run_id)
        engine = self.parts.engine
        read = count_records(one.readable, one.fetched)
        staged.good = engine.run_for(self.call, stage_good_rows, target_of(self.table), one.readable, cleaning)
        check_unchanged(one.fetched)
        good = staged.good.records
        if good < read:
            staged.rejects = self._rejected(one, cleaning, run_id, read - good, read)
        staged.outcome = self._outcome(one, run_id, read, good, staged.rejects, cleaning)
        self._check_rejects(one, staged.outcome, cleaning)
        self.progress.records_read += read
        self.progress.records_ingested += good
        self.progress.records_rejected += read - good

    def _rejected(self, one: PreparedFile, cleaning: Cleaning, run_id: str, rejected: int, read: int) -> Rejects:
        """The rejects of a file, as staged rows of the quarantine, unless the file is going to be refused."""
        dataset = one.dataset
        limit = dataset.max_rejects
        if dataset.on_error == "reject_file" or (limit is not None and limit.exceeded(rejected, read)):
            found = self._rejects(one, cleaning, None, ())
            if limit is not None and limit.exceeded(rejected, read):
                return found
            if any(rule.is_conversion for rule in _broken(found, cleaning.rules(_width(one)))):
                return found
        now = datetime.now(UTC)
        values = fixed_values(one.file.day, one.fetched.source.name, one.fetched.content_hash, run_id, now)
        table = self.parts.quarantines.ensure(self.table.name)
        found = self._rejects(one, cleaning, table, values)
        if found.count != rejected:
            raise InternalError(f"{rejected} rows were rejected, but {found.count} quarantined; nothing was committed")
        return found

    def _rejects(self, one: PreparedFile, cleaning: Cleaning, quarantine: Table | None, values: Any) -> Rejects:
        target = None if quarantine is None else target_of(quarantine)
        return self.parts.engine.run_for(self.call, find_rejects, one.readable, cleaning, lines_before, target, values)

    def _check_rejects(self, one: PreparedFile, outcome: FileOutcome, cleaning: Cleaning) -> None:
        """Raise FileRejected if the rejects refuse the file as a whole."""
        dataset, rejected = one.dataset, outcome.records_rejected
        name, why = one.fetched.source.name, ""
        by_text = {rule.text: rule for rule in cleaning.rules(_width(one))}
        limit = dataset.max_rejects
        if limit is not None and limit.exceeded(rejected, outcome.records_read):
            why = f"{rejected} of {outcome.records_read} rows break a rule, but max_rejects is {limit}"
        elif dataset.on_error == "reject_file":
            wrong = sum(count for text, count in outcome.rejects.items() if by_text[text].is_conversion)
            if wrong:
                why = f"{wrong} of {outcome.records_read} rows cannot be converted, and on_error is reject_file"
        if why:
            raise FileRejected(
                f"{name!r} is refused: {why}; nothing of it was ingested",
                details={
                    "records_read": outcome.records_read,
                    "records_rejected": rejected,
                    "rejects": dict(outcome.rejects),
                },
            )

    def _commit(self, staged: list[_Staged]) -> tuple[CommitResult, Replaced]:
        if not staged:
            return CommitResult(self.parts.commits.current(self.table), None), Replaced()
        self.progress.phase = "committing"
        done = [self._ingestion(one) for one in staged]
        quarantined = False
        replaced = Replaced()

        @retried_if_changed()
        def change(current: Table, batch: str) -> None:
            nonlocal quarantined, replaced
            self._check_token(current, staged)
            if not quarantined:
                self._replace_quarantined(staged)
                quarantined = True
            gate = self._gate(batch, self.call)
            summary = {INGEST_PROPERTY: json.dumps(as_summary(done), separators=(",", ":"))}
            target = self._target(current)
            rows = self._dated(one.outcome.day for one in staged)
            good = [one.good for one in staged if one.good is not None]
            if self.job is not None and self.job.record.listed:
                self.parts.jobs.tries(self.job, batch)
            with self.parts.engine.lend(self.call) as session:
                replaced = restate(session, target, rows, good, batch, gate, summary)

        records = sum(one.outcome.records_ingested for one in staged)
        committed = self.parts.commits.commit(self.table, INGEST, self.call, change, records=records)
        if committed.snapshot is not None:
            made = committed.snapshot.snapshot_id
            self.parts.history.record(self.table, [replace(one, snapshot_id=made) for one in done])
        return committed, replaced

    def _replace_quarantined(self, staged: list[_Staged]) -> None:
        """Replace the quarantined rows of the dates; of an append, those of the same content."""
        new = [one.rejects.staged for one in staged if one.rejects.staged is not None]
        table = self.parts.quarantines.find(self.table.name)
        if table is None or (not new and table.current_snapshot_id is None):
            return
        hashes = None
        if self.options.mode != "restate":
            hashes = tuple({one.outcome.content_hash for one in staged})
        rows = DatedRows(DAY_COLUMN, tuple({one.outcome.day for one in staged}), hashes)
        call = self.call.without_key()

        @retried_if_changed()
        def change(current: Table, batch: str) -> None:
            target = self._target(current, table)
            with self.parts.engine.lend(call) as session:
                if new or replaceable(session, target, rows).records:
                    restate(session, target, rows, new, batch, self._gate(batch, call), {})

        self.parts.commits.commit(table, INGEST, call, change)

    # Parts of steps

    def _gate(self, batch: str, call: Call) -> Any:
        allowed = self.parts.commits.commit_gate(batch, call)

        def gate() -> None:
            if self.job is not None and not call._sealed:
                self.job.commit_gate()
            allowed()

        return gate

    def _target(self, current: Table, written: Table | None = None) -> RestateTarget:
        of = written or self.table
        return RestateTarget(current.spark_name, of.uuid, of.schema_id, current.current_snapshot_id)

    def _dated(self, days: Any) -> DatedRows | None:
        if self.options.mode != "restate":
            return None
        return DatedRows(DATE_FIELD.name, tuple(sorted(set(days))))

    def _replaceable(self, table: Table, days: list[date]) -> Replaced:
        rows = self._dated(days)
        if rows is None or not days:
            return Replaced()
        return self.parts.engine.run_for(self.call, replaceable, self._target(table), rows)

    def _check_token(self, current: Table, staged: list[_Staged]) -> None:
        if self.options.token:
            outcomes = tuple(one.outcome for one in staged)
            replaced = self._replaceable(current, [one.day for one in outcomes])
            self.options.token.check(_digest(outcomes, replaced))

    def _cleaning(self, one: PreparedFile, run_id: str) -> Cleaning:
        day = one.file.day
        values: dict[str, Any] = {
            PERIOD_FIELD.name: period_of(day, self.config.granularity),
            DATE_FIELD.name: day,
            FILE_FIELD.name: one.fetched.source.name,
        }
        cleaning = cleaning_of(one.dataset, one.readable.fields)
        made = {column.name for column in cleaning.columns}
        others = [f for f in self.table.stored_schema.fields if f.name not in made]
        constants = tuple((f, values.get(f.name)) for f in others)
        return replace(cleaning, constants=constants)

    def _empty(self, file: DayFile) -> FileOutcome:
        return FileOutcome(file.day, period_of(file.day, self.config.granularity), file.source.name)

    def _outcome(
        self, one: PreparedFile, run_id: str, read: int, good: int, rejects: Rejects, cleaning: Cleaning
    ) -> FileOutcome:
        texts = [rule.text for rule in cleaning.rules(_width(one))]
        by_rule: dict[str, int] = {}
        for text, count in zip(texts, rejects.by_rule, strict=False):
            if count:
                by_rule[text] = by_rule.get(text, 0) + count
        return replace(
            self._empty(one.file),
            content_hash=one.fetched.content_hash,
            bytes=one.fetched.bytes,
            run_id=run_id,
            records_read=read,
            records_ingested=good,
            rejects=by_rule,
            drift=one.drift,
        )

    def _ingestion(self, one: _Staged) -> Ingestion:
        outcome, fetched = one.outcome, one.prepared.fetched
        return Ingestion(
            outcome.run_id,
            str(outcome.day),
            outcome.file,
            outcome.content_hash,
            one.prepared.dataset_hash,
            self.options.mode,
            outcome.records_read,
            outcome.records_ingested,
            outcome.records_rejected,
            fetched.bytes,
            fetched.modified_ms,
            self.started_ms,
            now_ms(),
            self.call.requested_by or f"request {self.call.id}",
        )

    @contextmanager
    def _refusing(self, i: int, file: DayFile, one: PreparedFile | None = None) -> Iterator[None]:
        """Record that a file is refused, if the block raises that. Without `keep_going` the ingest ends with it."""
        try:
            yield
        except InvalidRequest as e:
            if not self.options.dry_run:
                self._record_refusal(file, e, one)
            if not self.options.keep_going:
                raise
            self.outcomes[i] = replace(self._empty(file), error=e)

    def _record_refusal(self, file: DayFile, error: FirnError, one: PreparedFile | None) -> None:
        details = error.details or {}
        fetched = None if one is None else one.fetched
        refused = Ingestion(
            uuid.uuid4().hex,
            str(file.day),
            file.source.name,
            fetched.content_hash if fetched else "",
            fingerprint_of(self.options.dataset or dataset_of(self.table.properties)),
            self.options.mode,
            int(details.get("records_read", 0)),
            0,
            int(details.get("records_rejected", 0)),
            fetched.bytes if fetched else 0,
            fetched.modified_ms if fetched else 0,
            self.started_ms,
            now_ms(),
            self.call.requested_by or f"request {self.call.id}",
            state="refused",
            error=error.message,
        )
        self.parts.history.record(self.table, [refused])

    def _discard(self, staged: Any) -> None:
        """Delete files that no snapshot can have."""
        for one in staged:
            for files in (one.good, one.rejects.staged):
                if files is not None:
                    try:
                        self.parts.engine.run(append.discard, files)
                    except Exception as e:
                        log.warning("files of an uncommitted ingest of %s stay: %s", self.table.name, e)


def _repeated(earlier: CommitResult, config: TableFile) -> IngestOutcome:
    """What an earlier attempt with the same key did, from the summary of its snapshot."""
    assert earlier.snapshot is not None
    files = []
    for one in json.loads(earlier.snapshot.summary.get(INGEST_PROPERTY, "[]")):
        day = date.fromisoformat(one["ingest_date"])
        files.append(
            FileOutcome(
                day,
                period_of(day, config.granularity),
                one["file"],
                one["content_hash"],
                one["run_id"],
                one["file_bytes"],
                one["records_read"],
                one["records_ingested"],
                {"": one["records_rejected"]} if one["records_rejected"] else {},
            )
        )
    return IngestOutcome(earlier, tuple(files))


def _broken(found: Rejects, rules: Sequence[Rule]) -> list[Rule]:
    return [rule for rule, count in zip(rules, found.by_rule, strict=True) if count]


def _width(one: PreparedFile) -> int:
    return len(one.readable.fields) if one.readable.format == "csv" else 0


def _digest(outcomes: Sequence[FileOutcome], replaced: Replaced) -> str:
    """What a plan token holds a request to: the files, their rows, and what they replace."""
    seen = [[str(o.day), o.content_hash, o.records_ingested, dict(o.rejects)] for o in outcomes if not o.error]
    return hashlib.sha256(json.dumps([seen, asdict(replaced)], sort_keys=True).encode()).hexdigest()

"""The commit of files that were written beside a table, in place of what their dates had before."""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from service.catalog.tables import Catalog, Table
from service.commits.commit import CommitResult, Commits, retried_if_changed
from service.engine.iceberg.staging import StagedFiles
from service.engine.jobs import append
from service.engine.jobs.ingest.files import Rejects
from service.engine.jobs.ingest.restate import DatedRows, Replaced, RestateTarget, replaceable, restate
from service.engine.session.engine import Engine
from service.ingest.day_files import FileOutcome, IngestOptions
from service.ingest.exports.exports import Exports
from service.ingest.history import INGEST, IngestHistory
from service.ingest.prepare import Preparation, PreparedFile
from service.ingest.quarantine import DAY_COLUMN, Quarantines
from service.jobs.job import Job
from service.jobs.jobs import Jobs
from service.ledger.ingestions import IngestionRecord, as_summary
from service.model.call import Call
from service.model.ingest.reserved import (
    DATE_FIELD,
    INGEST_PROPERTY,
)
from service.model.times import now_ms

log = logging.getLogger("firn.ingest")


@dataclass(frozen=True)
class IngestParts:
    """The parts of the service that an ingest uses."""

    engine: Engine
    catalog: Catalog
    commits: Commits
    jobs: Jobs
    history: IngestHistory
    quarantines: Quarantines
    exports: Exports
    spool: Path

    @property
    def preparation(self) -> Preparation:
        return Preparation(self.engine, self.catalog, self.commits, self.history)


@dataclass
class StagedIngest:
    """A file whose rows are written, but not committed."""

    outcome: FileOutcome
    prepared: PreparedFile
    good: StagedFiles | None = None
    rejects: Rejects = field(default_factory=Rejects)
    marked: StagedFiles | None = None
    """Of a replay: its good rows, as rows of the quarantine that name the replay."""


@dataclass
class Publication:
    """Commits the files of one ingest."""

    parts: IngestParts
    table: Table
    options: IngestOptions
    call: Call
    job: Job | None
    started_ms: int
    operation: str = INGEST

    def commit(self, staged: list[StagedIngest]) -> tuple[CommitResult, Replaced]:
        if not staged:
            return CommitResult(self.parts.commits.current(self.table), None), Replaced()
        done = [self._ingestion(one) for one in staged]
        quarantined = False
        replaced = Replaced()

        @retried_if_changed()
        def change(current: Table, batch: str) -> None:
            nonlocal quarantined, replaced
            self._check_token(current, staged)
            if not quarantined:
                self.replace_quarantined(staged)
                quarantined = True
            gate = self._gate(batch, self.call)
            summary = {INGEST_PROPERTY: json.dumps(as_summary(done), separators=(",", ":"))}
            target = self._target(current)
            rows = self._dated(one.outcome.day for one in staged)
            good = [one.good for one in staged if one.good is not None]
            # A job of several commits is not done with one of them.
            if self.job is not None and self.job.record.listed and self.job.record.kind == INGEST:
                self.parts.jobs.tries(self.job, batch)
            with self.parts.engine.lend(self.call) as session:
                replaced = restate(session, target, rows, good, batch, gate, summary)

        records = sum(one.outcome.records_ingested for one in staged)
        committed = self.parts.commits.commit(self.table, self.operation, self.call, change, records=records)
        if committed.snapshot is not None:
            made = committed.snapshot.snapshot_id
            self.parts.history.record(self.table, [replace(one, snapshot_id=made) for one in done])
        return committed, replaced

    def replace_quarantined(self, staged: list[StagedIngest]) -> None:
        """Replace the quarantined rows of the dates; of an append, those of the same content."""
        new = [one.rejects.staged for one in staged if one.rejects.staged is not None]
        table = self.parts.quarantines.find(self.table)
        if table is None or (not new and table.current_snapshot_id is None):
            return
        hashes = None
        if self.options.mode != "restate":
            hashes = tuple({one.outcome.content_hash for one in staged})
        self.replace_rows(table, DatedRows(DAY_COLUMN, tuple({one.outcome.day for one in staged}), hashes), new)

    def replace_rows(self, table: Table, rows: DatedRows, new: Sequence[StagedFiles]) -> None:
        """Replace rows of the quarantine by staged ones."""
        call = self.call.without_key()

        @retried_if_changed()
        def change(current: Table, batch: str) -> None:
            target = self._target(current, table)
            with self.parts.engine.lend(call) as session:
                if new or replaceable(session, target, rows).records:
                    restate(session, target, rows, new, batch, self._gate(batch, call), {})

        self.parts.commits.commit(table, INGEST, call, change)

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

    def replaceable(self, table: Table, days: list[date]) -> Replaced:
        rows = self._dated(days)
        if rows is None or not days:
            return Replaced()
        return self.parts.engine.run_for(self.call, replaceable, self._target(table), rows)

    def _check_token(self, current: Table, staged: list[StagedIngest]) -> None:
        if self.options.token:
            outcomes = tuple(one.outcome for one in staged)
            replaced = self.replaceable(current, [one.day for one in outcomes])
            self.options.token.check(digest_of(outcomes, replaced))

    def _ingestion(self, one: StagedIngest) -> IngestionRecord:
        outcome, fetched = one.outcome, one.prepared.fetched
        return IngestionRecord(
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

    def discard(self, staged: Any) -> None:
        """Delete files that no snapshot can have."""
        for one in staged:
            for files in (one.good, one.rejects.staged, one.marked):
                if files is not None:
                    try:
                        self.parts.engine.run(append.discard, files)
                    except Exception as e:
                        log.warning("files of an uncommitted ingest of %s stay: %s", self.table.name, e)


def digest_of(outcomes: Sequence[FileOutcome], replaced: Replaced) -> str:
    """What a plan token holds a request to: the files, their rows, and what they replace."""
    seen = [[str(o.day), o.content_hash, o.records_ingested, dict(o.rejects)] for o in outcomes if not o.error]
    return hashlib.sha256(json.dumps([seen, asdict(replaced)], sort_keys=True).encode()).hexdigest()

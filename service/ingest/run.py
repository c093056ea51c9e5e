"""One ingest of some files: prepared, written beside the table, and committed at once."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from service.catalog.tables import Table
from service.commits.commit import CommitResult
from service.commits.tokens import PlanToken
from service.engine.iceberg.staging import StagedFiles
from service.engine.jobs.ingest.files import Rejects, count_good_rows, find_rejects, stage_good_rows
from service.errors import FileRejected, FirnError, InternalError, InvalidRequest, OutcomeUnknown
from service.fairness.shares import for_same_tenant
from service.ingest.day_files import DayFile, FileOutcome, IngestOptions, IngestOutcome, IngestProgress
from service.ingest.drift import Drift, cleaning_of, stored_drift, unfit_column
from service.ingest.prepare import PreparedFile
from service.ingest.publish import IngestParts, Publication, StagedIngest, digest_of
from service.ingest.quarantine import quarantined_values, target_of
from service.ingest.sources.fetch import FetchedFile, check_unchanged
from service.ingest.sources.readable import count_records, lines_before
from service.ingest.tasks.together import Together, grouped, guarded
from service.jobs.job import Job
from service.ledger.ingestions import IngestionRecord
from service.model.call import Call
from service.model.ingest.fingerprint import fingerprint_of
from service.model.ingest.periods import period_of
from service.model.ingest.reading import Cleaning, Rule
from service.model.ingest.reserved import (
    DATE_FIELD,
    FILE_FIELD,
    PERIOD_FIELD,
    dataset_of,
)
from service.model.ingest.table_file import TableFile
from service.model.times import now_ms

_AT_ONCE = 2


@dataclass
class IngestRun:
    """One ingest."""

    parts: IngestParts
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
        staged: dict[int, StagedIngest] = {}
        try:
            self._stage(files, staged)
            self.progress.phase = "committing"
            committed, replaced = self._publication.commit([staged[i] for i in sorted(staged)])
        except BaseException as e:
            if not isinstance(e, OutcomeUnknown):  # then a snapshot may have the files
                self._publication.discard(staged.values())
            raise
        self.progress.phase = "done"
        found = {**self.outcomes, **{i: one.outcome for i, one in staged.items()}}
        return IngestOutcome(committed, tuple(found[i] for i in sorted(found)), replaced)

    def preview(self, files: Sequence[DayFile]) -> IngestOutcome:
        prepared = self._prepare(files)
        for i, one in prepared.items():
            with self.refusing(i, one.file):
                self.outcomes[i] = self.counted(one)
        good_days = [self.outcomes[i].day for i in prepared if self.outcomes[i].error is None]
        replaced = self._publication.replaceable(self.table, good_days)
        outcomes = tuple(self.outcomes[i] for i in sorted(self.outcomes))
        token = PlanToken(self.table.uuid, self.options.request, digest_of(outcomes, replaced))
        return IngestOutcome(CommitResult(self.table, None), outcomes, replaced, token.text())

    def counted(self, one: PreparedFile) -> FileOutcome:
        """What reading a file would do; FileRejected if its rejects would refuse it."""
        cleaning = replace(self.cleaning(one), guards_expressions=True)
        read = count_records(one.readable, one.fetched)
        good = self.parts.engine.run_for(self.call, count_good_rows, one.readable, cleaning)
        rejects = self._rejects(one, cleaning, None, ()) if good < read else Rejects()
        outcome = self.outcome_of(one, "", read, good, rejects, cleaning)
        self.check_rejects(one, outcome, cleaning)
        return outcome

    @property
    def _publication(self) -> Publication:
        return Publication(self.parts, self.table, self.options, self.call, self.job, self.started_ms)

    # Steps

    def _stage(self, files: Sequence[DayFile], staged: dict[int, StagedIngest]) -> None:
        prepared = self._prepare(files)
        self.progress.phase = "reading"
        self._adopt(prepared)

        def stage(i: int, one: PreparedFile) -> None:
            with self.refusing(i, one.file, one):
                staged[i] = StagedIngest(self.empty(one.file), one)
                self.write(staged[i])

        if len(prepared) == 1:
            for i, one in prepared.items():
                stage(i, one)
        else:
            groups, others = grouped(prepared)
            for group in groups:
                Together(self, group, staged).write()
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="firn-ingest") as pool:
                for done in [pool.submit(for_same_tenant(stage), i, one) for i, one in others.items()]:
                    done.result()
        for i in self.outcomes:
            if refused := staged.pop(i, None):
                self._publication.discard([refused])

    def _prepare(self, files: Sequence[DayFile]) -> dict[int, PreparedFile]:
        prepared: dict[int, PreparedFile] = {}
        before = self.progress.bytes_read
        options = self.options

        def count(size: int) -> None:
            self.call.check()
            self.progress.bytes_read = before + size

        for i, file in enumerate(files):
            with self.refusing(i, file):
                found = self.parts.preparation.prepare(self.table, file, options, self.folder, self.call, count)
                before += found.bytes if isinstance(found, FetchedFile) else found.fetched.bytes
                if isinstance(found, PreparedFile) and found.evolves:
                    options = replace(options, dataset=found.dataset)  # the next ones add to what this one changed
                self.progress.files_read += 1
                if isinstance(found, PreparedFile):
                    prepared[i] = found
                else:
                    self.outcomes[i] = replace(
                        self.empty(file), content_hash=found.content_hash, bytes=found.bytes, is_unchanged=True
                    )
        return prepared

    def _adopt(self, prepared: dict[int, PreparedFile]) -> None:
        """Give the table the columns of the files, before rows with them are written."""
        for i, one in prepared.items():
            with self.refusing(i, one.file):
                own = dataset_of(self.table.properties)
                stores = one.evolves or own is None
                self.table = self.parts.preparation.adopt(self.table, one.dataset, self.call, stores=stores)
        for i in self.outcomes:
            prepared.pop(i, None)

    def write(self, staged: StagedIngest) -> Cleaning:
        """Write the rows of a file into data files, and its rejects into those of the quarantine."""
        one = staged.prepared
        run_id = uuid.uuid4().hex
        read = count_records(one.readable, one.fetched)
        target = target_of(self.table)

        def stage(cleaning: Cleaning) -> StagedFiles:
            return self.parts.engine.run_for(self.call, stage_good_rows, target, one.readable, cleaning)

        written, cleaning = guarded(self.cleaning(one), stage)
        staged.good, good = written, written.records
        check_unchanged(one.fetched)
        if good < read:
            staged.rejects = self._rejected(one, cleaning, run_id, read - good, read)
        staged.outcome = self.outcome_of(one, run_id, read, good, staged.rejects, cleaning)
        self.check_rejects(one, staged.outcome, cleaning)
        self.count(staged.outcome)
        return cleaning

    def count(self, done: FileOutcome) -> None:
        """Add a file to the progress."""
        self.progress.records_read += done.records_read
        self.progress.records_ingested += done.records_ingested
        self.progress.records_rejected += done.records_rejected

    def _rejected(self, one: PreparedFile, cleaning: Cleaning, run_id: str, rejected: int, read: int) -> Rejects:
        """The rejects of a file, as staged rows of the quarantine, unless the file is going to be refused."""
        dataset = one.dataset
        limit = dataset.max_rejects
        if dataset.on_error == "reject_file" or (limit is not None and limit.exceeded(rejected, read)):
            found = self._rejects(one, cleaning, None, ())
            if limit is not None and limit.exceeded(rejected, read):
                return found
            if any(rule.is_conversion for rule in _broken(found, cleaning.rules(one.readable))):
                return found
        now = datetime.now(UTC)
        values = quarantined_values(one, run_id, now)
        table = self.parts.quarantines.ensure(self.table)
        found = self._rejects(one, cleaning, table, values)
        if found.count != rejected:
            raise InternalError(f"{rejected} rows were rejected, but {found.count} quarantined; nothing was committed")
        return found

    def _rejects(self, one: PreparedFile, cleaning: Cleaning, quarantine: Table | None, values: Any) -> Rejects:
        target = None if quarantine is None else target_of(quarantine)
        return self.parts.engine.run_for(self.call, find_rejects, one.readable, cleaning, lines_before, target, values)

    def check_rejects(self, one: PreparedFile, outcome: FileOutcome, cleaning: Cleaning) -> None:
        """Raise FileRejected if the rejects refuse the file as a whole."""
        dataset, rejected = one.dataset, outcome.records_rejected
        name, why = one.fetched.source.name, ""
        by_text = {rule.text: rule for rule in cleaning.rules(one.readable)}
        limit = dataset.max_rejects
        details: dict[str, Any] = {"records_read": outcome.records_read, "records_rejected": rejected}
        details["rejects"] = dict(outcome.rejects)
        column = unfit_column(list(by_text.values()), outcome.rejects, outcome.records_read)
        wider = {name: kind for name, kind in one.wider.items() if _has_misfits(name, outcome, by_text)}
        if wider:
            details["drift"] = Drift(retyped=wider).as_json()
        if column is not None and dataset.on_drift.retyped != "ignore":
            details["drift"] = Drift(retyped=wider or {column: "VARCHAR"}).as_json()
            why = (
                f"no value of {column} converts to its type; correct the file, change the type, or set on_drift.retyped"
            )
        elif limit is not None and limit.exceeded(rejected, outcome.records_read):
            why = f"{rejected} of {outcome.records_read} rows break a rule, but max_rejects is {limit}"
        elif dataset.on_error == "reject_file":
            wrong = sum(count for text, count in outcome.rejects.items() if by_text[text].is_conversion)
            if wrong:
                why = f"{wrong} of {outcome.records_read} rows cannot be converted, and on_error is reject_file"
        if why:
            if wider:
                shown = ", ".join(f"{column} is {kind} in the file" for column, kind in wider.items())
                why += f" ({shown}: ACCEPT_DRIFT widens it)"
            raise FileRejected(f"{name!r} is refused: {why}; nothing of it was ingested", details=details)

    # Parts of steps

    def cleaning(self, one: PreparedFile) -> Cleaning:
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

    def empty(self, file: DayFile) -> FileOutcome:
        return FileOutcome(file.day, period_of(file.day, self.config.granularity), file.source.name)

    def outcome_of(
        self, one: PreparedFile, run_id: str, read: int, good: int, rejects: Rejects, cleaning: Cleaning
    ) -> FileOutcome:
        texts = [rule.text for rule in cleaning.rules(one.readable)]
        by_rule: dict[str, int] = {}
        for text, count in zip(texts, rejects.by_rule, strict=False):
            if count:
                by_rule[text] = by_rule.get(text, 0) + count
        return replace(
            self.empty(one.file),
            content_hash=one.fetched.content_hash,
            bytes=one.fetched.bytes,
            run_id=run_id,
            records_read=read,
            records_ingested=good,
            rejects=by_rule,
            drift=one.drift,
        )

    @contextmanager
    def refusing(self, i: int, file: DayFile, one: PreparedFile | None = None) -> Iterator[None]:
        """Record that a file is refused, if the block raises that. Without `keep_going` the ingest ends with it."""
        try:
            yield
        except InvalidRequest as e:
            if not self.options.dry_run:
                self._record_refusal(file, e, one)
            if not self.options.keep_going:
                raise
            self.outcomes[i] = replace(self.empty(file), error=e)

    def _record_refusal(self, file: DayFile, error: FirnError, one: PreparedFile | None) -> None:
        details = error.details or {}
        fetched = None if one is None else one.fetched
        size, modified_ms = file.version or ((fetched.bytes, fetched.modified_ms) if fetched else (0, 0))
        refused = IngestionRecord(
            uuid.uuid4().hex,
            str(file.day),
            file.source.name,
            fetched.content_hash if fetched else "",
            fingerprint_of(self.options.dataset or dataset_of(self.table.properties)),
            self.options.mode,
            int(details.get("records_read", 0)),
            0,
            int(details.get("records_rejected", 0)),
            size,
            modified_ms,
            self.started_ms,
            now_ms(),
            self.call.requested_by or f"request {self.call.id}",
            state="refused",
            error=error.message,
            drift=stored_drift(details),
        )
        self.parts.history.record(self.table, [refused])


def _has_misfits(column: str, outcome: FileOutcome, rules: Mapping[str, Rule]) -> bool:
    """Whether values of a column did not convert."""
    return any(rules[text].column == column and rules[text].is_conversion for text in outcome.rejects)


def _broken(found: Rejects, rules: Sequence[Rule]) -> list[Rule]:
    return [rule for rule, count in zip(rules, found.by_rule, strict=True) if count]

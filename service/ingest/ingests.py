"""Ingest files: each becomes the rows of its date, and all of them are committed at once."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from service.catalog.tables import Table
from service.commits.commit import CommitResult
from service.errors import InvalidRequest
from service.ingest.day_files import DayFile, FileOutcome, IngestOptions, IngestOutcome, IngestProgress
from service.ingest.history import INGEST
from service.ingest.publish import IngestParts
from service.ingest.run import IngestRun
from service.ingest.sources.fetch import remove_leftovers, working_folder
from service.jobs.jobs import Kind
from service.model.call import Call
from service.model.ingest.periods import period_of
from service.model.ingest.reserved import (
    INGEST_PROPERTY,
    table_file_of,
)
from service.model.ingest.table_file import TableFile


@dataclass(frozen=True)
class Ingests:
    """Ingests files into tables that were made from a table file."""

    parts: IngestParts

    def __post_init__(self) -> None:
        self.parts.jobs.register(INGEST, Kind("an ingest"))

    def remove_leftovers(self) -> None:
        """Remove the temporary files of a process that was killed. Only at the start."""
        remove_leftovers(self.parts.spool)

    def run(self, table: Table, files: Sequence[DayFile], options: IngestOptions, call: Call) -> IngestOutcome:
        """Ingest files in one commit, or report what that would do."""
        config = table_file_of(table.properties)
        if config is None:
            raise InvalidRequest(
                f"table {table.name.table!r} was not made from a table file; make one by CREATE_TABLE with config, or "
                "send WRITE or a bulk load",
                field="table",
            )
        days = [file.day for file in files]
        if options.mode == "restate" and (twice := next((day for day in days if days.count(day) > 1), None)):
            raise InvalidRequest(
                f"there are two files for {twice}, and each would replace the other; append one of them"
            )
        if options.token:
            options.token.check_table(table.uuid)
        if not options.dry_run and (earlier := self.parts.commits.earlier_result(table, call)):
            return self._exported(table, _repeated(earlier, config))
        self.parts.history.complete(table)
        progress = call.progress(IngestProgress)
        progress.files_total += len(files)
        with working_folder(self.parts.spool) as folder:
            if options.dry_run:
                return IngestRun(self.parts, table, config, options, call, folder, progress).preview(files)
            with self.parts.jobs.begin(INGEST, table, progress, call) as job:
                done = IngestRun(self.parts, table, config, options, call, folder, progress, job).ingest(files)
        return self._exported(table, done)

    def _exported(self, table: Table, done: IngestOutcome) -> IngestOutcome:
        """The outcome after the files of its dates were exported, if the table exports."""
        days = [one.day for one in done.files if one.error is None]
        return replace(done, warnings=tuple(self.parts.exports.after_ingest(table, days)))


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

"""Merge the staged records of a bulk load into a table, in one commit: an edit by key of records that Spark reads."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from service.catalog.tables import Table
from service.commits.commit import CommitResult
from service.edits.edits import EditCounts, EditOptions, EditOutcome, Edits
from service.engine.iceberg.swap import Tag
from service.engine.jobs.edit import FoundRows
from service.engine.jobs.edits.staged_records import repeated_key
from service.engine.session.engine import Engine
from service.errors import InvalidRecord
from service.jobs.job import BULK
from service.jobs.jobs import Jobs
from service.model.call import Call
from service.model.edits import ByKey, Edit, MergeRule, StagedRecords
from service.model.schema.derived import only_derived_added
from service.writes.bulk.load import Load, TableAltered
from service.writes.bulk.upsert import KeyedRecords

_LONGEST_KEY = 120


@dataclass(frozen=True)
class BulkUpserts:
    """Merges loads whose records were received, checked and staged."""

    engine: Engine
    edits: Edits
    jobs: Jobs

    def finish(
        self,
        load: Load,
        call: Call,
        backup: Callable[[Table], Tag | None],
        promise: Callable[[EditCounts], bytes | None] = lambda counts: None,
    ) -> EditOutcome:
        """Commit a load that is staged. `promise` renders the response that a job has if this process ends before it
        can respond."""
        keyed, staging, progress = load.upsert, load.staging, load.progress
        assert keyed is not None
        if staging is None or not staging.rows:
            return EditOutcome(CommitResult(load.table, None), EditCounts())
        call.check()
        job_tag = f"bulk-{uuid.uuid4().hex}"
        with self.jobs.begin(BULK, load.table, progress, call) as job:
            progress.phase = "matching"
            records = self._checked(keyed, keyed.staged(staging.spark_name, staging.bytes), call)

            def found(edit: Edit, rows: FoundRows) -> None:
                _refuse_incomplete(keyed, rows)
                progress.restart()
                progress.expect(rows.hits - rows.replaced + rows.inserted, partial(self.engine.rows_written, job_tag))
                progress.phase = "writing"

            def before_commit(batch: str, counts: EditCounts) -> None:
                progress.phase = "committing"
                job.commit_gate()
                if job.record.listed:
                    self.jobs.tries(job, batch, promise(counts))

            options = EditOptions("", tag=backup, before_commit=before_commit, job_tag=job_tag)
            plan = partial(_edit, keyed, records, keyed.rule())
            outcome = self.edits.run(load.table, "UPSERT", plan, options, call, found)
        if progress.records_total is not None:
            progress.done(progress.records_total)
        progress.phase = "done"
        return outcome

    def _checked(self, keyed: KeyedRecords, records: StagedRecords, call: Call) -> StagedRecords:
        """The records, if each key is there once, or the last one with it counts."""
        repeated = self.engine.run_for(call, repeated_key, records, keyed.keys)
        if repeated is None:
            return records
        if keyed.options.on_duplicate == "last":
            return replace(records, keep_last=True)
        shown = ", ".join(f"{name}={value}" for name, value in zip(keyed.keys, repeated.key, strict=True))
        raise InvalidRecord(
            f"records[{repeated.record}] has the same key as records[{repeated.first}] ({shown[:_LONGEST_KEY]}); send "
            "each key once, or on_duplicate=last for the last one to count",
            field=f"records[{repeated.record}]",
            details={"record": repeated.record, "first": repeated.first},
        )


def _edit(keyed: KeyedRecords, records: StagedRecords, how: MergeRule, table: Table) -> Edit:
    """What the records mean for the table as it is now, if it has only gained derived columns."""
    if not only_derived_added(table.schema, keyed.schema, table.derived):
        raise TableAltered(table)
    return Edit(table.schema, ByKey(records, replace(how, columns=table.schema.names)), derived=table.derived)


def _refuse_incomplete(keyed: KeyedRecords, rows: FoundRows) -> None:
    """Raise for the first record that would be a new row, but lacks a column that a new row needs."""
    if rows.lacking is None:
        return
    needed = ", ".join(keyed.rule().required_to_insert)
    raise InvalidRecord(
        f"records[{rows.lacking}] lacks a required column: its key is new, and a new row needs {needed}; send it",
        field=f"records[{rows.lacking}]",
        details={"record": rows.lacking},
    )

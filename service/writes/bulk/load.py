"""Bulk loads: a body of any size becomes one commit. It is received, checked, staged, written and committed."""

import contextlib
import logging
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from service.catalog.files.staging import Staging
from service.catalog.tables import Catalog, Table
from service.commits.commit import CommitResult, Commits
from service.commits.small_files import NOT_CHECKED, SmallFileCheck, SmallFileChecks
from service.engine.iceberg.staging import StagedFiles
from service.engine.iceberg.swap import TableChanged
from service.engine.jobs import append
from service.engine.jobs.arrow.stage import adopt
from service.engine.jobs.bulk import move
from service.engine.session.engine import Engine
from service.errors import (
    BodyTooLarge,
    CommitConflict,
    InternalError,
    OutcomeUnknown,
    TableNotFound,
    TooManyRequests,
)
from service.fairness.shares import Shares
from service.fairness.threads import FairThreads
from service.jobs.job import BULK, BulkProgress, Job
from service.jobs.jobs import Jobs, Kind
from service.model.call import Call
from service.model.dynamic.definition import refuse_dynamic_table
from service.model.ingest.reserved import refuse_ingestion_table
from service.model.names import TableName
from service.model.schema.derived import only_derived_added
from service.model.schema.key_columns import key_columns
from service.settings import LimitSettings
from service.writes.bulk.body import Body
from service.writes.bulk.decode import Decoder
from service.writes.bulk.target import lasting_files, target_schema
from service.writes.bulk.upsert import KeyedRecords, UpsertOptions

log = logging.getLogger("firn.bulk")

# How many times the files may be written, if the table changes in the meantime.
_MOST_ATTEMPTS = 3
# How many times larger than its limit a body may become when it is unpacked, as packed numbers and short texts do.
_MOST_INFLATION = 8


@dataclass(frozen=True)
class LoadResult:
    """The result of a load."""

    records: int
    snapshot_id: int | None
    check: SmallFileCheck


@dataclass(eq=False)
class Load:
    """One load. Its receiver puts the data into `body`; `staged` is done when every record is checked and staged."""

    table: Table
    body: Body
    release: Callable[[], None]
    progress: BulkProgress = field(default_factory=BulkProgress)
    staged: "Future[None]" = field(default_factory=Future)
    staging: Staging | None = None
    upsert: KeyedRecords | None = None
    """Of a load that upserts; else it appends."""
    handed_over: bool = False
    """Whether a job closes it at its end; else whoever opened it does."""
    _closed: bool = False

    @property
    def records(self) -> int:
        return self.staging.rows if self.staging else 0

    def close(self) -> None:
        """Remove what is staged and make room for the next load."""
        if self._closed:
            return
        self._closed = True
        self.body.close()
        # Its reader ends soon, because the body is closed, but may still be writing.
        with contextlib.suppress(Exception):
            self.staged.exception()
        try:
            if self.staging is not None:
                self.staging.discard()
        finally:
            self.release()


class Bulk:
    """Receives bodies of any size, a limited number at a time."""

    def __init__(
        self,
        limits: LimitSettings,
        engine: Engine,
        catalog: Catalog,
        commits: Commits,
        small_files: SmallFileChecks,
        jobs: Jobs,
    ) -> None:
        self._limits = limits
        self._engine = engine
        self._catalog = catalog
        self._commits = commits
        self._small_files = small_files
        self._jobs = jobs
        jobs.register(BULK, Kind("a bulk load"))
        self._room = Shares(limits.concurrent_bulk_loads, limits.tenant_share)
        # `_room` bounds what each tenant has of them.
        self._threads = FairThreads(limits.concurrent_bulk_loads, "firn-bulk", 100)

    @property
    def most_bytes(self) -> int:
        """The maximum size of a body."""
        return self._limits.bulk_mb << 20

    @property
    def under_way(self) -> int:
        """The number of loads in progress."""
        return self._room.taken

    def open(
        self, name: TableName, decode: Decoder, *, keyed: bool = False, upsert: UpsertOptions | None = None
    ) -> Load:
        """Begin a load into a table: its body can be fed now. The caller closes it, unless it hands it to `start`.

        With `upsert`, the caller merges the records itself. `keyed` says that the body's digest will be needed.
        TooManyRequests, at once, if the limit of loads is reached.
        """
        reached = self._room.take(name.tenant)
        if reached is not None:
            count, whose = self._room.limit(reached)
            raise TooManyRequests(f"{count} bulk loads{whose} are in progress; try again when one has ended")
        release = partial(self._room.leave, name.tenant)
        try:
            table = self._catalog.load(name)
            refuse_ingestion_table(table.properties, name.table, "a bulk load")
            refuse_dynamic_table(table.properties, name.table, "a bulk load")
            load = Load(table, Body(self._limits.bulk_mb, hashed=keyed), release)
            if upsert is not None:
                load.upsert = KeyedRecords(table.schema, key_columns(table.schema, upsert.key_cols), upsert)
            load.staged = self._threads.submit(name.tenant, partial(self._stage, load, decode))
        except BaseException:
            release()
            raise
        return load

    def finish(self, load: Load, call: Call) -> LoadResult:
        """Append the records of a load that is staged, in one commit."""
        table, staging = load.table, load.staging
        if staging is None or not staging.rows:
            return LoadResult(0, self._catalog.load(table.name).current_snapshot_id, NOT_CHECKED)
        if earlier := self._commits.earlier_batch(call):
            return LoadResult(staging.rows, earlier.snapshot_id, NOT_CHECKED)
        call.check()
        with self._jobs.begin(BULK, table, load.progress, call) as job:
            for _ in range(_MOST_ATTEMPTS):
                try:
                    load.progress.phase, tag = "writing", f"bulk-{uuid.uuid4().hex}"
                    load.progress.restart()
                    load.progress.expect(staging.rows, partial(self._engine.rows_written, tag))
                    files = self._move(table, staging, call, tag)
                    load.progress.done(staging.rows)
                    load.progress.phase = "committing"
                    committed = self._commit(table, files, call, job)
                    break
                except TableAltered:
                    table = self._current(table)
            else:
                raise TableAltered(table)
        load.progress.phase = "done"
        return LoadResult(staging.rows, committed.snapshot_id, self._small_files.check_after_write(committed.after))

    def start(self, load: Load, work: Callable[[], None]) -> None:
        """Do a job's work with a load on a thread of ours, then close the load. Returns at once."""
        self._threads.submit(load.table.name.tenant, work).add_done_callback(lambda _: load.close())
        load.handed_over = True

    def close(self) -> None:
        self._threads.shutdown()

    def _stage(self, load: Load, decode: Decoder) -> None:
        schema, most = load.table.schema, self.most_bytes * _MOST_INFLATION
        try:
            for batch in decode(load.body, schema, load.upsert.keys if load.upsert else None):
                batch = load.upsert.numbered(batch) if load.upsert else batch
                if load.staging is None:
                    load.staging = self._staging(load, batch)
                load.staging.write(batch)
                load.progress.records, load.progress.bytes = load.staging.rows, load.body.size
                if load.staging.bytes > most:
                    raise BodyTooLarge(
                        f"the body unpacks to more than {most >> 20} MiB; send it in parts, or raise "
                        "FIRN_LIMITS__BULK_MB"
                    )
            if load.staging is not None:
                load.staging.finish()
        finally:
            load.body.close()
        load.progress.bytes = load.body.size
        load.progress.phase = "staged"

    def _staging(self, load: Load, batch: pa.RecordBatch) -> Staging:
        if load.upsert:
            return Staging(self._catalog, load.upsert.staged_schema(batch), load.upsert.arrow_schema(batch))
        schema = target_schema(load.table.schema)
        return Staging(self._catalog, load.table.schema, schema, lasting_files(load.table, schema))

    def _current(self, table: Table) -> Table:
        """The table as it is now, if it has only gained derived columns; otherwise the load is refused."""
        now = self._catalog.load(table.name)
        if now.uuid != table.uuid or not only_derived_added(now.schema, table.schema, now.derived):
            raise TableAltered(table)
        return now

    def _move(self, table: Table, staging: Staging, call: Call, tag: str) -> StagedFiles:
        """Make the table's files: the staged ones, if they can be, or else files that Spark writes. This may take long,
        so it does not hold the table's lock."""
        try:
            files: StagedFiles | None = None
            if staging.lasts and not table.derived:
                files = self._engine.run_for(call, adopt, table.spark_name, staging.paths, staging.schema)
            files = files or self._engine.run_for(
                call,
                move,
                staging.spark_name,
                table.spark_name,
                staging.bytes,
                schema=table.stored_schema,
                partition=table.stored_partition,
                derived=table.derived,
                tag=tag,
            )
        except Exception as e:
            call.check()  # a job whose Spark jobs were cancelled can fail in any way
            now = self._catalog.load(table.name)
            if (now.uuid, now.schema_id) != (table.uuid, table.schema_id):
                raise TableAltered(table) from e
            raise
        if files.records != staging.rows:
            self._discard(table, files)
            raise InternalError(
                f"{staging.rows} records were staged, but {files.records} written; nothing was committed"
            )
        return files

    def _commit(self, table: Table, files: StagedFiles, call: Call, job: Job) -> CommitResult:
        tried = False

        def change(current: Table, batch: str) -> None:
            def gate() -> None:
                self._commits.must_be_ours(batch)
                job.commit_gate()

            nonlocal tried
            call.seal()
            if job.record.listed:
                self._jobs.tries(job, batch)
            tried = True
            name, uuid, schema_id = current.spark_name, table.uuid, table.schema_id
            self._engine.run(append.commit, name, files, batch, uuid=uuid, schema_id=schema_id, gate=gate)

        try:
            committed = self._commits.commit(table, "WRITE", call, change, records=files.records)
        except Exception as e:
            if tried and isinstance(e, OutcomeUnknown | TableNotFound):
                raise  # a snapshot may have the files already
            self._discard(table, files)
            if isinstance(e, TableChanged):
                raise TableAltered(table) from e
            raise
        if not tried:
            self._discard(table, files)
        return committed

    def _discard(self, table: Table, files: StagedFiles) -> None:
        """Delete files that no snapshot can have."""
        try:
            self._engine.run(append.discard, files)
        except Exception as e:
            log.warning("files of an uncommitted load of %s could not be deleted: %s", table.name, e)


class TableAltered(CommitConflict):
    """The table's columns are no longer those that the records were checked against."""

    def __init__(self, table: Table) -> None:
        super().__init__(
            f"table {table.name.table!r} was changed while these records were being loaded; send the request again"
        )

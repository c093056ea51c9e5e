"""Bulk loads: a body of any size becomes one commit. Received and checked, staged, moved by Spark, committed."""

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from service.bulk.body import Body
from service.bulk.decode import Decoder
from service.bulk.target import target_schema
from service.catalog.staging import Staging
from service.catalog.tables import Catalog, Table
from service.commits.ask import Ask
from service.commits.commit import Commits, Effect
from service.derived import only_derived_since
from service.engine import append
from service.engine.bulk import move
from service.engine.engine import Engine
from service.engine.swap import Moved, Staged
from service.errors import (
    BodyTooLarge,
    CommitConflict,
    InternalError,
    OutcomeUnknown,
    TableNotFound,
    TooManyRequests,
)
from service.jobs.job import Progress
from service.jobs.running import Running
from service.ledger.writers import Writer, Writers
from service.names import TableName
from service.settings import LimitSettings
from service.upkeep.report import Check
from service.upkeep.upkeep import NOT_CHECKED, Upkeep

log = logging.getLogger("firn.bulk")

# So often a table may change while a load is on its way.
_MOVES = 3
# What a body may unpack to, of its limit: packed numbers and short texts grow.
_UNPACKED = 8


@dataclass(frozen=True)
class Loaded:
    """What a load came to."""

    records: int
    snapshot_id: int | None
    check: Check


class Load:
    """One load: `body` is fed by whoever receives it, `staged` ends when every record is checked and staged."""

    def __init__(self, table: Table, body: Body, progress: Progress, release: Callable[[], None]) -> None:
        self.table = table
        self.body = body
        self.progress = progress
        self.running = Running()
        self.staged: Future[None] = Future()
        self.staging: Staging | None = None
        self._release = release
        self._closed = False

    @property
    def records(self) -> int:
        return self.staging.rows if self.staging else 0

    def close(self) -> None:
        """Remove what is staged and make room for the next load."""
        if self._closed:
            return
        self._closed = True
        self.body.close()
        # Its reader ends soon, now that the body is closed; until then it may be writing.
        with contextlib.suppress(Exception):
            self.staged.exception()
        try:
            if self.staging is not None:
                self.staging.discard()
        finally:
            self._release()


class Bulk:
    """Takes bodies of any size in, a few at once."""

    def __init__(
        self,
        limits: LimitSettings,
        engine: Engine,
        catalog: Catalog,
        commits: Commits,
        upkeep: Upkeep,
        writers: Writers,
    ) -> None:
        self._limits = limits
        self._engine = engine
        self._catalog = catalog
        self._commits = commits
        self._upkeep = upkeep
        self._writers = writers
        self._room = threading.Semaphore(limits.bulk_at_once)
        self._threads = ThreadPoolExecutor(limits.bulk_at_once, thread_name_prefix="firn-bulk")

    @property
    def most_bytes(self) -> int:
        """How large a body may be."""
        return self._limits.bulk_mb << 20

    @property
    def under_way(self) -> int:
        """How many loads there are."""
        return self._limits.bulk_at_once - self._room._value

    def open(self, name: TableName, decode: Decoder, *, keyed: bool = False) -> Load:
        """Begin a load into a table: its body can be fed now. Whoever opens it closes it, or hands it to `finish`.
        `keyed` says that the body's digest will be asked for.

        TooManyRequests, at once, where as many as may be are under way.
        """
        if not self._room.acquire(blocking=False):
            raise TooManyRequests(
                f"{self._limits.bulk_at_once} bulk loads are under way already; try again when one of them has ended"
            )
        try:
            table = self._catalog.load(name)
            load = Load(table, Body(self._limits.bulk_mb, hashed=keyed), Progress(), self._room.release)
            self._threads.submit(self._stage, load, decode)
        except BaseException:
            self._room.release()
            raise
        return load

    def finish(self, load: Load, ask: Ask, tries: Callable[[str], object] = lambda batch: None) -> "Future[Loaded]":
        """Commit a load that is staged, and close it, however it ends. Returns at once.

        `tries` is told each batch before it is committed.
        """

        def run() -> Loaded:
            try:
                return self._finish(load, ask, tries)
            finally:
                load.close()

        try:
            return self._threads.submit(run)
        except RuntimeError:
            load.close()
            raise

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    def _stage(self, load: Load, decode: Decoder) -> None:
        try:
            self._stage_all(load, decode)
        except BaseException as e:
            load.body.close()
            load.staged.set_exception(e)
        else:
            load.body.close()
            load.progress.phase = "staged"
            load.staged.set_result(None)

    def _stage_all(self, load: Load, decode: Decoder) -> None:
        schema, progress = load.table.schema, load.progress
        most = self.most_bytes * _UNPACKED
        for batch in decode(load.body, schema):
            if load.staging is None:
                load.staging = Staging(self._catalog, schema, target_schema(schema))
            load.staging.write(batch)
            progress.records, progress.bytes = load.staging.rows, load.body.size
            if load.staging.bytes > most:
                raise BodyTooLarge(
                    f"the body unpacks to more than {most >> 20} MiB; send it in parts, or raise FIRN_LIMITS__BULK_MB"
                )
        if load.staging is not None:
            load.staging.finish()
        progress.bytes = load.body.size

    def _finish(self, load: Load, ask: Ask, tries: Callable[[str], object]) -> Loaded:
        table, staging = load.table, load.staging
        if staging is None or not staging.rows:
            return Loaded(0, self._catalog.load(table.name).current_snapshot_id, NOT_CHECKED)
        happened = self._commits.happened(ask)
        if happened:
            return Loaded(staging.rows, happened.snapshot_id, NOT_CHECKED)
        load.running.check()
        with self._writers.writing(table.uuid, "a bulk load") as writer:
            for _ in range(_MOVES):
                try:
                    load.progress.phase = "writing"
                    files = self._move(table, staging, load.running)
                    load.progress.phase = "committing"
                    effect = self._commit(table, files, ask, tries, load.running, writer)
                    break
                except _TableMoved:
                    table = self._followed(table)
            else:
                raise _TableMoved(table)
        load.progress.phase = "done"
        return Loaded(staging.rows, effect.snapshot_id, self._upkeep.check_after_write(effect.after))

    def _followed(self, table: Table) -> Table:
        """The table as it is now, if it has got nothing but columns that are worked out; else the load is refused."""
        now = self._catalog.load(table.name)
        if now.uuid != table.uuid or not only_derived_since(now.schema, table.schema, now.derived):
            raise _TableMoved(table)
        return now

    def _move(self, table: Table, staging: Staging, running: Running) -> Staged:
        """Spark writes the table's files; this takes long, and nobody waits for the table meanwhile."""
        try:
            files = self._engine.run(
                move,
                staging.spark_name,
                table.spark_name,
                staging.bytes,
                schema=table.stored_schema,
                partition=table.stored_partition,
                derived=table.derived,
                on_cancel=running.on_cancel,
            )
        except Exception as e:
            running.check()  # what a job meets whose Spark jobs were cancelled can be anything
            now = self._catalog.load(table.name)
            if (now.uuid, now.schema_id) != (table.uuid, table.schema_id):
                raise _TableMoved(table) from e
            raise
        if files.records != staging.rows:
            self._discard(table, files)
            raise InternalError(
                f"{staging.rows} records were staged, but {files.records} written; nothing was committed"
            )
        return files

    def _commit(
        self,
        table: Table,
        files: Staged,
        ask: Ask,
        tries: Callable[[str], object],
        running: Running,
        writer: Writer,
    ) -> Effect:
        tried = False

        def change(current: Table, batch: str) -> None:
            def still_ours() -> None:
                self._commits.must_be_ours(batch)
                writer.still_noted()

            nonlocal tried
            running.seal()
            tries(batch)
            tried = True
            self._engine.run(
                append.commit,
                current.spark_name,
                files,
                batch,
                uuid=table.uuid,
                schema_id=table.schema_id,
                before_commit=still_ours,
            )

        try:
            effect = self._commits.commit(table, "WRITE", ask, change, records=files.records)
        except Exception as e:
            if tried and isinstance(e, OutcomeUnknown | TableNotFound):
                raise  # the files may be a snapshot's by now
            self._discard(table, files)
            if isinstance(e, Moved):
                raise _TableMoved(table) from e
            raise
        if not tried:
            self._discard(table, files)
        return effect

    def _discard(self, table: Table, files: Staged) -> None:
        """Delete files that certainly no snapshot holds."""
        try:
            self._engine.run(append.discard, table.spark_name, files)
        except Exception as e:
            log.warning("files of a load of %s that was not committed could not be deleted: %s", table.name, e)


class _TableMoved(CommitConflict):
    def __init__(self, table: Table) -> None:
        super().__init__(
            f"table {table.name.table!r} was changed while these records were on their way; send the request again"
        )

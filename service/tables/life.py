"""Tables are renamed, dropped, restored, and removed for good when a dropped one need no longer be kept."""

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.commits.file_removal import owns_its_files
from service.commits.locator import TableLocator
from service.errors import ConfirmationRequired, FirnError, InvalidRequest, TableExists, TableNotFound, did_you_mean
from service.ledger.ledger import NewBatch
from service.ledger.table_records import DROP, HERE, RENAME, RESTORE, STEPS, TableRecord, TableRecords, TableStep
from service.metrics.metrics import Metrics
from service.model.call import Call
from service.model.ingest.reserved import quarantine_name
from service.model.names import DROPPED_NAMESPACE, TableName, dropped_table_name
from service.model.properties import is_online, online_property
from service.model.times import HOUR_MS, now_ms
from service.settings import DroppedTableSettings
from service.tables.quarantine import QuarantineFinder, check_new_name, with_quarantine

log = logging.getLogger("firn.life")


@dataclass(frozen=True)
class DroppedTable:
    """A table that was dropped, and until when it can be restored, if it can."""

    table_id: str
    restorable_until_ms: int | None
    purged: bool
    quarantine: TableName | None = None
    """The table with its rejected rows, which was dropped with it."""


@dataclass(frozen=True)
class MovedTable:
    """The name of a table that was renamed or restored, and that of its quarantine, if that went with it."""

    name: TableName
    quarantine: TableName | None = None


class TableLifecycle:
    """Renames, drops and restores tables. Each is one step: a rename in the catalog, recorded in the ledger before."""

    def __init__(
        self,
        settings: DroppedTableSettings,
        catalog: Catalog,
        commits: Commits,
        records: TableRecords,
        metrics: Metrics | None = None,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._commits = commits
        self._records = records
        self._locator = TableLocator(catalog, records)
        self._quarantines = QuarantineFinder(catalog, records)
        self._metrics = metrics or Metrics()
        self._now_ms: Callable[[], int] = now_ms
        self._lock = threading.Lock()
        self._removing: set[str] = set()

    def rename(self, name: TableName, new_name: str, call: Call) -> MovedTable:
        """Give a table another name in its namespace; TableExists if a table has that name."""
        to = replace(name, table=new_name)
        if earlier := self._commits.earlier_batch(call):
            return MovedTable(to, self._records.companion_of_step(earlier.table_uuid, earlier.batch))
        table = self._catalog.load(name)
        if to == name:
            raise InvalidRequest("new_name is the table's name already; choose another", field="new_name")
        check_new_name(table, to)
        self._must_be_free(to)
        batch = self._take(TableStep(RENAME, new_name), table, TableRecord(table.uuid, name), to, call)
        self._metrics.dropped(name)
        return MovedTable(to, self._records.companion_of_step(table.uuid, batch))

    def drop(
        self, name: TableName, call: Call, *, purge: bool, check: Callable[[Table], None] = lambda table: None
    ) -> DroppedTable:
        """Drop a table once the changes before it are done; with `purge` its files are deleted at once.

        `check` gets the table while its lock is held, and raises if it must not be dropped.
        """
        if earlier := self._commits.earlier_batch(call):
            return self._dropped_before(earlier.table_uuid, purge, earlier.batch)
        table = self._catalog.load(name)
        until = self._now_ms() + (0 if purge else self._settings.retention_hours * HOUR_MS)
        step = TableStep(DROP, keep_until_ms=until, folder=table.location if owns_its_files(table) else None)
        record, to = TableRecord(table.uuid, name), dropped_table_name(table.uuid)
        batch = self._take(step, table, record, to, call, check)
        self._metrics.dropped(name)
        if not purge:
            return DroppedTable(table.uuid, until, False, self._records.companion_of_step(table.uuid, batch))
        try:
            for one in self._records.dropped_in_step(table.uuid, batch):
                self._remove(one)
        except Exception as e:  # maintenance tries again
            log.warning("the files of a purged table could not be removed; it is tried again: %s", e)
        return self._dropped_before(table.uuid, purge, batch)

    def restore(self, name: TableName, new_name: str | None, table_id: str | None, call: Call) -> MovedTable:
        """Bring back the newest dropped table of a name, or the one of an id."""
        to = replace(name, table=new_name or name.table)
        if earlier := self._commits.earlier_batch(call):
            return MovedTable(to, self._records.companion_of_step(earlier.table_uuid, earlier.batch))
        dropped = self._restorable(name, table_id)
        self._must_be_free(to)
        table = self._catalog.load(dropped_table_name(dropped.uuid))
        check_new_name(table, to)
        batch = self._take(TableStep(RESTORE, to.table), table, dropped, to, call)
        return MovedTable(to, self._records.companion_of_step(table.uuid, batch))

    def dropped(
        self, tenant: str, namespace: str, after: tuple[int, str] | None = None, limit: int | None = None
    ) -> list[TableRecord]:
        """A namespace's dropped tables that can be restored, the last one first; those after a time and a UUID."""
        return self._records.restorable(tenant, namespace, self._now_ms(), after, limit)

    def set_online(self, table: Table, online: bool, call: Call) -> None:
        """Allow or stop the automatic maintenance of a table."""
        with self.recording_online(table, online):
            self._commits.alter(
                table,
                "SET_ONLINE",
                call,
                lambda current, batch: self._catalog.set_properties(current, online_property(online)),
            )

    @contextmanager
    def recording_online(self, table: Table, online: bool | None) -> Iterator[None]:
        """Record whether a table is online, which the block stores in its properties; None if it stays as it is. At any
        time the tables recorded as offline include all that are."""
        if online is False:
            self.record_offline(table)
        yield
        if online:
            self._records.set_offline(table.uuid, table.name, False)

    def record_offline(self, table: Table) -> None:
        """Record that a table is offline by its properties."""
        self._records.set_offline(table.uuid, table.name, True)

    def offline(self, tenant: str, namespace: str, among: Collection[str] | None = None) -> list[str]:
        """A namespace's tables that are offline, or those of them `among` some names, by name."""
        found = []
        for record in self._records.offline(tenant, namespace):
            if among is not None and record.name.table not in among:
                continue
            with suppress(TableNotFound):
                table = self._catalog.load(record.name)
                if table.uuid == record.uuid and not is_online(table.properties):
                    found.append(record.name.table)
        return sorted(found)

    def remove_overdue(self) -> int:
        """Remove dropped tables that need no longer be kept, with their files; returns how many."""
        self._adopt()
        removed = 0
        for record in self._records.overdue(self._now_ms()):
            try:
                removed += self._remove(record)
            except Exception as e:  # the others need not wait for it
                log.warning("the dropped table %s could not be removed; it is tried again: %s", record.name, e)
        return removed

    def _take(
        self,
        step: TableStep,
        table: Table,
        record: TableRecord,
        to: TableName,
        call: Call,
        check: Callable[[Table], None] = lambda table: None,
    ) -> str:
        """Take a step, once the changes before it are done, and return its batch. What the catalog raises is raised
        unless it happened."""
        with self._commits.locked(table):
            left = self._records.find(table.uuid)
            if left and left.step and left.step.kind in STEPS:  # its request has ended, as we hold the table's lock
                self._locator.settle(left)
            current = self._commits.current(table)
            check(current)
            quarantine = self._quarantines.find(current, record)
            if quarantine is None:
                return self._move(step, current, record, to, call)
            if step.kind != DROP and quarantine.name != quarantine_name(to):
                self._must_be_free(quarantine_name(to))
            with self._commits.locked(quarantine):
                return self._move(with_quarantine(step, quarantine, record, to), current, record, to, call)

    def _move(self, step: TableStep, table: Table, record: TableRecord, to: TableName, call: Call) -> str:
        """Take a step while the changes of the table wait."""
        batch = uuid.uuid4().hex
        keys = {call.key.id: call.key.fingerprint} if call.key else None
        change = NewBatch(batch, record.name, table.uuid, step.kind, [call.id[:200]], keys=keys)
        record = self._records.begin(change, record, step)
        happened = True
        try:
            self._catalog.rename(table, to)
        except Exception:
            try:
                happened = self._locator.happened(record)
            except FirnError:
                self._commits.batches.unresolved.add(batch)
                happened = False
            else:
                self._end(record, batch, happened)
            if not happened:
                raise
            log.warning("%s of %s was done although the catalog failed", step.kind, record.name, exc_info=True)
        else:
            self._end(record, batch, True)
        return batch

    def _end(self, record: TableRecord, batch: str, happened: bool) -> None:
        try:
            self._locator.record_end(record, happened)
        except FirnError as e:  # the catalog says what happened, not the ledger
            self._commits.batches.unresolved.add(batch)
            log.error("the end of batch %s could not be recorded yet: %s", batch, e.message)

    def _must_be_free(self, name: TableName) -> None:
        with suppress(TableNotFound):
            self._catalog.load(name)
            raise TableExists(
                f"table {name.table!r} already exists in namespace {name.namespace!r}; choose another new_name, or "
                "rename or drop that one first",
                field="new_name",
            )

    def _restorable(self, name: TableName, table_id: str | None) -> TableRecord:
        dropped = self.dropped(name.tenant, name.namespace)
        for record in dropped:
            if record.name == name and (table_id is None or record.uuid == table_id.lower()):
                return record
        others = sorted({record.name.table for record in dropped})
        near, hint = did_you_mean(name.table, others, None if others else "none of this namespace can be restored")
        if name.table in others:
            hint = "LIST_TABLES with include_dropped: true lists the ids of those that can"
        which = f"{name.table!r}" if table_id is None else f"{name.table!r} with the id {table_id[:80]!r}"
        raise TableNotFound(
            f"no dropped table {which} of namespace {name.namespace!r} can be restored; {hint}",
            field="table" if table_id is None else "table_id",
            suggestion=near,
        )

    def _dropped_before(self, table_uuid: str, purge: bool, batch: str) -> DroppedTable:
        record = self._records.find(table_uuid)
        until = None if record is None or purge else record.keep_until_ms
        quarantine = self._records.companion_of_step(table_uuid, batch)
        return DroppedTable(table_uuid, until, purge and record is None, quarantine)

    def _remove(self, record: TableRecord) -> bool:
        """Remove a dropped table and its files; false if it is being restored, or removed by another thread or
        instance."""
        with self._lock:
            if record.uuid in self._removing:
                return False
            self._removing.add(record.uuid)
        try:
            if not self._records.start_removal(record):
                return False
            try:
                table = self._catalog.load(dropped_table_name(record.uuid))
            except TableNotFound:  # an earlier removal got as far as this
                if record.folder is not None:
                    self._catalog.remove_folder(record.folder)
            else:
                self._catalog.drop(table, purge=owns_its_files(table))
            self._records.forget(record.uuid)
        finally:
            with self._lock:
                self._removing.discard(record.uuid)
        log.info("the dropped table %s was removed", record.name)
        return True

    def _adopt(self) -> None:
        """Record tables as dropped that are where dropped ones are kept: their step happened after it had timed out."""
        for kept in self._catalog.list_tables(*DROPPED_NAMESPACE):
            with suppress(ValueError):
                record = self._records.find(str(uuid.UUID(kept)))
                if record is not None and record.state == HERE and record.step is None:
                    self._records.mark_dropped(record, self._now_ms() + self._settings.retention_hours * HOUR_MS)


def check_purge(*, purge: bool, confirm: bool) -> None:
    """Raise ConfirmationRequired if a request would delete the files of a table and does not confirm it."""
    if purge and not confirm:
        raise ConfirmationRequired(
            "purge deletes every file of the table for good; send confirm: true to do it, "
            "or leave purge out, so that RESTORE_TABLE can restore it",
            field="confirm",
        )

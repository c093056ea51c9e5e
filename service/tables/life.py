"""A table's life: renamed, dropped, restored, and removed for good when nobody may want it back any more."""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.commits.file_removal import owns_its_files
from service.commits.locator import TableLocator
from service.errors import FirnError, InvalidRequest, TableExists, TableNotFound, nearest
from service.ledger.ledger import NewBatch
from service.ledger.places import DROP, HERE, RENAME, RESTORE, STEPS, TableRecord, TableRecords, TableStep
from service.metrics.metrics import Metrics
from service.model.call import Call
from service.model.names import DROPPED_PLACE, TableName, dropped_table_name
from service.model.properties import ONLINE, is_online
from service.settings import DroppedTableSettings

log = logging.getLogger("firn.life")
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class DroppedTable:
    """A table that was dropped; it can be restored until a time, unless its files are gone."""

    table_id: str
    restorable_until_ms: int | None
    purged: bool


class TableLife:
    """Renames, drops and restores tables; each is one step of the catalog, noted before it."""

    def __init__(
        self,
        settings: DroppedTableSettings,
        catalog: Catalog,
        commits: Commits,
        lives: TableRecords,
        metrics: Metrics | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._commits = commits
        self._lives = lives
        self._whereabouts = TableLocator(catalog, lives)
        self._metrics = metrics or Metrics()
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._removing: set[str] = set()

    def rename(self, name: TableName, new_name: str, call: Call) -> None:
        """Give a table another name in its namespace; TableExists where that is taken."""
        if self._commits.earlier_batch(call):
            return
        table, to = self._catalog.load(name), replace(name, table=new_name)
        if to == name:
            raise InvalidRequest("new_name is the table's name already; choose another", field="new_name")
        self._must_be_free(to)
        self._step(
            table,
            TableRecord(table.uuid, name),
            TableStep(RENAME, new_name),
            call,
            lambda t: self._catalog.rename(t, to),
        )
        self._metrics.dropped(name)

    def drop(self, name: TableName, call: Call, *, purge: bool) -> DroppedTable:
        """Drop a table once the changes before it are done; with `purge` its files go at once."""
        happened = self._commits.earlier_batch(call)
        if happened:
            return self._dropped_before(happened.table_uuid, purge)
        table = self._catalog.load(name)
        until = self._now_ms() + (0 if purge else self._settings.retention_hours * HOUR_MS)
        place = dropped_table_name(table.uuid)
        folder = table.location if owns_its_files(table) else None
        step = TableStep(DROP, keep_until_ms=until, folder=folder)
        self._step(table, TableRecord(table.uuid, name), step, call, lambda t: self._catalog.rename(t, place))
        self._metrics.dropped(name)
        if not purge:
            return DroppedTable(table.uuid, until, purged=False)
        self._remove_now(table.uuid)
        return self._dropped_before(table.uuid, purge)

    def restore(self, name: TableName, new_name: str | None, table_id: str | None, call: Call) -> TableName:
        """Bring back the table that was dropped last of those called so, or the one of this id; under which name."""
        happened = self._commits.earlier_batch(call)
        to = replace(name, table=new_name or name.table)
        if happened:
            return to
        life = self._restorable(name, table_id)
        self._must_be_free(to)
        kept = self._catalog.load(dropped_table_name(life.uuid))
        step = TableStep(RESTORE, to.table)
        self._step(kept, life, step, call, lambda t: self._catalog.rename(t, to))
        return to

    def dropped(self, tenant: str, namespace: str) -> list[TableRecord]:
        """A namespace's dropped tables that can be restored, the last one first."""
        return [life for life in self._lives.dropped(tenant, namespace) if self._is_restorable(life)]

    def set_online(self, table: Table, online: bool, call: Call) -> None:
        """Allow or stop the maintenance of a table that nobody asks for."""
        if not online:
            self._lives.set_offline(table.uuid, table.name, True)
        properties = {ONLINE: None if online else "false"}
        self._commits.alter(
            table, "SET_ONLINE", call, lambda current, batch: self._catalog.set_properties(current, properties)
        )
        if online:
            self._lives.set_offline(table.uuid, table.name, False)

    def offline(self, tenant: str, namespace: str) -> list[str]:
        """A namespace's tables that are offline, by name."""
        found = []
        for life in self._lives.offline(tenant, namespace):
            with suppress(TableNotFound):
                table = self._catalog.load(life.name)
                if table.uuid == life.uuid and not is_online(table.properties):
                    found.append(life.name.table)
        return sorted(found)

    def remove_overdue(self) -> int:
        """Remove dropped tables whose time is over, with their files; how many those were."""
        self._adopt()
        removed = 0
        for life in self._lives.overdue(self._now_ms()):
            try:
                removed += self._remove(life)
            except Exception as e:  # the others need not wait for it
                log.warning("the dropped table %s could not be removed; it is tried again: %s", life.name, e)
        return removed

    def _step(
        self, table: Table, life: TableRecord, step: TableStep, call: Call, act: Callable[[Table], object]
    ) -> None:
        """Take a step, once the changes before it are done. What `act` raises is raised unless it happened."""
        with self._commits.locked(table):
            left = self._lives.find(table.uuid)
            if left and left.step and left.step.kind in STEPS:  # its request has ended, as we hold the table's lock
                self._whereabouts.settle(left)
            current = self._commits.current(table)
            batch = uuid.uuid4().hex
            keys = {call.key.id: call.key.fingerprint} if call.key else None
            begun = NewBatch(batch, life.name, table.uuid, step.kind, [call.id[:200]], keys=keys)
            life = self._lives.begin(begun, life, step)
            try:
                act(current)
            except Exception:
                if not self._found_taken(life, batch):
                    raise
                log.warning("%s of %s was done although the catalog failed", step.kind, life.name, exc_info=True)
            else:
                self._note(life, batch, True)

    def _found_taken(self, life: TableRecord, batch: str) -> bool:
        try:
            happened = self._whereabouts.happened(life)
        except FirnError:
            self._commits.mark_unresolved(batch)
            return False
        self._note(life, batch, happened)
        return happened

    def _note(self, life: TableRecord, batch: str, happened: bool) -> None:
        try:
            self._whereabouts.note(life, happened)
        except FirnError as e:  # what the catalog says has happened, not the note
            self._commits.mark_unresolved(batch)
            log.error("the end of batch %s could not be noted; it will be: %s", batch, e.message)

    def _must_be_free(self, name: TableName) -> None:
        with suppress(TableNotFound):
            self._catalog.load(name)
            raise TableExists(
                f"table {name.table!r} exists already in namespace {name.namespace!r}; choose another new_name, or "
                "rename or drop that one first",
                field="new_name",
            )

    def _restorable(self, name: TableName, table_id: str | None) -> TableRecord:
        found = [life for life in self.dropped(name.tenant, name.namespace) if life.name == name]
        if table_id is not None:
            found = [life for life in found if life.uuid == table_id.lower()]
        if found:
            return found[0]
        others = sorted({life.name.table for life in self.dropped(name.tenant, name.namespace)})
        near = nearest(name.table, others)
        if name.table in others:
            hint = "LIST_TABLES with include_dropped: true has the ids of those there are"
        elif others:
            hint = f"did you mean {near!r}?" if near else f"those there are: {', '.join(others[:10])}"
        else:
            hint = "none of this namespace can be restored"
        which = f"{name.table!r}" if table_id is None else f"{name.table!r} with the id {table_id[:80]!r}"
        raise TableNotFound(
            f"no dropped table {which} of namespace {name.namespace!r} can be restored; {hint}",
            field="table" if table_id is None else "table_id",
            suggestion=near,
        )

    def _is_restorable(self, life: TableRecord) -> bool:
        return life.step is None and (life.keep_until_ms or 0) > self._now_ms()

    def _dropped_before(self, table_uuid: str, purge: bool) -> DroppedTable:
        life = self._lives.find(table_uuid)
        until = None if life is None or purge else life.keep_until_ms
        return DroppedTable(table_uuid, until, purged=purge and life is None)

    def _remove_now(self, table_uuid: str) -> None:
        """Remove the files of a table that was dropped just now; upkeep does it where this fails."""
        try:
            life = self._lives.find(table_uuid)
            if life is not None:
                self._remove(life)
        except Exception as e:
            log.warning("the files of a purged table could not be removed; it is tried again: %s", e)

    def _remove(self, life: TableRecord) -> bool:
        with self._one_removes(life.uuid) as first:
            if not first or not self._lives.take_away(life):
                return False
            try:
                table = self._catalog.load(dropped_table_name(life.uuid))
            except TableNotFound:  # an earlier removal got as far as this
                if life.folder is not None:
                    self._catalog.remove_folder(life.folder)
            else:
                self._catalog.drop(table, purge=owns_its_files(table))
            self._lives.forget(life.uuid)
        log.info("the dropped table %s was removed", life.name)
        return True

    @contextmanager
    def _one_removes(self, table_uuid: str) -> Iterator[bool]:
        with self._lock:
            first = table_uuid not in self._removing
            self._removing.add(table_uuid)
        try:
            yield first
        finally:
            if first:
                with self._lock:
                    self._removing.discard(table_uuid)

    def _adopt(self) -> None:
        """Tables that are kept as dropped and that nobody says are: a step came through after it was given up."""
        for kept in self._catalog.list_tables(*DROPPED_PLACE):
            with suppress(ValueError):
                table_uuid = str(uuid.UUID(kept))
                life = self._lives.find(table_uuid)
                if life is not None and life.state == HERE and life.step is None:
                    self._lives.take_for_dropped(life, self._now_ms() + self._settings.retention_hours * HOUR_MS)

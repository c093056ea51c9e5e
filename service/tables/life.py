"""A table's life: renamed, dropped, restored, and removed for good when nobody may want it back any more."""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from service.catalog.tables import Catalog, Table
from service.commits.ask import Ask
from service.commits.commit import Commits
from service.commits.whereabouts import STEPS, Whereabouts
from service.errors import FirnError, InvalidRequest, TableExists, TableNotFound, nearest
from service.ledger.ledger import Begun
from service.ledger.lives import DROP, HERE, RENAME, RESTORE, Life, Lives, Step
from service.metrics.metrics import Metrics
from service.names import DROPPED_PLACE, TableName, place_of_dropped
from service.properties import ONLINE, is_online
from service.settings import DroppedSettings
from service.upkeep.removal import owns_its_files

log = logging.getLogger("firn.life")
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Dropped:
    """A table that was dropped; it can be restored until a time, unless its files are gone."""

    table_id: str
    restorable_until_ms: int | None
    purged: bool


class TableLife:
    """Renames, drops and restores tables; each is one step of the catalog, noted before it."""

    def __init__(
        self,
        settings: DroppedSettings,
        catalog: Catalog,
        commits: Commits,
        lives: Lives,
        metrics: Metrics | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._commits = commits
        self._lives = lives
        self._whereabouts = Whereabouts(catalog, lives)
        self._metrics = metrics or Metrics()
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._removing: set[str] = set()

    def rename(self, name: TableName, new_name: str, ask: Ask) -> None:
        """Give a table another name in its namespace; TableExists where that is taken."""
        if self._commits.happened(ask):
            return
        table, to = self._catalog.load(name), replace(name, table=new_name)
        if to == name:
            raise InvalidRequest("new_name is the table's name already; choose another", field="new_name")
        self._must_be_free(to)
        self._step(table, Life(table.uuid, name), Step(RENAME, new_name), ask, lambda t: self._catalog.rename(t, to))
        self._metrics.dropped(name)

    def drop(self, name: TableName, ask: Ask, *, purge: bool) -> Dropped:
        """Drop a table once the changes before it are done; with `purge` its files go at once."""
        happened = self._commits.happened(ask)
        if happened:
            return self._dropped_before(happened.table_uuid, purge)
        table = self._catalog.load(name)
        until = self._now_ms() + (0 if purge else self._settings.kept_hours * HOUR_MS)
        place = place_of_dropped(table.uuid)
        folder = table.location if owns_its_files(table) else None
        step = Step(DROP, keep_until_ms=until, folder=folder)
        self._step(table, Life(table.uuid, name), step, ask, lambda t: self._catalog.rename(t, place))
        self._metrics.dropped(name)
        if not purge:
            return Dropped(table.uuid, until, purged=False)
        self._remove_now(table.uuid)
        return self._dropped_before(table.uuid, purge)

    def restore(self, name: TableName, new_name: str | None, table_id: str | None, ask: Ask) -> TableName:
        """Bring back the table that was dropped last of those called so, or the one of this id; under which name."""
        happened = self._commits.happened(ask)
        to = replace(name, table=new_name or name.table)
        if happened:
            return to
        life = self._restorable(name, table_id)
        self._must_be_free(to)
        kept = self._catalog.load(place_of_dropped(life.uuid))
        step = Step(RESTORE, to.table, life.keep_until_ms, life.folder)
        self._step(kept, life, step, ask, lambda t: self._catalog.rename(t, to))
        return to

    def dropped(self, tenant: str, namespace: str) -> list[Life]:
        """A namespace's dropped tables that can be restored, the last one first."""
        return [life for life in self._lives.dropped(tenant, namespace) if self._is_restorable(life)]

    def set_online(self, table: Table, online: bool) -> None:
        """Have upkeep that nobody asks for look after a table again, or no more."""
        if not online:
            self._lives.set_offline(table.uuid, table.name, True)
        self._commits.set_properties(table, lambda _: {ONLINE: None if online else "false"})
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

    def _step(self, table: Table, life: Life, step: Step, ask: Ask, act: Callable[[Table], object]) -> None:
        """Take a step, once the changes before it are done. What `act` raises is raised unless it happened."""
        with self._commits.alone_with(table):
            left = self._lives.find(table.uuid)
            if left is not None and left.step in STEPS:  # by somebody who has ended, as nobody else is at it
                self._whereabouts.settle(left)
            current = self._commits.same(table)
            batch = uuid.uuid4().hex
            keys = {ask.key.id: ask.key.fingerprint} if ask.key else None
            begun = Begun(batch, life.name, table.uuid, STEPS[step.kind], [ask.request_id[:200]], keys=keys)
            self._lives.begin(begun, life, step)
            life = replace(life, step=step.kind, to_name=step.to_name, batch=batch)
            try:
                act(current)
            except Exception:
                if not self._found_taken(life):
                    raise
                log.warning("%s of %s was done although the catalog failed", step.kind, life.name, exc_info=True)
            else:
                self._note(life, True)

    def _found_taken(self, life: Life) -> bool:
        try:
            happened = self._whereabouts.happened(life)
        except FirnError:
            self._commits.unsure(life.batch)
            return False
        self._note(life, happened)
        return happened

    def _note(self, life: Life, happened: bool) -> None:
        try:
            self._whereabouts.note(life, happened)
        except FirnError as e:  # what the catalog says has happened, not the note
            self._commits.unsure(life.batch)
            log.error("the end of batch %s could not be noted; it will be: %s", life.batch, e.message)

    def _must_be_free(self, name: TableName) -> None:
        with suppress(TableNotFound):
            self._catalog.load(name)
            raise TableExists(
                f"table {name.table!r} exists already in namespace {name.namespace!r}; choose another new_name, or "
                "rename or drop that one first",
                field="new_name",
            )

    def _restorable(self, name: TableName, table_id: str | None) -> Life:
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

    def _is_restorable(self, life: Life) -> bool:
        return life.step is None and (life.keep_until_ms or 0) > self._now_ms()

    def _dropped_before(self, table_uuid: str, purge: bool) -> Dropped:
        life = self._lives.find(table_uuid)
        until = None if life is None or purge else life.keep_until_ms
        return Dropped(table_uuid, until, purged=purge and life is None)

    def _remove_now(self, table_uuid: str) -> None:
        """Remove the files of a table that was dropped just now; upkeep does it where this fails."""
        try:
            life = self._lives.find(table_uuid)
            if life is not None:
                self._remove(life)
        except Exception as e:
            log.warning("the files of a purged table could not be removed; it is tried again: %s", e)

    def _remove(self, life: Life) -> bool:
        with self._one_removes(life.uuid) as first:
            if not first or not self._lives.take_away(life):
                return False
            try:
                table = self._catalog.load(place_of_dropped(life.uuid))
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
                    self._lives.take_for_dropped(life, self._now_ms() + self._settings.kept_hours * HOUR_MS)

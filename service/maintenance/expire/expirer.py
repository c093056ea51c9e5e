"""Old snapshots let go of: decided from metadata, committed in the table's turn, their files deleted after it."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from service.catalog.history import History, history
from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.commits.file_removal import delete_files, owns_its_files
from service.engine.iceberg.expire import ExpiredSnapshots, remove, unneeded
from service.engine.session.engine import Engine
from service.errors import CommitConflict
from service.maintenance.expire.retention import (
    ExpiryDecision,
    ExpiryResult,
    KeptSnapshot,
    by_age,
    by_policy,
    commits_until,
)
from service.model.names import TableName
from service.model.properties import snapshot_policy
from service.settings import SnapshotSettings

log = logging.getLogger("firn.maintenance")

TRIES = 3
HOUR_MS = 3_600_000
_SHARED = "the table's property gc.enabled is false: others may need its files"

# Says which of a table's snapshots must stay, whatever their age, and why.
Keeper = Callable[[Table], Mapping[int, str]]
_Choice = Callable[[Table, History], ExpiryDecision]


@dataclass(frozen=True)
class Expirer:
    """Lets old snapshots go; never one that is current, that a branch or tag keeps, or that a keeper names.

    What `wished` names stays too, unless somebody asks for an expiry by age.
    """

    settings: SnapshotSettings
    engine: Engine
    catalog: Catalog
    commits: Commits
    keepers: Sequence[Keeper]
    wished: Keeper = lambda table: {}

    def by_policy(self, name: TableName, table_uuid: str, slack: int) -> int:
        """Let go of what the table's policy does not keep, if that is `slack` or more.

        Returns how many more commits it takes until looking again is worth it.
        """
        table = self.catalog.load(name)
        if table.uuid != table_uuid:
            return slack
        policy = snapshot_policy(table.properties, self.settings)

        def choose(current: Table, past: History) -> ExpiryDecision:
            needed = self._needed(current).keys() | self.wished(current).keys()
            return by_policy(past, policy, needed, _now_ms())

        expirable = len(self._verdict(table, choose).snapshots)
        gone = self._expire(table, choose).snapshots if expirable >= slack else 0
        return commits_until(slack, policy, table.snapshot_count - gone, expirable - gone)

    def by_age(self, table: Table, hours: int, still_ours: Callable[[], None] = lambda: None) -> ExpiryResult:
        """Let go of what is older than so many hours. `still_ours` is called right before: what it raises ends it."""

        def choose(current: Table, past: History) -> ExpiryDecision:
            now_ms = _now_ms()
            return by_age(past, now_ms - hours * HOUR_MS, self._needed(current), now_ms)

        verdict = self._verdict(table, choose)
        return self._expire(table, choose, still_ours) if verdict else ExpiryResult(kept=verdict.kept)

    def _expire(self, table: Table, choose: _Choice, still_ours: Callable[[], None] = lambda: None) -> ExpiryResult:
        for attempt in range(1, TRIES + 1):
            try:
                verdict, removed = self._remove(table, choose, still_ours)
                break
            except CommitConflict as e:
                if attempt == TRIES:
                    raise
                log.info("the expiry of %s was beaten, trying again: %s", table.name, e.message)
        if removed is None:
            return ExpiryResult(kept=verdict.kept)
        snapshots, files = len(verdict.snapshots), 0
        try:
            files = delete_files(self.engine, table, self.engine.run(unneeded, removed))
        except Exception:  # the snapshots are gone all the same; their files take room and do nothing else
            log.exception("the files of %d old snapshots of %s were not deleted", snapshots, table.name)
        else:
            log.info("%d old snapshots of %s were let go, with %d files", snapshots, table.name, files)
        return ExpiryResult(snapshots, files, verdict.kept)

    def _remove(
        self, table: Table, choose: _Choice, still_ours: Callable[[], None]
    ) -> tuple[ExpiryDecision, ExpiredSnapshots | None]:
        # A change looks for the snapshot it made while it has its turn; until then that must not expire.
        with self.commits.table_lock(table):
            current = self.catalog.load(table.name)
            verdict = self._verdict(current, choose) if current.uuid == table.uuid else ExpiryDecision()
            if not verdict:
                return verdict, None
            still_ours()
            removed = self.engine.run(
                remove, current.spark_name, current.metadata_location, verdict.snapshots, verdict.refs
            )
            return verdict, removed

    def _verdict(self, table: Table, choose: _Choice) -> ExpiryDecision:
        verdict = choose(table, history(table))
        if owns_its_files(table):
            return verdict
        shared = tuple(KeptSnapshot(snapshot_id, _SHARED) for snapshot_id in verdict.snapshots)
        return ExpiryDecision(kept=(*shared, *verdict.kept))

    def _needed(self, table: Table) -> dict[int, str]:
        needed: dict[int, str] = {}
        for keeper in self.keepers:
            for snapshot_id, reason in keeper(table).items():
                needed.setdefault(snapshot_id, reason)
        return needed


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

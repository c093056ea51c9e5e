"""Expires old snapshots: decided from metadata, committed under the table's lock; then their files are deleted."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from service.catalog.history import History, history
from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.commits.file_removal import delete_files, owns_its_files
from service.engine.iceberg.expire import ExpiredSnapshots, remove, unneeded_files
from service.engine.session.engine import Engine
from service.errors import CommitConflict
from service.jobs.jobs import Jobs
from service.maintenance.expire import retention
from service.maintenance.expire.retention import ExpiryDecision, ExpiryResult, KeptSnapshot
from service.maintenance.orphans.orphans import SLACK_MS
from service.model.names import TableName
from service.model.properties import snapshot_policy
from service.model.times import HOUR_MS, now_ms
from service.settings import SnapshotSettings

log = logging.getLogger("firn.maintenance")

TRIES = 3
_BUILT_ON = "a bulk load or a compaction of another instance builds on it"
_SHARED = "the table's property gc.enabled is false: others may need its files"

# Returns the snapshots of a table that must be kept, whatever their age, and why.
Keeper = Callable[[Table], Mapping[int, str]]
_Rule = Callable[[Table, History], ExpiryDecision]


@dataclass(frozen=True)
class Expirer:
    """Expires old snapshots; never the current one, one that a branch or tag keeps, or one that a keeper names.
    Snapshots that `policy_keeper` names expire only by age, not by policy."""

    settings: SnapshotSettings
    engine: Engine
    catalog: Catalog
    commits: Commits
    keepers: Sequence[Keeper]
    policy_keeper: Keeper = lambda table: {}

    def by_policy(self, name: TableName, table_uuid: str, slack: int) -> int:
        """Expire what the table's policy does not keep, if that is `slack` snapshots or more. Returns the number of
        commits after which to call it again."""
        table = self.catalog.load(name)
        if table.uuid != table_uuid:
            return slack
        policy = snapshot_policy(table.properties, self.settings)

        def rule(current: Table, past: History) -> ExpiryDecision:
            needed = self._needed(current).keys() | self.policy_keeper(current).keys()
            return retention.by_policy(past, policy, needed, now_ms())

        expirable = len(_decide(table, rule).snapshots)
        gone = self._expire(table, rule).snapshots if expirable >= slack else 0
        return retention.commits_until(slack, policy, table.snapshot_count - gone, expirable - gone)

    def by_age(self, table: Table, hours: int, still_ours: Callable[[], None] = lambda: None) -> ExpiryResult:
        """Expire snapshots older than some hours. `still_ours` is called directly before the commit; it may raise."""

        def rule(current: Table, past: History) -> ExpiryDecision:
            now = now_ms()
            return retention.by_age(past, now - hours * HOUR_MS, self._needed(current), now)

        decision = _decide(table, rule)
        return self._expire(table, rule, still_ours) if decision else ExpiryResult(kept=decision.kept)

    def _expire(self, table: Table, rule: _Rule, still_ours: Callable[[], None] = lambda: None) -> ExpiryResult:
        for attempt in range(1, TRIES + 1):
            try:
                decision, removed = self._remove(table, rule, still_ours)
                break
            except CommitConflict as e:
                if attempt == TRIES:
                    raise
                log.info("another commit came before the expiry of %s, trying again: %s", table.name, e.message)
        if removed is None:
            return ExpiryResult(kept=decision.kept)
        snapshots, files = len(decision.snapshots), 0
        try:
            files = delete_files(self.engine, table, self.engine.run(unneeded_files, removed))
        except Exception:  # the snapshots are gone all the same; their files only take space
            log.exception("the files of %d old snapshots of %s were not deleted", snapshots, table.name)
        else:
            log.info("%d old snapshots of %s expired, with %d files", snapshots, table.name, files)
        return ExpiryResult(snapshots, files, decision.kept)

    def _remove(
        self, table: Table, rule: _Rule, still_ours: Callable[[], None]
    ) -> tuple[ExpiryDecision, ExpiredSnapshots | None]:
        # A change looks for the snapshot it made while it holds the lock; until then that must not expire.
        with self.commits.locks.hold(table.uuid):
            current = self.catalog.load(table.name)
            decision = _decide(current, rule) if current.uuid == table.uuid else ExpiryDecision()
            if not decision:
                return decision, None
            still_ours()
            location, snapshots = current.metadata_location, decision.snapshots
            return decision, self.engine.run(remove, current.spark_name, location, snapshots, decision.refs)

    def _needed(self, table: Table) -> dict[int, str]:
        """The snapshots that keepers name, each with the first keeper's reason."""
        return {id: reason for keeper in reversed(self.keepers) for id, reason in keeper(table).items()}


def built_on_by_other_instances(jobs: Jobs, table: Table) -> dict[int, str]:
    """Every snapshot since the one that the first job of another instance started from."""
    if not jobs.records.shared:
        return {}
    started = [job.started_ms or 0 for job in jobs.writing(table.uuid) if job.owner != jobs.records.me]
    if not started:
        return {}
    versions = history(table).versions
    before = sum(version.timestamp_ms < min(started) - SLACK_MS for version in versions)
    return {version.snapshot_id: _BUILT_ON for version in versions[max(0, before - 1) :]}


def _decide(table: Table, rule: _Rule) -> ExpiryDecision:
    decision = rule(table, history(table))
    if owns_its_files(table):
        return decision
    shared = tuple(KeptSnapshot(snapshot_id, _SHARED) for snapshot_id in decision.snapshots)
    return ExpiryDecision(kept=(*shared, *decision.kept))

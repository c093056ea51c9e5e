"""Keeping tables fast: the check that notices small files, and the compaction that merges them."""

import logging
import time
from dataclasses import dataclass, field

from service.catalog.files import TableFiles, list_files, matching_files
from service.catalog.tables import Catalog, Snapshot, Table
from service.commits.ask import Ask
from service.commits.commit import Commits
from service.commits.holds import Holds
from service.engine.compaction import Rewrite, rewrite
from service.engine.engine import Engine
from service.metrics.catalogue import DONE, FAILED, NOTHING
from service.metrics.metrics import Metrics
from service.names import TableName
from service.properties import CompactionPolicy, compaction_policy, target_file_size_mb
from service.settings import CompactionSettings, IcebergSettings
from service.upkeep.counts import WriteCounts
from service.upkeep.expirer import Expirer
from service.upkeep.plan import MIB, Plan, plan, small_bytes
from service.upkeep.report import Check, Outcome, Wish, stats

log = logging.getLogger("firn.upkeep")
NOT_CHECKED = Check(False, None)


@dataclass(frozen=True)
class Upkeep:
    """Looks after tables; plans and counts from metadata, and leaves the merging to Spark."""

    settings: IcebergSettings
    engine: Engine
    catalog: Catalog
    commits: Commits
    counts: WriteCounts
    holds: Holds
    expirer: Expirer
    metrics: Metrics = field(default_factory=Metrics)

    def policy(self, table: Table) -> CompactionPolicy:
        """The compaction settings that hold for a table."""
        return compaction_policy(table.properties, self.settings.compaction)

    def small_bytes(self, table: Table) -> int:
        """Below what size a file of this table counts as small."""
        return small_bytes(self.policy(table), target_file_size_mb(table.properties, self.settings))

    def check_after_write(self, table: Table) -> Check:
        """Count a WRITE of the table that was committed alone, and its small files if it is the Nth."""
        checks = self.check_batch(table, 1)
        self.counts.keep(table.uuid, 1)
        return checks.get(0, NOT_CHECKED)

    def check_batch(self, table: Table, writes: int) -> dict[int, Check]:
        """Count WRITEs that share a commit: what those found that are the Nth of the table.

        It never fails the writes before it. The caller keeps the count.
        """
        total = self.counts.add(table.uuid, writes)
        try:
            policy = self.policy(table)
            interval = policy.opportunistic_check_interval
            due = [i for i in range(writes) if (total - writes + i + 1) % interval == 0] if policy.active else []
            if not due:
                return {}
            now = self.catalog.load(table.name)
            found = plan(list_files(now).data, self.small_bytes(now), policy.min_files_to_compact)
            check = Check(bool(found.worth_merging), len(found.small))
            self.metrics.checked(table.name, len(found.small))
            if check.compaction_recommended:
                self.metrics.recommended(table.name)
            return dict.fromkeys(due, check)
        except Exception:
            log.exception("the small files of %s could not be counted", table.name)
            return {}

    def compact(self, table: Table, wish: Wish, ask: Ask) -> Outcome:
        """Merge the small files of a table where it is worth it, then let old snapshots go."""
        started = time.monotonic()
        with self.holds.building_on(table.uuid, table.current_snapshot_id):
            try:
                merged = self._merge(table, wish, ask)
            except Exception:
                self.metrics.compacted(table.name, FAILED)
                raise
        expired = self.expirer.by_age(merged.table, wish.snapshot_retention_hours) if wish.expire_snapshots else 0
        elapsed = round((time.monotonic() - started) * 1000)
        outcome = Outcome(
            compacted=merged.snapshot is not None,
            reason=merged.reason,
            stats=stats(merged.before, merged.after, merged.snapshot, expired, elapsed, merged.how),
            snapshot_id=merged.snapshot.snapshot_id if merged.snapshot else merged.table.current_snapshot_id,
        )
        _tell(self.metrics, table.name, outcome)
        return outcome

    def _merge(self, table: Table, wish: Wish, ask: Ask) -> "_Merged":
        policy = self.policy(table)
        how = self._how(table, policy, wish)
        found = plan(matching_files(table, wish.filter_json), how.small_bytes, how.min_files)
        # What an earlier attempt with the same key merged is answered, not looked for again.
        reason = None if self.commits.happened(ask) else _why_not(found, policy, how, wish)
        before = after = list_files(table)
        snapshot: Snapshot | None = None
        if reason is None:
            effect = self.commits.commit(
                table,
                "COMPACT",
                ask,
                lambda current, batch: self.engine.run(rewrite, current.spark_name, how, batch),
                in_order=False,  # writers never wait for a compaction
            )
            table, snapshot = effect.after, effect.snapshot
            if snapshot is None:
                reason = "the files to merge were changed by other writers meanwhile; try again"
            else:
                # What others committed meanwhile is not this compaction's doing.
                before, after = list_files(table, snapshot.parent_id), list_files(table, snapshot.snapshot_id)
        return _Merged(table, how, before, after, snapshot, reason)

    def _how(self, table: Table, policy: CompactionSettings, wish: Wish) -> Rewrite:
        target_mb = wish.target_file_size_mb or target_file_size_mb(table.properties, self.settings)
        return Rewrite(
            small_bytes=small_bytes(policy, target_mb),
            target_bytes=target_mb * MIB,
            min_files=2 if wish.force else policy.min_files_to_compact,
            max_files=wish.max_files or policy.max_files_per_compaction,
            filter_json=wish.filter_json,
        )


@dataclass(frozen=True)
class _Merged:
    """What a compaction made of a table, or why it made nothing."""

    table: Table
    how: Rewrite
    before: TableFiles
    after: TableFiles
    snapshot: Snapshot | None
    reason: str | None


def _tell(metrics: Metrics, table: TableName, outcome: Outcome) -> None:
    told = outcome.stats
    metrics.compacted(
        table,
        DONE if outcome.compacted else NOTHING,
        told.files_before,
        told.files_after,
        told.files_compacted,
        told.bytes_before,
        told.bytes_after,
        seconds=told.compaction_time_ms / 1000,
    )
    if outcome.compacted:
        metrics.checked(table, told.small_files_remaining)


def _why_not(found: Plan, policy: CompactionSettings, how: Rewrite, wish: Wish) -> str | None:
    if found.worth_merging:
        if policy.active or wish.force:
            return None
        return "compaction is disabled for this table; force: true compacts it all the same"
    if not found.small:
        return "there are no small files"
    hint = "" if wish.force else "; force: true merges from 2"
    return (
        f"{len(found.small)} small file(s), but no partition has the {how.min_files} that make merging worth it{hint}"
    )

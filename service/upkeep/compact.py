"""A compaction: plan from metadata, merge with Spark, count from metadata what came of it."""

import time
from dataclasses import dataclass

from service.catalog.files import TableFiles, list_files, matching_files
from service.catalog.tables import Snapshot, Table
from service.context import Context
from service.engine.compaction import Rewrite, expire, rewrite
from service.names import TableName
from service.properties import compaction_policy, target_file_size_mb
from service.settings import CompactionSettings
from service.upkeep.plan import MIB, Plan, plan, small_bytes


@dataclass(frozen=True)
class Wish:
    """What a COMPACT asks for; None means the table's own policy."""

    force: bool = False
    target_file_size_mb: int | None = None
    max_files: int | None = None
    filter_json: str | None = None
    expire_snapshots: bool = True
    snapshot_retention_hours: int = 168


@dataclass(frozen=True)
class Stats:
    """Counted from the table before and after. `files_removed` left the table, `files_added` replaced them."""

    files_before: int
    files_after: int
    files_compacted: int
    files_removed: int
    files_added: int
    bytes_before: int
    bytes_after: int
    bytes_saved: int
    snapshots_expired: int
    compaction_time_ms: int
    small_files_remaining: int


@dataclass(frozen=True)
class Outcome:
    compacted: bool
    reason: str | None
    stats: Stats
    snapshot_id: int | None


def compact(context: Context, name: TableName, wish: Wish) -> Outcome:
    """Merge the small files of a table where it is worth it, then let old snapshots go."""
    started = time.monotonic()
    table = context.catalog.load(name)
    iceberg = context.settings.iceberg
    policy = compaction_policy(table.properties, iceberg.compaction)
    target_mb = wish.target_file_size_mb or target_file_size_mb(table.properties, iceberg)
    how = Rewrite(
        small_bytes=small_bytes(policy, target_mb),
        target_bytes=target_mb * MIB,
        min_files=2 if wish.force else policy.min_files_to_compact,
        max_files=wish.max_files or policy.max_files_per_compaction,
        filter_json=wish.filter_json,
    )
    found = plan(matching_files(table, wish.filter_json), how.small_bytes, how.min_files)
    reason = _why_not(found, policy, how, wish)
    before = after = list_files(table)
    snapshot: Snapshot | None = None
    if reason is None:
        effect = context.commits.commit(
            name,
            "COMPACT",
            context.request_id,
            lambda current, batch: context.engine.run(rewrite, current.spark_name, how, batch),
            in_order=False,  # writers never wait for a compaction
        )
        table, snapshot = effect.after, effect.snapshot
        if snapshot is None:
            reason = "the files to merge were changed by other writers meanwhile; try again"
        else:
            # What others committed meanwhile is not this compaction's doing.
            before, after = list_files(table, snapshot.parent_id), list_files(table, snapshot.snapshot_id)
    expired = _expire(context, table, wish) if wish.expire_snapshots else 0
    elapsed = round((time.monotonic() - started) * 1000)
    stats = _stats(before, after, snapshot, expired, elapsed, how)
    return Outcome(snapshot is not None, reason, stats, snapshot.snapshot_id if snapshot else table.current_snapshot_id)


def _why_not(found: Plan, policy: CompactionSettings, how: Rewrite, wish: Wish) -> str | None:
    if found.worth_merging:
        if policy.enabled or wish.force:
            return None
        return "compaction is disabled for this table; force: true compacts it all the same"
    if not found.small:
        return "there are no small files"
    hint = "" if wish.force else "; force: true merges from 2"
    return (
        f"{len(found.small)} small file(s), but no partition has the {how.min_files} that make merging worth it{hint}"
    )


def _expire(context: Context, table: Table, wish: Wish) -> int:
    older_than_ms = int((time.time() - wish.snapshot_retention_hours * 3600) * 1000)
    before = {s.snapshot_id for s in table.snapshots() if s.snapshot_id != table.current_snapshot_id}
    if not any(s.timestamp_ms < older_than_ms for s in table.snapshots() if s.snapshot_id in before):
        return 0
    context.engine.run(expire, table.spark_name, older_than_ms)
    left = {s.snapshot_id for s in context.catalog.load(table.name).snapshots()}
    return len(before - left)


def _stats(
    before: TableFiles, after: TableFiles, snapshot: Snapshot | None, expired: int, elapsed: int, how: Rewrite
) -> Stats:
    removed = snapshot.counted("deleted-data-files") if snapshot else 0
    return Stats(
        files_before=len(before.data),
        files_after=len(after.data),
        files_compacted=removed,
        files_removed=removed + (snapshot.counted("removed-delete-files") if snapshot else 0),
        files_added=snapshot.counted("added-data-files") if snapshot else 0,
        bytes_before=before.bytes,
        bytes_after=after.bytes,
        bytes_saved=before.bytes - after.bytes,
        snapshots_expired=expired,
        compaction_time_ms=elapsed,
        small_files_remaining=len(plan(after.data, how.small_bytes, how.min_files).small),
    )

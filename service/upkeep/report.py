"""What upkeep is asked for and what it reports."""

from dataclasses import dataclass

from service.catalog.files import TableFiles
from service.catalog.tables import Snapshot
from service.engine.compaction import Rewrite
from service.upkeep.expirer import Expired
from service.upkeep.plan import plan
from service.upkeep.retention import Kept


@dataclass(frozen=True)
class Check:
    """What the check after a WRITE found; `small_files_count` is None where it was not this write's turn."""

    compaction_recommended: bool
    small_files_count: int | None


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
    expired_files_deleted: int
    old_snapshots_kept: int
    compaction_time_ms: int
    small_files_remaining: int


@dataclass(frozen=True)
class Outcome:
    compacted: bool
    reason: str | None
    stats: Stats
    snapshot_id: int | None
    kept: tuple[Kept, ...] = ()
    """Snapshots that are old enough to go, and stay."""


def stats(
    before: TableFiles, after: TableFiles, snapshot: Snapshot | None, expired: Expired, elapsed_ms: int, how: Rewrite
) -> Stats:
    """The figures of a compaction, from the files before and after it and from what its commit says."""
    compacted = snapshot.counted("deleted-data-files") if snapshot else 0
    return Stats(
        files_before=len(before.data),
        files_after=len(after.data),
        files_compacted=compacted,
        files_removed=compacted + (snapshot.counted("removed-delete-files") if snapshot else 0),
        files_added=snapshot.counted("added-data-files") if snapshot else 0,
        bytes_before=before.bytes,
        bytes_after=after.bytes,
        bytes_saved=before.bytes - after.bytes,
        snapshots_expired=expired.snapshots,
        expired_files_deleted=expired.files,
        old_snapshots_kept=len(expired.kept),
        compaction_time_ms=elapsed_ms,
        small_files_remaining=len(plan(after.data, how.small_bytes, how.min_files).small),
    )

"""What upkeep is asked for and what it reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.catalog.files.data_files import TableFiles
from service.catalog.tables import Snapshot
from service.maintenance.expire.retention import ExpiryResult, KeptSnapshot


@dataclass(frozen=True)
class CompactionOptions:
    """What a COMPACT asks for; None means the table's own policy."""

    force: bool = False
    target_file_size_mb: int | None = None
    max_file_size_mb: int | None = None
    min_files: int | None = None
    max_files: int | None = None
    filter_json: str | None = None
    compression: str | None = None
    strategy: str | None = None
    sort_by: tuple[str, ...] | None = None
    rewrite_manifests: bool = False
    dry_run: bool = False
    expire_snapshots: bool = True
    snapshot_retention_hours: int | None = None


@dataclass
class CompactionProgress:
    """How far a compaction is. Whoever does it writes here; anybody may read."""

    phase: str = "queued"
    files_done: int = 0
    files_total: int = 0
    bytes_done: int = 0
    bytes_total: int = 0


@dataclass(frozen=True)
class PlannedGroup:
    """Files that would be merged at one go."""

    partition: str
    files: int
    bytes: int
    expected_files: int


@dataclass
class CompactionTally:
    """What the commits of one compaction came to: each counted from the table just before and just after it."""

    files_before: int
    bytes_before: int
    files_after: int = field(init=False)
    bytes_after: int = field(init=False)
    files_compacted: int = 0
    delete_files_removed: int = 0
    files_added: int = 0
    partitions: set[str] = field(default_factory=set)
    groups_failed: int = 0
    conflicts: int = 0

    def __post_init__(self) -> None:
        self.files_after, self.bytes_after = self.files_before, self.bytes_before

    def committed(self, before: TableFiles, after: TableFiles, snapshot: Snapshot) -> None:
        """Count a commit. What others committed before the first, or between two, is not this compaction's doing."""
        if not self.files_added:
            self.files_before = self.files_after = len(before.data)
            self.bytes_before = self.bytes_after = before.bytes
        self.files_after += len(after.data) - len(before.data)
        self.bytes_after += after.bytes - before.bytes
        self.files_compacted += snapshot.counted("deleted-data-files")
        self.delete_files_removed += snapshot.counted("removed-delete-files")
        self.files_added += snapshot.counted("added-data-files")


@dataclass(frozen=True)
class CompactionStats:
    """Counted from the table before and after. `files_removed` left the table, `files_added` replaced them."""

    files_before: int
    files_after: int
    files_compacted: int
    files_removed: int
    files_added: int
    bytes_before: int
    bytes_after: int
    bytes_saved: int
    partitions_compacted: int
    groups_failed: int
    conflicts: int
    spark_jobs: int
    manifests_rewritten: int
    snapshots_expired: int
    expired_files_deleted: int
    old_snapshots_kept: int
    compaction_time_ms: int
    small_files_remaining: int

    @classmethod
    def of(
        cls,
        tally: CompactionTally,
        expired: ExpiryResult,
        *,
        manifests_rewritten: int,
        spark_jobs: int,
        small_files_remaining: int,
        compaction_time_ms: int,
    ) -> "CompactionStats":
        return cls(
            files_before=tally.files_before,
            files_after=tally.files_after,
            files_compacted=tally.files_compacted,
            files_removed=tally.files_compacted + tally.delete_files_removed,
            files_added=tally.files_added,
            bytes_before=tally.bytes_before,
            bytes_after=tally.bytes_after,
            bytes_saved=tally.bytes_before - tally.bytes_after,
            partitions_compacted=len(tally.partitions),
            groups_failed=tally.groups_failed,
            conflicts=tally.conflicts,
            spark_jobs=spark_jobs,
            manifests_rewritten=manifests_rewritten,
            snapshots_expired=expired.snapshots,
            expired_files_deleted=expired.files,
            old_snapshots_kept=len(expired.kept),
            compaction_time_ms=compaction_time_ms,
            small_files_remaining=small_files_remaining,
        )


@dataclass(frozen=True)
class CompactionOutcome:
    compacted: bool
    reason: str | None
    stats: CompactionStats
    snapshot_id: int | None
    plan: tuple[PlannedGroup, ...] | None = None
    kept: tuple[KeptSnapshot, ...] = ()
    """Snapshots that are old enough to go, and stay."""
    expected: Mapping[str, Any] = field(default_factory=dict)
    """What was foretold of it."""
    warnings: tuple[str, ...] = ()
    """What else was asked for and failed after files were merged."""

"""The options and the results of a compaction."""

from dataclasses import dataclass, field

from service.catalog.files.data_files import TableFiles
from service.catalog.tables import Snapshot
from service.maintenance.expire.retention import NOTHING_EXPIRED, ExpiryResult, KeptSnapshot
from service.maintenance.rewriter import RewriteProgress


@dataclass(frozen=True)
class CompactionOptions:
    """The options of a COMPACT; None stands for the table's policy."""

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
class CompactionProgress(RewriteProgress):
    """The progress of a compaction."""


@dataclass(frozen=True)
class PlannedGroup:
    """Files that would be merged together."""

    partition: str
    files: int
    bytes: int
    expected_files: int


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


@dataclass
class CompactionTally:
    """The sum of a compaction's commits, each counted from the table just before and just after it."""

    files_before: int = 0
    bytes_before: int = 0
    files_grown: int = 0
    bytes_grown: int = 0
    files_compacted: int = 0
    delete_files_removed: int = 0
    files_added: int = 0
    partitions: set[str] = field(default_factory=set)
    groups_failed: int = 0
    conflicts: int = 0

    def committed(self, before: TableFiles, after: TableFiles, snapshot: Snapshot) -> None:
        """Count a commit. Other writers' commits before the first, or between two, do not count."""
        if not self.files_added:
            self.files_before, self.bytes_before = len(before.data), before.bytes
        self.files_grown += len(after.data) - len(before.data)
        self.bytes_grown += after.bytes - before.bytes
        self.files_compacted += snapshot.counted("deleted-data-files")
        self.delete_files_removed += snapshot.counted("removed-delete-files")
        self.files_added += snapshot.counted("added-data-files")

    def stats(
        self,
        expired: ExpiryResult = NOTHING_EXPIRED,
        *,
        small_files_remaining: int,
        compaction_time_ms: int,
        manifests_rewritten: int = 0,
        spark_jobs: int = 0,
    ) -> CompactionStats:
        return CompactionStats(
            files_before=self.files_before,
            files_after=self.files_before + self.files_grown,
            files_compacted=self.files_compacted,
            files_removed=self.files_compacted + self.delete_files_removed,
            files_added=self.files_added,
            bytes_before=self.bytes_before,
            bytes_after=self.bytes_before + self.bytes_grown,
            bytes_saved=-self.bytes_grown,
            partitions_compacted=len(self.partitions),
            groups_failed=self.groups_failed,
            conflicts=self.conflicts,
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
    """Snapshots that are old enough to expire, but are kept."""
    warnings: tuple[str, ...] = ()
    """What else was requested and failed after files were merged."""

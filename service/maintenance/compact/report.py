"""The options and the results of a compaction."""

from dataclasses import dataclass, field

from pydantic import BaseModel, Field

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
    last_deletes: bool = True
    """Whether a table with nothing to merge is freed of its delete files, however few."""
    periods: tuple[str, ...] | None = None
    """Merge all files of these periods of an ingestion table that are below the target size, even two."""


@dataclass
class CompactionProgress(RewriteProgress):
    """The progress of a compaction."""


class CompactionGroup(BaseModel):
    partition: str = Field(description="the partition of the files; empty if the table is not partitioned")
    files: int = Field(serialization_alias="files_removed", description="files that would be merged together")
    expected_files: int = Field(serialization_alias="files_added", description="how many they are expected to become")
    bytes: int = Field(serialization_alias="bytes_removed", description="the size of the files")


class CompactionStats(BaseModel):
    files_before: int = Field(description="data files just before the merge")
    files_after: int = Field(description="data files just after it")
    files_compacted: int = Field(description="data files that were merged")
    files_removed: int = Field(description="merged files, and delete files that no longer apply")
    files_added: int = Field(description="data files that replaced them")
    bytes_before: int = Field(description="the size of the data files before")
    bytes_after: int = Field(description="their size after")
    bytes_saved: int = Field(description="the difference; negative if merging made them larger")
    partitions_compacted: int = Field(description="partitions with merged files; an unpartitioned table counts as one")
    groups_failed: int = Field(description="groups of files that could not be rewritten; the log says why")
    conflicts: int = Field(
        description="groups not committed because other writers changed them in the meantime; the next compaction "
        "retries them"
    )
    spark_jobs: int = Field(description="Spark jobs that it ran, counted among Spark's last 1,000")
    manifests_rewritten: int = Field(description="manifests replaced, in addition to those of the merge")
    snapshots_expired: int = Field(description="old snapshots that expired")
    expired_files_deleted: int = Field(description="data and metadata files deleted with them")
    old_snapshots_kept: int = Field(description="old snapshots that were kept; `snapshots_kept` says why")
    compaction_time_ms: int = Field(description="how long it took")
    small_files_remaining: int = Field(description="files that still count as small")


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
    plan: tuple[CompactionGroup, ...] | None = None
    kept: tuple[KeptSnapshot, ...] = ()
    """Snapshots that are old enough to expire, but are kept."""
    warnings: tuple[str, ...] = ()
    """What else was requested and failed after files were merged."""

"""What a repartition is asked for and what it reports."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from service.catalog.files.data_files import TableFiles
from service.catalog.tables import Table
from service.model.schema.derived import DerivedColumn
from service.model.schema.partition import PartitionField


@dataclass(frozen=True)
class LayoutOptions:
    """What a table is to be like, checked against the table."""

    partition: tuple[PartitionField, ...]
    derived: tuple[DerivedColumn, ...] = ()
    """Columns to be added, which are worked out from the others."""
    compression: str | None = None
    validate: bool = True
    batch_rows: int | None = None
    backup: bool = False
    backup_hours: int | None = None
    elsewhere: bool = False
    """Whether a new table is made, and this one stays as it is."""

    @property
    def every_file(self) -> bool:
        """Whether also files that lie where they should are rewritten."""
        return bool(self.derived or self.compression or self.elsewhere)

    def rewrites(self, table: Table, spec_id: int) -> bool:
        """Whether files of a partitioning of the table, by its id, are rewritten."""
        return self.every_file or self.partition != table.partition or spec_id != table.spec_id


# What a request means for a table as it is.
DecideLayout = Callable[[Table], LayoutOptions]


@dataclass
class RepartitionProgress:
    """How far a repartition is. Whoever does it writes here; anybody may read. The totals grow with each round."""

    phase: str = "queued"
    round: int = 0
    files_done: int = 0
    files_total: int = 0
    bytes_done: int = 0
    bytes_total: int = 0


@dataclass(frozen=True)
class RepartitionSummary:
    """What a repartition's snapshot says of how it was made."""

    rounds: int
    batches: int
    spark_jobs: int
    checksum: str | None
    duration_ms: int
    source_snapshot_id: int | None


@dataclass(frozen=True)
class RepartitionStats:
    """Counted from the table just before and after, or from the source and the new table."""

    records: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    partitions_before: int
    partitions_after: int
    rounds: int
    batches: int
    spark_jobs: int
    validated: bool
    checksum: str | None
    duration_ms: int

    @classmethod
    def of(cls, before: TableFiles, after: TableFiles, told: RepartitionSummary) -> "RepartitionStats":
        return cls(
            records=sum(file.rows for file in after.data),
            files_before=len(before.data),
            files_after=len(after.data),
            bytes_before=before.bytes,
            bytes_after=after.bytes,
            partitions_before=len({file.group for file in before.data}),
            partitions_after=len({file.group for file in after.data}),
            rounds=told.rounds,
            batches=told.batches,
            spark_jobs=told.spark_jobs,
            validated=told.checksum is not None,
            checksum=told.checksum,
            duration_ms=told.duration_ms,
        )


@dataclass(frozen=True)
class PartitionShare:
    """A partition that the new layout would have."""

    partition: dict[str, Any]
    rows: int
    bytes: int


@dataclass(frozen=True)
class LayoutEstimate:
    """What the new layout would have: the partitions with most rows first, and how many there are."""

    shares: tuple[PartitionShare, ...]
    partitions: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class LayoutPlan:
    """What a repartition would do."""

    files: int
    bytes: int
    rows: int
    batches: int
    partitions: int


@dataclass(frozen=True)
class RepartitionOutcome:
    repartitioned: bool
    reason: str | None
    partition: tuple[PartitionField, ...]
    snapshot_id: int | None
    stats: RepartitionStats | None = None
    backup: str | None = None
    source_snapshot_id: int | None = None
    """The snapshot of the source that a new table holds."""

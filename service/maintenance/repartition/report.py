"""The options and the results of a repartition."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, Field

from service.catalog.files.data_files import TableFiles
from service.catalog.tables import Table
from service.maintenance.rewriter import RewriteProgress
from service.model.schema.derived import DerivedColumn
from service.model.schema.partition import PartitionField
from service.model.wire import omit_when_null


@dataclass(frozen=True)
class LayoutOptions:
    """The layout that a table is to have, checked against the table."""

    partition: tuple[PartitionField, ...]
    derived: tuple[DerivedColumn, ...] = ()
    """Columns to add, computed from the others."""
    compression: str | None = None
    validate: bool = True
    batch_rows: int | None = None
    backup: bool = False
    backup_hours: int | None = None
    elsewhere: bool = False
    """Whether to make a new table and leave this one as it is."""

    @property
    def every_file(self) -> bool:
        """Whether files that have the right partitioning are rewritten too."""
        return bool(self.derived or self.compression or self.elsewhere)

    def rewrites(self, table: Table, spec_id: int) -> bool:
        """Whether files with this partition spec of the table are rewritten."""
        return self.every_file or self.partition != table.partition or spec_id != table.spec_id


# The layout that a request asks for, given the table as it is now.
DecideLayout = Callable[[Table], LayoutOptions]


@dataclass
class RepartitionProgress(RewriteProgress):
    """The progress of a repartition. The totals grow with each round."""

    round: int = 0


@dataclass(frozen=True)
class RepartitionSummary:
    """What a repartition's snapshot says about how it was made."""

    rounds: int
    batches: int
    spark_jobs: int
    checksum: str | None
    duration_ms: int
    source_snapshot_id: int | None


class RepartitionStats(BaseModel):
    records: int = Field(description="rows in the new layout")
    files_before: int = Field(description="data files just before")
    files_after: int = Field(description="data files just after")
    bytes_before: int = Field(description="their size before")
    bytes_after: int = Field(description="their size after")
    partitions_before: int = Field(description="partitions with files before; an unpartitioned table counts as one")
    partitions_after: int = Field(description="partitions with files after")
    rounds: int = Field(description="passes over the table; concurrent changes need further ones")
    batches: int = Field(description="batches of files that were rewritten")
    spark_jobs: int = Field(description="Spark jobs that it ran")
    validated: bool = Field(description="whether rows and checksum were compared")
    checksum: str | None = omit_when_null("a checksum of all rows over the previous columns; absent without `validate`")
    duration_ms: int = Field(description="how long it took, up to the commit")

    @classmethod
    def of(cls, before: TableFiles, after: TableFiles, summary: RepartitionSummary) -> "RepartitionStats":
        made = asdict(summary)
        made.pop("source_snapshot_id")
        return cls(
            records=after.live_rows,
            files_before=len(before.data),
            files_after=len(after.data),
            bytes_before=before.bytes,
            bytes_after=after.bytes,
            partitions_before=len({file.group for file in before.data}),
            partitions_after=len({file.group for file in after.data}),
            validated=summary.checksum is not None,
            **made,
        )


class EstimatedPartition(BaseModel):
    partition: dict[str, Any] = Field(description="the value of each partition field, as in LIST_PARTITIONS")
    records: int = Field(description="its rows, counted")
    bytes: int = Field(description="its estimated size, if its rows have the table's average size")


class RepartitionPlan(BaseModel):
    """What a REPARTITION would rewrite."""

    files_removed: int = Field(description="data files that would be rewritten")
    bytes_removed: int = Field(description="their size")
    records: int = Field(
        description="their rows; includes rows deleted by delete files that may apply to several data files"
    )
    batches: int = Field(description="the number of batches")
    partitions_after: int = Field(description="the number of partitions afterwards")


@dataclass(frozen=True)
class LayoutEstimate:
    """The largest partitions of the new layout, by rows, and how many partitions it has."""

    shares: tuple[EstimatedPartition, ...]
    partitions: int
    rows: int
    bytes: int


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

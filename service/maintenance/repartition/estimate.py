"""Estimates another layout before any file is rewritten: rows counted by Spark, sizes from metadata."""

import uuid
from dataclasses import dataclass
from typing import Any

from service.catalog.files.data_files import list_files
from service.catalog.files.small import MIB
from service.catalog.partitions import format_value
from service.catalog.tables import Table
from service.commits.holds import SnapshotHolds
from service.commits.small_files import SmallFileChecks
from service.engine.jobs.estimate import PartitionCounts, count_partitions
from service.engine.jobs.relayout import LayoutRecipe
from service.engine.session.engine import Engine
from service.maintenance.repartition.cover import bundles, parts_of
from service.maintenance.repartition.report import EstimatedPartition, LayoutEstimate, LayoutOptions, RepartitionPlan
from service.model.call import Call


@dataclass(frozen=True)
class LayoutEstimates:
    """Estimates what a repartition would do; it changes nothing."""

    engine: Engine
    small_files: SmallFileChecks
    holds: SnapshotHolds

    def estimate(self, call: Call, table: Table, layout: LayoutOptions, most: int) -> LayoutEstimate:
        """The partitions of the layout, at most `most`. Each row is assumed to have the average size of a row."""
        counted, size = self._counted(call, table, layout, most)
        shares = tuple(
            EstimatedPartition(
                partition={f.name: format_value(f, value) for f, value in zip(layout.partition, values, strict=True)},
                records=rows,
                bytes=size * rows // max(counted.rows, 1),
            )
            for values, rows in counted.largest
        )
        return LayoutEstimate(shares, counted.partitions, counted.rows, size)

    def plan(self, call: Call, table: Table, layout: LayoutOptions) -> RepartitionPlan:
        """What a repartition would rewrite."""
        counted, _ = self._counted(call, table, layout, 0)
        files = [file for file in list_files(table).data if layout.rewrites(table, file.group[0])]
        limit = self.small_files.policy(table).group_mb * MIB
        return RepartitionPlan(
            files_removed=len(files),
            bytes_removed=sum(file.bytes for file in files),
            records=sum(file.live_rows for file in files),
            batches=sum(parts_of(one, layout.batch_rows) for one in bundles(files, layout.batch_rows, limit)),
            partitions_after=counted.partitions,
        )

    def _counted(self, call: Call, table: Table, layout: LayoutOptions, most: int) -> tuple[PartitionCounts, int]:
        head = table.current_snapshot_id
        if head is None:
            return PartitionCounts((), 0, 0), 0
        recipe = LayoutRecipe(table.schema, layout.derived)
        with self.holds.reading(table.uuid, head):
            # A snapshot that is read by its id has the columns of its time.
            at = head if table.head_has_table_schema else None
            tag = f"estimate-{uuid.uuid4().hex}"
            counted: Any = self.engine.run_for(
                call, count_partitions, table.spark_name, at, recipe, layout.partition, most, tag
            )
        return counted, list_files(table).bytes

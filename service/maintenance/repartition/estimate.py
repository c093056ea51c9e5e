"""What another layout would be like, before any file is rewritten: counted by Spark, measured from metadata."""

import uuid
from dataclasses import dataclass
from typing import Any

from service.catalog.files import list_files
from service.catalog.partitions import shown
from service.catalog.tables import Table
from service.commits.holds import Holds
from service.engine.engine import Engine
from service.engine.estimate import Counted, count_partitions
from service.engine.relayout import Recipe
from service.upkeep.cover import bundles
from service.upkeep.plan import MIB
from service.upkeep.repartition_report import Estimated, Planned, Share, Wanted
from service.upkeep.upkeep import Upkeep


@dataclass(frozen=True)
class Estimates:
    """Says what a repartition would do; it changes nothing."""

    engine: Engine
    upkeep: Upkeep
    holds: Holds

    def estimate(self, table: Table, wanted: Wanted, most: int) -> Estimated:
        """The partitions there would be, so many at most. A row is taken to be as large as the table's rows are."""
        counted, size = self._counted(table, wanted, most)
        shares = tuple(
            Share(
                {f.name: shown(f, value) for f, value in zip(wanted.partition, values, strict=True)},
                rows,
                size * rows // max(counted.rows, 1),
            )
            for values, rows in counted.largest
        )
        return Estimated(shares, counted.partitions, counted.rows, size)

    def plan(self, table: Table, wanted: Wanted) -> Planned:
        """What would be rewritten."""
        counted, _ = self._counted(table, wanted, 0)
        files = [file for file in list_files(table).data if wanted.rewrites(table, file.group[0])]
        limit = self.upkeep.policy(table).group_mb * MIB
        return Planned(
            files=len(files),
            bytes=sum(file.bytes for file in files),
            rows=sum(file.rows for file in files),
            batches=sum(1 for _ in bundles(files, wanted.batch_rows, limit)),
            partitions=counted.partitions,
        )

    def _counted(self, table: Table, wanted: Wanted, most: int) -> tuple[Counted, int]:
        head = table.current_snapshot_id
        if head is None:
            return Counted((), 0, 0), 0
        recipe = Recipe(table.schema, wanted.derived)
        with self.holds.reading(table.uuid, head):
            # By its id a snapshot is read with the columns of its time.
            at = head if table.head_has_table_schema else None
            tag = f"estimate-{uuid.uuid4().hex}"
            counted: Any = self.engine.run(count_partitions, table.spark_name, at, recipe, wanted.partition, most, tag)
        return counted, list_files(table).bytes

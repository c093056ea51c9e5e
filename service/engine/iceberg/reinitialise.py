"""Empties a table and replaces its columns and partitioning, in one swap of its metadata."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.engine.iceberg.layout import LayoutBasis, spec
from service.engine.iceberg.replace import EVERY_FILE, Evolution, FileReplacement, replace_files
from service.engine.iceberg.swap import CommitTarget, Gate, Tag
from service.engine.session.java import iceberg_class
from service.engine.session.spark_types import SparkSession
from service.model.schema.partition import PartitionField


@dataclass(frozen=True)
class ReinitialisedTable:
    """The table's new schema in Iceberg's JSON, partitioning and properties; a property that is None is removed."""

    schema: str
    partition: tuple[PartitionField, ...]
    properties: Mapping[str, str | None]

    def metadata(self, base: Any) -> Any:
        """The metadata of a table with these columns, this partitioning and these properties."""
        schema = iceberg_class("SchemaParser").fromJson(self.schema)
        highest = max(int(base.lastColumnId()), int(schema.highestFieldId()))
        # Both at once: the new columns need not fit the old partitioning, nor the reverse.
        changes = base.buildFrom(base).setCurrentSchema(schema, highest)
        changes = changes.setDefaultPartitionSpec(spec(base, schema, self.partition))
        changes = changes.setProperties({key: value for key, value in self.properties.items() if value is not None})
        changes = changes.removeProperties({key for key, value in self.properties.items() if value is None})
        return changes.build()

    def evolution(self, base: Any, basis: LayoutBasis) -> Evolution:
        """What a commit changes besides files; `basis` is the layout that the table had when they were written."""
        return Evolution(self.metadata(base), basis)


def reinitialise(
    session: SparkSession,
    table: str,
    uuid: str,
    schema_id: int,
    new: ReinitialisedTable,
    batch: str,
    gate: Gate,
    tag: Tag | None = None,
) -> int:
    """Empty a table and replace its columns. Returns the snapshot's id; raises TableChanged if the table changed."""
    target = CommitTarget(session, table, uuid, schema_id)
    iceberg = target.load()
    base = iceberg.operations().current()
    target.check(base)
    evolution = new.evolution(base, LayoutBasis.of(base))
    return replace_files(target, iceberg, FileReplacement(batch, None, EVERY_FILE, tag=tag, evolution=evolution), gate)

"""REINITIALISE_TABLE: empty a table and give it other columns or ranges; its history stays."""

from collections.abc import Callable
from dataclasses import dataclass

from service.catalog.replaced import check_names, replaced_schema
from service.catalog.tables import Table
from service.commits.commit import CommitResult, Commits, retried_if_changed
from service.commits.holds import SnapshotHolds
from service.engine.iceberg.reinitialise import ReinitialisedTable, reinitialise
from service.engine.iceberg.swap import Tag
from service.engine.session.engine import Engine
from service.errors import InvalidSchema
from service.model.call import Call
from service.model.policy.policy import check_columns
from service.model.properties import compaction_policy
from service.model.schema.derived import DERIVED_PREFIX
from service.model.schema.partition import PartitionField, check_source
from service.model.schema.ranges import RANGE_FIELD, RANGE_PARTITION, RANGES_PROPERTY, Ranges, ranges_of
from service.model.schema.types import TableSchema, resolve_field
from service.settings import CompactionSettings

OPERATION = "REINITIALISE_TABLE"


@dataclass(frozen=True)
class ReinitialiseOptions:
    """What a table becomes: its columns, its partitioning besides ranges, and the ranges of its first key."""

    schema: TableSchema
    partition: tuple[PartitionField, ...]
    ranges: Ranges | None
    replaces: bool
    """Whether the columns are other ones."""


def reinitialise_options(
    table: Table,
    schema: TableSchema | None,
    split: Callable[[TableSchema], Ranges] | None,
    *,
    delete_partitions: bool,
    settings: CompactionSettings,
) -> ReinitialiseOptions:
    """What a request makes of a table; refusals say what of the table does not fit that."""
    after = schema or table.schema
    partition = () if delete_partitions else table.partition
    ranges = split(after) if split else None
    if ranges is None and not delete_partitions:
        ranges = ranges_of(table.properties)
        if ranges is not None and schema is not None:
            _check_key(ranges, schema)
    if schema is not None:
        _check_sources(partition, schema)
        check_names(table, schema)
        check_columns(table.properties, schema)
        for name in compaction_policy(table.properties, settings).sort_by:
            resolve_field(after, name, error=InvalidSchema, path="schema")
    return ReinitialiseOptions(after, partition, ranges, schema is not None)


@dataclass(frozen=True)
class Reinitialisations:
    """Empties tables, each in one commit."""

    engine: Engine
    commits: Commits
    holds: SnapshotHolds

    def run(
        self, table: Table, decide: Callable[[Table], ReinitialiseOptions], tag: Tag | None, call: Call
    ) -> CommitResult:
        @retried_if_changed()
        def change(current: Table, batch: str) -> None:
            made = _reinitialised(current, decide(current))
            with self.holds.building_on(current.uuid, current.current_snapshot_id):
                name, uuid, schema_id = current.spark_name, current.uuid, current.schema_id
                gate = self.commits.commit_gate(batch, call)
                self.engine.run(reinitialise, name, uuid, schema_id, made, batch, gate, tag)

        return self.commits.commit(table, OPERATION, call, change)


def _reinitialised(table: Table, options: ReinitialiseOptions) -> ReinitialisedTable:
    ranges = options.ranges
    properties: dict[str, str | None] = {RANGES_PROPERTY: ranges.text if ranges else None}
    if options.replaces:
        properties |= dict.fromkeys((key for key in table.properties if key.startswith(DERIVED_PREFIX)), None)
    changed = {key: value for key, value in properties.items() if value is not None or key in table.properties}
    schema = replaced_schema(table, options.schema, (RANGE_FIELD,) if ranges else ())
    return ReinitialisedTable(schema, (*((RANGE_PARTITION,) if ranges else ()), *options.partition), changed)


def _check_key(ranges: Ranges, schema: TableSchema) -> None:
    kind = next((f.type for f in schema.fields if f.name == ranges.column), None)
    if schema.primary_key[:1] != (ranges.column,) or kind != ranges.type:
        raise InvalidSchema(
            f"schema: the table is split by ranges of {ranges.column!r}, {ranges.type}, which would no longer be its "
            "first key; send split_points, or delete_partitions: true",
            field="schema",
        )


def _check_sources(partition: tuple[PartitionField, ...], schema: TableSchema) -> None:
    for field in partition:
        try:
            check_source(field, schema, "schema")
        except InvalidSchema as e:
            raise InvalidSchema(
                f"{e.message}; the table is partitioned by it: keep that column as it is, or send delete_partitions: "
                "true",
                field="schema",
            ) from e

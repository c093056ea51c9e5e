"""REINITIALISE_TABLE: a table emptied and made anew, its history kept."""

from collections.abc import Callable
from dataclasses import dataclass

from service.catalog.replaced import check_names, replaced_schema
from service.catalog.tables import Table
from service.commits.ask import Ask
from service.commits.commit import Commits, Effect
from service.commits.holds import Holds
from service.derived import PREFIX
from service.engine.compaction import Beaten
from service.engine.engine import Engine
from service.engine.reinitialise import Afresh, reinitialise
from service.engine.swap import Moved, Tag
from service.errors import CommitConflict, InvalidSchema
from service.partition import PartitionField, check_source
from service.properties import compaction_policy
from service.ranges import RANGE_FIELD, RANGE_PARTITION, RANGES, Ranges, ranges_of
from service.schema import TableSchema, resolve
from service.settings import CompactionSettings

OPERATION = "REINITIALISE_TABLE"


@dataclass(frozen=True)
class Wanted:
    """What a table is to be: its columns, its partitioning beside ranges, and the ranges of its first key."""

    schema: TableSchema
    partition: tuple[PartitionField, ...]
    ranges: Ranges | None
    replaces: bool
    """Whether the columns are not those that there are."""


def wanted(
    table: Table,
    schema: TableSchema | None,
    split: Callable[[TableSchema], Ranges] | None,
    *,
    delete_partitions: bool,
    settings: CompactionSettings,
) -> Wanted:
    """What a request makes of a table; refusals say what of the table does not go with it."""
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
        for name in compaction_policy(table.properties, settings).sort_by:
            resolve(after, name, error=InvalidSchema, path="schema")
    return Wanted(after, partition, ranges, schema is not None)


@dataclass(frozen=True)
class Reinitialisations:
    """Empties tables, each in one commit."""

    engine: Engine
    commits: Commits
    holds: Holds

    def run(self, table: Table, decide: Callable[[Table], Wanted], tag: Tag | None, ask: Ask) -> Effect:
        def change(current: Table, batch: str) -> None:
            afresh = _afresh(current, decide(current))

            try:
                with self.holds.building_on(current.uuid, current.current_snapshot_id):
                    name, uuid, schema_id = current.spark_name, current.uuid, current.schema_id
                    leave = self.commits.leave(batch, ask)
                    self.engine.run(reinitialise, name, uuid, schema_id, afresh, batch, leave, tag)
            except (Beaten, Moved) as e:
                raise CommitConflict(f"{e}; send the request again") from e

        return self.commits.commit(table, OPERATION, ask, change)


def _afresh(table: Table, made: Wanted) -> Afresh:
    fields = (RANGE_FIELD,) if made.ranges else ()
    properties: dict[str, str | None] = {RANGES: made.ranges.text if made.ranges else None}
    if made.replaces:
        properties |= dict.fromkeys((key for key in table.properties if key.startswith(PREFIX)), None)
    partition = (*((RANGE_PARTITION,) if made.ranges else ()), *made.partition)
    kept = {key: value for key, value in properties.items() if value is not None or key in table.properties}
    return Afresh(replaced_schema(table, made.schema, fields), partition, kept)


def _check_key(ranges: Ranges, schema: TableSchema) -> None:
    kind = next((f.type for f in schema.fields if f.name == ranges.column), None)
    if schema.primary_key[:1] != (ranges.column,) or kind != ranges.type:
        raise InvalidSchema(
            f"schema: the table is split by ranges of {ranges.column!r}, {ranges.type}, which is not its first key any "
            "more; send split_points, or delete_partitions: true",
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

"""The job that counts the rows of each partition in another layout."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from service.engine.jobs.relayout import LayoutRecipe, select_list
from service.engine.session.rows import collect, json_rows
from service.engine.session.spark_types import SparkSession
from service.engine.session.tags import tagged
from service.engine.sql.failing import computed_columns, identifying, naming_failures
from service.engine.sql.sql import Parameters, at_snapshot, run
from service.engine.sql.transforms import value
from service.model.schema.partition import PartitionField


@dataclass(frozen=True)
class PartitionCounts:
    """The largest partitions, with the values of their fields, and the number of all partitions and rows."""

    largest: tuple[tuple[tuple[Any, ...], int], ...]
    partitions: int
    rows: int


def count_partitions(
    session: SparkSession,
    table: str,
    snapshot_id: int | None,
    recipe: LayoutRecipe,
    partition: tuple[PartitionField, ...],
    most: int,
    tag: str,
) -> PartitionCounts:
    """Count a table's rows by their partition in another layout. Returns at most `most` partitions."""
    parameters, source = Parameters(), at_snapshot(table, snapshot_id)
    names = [f"v{n}" for n in range(len(partition))]
    rows = f"SELECT {select_list(recipe, parameters)} FROM {source}"
    values = ", ".join(f"{value(field, recipe.schema)} AS {name}" for field, name in zip(partition, names, strict=True))
    group = f" GROUP BY {', '.join(names)}" if names else " HAVING count(*) > 0"
    text = (
        "SELECT *, count(*) OVER () AS partitions, sum(rows) OVER () AS total FROM "
        f"(SELECT {', '.join([*names, 'count(*) AS rows'])} FROM (SELECT {values or '1'} FROM ({rows})){group}) "
        f"ORDER BY {', '.join(['rows DESC', *names])} LIMIT {int(max(most, 1))}"
    )
    derived = computed_columns(recipe.derived, is_stored=False, only_null=False)
    naming = naming_failures(session, derived, identifying(recipe.source), lambda: nullcontext(source))
    with tagged(session, tag), naming:
        found = json_rows(collect(run(session, text, parameters.values)))
    largest = tuple((tuple(row[name] for name in names), int(row["rows"])) for row in found)
    first = found[0] if found else {"partitions": 0, "total": 0}
    return PartitionCounts(largest[:most], int(first["partitions"]), int(first["total"]))

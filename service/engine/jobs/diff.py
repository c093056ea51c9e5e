"""How two states of a table differ, row by row: compares the rows of files that only one of them has."""

import math
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.iceberg.staging import readable_files
from service.engine.iceberg.tables import current
from service.engine.jobs.append import small_frame
from service.engine.session.rows import collect, json_rows
from service.engine.session.spark_types import SparkSession
from service.engine.session.tags import marked
from service.engine.sql import diff_sql
from service.engine.sql.past import under
from service.engine.sql.policies.rows import visible_rows
from service.engine.sql.sql import Parameters, named, run
from service.model.policy.view import RowView
from service.model.schema.types import TableSchema

Kind = Literal["inserted", "deleted", "updated"]


@dataclass(frozen=True)
class Comparison:
    """What to compare, by which columns, and which page of the differences to return."""

    table: str
    before: SnapshotFiles | pa.Table
    after: SnapshotFiles | pa.Table
    """The rows, if they are few. Else, on both sides, only the files that the other side does not have, or has with
    other delete files, and rows that the other side has deleted from a file."""
    schema_id: int
    schema: TableSchema
    keys: tuple[str, ...]
    limit: int
    offset: int
    view: RowView | None = None
    """What the sender sees of the rows, if that is not all; `schema` has only these columns."""


@dataclass(frozen=True)
class RowChange:
    """How one row differs; None for a side that does not have it."""

    kind: Kind
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass(frozen=True)
class DiffResult:
    """How many rows differ, and some of them."""

    inserted: int = 0
    deleted: int = 0
    updated: int = 0
    changes: tuple[RowChange, ...] = ()


def compare(session: SparkSession, comparison: Comparison, tag: str) -> DiffResult:
    """Count the rows that differ, and return a page of them, in a stable order. Its Spark jobs have the tag."""
    with marked(session, tag):
        return _compare(session, comparison)


def _compare(session: SparkSession, comparison: Comparison) -> DiffResult:
    from pyspark import StorageLevel

    schema, keys, limit, offset = comparison.schema, comparison.keys, comparison.limit, comparison.offset
    sides = [(side, sign) for side, sign in ((comparison.before, -1), (comparison.after, 1)) if _has_rows(side)]
    if not sides:
        return DiffResult()
    with ExitStack() as stack:
        sources = [(_visible(session, comparison, side, stack), sign) for side, sign in sides]
        net = session.sql(diff_sql.net(sources, schema))
        view = stack.enter_context(named(net))
        if not offset and sum(_rows(side) for side, _ in sides) <= limit:
            # They are all on this page.
            return _all(_changes(collect(session.sql(diff_sql.page(view, schema, keys, limit, 0))), list(schema.names)))
        if limit:
            # Both the page and the counts read it.
            net.persist(StorageLevel.DISK_ONLY)
            stack.callback(net.unpersist)
        [row] = session.sql(diff_sql.counts(view, schema, keys)).collect()
        inserted, deleted, updated = (int(number or 0) for number in row)
        if not limit or offset >= inserted + deleted + updated:
            return DiffResult(inserted, deleted, updated)
        page = collect(session.sql(diff_sql.page(view, schema, keys, limit, offset)))
        return DiffResult(inserted, deleted, updated, _changes(page, list(schema.names)))


def _all(changes: tuple[RowChange, ...]) -> DiffResult:
    kinds = Counter(change.kind for change in changes)
    return DiffResult(kinds["inserted"], kinds["deleted"], kinds["updated"], changes)


def _rows(side: SnapshotFiles | pa.Table) -> float:
    """How many rows there are at most."""
    return math.inf if isinstance(side, SnapshotFiles) else side.num_rows


def _has_rows(side: SnapshotFiles | pa.Table) -> bool:
    return bool(side.touched if isinstance(side, SnapshotFiles) else side.num_rows)


def _visible(session: SparkSession, comparison: Comparison, side: SnapshotFiles | pa.Table, stack: ExitStack) -> str:
    source = _source(session, comparison, side, stack)
    if comparison.view is None:
        return source
    parameters = Parameters()
    text = f"SELECT * FROM {visible_rows(comparison.view, source, parameters)}"
    return stack.enter_context(named(run(session, text, parameters.values)))


def _source(session: SparkSession, comparison: Comparison, side: SnapshotFiles | pa.Table, stack: ExitStack) -> str:
    if isinstance(side, SnapshotFiles):
        iceberg = under(current(session, comparison.table), comparison.schema_id)
        return stack.enter_context(readable_files(session, iceberg, side))
    # In one partition they are compared without shuffles.
    return stack.enter_context(named(small_frame(session, side).coalesce(1)))


def _changes(page: pa.Table, names: list[str]) -> tuple[RowChange, ...]:
    width = len(names)
    had, has = page.column(0).to_pylist(), page.column(1).to_pylist()
    before = json_rows(page.select(range(2, 2 + width)).rename_columns(names))
    after = json_rows(page.select(range(2 + width, 2 + 2 * width)).rename_columns(names))
    return tuple(
        RowChange("updated" if h and a else "deleted" if h else "inserted", b if h else None, n if a else None)
        for h, a, b, n in zip(had, has, before, after, strict=True)
    )

"""How two states of a table differ, row by row: compares the rows of files that only one of them has."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.iceberg.staging import readable_files
from service.engine.iceberg.tables import current
from service.engine.session.rows import collect, json_rows
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql import diff_sql
from service.engine.sql.frames import named
from service.engine.sql.past import under
from service.model.schema.types import TableSchema

Kind = Literal["inserted", "deleted", "updated"]


@dataclass(frozen=True)
class Comparison:
    """What to compare, by which columns, and which page of the differences to return."""

    table: str
    before: SnapshotFiles
    after: SnapshotFiles
    """On both sides, only the files that the other side does not have, or has with other delete files."""
    schema_id: int
    schema: TableSchema
    keys: tuple[str, ...]
    limit: int
    offset: int


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


def compare(session: SparkSession, comparison: Comparison) -> DiffResult:
    """Count the rows that differ, and return a page of them, in a stable order."""
    from pyspark import StorageLevel

    with _net(session, comparison) as net:
        if net is None:
            return DiffResult()
        if comparison.limit:
            # Both the page and the counts read it.
            net.persist(StorageLevel.DISK_ONLY)
        try:
            with named(net) as view:
                [row] = session.sql(diff_sql.counts(view, comparison.schema, comparison.keys)).collect()
                inserted, deleted, updated = (int(number or 0) for number in row)
                has_page = comparison.limit and comparison.offset < inserted + deleted + updated
                return DiffResult(inserted, deleted, updated, _page(session, view, comparison) if has_page else ())
        finally:
            if comparison.limit:
                net.unpersist()


@contextmanager
def _net(session: SparkSession, comparison: Comparison) -> Iterator[DataFrame | None]:
    """Each row content that one side has more often, and how much more often; None if no file differs."""
    sides = [(state, sign) for state, sign in ((comparison.before, -1), (comparison.after, 1)) if state.paths]
    if not sides:
        yield None
        return
    iceberg = under(current(session, comparison.table), comparison.schema_id)
    with ExitStack() as stack:
        sources = [(stack.enter_context(readable_files(iceberg, state)), sign) for state, sign in sides]
        yield session.sql(diff_sql.net(sources, comparison.schema))


def _page(session: SparkSession, view: str, comparison: Comparison) -> tuple[RowChange, ...]:
    found = collect(
        session.sql(diff_sql.page(view, comparison.schema, comparison.keys, comparison.limit, comparison.offset))
    )
    names = list(comparison.schema.names)
    width = len(names)
    had, has = found.column(0).to_pylist(), found.column(1).to_pylist()
    before = json_rows(found.select(range(2, 2 + width)).rename_columns(names))
    after = json_rows(found.select(range(2 + width, 2 + 2 * width)).rename_columns(names))
    return tuple(
        RowChange(_kind(h, a), b if h else None, n if a else None)
        for h, a, b, n in zip(had, has, before, after, strict=True)
    )


def _kind(had: bool, has: bool) -> Kind:
    return "updated" if had and has else "deleted" if had else "inserted"

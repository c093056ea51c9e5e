"""What tells two states of a table apart, row by row: the rows of files that only one of them holds, compared."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from service.engine import diff_sql, pick
from service.engine.append import staging
from service.engine.frames import named
from service.engine.past import under
from service.engine.pick import Files
from service.engine.rows import collect, json_rows
from service.engine.tables import current
from service.schema import TableSchema

Kind = Literal["inserted", "deleted", "updated"]


@dataclass(frozen=True)
class Comparison:
    """What is compared, under which columns, and which part of the difference is wanted."""

    table: str
    before: Files
    after: Files
    """Of both sides those that the other does not hold just so."""
    schema_id: int
    schema: TableSchema
    keys: tuple[str, ...]
    limit: int
    offset: int


@dataclass(frozen=True)
class RowChange:
    """One row's difference; what is not there is None."""

    kind: Kind
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass(frozen=True)
class Compared:
    """How many rows differ, and some of them."""

    inserted: int = 0
    deleted: int = 0
    updated: int = 0
    changes: tuple[RowChange, ...] = ()


def compare(session: SparkSession, asked: Comparison) -> Compared:
    """Count the rows that differ, and give the part of them that is asked for, in an order that never changes."""
    with _net(session, asked) as net:
        if net is None:
            return Compared()
        if asked.limit:
            # The page and the counts are made of the same.
            net.persist(StorageLevel.DISK_ONLY)
        try:
            with named(session, net) as view:
                [row] = session.sql(diff_sql.counts(view, asked.schema, asked.keys)).collect()
                inserted, deleted, updated = (int(number or 0) for number in row)
                some = asked.limit and asked.offset < inserted + deleted + updated
                return Compared(inserted, deleted, updated, _page(session, view, asked) if some else ())
        finally:
            if asked.limit:
                net.unpersist()


@contextmanager
def _net(session: SparkSession, asked: Comparison) -> Iterator[DataFrame | None]:
    """Each content that one side has more often than the other, and how much more often; None where all is shared."""
    sides = [(state, sign) for state, sign in ((asked.before, -1), (asked.after, 1)) if state.paths]
    if not sides:
        yield None
        return
    iceberg = under(current(session, asked.table), asked.schema_id)
    with ExitStack() as stack:
        sources = [
            (stack.enter_context(staging(iceberg, pick.tasks(iceberg, state.snapshot_id, state.paths))), sign)
            for state, sign in sides
        ]
        yield session.sql(diff_sql.net(sources, asked.schema))


def _page(session: SparkSession, view: str, asked: Comparison) -> tuple[RowChange, ...]:
    found = collect(session.sql(diff_sql.page(view, asked.schema, asked.keys, asked.limit, asked.offset)))
    names = list(asked.schema.names)
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

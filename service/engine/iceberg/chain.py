"""Changes that build on each other: one removed rows that another had added."""

from collections.abc import Iterable, Sequence

from service.engine.session.spark_types import SparkSession
from service.engine.sql.content import comparable
from service.engine.sql.sql import identifier
from service.model.schema.types import TableSchema


def net(sides: Iterable[tuple[int, str, int]], schema: TableSchema) -> str:
    """For several changes, by number: each content of rows that it made more or less frequent, and by how many.

    `sides` are views of the rows that a change added (1) or removed (-1).
    """
    contents = [comparable(f.type, identifier(f.name)) for f in schema.fields]
    listed = ", ".join(f"{text} AS k{i}" for i, text in enumerate(contents))
    legs = " UNION ALL ".join(f"SELECT {n} AS x, {sign} AS w, {listed} FROM {view}" for n, view, sign in sides)
    by = ", ".join(["x", *(f"k{i}" for i in range(len(contents)))])
    return f"SELECT {by}, sum(w) AS n FROM ({legs}) GROUP BY {by} HAVING sum(w) <> 0"


def follow(session: SparkSession, nets: Sequence[str], schema: TableSchema) -> list[tuple[int, int]]:
    """Pairs of changes in views of `net`: the later one removed rows that the earlier one added."""
    every = " UNION ALL ".join(f"SELECT * FROM {view}" for view in nets)
    alike = " AND ".join(f"b.k{i} <=> a.k{i}" for i in range(len(schema.fields)))
    text = (
        f"SELECT DISTINCT a.x AS a, b.x AS b FROM ({every}) AS a JOIN ({every}) AS b "
        f"ON {alike} AND a.n > 0 AND b.n < 0 AND a.x < b.x"
    )
    return [(int(row[0]), int(row[1])) for row in session.sql(text).collect()]


def reached(first: Iterable[int], pairs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """The changes that some lead to, directly or not, and these themselves."""
    found = set(first)
    for earlier, later in sorted(pairs):
        if earlier in found:
            found.add(later)
    return tuple(sorted(found))

"""Changes that follow from each other: one took away rows that another had brought."""

from collections.abc import Iterable, Sequence

from pyspark.sql import SparkSession

from service.engine.content import comparable
from service.engine.sql import identifier
from service.schema import TableSchema


def net(sides: Iterable[tuple[int, str, int]], schema: TableSchema) -> str:
    """Of each of several changes, by number, the contents that it made more or fewer, as they compare, and by how many.

    `sides` are views of the rows that came with a change (1) and of those that went (-1).
    """
    contents = [comparable(f.type, identifier(f.name)) for f in schema.fields]
    listed = ", ".join(f"{text} AS k{i}" for i, text in enumerate(contents))
    legs = " UNION ALL ".join(f"SELECT {n} AS x, {sign} AS w, {listed} FROM {view}" for n, view, sign in sides)
    by = ", ".join(["x", *(f"k{i}" for i in range(len(contents)))])
    return f"SELECT {by}, sum(w) AS n FROM ({legs}) GROUP BY {by} HAVING sum(w) <> 0"


def follow(session: SparkSession, nets: Sequence[str], schema: TableSchema) -> list[tuple[int, int]]:
    """Pairs of changes, of those that views of `net` hold: the later one took away rows that the earlier brought."""
    every = " UNION ALL ".join(f"SELECT * FROM {view}" for view in nets)
    alike = " AND ".join(f"b.k{i} <=> a.k{i}" for i in range(len(schema.fields)))
    text = (
        f"SELECT DISTINCT a.x AS a, b.x AS b FROM ({every}) AS a JOIN ({every}) AS b "
        f"ON {alike} AND a.n > 0 AND b.n < 0 AND a.x < b.x"
    )
    return [(int(row[0]), int(row[1])) for row in session.sql(text).collect()]


def reached(first: Iterable[int], pairs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """The changes that some lead to, and they themselves; in each pair the later one follows from the earlier."""
    found = set(first)
    for earlier, later in sorted(pairs):
        if earlier in found:
            found.add(later)
    return tuple(sorted(found))

"""The SQL of a difference between rows: how often each content was added or removed, pairs by key, and pages of them.

In the result of `net`, the columns' values are c0, c1, …. Values that do not compare, such as maps, are also there in a
form that does, as m0, m1, …. `n` is how much more often the content is in the rows that were added. No column is called
by its own name.
"""

from collections.abc import Iterable, Sequence

from service.engine.sql.content import comparable
from service.engine.sql.sql import identifier
from service.model.schema.types import TableSchema

# Up to this many rows are sorted in memory.
_MOST_IN_MEMORY = 100_000


def net(sources: Iterable[tuple[str, int | str]], schema: TableSchema) -> str:
    """Each content that was not added (1) as often as removed (-1), by relations of such rows.

    Instead of the sign, the name of a column can be given that says how often each row was added or removed."""
    return net_by_change(((0, source, sign) for source, sign in sources), schema)


def net_by_change(sources: Iterable[tuple[int, str, int | str]], schema: TableSchema) -> str:
    """The same for each of several changes; `x` is a change's number."""
    columns, contents = _columns(schema), contents_of(schema)
    values = ", ".join(f"{identifier(name)} AS {c}" for name, c in zip(schema.names, columns, strict=True))
    sides = " UNION ALL ".join(f"SELECT {values}, {x} AS x, {sign} AS s FROM {source}" for x, source, sign in sources)
    apart = [(f.type, c, m) for f, c, m in zip(schema.fields, columns, contents, strict=True) if c != m]
    added = [f"{comparable(kind, c)} AS {m}" for kind, c, m in apart]
    kept = [f"first({c}) AS {c}" for _, c, _ in apart]
    by = ", ".join(["x", *contents])
    return (
        f"SELECT {', '.join([by, *kept])}, sum(s) AS n FROM (SELECT {', '.join(['*', *added])} FROM ({sides})) "
        f"GROUP BY {by} HAVING sum(s) <> 0"
    )


def contents_of(schema: TableSchema) -> list[str]:
    """The columns of `net` that tell rows apart."""
    kinds = enumerate(field.type for field in schema.fields)
    return [f"c{i}" if comparable(kind, "x") == "x" else f"m{i}" for i, kind in kinds]


def counts(view: str, schema: TableSchema, keys: Sequence[str]) -> str:
    """How many rows were inserted, deleted and updated, in one row."""
    added, removed = "sum(greatest(n, 0))", "sum(greatest(-n, 0))"
    if not keys:
        return f"SELECT {added}, {removed}, 0 FROM {view}"
    by_key = f"SELECT {added} AS i, {removed} AS d FROM {view} GROUP BY {', '.join(_keys(schema, keys))}"
    return f"SELECT sum(i - least(i, d)), sum(d - least(i, d)), sum(least(i, d)) FROM ({by_key})"


def page(view: str, schema: TableSchema, keys: Sequence[str], limit: int, offset: int) -> str:
    """Some of the differing rows: whether there was one before and after, then both rows' values."""
    last = offset + limit
    rows, order = _paired(view, schema, keys, last) if keys else _single(view, schema, last)
    values = [f"{side}.{c} AS {side}{i}" for side in "ba" for i, c in enumerate(_columns(schema))]
    outputs = ", ".join(["b IS NOT NULL AS had", "a IS NOT NULL AS has", *values])
    if last <= _MOST_IN_MEMORY:
        return f"SELECT {outputs} FROM ({rows}) ORDER BY {order} LIMIT {limit} OFFSET {offset}"
    # Spark would keep all rows up to the last in memory; this sort uses the disk.
    placed = f"SELECT *, row_number() OVER (ORDER BY {order}) AS place FROM ({rows})"
    return f"SELECT {outputs} FROM ({placed}) WHERE place > {offset} AND place <= {last} ORDER BY place"


def _single(view: str, schema: TableSchema, last: int) -> tuple[str, str]:
    """Every row that only one side has, as often as that side has it."""
    row, contents = _row(schema), ", ".join(contents_of(schema))
    sides = f"CASE WHEN n < 0 THEN {row} END AS b, CASE WHEN n > 0 THEN {row} END AS a"
    return f"SELECT {contents}, {sides} FROM ({_copies(view, last)})", contents


def _paired(view: str, schema: TableSchema, keys: Sequence[str], last: int) -> tuple[str, str]:
    """The rows of each key, each row before paired with a row after while there are both."""
    by, row = ", ".join(_keys(schema, keys)), _row(schema)
    rank = f"row_number() OVER (PARTITION BY {by}, n > 0 ORDER BY {', '.join(contents_of(schema))}) AS r"
    ranked = f"SELECT *, {rank} FROM ({_copies(view, last)})"
    sides = f"first({row}) FILTER (WHERE n < 0) AS b, first({row}) FILTER (WHERE n > 0) AS a"
    return f"SELECT {by}, r, {sides} FROM ({ranked}) WHERE r <= {last} GROUP BY {by}, r", f"{by}, r"


def _copies(view: str, last: int) -> str:
    """A row for each occurrence; equal rows are repeated at most as often as a page can show."""
    return f"SELECT *, explode(sequence(1L, least(abs(n), {last}L))) AS copy FROM {view}"


def _row(schema: TableSchema) -> str:
    return f"struct({', '.join(_columns(schema))})"


def _columns(schema: TableSchema) -> list[str]:
    return [f"c{i}" for i in range(len(schema.fields))]


def _keys(schema: TableSchema, keys: Sequence[str]) -> list[str]:
    contents = contents_of(schema)
    return [contents[schema.names.index(key)] for key in keys]

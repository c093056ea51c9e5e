"""The SQL of a difference: how much more often one side has a content, pairs by key, and a page of them."""

from collections.abc import Sequence

from service.engine.sql.content import comparable
from service.engine.sql.sql import identifier
from service.model.schema.types import TableSchema

# In `net`, a column's value is c0, c1, …; if that does not compare, m0, m1, … does. `n` is how much more often the
# content is in the state after. No column of a table is looked up by its own name.
_MOST_IN_MEMORY = 100_000


def net(sources: Sequence[tuple[str, int]], schema: TableSchema) -> str:
    """Each content that one side has more often, of sources with -1 for a state before and 1 for one after."""
    sides = " UNION ALL ".join(f"SELECT {_values(schema)}, {sign} AS s FROM {source}" for source, sign in sources)
    kept = [f"first(c{i}) AS c{i}" for i in range(len(schema.fields)) if _apart(schema, i)]
    columns = ", ".join([*_contents(schema), *kept])
    return (
        f"SELECT {columns}, sum(s) AS n FROM (SELECT {_with_contents(schema)}, s FROM ({sides})) "
        f"GROUP BY {', '.join(_contents(schema))} HAVING sum(s) <> 0"
    )


def counts(view: str, schema: TableSchema, keys: Sequence[str]) -> str:
    """How many rows were inserted, deleted and updated, in one row."""
    came, went = "sum(greatest(n, 0))", "sum(greatest(-n, 0))"
    if not keys:
        return f"SELECT {came}, {went}, 0 FROM {view}"
    by_key = f"SELECT {came} AS i, {went} AS d FROM {view} GROUP BY {', '.join(_keys(schema, keys))}"
    return f"SELECT sum(i - least(i, d)), sum(d - least(i, d)), sum(least(i, d)) FROM ({by_key})"


def page(view: str, schema: TableSchema, keys: Sequence[str], limit: int, offset: int) -> str:
    """Some of the differing rows: whether there was one before and after, then both rows' values."""
    last = offset + limit
    rows, order = _paired(view, schema, keys, last) if keys else _single(view, schema, last)
    values = [f"{side}.c{i} AS {side}{i}" for side in "ba" for i in range(len(schema.fields))]
    outputs = ", ".join(["b IS NOT NULL AS had", "a IS NOT NULL AS has", *values])
    if last <= _MOST_IN_MEMORY:
        return f"SELECT {outputs} FROM ({rows}) ORDER BY {order} LIMIT {limit} OFFSET {offset}"
    # Spark would keep all rows up to the last in memory; this sort uses the disk.
    placed = f"SELECT *, row_number() OVER (ORDER BY {order}) AS place FROM ({rows})"
    return f"SELECT {outputs} FROM ({placed}) WHERE place > {offset} AND place <= {last} ORDER BY place"


def _single(view: str, schema: TableSchema, last: int) -> tuple[str, str]:
    """Every row that only one side has, as often as it has it."""
    whole = _row(schema)
    contents = _contents(schema)
    sides = f"CASE WHEN n < 0 THEN {whole} END AS b, CASE WHEN n > 0 THEN {whole} END AS a"
    return f"SELECT {', '.join(contents)}, {sides} FROM ({_copies(view, last)})", ", ".join(contents)


def _paired(view: str, schema: TableSchema, keys: Sequence[str], last: int) -> tuple[str, str]:
    """The rows of each key, pairing those before with those after as long as there are both."""
    by = ", ".join(_keys(schema, keys))
    rank = f"row_number() OVER (PARTITION BY {by}, n > 0 ORDER BY {', '.join(_contents(schema))}) AS r"
    ranked = f"SELECT *, {rank} FROM ({_copies(view, last)})"
    sides = ", ".join(
        f"first({_row(schema)}) FILTER (WHERE {which}) AS {side}" for side, which in (("b", "n < 0"), ("a", "n > 0"))
    )
    return f"SELECT {by}, r, {sides} FROM ({ranked}) WHERE r <= {last} GROUP BY {by}, r", f"{by}, r"


def _copies(view: str, last: int) -> str:
    """A row for each occurrence; of equal rows never more than a page can show."""
    return f"SELECT *, explode(sequence(1L, least(abs(n), {last}L))) AS copy FROM {view}"


def _row(schema: TableSchema) -> str:
    return f"struct({', '.join(f'c{i}' for i in range(len(schema.fields)))})"


def _values(schema: TableSchema) -> str:
    return ", ".join(f"{identifier(field.name)} AS c{i}" for i, field in enumerate(schema.fields))


def _with_contents(schema: TableSchema) -> str:
    apart = [f"{comparable(field.type, f'c{i}')} AS m{i}" for i, field in enumerate(schema.fields) if _apart(schema, i)]
    return ", ".join([*(f"c{i}" for i in range(len(schema.fields))), *apart])


def _contents(schema: TableSchema) -> list[str]:
    """The columns that tell rows apart."""
    return [f"m{i}" if _apart(schema, i) else f"c{i}" for i in range(len(schema.fields))]


def _keys(schema: TableSchema, keys: Sequence[str]) -> list[str]:
    contents = _contents(schema)
    return [contents[schema.names.index(key)] for key in keys]


def _apart(schema: TableSchema, i: int) -> bool:
    """Whether a column's values do not compare by themselves."""
    return comparable(schema.fields[i].type, "x") != "x"

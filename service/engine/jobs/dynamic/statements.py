"""The SQL of a refresh: how changes are added up, and which rows of the result they concern. Pure."""

from collections.abc import Iterable, Sequence

from service.engine.sql import diff_sql
from service.engine.sql.content import comparable, same
from service.engine.sql.edit_sql import FindOptions, hits
from service.engine.sql.sql import identifier, opaque, spark_type
from service.model.dynamic.plan import WEIGHT
from service.model.names import PLACE_COLUMNS
from service.model.schema.types import Field, TableSchema, contains_uuid

_FILE, _POS = PLACE_COLUMNS
_H, _G = "_firn_h", "_firn_g"
# How many copies of a row are made at once.
_AT_ONCE = 10_000


def no_rows(fields: Iterable[Field]) -> str:
    """A relation with these columns and no row."""
    nulls = (f"CAST(NULL AS {spark_type(field.type)}) AS {identifier(field.name)}" for field in fields)
    return f"SELECT {', '.join(nulls)} WHERE FALSE"


def visible(fields: Iterable[Field]) -> list[str]:
    """Columns of a table as queries may read them."""
    names = ((identifier(field.name), field.type) for field in fields)
    return [f"{opaque(name, kind)} AS {name}" if contains_uuid(kind) else name for name, kind in names]


def typed(view: str, schema: TableSchema, *more: str) -> str:
    """The rows of a view with exactly these columns and types, and some of its others."""
    cast = (f"CAST({identifier(f.name)} AS {spark_type(f.type)}) AS {identifier(f.name)}" for f in schema.fields)
    return f"SELECT {', '.join([*cast, *more])} FROM {view}"


def weighted(sides: Sequence[tuple[str, int]], schema: TableSchema) -> str:
    """The rows of relations that came (1) or went (-1), with their weights, added up by content if some went."""
    if all(sign > 0 for _, sign in sides):
        listed = listing(schema)
        return " UNION ALL ".join(f"SELECT {listed}, {sign}L AS {WEIGHT} FROM {source}" for source, sign in sides)
    return net(sides, schema)


def net(sides: Iterable[tuple[str, int | str]], schema: TableSchema) -> str:
    """Rows by content, with the sum of their weights, if it is not 0."""
    columns = (f"c{i} AS {identifier(name)}" for i, name in enumerate(schema.names))
    return f"SELECT {', '.join(columns)}, CAST(n AS BIGINT) AS {WEIGHT} FROM ({diff_sql.net(sides, schema)})"


def sums(view: str) -> str:
    """How many rows came and went, and how often the most frequent one of each came."""
    came, went = f"greatest({WEIGHT}, 0L)", f"greatest(-{WEIGHT}, 0L)"
    return f"SELECT coalesce(sum({came}), 0L), coalesce(sum({went}), 0L), coalesce(max({came}), 0L) FROM {view}"


def keys(view: str, fields: Sequence[Field]) -> str:
    """The keys of a view, with the types of the result's columns; without columns, one row if there is any."""
    if not fields:
        return f"SELECT 1 AS _firn_any FROM {view} LIMIT 1"
    return typed(view, TableSchema(tuple(fields)))


def with_keys(relation: str, keys_view: str, fields: Sequence[Field]) -> str:
    """The rows of a relation with one of the keys; without columns, all of them if there is a key."""
    on = _same(fields) if fields else "TRUE"
    return f"SELECT {_H}.* FROM {relation} AS {_H} LEFT SEMI JOIN {keys_view} AS {_G} ON {on}"


def places(placed: str, net_view: str, schema: TableSchema) -> str:
    """The places of the rows that go: of equal rows, the first ones."""
    content = ", ".join(comparable(f.type, f"{_H}.{identifier(f.name)}") for f in schema.fields)
    number = f"row_number() OVER (PARTITION BY {content} ORDER BY {_H}.{_FILE}, {_H}.{_POS})"
    found = (
        f"SELECT {_H}.{_FILE} AS file, {_H}.{_POS} AS pos, -{_G}.{WEIGHT} AS n, {number} AS k FROM {placed} AS {_H} "
        f"JOIN (SELECT * FROM {net_view} WHERE {WEIGHT} < 0) AS {_G} ON {_same(schema.fields)}"
    )
    return f"SELECT file, pos FROM ({found}) WHERE k <= n"


def by_file(places_view: str) -> str:
    """Places by file, as bitmaps, and how many each stands for."""
    outputs, by = hits(FindOptions(places=True), "file", "pos")
    return f"SELECT {', '.join(outputs)} FROM {places_view} GROUP BY {by}"


def kept_rows(source: str, places_view: str, schema: TableSchema) -> str:
    """The rows of files without those at some places."""
    columns = ", ".join(f"{_H}.{identifier(name)}" for name in schema.names)
    at = f"{_H}._file = {_G}.file AND {_H}._pos = {_G}.pos"
    return f"SELECT {columns} FROM {source} AS {_H} LEFT ANTI JOIN {places_view} AS {_G} ON {at}"


def new_rows(net_view: str, schema: TableSchema, *, repeated: bool) -> str:
    """Each row that came, as often as it came."""
    found = f"SELECT {listing(schema)} FROM {net_view}"
    if not repeated:
        return f"{found} WHERE {WEIGHT} > 0"
    # In parts: an array with an item for each of a billion copies would end the JVM.
    parts = f"LATERAL VIEW explode(sequence(0L, ({WEIGHT} - 1) DIV {_AT_ONCE})) _firn_p AS _firn_part"
    left = f"least({WEIGHT} - _firn_part * {_AT_ONCE}, {_AT_ONCE}L)"
    copies = f"LATERAL VIEW explode(sequence(1L, {left})) _firn_c AS _firn_copy"
    rows = f"(SELECT * FROM {net_view} WHERE {WEIGHT} > 0)"
    return f"SELECT {listing(schema)} FROM {rows} {parts} {copies}"


def listing(schema: TableSchema) -> str:
    return ", ".join(map(identifier, schema.names))


def _same(fields: Sequence[Field]) -> str:
    names = [(field.type, identifier(field.name)) for field in fields]
    return " AND ".join(same(kind, f"{_H}.{name}", f"{_G}.{name}") for kind, name in names)

"""The tables that a query names."""

from dataclasses import dataclass, field

from sqlglot import exp

from service.dynamic.query.dialect import parse, place_at, quoted
from service.errors import InvalidQuery
from service.model.dynamic.plan import new
from service.model.schema.types import fold_case

_CATALOG = "lake"


@dataclass(frozen=True)
class NamedTable:
    """A table that the query names, with the first place where it does."""

    namespace: str | None
    """None for the namespace of the dynamic table."""
    table: str
    line: int
    column: int
    places: tuple[tuple[int, int, str], ...] = field(default=(), repr=False)
    """Every place in the text, from start to end, and the alias to add if there is none."""


def tables_named(query: str) -> tuple[NamedTable, ...]:
    """Each table of the query once; raises InvalidQuery if it cannot be read or names something else."""
    return named_in(query, parse(query))


def named_in(text: str, tree: exp.Expr) -> tuple[NamedTable, ...]:
    found: dict[tuple[str | None, str], list[tuple[int, int, str]]] = {}
    _collect(text, tree, frozenset(), found)
    return tuple(
        NamedTable(namespace, table, *place_at(text, min(places)[0]), tuple(places))
        for (namespace, table), places in sorted(found.items(), key=lambda one: min(one[1]))
    )


def with_views(text: str, tables: tuple[NamedTable, ...]) -> str:
    """The query with the views of the sources instead of their tables."""
    places = [(start, end, i, alias) for i, one in enumerate(tables) for start, end, alias in one.places]
    for start, end, i, alias in sorted(places, reverse=True):
        text = f"{text[:start]}{new(i)}{f' AS {quoted(alias)}' if alias else ''}{text[end:]}"
    return text


def _collect(
    text: str,
    node: exp.Expr,
    ctes: frozenset[str],
    found: dict[tuple[str | None, str], list[tuple[int, int, str]]],
) -> None:
    clause = node.args.get("with_")
    if clause is not None:
        for one in clause.expressions:
            inner = ctes | {fold_case(one.alias)} if clause.args.get("recursive") else ctes
            _collect(text, one.this, inner, found)
            ctes = ctes | {fold_case(one.alias)}
    if isinstance(node, exp.Table):
        _table(text, node, ctes, found)
    for each in node.iter_expressions():
        if each is not clause:
            _collect(text, each, ctes, found)


def _table(
    text: str,
    node: exp.Table,
    ctes: frozenset[str],
    found: dict[tuple[str | None, str], list[tuple[int, int, str]]],
) -> None:
    parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
    if not parts or len(parts) != len(node.parts) or any("start" not in part.meta for part in parts):
        return
    names = [part.name for part in parts]
    if len(names) == 1 and fold_case(names[0]) in ctes:
        return
    start, end = parts[0].meta["start"], parts[-1].meta["end"] + 1
    if len(names) > 3 or (len(names) == 3 and names[0].lower() != _CATALOG):
        line, column = place_at(text, start)
        problem = f"{'.'.join(names)} is not the name of a table (line {line}, column {column})"
        raise InvalidQuery(f"{problem}; write lake.namespace.table, namespace.table or table", field="query")
    alias = "" if node.alias else names[-1]
    found.setdefault((names[-2] if len(names) > 1 else None, names[-1]), []).append((start, end, alias))

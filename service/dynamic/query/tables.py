"""The tables that a query names."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from service.dynamic.query.dialect import parse, place_at, quoted
from service.errors import InvalidQuery
from service.model.dynamic.plan import new
from service.model.schema.types import fold_case

NAME_SHAPE = "lake.namespace.table, namespace.table or table"
_CATALOG = "lake"
Names = tuple[str | None, str]


@dataclass(frozen=True)
class Mention:
    """A place of the text that names a table."""

    start: int
    end: int
    kind: Literal["table", "aliased", "column"]
    """A table without or with an alias, or the table of a column."""


@dataclass(frozen=True)
class NamedTable:
    """A table that the query names, with the first place where it does."""

    namespace: str | None
    """None for the namespace of the dynamic table."""
    table: str
    line: int
    column: int
    mentions: tuple[Mention, ...] = field(default=(), repr=False)


def tables_named(query: str) -> tuple[NamedTable, ...]:
    """Each table of the query once; raises InvalidQuery if it cannot be read or names something else."""
    return named_in(query, parse(query))


def is_table_name(parts: Sequence[str]) -> bool:
    """Whether the parts of a name have the shape of a table's."""
    return len(parts) < 3 or (len(parts) == 3 and parts[0].lower() == _CATALOG)


def named_in(text: str, tree: exp.Expr) -> tuple[NamedTable, ...]:
    found: dict[Names, list[Mention]] = {}
    _collect(text, tree, frozenset(), found)
    firsts = {names: min(one.start for one in mentions) for names, mentions in found.items()}
    _add_columns(tree, found)
    return tuple(
        NamedTable(*names, *place_at(text, firsts[names]), tuple(found[names]))
        for names in sorted(found, key=firsts.__getitem__)
    )


def with_views(text: str, tables: tuple[NamedTable, ...]) -> str:
    """The query with the views of the sources instead of their tables."""
    mentions = [(each.start, each, i) for i, one in enumerate(tables) for each in one.mentions]
    for _, each, i in sorted(mentions, key=lambda one: one[0], reverse=True):
        view = {
            "table": f"{new(i)} AS {quoted(tables[i].table)}",
            "aliased": new(i),
            "column": quoted(tables[i].table),
        }[each.kind]
        text = text[: each.start] + view + text[each.end :]
    return text


def _collect(text: str, node: exp.Expr, ctes: frozenset[str], found: dict[Names, list[Mention]]) -> None:
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


def _table(text: str, node: exp.Table, ctes: frozenset[str], found: dict[Names, list[Mention]]) -> None:
    parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
    if not parts or len(parts) != len(node.parts) or any("start" not in part.meta for part in parts):
        return
    names = [part.name for part in parts]
    if len(names) == 1 and fold_case(names[0]) in ctes:
        return
    start, end = parts[0].meta["start"], parts[-1].meta["end"] + 1
    line, column = place_at(text, start)
    if not is_table_name(names):
        problem = f"{'.'.join(names)} is not the name of a table (line {line}, column {column})"
        raise InvalidQuery(f"{problem}; write {NAME_SHAPE}", field="query")
    if node.args.get("version") or node.args.get("when"):
        problem = f"{names[-1]} is named at a fixed snapshot (line {line}, column {column})"
        raise InvalidQuery(f"{problem}, but a dynamic table follows its sources; leave out AS OF", field="query")
    plain = not node.alias and not node.args.get("sample")
    mention = Mention(start, end, "table" if plain else "aliased")
    found.setdefault((names[-2] if len(names) > 1 else None, names[-1]), []).append(mention)


def _add_columns(tree: exp.Expr, found: dict[Names, list[Mention]]) -> None:
    """Add the columns that are written with the namespace of their table."""
    for node in tree.find_all(exp.Column):
        parts = node.parts
        if not all(isinstance(part, exp.Identifier) and "start" in part.meta for part in parts[:-1]):
            continue
        names = [part.name for part in parts]
        for length in (3, 2):
            owner = (names[length - 2], names[length - 1]) if len(names) > length else None
            if owner in found and (length == 2 or names[0].lower() == _CATALOG):
                end = parts[length - 1].meta["end"] + 1
                found[owner].append(Mention(parts[0].meta["start"], end, "column"))
                break

"""What `*` means over ingestion tables: their columns without the internal ones, even if the statement names those.

Spark would expand `*` to every column of a view. So each `*` over a view with internal columns gets an EXCEPT clause,
before the statement is analysed: DISTINCT, UNION and subqueries then see what the user sees.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from service.engine.session.java import java_class, scala_items
from service.engine.sql.sql import identifier
from service.errors import InvalidQuery
from service.model.schema.types import fold_case

Internal = Mapping[str, Collection[str]]
"""The internal columns of each view that has some; its name is folded."""
# What is below one of these is another SELECT, whose own `*` is without internal columns.
_SELECTS = {"Project", "Aggregate"}
_STARS = {"UnresolvedStar", "UnresolvedStarExceptOrReplace"}


def without_internal_columns(plan: Any, text: str, internal: Internal) -> str:
    """The text of a parsed statement in which no `*` means internal columns."""
    added: dict[int, str] = {}
    seen: set[int] = set()
    for node, views in _nodes(plan, internal, seen):
        stars = [star for expression in scala_items(node.expressions()) for star in _stars(expression)]
        if not stars:
            continue
        columns = [one for child in scala_items(node.children()) for one in _columns(child, views)]
        for star in stars:
            names = [f"{identifier(of)}.{identifier(name)}" for of, name in columns if _covers(star, of)]
            if names:
                end, has_except = int(star.origin().stopIndex().get()), _kind(star) != "UnresolvedStar"
                listed = ", ".join(dict.fromkeys(names))
                added[end if has_except else end + 1] = f", {listed}" if has_except else f" EXCEPT ({listed})"
    for place in sorted(added, reverse=True):
        text = text[:place] + added[place] + text[place:]
    return text


def _nodes(plan: Any, views: Internal, seen: set[int]) -> Iterator[tuple[Any, Internal]]:
    """Every plan inside of a plan, with the views that it can name: a WITH clause hides those of its names."""
    identity = java_class("java.lang.System").identityHashCode(plan)
    if identity in seen:
        return
    seen.add(identity)
    yield plan, views
    if _kind(plan) == "UnresolvedWith":
        for named in scala_items(plan.innerChildren()):
            yield from _nodes(named, views, seen)
            views = {name: columns for name, columns in views.items() if name != fold_case(named.alias())}
        yield from _nodes(plan.child(), views, seen)
        return
    for inside in (plan.children(), plan.innerChildren(), plan.subqueries()):
        for one in scala_items(inside):
            yield from _nodes(one, views, seen)


def _columns(plan: Any, views: Internal, alias: str | None = None) -> list[tuple[str, str]]:
    """The internal columns that a FROM clause has: the name of each one's table there, and its own."""
    kind = _kind(plan)
    if kind in _SELECTS:
        return []
    if kind == "UnresolvedRelation":
        parts = scala_items(plan.multipartIdentifier())
        names = views.get(fold_case(parts[-1]), ()) if len(parts) == 1 else ()
        return [(alias or parts[-1], name) for name in names]
    if kind == "SubqueryAlias":
        alias = alias or plan.alias()
    sides = [_columns(child, views, alias) for child in scala_items(plan.children())]
    found = [one for side in sides for one in side]
    if kind != "Join":
        return found
    join = plan.joinType()
    if _kind(join) == "NaturalJoin":
        shared = set.intersection(*({name for _, name in side} for side in sides))
        if shared:
            raise InvalidQuery(
                f"sql: a NATURAL JOIN would also compare {', '.join(sorted(shared))}; name the columns to compare, in "
                "USING (…)",
                field="sql",
            )
    if _kind(join) == "UsingJoin":  # the columns that it compares are named
        compared = {fold_case(name) for name in scala_items(join.usingColumns())}
        found = [(of, name) for of, name in found if name not in compared]
    return found


def _stars(expression: Any) -> Iterator[Any]:
    """Every `*` in an expression but that of count(*), which counts rows."""
    kind = _kind(expression)
    if kind in _STARS:
        yield expression
        return
    inside = scala_items(expression.children())
    if kind == "UnresolvedFunction" and not expression.isDistinct() and len(inside) == 1:
        is_count = [fold_case(part) for part in scala_items(expression.nameParts())] == ["count"]
        if is_count and _kind(inside[0]) == "UnresolvedStar" and inside[0].target().isEmpty():
            return
    for one in inside:
        yield from _stars(one)


def _covers(star: Any, table: str) -> bool:
    """Whether a `*` is over the columns of this table in the FROM clause: `*`, or `table.*`."""
    target = star.target()
    return bool(target.isEmpty()) or fold_case(scala_items(target.get())[-1]) == fold_case(table)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())

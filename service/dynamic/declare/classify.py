"""What a changed query means for a dynamic table: nothing, more columns, or another result. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from service.dynamic.query.dialect import parse
from service.dynamic.query.tables import tables_named, with_views
from service.guard.functions import GENERATORS
from service.model.schema.types import TableSchema, fold_case

Change = Literal["nothing", "options", "columns_added", "rebuild"]


@dataclass(frozen=True)
class QueryChange:
    """How a query differs from the one that a table was declared with."""

    change: Change
    added: tuple[str, ...] = ()
    """Columns that the result did not have."""
    removed: tuple[str, ...] = ()
    """Columns that it has no longer, or with another type."""


def classify(
    before: tuple[str, Sequence[str], TableSchema], after: tuple[str, Sequence[str], TableSchema]
) -> QueryChange:
    """Compare two queries: each with the UUIDs of its sources, in their order, and the columns of its result."""
    (old_query, old_sources, old_columns), (new_query, new_sources, new_columns) = before, after
    old, new = ({field.name: field.type for field in one.fields} for one in (old_columns, new_columns))
    added = tuple(name for name in new if name not in old)
    removed = tuple(name for name, kind in old.items() if new.get(name) != kind)
    same_sources = list(old_sources) == list(new_sources)
    if same_sources and list(old.items()) == list(new.items()) and is_same_query(old_query, new_query):
        return QueryChange("nothing")
    goes_on = list(new.items())[: len(old)] == list(old.items()) and len(new) > len(old)
    if same_sources and goes_on and only_selects_more(old_query, new_query):
        return QueryChange("columns_added", added)
    return QueryChange("rebuild", added, removed)


def is_same_query(one: str, other: str) -> bool:
    """Whether two queries differ only in layout, comments, case, or in how they write the names of tables."""
    return one == other or _canonical(one) == _canonical(other)


def only_selects_more(old: str, new: str) -> bool:
    """Whether a query is another one with more columns at the end of its SELECT; each has as many rows as before."""
    before, after = _canonical(old), _canonical(new)
    if before == after:  # `*` stands for more columns by now
        return True
    if not isinstance(before, exp.Select) or not isinstance(after, exp.Select) or before.args.get("distinct"):
        return False
    known, more = after.expressions[: len(before.expressions)], after.expressions[len(before.expressions) :]
    if known != before.expressions or any(map(_makes_rows, more)):
        return False
    before.set("expressions", [])
    after.set("expressions", [])
    return before == after


def _makes_rows(item: exp.Expr) -> bool:
    """Whether a column may be a generator, which makes several rows of one."""
    names = (str(call.this).lower() for call in item.find_all(exp.Anonymous))
    return bool(item.find(exp.UDTF)) or any(name in GENERATORS for name in names)


def _canonical(query: str) -> exp.Expr:
    tree = parse(with_views(query, tables_named(query)))
    for node in tree.walk():
        node.comments = None
        if isinstance(node, exp.Identifier):
            node.set("this", fold_case(node.name))
            node.set("quoted", False)
        elif isinstance(node, exp.Anonymous) and isinstance(node.this, str):
            node.set("this", node.this.lower())
    return tree

"""Which view each table of a SELECT is read through, and the text with those names in it."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.engine.sql import identifier
from service.engine.tenant_sql import Mention
from service.errors import InvalidQuery
from service.guard.sql import Reads, Reference
from service.schema import folded


@dataclass(frozen=True, slots=True)
class Named:
    """The text to run, and the table that each view in it stands for."""

    text: str
    views: dict[str, Reference]


def name_views(text: str, reads: Reads, namespace: str, mentions: Sequence[Mention]) -> Named:
    """A table named alone keeps its name; one named with its namespace is called by its last part where that is free.

    `mentions` says where the text names tables; it may be empty where no name has a namespace.
    """
    views: dict[str, Reference] = {}
    taken: dict[str, Reference | None] = {folded(name): None for name in reads.with_names}
    for reference in sorted(reads.tables, key=lambda r: (r.namespace is not None, r)):
        table = Reference(reference.namespace or namespace, reference.table)
        if table in views.values():
            continue
        name = reference.table
        if reference.namespace is None and taken.get(folded(name)) is not None:
            raise InvalidQuery(
                f"sql: {name!r} and another table of this query differ only in case; name one of them with its "
                "namespace",
                field="sql",
            )
        while reference.namespace is not None and folded(name) in taken:
            name = f"{reference.namespace}__{name}"
        taken[folded(name)] = table
        views[name] = table
    return Named(_rewritten(text, views, mentions), views)


def _rewritten(text: str, views: dict[str, Reference], mentions: Sequence[Mention]) -> str:
    names = {table: name for name, table in views.items()}
    for mention in reversed(mentions):
        if len(mention.parts) == 2:
            view = names[Reference(*mention.parts)]
            text = text[: mention.start] + identifier(view) + text[mention.end :]
    return text

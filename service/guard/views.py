"""Chooses the name of the view through which a SELECT reads each table, and puts these names into its text."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.engine.sql.sql import identifier
from service.engine.sql.tenant_sql import TableMention
from service.errors import InvalidQuery
from service.guard.sql import SelectReferences, TableReference
from service.model.schema.types import fold_case


@dataclass(frozen=True, slots=True)
class NamedViews:
    """The text to run, and the table behind each view that it names."""

    text: str
    views: dict[str, TableReference]


def name_views(text: str, reads: SelectReferences, namespace: str, mentions: Sequence[TableMention]) -> NamedViews:
    """Name the views. A table without a namespace keeps its name; one with a namespace gets its table name if free.

    `mentions` are the positions of tables in the text. It may be empty if no name has a namespace.
    """
    views: dict[str, TableReference] = {}
    taken: dict[str, TableReference | None] = {fold_case(name): None for name in reads.with_names}
    for reference in sorted(reads.tables, key=lambda r: (r.namespace is not None, r)):
        table = TableReference(reference.namespace or namespace, reference.table)
        if table in views.values():
            continue
        name = reference.table
        if reference.namespace is None and taken.get(fold_case(name)) is not None:
            raise InvalidQuery(
                f"sql: {name!r} and another table of this query differ only in case; name one of them with its "
                "namespace",
                field="sql",
            )
        while reference.namespace is not None and fold_case(name) in taken:
            name = f"{reference.namespace}__{name}"
        taken[fold_case(name)] = table
        views[name] = table
    return NamedViews(_rewritten(text, views, mentions), views)


def _rewritten(text: str, views: dict[str, TableReference], mentions: Sequence[TableMention]) -> str:
    names = {table: name for name, table in views.items()}
    for mention in reversed(mentions):
        if len(mention.parts) == 2:
            view = names[TableReference(*mention.parts)]
            text = text[: mention.start] + identifier(view) + text[mention.end :]
    return text

"""Dynamic tables by name: what the tables themselves say of their definitions, and what the ledger knows."""

from dataclasses import replace

from service.catalog.tables import Catalog, Table
from service.dynamic.graph import Graph
from service.errors import InvalidRequest, TableInUse
from service.guard.policies import Policies
from service.ledger.dynamic_tables import DynamicTable, DynamicTableRecords
from service.model.dynamic.definition import DEFINITION_PROPERTY, Definition, DynamicOptions, read_definition
from service.model.identity.principal import Principal
from service.model.names import TableName

_LISTED = 10


class Definitions:
    """The definitions of all dynamic tables.

    A table's own property counts. The ledger repeats it, so that all definitions can be found, and follows it here if
    a request ended after it had changed the table.
    """

    def __init__(self, catalog: Catalog, records: DynamicTableRecords) -> None:
        self._catalog = catalog
        self.policies = Policies(catalog)
        self.records = records

    def graph(self) -> Graph:
        """All dynamic tables that are not dropped, of every tenant."""
        return Graph(self.records.all())

    def load(self, name: TableName) -> tuple[Table, DynamicTable]:
        """A dynamic table; TableNotFound if there is none of this name, InvalidRequest if it is not a dynamic one."""
        table = self._catalog.load(name)
        return table, self.of(table)

    def of(self, table: Table) -> DynamicTable:
        """What is known of a dynamic table, whose definition the ledger has afterwards."""
        text = table.properties.get(DEFINITION_PROPERTY)
        if text is None:
            raise InvalidRequest(
                f"table {table.name.table!r} is not a dynamic table; LIST_DYNAMIC_TABLES lists those that are",
                field="table",
            )
        declared = read_definition(table.name, table.uuid, text)
        known = self.records.find(table.uuid)
        if known is None or not _is_same(known.definition, declared):
            self.records.put(declared)
            known = self.records.find(table.uuid)
            assert known is not None
        return known

    def set_options(self, table: Table, options: DynamicOptions, creator: Principal | None = None) -> Table:
        """Change the options of a dynamic table, and with `creator` its creator; the query stays."""
        before = self.of(table).definition
        declared = replace(before, options=options, owner=before.owner if creator is None else creator.dumps())
        if declared == before:
            return table
        changed = self._catalog.set_properties(table, {DEFINITION_PROPERTY: declared.text})
        self.records.put(declared)
        return changed

    def check_not_read(self, table: Table, way_out: str, principal: Principal) -> None:
        """Refuse to drop a table that dynamic tables read; `way_out` says how it can be dropped all the same.

        Those that the principal may not read are not named.
        """
        readers = self.records.readers([table.uuid])
        if not readers:
            return
        named = [one.name for one in readers if principal.may("reader", one.name.tenant, one.name.namespace)]
        shown = [shown_name(one, table.name) for one in named[:_LISTED]]
        more = f" and {len(named) - _LISTED} more" if len(named) > _LISTED else ""
        by = (
            f"the dynamic {'tables' if shown[1:] else 'table'} {', '.join(shown)}{more}"
            if named
            else "dynamic tables that you may not read"
        )
        if named and len(named) < len(readers):
            by += ", and others that you may not read"
        raise TableInUse(
            f"table {table.name.table!r} is read by {by}; {way_out}", field="table", details={"dynamic_tables": shown}
        )


def shown_name(name: TableName, beside: TableName) -> str:
    """The name of a table in a message about another one: with its namespace if that is another."""
    return name.table if name.namespace == beside.namespace else f"{name.namespace}.{name.table}"


def _is_same(known: Definition, declared: Definition) -> bool:
    """Whether the ledger has a definition, whatever the names of the sources are now."""
    names = tuple(one.name for one in known.sources)
    sources = declared.sources
    if len(names) == len(sources):
        sources = tuple(replace(one, name=name) for one, name in zip(sources, names, strict=True))
    return replace(known, name=declared.name) == replace(declared, sources=sources)

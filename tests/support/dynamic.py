"""Dynamic tables that tests declare without running their queries."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from service.app import App
from service.catalog.tables import Catalog, Table
from service.dynamic.definitions import Definitions
from service.ledger.dynamic_tables import DynamicTable, RefreshRecord
from service.model.dynamic.definition import DEFINITION_PROPERTY, Definition, DynamicOptions, DynamicSource
from service.model.names import TableName
from service.model.schema.types import Field, Primitive, TableSchema

COLUMNS = TableSchema((Field("id", Primitive("long")), Field("note", Primitive("string"))))


def named(name: str, tenant: str = "acme") -> TableName:
    """`orders` or `shop.orders` of a tenant."""
    namespace, _, table = name.rpartition(".")
    return TableName(tenant, namespace or "default", table)


def defined(name: str, *sources: str, tenant: str = "acme", **parts: Any) -> Definition:
    """The definition of a table that reads others; each table has its name for a UUID."""
    read = tuple(DynamicSource(named(one, tenant), f"uuid-{one}", one, ("id", "note")) for one in sources)
    query = f"SELECT * FROM {' JOIN '.join(sources)}"
    options = parts.pop("options", DynamicOptions(300))
    return replace(Definition(named(name, tenant), f"uuid-{name}", "1", query, options, read), **parts)


def dynamic(name: str, *sources: str, **parts: Any) -> DynamicTable:
    return DynamicTable(defined(name, *sources, **parts))


def refreshed(table: DynamicTable, number: int, **parts: Any) -> RefreshRecord:
    """The nth refresh of a table: its sources are pinned a second after those of the one before."""
    made = RefreshRecord(
        f"{table.name.table}-{number}",
        f"pass-{number}",
        table.name,
        table.uuid,
        table.definition.version,
        "done",
        "INCREMENTAL",
        pinned_ms=number * 1000,
        started_ms=number * 1000,
        ended_ms=number * 1000 + 500,
    )
    return replace(made, **parts)


class Declared:
    """Tables of a tenant of an application without Spark: base tables, and dynamic ones that read them."""

    def __init__(self, app: App, tenant: str) -> None:
        self.app, self.tenant = app, tenant
        self.catalog, self.definitions = app.parts[Catalog], app.parts[Definitions]

    def base(self, name: str) -> Table:
        return self.catalog.create(named(name, self.tenant), COLUMNS, (), {})

    def dynamic(self, name: str, *sources: str, register: bool = True, **parts: Any) -> Table:
        """A dynamic table over these; with `register=False`, its request ended before the ledger had it."""
        read = [
            DynamicSource(self.load(one).name, self.load(one).uuid, one, tuple(self.load(one).schema.names))
            for one in sources
        ]
        made = replace(defined(name, *sources, tenant=self.tenant, **parts), sources=tuple(read))
        properties: Mapping[str, str] = {DEFINITION_PROPERTY: made.text}
        table = self.catalog.create(named(name, self.tenant), COLUMNS, (), dict(properties))
        if register:
            self.definitions.of(table)
        return table

    def load(self, name: str) -> Table:
        return self.catalog.load(named(name, self.tenant))

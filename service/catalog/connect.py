"""The catalog connection."""

import sqlite3
from contextlib import closing
from typing import Any

from pyiceberg.catalog import load_catalog

from service.catalog.tables import Catalog
from service.catalog.translate import translated
from service.names import CATALOG
from service.settings import Settings


def connect(settings: Settings) -> Catalog:
    """The catalog that Spark uses too; the embedded one is made if it is not there."""
    warehouse = settings.catalog.warehouse or ""
    properties: dict[str, Any] = {"type": settings.catalog.type, "warehouse": warehouse, **settings.catalog.properties}
    if settings.catalog.type == "sqlite":
        path = settings.home / "catalog.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        # Wait for another writer rather than fail at once.
        properties |= {"type": "sql", "uri": f"sqlite:///{path}?timeout=30"}
    elif settings.catalog.uri:
        properties["uri"] = settings.catalog.uri
    with translated():
        return Catalog(load_catalog(CATALOG, **properties), warehouse)

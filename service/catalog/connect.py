"""The catalog connection."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg

# PyIceberg imports this with the first table, which several threads may load at once.
import pyiceberg.io.pyarrow  # noqa: F401  # so that it is there
from pyiceberg.catalog import load_catalog
from pyiceberg.io import InputFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from service import postgres
from service.catalog.tables import Catalog
from service.catalog.translate import translated
from service.names import CATALOG
from service.settings import Settings

_METADATA_KEPT = 64
# Names of any length, where PyIceberg's and Iceberg's own tables take 255 characters.
_TABLES = """
    SELECT pg_advisory_xact_lock(hashtextextended('firn catalog', 0));
    CREATE TABLE IF NOT EXISTS iceberg_tables (
        catalog_name TEXT NOT NULL,
        table_namespace TEXT NOT NULL,
        table_name TEXT NOT NULL,
        metadata_location TEXT,
        previous_metadata_location TEXT,
        iceberg_type VARCHAR(5),
        PRIMARY KEY (catalog_name, table_namespace, table_name)
    );
    CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
        catalog_name TEXT NOT NULL,
        namespace TEXT NOT NULL,
        property_key TEXT NOT NULL,
        property_value TEXT,
        PRIMARY KEY (catalog_name, namespace, property_key)
    );
"""
_MISSING = """
    SELECT name FROM unnest(ARRAY['iceberg_tables', 'iceberg_namespace_properties']) AS name
    WHERE to_regclass(name) IS NULL
"""


def connect(settings: Settings) -> Catalog:
    """The catalog that Spark uses too; one in a database of our own is made if it is not there."""
    warehouse = settings.catalog.warehouse or ""
    properties: dict[str, Any] = {"type": settings.catalog.type, "warehouse": warehouse, **settings.catalog.properties}
    if settings.catalog.type == "sqlite":
        path = settings.home / "catalog.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        # Wait for another writer rather than fail at once.
        properties |= {"type": "sql", "uri": f"sqlite:///{path}?timeout=30"}
    elif settings.catalog.type == "postgresql":
        url = settings.catalog.uri or ""
        _make_tables(url)
        properties |= {"type": "sql", "uri": postgres.sqlalchemy(url), "pool_pre_ping": "true"}
    elif settings.catalog.uri:
        properties["uri"] = settings.catalog.uri
    _keep_metadata()
    with translated():
        return Catalog(load_catalog(CATALOG, **properties), warehouse)


def _make_tables(url: str) -> None:
    """Make the catalog's tables if they are not there, also where several instances do at the same moment."""
    with translated(), psycopg.connect(postgres.libpq(url)) as connection:
        # Only who makes tables needs the right to.
        if connection.execute(_MISSING).fetchall():
            connection.execute(_TABLES)


def _keep_metadata() -> None:
    """Have PyIceberg parse a table's metadata file once: it never changes, and each commit writes another one."""
    parse = FromInputFile.table_metadata
    if isinstance(parse, _Kept):
        return
    # The one function by which every catalog but REST's, which is sent the metadata itself, reads it.
    FromInputFile.table_metadata = _Kept(parse)  # type: ignore[method-assign, assignment]


class _Kept:
    """A function of a file, whose latest answer is kept for each folder."""

    def __init__(self, parse: Callable[..., TableMetadata]) -> None:
        self._parse = parse
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[str, TableMetadata]] = {}

    def __call__(self, file: InputFile, *args: Any, **kwargs: Any) -> TableMetadata:
        folder = file.location.rpartition("/")[0]
        with self._lock:
            location, answer = self._answers.pop(folder, (None, None))
        if answer is None or location != file.location:
            answer = self._parse(file, *args, **kwargs)
        with self._lock:
            self._answers[folder] = file.location, answer
            while len(self._answers) > _METADATA_KEPT:
                del self._answers[next(iter(self._answers))]
        return answer

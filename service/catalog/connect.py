"""The catalog connection."""

import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from typing import Any

import orjson
import psycopg

# PyIceberg would import this with the first table, which several threads may load at once.
import pyiceberg.io.pyarrow  # noqa: F401
from cachetools import LRUCache
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import InputFile
from pyiceberg.serializers import Compressor, FromInputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from service.catalog.conversion import check_shared, convert
from service.catalog.tables import Catalog
from service.catalog.translate import translated
from service.model import postgres
from service.model.names import CATALOG
from service.settings import Settings

# The worker of dynamic tables looks at all their base tables every few seconds.
_TABLES_CACHED = 256
# PyIceberg's and Iceberg's own tables limit names to 255 characters; these do not.
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
    """Connect to the catalog, which Spark uses too.

    The tables of a SQL catalog are created if they do not exist. Names that an earlier version encoded are converted.

    CatalogUnavailable if another version of Firn must be used.
    """
    warehouse = settings.catalog.warehouse or ""
    properties: dict[str, Any] = {"type": settings.catalog.type, "warehouse": warehouse, **settings.catalog.properties}
    if settings.catalog.type == "sqlite":
        path = settings.home / "catalog.db"
        with translated(), closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            convert(connection)
        # Wait for another writer instead of failing at once.
        properties |= {"type": "sql", "uri": f"sqlite:///{path}?timeout=30"}
    elif settings.catalog.type == "postgresql":
        url = settings.catalog.uri or ""
        _make_tables(url)
        properties |= {"type": "sql", "uri": postgres.sqlalchemy(url), "pool_pre_ping": "true"}
    elif settings.catalog.uri:
        properties["uri"] = settings.catalog.uri
    _cache_metadata()
    with translated():
        catalog = Catalog(load_catalog(CATALOG, **properties), warehouse)
    if settings.catalog.type != "sqlite":
        check_shared(catalog)
    return catalog


def _make_tables(url: str) -> None:
    """Create the catalog's tables if they do not exist; safe if several instances do so at once."""
    with translated(), psycopg.connect(postgres.libpq(url)) as connection:
        # Without this check every instance would need the right to create tables.
        if connection.execute(_MISSING).fetchall():
            connection.execute(_TABLES)


def _cache_metadata() -> None:
    """Have PyIceberg parse each metadata file once: such a file never changes, and each commit writes a new one."""
    parse = FromInputFile.table_metadata
    if isinstance(parse, _MetadataCache):
        return
    # Every catalog reads metadata through this function, except REST, whose server sends the metadata itself.
    FromInputFile.table_metadata = _MetadataCache(parse)  # type: ignore[method-assign, assignment]


class _MetadataCache:
    """Keeps the latest metadata of each folder, and so of each table."""

    def __init__(self, parse: Callable[..., TableMetadata]) -> None:
        self._parse = parse
        self._lock = threading.Lock()
        self._latest: LRUCache[str, tuple[str, TableMetadata]] = LRUCache(_TABLES_CACHED)

    def __call__(self, file: InputFile, *args: Any, **kwargs: Any) -> TableMetadata:
        folder = file.location.rpartition("/")[0]
        with self._lock:
            found = self._latest.get(folder)
        if found is not None and found[0] == file.location:
            return found[1]
        metadata = (found and _parse_with(file, found[1].snapshots)) or self._parse(file, *args, **kwargs)
        with self._lock:
            self._latest[folder] = file.location, metadata
        return metadata


def _parse_with(file: InputFile, known: Iterable[Snapshot]) -> TableMetadata | None:
    """Parse a metadata file, but not the snapshots that are known; None if it is malformed.

    A table has up to some hundred snapshots, which never change, and each commit adds one. To parse them takes most of
    the time, which WRITEs wait for.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in known}
    with file.open() as stream, Compressor.get_compressor(file.location).stream_decompressor(stream) as content:
        text = content.read()
    with suppress(ValueError, KeyError, TypeError, ValidationError):
        fields = orjson.loads(text)
        fields["snapshots"] = [by_id.get(one["snapshot-id"], one) for one in fields["snapshots"]]
        return TableMetadataUtil.parse_obj(fields)
    return None

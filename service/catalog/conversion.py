"""Catalogs that hold names as earlier versions of Firn encoded them: every byte outside [a-z0-9] as `_hh`.

The catalog under FIRN_HOME is converted; a shared one, which other instances may use, is refused.
"""

import re
import sqlite3

from service.catalog.tables import Catalog
from service.catalog.translate import translated
from service.errors import CatalogUnavailable
from service.model.names import CATALOG, DROPPED_NAMESPACE, encode, namespace_identifier

_FORMAT = 1  # the catalog's `user_version` since names are encoded as they are now
_ESCAPE = re.compile(r"_([0-9a-f]{2})")
# With the internal tenant `_firn`.
_NAME = re.compile(r"_?[A-Za-z0-9][A-Za-z0-9_-]*")
_MARK = namespace_identifier(*DROPPED_NAMESPACE)


def convert(connection: sqlite3.Connection) -> None:
    """Rename what an embedded catalog holds, in one transaction; nothing happens if it is converted already.

    Tables stay in their folders. The connection must be in autocommit mode (`isolation_level=None`).
    """
    connection.execute("BEGIN IMMEDIATE")
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > _FORMAT:
        raise CatalogUnavailable(
            f"the catalog was made by a later version of Firn (its format is {found}, this version needs {_FORMAT}); "
            "use that version, or an empty FIRN_HOME"
        )
    if found < _FORMAT:
        _convert_rows(connection, "iceberg_tables", ("table_namespace", "table_name"))
        _convert_rows(connection, "iceberg_namespace_properties", ("namespace",))
        connection.execute(f"PRAGMA user_version = {_FORMAT}")
    connection.execute("COMMIT")


def _convert_rows(connection: sqlite3.Connection, table: str, names: tuple[str, ...]) -> None:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
        return
    # All are removed before any is added: a new name may be the old one of another table.
    which, ours = f"FROM {table} WHERE catalog_name = ?", (CATALOG,)
    rows = connection.execute(f"SELECT {', '.join(names)}, * {which}", ours).fetchall()
    connection.execute(f"DELETE {which}", ours)
    columns = [column[1] for column in connection.execute(f"PRAGMA table_info({table})")]
    values = [
        dict(zip(columns, row[len(names) :], strict=True)) | dict(zip(names, _renamed(*row[: len(names)]), strict=True))
        for row in rows
    ]
    connection.executemany(f"INSERT INTO {table} VALUES ({', '.join(f':{name}' for name in columns)})", values)


def _renamed(namespace: str, *table: str) -> tuple[str, ...]:
    """A namespace, or a namespace and a table in it, as they are called now; unchanged if Firn did not create them."""
    parts = [_old_name(part) for part in namespace.partition("__")[::2]]
    if None in parts:
        return namespace, *table
    renamed = (encode(name) if (name := _old_name(old)) else old for old in table)
    return namespace_identifier(parts[0] or "", parts[1] or ""), *renamed


def _old_name(encoded: str) -> str | None:
    """The name that an earlier version encoded."""
    name = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), encoded)
    again = re.sub(r"[^a-z0-9]", lambda found: f"_{ord(found[0]):02x}", name)
    return name if _NAME.fullmatch(name) and again == encoded else None


def check_shared(catalog: Catalog) -> None:
    """Mark a shared catalog as having names of the present kind; CatalogUnavailable if it has others."""
    iceberg = catalog.iceberg
    with translated():
        if iceberg.namespace_exists((_MARK,)):
            return
        for namespace in (identifier[-1] for identifier in iceberg.list_namespaces()):
            if _renamed(namespace) != (namespace,):
                raise _refusal(namespace)
            if None in (_old_name(part) for part in namespace.partition("__")[::2]):
                continue  # not Firn's
            for _, table in iceberg.list_tables((namespace,)):
                if _renamed(namespace, table) != (namespace, table):
                    raise _refusal(f"{namespace}.{table}")
        catalog.ensure_namespace(_MARK)


def _refusal(found: str) -> CatalogUnavailable:
    return CatalogUnavailable(
        f"the catalog has names that an earlier version of Firn encoded in another way, such as {found}; use that "
        f"version, or an empty catalog; if they are not Firn's, create the namespace {_MARK} in the catalog"
    )

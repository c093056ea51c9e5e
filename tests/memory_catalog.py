"""PyIceberg's catalog with its list of tables in memory: it writes files, but uses no database.

`unit/test_fakes.py` runs the same tests on it and on PyIceberg's catalog on SQLite.
"""

import threading
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import EMPTY_DICT, Identifier


class MemoryCatalog(MetastoreCatalog, NoopCatalog):
    """Namespaces of one part, and their tables."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._tables: dict[Identifier, tuple[str, TableMetadata]] = {}
        self._namespaces: set[Identifier] = set()
        self._lock = threading.Lock()

    def create_namespace(self, namespace: str | Identifier, properties: Any = EMPTY_DICT) -> None:
        if self.namespace_exists(namespace):
            raise NamespaceAlreadyExistsError(f"there is a namespace {namespace} already")
        self._namespaces.add(Catalog.identifier_to_tuple(namespace))

    def namespace_exists(self, namespace: str | Identifier) -> bool:
        return Catalog.identifier_to_tuple(namespace) in self._namespaces

    def load_namespace_properties(self, namespace: str | Identifier) -> dict[str, str]:
        self._need(Catalog.identifier_to_tuple(namespace))
        return {}

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        return sorted(self._namespaces)

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        within = Catalog.identifier_to_tuple(namespace)
        self._need(within)
        return [identifier for identifier in list(self._tables) if identifier[:-1] == within]

    def create_table(self, identifier: str | Identifier, *args: Any, **kwargs: Any) -> Table:
        self._need(Catalog.namespace_from(identifier))
        staged = self._create_staged_table(identifier, *args, **kwargs)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self._put(Catalog.identifier_to_tuple(identifier), staged)
        return self.load_table(identifier)

    def load_table(self, identifier: str | Identifier) -> Table:
        address = Catalog.identifier_to_tuple(identifier)
        location, metadata = self._found(address)
        return Table(address, metadata, location, self._load_file_io(metadata.properties, location), self)

    def drop_table(self, identifier: str | Identifier) -> None:
        address = Catalog.identifier_to_tuple(identifier)
        with self._lock:
            self._found(address)
            del self._tables[address]

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        one, other = map(Catalog.identifier_to_tuple, (from_identifier, to_identifier))
        self._need(other[:-1])
        with self._lock:
            found = self._found(one)
            if other in self._tables:
                raise TableAlreadyExistsError(f"there is a table {other} already")
            self._tables[other] = found
            del self._tables[one]
        return self.load_table(other)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        address = table.name()
        current = self.load_table(address)
        staged = self._update_and_stage_table(current, address, requirements, updates)
        if staged.metadata == current.metadata:
            return CommitTableResponse(metadata=current.metadata, metadata_location=current.metadata_location)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self._put(address, staged, instead_of=current.metadata_location)
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    def _put(self, address: Identifier, table: Table, *, instead_of: str | None = None) -> None:
        with self._lock:
            there, _ = self._tables.get(address, (None, None))
            if there is not None and instead_of is None:
                raise TableAlreadyExistsError(f"there is a table {address} already")
            if there != instead_of:
                raise CommitFailedException(f"another writer has changed {address} first")
            self._tables[address] = table.metadata_location, table.metadata

    def _found(self, address: Identifier) -> tuple[str, TableMetadata]:
        found = self._tables.get(address)
        if found is None:
            raise NoSuchTableError(f"there is no table {address}")
        return found

    def _need(self, namespace: Identifier) -> None:
        if namespace not in self._namespaces:
            raise NoSuchNamespaceError(f"there is no namespace {namespace}")

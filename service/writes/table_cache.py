"""Tables as last seen, so that a small WRITE is checked without reading metadata."""

import threading

from cachetools import LRUCache

from service.catalog.tables import Catalog, Table
from service.model.names import TableName

_KEPT = 1000


class TableCache:
    """A cached table may have changed since: whatever is done with it checks that again."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._tables: LRUCache[TableName, Table] = LRUCache(_KEPT)

    def get(self, name: TableName) -> Table | None:
        """The table as last loaded, if it is cached."""
        with self._lock:
            return self._tables.get(name)

    def load(self, name: TableName) -> Table:
        """The table as it is now."""
        try:
            table = self._catalog.load(name)
        except Exception:
            self.forget(name)
            raise
        with self._lock:
            self._tables[name] = table
        return table

    def forget(self, name: TableName) -> None:
        with self._lock:
            self._tables.pop(name, None)

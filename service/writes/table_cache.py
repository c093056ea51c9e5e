"""Tables as last seen, so that a small WRITE need not read metadata to be checked."""

import threading
from collections import OrderedDict

from service.catalog.tables import Catalog, Table
from service.names import TableName

_KEPT = 1000


class SeenTables:
    """What is seen here may have changed since; whoever acts on it checks again."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._seen: OrderedDict[TableName, Table] = OrderedDict()

    def seen(self, name: TableName) -> Table | None:
        with self._lock:
            table = self._seen.get(name)
            if table is not None:
                self._seen.move_to_end(name)
            return table

    def look(self, name: TableName) -> Table:
        """The table as it is now."""
        try:
            table = self._catalog.load(name)
        except Exception:
            self.forget(name)
            raise
        with self._lock:
            self._seen[name] = table
            self._seen.move_to_end(name)
            if len(self._seen) > _KEPT:
                self._seen.popitem(last=False)
        return table

    def forget(self, name: TableName) -> None:
        with self._lock:
            self._seen.pop(name, None)

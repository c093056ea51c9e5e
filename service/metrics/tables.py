"""Series by table, bounded: names of tables come from clients, and nothing that they send may grow without end."""

import threading
from collections import OrderedDict
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.metrics.catalogue import Described
from service.names import TableName

# A metric's name, and the values of its labels beside the table's.
Series = tuple[str, ...]


class TableSeries(Collector):
    """The series of so many tables; those that were heard of least recently go, with all their series."""

    def __init__(self, kinds: Iterable[Described], most: int) -> None:
        self._kinds = tuple(kinds)
        self._most = most
        self._lock = threading.Lock()
        self._tables: OrderedDict[TableName, dict[Series, float]] = OrderedDict()

    def set(self, table: TableName, values: dict[Series, float]) -> None:
        """Gauges that stand so now."""
        with self._lock:
            self._of(table).update(values)

    def refresh(self, table: TableName, values: dict[Series, float]) -> None:
        """Gauges of a table to which nothing happened: it has them if no other must go for it."""
        with self._lock:
            if table in self._tables or len(self._tables) < self._most:
                self._tables.setdefault(table, {}).update(values)

    def add(self, table: TableName, series: Series) -> None:
        """One more in a counter."""
        with self._lock:
            mine = self._of(table)
            mine[series] = mine.get(series, 0) + 1

    def forget(self, table: TableName) -> None:
        with self._lock:
            self._tables.pop(table, None)

    def describe(self) -> Iterable[Metric]:
        return [kind.family() for kind in self._kinds]

    def collect(self) -> Iterable[Metric]:
        families = {kind.name: kind.family() for kind in self._kinds}
        with self._lock:
            now = [(table, dict(mine)) for table, mine in self._tables.items()]
        for table, mine in now:
            for (name, *rest), value in mine.items():
                families[name].add_metric([table.tenant, table.namespace, table.table, *rest], value)
        return families.values()

    def _of(self, table: TableName) -> dict[Series, float]:
        """A table's series, which it has from now on; those of another may have to go for it."""
        mine = self._tables.setdefault(table, {})
        self._tables.move_to_end(table)
        if len(self._tables) > self._most:
            self._tables.popitem(last=False)
        return mine

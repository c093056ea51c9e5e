"""Series per table, of a bounded number of tables: clients choose the names of tables and could create any number."""

import threading
from collections import OrderedDict
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.metrics.catalogue import MetricSpec
from service.model.names import TableName

# A metric's name, and the values of its labels other than the table's.
Series = tuple[str, ...]


class TableSeries(Collector):
    """The series of at most `most_tables` tables; the one updated least recently is removed first."""

    def __init__(self, specs: Iterable[MetricSpec], most_tables: int) -> None:
        self._specs = tuple(specs)
        self._lock = threading.Lock()
        self._most = most_tables
        self._tables: OrderedDict[TableName, dict[Series, float]] = OrderedDict()

    def set(self, table: TableName, values: dict[Series, float]) -> None:
        """Set gauges."""
        with self._lock:
            self._of(table).update(values)

    def refresh(self, table: TableName, values: dict[Series, float]) -> None:
        """Set gauges without counting as an update, unless there is no room for the table."""
        with self._lock:
            if table in self._tables or len(self._tables) < self._most:
                self._tables.setdefault(table, {}).update(values)

    def add(self, table: TableName, series: Series) -> None:
        """Increment a counter."""
        with self._lock:
            mine = self._of(table)
            mine[series] = mine.get(series, 0) + 1

    def forget(self, table: TableName) -> None:
        with self._lock:
            self._tables.pop(table, None)

    def describe(self) -> Iterable[Metric]:
        return [spec.family() for spec in self._specs]

    def collect(self) -> Iterable[Metric]:
        families = {spec.name: spec.family() for spec in self._specs}
        with self._lock:
            now = [(table, dict(mine)) for table, mine in self._tables.items()]
        for table, mine in now:
            for (name, *rest), value in mine.items():
                families[name].add_metric([table.tenant, table.namespace, table.table, *rest], value)
        return families.values()

    def _of(self, table: TableName) -> dict[Series, float]:
        """A table's series, as the one updated last."""
        mine = self._tables.setdefault(table, {})
        self._tables.move_to_end(table)
        if len(self._tables) > self._most:
            self._tables.popitem(last=False)
        return mine

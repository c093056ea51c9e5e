"""Our own collectors: metrics that are read on each scrape, and series per table, of a bounded number of tables."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.metrics.catalogue import MetricSpec
from service.model.names import TableName

log = logging.getLogger("firn.metrics")

# Returns a number, or numbers by the values of the labels.
ReadGauge = Callable[[], float | Mapping[tuple[str, ...], float]]
# A metric's name, and the values of its labels other than the table's.
Series = tuple[str, ...]


class Gauges(Collector):
    """Calls the functions that read the metrics; a metric without one has no value."""

    def __init__(self, specs: Iterable[MetricSpec]) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._reads: dict[str, ReadGauge] = {}

    def add(self, name: str, read: ReadGauge) -> None:
        """Set the function that reads a metric, in place of an earlier one; it must be quick and do no I/O."""
        if name not in self._specs:
            raise KeyError(name)
        self._reads[name] = read

    @property
    def missing(self) -> set[str]:
        """The metrics without a function that reads them."""
        return self._specs.keys() - self._reads.keys()

    def describe(self) -> Iterable[Metric]:
        return [spec.family() for spec in self._specs.values()]

    def collect(self) -> Iterable[Metric]:
        for name, spec in self._specs.items():
            family = spec.family()
            try:
                found = self._reads[name]() if name in self._reads else {}
                by_label = found if isinstance(found, Mapping) else {(): found}
                for labels, value in by_label.items():
                    family.add_metric(labels, value)
            except Exception as e:  # one that fails must not hide the others
                log.warning("%s could not be read: %s", name, e)
            yield family


class TableSeries(Collector):
    """The series of at most `most_tables` tables; the one updated least recently is removed first.

    Without a limit they would have no bound, because clients choose the names of tables.
    """

    def __init__(self, specs: Iterable[MetricSpec], most_tables: int) -> None:
        self._specs = tuple(specs)
        self._lock = threading.Lock()
        self._most = most_tables
        self._tables: OrderedDict[TableName, dict[Series, float]] = OrderedDict()

    def set(self, table: TableName, values: Mapping[Series, float]) -> None:
        """Set gauges."""
        with self._lock:
            self._of(table).update(values)

    def refresh(self, table: TableName, values: Mapping[Series, float]) -> None:
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


class WithoutCreated(Collector):
    """A registry without the `_created` series, which would double the number of series for no use."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            created = f"{metric.name}_created"
            metric.samples = [sample for sample in metric.samples if sample.name != created]
            yield metric

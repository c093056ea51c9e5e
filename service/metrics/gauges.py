"""Metrics that are read on each scrape, such as the lengths of queues."""

import logging
from collections.abc import Callable, Iterable, Mapping

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.metrics.catalogue import MetricSpec

log = logging.getLogger("firn.metrics")

# Returns a number, or numbers by the values of the labels.
ReadGauge = Callable[[], float | Mapping[tuple[str, ...], float]]


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

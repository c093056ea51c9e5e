"""What is read only when somebody asks: how long queues are, what is up. Nobody keeps these by hand."""

import logging
from collections.abc import Callable, Iterable, Mapping

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.metrics.catalogue import Described

log = logging.getLogger("firn.metrics")

# A number, or numbers by the values of the labels.
Read = Callable[[], float | Mapping[tuple[str, ...], float]]


class Reads(Collector):
    """Asks the parts of the service; what nobody has told how to read is left out."""

    def __init__(self, kinds: Iterable[Described]) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._reads: dict[str, Read] = {}

    def add(self, name: str, read: Read) -> None:
        """Have a metric read so; whoever says it last is asked. It must be quick, and wait for nothing slow."""
        if name not in self._kinds:
            raise KeyError(name)
        self._reads[name] = read

    @property
    def missing(self) -> set[str]:
        """What nobody has told how to read."""
        return self._kinds.keys() - self._reads.keys()

    def describe(self) -> Iterable[Metric]:
        return [kind.family() for kind in self._kinds.values()]

    def collect(self) -> Iterable[Metric]:
        for name, kind in self._kinds.items():
            family = kind.family()
            try:
                found = self._reads[name]() if name in self._reads else {}
                by_label = found if isinstance(found, Mapping) else {(): found}
                for labels, value in by_label.items():
                    family.add_metric(labels, value)
            except Exception as e:  # one part that cannot tell must not hide the others
                log.warning("%s could not be read: %s", name, e)
            yield family

"""The record of each request, once it is answered. Today: one log line and the metrics."""

import logging

from service.metrics.metrics import Metrics
from service.model.call import Call
from service.pipeline.response import Response

log = logging.getLogger("firn.requests")


class Audit:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def record(self, call: Call, operation: str, response: Response) -> None:
        """Record what a request was answered with. `operation` is NONE if it named none that exists."""
        self._metrics.request(operation, response.code, call.elapsed_ms / 1000)
        log.info("%s %s %s %s in %d ms", call.id, call.principal.name, operation, response.code, call.elapsed_ms)

"""The record of each request, once it is answered: the metrics, a log line, and the audit log."""

import logging

from service.identity.audit_log import AuditLog
from service.metrics.catalogue import NONE
from service.metrics.metrics import Metrics
from service.model.call import Call
from service.pipeline.response import Response

log = logging.getLogger("firn.requests")


class Audit:
    def __init__(self, metrics: Metrics, audit_log: AuditLog) -> None:
        self._metrics = metrics
        self._log = audit_log

    def record(self, call: Call, operation: str, response: Response) -> None:
        """Record what a request was answered with. `operation` is NONE if it named none that exists."""
        self._metrics.request(operation, response.code, call.elapsed_ms / 1000)
        log.info("%s %s %s %s in %d ms", call.id, call.principal.name, operation, response.code, call.elapsed_ms)
        named = operation if operation != NONE else call.route or operation
        self._log.add(call, named, response.code, response.status)

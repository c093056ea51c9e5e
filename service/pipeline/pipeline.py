"""The way of every request: authenticate, parse, authorise, admit, idempotency, run, render, audit.

Requests come over HTTP, in events, as bulk loads, from schedules and from the command line in process. They all pass
through `Pipeline.respond`.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from service.errors import DeadlineExceeded, NotFound, OutcomeUnknown, ResponseTooLarge
from service.fairness.crowd import Crowd
from service.guard.policies import Policies
from service.identity.audit_log import AuditLog
from service.identity.identities import Identities
from service.jobs.jobs import Jobs
from service.ledger.ledger import Ledger
from service.metrics.catalogue import BULK, NONE
from service.metrics.metrics import Metrics
from service.model import wire
from service.model.call import Call
from service.model.identity.principal import LOCAL
from service.operations import envelope
from service.operations.operation import Operation, Parts, Request, Result
from service.operations.row_access import row_access
from service.pipeline.admission import Admission, stopping
from service.pipeline.audit import Audit
from service.pipeline.authorisation import authorise, check_policy
from service.pipeline.idempotency import IdempotencyKeys
from service.pipeline.parse import RequestParser, Work, key_of, object_of, subject_of
from service.pipeline.response import Response, failure
from service.pipeline.threads import RequestThreads
from service.pipeline.waiting import BackgroundLoop, Disconnected, shared_result, watching
from service.queries.streaming.streams import Stream
from service.settings import LimitSettings

# Parsing a large body, and checking its records, would keep the event loop from answering others.
_LARGE = 256 * 1024


class Pipeline:
    """Serves the operations it was given."""

    def __init__(self, operations: Iterable[Operation], parts: Parts, limits: LimitSettings) -> None:
        self._parser = RequestParser(operations)
        self._handlers = {name: operation.bind(parts) for name, operation in self._parser.operations.items()}
        self._limits = limits
        self._jobs = parts[Jobs]
        self._policies = parts[Policies]
        self.identities = parts[Identities]
        self.audit_log = parts[AuditLog]
        self._keys = IdempotencyKeys(parts[Ledger], self._is_void)
        self._threads = RequestThreads(limits, parts[Crowd])
        self._loop = BackgroundLoop()
        self.metrics = parts[Metrics]
        self.admission = Admission(limits, self.metrics, parts[Crowd])
        self._audit = Audit(self.metrics, self.audit_log)
        for name in (*self._parser.operations, BULK):
            self.metrics.serves(name)
        self.metrics.read("firn_requests_in_progress", lambda: self.admission.in_progress)
        self.metrics.read("firn_requests_waiting", self._threads.waiting)

    @property
    def operations(self) -> list[Operation]:
        return list(self._parser.operations.values())

    def parse(self, body: Any, *, trusted: bool = False) -> tuple[Operation, Request]:
        """The operation that a request names, and its checked model. `body` is JSON text or its value."""
        return self._parser.parse(object_of(body), None, trusted=trusted)

    def submit(self, body: Any, call: Call | None = None, key: str | None = None) -> "Future[Response]":
        """Start a request from a thread without an event loop. The future never ends in an exception."""
        return self._loop.start(self.respond_to(body, call or Call(uuid.uuid4().hex), key))

    async def respond_to(
        self, body: Any, call: Call, key: str | None = None, disconnected: Disconnected | None = None
    ) -> Response:
        """The response to a JSON request. `key` is the idempotency key that came beside the body.

        The request goes on if the task that waits for it is cancelled: a client that disconnects cancels the call.
        """
        return await asyncio.shield(self._respond_to(body, call, key, disconnected))

    async def _respond_to(self, body: Any, call: Call, key: str | None, disconnected: Disconnected | None) -> Response:
        call.size = len(body) if isinstance(body, bytes | str) else call.size
        name = NONE

        def parse() -> Work:
            nonlocal name
            value = object_of(body)
            name = self._named(value)
            return self._work(value, call, key)

        response = await self.respond(call, parse, disconnected)
        self._audit.record(call, name, response)
        return response

    async def respond_to_load(self, call: Call, parse: Callable[[], Work], disconnected: Disconnected) -> Response:
        """The response to a bulk load."""
        response = await self.respond(call, parse, disconnected)
        self._audit.record(call, BULK, response)
        return response

    async def respond(self, call: Call, parse: Callable[[], Work], disconnected: Disconnected | None) -> Response:
        try:
            await self.authenticate(call)
            if call.size > _LARGE:
                work = await self._threads.parse(call.sender, call, parse)
            else:
                work = parse()
            authorise(call, work)
            work = await check_policy(call, work, self._policies)
            with self.admission.admit(work.pool, work.about.tenant):
                call.key = work.key
                if work.key is None:
                    return await self._run(call, work, disconnected)
                return await self._keys.once(call, work.key, lambda: self._run(call, work, disconnected))
        except Exception as e:
            return failure(e, call)

    async def value_of(self, text: bytes | str, call: Call) -> Any:
        """The value of JSON text that a route reads itself. It is large if its request is."""
        call.size = len(text)
        if call.size > _LARGE:
            return await self._threads.parse(call.sender, call, partial(wire.parse, text))
        return wire.parse(text)

    async def authenticate(self, call: Call) -> None:
        """Find out who sends a request; Unauthenticated if it does not show it."""
        call.principal = await self.identities.authenticate(call)

    def refuse(self, error: BaseException, call: Call, operation: str = NONE) -> Response:
        """The response to what cannot be read, or is refused before it is parsed."""
        response = failure(error, call)
        self._audit.record(call, operation, response)
        return response

    async def _run(self, call: Call, work: Work, disconnected: Disconnected | None) -> Response:
        try:
            return await self._success(call, work, disconnected)
        except Exception as e:
            return failure(e, call)

    async def _success(self, call: Call, work: Work, disconnected: Disconnected | None) -> Response:
        call.room.most_bytes = self._limits.response_bytes
        call.respond = lambda result: envelope.success(result, self._keys.request_id(call), call.elapsed_ms)
        here = work.pool in ("inline", "queued")
        call.is_change = here or work.pool in ("tables", "edits")
        if work.pool == "inline":
            call.seal()  # it is soon shared with other calls
        async with watching(call, disconnected if work.pool != "inline" else None):
            if not here:
                result = await self._threads.run(work.pool, call, work.run)
            elif call.size > _LARGE:
                result = await self._threads.run("inline", call, work.run)
            else:
                result = work.run(call)
            if isinstance(result, Stream):
                return self._streaming(call, result)
            if isinstance(result, Future):
                return await self._shared(call, work, result)
        body = call.respond(result)
        if work.pool in ("metadata", "queries") and call.room.bytes_of(body) > self._limits.response_bytes:
            raise ResponseTooLarge(
                f"the response takes more than {self._limits.response_bytes} bytes (FIRN_LIMITS__RESPONSE_BYTES); "
                "request less, by limit or a narrower scope"
            )
        return Response(result.http_status, self._keys.store(call.key, body) if call.key else body)

    async def _shared(self, call: Call, work: Work, result: "Future[bytes]") -> Response:
        try:
            return Response(200, await shared_result(result, call))
        except OutcomeUnknown as e:
            if work.pool == "queued" and call.cancel(DeadlineExceeded()):
                call.check()  # its commit has not begun
            self.admission.hold()  # a stop waits for it
            result.add_done_callback(lambda _: self.admission.leave())
            return replace(failure(e, call), pending=result)

    def _work(self, value: dict[str, Any], call: Call, key: str | None) -> Work:
        operation, request = self._parser.parse(value, key)
        pool = operation.pool_of(request)
        if request.timeout_ms is not None:
            call.set_deadline(min(request.timeout_ms / 1000, self._limits.max_timeout_s))
        elif pool == "queries":
            call.set_deadline(self._limits.query_timeout_s)
        run = partial(self._handlers[operation.name], request)
        keyed = key_of(operation, request, value, call.principal)
        rows = row_access(operation.name, dry_run=bool(getattr(request, "dry_run", False)))
        return Work(operation.name, operation.access_of(request), subject_of(request), pool, run, keyed, rows)

    def run(self, operation: Operation, request: Request, request_id: str) -> "Result | bytes | Stream":
        """Run a request of our own on this thread and wait for it; a failure is a FirnError."""
        result = self._handlers[operation.name](request, Call(request_id, principal=LOCAL))
        return result.result() if isinstance(result, Future) else result

    def _streaming(self, call: Call, stream: Stream) -> Response:
        """A stream is in progress until it is closed. Its deadline was for the first bytes only."""
        call.deadline = None
        self.admission.hold()
        stream.when_closed(lambda: self.admission.leave())
        return Response(200, b"", stream=stream)

    def _named(self, value: dict[str, Any]) -> str:
        """The operation that a request names, as metrics call it."""
        name = value.get("operation")
        return name.upper() if isinstance(name, str) and name.upper() in self._parser.operations else NONE

    def _is_void(self, answer: bytes) -> bool:
        """Whether a stored response promises a job that ended without doing its work."""
        if b'"job_id"' not in answer:
            return False
        job_id = wire.parse(answer).get("job_id")
        with suppress(NotFound):
            return isinstance(job_id, str) and self._jobs.ended_without_success(job_id)
        return False

    @property
    def busy(self) -> bool:
        """Whether a request is still in progress."""
        return self.admission.in_progress > 0

    def drain(self, seconds: float) -> bool:
        """Accept no more requests and wait for those in progress; true if none is left."""
        self._keys.stop_waiting(stopping())
        return self.admission.drain(seconds)

    def close(self) -> None:
        """Cancel what has not begun; its callers get ShuttingDown."""
        self._threads.close()
        self.audit_log.close()

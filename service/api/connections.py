"""The connections of the listening server: how many there are, and for how long a client may take to send a head."""

import asyncio
import logging
import uuid
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from service.errors import FirnError, HeadTooLarge, InvalidRequest, RequestTimeout, TooManyRequests
from service.fairness.shares import Shares
from service.operations import envelope
from service.settings import LimitSettings

log = logging.getLogger("firn.http")
HEAD_BYTES = 64 * 1024
# How long the client of a refused connection may read the refusal.
_LINGER_S = 2.0
_Protocol: Any = AutoHTTPProtocol


def bounded(limits: LimitSettings) -> type[asyncio.Protocol]:
    """Uvicorn's protocol with the limits of the service, for one server."""
    shared = {"limits": limits, "shares": Shares(limits.connections, limits.tenant_share)}
    protocol: type[asyncio.Protocol] = type("BoundedProtocol", (_Bounded,), shared)
    return protocol


class _Bounded(_Protocol):  # type: ignore[misc]
    limits: LimitSettings
    shares: Shares
    _address = ""
    _counted = False
    _refused = False
    _head = 0
    """How many bytes of the next request's head have been received."""
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    """Ends the connection if its client reads nothing for as long as it may stop reading a stream."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._counted = self.shares.take(self._address) is None
        if not self._counted and len(self.connections) > 2 * self.limits.connections:
            transport.abort()
            return
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._disarm()
        if self._stalled is not None:
            self._stalled.cancel()
        if self._counted:
            self._counted = False
            self.shares.leave(self._address)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if not self._counted:
            self._refuse(
                TooManyRequests(
                    f"{self.shares.at_most} connections are open already (FIRN_LIMITS__CONNECTIONS, "
                    "FIRN_LIMITS__TENANT_SHARE); use fewer, or try again in a second"
                )
            )
            return
        before = self.cycle
        ignored = before is not None and before.more_body and before.response_complete
        if before is None or not before.more_body:
            self._head += len(data)
        elif not ignored:
            super().data_received(data)  # its reader limits the time of a body
            return
        self._arm()
        super().data_received(data)
        if self.cycle is not before:
            self._head = 0
            self._disarm()
        elif self._head > HEAD_BYTES:
            self._refuse(HeadTooLarge(f"the URL and the headers are larger than {HEAD_BYTES >> 10} KiB; send less"))

    def send_400_response(self, msg: str) -> None:
        self._refuse(InvalidRequest("the HTTP request cannot be read; send HTTP/1.1"))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.limits.stream_idle_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():  # its client does not read the response
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.limits.client_timeout_s, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._arm()  # of a head that was sent before the response to the request before it
        elif self._head:
            seconds = self.limits.client_timeout_s
            self._refuse(RequestTimeout(f"the head of the request was not received within {seconds} s"))
        else:
            self.transport.close()

    def _refuse(self, error: FirnError) -> None:
        """Respond on the connection itself, before there is a request, and close it."""
        self._refused = True
        self._disarm()
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # a response is being sent
            return
        request_id = uuid.uuid4().hex
        log.info("%s: a connection from %s is refused: %s", request_id, self._address or "the socket", error.message)
        body = envelope.failure(error, request_id)
        head = [
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            f"X-Request-Id: {request_id}",
            "Connection: close",
            *(["Retry-After: 1"] if error.status == TooManyRequests.status else []),
        ]
        self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        # Closed at once, the system would reset the connection, and its client could not read the response.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.abort)

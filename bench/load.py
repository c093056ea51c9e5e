"""Clients that send WRITEs over HTTP, one after another each, in a process of its own: `python -m bench.load`.

The plan is a JSON object on standard input, the report another on standard output. The process shares its cores with
the service, so it does little: requests are made beforehand, and only the status of a response is read.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

FIRST_ID = 1_000_000_000  # every id has as many digits, so every request has the same length
_PAUSE_AFTER_REFUSAL_S = 0.05


@dataclass
class Plan:
    """So many clients, each with one request in progress, until so many requests are sent or seconds have passed."""

    port: int
    tenant: str
    table: str
    clients: int
    requests: int | None = None
    seconds: float | None = None
    rows: int = 1


@dataclass
class Seen:
    """What the clients saw. Ids count from FIRST_ID, one for each request in the order they were sent."""

    latencies_ms: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    sent: int = 0
    refused: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    refusal: str = ""
    started: float = 0.0
    last_response: float = 0.0


def request_template(plan: Plan) -> bytes:
    """A whole HTTP request with a place for the id; with several rows, they and their ids are always the same."""
    ids = ["%(id)d"] if plan.rows == 1 else [str(FIRST_ID + i) for i in range(plan.rows)]
    records = ",".join(
        f'{{"id":{i},"name":"name-{i}","amount":{n}.5,"moment":"2024-02-29T12:00:00"}}' for n, i in enumerate(ids)
    )
    body = f'{{"operation":"WRITE","tenant_id":"{plan.tenant}","table":"{plan.table}","records":[{records}]}}'
    length = len(body % {"id": FIRST_ID})
    head = f"POST /database HTTP/1.1\r\nHost: 127.0.0.1:{plan.port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {length}\r\n\r\n{body}".encode()


class Load:
    """All the clients of one run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.seen = Seen()
        self.over = asyncio.Event()
        self._template = request_template(plan)
        self._deadline = float("inf")
        self._at_work = 0

    async def run(self) -> Seen:
        loop = asyncio.get_running_loop()
        clients = [
            (await loop.create_connection(lambda: Client(self), "127.0.0.1", self.plan.port))[1]
            for _ in range(self.plan.clients)
        ]
        self._at_work = len(clients)
        self.seen.started = time.perf_counter()
        if self.plan.seconds is not None:
            self._deadline = self.seen.started + self.plan.seconds
        for client in clients:
            client.send()
        await self.over.wait()
        return self.seen

    def next(self) -> tuple[int, bytes] | None:
        """The next request and its id; None at the end."""
        if self.seen.sent == self.plan.requests or time.perf_counter() >= self._deadline:
            return None
        number = FIRST_ID + self.seen.sent
        self.seen.sent += 1
        return number, self._template % {b"id": number}

    def left(self) -> None:
        self._at_work -= 1
        if not self._at_work:
            self.over.set()


class Client(asyncio.Protocol):
    """One connection, kept."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._waiting_for: int | None = None
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self) -> None:
        transport = self._transport
        if transport is None:  # the service closed it while we paused
            return
        following = self._load.next()
        if following is None:
            self._load.left()
            self._transport = None
            transport.close()
            return
        self._waiting_for, request = following
        self._sent_at = time.perf_counter()
        transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        response = parse(self._buffer)
        if response is None:
            return
        now = time.perf_counter()
        self._buffer.clear()
        status, body = response
        seen, number = self._load.seen, self._waiting_for
        assert number is not None
        seen.statuses[status] += 1
        if status == 200:
            seen.latencies_ms.append((now - self._sent_at) * 1000)
            seen.last_response = now
            self.send()
            return
        # A 5xx may have had an effect, a 4xx may not.
        (seen.unknown if status >= 500 else seen.refused).append(number)
        seen.refusal = seen.refusal or body[:400].decode(errors="replace")
        asyncio.get_running_loop().call_later(_PAUSE_AFTER_REFUSAL_S, self.send)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is None:
            return
        self._transport = None
        self._load.seen.statuses[0] += 1
        self._load.seen.unknown.append(self._waiting_for or 0)
        self._load.left()


def parse(buffer: bytes | bytearray) -> tuple[int, bytes] | None:
    """The status and the body of an HTTP/1.1 response with a Content-Length; None while it is incomplete."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(buffer[:end]).lower()
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        raise ValueError(f"a response without Content-Length: {head[:200]!r}")
    length = int(head[at + 17 :].split(b"\r\n", 1)[0])
    if len(buffer) < end + 4 + length:
        return None
    return int(head[9:12]), bytes(buffer[end + 4 : end + 4 + length])


def report(seen: Seen) -> dict[str, Any]:
    return {
        "latencies_ms": [round(value, 3) for value in seen.latencies_ms],
        "statuses": seen.statuses,
        "sent": seen.sent,
        "refused": seen.refused,
        "unknown": seen.unknown,
        "refusal": seen.refusal,
        "elapsed_s": seen.last_response - seen.started,
        "cpu_s": time.process_time(),
    }


if __name__ == "__main__":
    json.dump(report(asyncio.run(Load(Plan(**json.load(sys.stdin))).run())), sys.stdout)

"""A tenant that sends all it can, in a process of its own: `python -m bench.flood`.

The plan is a JSON object on standard input, the report another on standard output: how often each kind of request was
answered with each status, and which failures gave no reason.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

_SLOW_EVERY_S = 1.0
_CHUNK = 1 << 20
_ANSWERS_WITHIN_S = 120
NO_REASON = "without a reason"


@dataclass
class Plan:
    """So many connections of each kind, for so many seconds. `heavy` is the SQL of expensive queries."""

    port: int
    tenant: str
    seconds: float
    heavy: str
    queries: int = 16
    heavies: int = 8
    writes: int = 16
    tables: int = 8
    slow: int = 32
    huge: int = 2
    huge_bytes: int = 80 << 20


class Flood:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._until = time.monotonic() + plan.seconds
        self._seen: dict[str, Counter[str]] = {}
        self._ids = count()

    async def run(self) -> dict[str, dict[str, int]]:
        plan = self._plan
        kinds = [("query", plan.queries), ("heavy", plan.heavies), ("write", plan.writes), ("slow", plan.slow)]
        kinds.append(("huge", plan.huge))
        async with asyncio.timeout(plan.seconds + _ANSWERS_WITHIN_S):
            await asyncio.gather(*(self._client(kind, i) for kind, number in kinds for i in range(number)))
        return {kind: dict(sorted(seen.items())) for kind, seen in self._seen.items()}

    async def _client(self, kind: str, number: int) -> None:
        seen = self._seen.setdefault(kind, Counter())
        while time.monotonic() < self._until:
            try:
                status = await self._send(kind, number)
            except (OSError, ValueError, IndexError):
                status = "closed"
            seen[status] += 1
            if status in ("429", "closed"):
                await asyncio.sleep(0.05)

    async def _send(self, kind: str, number: int) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._plan.port)
        try:
            if kind == "slow":
                return await self._send_slowly(reader, writer)
            if kind == "huge":
                await self._send_huge(writer, chunked=number % 2 == 1)
            else:
                body = self._body(kind, number)
                writer.write(_head(f"Content-Length: {len(body)}") + body)
            return _status(await reader.read())
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _body(self, kind: str, number: int) -> bytes:
        asked: dict[str, object] = {"tenant_id": self._plan.tenant}
        if kind == "write":
            table = f"t{number % self._plan.tables}"
            asked |= {"operation": "WRITE", "table": table, "records": [{"id": next(self._ids), "name": "x"}]}
        elif kind == "query":
            asked |= {"operation": "QUERY", "table": "t0", "limit": 10}
        else:
            asked |= {"operation": "QUERY", "sql": self._plan.heavy, "timeout_ms": 10_000}
        return json.dumps(asked).encode()

    async def _send_huge(self, writer: asyncio.StreamWriter, *, chunked: bool) -> None:
        """A body that is too large, until the service no longer reads it."""
        size = self._plan.huge_bytes
        writer.write(_head("Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"))
        part = b" " * _CHUNK
        with suppress(OSError):
            for _ in range(size // _CHUNK):
                writer.write(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
                await writer.drain()

    async def _send_slowly(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """A byte a second, until the service ends it."""
        writer.write(_head("Content-Length: 100000"))
        answer = asyncio.create_task(reader.read())
        while not answer.done() and time.monotonic() < self._until:
            writer.write(b" ")
            await writer.drain()
            await asyncio.wait([answer], timeout=_SLOW_EVERY_S)
        if not answer.done():
            answer.cancel()
            return "still open"
        return _status(answer.result())


def _status(response: bytes) -> str:
    """The status of a response, and whether a failure is one without a code and a message."""
    head, _, body = response.partition(b"\r\n\r\n")
    status = head.split()[1].decode()
    if status < "400":
        return status
    with suppress(ValueError, KeyError, TypeError):
        error = json.loads(body)["error"]
        if error["code"] and error["message"]:
            return status
    return f"{status} {NO_REASON}"


def _head(length: str) -> bytes:
    lines = ["POST /database HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", "Connection: close"]
    return "\r\n".join([*lines, length, "", ""]).encode()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(Flood(Plan(**json.load(sys.stdin))).run())))

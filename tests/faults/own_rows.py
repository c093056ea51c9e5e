"""Clients that change rows of their own again and again, each request under a key, until they know what came of it."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import httpx

from service.model import wire
from tests.harness import wait_until

PATIENCE_S = 150


class OwnRows:
    """Knows what rows it must have, and what each request must be told."""

    def __init__(self, number: int, url: str, run: int) -> None:
        self.number = number
        self.rows: dict[int, int] = {}
        """The column n by id."""
        self.steps = 0
        self.last: tuple[Callable[[httpx.Client], httpx.Response], bytes] | None = None
        """How the last request was sent, and its response."""
        self._url, self._run = url, run

    @property
    def key(self) -> str:
        return f"run{self._run}-client{self.number}-step{self.steps}"

    def work(self, stop: threading.Event) -> None:
        with httpx.Client(base_url=self._url, timeout=150, verify=False) as client:
            while not stop.is_set():
                self.step(client)

    def step(self, client: httpx.Client) -> None:
        raise NotImplementedError

    def done(
        self,
        client: httpx.Client,
        send: Callable[[httpx.Client], httpx.Response],
        told: dict[str, int],
        after: dict[int, int],
    ) -> None:
        """Send a request until it succeeds, and check what is told."""
        answer = self._until_done(client, send)
        body = wire.parse(answer)
        counts = {name: n for name, n in body.items() if name.startswith("records_") and n}
        assert counts == {name: n for name, n in told.items() if n}, (self.key, body)
        self.rows, self.last, self.steps = after, (send, answer), self.steps + 1

    def _until_done(self, client: httpx.Client, send: Callable[[httpx.Client], httpx.Response]) -> bytes:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with suppress(httpx.TransportError):
                answer = send(client).content
                body = wire.parse(answer)
                if body["success"]:
                    return answer
                assert body["error"]["retryable"], body
            time.sleep(0.2)
        raise AssertionError(f"no definite answer within {PATIENCE_S} s to {self.key}")


def wait_for_steps(clients: Sequence[OwnRows], working: Sequence[Any], count: int) -> None:
    """Wait until each client has done so many more steps."""
    goals = [client.steps + count for client in clients]

    def done() -> bool:
        for one in working:
            if one.done():
                one.result()
        return all(client.steps >= goal for client, goal in zip(clients, goals, strict=True))

    wait_until(done, PATIENCE_S, every=0.02)

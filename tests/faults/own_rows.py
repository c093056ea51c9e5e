"""Clients that change rows of their own again and again, each request under a key, until they know what came of it."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from service.model import wire
from tests.faults.points import NotReached, Point
from tests.faults.proxy import Proxy
from tests.faults.victim import Victim
from tests.harness import wait_until

PATIENCE_S = 150
TRIES = 4


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


@contextmanager
def at_work(clients: Sequence[OwnRows]) -> Iterator[Callable[[int], None]]:
    """Clients that work for the block, which gets a function that waits until each has done so many more steps."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(clients)) as pool:
        working = [pool.submit(client.work, stop) for client in clients]
        try:
            yield lambda count: _wait_for_steps(clients, working, count)
        finally:
            stop.set()
        for one in working:
            one.result(PATIENCE_S)


def kill_among_steps(
    victim: Victim,
    point: Point,
    proxy: Proxy,
    wait_for_steps: Callable[[int], None],
    steps_after: int,
    fits: Callable[[str], bool] = lambda batch: True,
) -> str:
    """Kill the service at a point while clients work, again if it was not there or its batch does not fit; the batch
    that it was hit with. Each time the clients do so many more steps."""
    for tried in range(1, TRIES + 1):
        try:
            batch = victim.kill_process(point, proxy)
        except NotReached:
            assert tried < TRIES, f"{TRIES} times the service was not {point} when it was killed"
            wait_for_steps(1)
        else:
            wait_for_steps(steps_after)
            if fits(batch):
                break
    return batch


def check_responses(clients: Sequence[OwnRows], http: httpx.Client) -> None:
    """Each client's last request gets the same response when it is sent once more."""
    for client in clients:
        assert client.last is not None
        send, answer = client.last
        assert send(http).content == answer


def _wait_for_steps(clients: Sequence[OwnRows], working: Sequence[Any], count: int) -> None:
    """Wait until each client has done so many more steps."""
    goals = [client.steps + count for client in clients]

    def done() -> bool:
        for one in working:
            if one.done():
                one.result()
        return all(client.steps >= goal for client, goal in zip(clients, goals, strict=True))

    wait_until(done, PATIENCE_S, every=0.02)

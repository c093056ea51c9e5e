"""Clients that write side by side and remember the response to each request."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from service.model import wire
from tests.harness import Firn


@dataclass
class Responses:
    """What the responses said of each record that was sent, by its id."""

    acknowledged: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)

    def add(self, other: "Responses") -> None:
        self.acknowledged |= other.acknowledged
        self.refused |= other.refused
        self.unknown |= other.unknown

    def check(self, found: Counter[int]) -> None:
        """Every acknowledged record is there once, no refused one is, and the unknown ones at most once."""
        lost = sorted(i for i in self.acknowledged if not found[i])
        assert not lost, f"acknowledged and lost: {lost[:10]} of {len(self.acknowledged)}"
        twice = sorted(i for i, count in found.items() if count > 1)
        assert not twice, f"there more than once: {twice[:10]}"
        ghosts = {i: self.refused[i] for i in sorted(found) if i in self.refused}
        assert not ghosts, f"refused and there all the same: {ghosts}"
        others = sorted(found.keys() - self.acknowledged - self.unknown)
        assert not others, f"nobody sent {others[:10]}"


class Load:
    """Clients that WRITE one record after the other to one table until stopped; each record has an id of its own."""

    def __init__(self, firn: Firn, address: dict[str, Any], clients: int, first_id: int = 0, payload: str = "") -> None:
        self.responses = Responses()
        self._url = firn.base_url
        self._address = address
        self._payload = payload
        self._next = first_id
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, daemon=True) for _ in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> Responses:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads), "a client still waits for its answer"
        return self.responses

    def wait_for(self, acknowledged: int, seconds: float) -> None:
        """Wait until so many more records are acknowledged."""
        deadline = time.monotonic() + seconds
        goal = len(self.responses.acknowledged) + acknowledged
        while len(self.responses.acknowledged) < goal:
            codes = Counter(self.responses.refused.values())
            assert time.monotonic() < deadline, f"{len(self.responses.acknowledged)} of {goal}: {codes}"
            time.sleep(0.02)

    def _write(self) -> None:
        with httpx.Client(base_url=self._url, timeout=150, verify=False) as client:
            while not self._stop.is_set():
                self._one(client)

    def _one(self, client: httpx.Client) -> None:
        with self._lock:
            number, self._next = self._next, self._next + 1
        record = {"id": number, "payload": self._payload}
        request = {"operation": "WRITE", **self._address, "records": [record]}
        try:
            answer = wire.parse(client.post("/database", content=wire.render(request)).content)
        except httpx.ConnectError:
            self._note(self.responses.refused, number, "NO_CONNECTION")
            time.sleep(0.2)
        except httpx.TransportError:
            with self._lock:
                self.responses.unknown.add(number)
        else:
            self._remember(number, answer)

    def _remember(self, number: int, answer: dict[str, Any]) -> None:
        if answer["success"]:
            with self._lock:
                self.responses.acknowledged.add(number)
            return
        code = answer["error"]["code"]
        if code == "OUTCOME_UNKNOWN":
            with self._lock:
                self.responses.unknown.add(number)
        else:
            self._note(self.responses.refused, number, code)
        time.sleep(0.05)

    def _note(self, notes: dict[int, str], number: int, what: str) -> None:
        with self._lock:
            notes[number] = what

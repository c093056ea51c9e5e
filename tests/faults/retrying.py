"""Clients that send each WRITE under a key, again and again until they know what came of it. Some give up."""

import itertools
import time
from typing import Any

import httpx

from service.model import wire
from tests.faults.load import Load, Responses
from tests.harness import Firn

PATIENCE_S = 120


class Retrying(Load):
    """Every client writes one record after the other, each under a key of its own.

    With one record in four the client gives up when it gets no answer, and takes a 503 that says that nothing was
    changed at its word. One record in sixteen does not fit the table.
    """

    def __init__(self, firn: Firn, address: dict[str, Any], clients: int, first_id: int) -> None:
        super().__init__(firn, address, clients, first_id)
        self.answers: dict[int, bytes] = {}
        """What each acknowledged record was answered, as it came."""
        self.stuck: list[int] = []

    def stop(self) -> Responses:
        responses = super().stop()
        assert not self.stuck, f"no definite answer within {PATIENCE_S} s: {self.stuck}"
        return responses

    def _one(self, client: httpx.Client) -> None:
        with self._lock:
            number, self._next = self._next, self._next + 1
        record = {"id": number, "payload": number if number % 16 == 7 else f"record {number}"}
        request = {"operation": "WRITE", **self._address, "records": [record], "idempotency_key": f"record-{number}"}
        body = wire.render(request)
        deadline = time.monotonic() + PATIENCE_S
        for attempt in itertools.count():
            if self._known(client, number, attempt, body, last=gives_up(number)):
                return
            if time.monotonic() >= deadline:
                break
            time.sleep(0.3)
        with self._lock:
            self.stuck.append(number)

    def _known(self, client: httpx.Client, number: int, attempt: int, body: bytes, *, last: bool) -> bool:
        """Send it once, for the last time or not; whether this client is done with it."""
        headers = {"X-Request-Id": f"record-{number}.{attempt}"}
        try:
            answer = client.post("/database", content=body, headers=headers).content
        except httpx.TransportError:
            if last:
                with self._lock:
                    self.responses.unknown.add(number)
            return last
        said = wire.parse(answer)
        if said["success"]:
            with self._lock:
                self.answers[number] = answer
                self.responses.acknowledged.add(number)
            return True
        error = said["error"]
        if error["retryable"] and not last:
            return False
        if error["code"] == "OUTCOME_UNKNOWN":
            with self._lock:
                self.responses.unknown.add(number)
        else:
            self._note(self.responses.refused, number, error["code"])
        return True


def gives_up(number: int) -> bool:
    """Whether the client with this record does not try again."""
    return number % 4 == 1


def number_of(answer: bytes) -> int:
    """The record that an answer is about."""
    return int(request_id_of(answer).removeprefix("record-").partition(".")[0])


def request_id_of(answer: bytes) -> str:
    return str(wire.parse(answer)["metadata"]["request_id"])

"""Idempotency keys: the same request twice has one effect and one answer."""

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.commits.ask import Ask, Key
from service.errors import KeyReused
from service.ledger.ledger import Ledger

A = TypeVar("A")


@dataclass(frozen=True)
class Claim(Generic[A]):
    """What a key means for a request: the body it was answered before, or the future of one under way, or neither."""

    ask: Ask
    answer: bytes | None = None
    under_way: "Future[A] | None" = None


class Keys(Generic[A]):
    """Keys under way are known here, keys that were answered in the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._under_way: dict[str, tuple[str, Future[A]]] = {}

    def claim(self, key: Key, request_id: str) -> Claim[A]:
        """Make a key ours, or find who has it; KeyReused where it stood for another request.

        Whoever was not given a future calls `release` once.
        """
        with self._lock:
            other = self._under_way.get(key.id)
            if other is None:
                self._under_way[key.id] = key.fingerprint, Future()
        if other is not None:
            fingerprint, under_way = other
            _check(key, fingerprint)
            return Claim(Ask(request_id, key), under_way=under_way)
        try:
            noted = self._ledger.key(key.id)
            if noted:
                _check(key, noted.fingerprint)
        except BaseException as e:
            self._pop(key).set_exception(e)
            raise
        if noted is None:
            return Claim(Ask(request_id, key))
        return Claim(Ask(request_id, key, noted.batch), answer=noted.answer)

    def store(self, key: Key, answer: bytes) -> None:
        """Keep a success; LedgerUnavailable where that cannot be done."""
        self._ledger.answer(key.id, key.fingerprint, answer)

    def release(self, key: Key, answer: A) -> None:
        """The request is answered; those who waited for it are answered the same."""
        self._pop(key).set_result(answer)

    def _pop(self, key: Key) -> "Future[A]":
        with self._lock:
            return self._under_way.pop(key.id)[1]


def _check(key: Key, fingerprint: str) -> None:
    if key.fingerprint != fingerprint:
        raise KeyReused(
            f"idempotency_key {key.text[:80]!r} was used for another {key.operation} request to this table; "
            "choose a new key, or send that request as it was",
            field="idempotency_key",
        )

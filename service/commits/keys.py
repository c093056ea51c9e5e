"""Idempotency keys: the same request twice has one effect and one answer."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from service.commits.ask import Ask, Key
from service.errors import FirnError, InternalError, KeyBusy, KeyReused, LedgerUnavailable
from service.ledger.ledger import UNFINISHED, Ledger

A = TypeVar("A")
log = logging.getLogger("firn.commits")
_ASK_EVERY_S = 0.05


@dataclass(frozen=True)
class Claim(Generic[A]):
    """What a key means for a request: the body it was answered before, the future of one under way, or neither."""

    ask: Ask
    answer: bytes | None = None
    under_way: "Future[A] | None" = None
    elsewhere: bool = False
    """Whether another instance works on it; `wait` then says when that has changed."""


class Keys(Generic[A]):
    """Keys under way are known here, keys that were answered, or are under way elsewhere, in the ledger."""

    def __init__(self, ledger: Ledger, patience_s: float = 300) -> None:
        """`patience_s` is how long to wait for other instances' answers."""
        self._ledger = ledger
        self._lock = threading.Lock()
        self._under_way: dict[str, tuple[str, Future[A]]] = {}
        self._waiting: list[_Waiting[A]] = []
        self._patience_s = patience_s
        self._stopped: FirnError | None = None

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
            return self._noted(key, request_id)
        except BaseException as e:
            self._pop(key).set_exception(e)
            raise

    def wait(self, key: Key, request_id: str, then: "Callable[[Claim[A] | FirnError], None]") -> None:
        """Call `then` with what a claimed key means when no other instance works on it any more.

        With KeyBusy where that takes too long. It is called on a thread that others wait for too.
        """
        with self._lock:
            self._waiting.append(_Waiting(key, request_id, then, time.monotonic() + self._patience_s))
            if len(self._waiting) == 1:
                threading.Thread(target=self._watch, name="firn-keys", daemon=True).start()

    def store(self, key: Key, answer: bytes) -> bytes:
        """Keep a success; what is to be answered."""
        return store(self._ledger, key, answer)

    def afresh(self, key: Key, request_id: str, answer: bytes) -> "Claim[A]":
        """What a key that is claimed here means without the answer it had, which holds no more."""
        self._ledger.forget_answer(key.id, answer)
        return self._noted(key, request_id)

    def look(self, key: Key, request_id: str) -> "Claim[A]":
        """What a key that is claimed here means by now."""
        return self._noted(key, request_id)

    def id_of(self, ask: Ask) -> str:
        """The request id that the effect of a request is noted under: of an earlier attempt, where that had it."""
        if ask.key is None or ask.earlier is None:
            return ask.request_id
        try:
            noted = self._ledger.key(ask.key.id)
        except LedgerUnavailable as e:
            log.error("%s is answered under its own id: %s", ask.request_id, e.message)
            return ask.request_id
        if noted is None or (noted.batch, noted.state) != (ask.earlier, "done"):
            return ask.request_id
        return noted.request_id or ask.request_id

    def release(self, key: Key, answer: A) -> None:
        """The request is answered; those who waited for it are answered the same."""
        self._pop(key).set_result(answer)

    def stop_waiting(self, error: FirnError) -> None:
        """Tell all who wait for other instances, and all who would, that it is over."""
        self._stopped = error

    def _noted(self, key: Key, request_id: str) -> Claim[A]:
        noted = self._ledger.key(key.id)
        if noted is None:
            return Claim(Ask(request_id, key))
        if not noted.is_free:
            _check(key, noted.fingerprint)
        claim: Claim[A] = Claim(Ask(request_id, key, noted.batch), answer=noted.answer)
        if noted.answer is not None or noted.owner is None or noted.state not in UNFINISHED:
            return claim
        owners = self._ledger.owners
        return replace(claim, elsewhere=noted.owner != owners.me and not owners.gone(noted.owner))

    def _watch(self) -> None:
        """Ask the ledger, now and then, about keys that are waited for; ends when there are none."""
        took = 0.0
        while True:
            time.sleep(max(_ASK_EVERY_S, took))
            started = time.monotonic()
            with self._lock:
                waiting = list(self._waiting)
            ended = {id(one): (one, found) for one in waiting if (found := self._found(one)) is not None}
            with self._lock:
                self._waiting = [one for one in self._waiting if id(one) not in ended]
                last = not self._waiting
            for one, found in ended.values():
                try:
                    one.then(found)
                except Exception:
                    log.exception("%s could not be told what became of its key", one.request_id)
            if last:
                return
            took = time.monotonic() - started

    def _found(self, one: "_Waiting[A]") -> "Claim[A] | FirnError | None":
        if self._stopped is not None:
            return self._stopped
        late = time.monotonic() > one.until
        try:
            claim = self._noted(one.key, one.request_id)
        except LedgerUnavailable as e:
            return e if late else None
        except FirnError as e:
            return e
        except Exception as e:
            log.exception("what became of a key of %s could not be found out", one.key.table)
            return InternalError(f"what became of this idempotency_key could not be found out: {e}")
        if not claim.elsewhere:
            return claim
        return KeyBusy("another instance has been working on a request with this key for long") if late else None

    def _pop(self, key: Key) -> "Future[A]":
        with self._lock:
            return self._under_way.pop(key.id)[1]


@dataclass(frozen=True)
class _Waiting(Generic[A]):
    key: Key
    request_id: str
    then: "Callable[[Claim[A] | FirnError], None]"
    until: float


def store(ledger: Ledger, key: Key, answer: bytes) -> bytes:
    """Keep a success; what is to be answered: another instance may have been quicker to store.

    KeyBusy where another instance has the key. What a success says has happened: it is sent though it could not be
    stored.
    """
    try:
        return ledger.answer(key.id, key.fingerprint, answer)
    except LedgerUnavailable as e:
        log.error("the answer under a key of %s could not be stored: %s", key.table, e.message)
        return answer


def _check(key: Key, fingerprint: str) -> None:
    if key.fingerprint != fingerprint:
        raise KeyReused(
            f"idempotency_key {key.text[:80]!r} was used for another {key.operation} request to this table; "
            "choose a new key, or send that request as it was",
            field="idempotency_key",
        )

"""Responses kept under idempotency keys."""

import logging

from service.errors import LedgerUnavailable
from service.ledger.ledger import Ledger
from service.model.call import IdempotencyKey

log = logging.getLogger("firn.commits")


def store_answer(ledger: Ledger, key: IdempotencyKey, answer: bytes) -> bytes:
    """Keep the response of a success; what to answer: another instance may have stored one before.

    KeyBusy if another instance has the key. A success is sent even if it could not be stored: it has happened.
    """
    try:
        return ledger.answer(key.id, key.fingerprint, answer)
    except LedgerUnavailable as e:
        log.error("the response under a key of %s could not be stored: %s", key.table, e.message)
        return answer

"""The public keys of an issuer of tokens: a JSON Web Key Set from a file or a URL, read again from time to time."""

import http.client
import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from service.errors import Unavailable
from service.settings import SettingsError

log = logging.getLogger("firn.identity")
Read = Callable[[], bytes]
# The set is read again for an unknown key id, but not more often than this: anybody can invent key ids.
_NOT_AGAIN_FOR_S = 10.0
_TIMEOUT_S = 5
_MOST_BYTES = 1 << 20
_PUBLIC = ("RSA", "EC", "OKP")
"""Kinds of keys with a public half. A symmetric key would let whoever can verify a token also make one."""


class KeySets:
    """Finds public keys by their ids. If the set cannot be read again, the keys that were read last stay valid."""

    def __init__(
        self, read: Read, refresh_s: float, keep_s: float = 86_400, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """The set is read again after `refresh_s`; keys of a set that is older than `keep_s` are not used."""
        self._read = read
        self._refresh_s = refresh_s
        self._keep_s = keep_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._keys: dict[str | None, PyJWK] = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None

    def is_known(self, key_id: str | None) -> bool:
        """Whether a key can be found without reading the set."""
        return not self._is_old(self._refresh_s) and key_id in self._keys

    def find(self, key_id: str | None) -> PyJWK | None:
        """The key of an id; without an id, the only key of the set. Unavailable if no set could be read."""
        # While one thread waits for a slow issuer, the others use the keys that there are.
        if not self.is_known(key_id) and self._lock.acquire(blocking=not self._keys):
            try:
                if not self.is_known(key_id) and not self._was_tried():
                    self._refresh()
            finally:
                self._lock.release()
        if self._is_old(self._keep_s):
            raise Unavailable("the keys of the issuer of tokens cannot be read now; try again")
        return self._keys.get(key_id)

    def _refresh(self) -> None:
        self._tried_at = self._monotonic()
        try:
            self._keys = parse(self._read())
        except (OSError, http.client.HTTPException, ValueError, PyJWTError) as e:
            log.error("the keys of the issuer of tokens could not be read: %s", type(e).__name__)
            return
        self._read_at = self._monotonic()

    def _was_tried(self) -> bool:
        return self._tried_at is not None and self._monotonic() - self._tried_at < _NOT_AGAIN_FOR_S

    def _is_old(self, seconds: float) -> bool:
        return self._read_at is None or self._monotonic() - self._read_at > seconds


def parse(text: bytes) -> dict[str | None, PyJWK]:
    """The keys of a set that sign, by their ids; the only key of a set also under None. ValueError if it is not one."""
    found: Any = json.loads(text)
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it is not a JSON Web Key Set")
    keys: dict[str | None, PyJWK] = {}
    for each in listed:
        if not isinstance(each, dict) or each.get("kty") not in _PUBLIC or each.get("use", "sig") != "sig":
            continue
        try:
            key = PyJWK.from_dict({name: value for name, value in each.items() if name != "d"})
        except (PyJWTError, ValueError, TypeError, KeyError):
            continue  # of a kind that this version does not know; the others are of use
        if isinstance(each.get("kid"), str):
            keys[each["kid"]] = key
        elif len(listed) == 1:
            keys[None] = key
    if len(keys) == 1:
        keys[None] = next(iter(keys.values()))
    return keys


def reader(file: Path | None, url: str | None) -> Read:
    """How to read the set that the settings name."""
    if (file is None) == (url is None):
        raise SettingsError("auth.jwt needs either jwks_file or jwks_url (FIRN_AUTH__JWT__JWKS_…), and not both")
    if file is not None:
        return file.read_bytes
    assert url is not None
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise SettingsError("auth.jwt.jwks_url must begin with https://: whoever can change the keys can make tokens")
    return lambda: _fetch(url)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect could lead from https to http, or to an address inside the network."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _fetch(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(url, timeout=_TIMEOUT_S) as response:
        body: bytes = response.read(_MOST_BYTES + 1)
    if len(body) > _MOST_BYTES:
        raise ValueError("the set is too large")
    return body

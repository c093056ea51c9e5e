"""The text of an API key: `firn_`, the public id, the secret, and a checksum by which scanners recognise a key.

`firn_4fW9kQ0aBz_` and 49 more characters. The secret has 256 random bits, so that nobody can try all of them: a fast
hash of it is as good as a slow one, which protects passwords, because people choose those from few.
"""

import hashlib
import hmac
import re
import secrets
import zlib
from dataclasses import dataclass

PREFIX = "firn_"
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH, _SECRET_LENGTH, _CHECKSUM_LENGTH = 10, 43, 6
_FORM = re.compile(
    rf"{PREFIX}([0-9A-Za-z]{{{_ID_LENGTH}}})_([0-9A-Za-z]{{{_SECRET_LENGTH}}})([0-9A-Za-z]{{{_CHECKSUM_LENGTH}}})"
)


@dataclass(frozen=True)
class KeyText:
    """An API key in two parts: only `id` may be shown or stored."""

    id: str
    secret: str

    @classmethod
    def new(cls) -> "KeyText":
        id = "".join(secrets.choice(_DIGITS) for _ in range(_ID_LENGTH))
        return cls(id, _base62(secrets.randbits(256), _SECRET_LENGTH))

    @classmethod
    def read(cls, text: str) -> "KeyText | None":
        """The key in a text; None if it is not one, or if a character of it is wrong."""
        found = _FORM.fullmatch(text)
        if found is None or found[3] != _checksum(text[:-_CHECKSUM_LENGTH]):
            return None
        return cls(found[1], found[2])

    @property
    def hash(self) -> str:
        """What is stored. It is keyed with the id, so that the hash of one key is of no use in the row of another."""
        return hmac.digest(f"firn api key {self.id}".encode(), self.secret.encode(), hashlib.sha256).hex()

    def matches(self, stored: str) -> bool:
        """Whether this is the key of a stored hash; it takes as long whatever the difference is."""
        return hmac.compare_digest(self.hash, stored)

    def __str__(self) -> str:
        """The whole key, for its owner."""
        text = f"{PREFIX}{self.id}_{self.secret}"
        return text + _checksum(text)

    def __repr__(self) -> str:
        return f"KeyText({self.id!r})"


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), _CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))

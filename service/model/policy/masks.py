"""What a column shows in place of its values. A masked column keeps its type, so queries of it stay valid."""

import json
from dataclasses import dataclass, replace
from typing import Any

from service.errors import InvalidRequest
from service.model.expressions.kinds import is_plain
from service.model.records import read_literal
from service.model.schema.types import ColumnType, Primitive

_STRING = Primitive("string")
_MOST_KEPT = 100
STARS = "****"
_FORMS = '"null", "hash", "redact", "hidden", {"redact": 4} or {"constant": value}'


@dataclass(frozen=True)
class Unmasked:
    """The value itself."""

    @property
    def rank(self) -> tuple[int, int]:
        """The mask that shows more has the lower rank."""
        return 0, 0


@dataclass(frozen=True)
class Redacted:
    """`****` and the last characters of a text that has at least twice as many."""

    keep: int

    @property
    def rank(self) -> tuple[int, int]:
        return 1, -self.keep


@dataclass(frozen=True)
class Hashed:
    """A text's SHA-256 with a secret salt, in hexadecimal: equal values stay equal, and nobody can try values."""

    salt: str = ""

    @property
    def rank(self) -> tuple[int, int]:
        return 2, 0


@dataclass(frozen=True)
class ConstantMask:
    """The same value in every row, as `read_literal` returns it."""

    value: Any

    @property
    def rank(self) -> tuple[int, int]:
        return 3, 0


@dataclass(frozen=True)
class Null:
    """No value."""

    @property
    def rank(self) -> tuple[int, int]:
        return 4, 0


@dataclass(frozen=True)
class Hidden:
    """The column does not exist; if another role shows it in some rows, no value in the others."""

    @property
    def rank(self) -> tuple[int, int]:
        return 5, 0


Mask = Unmasked | Redacted | Hashed | ConstantMask | Null | Hidden
_NAMED: dict[str, Mask] = {"null": Null(), "hash": Hashed(), "redact": Redacted(0), "hidden": Hidden()}


def read_mask(value: Any, kind: ColumnType, path: str) -> Mask:
    """The mask of a column of this type; InvalidRequest if there is no such mask, or not for the type."""
    if isinstance(value, str) and value in _NAMED:
        mask = _NAMED[value]
    elif isinstance(value, dict) and set(value) == {"redact"}:
        mask = Redacted(_kept(value["redact"], f"{path}.redact"))
    elif isinstance(value, dict) and set(value) == {"constant"}:
        if value["constant"] is None:
            raise InvalidRequest.at(f"{path}.constant", 'it is null; use the mask "null"')
        if not is_plain(kind):
            raise InvalidRequest.at(path, f'a column of type {kind} cannot show a constant; use "null" or "hidden"')
        mask = ConstantMask(read_literal(kind, value["constant"], f"{path}.constant"))
    else:
        raise InvalidRequest.at(path, f"{_shown(value)} is not a mask; use {_FORMS}")
    if isinstance(mask, Redacted | Hashed) and kind != _STRING:
        raise InvalidRequest.at(
            path, f'{_shown(value)} needs a column of text, but this one is {kind}; use "null", "hidden" or a constant'
        )
    return mask


def salted(mask: Mask, salt: str) -> Mask:
    return replace(mask, salt=salt) if isinstance(mask, Hashed) else mask


def _kept(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_KEPT:
        problem = (
            f"{_shown(value)} is not a number of characters; send how many of the last stay visible, 0 to {_MOST_KEPT}"
        )
        raise InvalidRequest.at(path, problem)
    return value


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:80]

"""Read columns of text, as in CSV, by the same rules as a record's values."""

import contextlib
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from service.model.records import InvalidValue, read_value
from service.model.schema.types import ColumnType, DecimalType, Primitive
from service.writes.bulk.fit import UUID, check_years

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_TRUTH = {"true": True, "false": False}
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MOMENT = f"{_DAY}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{{1,6}})?"


class InvalidText(Exception):
    """The first value of a column that does not fit, and its position."""

    def __init__(self, place: int, misfit: InvalidValue) -> None:
        super().__init__(misfit.problem)
        self.place = place
        self.misfit = misfit


def read_texts(kind: ColumnType, texts: pa.Array, target: pa.DataType) -> pa.Array:
    """A column's values; raises InvalidText for the first that does not fit. Nulls stay null."""
    fast = _fast(kind)
    if fast is not None:
        try:
            values = fast(texts, target)
            if values is not None:
                return values
        except pa.ArrowInvalid:
            pass  # read again, value by value, to apply the exact rules and for the error message
    read = _reader(kind)
    values = []
    for place, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else read(text))
        except InvalidValue as e:
            raise InvalidText(place, e) from None
    return pa.array(values, target)


def _reader(kind: ColumnType) -> Callable[[str], Any]:
    read = read_value(kind)
    name = kind.name if isinstance(kind, Primitive) else ""

    def read_text(text: str) -> Any:
        value: Any = text
        if name in ("integer", "long", "float", "double") and _NUMBER.fullmatch(text):
            with contextlib.suppress(InvalidOperation):
                value = Decimal(text)
        elif name == "boolean":
            value = _TRUTH.get(text.lower(), text)
        return read(value)

    return read_text


def _fast(kind: ColumnType) -> "Callable[[pa.Array, pa.DataType], pa.Array | None] | None":
    """Arrow's own parser, if it gives the same values; it returns None for texts for which it does not."""
    if isinstance(kind, DecimalType):
        return _decimals
    return _FAST.get(kind.name) if isinstance(kind, Primitive) else None


def _all(texts: pa.Array, form: str) -> bool:
    return pc.all(pc.match_substring_regex(texts, f"^(?:{form})$")).as_py() is not False


def _strings(texts: pa.Array, target: pa.DataType) -> pa.Array:
    return texts.cast(target)


def _whole(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    return texts.cast(pa.int64()).cast(target) if _all(texts, "-?[0-9]{1,18}") else None


def _floating(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    if not _all(texts, r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"):
        return None
    values = texts.cast(pa.float64()).cast(target)
    return values if pc.all(pc.is_finite(values)).as_py() is not False else None


def _booleans(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    return pc.equal(texts, "true").cast(target) if _all(texts, "true|false") else None


def _decimals(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    return texts.cast(target) if _all(texts, r"-?[0-9]{1,38}(\.[0-9]{1,38})?") else None


def _dates(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    return check_years(texts.cast(target)) if _all(texts, _DAY) else None


def _moments(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    if _all(texts, _MOMENT):
        moments = texts.cast(pa.timestamp("us"))
    elif _all(texts, f"{_MOMENT}Z"):
        moments = texts.cast(pa.timestamp("us", tz="UTC"))
    else:
        return None
    return check_years(moments.cast(pa.int64()).cast(target))


def _uuids(texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    low = pc.ascii_lower(texts)
    return low.cast(target) if _all(low, UUID) else None


_FAST: dict[str, Callable[[pa.Array, pa.DataType], pa.Array | None]] = {
    "string": _strings,
    "integer": _whole,
    "long": _whole,
    "float": _floating,
    "double": _floating,
    "boolean": _booleans,
    "date": _dates,
    "timestamp": _moments,
    "timestamptz": _moments,
    "uuid": _uuids,
}

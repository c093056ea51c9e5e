"""Read columns of text, as in CSV, by the same rules as a record's values."""

import contextlib
import re
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from service.model.records import InvalidValue, read_value
from service.model.schema.types import ColumnType
from service.writes.bulk.fit import UUID_PATTERN, check_years

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False}
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MOMENT = f"{_DAY}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{{1,6}})?"
_WHOLE = ("-?[0-9]{1,18}", pa.int64())
_FLOATING = (r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", pa.float64())
_MOMENTS = [(_MOMENT, pa.timestamp("us")), (f"{_MOMENT}Z", pa.timestamp("us", tz="UTC"))]
# The texts that Arrow's own parser reads by the same rules, and the type to parse them as; None for the column's own.
_PARSED: dict[str, list[tuple[str, pa.DataType | None]]] = {
    "integer": [_WHOLE],
    "long": [_WHOLE],
    "float": [_FLOATING],
    "double": [_FLOATING],
    "decimal": [(r"-?[0-9]{1,38}(\.[0-9]{1,38})?", None)],
    "boolean": [("true|false", pa.bool_())],
    "date": [(_DAY, None)],
    "timestamp": _MOMENTS,
    "timestamptz": _MOMENTS,
    "uuid": [(UUID_PATTERN, None)],
}


class InvalidText(Exception):
    """The first value of a column that does not fit, and its position."""

    def __init__(self, place: int, misfit: InvalidValue) -> None:
        super().__init__(misfit.problem)
        self.place = place
        self.misfit = misfit


def read_texts(kind: ColumnType, texts: pa.Array, target: pa.DataType) -> pa.Array:
    """A column's values; raises InvalidText for the first that does not fit. Nulls stay null."""
    name = str(kind).partition("(")[0]
    # Otherwise they are read value by value, to apply the exact rules and for the error message.
    with contextlib.suppress(pa.ArrowInvalid):
        fast = _parse(name, texts, target)
        if fast is not None:
            return fast
    read, values = read_value(kind), []
    for place, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else read(_as_json(name, text)))
        except InvalidValue as e:
            raise InvalidText(place, e) from None
    return pa.array(values, target)


def _as_json(name: str, text: str) -> Any:
    """The value that a record would have for a text."""
    if name in ("integer", "long", "float", "double") and _NUMBER.fullmatch(text):
        with contextlib.suppress(InvalidOperation):
            return Decimal(text)
    return _BOOLEANS.get(text.lower(), text) if name == "boolean" else text


def _parse(name: str, texts: pa.Array, target: pa.DataType) -> pa.Array | None:
    """The values by Arrow's parser; None if it may read a text by other rules, ArrowInvalid if it refuses one."""
    if name == "string":
        return texts.cast(target)
    if name == "uuid":
        texts = pc.ascii_lower(texts)
    for pattern, parsed in _PARSED.get(name, ()):
        if pc.all(pc.match_substring_regex(texts, f"^(?:{pattern})$")).as_py() is False:
            continue
        values = texts.cast(parsed or target)
        if name in ("timestamp", "timestamptz"):
            values = values.cast(pa.int64())
        values = values.cast(target)
        if name in ("float", "double") and pc.all(pc.is_finite(values)).as_py() is False:
            return None
        return check_years(values) if name in ("date", "timestamp", "timestamptz") else values
    return None

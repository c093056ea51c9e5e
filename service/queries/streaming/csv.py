"""Render Arrow batches as CSV (RFC 4180), column by column; each value reads as in JSON."""

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from service.engine.session.rows import json_values
from service.model import wire

_SPECIAL = '[",\r\n]'
# The range of Python's times, in microseconds and in days from 1970.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
# Up to this scale Arrow writes every decimal without an exponent.
_PLAIN_SCALE = 6


def header(names: Sequence[str]) -> bytes:
    """The first line."""
    return _lines([_quoted(pa.array([name])) for name in names])


def lines(batch: pa.RecordBatch) -> bytes:
    """A line for each row. Null is an empty field, an empty string a pair of quotes."""
    return _lines([_cells(column) for column in batch.columns])


def _lines(columns: list[pa.Array]) -> bytes:
    cells = [pc.fill_null(column, "") for column in columns]
    cells[-1] = pc.binary_join_element_wise(cells[-1], "", "\r\n")
    text = cells[0] if len(cells) == 1 else pc.binary_join_element_wise(*cells, ",")
    size = pc.sum(pc.binary_length(text)).as_py()
    return bytes(text.buffers()[2].slice(0, size)) if size else b""


def _quoted(texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, _SPECIAL)).as_py():
        inside = pc.replace_substring(texts, '"', '""')
        quoted = pc.binary_join_element_wise('"', inside, '"', "")
        texts = pc.if_else(pc.match_substring_regex(texts, _SPECIAL), quoted, texts)
    return pc.if_else(pc.equal(texts, ""), '""', texts)


def _cells(column: pa.Array) -> pa.Array:
    for fits, convert in _PLAIN:
        if fits(column.type):
            return convert(column)
    return _quoted(column if kinds.is_string(column.type) else _json(column))


def _cast(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _floats(column: pa.Array) -> pa.Array:
    if not len(column):
        return pa.array([], pa.string())
    values = json_values(column)
    # In their JSON, commas only separate numbers.
    written = pa.array([orjson.dumps(values)[1:-1].decode()])
    texts = pc.replace_substring(pc.split_pattern(written, ",").flatten(), '"', "")
    return pc.if_else(column.is_null(), None, texts)


def _decimals(column: pa.Array) -> pa.Array:
    if 0 <= column.type.scale <= _PLAIN_SCALE:
        return _cast(column)
    return _rendered(column.to_pylist(), lambda value: format(value, "f"))


def _dates(column: pa.Array) -> pa.Array:
    return _cast(column) if _within(column.cast(pa.int32()), _FIRST_DAY, _LAST_DAY) else _json(column)


def _times(column: pa.Array) -> pa.Array:
    counts = column.cast(pa.int64())
    if column.type.unit != "us" or not _within(counts, _FIRST_US, _LAST_US):
        return _json(column)
    # Cast without the zone: the numbers are in UTC, and a zone would need its tables.
    texts = pc.binary_replace_slice(counts.cast(pa.timestamp("us")).cast(pa.string()), 10, 11, "T")
    texts = pc.if_else(pc.ends_with(texts, ".000000"), pc.utf8_slice_codeunits(texts, 0, 19), texts)
    return pc.binary_join_element_wise(texts, "Z", "") if column.type.tz else texts


def _within(counts: pa.Array, first: int, last: int) -> bool:
    found = pc.min_max(counts).as_py()
    return found["min"] is None or (found["min"] >= first and found["max"] <= last)


def _base64(column: pa.Array) -> pa.Array:
    return _rendered(column.to_pylist(), lambda value: base64.b64encode(value).decode("ascii") or '""')


def _json(column: pa.Array) -> pa.Array:
    return _rendered(json_values(column), _json_text)


def _json_text(value: object) -> str:
    if isinstance(value, str):
        return value
    text = wire.render(value).decode().rstrip("\n")
    return orjson.loads(text) if text.startswith('"') else text


def _rendered(values: Iterable[Any], render: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else render(value) for value in values], pa.string())


# Types whose values need no quotes.
_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (kinds.is_integer, _cast),
    (kinds.is_boolean, _cast),
    (kinds.is_floating, _floats),
    (kinds.is_decimal, _decimals),
    (kinds.is_date, _dates),
    (kinds.is_timestamp, _times),
    (kinds.is_binary, _base64),
)

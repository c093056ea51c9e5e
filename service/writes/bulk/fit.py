"""Convert Arrow arrays of any type that can hold a column's values to the column's own type, without loss."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from service.errors import did_you_mean
from service.model.records import InvalidValue
from service.model.schema.types import Array, ColumnType, Map, Struct

Convert = Callable[[pa.Array], pa.Array]

UUID_PATTERN = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# The years 1 to 9999, in days and in microseconds from 1970.
_DAYS = (-719_162, 2_932_896)
_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
# How much one call may unpack of values that its message holds only once.
_MOST_BYTES = 128 << 20
_MOST_VALUES = 4 << 20
_TEXTS = (pa.string(), pa.large_string())
_BYTES = (pa.binary(), pa.large_binary())
_VIEWS = (pa.string_view(), pa.binary_view())


class TooLarge(Exception):
    """The rows unpack to more than fits into memory at once; fewer rows may fit."""


def converter(source: pa.DataType, kind: ColumnType, target: pa.DataType) -> Convert:
    """A function that converts arrays of type `source` to `target`, which is Arrow's type for `kind`.

    Raises InvalidValue if no array of that type can be converted; the function raises it for a value that does not fit.
    """
    if isinstance(source, pa.UuidType):
        inner = converter(source.storage_type, kind, target)
        return lambda array: inner(array.storage)
    if kinds.is_null(source):
        return lambda array: _nulls(len(array), target)
    if kinds.is_dictionary(source):
        return _dictionary(source, kind, target)
    if kinds.is_map(source) and isinstance(kind, Map):
        return _map(source, kind, target)
    if kinds.is_struct(source) and isinstance(kind, Struct):
        return _struct(source, kind, target)
    lists = kinds.is_list(source) or kinds.is_large_list(source) or kinds.is_fixed_size_list(source)
    if lists and isinstance(kind, Array):
        return _list(source, kind, target)
    cast = _cast(source, kind)
    if cast is None:
        raise _lossy(source, kind)
    return partial(_exactly, partial(cast, target), kind)


def first_failure(array: pa.Array, works: Callable[[pa.Array], Any]) -> int:
    """The position of the first value for which `works` raises, given that it does for the whole array."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            works(array.slice(low, middle - low))
            low = middle
        except (InvalidValue, pa.ArrowInvalid):
            high = middle
    return low


def _lossy(source: pa.DataType, kind: ColumnType) -> InvalidValue:
    return InvalidValue(
        f"Arrow's {str(source)[:80]} cannot become {str(kind)[:80]} without loss; cast it before sending"
    )


def _exactly(cast: Convert, kind: ColumnType, array: pa.Array) -> pa.Array:
    try:
        return cast(array)
    except pa.ArrowInvalid:
        value = array[first_failure(array, cast)]
        raise InvalidValue(f"{_show_value(value)} does not fit {kind} without loss; send a value that does") from None


def _show_value(value: pa.Scalar) -> str:
    try:
        plain = value.as_py()
    except Exception:  # nanoseconds and years that Python cannot hold
        plain = value.cast(pa.string()).as_py()
    text = repr(plain[:61]) if isinstance(plain, str | bytes) else str(plain)
    return text if len(text) <= 60 else f"{text[:57]}…{text[0] if isinstance(plain, str) else ''}"


def _cast(source: pa.DataType, kind: ColumnType) -> Callable[[pa.DataType, pa.Array], pa.Array] | None:
    """How values without parts are cast; None if some cannot be without loss. ArrowInvalid if one does not fit."""
    whole, text = kinds.is_integer(source), source in (*_TEXTS, pa.string_view())
    number = whole or kinds.is_floating(source)
    match str(kind).partition("(")[0]:
        case "boolean" if kinds.is_boolean(source):
            return _plain
        case "string" if text:
            return _plain
        case "binary" if source in (*_BYTES, pa.binary_view()) or kinds.is_fixed_size_binary(source):
            return _plain
        case "integer" | "long" if number or kinds.is_decimal(source):
            return _plain
        case "decimal" if whole:
            # Through a type that is wide enough for any integer: Arrow checks the type's digits, not the values'.
            return lambda target, array: array.cast(pa.decimal128(20, 0)).cast(target)
        case "decimal" if kinds.is_decimal(source):
            return _plain
        case "float" if kinds.is_float64(source):
            return _narrowed
        case "float" | "double" if kinds.is_float16(source):
            return lambda target, array: array.cast(pa.float32()).cast(target)
        case "float" | "double" if number:
            return _plain
        case "date" if kinds.is_date(source):
            return lambda target, array: check_years(array.cast(target))
        case "timestamp" | "timestamptz" if kinds.is_timestamp(source):
            return _moment
        case "uuid" if text:
            return _checked_uuid
        case "uuid" if kinds.is_fixed_size_binary(source) and source.byte_width == 16:
            return _uuid_text
    return None


def _plain(target: pa.DataType, array: pa.Array) -> pa.Array:
    if array.type in _VIEWS:
        if array.null_count:
            array = _emptied(array)
        if _view_bytes(array) > _MOST_BYTES:
            raise TooLarge
    return array.cast(target)


def _emptied(array: pa.Array) -> pa.Array:
    """The same array with empty views for nulls: these have not been validated, but Arrow's cast follows them."""
    _, views, *shown_bytes = array.buffers()
    valid = array.is_valid()
    changed = bytearray(memoryview(views).cast("B")[16 * array.offset : 16 * (array.offset + len(array))])
    for place in pc.indices_nonzero(pc.invert(valid)).to_pylist():
        changed[16 * place : 16 * (place + 1)] = bytes(16)
    buffers = [valid.buffers()[1], pa.py_buffer(changed), *shown_bytes]
    return pa.Array.from_buffers(array.type, len(array), buffers)


def _view_bytes(array: pa.Array) -> int:
    """The bytes that views unpack to; they may share them. The first of each view's four words is its length."""
    views = array.buffers()[1]
    if not len(array) or views is None:
        return 0
    words = memoryview(views).cast("B")[array.offset * 16 : (array.offset + len(array)) * 16].cast("i")
    return sum(words[::4].tolist())


def _narrowed(target: pa.DataType, array: pa.Array) -> pa.Array:
    narrowed = array.cast(target)
    if pc.any(pc.and_(pc.not_equal(narrowed.cast(array.type), array), pc.is_finite(array))).as_py():
        raise pa.ArrowInvalid("rounded")
    return narrowed


def _moment(target: pa.DataType, array: pa.Array) -> pa.Array:
    """With a zone or without, the numbers count from 1970 in UTC, as for a record's text without a zone."""
    exact = pa.timestamp("us", tz=array.type.tz)
    return check_years(array.cast(exact).cast(pa.int64()).cast(target))


def check_years(array: pa.Array) -> pa.Array:
    """Return an array of days or microseconds; ArrowInvalid if one is outside of the years 1 to 9999."""
    days = kinds.is_date(array.type)
    found = pc.min_max(array.cast(pa.int32() if days else pa.int64()))
    low, high = found["min"].as_py(), found["max"].as_py()
    first, last = _DAYS if days else _MICROSECONDS
    if low is not None and (low < first or high > last):
        raise pa.ArrowInvalid("outside the years 1 to 9999")
    return array


def _checked_uuid(target: pa.DataType, array: pa.Array) -> pa.Array:
    low = pc.ascii_lower(_plain(target, array))
    if pc.all(pc.match_substring_regex(low, f"^{UUID_PATTERN}$")).as_py() is False:
        raise pa.ArrowInvalid("not a uuid")
    return low


def _uuid_text(target: pa.DataType, array: pa.Array) -> pa.Array:
    if len(array) > _MOST_VALUES:
        raise TooLarge
    digits = [raw and raw.hex() for raw in array.to_pylist()]
    return pa.array([d and f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}" for d in digits], target)


def _nulls(count: int, target: pa.DataType) -> pa.Array:
    if count > _MOST_VALUES:
        raise TooLarge
    return pa.nulls(count, target)


def _dictionary(source: pa.DataType, kind: ColumnType, target: pa.DataType) -> Convert:
    inner = converter(source.value_type, kind, target)
    if kinds.is_nested(source.value_type):
        raise _lossy(source, kind)

    def fit(array: pa.Array) -> pa.Array:
        try:
            return _taken(inner(array.dictionary), array.indices)
        except InvalidValue:
            # A dictionary value that no row uses may be invalid.
            return inner(_taken(array.dictionary, array.indices))

    return fit


def _taken(values: pa.Array, indices: pa.Array) -> pa.Array:
    if values.type in _VIEWS:
        values = _plain(pa.large_string() if values.type == pa.string_view() else pa.large_binary(), values)
    if len(indices) > _MOST_VALUES:
        raise TooLarge
    if values.type in (*_TEXTS, *_BYTES):
        size = pc.sum(pc.take(pc.binary_length(values), indices)).as_py() or 0
        if size > _MOST_BYTES:
            raise TooLarge
    return values.take(indices)


def _list(source: pa.DataType, kind: Array, target: pa.DataType) -> Convert:
    inner = _within("[]", source.value_type, kind.items, target.value_type, required=kind.items_required)

    def fit(array: pa.Array) -> pa.Array:
        # flatten() leaves out values under null lists and outside of the slice.
        return pa.ListArray.from_arrays(_offsets(array), inner(array.flatten()), type=target, mask=array.is_null())

    return fit


def _offsets(lists: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])


def _map(source: pa.DataType, kind: Map, target: pa.DataType) -> Convert:
    fit_key = _within("(a key)", source.key_type, kind.key, target.key_type)
    fit_item = _within("[]", source.item_type, kind.value, target.item_type, required=kind.value_required)
    pairs = pa.list_(pa.struct([("key", source.key_type), ("value", source.item_type)]))

    def fit(array: pa.Array) -> pa.Array:
        lists = array.cast(pairs)
        flat = lists.flatten()
        keys, items, offsets = fit_key(flat.field(0)), fit_item(flat.field(1)), _offsets(lists)
        parents = pc.list_parent_indices(pa.ListArray.from_arrays(offsets, keys))
        if pa.table({"map": parents, "key": keys}).group_by(["map", "key"]).aggregate([]).num_rows != len(keys):
            raise InvalidValue("a map has the same key twice; send each key once")
        return pa.MapArray.from_arrays(offsets, keys, items, target, mask=array.is_null())

    return fit


def _struct(source: pa.DataType, kind: Struct, target: pa.DataType) -> Convert:
    names = [source.field(i).name for i in range(source.num_fields)]
    places = match_names(names, [(f.name, f.required) for f in kind.fields])
    inner = [
        _within(f".{f.name}", pa.null() if place is None else source.field(place).type, f.type, to.type)
        for f, place, to in zip(kind.fields, places, target, strict=True)
    ]

    def fit(array: pa.Array) -> pa.Array:
        columns = []
        children = array.flatten()  # values under null structs become null
        for f, place, fit_one in zip(kind.fields, places, inner, strict=True):
            child = pa.nulls(len(array)) if place is None else children[place]
            if f.required and child.null_count > array.null_count:
                raise InvalidValue(f"a value is required here; send a value of type {str(f.type)[:80]}", f".{f.name}")
            columns.append(fit_one(child))
        return pa.StructArray.from_arrays(columns, fields=list(target), mask=array.is_null())

    return fit


def match_names(sent: list[str], wanted: list[tuple[str, bool]]) -> list[int | None]:
    """The position of each wanted column (its name, and whether it is required) among the columns that were sent.

    InvalidValue for a column that is unknown, is sent twice, or is missing but required.
    """
    known = [name for name, _ in wanted]
    for i, name in enumerate(sent):
        if name not in known:
            near, words = did_you_mean(name, known)
            raise InvalidValue(f"there is no such field; {words}", f".{name[:80]}", near)
        if name in sent[:i]:
            raise InvalidValue("it is sent twice; send each column once", f".{name}")
    for name, required in wanted:
        if required and name not in sent:
            raise InvalidValue("it is required but missing; send it", f".{name}")
    return [sent.index(name) if name in sent else None for name in known]


def _within(
    step: str, source: pa.DataType, kind: ColumnType, target: pa.DataType, *, required: bool = False
) -> Convert:
    """A converter for a part of a column, whose errors name the part."""

    def fit(array: pa.Array) -> pa.Array:
        with naming(step):
            if required and array.null_count:
                raise InvalidValue(f"a value is required here; send a value of type {str(kind)[:80]}")
            return inner(array)

    with naming(step):
        inner = converter(source, kind, target)
    return fit


@contextmanager
def naming(step: str) -> Iterator[None]:
    """Have an InvalidValue of the block name this part of its column."""
    try:
        yield
    except InvalidValue as e:
        raise e.within(step) from None

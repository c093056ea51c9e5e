"""Read records: JSON values, with numbers as int and Decimal, become exact Python values, column by column."""

import binascii
import re
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache
from math import inf, isfinite, nan
from typing import Any, Self, TypeVar

from service.errors import FirnError, InvalidRecord, InvalidRequest, did_you_mean
from service.model.schema.types import (
    FLOATING,
    Array,
    ColumnType,
    DecimalType,
    Field,
    Map,
    Primitive,
    Struct,
    TableSchema,
)

Reader = Callable[[Any], Any]
T = TypeVar("T")

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.([0-9]+))?)?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])?)?"
)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SPECIAL = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


class InvalidValue(Exception):
    """A value that does not fit its column's type: what is wrong, and where inside the value."""

    def __init__(self, problem: str, path: str = "", suggestion: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path
        self.suggestion = suggestion

    def within(self, step: str) -> Self:
        self.path = step + self.path
        return self


def read_records(schema: TableSchema, records: Any, *, columns: Sequence[str] | None = None) -> dict[str, list[Any]]:
    """The values of all records by column, in the schema's order; InvalidRecord names the first one that does not fit.

    With `columns`, only those columns are read, and a record with another one is refused.
    """
    return read_by_column(schema, records, read_column, columns)


def read_by_column(
    schema: TableSchema, records: Any, read: Callable[[list[Any], Field], T], columns: Sequence[str] | None = None
) -> dict[str, T]:
    """The same with each column as `read` returns it, which may raise InvalidValue without a reason."""
    if not isinstance(records, list):
        raise InvalidRecord.at("records", f"expected a list of objects, not {_shown(records)}")
    known = set(schema.names) if columns is None else {schema.field(name).name for name in columns}
    row = Struct(tuple(f for f in schema.fields if f.name in known))
    try:
        for record in records:
            if type(record) is not dict or not record.keys() <= known:
                raise InvalidValue("")
        return {f.name: read(records, f) for f in row.fields}
    except InvalidValue:
        # Reading by column does not tell which record fails first: read them again, record by record.
        _refuse_first(records, read_value(row))
        raise


def read_literal(kind: ColumnType, value: Any, path: str, error: type[FirnError] = InvalidRequest) -> Any:
    """Read one value of a request like a record's; null is None. Raises `error` at `path` if it does not fit."""
    if value is None:
        return None
    try:
        return read_value(kind)(value)
    except InvalidValue as e:
        raise error.at(path + e.path, e.problem, e.suggestion) from e


@lru_cache(maxsize=2048)
def read_value(kind: ColumnType) -> Reader:
    """A reader for non-null JSON values of this type; it raises InvalidValue."""
    return _PRIMITIVE[kind.name] if isinstance(kind, Primitive) else _COMPOSED[type(kind)](kind)


def read_column(records: list[dict[str, Any]], field: Field) -> list[Any]:
    """The values of one column."""
    values, read = sent_values(records, field), read_value(field.type)
    return [None if value is None else read(value) for value in values]


def sent_values(records: list[dict[str, Any]], field: Field) -> list[Any]:
    """The values of one column as they were sent; InvalidValue if one is missing."""
    values = [record.get(field.name) for record in records]
    if field.required and None in values:
        raise InvalidValue("")
    return values


def _refuse_first(records: list[Any], read: Reader) -> None:
    for i, record in enumerate(records):
        try:
            read(record)
        except InvalidValue as e:
            path = f"records[{i}]{e.path}"
            raise InvalidRecord(
                f"{path}: {e.problem}",
                field=path,
                suggestion=e.suggestion,
                details={"record": i, "field": e.path.removeprefix(".")} if e.path else {"record": i},
            ) from e


def _whole(name: str, bits: int) -> Reader:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    hint = f"send a whole number from {low} to {high}"

    def read(value: Any) -> int:
        number = value if type(value) is int else _integral(value)
        if number is None:
            raise InvalidValue(f"{_shown(value)} is not {'an' if name == 'integer' else 'a'} {name}; {hint}")
        if low <= number <= high:
            return number
        raise InvalidValue(f"{_shown(value)} is out of range for {name}; {hint}")

    return read


def _integral(value: Any) -> int | None:
    if type(value) is float:
        value = Decimal(repr(value))
    if type(value) is not Decimal or not value.is_finite():
        return None
    if not value:
        return 0
    # A few characters can mean a number of a billion digits, which must not be converted.
    if value.adjusted() > 30:
        return 10**30
    number = int(value) if value.adjusted() >= 0 else None
    return number if number == value else None


def _floating(name: str) -> Reader:
    hint = 'send a number, "NaN", "Infinity" or "-Infinity"'

    def read(value: Any) -> float:
        if type(value) is Decimal or type(value) is int or type(value) is float:
            try:
                number = float(value)
                if name == "float":
                    number = struct.unpack("<f", struct.pack("<f", number))[0]
            except (OverflowError, ValueError):
                number = inf
            if isfinite(number):
                return number
            raise InvalidValue(f"{_shown(value)} is out of range for {name}; {hint}")
        if type(value) is str and value in _SPECIAL:
            return _SPECIAL[value]
        raise InvalidValue(f"{_shown(value)} is not a {name}; {hint}")

    return read


def _decimal(kind: DecimalType) -> Reader:
    step = Decimal(1).scaleb(-kind.scale)
    exact = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    zero = step * 0
    whole_digits = kind.precision - kind.scale

    def read(value: Any) -> Decimal:
        number = _as_decimal(value)
        if number is None or not number.is_finite():
            raise InvalidValue(f"{_shown(value)} is not a {kind}; send a number, or its digits as text")
        if not number:
            return zero
        try:
            return number.quantize(step, context=exact)
        except (Inexact, InvalidOperation) as e:
            too_wide = isinstance(e, InvalidOperation) and number.adjusted() >= whole_digits
            problem = f"{whole_digits} digits before the point" if too_wide else f"{kind.scale} digits after the point"
            raise InvalidValue(
                f"{_shown(value)} does not fit {kind} without loss: it has more than {problem}"
            ) from None

    return read


def _as_decimal(value: Any) -> Decimal | None:
    if type(value) is Decimal:
        return value
    if type(value) is int:
        return Decimal(value)
    if type(value) is float:
        return Decimal(repr(value))
    if type(value) is str and _NUMBER.fullmatch(value):
        try:
            return Decimal(value)
        except InvalidOperation:
            return None
    return None


def _boolean(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise InvalidValue(f"{_shown(value)} is not a boolean; send true or false")


def _string(value: Any) -> str:
    if type(value) is not str:
        raise InvalidValue(f"{_shown(value)} is not a string; send text in quotes")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidValue("the text contains half of a surrogate pair; send whole characters") from None
    return value


def _date(value: Any) -> date:
    if type(value) is str and _DATE.fullmatch(value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise InvalidValue(f"{_shown(value)} is not in the calendar; send an existing day") from None
    raise InvalidValue(f"{_shown(value)} is not a date; send YYYY-MM-DD")


def _moment(value: Any, name: str) -> datetime:
    found = _TIMESTAMP.fullmatch(value) if type(value) is str else None
    if not found:
        raise InvalidValue(
            f"{_shown(value)} is not a {name}; send YYYY-MM-DDTHH:MM:SS.ffffff, with Z or an offset if any"
        )
    if found[1] and found[1][6:].strip("0"):
        raise InvalidValue(f"{_shown(value)} is finer than a microsecond; send at most six digits of a second")
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except ValueError:
        raise InvalidValue(f"{_shown(value)} is not in the calendar; send an existing day") from None
    except OverflowError:
        raise InvalidValue(f"{_shown(value)} is outside the years 1 to 9999 in UTC; send a time within them") from None


def _binary(value: Any) -> bytes:
    if type(value) is str:
        try:
            raw = binascii.a2b_base64(value, strict_mode=True)
            if binascii.b2a_base64(raw, newline=False).decode("ascii") == value:
                return raw
        except ValueError:
            pass
    raise InvalidValue(f"{_shown(value)} is not base64; send the standard alphabet with padding")


def _uuid(value: Any) -> str:
    if type(value) is str:
        low = value.lower()
        if _UUID.fullmatch(low):
            return low
    raise InvalidValue(f"{_shown(value)} is not a uuid; send 32 hexadecimal digits as 8-4-4-4-12")


_PRIMITIVE: dict[str, Reader] = {
    "string": _string,
    "integer": _whole("integer", 32),
    "long": _whole("long", 64),
    "float": _floating("float"),
    "double": _floating("double"),
    "boolean": _boolean,
    "date": _date,
    "timestamp": lambda value: _moment(value, "timestamp").replace(tzinfo=None),
    "timestamptz": lambda value: _moment(value, "timestamptz"),
    "binary": _binary,
    "uuid": _uuid,
}


def _array(kind: Array) -> Reader:
    read_item, required = read_value(kind.items), kind.items_required

    def read(value: Any) -> list[Any]:
        if type(value) is not list:
            raise InvalidValue(f"{_shown(value)} is not an array; send a list")
        items: list[Any] = []
        for item in value:
            try:
                if item is None and required:
                    raise _missing(kind.items)
                items.append(None if item is None else read_item(item))
            except InvalidValue as e:
                raise e.within(f"[{len(items)}]") from None
        return items

    return read


def _map(kind: Map) -> Reader:
    read_key, read_item, required = _map_key(kind.key), read_value(kind.value), kind.value_required

    def read(value: Any) -> list[tuple[Any, Any]]:
        if type(value) is not dict:
            raise InvalidValue(f"{_shown(value)} is not a map; send an object")
        pairs: dict[Any, Any] = {}
        for text, item in value.items():
            try:
                key = read_key(text)
                if key in pairs:
                    raise InvalidValue("this map has the same key twice; send each key once")
                if item is None and required:
                    raise _missing(kind.value)
                pairs[key] = None if item is None else read_item(item)
            except InvalidValue as e:
                raise e.within(f"[{_shown(text)}]") from None
        return list(pairs.items())

    return read


def _map_key(kind: ColumnType) -> Reader:
    """A reader for a map's keys, which are text in JSON, whatever their type."""
    name = kind.name if isinstance(kind, Primitive) else ""
    read_typed = read_value(kind)

    def read(text: Any) -> Any:
        value = text
        if name == "boolean":
            value = {"true": True, "false": False}.get(text, text)
        elif name in ("integer", "long") and _INTEGER.fullmatch(text):
            value = int(text)
        elif name in FLOATING and _NUMBER.fullmatch(text):
            value = _as_decimal(text)
        return read_typed(value)

    return read


def _struct(kind: Struct) -> Reader:
    fields = [(f.name, read_value(f.type), f.required, f.type) for f in kind.fields]
    known = {f.name for f in kind.fields}

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise InvalidValue(f"{_shown(value)} is not an object; send its fields by name")
        if not value.keys() <= known:
            unknown = next(key for key in value if key not in known)
            near, hint = did_you_mean(str(unknown), (f.name for f in kind.fields))
            raise InvalidValue(f"there is no such field; {hint}", f".{str(unknown)[:80]}", near)
        row: dict[str, Any] = {}
        for name, read_field, required, field_type in fields:
            item = value.get(name)
            try:
                if item is None and required:
                    raise _missing(field_type)
                row[name] = None if item is None else read_field(item)
            except InvalidValue as e:
                raise e.within(f".{name}") from None
        return row

    return read


def _missing(kind: ColumnType) -> InvalidValue:
    return InvalidValue(f"a value is required here; send a value of type {str(kind)[:80]}")


_COMPOSED: dict[type, Callable[[Any], Reader]] = {DecimalType: _decimal, Array: _array, Map: _map, Struct: _struct}


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int) and value.bit_length() > 500:
        return "a number of hundreds of digits"
    text = repr(value[:61]) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…{text[0] if isinstance(value, str) else ''}"

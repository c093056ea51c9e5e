"""Tables that are split by ranges of their first key column: the split points and the internal range column."""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from service.errors import InvalidRequest
from service.model.records import read_literal
from service.model.schema.definition import parse_leaf
from service.model.schema.partition import PartitionField
from service.model.schema.types import ColumnType, DecimalType, Field, Primitive, TableSchema

RANGES_PROPERTY = "firn.ranges"
RANGE_FIELD = Field("_firn_range", Primitive("integer"))
RANGE_PARTITION = PartitionField(RANGE_FIELD.name, "identity", RANGE_FIELD.name)
# Each range is a partition, and a WRITE creates a file in every partition that it has rows for.
MAX_RANGES = 1000
_ORDERED = ("string", "integer", "long", "date", "timestamp", "timestamptz", "uuid")
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
# The line lengths at which tools wrap base64.
_WRAPPED_LENGTHS = (64, 76)


@dataclass(frozen=True)
class Ranges:
    """Split points of a column, in the JSON form of its values. The number of points up to and including a row's key
    is the row's range."""

    column: str
    type: ColumnType
    points: tuple[Any, ...]

    @cached_property
    def values(self) -> tuple[Any, ...]:
        """The points as values of the column's type."""
        return tuple(read_literal(self.type, point, "split_points") for point in self.points)

    @property
    def text(self) -> str:
        """The value of the table's property."""
        return json.dumps({"column": self.column, "type": str(self.type), "points": list(self.points)})

    def of(self, column: str, kind: ColumnType) -> "Ranges":
        """The same points for the column after it was renamed or widened."""
        return replace(self, column=column, type=kind)

    def between(self, number: int) -> tuple[Any, Any]:
        """The first key of a range, and the first key after it; None at an open end."""
        first = self.points[number - 1] if 0 < number <= len(self.points) else None
        return first, self.points[number] if 0 <= number < len(self.points) else None


def ranges_of(properties: Mapping[str, str]) -> Ranges | None:
    """A table's ranges, from its Iceberg properties."""
    text = properties.get(RANGES_PROPERTY)
    return None if text is None else parse_ranges(text)


def parse_ranges(text: str) -> Ranges:
    value = json.loads(text)
    return Ranges(value["column"], parse_leaf(value["type"], RANGES_PROPERTY), tuple(value["points"]))


def parse_split_points(value: Any, schema: TableSchema, *, encoded: bool, path: str = "split_points") -> Ranges:
    """The split points of a request: a list, or text with one point per line. If `encoded`, each point, or the text as
    a whole, is base64."""
    if not schema.primary_key:
        raise InvalidRequest.at(
            path, "they split the first column of the primary key; send a schema with a primary_key"
        )
    key = schema.field(schema.primary_key[0])
    if not isinstance(key.type, DecimalType) and str(key.type) not in _ORDERED:
        fitting = f"{', '.join(_ORDERED)} or decimal(p,s)"
        raise InvalidRequest.at(path, f"the key {key.name!r} is {key.type}, which cannot be split; use {fitting}")
    items = _items(value, path, encoded=encoded)
    if not 1 <= len(items) <= MAX_RANGES:
        raise InvalidRequest.at(path, f"there are {len(items)} points; send 1 to {MAX_RANGES:,}")
    points = tuple(_point(item, key.type, f"{path}[{i}]") for i, item in enumerate(items))
    found = Ranges(key.name, key.type, points)
    orders = [v.encode() if isinstance(v, str) else v for v in found.values]  # Spark compares text byte by byte
    for i in range(1, len(orders)):
        if orders[i] <= orders[i - 1]:
            raise InvalidRequest.at(
                f"{path}[{i}]",
                f"{str(points[i])[:80]!r} is not greater than the point before it, {str(points[i - 1])[:80]!r}; send "
                "the points in increasing order",
            )
    return found


def _items(value: Any, path: str, *, encoded: bool) -> Sequence[Any]:
    """The points, decoded from base64."""
    if isinstance(value, str):
        whole = _decode_lines(value) if encoded else value
        if whole is not None:
            return _non_blank_lines(whole)
        value = _non_blank_lines(value)
    if not isinstance(value, list):
        raise InvalidRequest.at(path, "expected a list, or text with one point per line")
    return [_decode(item, f"{path}[{i}]") for i, item in enumerate(value)] if encoded else value


def _non_blank_lines(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.split("\n") if line.strip()]


def _decode_lines(text: str) -> str | None:
    """The decoded text if `text` is the base64 of several lines; None if it is not."""
    lines = [line.strip() for line in _non_blank_lines(text)]
    if any(len(line) not in _WRAPPED_LENGTHS for line in lines[:-1]):
        return None
    try:
        found = base64.b64decode("".join(lines), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return found if "\n" in found else None


def _decode(item: Any, path: str) -> str:
    if not isinstance(item, str):
        raise InvalidRequest.at(path, "expected base64 text")
    try:
        return base64.b64decode(item.strip(), validate=True).decode()
    except (binascii.Error, ValueError) as e:
        raise InvalidRequest.at(path, f"{item[:80]!r} is not base64 of UTF-8 text") from e


def _point(item: Any, kind: ColumnType, path: str) -> Any:
    if item is None:
        raise InvalidRequest.at(path, "expected a value, not null")
    if isinstance(item, str) and str(kind) != "string":
        item = item.strip()
        if str(kind) in ("integer", "long") and _WHOLE.fullmatch(item):
            item = int(item)
    value = read_literal(kind, item, path)
    return value if isinstance(value, int | str) else str(item)

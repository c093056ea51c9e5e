"""A table split by ranges of its first key: the points, and Firn's own column that says which range a row is in."""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from service.errors import InvalidRequest
from service.partition import PartitionField
from service.records import read_literal
from service.schema import ColumnType, DecimalType, Field, Primitive, TableSchema, parse_leaf

RANGES = "firn.ranges"
RANGE_FIELD = Field("_firn_range", Primitive("integer"))
RANGE_PARTITION = PartitionField(RANGE_FIELD.name, "identity", RANGE_FIELD.name)
# Each range is a partition, and each WRITE makes a file in every partition that it has rows for.
MOST = 1000
_ORDERED = ("string", "integer", "long", "date", "timestamp", "timestamptz", "uuid")
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")


@dataclass(frozen=True)
class Ranges:
    """Split points of a column, as JSON has its values: a row is in the range whose number is how many of them are not
    greater than its key."""

    column: str
    type: ColumnType
    points: tuple[Any, ...]

    @cached_property
    def values(self) -> tuple[Any, ...]:
        """The points as values of the column's type."""
        return tuple(read_literal(self.type, point, "split_points") for point in self.points)

    @property
    def text(self) -> str:
        """What the table's property holds."""
        return json.dumps({"column": self.column, "type": str(self.type), "points": list(self.points)})

    def renamed(self, new: str) -> "Ranges":
        return replace(self, column=new)

    def between(self, number: int) -> tuple[Any, Any]:
        """The first key of a range, and the first one after it; None where there is no such end."""
        first = self.points[number - 1] if 0 < number <= len(self.points) else None
        return first, self.points[number] if 0 <= number < len(self.points) else None


def ranges_of(properties: Mapping[str, str]) -> Ranges | None:
    """How a table is split, by its Iceberg properties."""
    text = properties.get(RANGES)
    return None if text is None else loads(text)


def loads(text: str) -> Ranges:
    said = json.loads(text)
    return Ranges(said["column"], parse_leaf(said["type"], RANGES), tuple(said["points"]))


def parse_split_points(value: Any, schema: TableSchema, *, encoded: bool, path: str = "split_points") -> Ranges:
    """Split points as a request has them: a list, or text with one a line; each one base64 of its text if `encoded`."""
    if not schema.primary_key:
        raise InvalidRequest(
            f"{path} are of the first column of the primary key, and the table has none; send a schema with a "
            "primary_key",
            field=path,
        )
    key = schema.field(schema.primary_key[0])
    if not isinstance(key.type, DecimalType) and str(key.type) not in _ORDERED:
        raise InvalidRequest(
            f"{path}: the first key {key.name!r} is {key.type}, by which a table cannot be split; it can be by "
            f"{', '.join(_ORDERED)} and decimal(p,s)",
            field=path,
        )
    items = _items(value, path)
    if not 1 <= len(items) <= MOST:
        raise InvalidRequest(f"{path} are {len(items)} points; send 1 to {MOST:,}", field=path)
    points = tuple(_point(item, key.type, encoded, f"{path}[{i}]") for i, item in enumerate(items))
    found = Ranges(key.name, key.type, points)
    orders = [_order(one) for one in found.values]
    for i in range(1, len(orders)):
        if orders[i] <= orders[i - 1]:
            raise InvalidRequest(
                f"{path}[{i}]: {str(points[i])[:80]!r} is not greater than the one before it, "
                f"{str(points[i - 1])[:80]!r}; send them in order, each once",
                field=f"{path}[{i}]",
            )
    return found


def _items(value: Any, path: str) -> Sequence[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, str):
        lines = [line.removesuffix("\r") for line in value.split("\n")]
        return lines[:-1] if lines[-1] == "" else lines
    raise InvalidRequest(f"{path} must be a list, or text with one point a line", field=path)


def _point(item: Any, kind: ColumnType, encoded: bool, path: str) -> Any:
    if item is None or (encoded and not isinstance(item, str)):
        raise InvalidRequest(f"{path} must be {'base64 text' if encoded else 'a value'}", field=path)
    if encoded:
        try:
            item = base64.b64decode(item, validate=True).decode()
        except (binascii.Error, ValueError) as e:
            raise InvalidRequest(f"{path}: {item[:80]!r} is not base64 of UTF-8 text", field=path) from e
    if isinstance(item, str) and str(kind) in ("integer", "long") and _WHOLE.fullmatch(item.strip()):
        item = int(item)
    read = read_literal(kind, item, path)
    if isinstance(read, int | str):
        return read
    return str(item)


def _order(value: Any) -> Any:
    """Spark compares texts byte by byte."""
    return value.encode() if isinstance(value, str) else value

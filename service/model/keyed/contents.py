"""The contents of rows as Python values that are equal if, and only if, Spark finds the rows equal."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from service.model.keyed.pool import plain_values

Content = tuple[Any, ...]
# NaN is not equal to itself in Python, but in Spark it is.
_NAN = ("NaN",)


def contents(rows: pa.Table, columns: Sequence[str] | None = None) -> list[Content]:
    """The content of each row in all columns, or in some.

    Raises ValueError for values that Python cannot hold, such as dates in the year 10000 inside of lists.
    """
    names = rows.column_names if columns is None else columns
    try:
        values = [_comparable(rows[name]) for name in names]
    except OverflowError as e:
        raise ValueError("Python cannot hold a value") from e
    return list(zip(*values, strict=True)) if values else [()] * rows.num_rows


def some_of(found: Iterable[Content], wanted: Counter[Content]) -> list[int]:
    """The numbers of the contents that are wanted: of equal ones, the first, as many as are wanted. `wanted` is left
    with those that are missing."""
    numbers = []
    for number, content in enumerate(found):
        if wanted.get(content, 0) > 0:
            wanted[content] -= 1
            numbers.append(number)
    return numbers


def _comparable(column: pa.ChunkedArray) -> list[Any]:
    kind, values = column.type, plain_values(column)
    return [_nested(value, kind) for value in values] if kinds.is_nested(kind) or kinds.is_floating(kind) else values


def _nested(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if kinds.is_floating(kind):
        return value if value == value else _NAN
    if kinds.is_map(kind):
        # In any order, as Spark compares them here.
        return frozenset((_nested(key, kind.key_type), _nested(one, kind.item_type)) for key, one in value)
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return tuple(_nested(one, kind.value_type) for one in value)
    if kinds.is_struct(kind):
        return tuple(_nested(value[part.name], part.type) for part in kind)
    return value

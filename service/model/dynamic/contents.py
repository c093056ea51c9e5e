"""Rows compared by their contents in this process, as Spark compares them."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from service.model.keyed.pool import plain_values

_NAN = "NaN"
Content = tuple[Any, ...]


def contents(rows: pa.Table) -> Iterator[Content]:
    """Each row's values in a form that is equal for rows that Spark takes for equal.

    Raises ValueError if Python cannot hold a value, such as a time in the year 10000 inside of a list.
    """
    columns = [[_plain(v, c.type) for v in plain_values(c)] for c in rows.columns]
    return zip(*columns, strict=True)


def some_of(rows: pa.Table, wanted: Counter[Content]) -> list[int]:
    """The numbers of rows with these contents: of equal rows, the first ones, as many as are wanted. `wanted` is
    left with those that are missing."""
    found = []
    for number, content in enumerate(contents(rows)):
        if wanted.get(content, 0) > 0:
            wanted[content] -= 1
            found.append(number)
    return found


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if kinds.is_floating(kind):
        return _NAN if value != value else value + 0.0  # -0.0 becomes 0.0
    if kinds.is_map(kind):
        entries = ((_plain(k, kind.key_type), _plain(v, kind.item_type)) for k, v in value)
        return tuple(sorted(entries, key=repr))
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return tuple(_plain(item, kind.value_type) for item in value)
    if kinds.is_struct(kind):
        return tuple(_plain(value[field.name], field.type) for field in kind)
    return value

"""The column with the number of a row's range, which is filled whenever rows are written to a table split by ranges."""

from typing import Any

from service.engine.session.spark_types import DataFrame
from service.engine.sql.sql import Parameters, identifier, literal, over
from service.model.schema.ranges import RANGE_FIELD, Ranges, parse_ranges


def ranged(iceberg: Any, text: str, rows: DataFrame) -> DataFrame:
    """The rows with their ranges, if the table is split by ranges; `text` is its property.

    The rows' own values of that column are ignored: they may have been computed for another key.
    """
    if not text or iceberg.schema().findField(RANGE_FIELD.name) is None:
        return rows
    parameters = Parameters()
    listed = [identifier(name) for name in rows.columns if name != RANGE_FIELD.name]
    listed.append(f"{number(parse_ranges(text), parameters)} AS {identifier(RANGE_FIELD.name)}")
    return over(rows, lambda name: f"SELECT {', '.join(listed)} FROM {name}", parameters.values)


def number(ranges: Ranges, parameters: Parameters) -> str:
    """The number of a row's range, from 0, by binary search."""
    key, values = identifier(ranges.column), ranges.values

    def among(first: int, last: int) -> str:
        if first == last:
            return str(first)
        middle = (first + last) // 2
        point = literal(ranges.type, values[middle], parameters)
        return f"IF({key} < {point}, {among(first, middle)}, {among(middle + 1, last)})"

    return f"CAST({among(0, len(values))} AS INT)"

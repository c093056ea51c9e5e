"""The column that says which of a table's ranges a row is in, filled whenever rows become files of the table."""

from typing import Any

from service.engine.session.spark_types import SparkSession
from service.engine.sql.frames import over
from service.engine.sql.sql import Parameters, identifier, literal
from service.model.schema.ranges import RANGE_FIELD, Ranges, parse_ranges


def ranged(session: SparkSession, iceberg: Any, text: str, jdf: Any) -> Any:
    """The JVM's frame of rows for a table, with their ranges if the table is split by ranges; `text` is its property.

    The rows' own values of that column are ignored, as they may have been computed for another key.
    """
    from pyspark.sql import DataFrame

    if not text or iceberg.schema().findField(RANGE_FIELD.name) is None:
        return jdf
    rows, parameters = DataFrame(jdf, session), Parameters()
    listed = [identifier(name) for name in rows.columns if name != RANGE_FIELD.name]
    listed.append(f"{number(parse_ranges(text), parameters)} AS {identifier(RANGE_FIELD.name)}")
    return over(session, rows, lambda name: f"SELECT {', '.join(listed)} FROM {name}", parameters.values)._jdf


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

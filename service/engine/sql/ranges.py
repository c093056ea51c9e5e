"""The column that says in which of a table's ranges a row is: filled wherever rows become files of the table."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from service.engine.frames import over
from service.engine.sql import Parameters, identifier, literal
from service.ranges import RANGE_FIELD, Ranges, loads


def ranged(session: SparkSession, iceberg: Any, text: str, jdf: Any) -> Any:
    """The JVM's frame of rows for a table, with their ranges where it is split by some: `text` is what its property
    says of them.

    What the rows have in that column is not looked at: it may have been worked out for another key.
    """
    if not text or iceberg.schema().findField(RANGE_FIELD.name) is None:
        return jdf
    rows, parameters = DataFrame(jdf, session), Parameters()
    listed = [identifier(name) for name in rows.columns if name != RANGE_FIELD.name]
    listed.append(f"{number(loads(text), parameters)} AS {identifier(RANGE_FIELD.name)}")
    return over(session, rows, lambda name: f"SELECT {', '.join(listed)} FROM {name}", parameters.values)._jdf


def number(ranges: Ranges, parameters: Parameters) -> str:
    """The number of a row's range, from 0 on, in as few comparisons as it takes."""
    key, values = identifier(ranges.column), ranges.values

    def among(first: int, last: int) -> str:
        if first == last:
            return str(first)
        middle = (first + last) // 2
        point = literal(ranges.type, values[middle], parameters)
        return f"IF({key} < {point}, {among(first, middle)}, {among(middle + 1, last)})"

    return f"CAST({among(0, len(values))} AS INT)"

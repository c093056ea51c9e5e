"""What a query may cost, and the refusal of one that may cost more."""

import re
from dataclasses import dataclass

from service.errors import QueryTooExpensive
from service.model.patterns.backtracking import TEXT_LENGTH
from service.settings import QuerySettings

MB = 1 << 20
# What is assumed of values in tables. A query may not make much of them by what it says itself; how large they are
# shows only while it runs.
ASSUMED_NUMBER = 1_000.0
ASSUMED_TEXT = TEXT_LENGTH
ASSUMED_ITEMS = 100.0
ASSUMED_ROWS = 10_000.0


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """The bounds of one query."""

    value_bytes: float
    constant_bytes: float
    """Of a value that depends on no table."""
    result_bytes: float
    rows: float
    row_steps: float
    """What one row may take: about one step for each byte or element that is made or looked at."""
    nodes: int
    joins: int

    @classmethod
    def of(cls, settings: QuerySettings) -> "QueryLimits":
        return cls(
            float(settings.max_value_mb * MB),
            settings.max_value_mb * MB / 4,
            float(settings.max_result_mb * MB),
            float(settings.max_rows),
            float(settings.max_rows),
            settings.max_nodes,
            settings.max_joins,
        )


def too_expensive(what: str, bound: str, way_out: str) -> QueryTooExpensive:
    """The refusal: what is too much, its bound, and what to do instead."""
    return QueryTooExpensive(f"sql is too expensive: {what}; at most {bound}. {way_out}", field="sql")


_NAMES = {
    "StringRepeat": "repeat",
    "StringSpace": "space",
    "StringLPad": "lpad",
    "StringRPad": "rpad",
    "StringReplace": "replace",
    "StringTranslate": "translate",
    "RegExpReplace": "regexp_replace",
    "RegExpExtract": "regexp_extract",
    "RegExpExtractAll": "regexp_extract_all",
    "StringSplit": "split",
    "StringToMap": "str_to_map",
    "ArrayAggregate": "aggregate",
    "ArrayTransform": "transform",
    "AttributeReference": "a column",
    "NamedLambdaVariable": "a lambda function's argument",
    "HyperLogLogPlusPlus": "approx_count_distinct",
    "ApproximatePercentile": "approx_percentile",
    "CountMinSketchAgg": "count_min_sketch",
    "StructsToJson": "to_json",
}


def sql_name(class_name: str) -> str:
    """What SQL calls the function of an expression's class."""
    return _NAMES.get(class_name) or re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()


def shown(number: float) -> str:
    """A number of any size as text."""
    if not number < float("inf"):
        return "endlessly many"
    if number >= 1e15:
        return f"about {number:.0e}"
    return f"{int(number):,}"


def shown_bytes(number: float) -> str:
    """A size as text."""
    return f"{shown(number / MB)} MB" if number >= MB else f"{shown(number)} bytes"

"""The items in the lists of a QUERY request. A bare name is short for an object that only names it."""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from service.errors import UnknownField
from service.model.query.model import AggregateKind, JoinKind

_SQL_ORDER = re.compile(r"\s*(\S.*?)(?:\s+(asc|desc))?\s*", re.IGNORECASE)


class _Item(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ProjectionItem(_Item):
    """A column and the steps applied to it, in the order of these fields, not in the order of the request."""

    field: str = Field(description="a column; `address.city` reaches into a struct, `orders.id` into a joined table")
    alias: str | None = Field(
        default=None, min_length=1, description="the key in the response; default: `field` as it is"
    )
    cast: str | None = Field(default=None, description="read as this type, such as `long` or `decimal(10,2)`")
    trim: bool = False
    upper: bool = False
    lower: bool = False
    substring: list[int] | None = Field(default=None, description="[start, length]; the first character is 1")
    date_trunc: str | None = Field(default=None, description="the beginning of the year, month, week, day, hour …")
    date_format: str | None = Field(default=None, description="as text, such as `yyyy-MM`")
    extract: str | None = Field(default=None, description="as a number: year, quarter, month, week, day, hour …")


class AggregationItem(_Item):
    """One value for each group."""

    op: AggregateKind | None = None
    function: AggregateKind | None = Field(default=None, description="the same as `op`")
    field: str | None = Field(default=None, description="a column; `count` without one, or of `*`, counts rows")
    alias: str | None = Field(
        default=None, min_length=1, description="the key in the response; default: such as `count` or `sum_price`"
    )
    distinct: bool = Field(default=False, description="take each value once")


class JoinItem(_Item):
    """Another table of the tenant."""

    table: str
    namespace: str | None = Field(default=None, description="else the request's own")
    alias: str | None = Field(default=None, description="what its columns are addressed by; else the table's name")
    type: JoinKind = "inner"
    on: Any = Field(
        description='a column of that name on both sides, or a list of such, or {"left": …, "right": …, "operator": '
        '"eq"} or a list of such, or a map {left column: right column}'
    )


class SortItem(_Item):
    field: str = Field(description="an output, or any column where rows are neither grouped nor distinct")
    order: Literal["asc", "desc"] = "asc"
    nulls_first: bool | None = Field(default=None, description="else nulls come first ascending and last descending")


def refuse_sql_order(error: UnknownField, name: str, path: str) -> UnknownField:
    """The error for a column to sort by that is not there, with the right form if the name is an ORDER BY of SQL."""
    parts = [_SQL_ORDER.fullmatch(part) for part in name.split(",")]
    if not all(part and (part[2] or len(parts) > 1) for part in parts):
        return error
    form = [{"field": p[1], "order": (p[2] or "asc").lower()} for p in parts if p]
    return UnknownField.at(
        path, f"{name[:80]!r} is not a column; write {json.dumps(form[0] if len(form) == 1 else form)[:300]}"
    )


def _named(value: Any) -> Any:
    """A list of objects, made from a list of names and objects, from a single name or object, or from null."""
    items = _listed([value] if isinstance(value, str) else value)
    if not isinstance(items, list):
        return items
    return [{"field": item} if isinstance(item, str) else item for item in items]


def _listed(value: Any) -> Any:
    if value is None:
        return []
    return [value] if isinstance(value, dict) else value


Projection = Annotated[
    list[ProjectionItem], BeforeValidator(_named, json_schema_input_type=list[ProjectionItem | str] | None)
]
Sorts = Annotated[
    list[SortItem], BeforeValidator(_named, json_schema_input_type=list[SortItem | str] | SortItem | str | None)
]
Joins = Annotated[list[JoinItem], BeforeValidator(_listed, json_schema_input_type=list[JoinItem] | JoinItem | None)]
Aggregations = Annotated[
    list[AggregationItem],
    BeforeValidator(_listed, json_schema_input_type=list[AggregationItem] | AggregationItem | None),
]

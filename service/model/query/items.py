"""The items in the lists of a QUERY request. A bare name is short for an object that only names it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from service.model.query.model import AggregateKind, JoinKind


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

"""A total order for a query, in which each row has one place: pages of it neither repeat nor miss a row."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from service.model.names import PLACE_COLUMNS
from service.model.query.model import Aggregate, Computed, Grouping, Query, Sort, aggregate_column, group_column
from service.model.schema.columns import Column
from service.model.schema.types import Primitive


@dataclass(frozen=True)
class FileRows:
    """The data files of a snapshot by path: their sizes, and their rows unless some are deleted by delete files."""

    bytes: Mapping[str, int]
    rows: Mapping[str, int] | None
    schema_id: int


@dataclass(frozen=True)
class FilePage:
    """The files that hold a page of rows, and how many of their rows come before it."""

    paths: tuple[str, ...]
    skipped: int


_FRACTIONS = (Primitive("float"), Primitive("double"))


def total_order(query: Query) -> Query | None:
    """The query with further columns to sort by, after its own.

    None if its own order, or which rows it has, depends on sums of fractions. How they are rounded depends on the order
    in which Spark adds, so two runs may differ.
    """
    if query.grouping is not None and _depends_on_rounding(query, query.grouping):
        return None
    if query.distinct:
        return replace(query, sorts=(*query.sorts, *map(_ascending, range(len(query.outputs)))))
    if query.grouping is not None:
        groups = (
            Computed(Column(group_column(i), (group_column(i),), group.type))
            for i, group in enumerate(query.grouping.groups)
        )
        return replace(query, sorts=(*query.sorts, *map(_ascending, groups)))
    kinds = Primitive("string"), Primitive("long")
    places = (
        Computed(Column(name, (name,), kind, source.alias))
        for source in query.sources
        for name, kind in zip(PLACE_COLUMNS, kinds, strict=True)
    )
    return replace(query, sorts=(*query.sorts, *map(_ascending, places)), placed=True)


def page_of_files(rows: Mapping[str, int], offset: int, limit: int) -> FilePage:
    """The files that hold a page and the row after it, if the rows are in the order of the files' paths."""
    paths: list[str] = []
    skipped = end = 0
    for path in sorted(rows):
        start, end = end, end + rows[path]
        if end > offset and start <= offset + limit:
            skipped = skipped if paths else offset - start
            paths.append(path)
    return FilePage(tuple(paths), skipped)


def _ascending(by: int | Computed) -> Sort:
    return Sort(by, descending=False, nulls_first=True)


def _depends_on_rounding(query: Query, grouping: Grouping) -> bool:
    rounded = {aggregate_column(i) for i, one in enumerate(grouping.aggregates) if _is_rounded(one)}
    by = [query.outputs[sort.by].value if isinstance(sort.by, int) else sort.by for sort in query.sorts]
    if query.distinct:
        by += [output.value for output in query.outputs]
    return any(column.steps[0] in rounded for column in _columns((by, grouping.having)))


def _is_rounded(aggregate: Aggregate) -> bool:
    match aggregate.kind:
        case "stddev" | "variance":
            return True
        case "sum" | "avg":
            return aggregate.column is not None and aggregate.column.type in _FRACTIONS
    return False


def _columns(value: Any) -> Iterator[Column]:
    """Every column in some sorts and predicates."""
    if isinstance(value, Column):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _columns(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _columns(getattr(value, field.name))

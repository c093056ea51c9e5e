"""Make a Query from the parts of a QUERY request: resolve every name and check every type."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from service.errors import InvalidQuery, UnknownField
from service.model.filters.filters import parse_filter, parse_request_filter
from service.model.filters.predicates import EVERY_ROW
from service.model.query.items import AggregationItem, JoinItem, ProjectionItem, SortItem, refuse_sql_order
from service.model.query.model import (
    Aggregate,
    Computed,
    Grouping,
    Join,
    Output,
    Query,
    Sort,
    TableSource,
    aggregate_column,
    group_column,
)
from service.model.query.scope import Scope, read_join
from service.model.query.values import AN_OUTPUT, check_groups, read_aggregate, read_value
from service.model.schema.columns import Column


@dataclass(frozen=True)
class QueryParts:
    """The parts of a QUERY request."""

    projection: Sequence[ProjectionItem] = ()
    filter: Any = None
    filters: Any = None
    aggregations: Sequence[AggregationItem] = ()
    group_by: Sequence[ProjectionItem] = ()
    having: Any = None
    joins: Sequence[JoinItem] = ()
    sort: Sequence[SortItem] = ()
    distinct: bool = False
    limit: int = 1000
    offset: int = 0


@dataclass
class _Grouped:
    """The groups and aggregates of a query, and the columns of their results."""

    scope: Scope
    groups: list[Computed] = field(default_factory=list)
    group_names: list[str] = field(default_factory=list)
    aggregates: list[Aggregate] = field(default_factory=list)
    aggregate_names: list[str] = field(default_factory=list)

    def group(self, place: int) -> Column:
        return Column(self.group_names[place], (group_column(place),), self.groups[place].type)

    def aggregate(self, place: int) -> Column:
        return Column(self.aggregate_names[place], (aggregate_column(place),), self.aggregates[place].type)

    def place(self, value: Computed) -> int | None:
        return next((i for i, known in enumerate(self.groups) if known.same_as == value.same_as), None)

    def resolve(self, name: str, path: str) -> Column:
        """The result of this name, or the group by the column of this name."""
        if name in self.aggregate_names:
            return self.aggregate(self.aggregate_names.index(name))
        if name in self.group_names:
            return self.group(self.group_names.index(name))
        with suppress(UnknownField):
            place = self.place(Computed(self.scope.resolve(name, path)))
            if place is not None:
                return self.group(place)
        raise UnknownField.unknown(path, name, AN_OUTPUT, [*self.group_names, *self.aggregate_names])


def plan_query(parts: QueryParts, source: TableSource, joined: Sequence[TableSource]) -> Query:
    """The query over the source and the joined tables, which are in the order of the joins."""
    scope, joins = _joins(parts.joins, source, joined)
    where = parse_request_filter(parts.filter, parts.filters, scope.resolve)
    grouped = _grouped(parts, scope)
    grouping = None
    if grouped is None:
        if parts.having is not None:
            raise InvalidQuery.at("having", "it needs group_by or aggregations; use filter instead")
        outputs = _outputs(parts.projection, scope)
    else:
        outputs = _grouped_outputs(parts.projection, grouped)
        having = EVERY_ROW if parts.having is None else parse_filter(parts.having, grouped.resolve, "having")
        grouping = Grouping(tuple(grouped.groups), tuple(grouped.aggregates), having)
    _refuse_repeats(outputs)
    if parts.distinct:
        for output in outputs:
            check_groups(output.value.type, "distinct", output.name, "distinct")
    return Query(
        source=source,
        joins=joins,
        where=where,
        outputs=outputs,
        grouping=grouping,
        sorts=tuple(_sort(item, outputs, grouped or scope, parts.distinct, i) for i, item in enumerate(parts.sort)),
        distinct=parts.distinct,
        limit=parts.limit,
        offset=parts.offset,
    )


def _joins(
    items: Sequence[JoinItem], source: TableSource, joined: Sequence[TableSource]
) -> tuple[Scope, tuple[Join, ...]]:
    scope, joins = Scope([source]), []
    for i, (item, other) in enumerate(zip(items, joined, strict=True)):
        path = f"join[{i}]"
        joins.append(read_join(scope, other, item.type, item.on, path))
        scope = scope.add(other, f"{path}.alias")
    return scope, tuple(joins)


def _outputs(projection: Sequence[ProjectionItem], scope: Scope) -> tuple[Output, ...]:
    if not projection:
        return tuple(_every_column(scope))
    outputs: list[Output] = []
    for i, item in enumerate(projection):
        path = f"projection[{i}]"
        if item.field == "*" and item == ProjectionItem(field="*"):
            outputs += _every_column(scope)
        else:
            outputs.append(Output(item.alias or item.field, read_value(item, scope, path)))
    return tuple(outputs)


def _every_column(scope: Scope) -> list[Output]:
    names: set[str] = set()
    outputs = []
    for source in scope.sources:
        for column in source.schema.fields:
            name = column.name if column.name not in names else f"{source.alias}.{column.name}"
            names.add(name)
            outputs.append(Output(name, Computed(Column(name, (column.name,), column.type, source.alias))))
    if not outputs:
        raise InvalidQuery("the table has no columns yet; the first file that it ingests gives them", field="table")
    return outputs


def _grouped(parts: QueryParts, scope: Scope) -> _Grouped | None:
    if not parts.group_by and not parts.aggregations:
        return None
    grouped = _Grouped(scope)
    aliases = {item.alias: (i, item) for i, item in enumerate(parts.projection) if item.alias}
    for i, item in enumerate(parts.group_by):
        path = f"group_by[{i}]"
        name = item.alias or item.field
        if item.field in aliases and item == ProjectionItem(field=item.field):
            place, item = aliases[item.field]
            path = f"projection[{place}]"
        value = read_value(item, scope, path)
        check_groups(value.type, "group_by", name, path)
        grouped.groups.append(value)
        grouped.group_names.append(name)
    for i, aggregation in enumerate(parts.aggregations):
        name, aggregate = read_aggregate(aggregation, scope, f"aggregations[{i}]")
        grouped.aggregate_names.append(name)
        grouped.aggregates.append(aggregate)
    return grouped


def _grouped_outputs(projection: Sequence[ProjectionItem], grouped: _Grouped) -> tuple[Output, ...]:
    outputs = [Output(name, Computed(grouped.group(i))) for i, name in enumerate(grouped.group_names)]
    if projection:
        places = [_group_of(item, grouped, f"projection[{i}]") for i, item in enumerate(projection)]
        columns = [grouped.group(place) for place in places]
        outputs = [Output(item.alias or item.field, Computed(c)) for item, c in zip(projection, columns, strict=True)]
    aggregates = [grouped.aggregate(i) for i in range(len(grouped.aggregates))]
    return (*outputs, *(Output(column.name, Computed(column)) for column in aggregates))


def _group_of(item: ProjectionItem, grouped: _Grouped, path: str) -> int:
    if item == ProjectionItem(field=item.field) and item.field in grouped.group_names:
        return grouped.group_names.index(item.field)
    place = grouped.place(read_value(item, grouped.scope, path))
    if place is None:
        name = item.alias or item.field
        raise InvalidQuery.at(path, f"{name!r} is neither grouped nor aggregated; add it to group_by")
    return place


def _sort(item: SortItem, outputs: Sequence[Output], columns: Scope | _Grouped, distinct: bool, place: int) -> Sort:
    path = f"sort[{place}].field"
    try:
        by = _sorted_by(item.field, outputs, columns, distinct, path)
    except UnknownField as e:
        raise refuse_sql_order(e, item.field, path) from e
    kind = outputs[by].value.type if isinstance(by, int) else by.type
    check_groups(kind, "sort", item.field, path)
    descending = item.order == "desc"
    return Sort(by, descending, not descending if item.nulls_first is None else item.nulls_first)


def _sorted_by(
    name: str, outputs: Sequence[Output], columns: Scope | _Grouped, distinct: bool, path: str
) -> int | Computed:
    names = [output.name for output in outputs]
    if name in names:
        return names.index(name)
    value = Computed(columns.resolve(name, path))
    if distinct or isinstance(columns, _Grouped):
        for i, output in enumerate(outputs):
            if output.value.same_as == value.same_as:
                return i
    if distinct:
        raise UnknownField.unknown(path, name, AN_OUTPUT, names)
    return value


def _refuse_repeats(outputs: Sequence[Output]) -> None:
    seen: set[str] = set()
    for output in outputs:
        if output.name in seen:
            raise InvalidQuery.at("projection", f"two outputs are called {output.name!r}; give one of them an alias")
        seen.add(output.name)

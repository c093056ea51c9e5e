"""Turn the parts of a QUERY request into a Query: find every name and check every type."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from service.errors import InvalidQuery, UnknownField
from service.model.filters.filters import parse_either, parse_filter
from service.model.filters.predicates import EVERY_ROW, Predicate
from service.model.query.items import AggregationItem, JoinItem, ProjectionItem, SortItem
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
from service.model.query.values import check_groups, read_aggregate, read_value, unknown_output
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

    groups: list[Computed] = field(default_factory=list)
    group_names: list[str] = field(default_factory=list)
    aggregates: list[Aggregate] = field(default_factory=list)
    aggregate_names: list[str] = field(default_factory=list)

    def result(self, name: str) -> Column | None:
        if name in self.aggregate_names:
            place = self.aggregate_names.index(name)
            return Column(name, (aggregate_column(place),), self.aggregates[place].type)
        return self.group(self.group_names.index(name)) if name in self.group_names else None

    def group(self, place: int) -> Column:
        return Column(self.group_names[place], (group_column(place),), self.groups[place].type)

    def place(self, value: Computed) -> int | None:
        return next((i for i, known in enumerate(self.groups) if known.same_as == value.same_as), None)


def plan_query(asked: QueryParts, source: TableSource, joined: Sequence[TableSource]) -> Query:
    """The query over the source and the joined tables, which are in the order of the joins."""
    scope, joins = _joins(asked.joins, source, joined)
    where = parse_either(asked.filter, asked.filters, scope.resolve)
    grouped = _grouped(asked, scope)
    if grouped is None:
        if asked.having is not None:
            raise InvalidQuery("having needs group_by or aggregations; use filter instead", field="having")
        outputs = _outputs(asked.projection, scope)
        having = EVERY_ROW
    else:
        outputs = _grouped_outputs(asked.projection, scope, grouped)
        having = _having(asked.having, scope, grouped)
    _refuse_repeats(outputs)
    if asked.distinct:
        for output in outputs:
            check_groups(output.value.type, "distinct", output.name, "distinct")
    return Query(
        source=source,
        joins=joins,
        where=where,
        outputs=outputs,
        grouping=Grouping(tuple(grouped.groups), tuple(grouped.aggregates), having) if grouped else None,
        sorts=tuple(_sort(item, outputs, scope, grouped, asked.distinct, i) for i, item in enumerate(asked.sort)),
        distinct=asked.distinct,
        limit=asked.limit,
        offset=asked.offset,
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
            column = scope.resolve(item.field, f"{path}.field")
            outputs.append(Output(item.alias or item.field, read_value(item, column, path)))
    return tuple(outputs)


def _every_column(scope: Scope) -> list[Output]:
    taken: set[str] = set()
    outputs = []
    for source in scope.sources:
        for column in source.schema.fields:
            name = column.name if column.name not in taken else f"{source.alias}.{column.name}"
            taken.add(name)
            outputs.append(Output(name, Computed(Column(name, (column.name,), column.type, source.alias))))
    return outputs


def _grouped(asked: QueryParts, scope: Scope) -> _Grouped | None:
    if not asked.group_by and not asked.aggregations:
        return None
    grouped = _Grouped()
    aliases = {item.alias: (i, item) for i, item in enumerate(asked.projection) if item.alias}
    for i, item in enumerate(asked.group_by):
        path = f"group_by[{i}]"
        name = item.alias or item.field
        if item.field in aliases and item == ProjectionItem(field=item.field):
            place, item = aliases[item.field]
            path = f"projection[{place}]"
        value = read_value(item, scope.resolve(item.field, f"{path}.field"), path)
        check_groups(value.type, "group_by", name, path)
        grouped.groups.append(value)
        grouped.group_names.append(name)
    for i, aggregation in enumerate(asked.aggregations):
        name, aggregate = read_aggregate(aggregation, scope, f"aggregations[{i}]")
        grouped.aggregate_names.append(name)
        grouped.aggregates.append(aggregate)
    return grouped


def _grouped_outputs(projection: Sequence[ProjectionItem], scope: Scope, grouped: _Grouped) -> tuple[Output, ...]:
    outputs = []
    for i, item in enumerate(projection):
        path = f"projection[{i}]"
        place = _group_of(item, scope, grouped, path)
        outputs.append(Output(item.alias or item.field, Computed(grouped.group(place))))
    if not projection:
        outputs = [Output(name, Computed(grouped.group(i))) for i, name in enumerate(grouped.group_names)]
    for i, aggregate in enumerate(grouped.aggregates):
        name = grouped.aggregate_names[i]
        outputs.append(Output(name, Computed(Column(name, (aggregate_column(i),), aggregate.type))))
    return tuple(outputs)


def _group_of(item: ProjectionItem, scope: Scope, grouped: _Grouped, path: str) -> int:
    if item == ProjectionItem(field=item.field) and item.field in grouped.group_names:
        return grouped.group_names.index(item.field)
    place = grouped.place(read_value(item, scope.resolve(item.field, f"{path}.field"), path))
    if place is None:
        raise InvalidQuery(
            f"{path}: {item.alias or item.field!r} is neither grouped nor aggregated; add it to group_by", field=path
        )
    return place


def _having(value: Any, scope: Scope, grouped: _Grouped) -> Predicate:
    if value is None:
        return EVERY_ROW

    def resolve(name: str, path: str) -> Column:
        return _result(name, path, scope, grouped)

    return parse_filter(value, resolve, "having")


def _result(name: str, path: str, scope: Scope, grouped: _Grouped) -> Column:
    found = grouped.result(name)
    if found is None:
        try:
            place = grouped.place(Computed(scope.resolve(name, path)))
        except UnknownField:
            place = None
        if place is None:
            raise unknown_output(name, [*grouped.group_names, *grouped.aggregate_names], path)
        found = grouped.group(place)
    return found


def _sort(
    item: SortItem, outputs: Sequence[Output], scope: Scope, grouped: _Grouped | None, distinct: bool, place: int
) -> Sort:
    path = f"sort[{place}].field"
    by = _sorted_by(item.field, outputs, scope, grouped, distinct, path)
    kind = outputs[by].value.type if isinstance(by, int) else by.type
    check_groups(kind, "sort", item.field, path)
    descending = item.order == "desc"
    return Sort(by, descending, not descending if item.nulls_first is None else item.nulls_first)


def _sorted_by(
    name: str, outputs: Sequence[Output], scope: Scope, grouped: _Grouped | None, distinct: bool, path: str
) -> int | Computed:
    names = [output.name for output in outputs]
    if name in names:
        return names.index(name)
    if grouped is None and not distinct:
        return Computed(scope.resolve(name, path))
    value = Computed(scope.resolve(name, path) if grouped is None else _result(name, path, scope, grouped))
    for i, output in enumerate(outputs):
        if output.value.same_as == value.same_as:
            return i
    if distinct:
        raise unknown_output(name, names, path)
    return value


def _refuse_repeats(outputs: Sequence[Output]) -> None:
    seen: set[str] = set()
    for output in outputs:
        if output.name in seen:
            raise InvalidQuery(
                f"two outputs are called {output.name!r}; give one of them an alias",
                field="projection",
            )
        seen.add(output.name)

"""Read what a query computes, steps on columns and aggregates, and check the types before Spark sees them."""

from dataclasses import dataclass

from service.errors import InvalidQuery, InvalidSchema, UnknownField, did_you_mean
from service.model.expressions.kinds import castable, family
from service.model.query.items import AggregationItem, ProjectionItem
from service.model.query.model import Aggregate, AggregateKind, Computed, ValueStep
from service.model.query.scope import Scope
from service.model.schema.columns import Column
from service.model.schema.definition import parse_leaf
from service.model.schema.types import ColumnType, DecimalType, Map, Primitive, Struct

TEXT = Primitive("string")
_DAYS = ("year", "quarter", "month", "week", "day")
_CLOCK = ("hour", "minute", "second")
_PARTS = (*_DAYS, "dayofweek", "dayofyear", *_CLOCK)
_TIMES = ("date", "timestamp", "timestamptz")
_LARGEST_INT = 2**31 - 1


def read_value(item: ProjectionItem, column: Column, path: str) -> Computed:
    """A column with the steps of a projection's item."""
    steps: list[ValueStep] = []
    kind = column.type
    for step in _steps(item, path):
        steps.append(step.on(kind))
        kind = steps[-1].type
    return Computed(column, tuple(steps))


def read_aggregate(item: AggregationItem, scope: Scope, path: str) -> tuple[str, Aggregate]:
    """An aggregate and its name in the response."""
    kind = item.op or item.function
    if kind is None or (item.op and item.function and item.op != item.function):
        raise InvalidQuery(f"{path} needs one op, such as count or sum", field=f"{path}.op")
    if item.field in (None, "*"):
        if kind != "count":
            raise InvalidQuery(f"{path}.field is missing; {kind} needs a column", field=f"{path}.field")
        if item.distinct:
            raise InvalidQuery(f"{path}: a distinct count needs a field", field=f"{path}.field")
        return item.alias or "count", Aggregate("count", None, False, Primitive("long"))
    column = scope.resolve(str(item.field), f"{path}.field")
    _check_aggregate(kind, column, item.distinct, f"{path}.field")
    name = item.alias or f"{kind}_{str(item.field).replace('.', '_')}"
    distinct = item.distinct or kind == "count_distinct"
    return name, Aggregate(kind, column, distinct, _result(kind, column.type))


def _check_aggregate(kind: AggregateKind, column: Column, distinct: bool, path: str) -> None:
    if kind == "count" and not distinct:
        return
    if kind in ("count", "count_distinct"):
        check_groups(column.type, kind, column.name, path)
    elif kind in ("min", "max"):
        if not isinstance(column.type, Primitive | DecimalType):
            raise InvalidQuery(f"{path}: {kind} needs plain values, but {column.name!r} is {column.type}", field=path)
    elif family(column.type) != "number":
        raise InvalidQuery(f"{path}: {kind} needs numbers, but {column.name!r} is {column.type}", field=path)


def check_groups(kind: ColumnType, what: str, name: str, path: str) -> None:
    """Refuse values that Spark cannot compare."""
    if _holds_map(kind):
        raise InvalidQuery(
            f"{path}: {what} cannot use {name!r}: {kind} holds a map, and maps cannot be compared", field=path
        )


def _holds_map(kind: ColumnType) -> bool:
    if isinstance(kind, Struct):
        return any(_holds_map(field.type) for field in kind.fields)
    return isinstance(kind, Map) or (hasattr(kind, "items") and _holds_map(kind.items))


def _result(kind: AggregateKind, of: ColumnType) -> ColumnType:
    if kind in ("count", "count_distinct"):
        return Primitive("long")
    if kind in ("min", "max"):
        return of
    if isinstance(of, DecimalType) and kind == "sum":
        return DecimalType(min(38, of.precision + 10), of.scale)
    if isinstance(of, DecimalType) and kind == "avg":
        return DecimalType(min(38, of.precision + 4), min(38, of.scale + 4))
    return Primitive("long") if kind == "sum" and _is(of, "integer", "long") else Primitive("double")


@dataclass(frozen=True)
class _Wanted:
    """A step of the request, before it is applied to a type."""

    item: ProjectionItem
    kind: str
    path: str

    def on(self, of: ColumnType) -> ValueStep:
        match self.kind:
            case "cast":
                return ValueStep("cast", self._cast(of))
            case "trim" | "upper" | "lower":
                self._need(of, "text", "string", "uuid")
                return ValueStep(self.kind, TEXT)
            case "substring":
                self._need(of, "text", "string", "uuid")
                return ValueStep("substring", TEXT, self._substring())
            case "date_trunc":
                self._need(of, "a date or a time", *_TIMES)
                units = _DAYS if _is(of, "date") else (*_DAYS, *_CLOCK)
                return ValueStep("date_trunc", of, (self._unit(self.item.date_trunc, units),))
            case "date_format":
                self._need(of, "a date or a time", *_TIMES)
                return ValueStep("date_format", TEXT, (str(self.item.date_format),))
        self._need(of, "a date or a time", *_TIMES)
        unit = self._unit(self.item.extract, [p for p in _PARTS if not (_is(of, "date") and p in _CLOCK)])
        return ValueStep("extract", DecimalType(8, 6) if unit == "second" else Primitive("integer"), (unit,))

    def _need(self, of: ColumnType, what: str, *names: str) -> None:
        if not _is(of, *names):
            raise InvalidQuery(f"{self.path}: {self.kind} needs {what}, not {of}; cast it first", field=self.path)

    def _unit(self, unit: str | None, known: "tuple[str, ...] | list[str]") -> str:
        folded = str(unit).lower()
        if folded not in known:
            near, words = did_you_mean(folded, known)
            raise InvalidQuery(f"{self.path}: {unit!r} is not a unit here; {words}", field=self.path, suggestion=near)
        return folded

    def _substring(self) -> tuple[int, int]:
        given = self.item.substring or []
        if len(given) != 2 or given[0] == 0 or given[1] < 0 or max(map(abs, given)) > _LARGEST_INT:
            raise InvalidQuery(
                f"{self.path} must be [start, length]: the first character is 1, the last -1", field=self.path
            )
        return given[0], given[1]

    def _cast(self, of: ColumnType) -> ColumnType:
        try:
            to = parse_leaf(self.item.cast, self.path)
        except InvalidSchema as e:
            raise InvalidQuery(e.message, field=self.path, suggestion=e.suggestion) from e
        if to == Primitive("uuid"):
            raise InvalidQuery(f"{self.path}: uuid is text in queries; cast to string", field=self.path)
        if not castable(of, to):
            raise InvalidQuery(f"{self.path}: {of} cannot be cast to {to}", field=self.path)
        return to


def _steps(item: ProjectionItem, path: str) -> list[_Wanted]:
    given = [
        _Wanted(item, name, f"{path}.{name}")
        for name in type(item).model_fields
        if name not in ("field", "alias") and getattr(item, name) not in (None, False)
    ]
    kinds = [step.kind for step in given]
    for one, other in (("upper", "lower"), ("date_format", "extract")):
        if one in kinds and other in kinds:
            raise InvalidQuery(f"{path} has both {one} and {other}; send one of them", field=f"{path}.{other}")
    return given


def _is(kind: ColumnType, *names: str) -> bool:
    return isinstance(kind, Primitive) and kind.name in names


def unknown_output(name: str, known: list[str], path: str) -> UnknownField:
    near, words = did_you_mean(name, known)
    return UnknownField(f"{path}: {name[:80]!r} is not an output of this query; {words}", field=path, suggestion=near)

"""Read what a query computes, steps on columns and aggregates, and check the types before Spark receives them."""

from dataclasses import dataclass

from service.errors import InvalidQuery, InvalidSchema
from service.model.expressions.kinds import Family, castable, family
from service.model.query.items import AggregationItem, ProjectionItem
from service.model.query.model import Aggregate, AggregateKind, Computed, ValueStep
from service.model.query.scope import Scope
from service.model.schema.columns import Column
from service.model.schema.definition import parse_leaf
from service.model.schema.types import Array, ColumnType, DecimalType, Map, Primitive, Struct

AN_OUTPUT = "an output of this query"
TEXT = Primitive("string")
_DAYS = ("year", "quarter", "month", "week", "day")
_CLOCK = ("hour", "minute", "second")
_LARGEST_INT = 2**31 - 1


def read_value(item: ProjectionItem, scope: Scope, path: str) -> Computed:
    """A column with the steps of a projection's item."""
    column = scope.resolve(item.field, f"{path}.field")
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
        raise InvalidQuery.at(f"{path}.op", "expected one function, such as count or sum")
    if item.field in (None, "*"):
        if kind != "count":
            raise InvalidQuery.at(f"{path}.field", f"{kind} needs a column; name one")
        if item.distinct:
            raise InvalidQuery.at(f"{path}.field", "a distinct count needs a column; name one")
        return item.alias or "count", Aggregate("count", None, False, Primitive("long"))
    column = scope.resolve(str(item.field), f"{path}.field")
    _check_aggregate(kind, column, item.distinct, f"{path}.field")
    name = item.alias or f"{kind}_{str(item.field).replace('.', '_')}"
    distinct = item.distinct or kind == "count_distinct"
    return name, Aggregate(kind, column, distinct, _result(kind, column.type))


def _check_aggregate(kind: AggregateKind, column: Column, distinct: bool, path: str) -> None:
    needed = ""
    if kind in ("count", "count_distinct"):
        if distinct or kind == "count_distinct":
            check_groups(column.type, kind, column.name, path)
    elif kind in ("min", "max"):
        needed = "" if isinstance(column.type, Primitive | DecimalType) else "plain values"
    elif family(column.type) != "number":
        needed = "numbers"
    if needed:
        raise InvalidQuery.at(path, f"{kind} needs {needed}, but {column.name!r} is {column.type}")


def check_groups(kind: ColumnType, what: str, name: str, path: str) -> None:
    """Refuse values that Spark cannot compare."""
    if _holds_map(kind):
        raise InvalidQuery.at(path, f"{what} cannot use {name!r}: {kind} contains a map, and maps cannot be compared")


def _holds_map(kind: ColumnType) -> bool:
    if isinstance(kind, Struct):
        return any(_holds_map(field.type) for field in kind.fields)
    return isinstance(kind, Map) or (isinstance(kind, Array) and _holds_map(kind.items))


def _result(kind: AggregateKind, of: ColumnType) -> ColumnType:
    if kind in ("count", "count_distinct"):
        return Primitive("long")
    if kind in ("min", "max"):
        return of
    if isinstance(of, DecimalType) and kind == "sum":
        return DecimalType(min(38, of.precision + 10), of.scale)
    if isinstance(of, DecimalType) and kind == "avg":
        return DecimalType(min(38, of.precision + 4), min(38, of.scale + 4))
    return Primitive("long") if kind == "sum" and str(of) in ("integer", "long") else Primitive("double")


@dataclass(frozen=True)
class _RequestedStep:
    """A step of the request, before it is applied to a type."""

    item: ProjectionItem
    kind: str
    path: str

    def on(self, of: ColumnType) -> ValueStep:
        match self.kind:
            case "cast":
                return ValueStep("cast", self._cast(of))
            case "trim" | "upper" | "lower" | "substring":
                self._need(of, "text", "text")
                return ValueStep(self.kind, TEXT, self._substring() if self.kind == "substring" else ())
        self._need(of, "time", "a date or a time")
        clock = () if of == Primitive("date") else _CLOCK
        match self.kind:
            case "date_trunc":
                return ValueStep("date_trunc", of, (self._unit(self.item.date_trunc, (*_DAYS, *clock)),))
            case "date_format":
                return ValueStep("date_format", TEXT, (str(self.item.date_format),))
        unit = self._unit(self.item.extract, (*_DAYS, "dayofweek", "dayofyear", *clock))
        return ValueStep("extract", DecimalType(8, 6) if unit == "second" else Primitive("integer"), (unit,))

    def _need(self, of: ColumnType, needed: Family, words: str) -> None:
        if family(of) != needed:
            raise InvalidQuery.at(self.path, f"{self.kind} needs {words}, not {of}; cast it first")

    def _unit(self, unit: str | None, known: tuple[str, ...]) -> str:
        folded = str(unit).lower()
        if folded not in known:
            raise InvalidQuery.unknown(self.path, unit, "a unit here", known)
        return folded

    def _substring(self) -> tuple[int, int]:
        given = self.item.substring or []
        if len(given) != 2 or given[0] == 0 or given[1] < 0 or max(map(abs, given)) > _LARGEST_INT:
            raise InvalidQuery.at(self.path, "expected [start, length]; the first character is 1, the last is -1")
        return given[0], given[1]

    def _cast(self, of: ColumnType) -> ColumnType:
        try:
            to = parse_leaf(self.item.cast, self.path)
        except InvalidSchema as e:
            raise InvalidQuery(e.message, field=self.path, suggestion=e.suggestion) from e
        if to == Primitive("uuid"):
            raise InvalidQuery.at(self.path, "uuid is text in queries; cast to string")
        if not castable(of, to):
            raise InvalidQuery.at(self.path, f"{of} cannot be cast to {to}")
        return to


def _steps(item: ProjectionItem, path: str) -> list[_RequestedStep]:
    given = [
        _RequestedStep(item, name, f"{path}.{name}")
        for name in type(item).model_fields
        if name not in ("field", "alias") and getattr(item, name) not in (None, False)
    ]
    kinds = [step.kind for step in given]
    for one, other in (("upper", "lower"), ("date_format", "extract")):
        if one in kinds and other in kinds:
            raise InvalidQuery.at(f"{path}.{other}", f"it cannot be combined with {one}; send one of them")
    return given

"""What a query computes: steps on a column, and aggregates; each with its type, checked before Spark sees it."""

from dataclasses import dataclass

from service.columns import Column
from service.errors import InvalidQuery, InvalidSchema, UnknownField
from service.query.items import AggregationItem, ProjectionItem
from service.query.model import Aggregate, AggregateKind, Computed, Step
from service.query.scope import Scope
from service.schema import ColumnType, DecimalType, Map, Primitive, Struct, hint, parse_schema

TEXT = Primitive("string")
_DAYS = ("year", "quarter", "month", "week", "day")
_CLOCK = ("hour", "minute", "second")
_PARTS = (*_DAYS, "dayofweek", "dayofyear", *_CLOCK)
_NUMBERS = ("integer", "long", "float", "double")
_TIMES = ("date", "timestamp", "timestamptz")
_LARGEST_INT = 2**31 - 1


def read_value(item: ProjectionItem, column: Column, path: str) -> Computed:
    """A projected value: the column after the item's steps."""
    steps: list[Step] = []
    kind = column.type
    for step in _steps(item, path):
        steps.append(step.on(kind))
        kind = steps[-1].type
    return Computed(column, tuple(steps))


def read_aggregate(item: AggregationItem, scope: Scope, path: str) -> tuple[str, Aggregate]:
    """The name of an aggregate in the answer, and what it is."""
    kind = item.op or item.function
    if kind is None or (item.op and item.function and item.op != item.function):
        raise InvalidQuery(f"{path} needs one op, such as count or sum", field=f"{path}.op")
    if item.field in (None, "*"):
        if kind != "count":
            raise InvalidQuery(f"{path}.field is missing; {kind} needs a column", field=f"{path}.field")
        if item.distinct:
            raise InvalidQuery(f"{path}: counting distinct needs a field", field=f"{path}.field")
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
    elif not (isinstance(column.type, DecimalType) or (_is(column.type, *_NUMBERS))):
        raise InvalidQuery(f"{path}: {kind} needs numbers, but {column.name!r} is {column.type}", field=path)


def check_groups(kind: ColumnType, what: str, name: str, path: str) -> None:
    """Refuse values that Spark does not tell apart or put together."""
    if _holds_map(kind):
        raise InvalidQuery(
            f"{path}: {what} cannot use {name!r}: {kind} holds a map, and maps do not compare", field=path
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
    """A step as the request has it, before it meets a type."""

    item: ProjectionItem
    kind: str
    path: str

    def on(self, of: ColumnType) -> Step:
        match self.kind:
            case "cast":
                return Step("cast", self._cast(of))
            case "trim" | "upper" | "lower":
                self._need(of, "text", "string", "uuid")
                return Step(self.kind, TEXT)
            case "substring":
                self._need(of, "text", "string", "uuid")
                return Step("substring", TEXT, self._substring())
            case "date_trunc":
                self._need(of, "a date or a time", *_TIMES)
                units = _DAYS if _is(of, "date") else (*_DAYS, *_CLOCK)
                return Step("date_trunc", of, (self._unit(self.item.date_trunc, units),))
            case "date_format":
                self._need(of, "a date or a time", *_TIMES)
                return Step("date_format", TEXT, (str(self.item.date_format),))
        self._need(of, "a date or a time", *_TIMES)
        unit = self._unit(self.item.extract, [p for p in _PARTS if not (_is(of, "date") and p in _CLOCK)])
        return Step("extract", DecimalType(8, 6) if unit == "second" else Primitive("integer"), (unit,))

    def _need(self, of: ColumnType, what: str, *names: str) -> None:
        if not _is(of, *names):
            raise InvalidQuery(f"{self.path}: {self.kind} needs {what}, not {of}; cast it first", field=self.path)

    def _unit(self, unit: str | None, known: "tuple[str, ...] | list[str]") -> str:
        folded = str(unit).lower()
        if folded not in known:
            near, words = hint(folded, known)
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
            to = parse_schema({"fields": {"value": {"type": self.item.cast}}}).fields[0].type
        except InvalidSchema as e:
            words = e.message.partition(": ")[2] or e.message
            raise InvalidQuery(f"{self.path}: {words}", field=self.path, suggestion=e.suggestion) from e
        if to == Primitive("uuid"):
            raise InvalidQuery(f"{self.path}: uuid is text in queries; cast to string", field=self.path)
        if not _castable(_family(of), _family(to)):
            raise InvalidQuery(f"{self.path}: {of} cannot be cast to {to}", field=self.path)
        return to


def _castable(of: str, to: str) -> bool:
    if "" in (of, to):
        return False
    if of == to or "text" in (of, to):
        return True
    return {of, to} == {"number", "boolean"}


def _family(kind: ColumnType) -> str:
    if isinstance(kind, DecimalType) or _is(kind, *_NUMBERS):
        return "number"
    if _is(kind, *_TIMES):
        return "time"
    if _is(kind, "string", "uuid"):
        return "text"
    return kind.name if isinstance(kind, Primitive) else ""


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


def not_an_output(name: str, known: list[str], path: str) -> UnknownField:
    near, words = hint(name, known)
    return UnknownField(f"{path}: {name[:80]!r} is not an output of this query; {words}", field=path, suggestion=near)

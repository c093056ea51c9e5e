"""Aggregates by adding: the counts and sums of a change are added to those that the result keeps.

Only the change is read, not the rows that are as they were. A MIN or MAX is computed again if a row with its value
went.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from sqlglot import exp

from service.dynamic.query.changes import Changes, netted
from service.dynamic.query.dialect import quoted, sql_of
from service.dynamic.query.limits import Limit, Pair
from service.dynamic.query.operators import Group, Operator, Select, column
from service.dynamic.query.result import KeptResult
from service.dynamic.query.rows import NO_COLUMN, names
from service.dynamic.query.sql_types import cast
from service.model.dynamic.plan import RESULT, WEIGHT, ReplacedKeys, Step
from service.model.schema.types import ColumnType, DecimalType, Primitive, is_floating

_WIDEST = 27
"""The digits of a decimal that can be multiplied with a weight of ten digits."""
_WHOLE = (Primitive("integer"), Primitive("long"))
Types = Callable[[Operator, Sequence[exp.Expr]], list[ColumnType]]


@dataclass
class Adding:
    """The aggregates of a group as values that can be added."""

    core: Group
    types: dict[str, ColumnType]
    """Of the columns of the group."""
    arguments: list[exp.Expr] = field(default_factory=list)
    rows: str = ""
    """The column that counts the rows of each group."""
    kinds: dict[str, tuple[str, int]] = field(default_factory=dict)
    """What each aggregate is: count, sum, avg, min or max, and the number of its argument; -1 for rows."""

    def state(self) -> list[str]:
        """The columns that the result has to keep."""
        return [name for name, (kind, _) in self.kinds.items() if kind != "avg"]

    def column_of(self, kind: str, argument: int) -> str:
        return next(name for name, known in self.kinds.items() if known == (kind, argument))


def adding(core: Group, types: Types, fresh: Callable[[str], str]) -> Adding | None:
    """How the group's aggregates are added; None if one of them cannot be.

    The counts and sums that this needs become aggregates of the group, too.
    """
    found = Adding(core, {})
    calls: dict[str, tuple[str, exp.Expr | None]] = {}
    for name, value in core.aggregates.items():
        call = _basic(value)
        if call is None:
            return None
        calls[name] = call
    summed = {name: value for name, (kind, value) in calls.items() if kind in ("sum", "avg") and value is not None}
    summed_types = dict(zip(summed, types(core.input, list(summed.values())), strict=True))
    if not all(_addable(calls[name][0], kind) for name, kind in summed_types.items()):
        return None
    for name, (kind, argument) in calls.items():
        if kind == "avg" and argument is not None and summed_types[name] == Primitive("long"):
            argument = cast(argument.copy(), DecimalType(19, 0))  # AVG adds longs that are too large for SUM
        found.kinds[name] = (kind, _number(found, argument))
    for kind, number in list(found.kinds.values()):
        if kind in ("sum", "avg"):
            _add(found, "count", number, fresh)
            _add(found, "sum", number, fresh)
    _add(found, "count", -1, fresh)
    found.rows = found.column_of("count", -1)
    found.types = dict(zip(core.produced, types(core, [column(name) for name in core.produced]), strict=True))
    return found


def _basic(value: exp.Expr) -> tuple[str, exp.Expr | None] | None:
    """The aggregate and its argument, which is null where FILTER leaves the row out; None for others."""
    call = value.this if isinstance(value, exp.Filter) else value
    name = str(call.this).lower()
    if name not in ("count", "sum", "avg", "mean", "min", "max") or len(call.expressions) != 1:
        return None
    argument: exp.Expr | None = call.expressions[0]
    if isinstance(argument, exp.Distinct):
        return None
    if isinstance(argument, exp.Star):
        argument = None
    if isinstance(value, exp.Filter):
        shown = exp.Literal.number(1) if argument is None else argument.copy()
        argument = exp.Case(ifs=[exp.If(this=value.expression.this.copy(), true=shown)])
    return "avg" if name == "mean" else name, argument


def _addable(call: str, kind: ColumnType) -> bool:
    """Whether sums of the type can be added, and divided by a count, without losing a digit in between."""
    if not isinstance(kind, DecimalType):
        return kind in _WHOLE
    if call == "avg":
        return kind.precision <= 24 or (kind.precision <= _WIDEST and kind.scale <= 2)
    return kind.precision <= _WIDEST or (kind.precision <= 32 and kind.scale <= 6)


def _number(found: Adding, argument: exp.Expr | None) -> int:
    if argument is None:
        return -1
    if argument not in found.arguments:
        found.arguments.append(argument)
    return found.arguments.index(argument)


def _add(found: Adding, kind: str, number: int, fresh: Callable[[str], str]) -> None:
    if (kind, number) in found.kinds.values():
        return
    name = fresh(kind)
    found.kinds[name] = (kind, number)
    argument = exp.Star() if number < 0 else found.arguments[number].copy()
    found.core.aggregates[name] = exp.Anonymous(this=kind, expressions=[argument])


def by_adding(root: Select, result: KeptResult, how: Adding, changed: Set[int]) -> tuple[list[Step], ReplacedKeys]:
    """The plan: count and sum the change by key, add that to the result, and scan groups whose extreme went."""
    core, changes = how.core, Changes(root, changed)
    totals = changes.view("d", _totals(changes, how))
    merged = changes.view("m", _merged(how, result, totals))
    keys = [(key, result.column_of(key)) for key in core.keys]
    if keys:
        shown = ", ".join(f"{quoted(key)} AS {quoted(name)}" for key, name in keys)
        touched = changes.view("k", f"SELECT {shown} FROM {totals} AS a")
    else:
        touched = changes.view("k", f"SELECT 1 AS {NO_COLUMN} FROM {totals} AS a WHERE touched > 0")
    extremes = any(kind in ("min", "max") for kind, _ in how.kinds.values())
    there = f"{quoted(how.rows)} > 0" if keys else "TRUE"
    added = f"SELECT {names(core.columns)} FROM {merged} AS a WHERE {there}"
    if not extremes:
        return changes.steps, _replaced(changes, root, core, added, touched, keys)
    lost = f"SELECT {names([*core.keys])} FROM {merged} AS a WHERE {there} AND lost"
    gone = changes.view("k", lost)
    if keys:
        limit = Limit(gone, tuple(Pair(column(name), key) for key, name in keys))
        scanned = changes.rows(root, "new", (limit,))
    else:
        scanned = f"SELECT a.* FROM ({changes.rows(root, 'new')}) AS a CROSS JOIN {gone} AS b"
        scanned = f"SELECT {names(root.columns)} FROM ({scanned}) AS a"
    return changes.steps, _replaced(changes, root, core, f"{added} AND NOT lost", touched, keys, scanned)


def _replaced(
    changes: Changes,
    root: Select,
    core: Group,
    added: str,
    touched: str,
    keys: list[tuple[str, str]],
    scanned: str | None = None,
) -> ReplacedKeys:
    sql = changes.over(root, core, added)
    rows = changes.view("change", sql if scanned is None else f"{sql} UNION ALL {scanned}")
    return ReplacedKeys(touched, tuple(name for _, name in keys), rows)


def _totals(changes: Changes, how: Adding) -> str:
    """The change of each group: counts, sums, and the extremes of the values that came and went."""
    core = how.core
    fields = [quoted(key) for key in core.keys]
    fields += [f"{sql_of(value)} AS a{i}" for i, value in enumerate(how.arguments)]
    rows = f"SELECT {', '.join([*fields, WEIGHT])} FROM ({changes.change(core.input)}) AS a"
    by = [*map(quoted, core.keys), *(f"a{i}" for i in range(len(how.arguments)))]
    if any(kind in ("min", "max") for kind, _ in how.kinds.values()):
        # A value that came and went as often did neither.
        rows = netted(", ".join(by), rows)
    values = [*map(quoted, core.keys), "COUNT(*) AS touched"]
    for name, (kind, number) in how.kinds.items():
        value = f"a{number}"
        if kind == "count":
            weight = WEIGHT if number < 0 else f"CASE WHEN {value} IS NOT NULL THEN {WEIGHT} END"
            values.append(f"COALESCE(SUM({weight}), 0) AS {quoted(name)}")
        elif kind == "sum":
            values.append(f"{_weighted_sum(value, how.types[name])} AS {quoted(name)}")
        elif kind in ("min", "max"):
            for word, sign in (("came", ">"), ("went", "<")):
                values.append(f"{kind}(CASE WHEN {WEIGHT} {sign} 0 THEN {value} END) AS {quoted(f'{word}_{name}')}")
    grouped = f" GROUP BY {', '.join(map(quoted, core.keys))}" if core.keys else ""
    return f"SELECT {', '.join(values)} FROM ({rows}) AS a{grouped}"


def _weighted_sum(value: str, kind: ColumnType) -> str:
    """The sum of a value times its weight; weights of decimals have types whose products keep all digits."""
    if not isinstance(kind, DecimalType):
        return f"SUM({value} * {WEIGHT})"
    if kind.precision < 38:
        return f"SUM({value} * CAST({WEIGHT} AS DECIMAL(10, 0)))"
    low = f"{WEIGHT} % 100000"
    high = f"({WEIGHT} - {low}) DIV 100000"
    sums = (f"SUM({value} * CAST({part} AS DECIMAL(5, 0)))" for part in (low, high))
    return "{} + {} * CAST(100000 AS DECIMAL(6, 0))".format(*sums)


def _merged(how: Adding, result: KeptResult, totals: str) -> str:
    """The columns of each changed group as they are now, and whether an extreme was lost."""
    core = how.core
    counts: dict[int, str] = {}
    values: dict[str, str] = {}
    for name, (kind, number) in how.kinds.items():
        if kind == "count":
            values[name] = f"COALESCE(r.{quoted(result.column_of(name))}, 0) + d.{quoted(name)}"
            counts[number] = values[name]
    lost = []
    for name, (kind, number) in how.kinds.items():
        if kind == "sum":
            values[name] = _sum(how, result, name, counts[number])
        elif kind in ("min", "max"):
            kept = f"r.{quoted(result.column_of(name))}"
            came, went = f"d.{quoted(f'came_{name}')}", f"d.{quoted(f'went_{name}')}"
            values[name] = f"{'LEAST' if kind == 'min' else 'GREATEST'}({kept}, {came})"
            reaches = "<=" if kind == "min" else ">="
            still = f"COALESCE({came} {reaches} {kept}, FALSE)"
            lost.append(f"({went} IS NOT NULL AND COALESCE({went} {reaches} {kept}, TRUE) AND NOT {still})")
    for name, (kind, number) in how.kinds.items():
        if kind == "avg":
            total, count = values[how.column_of("sum", number)], counts[number]
            values[name] = _typed(how.types[name], f"{_divisible(how.types[name], total)} / NULLIF({count}, 0)")
    fields = [f"d.{quoted(key)} AS {quoted(key)}" for key in core.keys]
    fields += [f"{value} AS {quoted(name)}" for name, value in values.items() if name in core.columns]
    fields += [f"{' OR '.join(lost)} AS lost"] if lost else []
    on = " AND ".join(f"d.{quoted(key)} <=> r.{quoted(result.column_of(key))}" for key in core.keys) or "TRUE"
    return f"SELECT {', '.join(fields)} FROM {totals} AS d LEFT JOIN {RESULT} AS r ON {on}"


def _sum(how: Adding, result: KeptResult, name: str, count: str) -> str:
    kept = f"COALESCE(r.{quoted(result.column_of(name))}, 0)"
    added = _typed(how.types[name], f"COALESCE(d.{quoted(name)}, 0)")
    return f"CASE WHEN {count} > 0 THEN {_typed(how.types[name], f'{kept} + {added}')} END"


def _divisible(kind: ColumnType, value: str) -> str:
    return f"CAST({value} AS DOUBLE)" if is_floating(kind) else value


def _typed(kind: ColumnType, value: str) -> str:
    found = cast(exp.Null(), kind)
    assert isinstance(found, exp.Cast)
    return f"CAST({value} AS {sql_of(found.args['to'])})"

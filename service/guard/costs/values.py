"""Bounds of the values of expressions in an analysed plan, and of the steps that computing them takes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from service.guard.costs import aggregates, matching
from service.guard.costs.bounds import DAY, Bound, array, column, full_range, hull, literal, numbers
from service.guard.costs.functions import PASSING, made_of
from service.guard.costs.limits import ASSUMED_NUMBER, QueryLimits, shown, shown_bytes, sql_name, too_expensive
from service.guard.nodes import Node, is_plan_class

_OVER_ELEMENTS = frozenset({"ArrayFilter", "ArrayExists", "ArrayForAll", "MapFilter", "ArraySort"})
_MAPPED = frozenset({"ArrayTransform", "TransformKeys", "TransformValues", "ZipWith", "MapZipWith"})
_SUBQUERIES = frozenset({"ScalarSubquery", "ListQuery", "Exists", "LateralSubquery"})
_PAIRWISE = frozenset({"ArrayDistinct", "ArrayUnion", "ArrayExcept", "ArrayIntersect", "ArraysOverlap"})
_DAYS = 10_000_000.0
# Reading 16 bytes counts as one step.
_STEP_BYTES = 16.0


class Evaluation:
    """Bounds of expressions over rows whose columns have these bounds."""

    def __init__(
        self,
        limits: QueryLimits,
        columns: Mapping[int, Bound],
        subquery: Callable[[Node, float], Bound],
        visit: Callable[[], None],
        rows: float = 1.0,
        grouped: bool = False,
    ) -> None:
        self.steps = 0.0
        """Of one row, or of one group."""
        self.steps_in_aggregates = 0.0
        """Of one row of a group."""
        self._limits = limits
        self._columns = columns
        self._subquery = subquery
        self._visit = visit
        self._rows = rows
        self._grouped = grouped
        self._variables: dict[int, Bound] = {}
        self._times = 1.0

    def bound(self, node: Node) -> Bound:
        """The bound of an expression. Raises QueryTooExpensive if it is beyond the limits."""
        self._visit()
        special = _SPECIAL.get(node.name)
        if special is not None:
            found = special(self, node)
        elif node.name in _SUBQUERIES:
            found = self._subquery(node, self._rows)
        else:
            args = [self.bound(child) for child in node.children]
            for tree in node.all_trees():
                if not is_plan_class(str(tree.fields["class"])):
                    args.append(self.bound(tree))
            self._check_work(node, args)
            found = made_of(node.name, args)
        found = self._checked(node, found)
        passes_on = node.name in PASSING or node.name in aggregates.COLLECTED
        self.step(1.0 if passes_on else 1.0 + found.size / _STEP_BYTES)
        return found

    def step(self, count: float) -> None:
        self.steps += count * self._times
        if self.steps > self._limits.row_steps:
            raise too_expensive(
                f"one row takes {shown(self.steps)} steps to compute",
                f"{shown(self._limits.row_steps)} are allowed",
                "Use shorter arrays and texts, or do less for each element",
            )

    def _checked(self, node: Node, found: Bound) -> Bound:
        # An element of an array has at least a reference to it.
        size = max(found.size, found.items * 4 if found.element else 0.0)
        # Spark computes what depends on no table while it plans, and then copies it around.
        most = self._limits.constant_bytes if found.known else self._limits.value_bytes
        if size > most or math.isnan(size):
            what = f"a value of {sql_name(node.name)} may have {shown_bytes(size)}"
            if found.element:
                what += f" in {shown(found.items)} elements"
            raise too_expensive(
                what,
                f"{shown_bytes(most)} are allowed (queries.max_value_mb)",
                "Use smaller numbers, and if they come from a column, bound them, as in least(n, 1000)",
            )
        return found

    def _check_work(self, node: Node, args: Sequence[Bound]) -> None:
        if node.name == "Levenshtein":
            self.step(args[0].size * args[1].size)
        elif node.name in matching.PATTERNS:
            matching.check_patterns(node.name, args)
        elif node.name in _PAIRWISE and any(a.inside.element for a in args):
            # Elements without an order are compared each with each.
            self.step(max(a.items for a in args) ** 2)
        aggregates.check_sketch(node, args)

    def _literal(self, node: Node) -> Bound:
        kind = node.fields.get("dataType")
        found = literal(node.fields.get("value"), kind)
        return replace(found, items=-1.0) if str(kind).startswith("interval") else found

    def _column(self, node: Node) -> Bound:
        found = self._columns.get(node.expr_id)
        return column(node.fields.get("dataType")) if found is None else found

    def _variable(self, node: Node) -> Bound:
        found = self._variables.get(node.expr_id)
        return column(node.fields.get("dataType")) if found is None else found

    def _cast(self, node: Node) -> Bound:
        kind, value = node.fields.get("dataType"), self.bound(node.children[0])
        if isinstance(kind, dict):
            return value
        if kind == "string":
            return replace(value, size=max(value.size * 2, 32.0), element=None, items=1.0)
        value = replace(value, text=None) if kind == "binary" else value
        if kind == "binary":
            return value
        most = max(abs(value.low), abs(value.high))
        if kind == "date" and most > _DAYS:
            value = replace(value, low=value.low / DAY, high=value.high / DAY)
        if str(kind).startswith("timestamp") and most < _DAYS:
            value = replace(value, low=value.low * DAY, high=value.high * DAY)
        return full_range(kind, replace(value, size=8.0, text=None, element=None, items=1.0))

    def _lambda(self, node: Node, arguments: Sequence[Bound], times: float) -> Bound:
        """The bound of a lambda function's result, which is computed so many times."""
        body, *variables = node.children
        for variable, bound in zip(variables, arguments, strict=False):
            self._variables[variable.expr_id] = bound
        before, self._times = self._times, self._times * max(times, 1.0)
        try:
            return self.bound(body)
        finally:
            self._times = before

    def _over_elements(self, node: Node) -> Bound:
        values = self.bound(node.children[0])
        inside = values.inside
        times = values.items * (math.log2(values.items + 2) if node.name == "ArraySort" else 1.0)
        for function in node.children[1:]:
            self._lambda(function, [inside, hull([inside, numbers(0, values.items, ())])], times)
        return numbers(0, 1, [values]) if node.name in ("ArrayExists", "ArrayForAll") else values

    def _mapped(self, node: Node) -> Bound:
        *given, function = node.children
        values = [self.bound(child) for child in given]
        items = (sum if node.name == "MapZipWith" else max)(v.items for v in values)
        inside = hull([v.inside for v in values])
        place = hull([inside, numbers(0, items, ())])
        arguments = [v.inside for v in values] if node.name == "ZipWith" else [inside, place, place]
        made = self._lambda(function, arguments, items)
        if node.name.startswith("Transform"):
            return array(hull([inside, made]), items, items * (inside.size + made.size))
        return array(made, items)

    def _aggregated(self, node: Node) -> Bound:
        """The result of `aggregate`: its accumulator may grow with every element."""
        values, zero = self.bound(node.children[0]), self.bound(node.children[1])
        merge = node.children[2]

        def after(accumulator: Bound) -> Bound:
            return hull([accumulator, self._lambda(merge, [accumulator, values.inside], 1.0)])

        second = after(zero)
        found = self._checked(node, grown(zero, second, after(second), values.items))
        self._lambda(merge, [found, values.inside], values.items)
        return self._lambda(node.children[3], [found], 1.0) if len(node.children) > 3 else found

    def _of_rows(self, node: Node) -> Bound:
        """An aggregate function, with its filter: its arguments are computed for each row of the group."""
        before = self.steps
        first, *_ = [self.bound(child) for child in node.children]
        self.steps_in_aggregates += self.steps - before
        function = node.children[0]
        # Groups share the rows, in unknown parts.
        rows = max(math.sqrt(self._rows), ASSUMED_NUMBER) if self._grouped else self._rows
        if function.name in aggregates.COUNTS:
            return replace(first, low=0.0, high=rows, known=False)
        if function.name in ("Sum", "TrySum") and first.known:
            most = rows * max(abs(n) for n in self._range(function.children[0]))
            return replace(first, low=-most, high=most, known=False)
        return first

    def _range(self, node: Node) -> tuple[float, float]:
        found = self.bound(node)
        return found.low, found.high

    def _aggregate(self, node: Node) -> Bound:
        args = [self.bound(child) for child in node.children]
        aggregates.check_sketch(node, args)
        return aggregates.result(node, args, self._limits, self._rows, self._grouped)


def grown(first: Bound, second: Bound, third: Bound, times: float) -> Bound:
    """The bound of a value after so many steps, of which the first two made the second and the third of the first."""
    return replace(
        third,
        size=_grown(first.size, second.size, third.size, times),
        items=_grown(first.items, second.items, third.items, times),
        low=-_grown(-first.low, -second.low, -third.low, times),
        high=_grown(first.high, second.high, third.high, times),
        text=None,
    )


def _grown(first: float, second: float, third: float, times: float) -> float:
    """What a number becomes that went from the first to the third in two steps."""
    if times <= 2 or third <= second:
        return third
    by, then = second - first, third - second
    if then <= by * 1.05 + 0.5:  # by the same each time
        return third + then * (times - 2)
    try:
        return third * float((third / max(second, 1.0)) ** (times - 2))
    except OverflowError:
        return math.inf


_SPECIAL: dict[str, Callable[[Evaluation, Node], Bound]] = {
    "Literal": Evaluation._literal,
    "AttributeReference": Evaluation._column,
    "NamedLambdaVariable": Evaluation._variable,
    **dict.fromkeys(("Cast", "AnsiCast"), Evaluation._cast),
    **dict.fromkeys(_OVER_ELEMENTS, Evaluation._over_elements),
    **dict.fromkeys(_MAPPED, Evaluation._mapped),
    "ArrayAggregate": Evaluation._aggregated,
    "AggregateExpression": Evaluation._of_rows,
    **dict.fromkeys(aggregates.COLLECTED, Evaluation._aggregate),
}

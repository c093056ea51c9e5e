"""Bounds of the rows of an analysed plan, and through them of all that a query computes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from service.guard.costs.bounds import Bound, column, hull, literal
from service.guard.costs.joins import (
    Pair,
    connected,
    equal_columns,
    filters,
    has_outer_equality,
    inner_joins,
    joined_sides,
)
from service.guard.costs.limits import ASSUMED_ROWS, QueryLimits, shown, shown_bytes, too_expensive
from service.guard.costs.values import Evaluation, grown
from service.guard.nodes import Node, id_of, tree, trees_in

# How often Spark repeats a recursive query, and how many rows it may make (its defaults).
_LEVELS = 100.0
_RECURSIVE_ROWS = 1_000_000.0
_MOST_LEVELS = 1_000.0
_VISITS = 5
# PlanRows that are narrower than this are not worth counting.
_WIDE = 16_384.0
_COSTLY_ROW = 10_000.0
_BOUNDED = frozenset({"GlobalLimit", "LocalLimit"})
_EXPLODED = frozenset({"Explode", "PosExplode", "Inline"})
Columns = dict[int, Bound]


@dataclass(slots=True)
class PlanRows:
    """The rows of a part of a plan: how many at most, and the bounds of their columns by id."""

    count: float
    columns: Columns


@dataclass(frozen=True, slots=True)
class Listed:
    """What VALUES may have at most: rows, bytes of a value, and a number."""

    rows: float
    size: float
    number: float

    def bound(self, kind: object) -> Bound:
        """The bound of a column of this type."""

        def of(one: Bound) -> Bound:
            element = None if one.element is None else of(one.element)
            return replace(
                one, size=max(one.size, self.size), low=-self.number, high=self.number, element=element, known=True
            )

        return of(column(kind))


class PlanCosts:
    """The rows of the parts of one plan. `rows` has how many each view has, and `listed` bounds those of VALUES."""

    def __init__(self, limits: QueryLimits, rows: Mapping[str, float], listed: Listed) -> None:
        self._limits = limits
        self._known_rows = rows
        self._listed = listed
        self._with: dict[int, tuple[PlanRows, list[int]]] = {}
        self._loops: dict[int, list[Bound]] = {}
        self._visits = 0

    def check(self, plan: Node, most_rows: float) -> None:
        """Raise QueryTooExpensive if the plan may cost too much; at most so many of its rows are returned."""
        found = self.rows(plan, ())
        width = sum(found.columns[one].size for one in _output(plan, found))
        total = min(found.count, most_rows) * width
        if width > _WIDE and total > self._limits.result_bytes:
            raise too_expensive(
                f"{shown(min(found.count, most_rows))} rows of {shown_bytes(width)} may be returned",
                f"{shown_bytes(self._limits.result_bytes)} are allowed (queries.max_result_mb)",
                "Send a smaller limit, or make the values shorter",
            )

    def rows(self, node: Node, equal: Sequence[Pair]) -> PlanRows:
        """The rows of a part of the plan; `equal` are sets of columns of which conditions above it compare values."""
        self._visit()
        if node.name == "Filter":
            condition = node.trees("condition")
            below = self.rows(node.children[0], [*equal, *equal_columns(condition)])
            return self._computed(node, below)
        if node.name == "Join":
            return self._joined(node, equal)
        special = _SPECIAL.get(node.name)
        if special is not None:
            return special(self, node)
        passed = equal if node.name in ("SubqueryAlias", "Project", "View") else ()
        inputs = [self.rows(child, passed) for child in node.children]
        if not inputs:
            return self._leaf(node)
        merged = PlanRows(inputs[0].count, {i: b for one in inputs for i, b in one.columns.items()})
        return self._computed(node, merged, "projectList")

    def _visit(self) -> None:
        """Count the nodes that are looked at: lambda functions in lambda functions are looked at several times."""
        self._visits += 1
        if self._visits > self._limits.nodes * _VISITS:
            raise too_expensive(
                "its lambda functions and recursive queries are nested too deeply",
                f"{shown(self._limits.nodes * _VISITS)} nodes are allowed",
                "Flatten them",
            )

    def _leaf(self, node: Node) -> PlanRows:
        of = self._listed.bound if node.name == "LocalRelation" else column
        columns = {one.expr_id: of(one.fields.get("dataType")) for one in node.trees("output")}
        if node.name == "LocalRelation":
            return PlanRows(self._listed.rows, columns)
        return PlanRows(1.0 if node.name == "OneRowRelation" else ASSUMED_ROWS, columns)

    def _view(self, node: Node) -> PlanRows:
        name = str(node.fields.get("desc", {}).get("identifier", {}).get("table", ""))
        below = self.rows(node.children[0], ())
        known = self._known_rows.get(name)
        if known is None:
            return below
        # Instead of a table, a query may be analysed over nulls of the same types.
        columns = {one.expr_id: column(one.children[0].fields["dataType"]) for one in _nulls(node)} or below.columns
        return PlanRows(float(known), columns)

    def _computed(
        self, node: Node, below: PlanRows, field: str = "", grouped: bool | None = None, count: float | None = None
    ) -> PlanRows:
        """The rows with the expressions of a node, of which those in `field` make columns."""
        rows = below.count
        evaluation = Evaluation(self._limits, below.columns, self._subquery, self._visit, rows, bool(grouped))
        made = {one.expr_id: evaluation.bound(one) for one in node.trees(field) if one.name != "AttributeReference"}
        for name, value in node.fields.items():
            if name != field and isinstance(value, list):
                for one in trees_in(value):
                    evaluation.bound(one)
        steps = evaluation.steps if grouped is None else evaluation.steps_in_aggregates
        if steps > _COSTLY_ROW and steps * rows > self._limits.rows * 100:
            raise too_expensive(
                f"{shown(rows)} rows take {shown(steps)} steps each to compute",
                f"{shown(self._limits.rows * 100)} steps are allowed in all",
                "Filter the rows first, or do less for each",
            )
        return PlanRows(rows if count is None else count, {**below.columns, **made})

    def _subquery(self, node: Node, rows: float) -> Bound:
        """The bound of a subquery's value in a part of the plan with so many rows."""
        plan = tree(node.fields["plan"])
        found = self.rows(plan, ())
        if node.fields.get("outerAttrs") and not any(map(has_outer_equality, filters(plan))):
            self._checked(
                rows * found.count,
                [rows, found.count],
                "a subquery without an equality between its columns and those outside",
                "Compare columns for equality, or filter both first",
            )
        output = _output(plan, found)
        return found.columns[output[0]] if output else Bound()

    def _checked(self, count: float, inputs: Sequence[float], what: str, way_out: str) -> float:
        if count > self._limits.rows and count > max(inputs):
            raise too_expensive(
                f"{what} may make {shown(count)} rows of {' and '.join(shown(n) for n in inputs)}",
                f"{shown(self._limits.rows)} are allowed (queries.max_rows)",
                way_out,
            )
        return count

    def _joined(self, node: Node, equal: Sequence[Pair]) -> PlanRows:
        joins = list(inner_joins(node))
        passed = [*equal, *(pair for join in joins for pair in equal_columns(join.trees("condition")))]
        sides = [self.rows(side, passed) for side in joined_sides(node)]
        columns = {i: bound for side in sides for i, bound in side.columns.items()}
        passed = [pair for pair in passed if not any(_is_constant(one, columns) for one in pair)]
        count = 1.0
        # Spark joins first what is joined by equal columns, whatever the order in the text.
        for group in connected([side.columns.keys() for side in sides], passed):
            count *= max(sides[place].count for place in group)
        self._checked(
            count,
            [side.count for side in sides],
            "a join without an equality between columns of both sides",
            "Join on equal columns, or filter both sides first",
        )
        found = PlanRows(count, columns)
        for join in joins:
            self._computed(join, found)
        return found

    def _lateral(self, node: Node) -> PlanRows:
        left = self.rows(node.children[0], ())
        columns = dict(left.columns)
        count = left.count
        for subquery in node.trees("right"):
            plan = tree(subquery.fields["plan"])
            right = self.rows(plan, ())
            columns |= right.columns
            if not any(has_outer_equality(one) for one in filters(plan)):
                count = self._checked(
                    left.count * right.count, [left.count, right.count], "a lateral join", "Filter it by equal columns"
                )
        return PlanRows(count, columns)

    def _generated(self, node: Node) -> PlanRows:
        below = self.rows(node.children[0], ())
        evaluation = Evaluation(self._limits, below.columns, self._subquery, self._visit, below.count)
        [generator] = node.trees("generator")
        args = [evaluation.bound(child) for child in generator.children]
        inside = hull([arg.inside for arg in args]) if args else Bound()
        items = 1.0
        if generator.name in _EXPLODED and args:
            items, inside = max(args[0].items, 1.0), hull([args[0].inside, args[0].inside.inside])
        elif generator.name == "Stack" and args:
            items = max(args[0].high, 1.0)
            if items > self._limits.nodes:
                raise too_expensive(
                    f"stack makes {shown(items)} rows", f"{self._limits.nodes:,} are allowed", "Make fewer"
                )
        count = self._checked(
            below.count * items,
            [below.count, items],
            f"{generator.name.lower()} of each row",
            "Generate fewer elements, or filter the rows first",
        )
        made = {one.expr_id: inside for one in node.trees("generatorOutput")}
        return PlanRows(count, {**below.columns, **made})

    def _aggregated(self, node: Node) -> PlanRows:
        below = self.rows(node.children[0], ())
        grouped = bool(node.trees("groupingExpressions"))
        return self._computed(node, below, "aggregateExpressions", grouped, below.count if grouped else 1.0)

    def _windowed(self, node: Node) -> PlanRows:
        below = self.rows(node.children[0], ())
        grouped = bool(node.trees("partitionSpec"))
        for one in node.trees("windowExpressions"):
            self._check_frames(one, below.count / (100 if grouped else 1))
        return self._computed(node, below, "windowExpressions", grouped)

    def _check_frames(self, node: Node, rows: float) -> None:
        """Refuse frames that are computed again for each row, and are long."""
        for child in node.children:
            self._check_frames(child, rows)
        if node.name != "SpecifiedWindowFrame" or node.children[0].name == "UnboundedPreceding$":
            return
        length = sum(_frame_rows(side) for side in node.children)
        if "RowFrame" not in str(node.fields.get("frameType")):
            length = rows
        if rows * min(length, rows) > self._limits.rows * 100:
            raise too_expensive(
                f"a window frame of {shown(min(length, rows))} rows is computed for each of {shown(rows)} rows",
                f"{shown(self._limits.rows * 100)} are allowed in all",
                "Begin the frame with UNBOUNDED PRECEDING, or make it shorter",
            )

    def _expanded(self, node: Node) -> PlanRows:
        below = self.rows(node.children[0], ())
        projections = node.fields.get("projections") or []
        first = [tree(one) for one in projections[0]] if projections else []
        found = self._computed(node, below)
        count = self._checked(
            below.count * max(len(projections), 1),
            [below.count, float(len(projections))],
            "its grouping sets",
            "Use fewer grouping sets",
        )
        evaluation = Evaluation(self._limits, below.columns, self._subquery, self._visit)
        names = [one.expr_id for one in node.trees("output")]
        made = {name: evaluation.bound(one) for name, one in zip(names, first, strict=False)}
        return PlanRows(count, {**found.columns, **made})

    def _united(self, node: Node) -> PlanRows:
        below = [self.rows(child, ()) for child in node.children]
        outputs = [
            [one.columns[i] for i in _output(child, one)] for child, one in zip(node.children, below, strict=True)
        ]
        names = _output(node.children[0], below[0])
        columns = {name: hull([out[i] for out in outputs if i < len(out)]) for i, name in enumerate(names)}
        count = sum(one.count for one in below) if node.name == "Union" else below[0].count
        return PlanRows(count, columns)

    def _limited(self, node: Node) -> PlanRows:
        below = self.rows(node.children[0], ())
        evaluation = Evaluation(self._limits, below.columns, self._subquery, self._visit)
        limits = [evaluation.bound(one) for one in node.trees("limitExpr")]
        # Without an order, Spark stops reading once it has enough rows.
        return replace(below, count=min([below.count, *(one.high for one in limits)]))

    def _defined(self, node: Node) -> PlanRows:
        """A plan with definitions of WITH, which are computed where they are used."""
        *definitions, plan = node.children
        for definition in definitions:
            found = self.rows(definition.children[0], ())
            names = _output(definition.children[0], found)
            self._with[int(definition.fields["id"])] = (found, names)
        return self.rows(plan, ())

    def _reference(self, node: Node) -> PlanRows:
        found, names = self._with.get(int(node.fields["cteId"]), (PlanRows(ASSUMED_ROWS, {}), []))
        outputs = [one.expr_id for one in node.trees("output")]
        return PlanRows(found.count, {i: found.columns[name] for i, name in zip(outputs, names, strict=False)})

    def _recursive(self, node: Node) -> PlanRows:
        anchor = self.rows(node.children[0], ())
        first = [anchor.columns[i] for i in _output(node.children[0], anchor)]
        loop = int(node.fields["id"])

        levels = float(node.fields.get("maxDepth") or _LEVELS)
        if levels > _MOST_LEVELS:
            raise too_expensive(
                f"it may repeat its recursive query {shown(levels)} times",
                f"{shown(_MOST_LEVELS)} are allowed",
                "Use fewer",
            )
        second = self._again(node, loop, first)
        third = self._again(node, loop, second)
        every = [grown(*one, levels) for one in zip(first, second, third, strict=True)]
        self._again(node, loop, every)
        names = [id_of(one) for one in node.fields.get("outputAttrIds") or []]
        return PlanRows(_RECURSIVE_ROWS, dict(zip(names, every, strict=False)))

    def _again(self, node: Node, loop: int, values: list[Bound]) -> list[Bound]:
        """The bounds of the columns after one more round of a recursive query."""
        self._loops[loop] = values
        found = self.rows(node.children[1], ())
        made = [found.columns[i] for i in _output(node.children[1], found)]
        made += values[len(made) :]
        return [hull([one, other]) for one, other in zip(values, made, strict=False)]

    def _loop_reference(self, node: Node) -> PlanRows:
        values = self._loops.get(int(node.fields["loopId"]), [])
        outputs = [one.expr_id for one in node.trees("output")]
        # Each round reads the rows of the one before it.
        return PlanRows(ASSUMED_ROWS, dict(zip(outputs, values, strict=False)))


def _output(node: Node, rows: PlanRows) -> list[int]:
    """The ids of a plan's output columns, in order."""
    for field in ("projectList", "aggregateExpressions"):
        if node.fields.get(field):
            return [one.expr_id for one in node.trees(field) if one.expr_id in rows.columns]
    if node.name == "UnionLoop":
        return [id_of(one) for one in node.fields.get("outputAttrIds") or []]
    if node.fields.get("output"):
        return [one.expr_id for one in node.trees("output") if one.expr_id in rows.columns]
    if node.name == "WithCTE":
        return _output(node.children[-1], rows)
    if len(node.children) == 1 and node.name not in ("Generate", "Window"):
        return _output(node.children[0], rows)
    if node.name in ("Union", "Intersect", "Except"):
        return _output(node.children[0], rows)
    return list(rows.columns)


def _nulls(view: Node) -> list[Node]:
    """The columns of a view that reads no table; none if it reads one."""
    plan = view
    while len(plan.children) == 1:
        plan = plan.children[0]
    project = view.children[0]
    return project.trees("projectList") if plan.name == "OneRowRelation" and project.name == "Project" else []


def _is_constant(ids: frozenset[int], columns: Columns) -> bool:
    """Whether these columns have the same values in all rows."""
    found = [columns[i] for i in ids if i in columns]
    return bool(found) and all(
        one.known and one.element is None and (one.text is not None or one.low == one.high != 0) for one in found
    )


def _frame_rows(side: Node) -> float:
    """How many rows before or after its own a side of a frame reaches."""
    if side.name == "UnaryMinus":
        return _frame_rows(side.children[0])
    if side.name == "Literal":
        return abs(literal(side.fields.get("value"), "integer").high)
    return 1.0 if side.name == "CurrentRow$" else math.inf


_SPECIAL = {
    "View": PlanCosts._view,
    "Generate": PlanCosts._generated,
    "LateralJoin": PlanCosts._lateral,
    "Aggregate": PlanCosts._aggregated,
    "Window": PlanCosts._windowed,
    "Expand": PlanCosts._expanded,
    **dict.fromkeys(("Union", "Intersect", "Except"), PlanCosts._united),
    **dict.fromkeys(_BOUNDED, PlanCosts._limited),
    "WithCTE": PlanCosts._defined,
    "CTERelationRef": PlanCosts._reference,
    "UnionLoop": PlanCosts._recursive,
    "UnionLoopRef": PlanCosts._loop_reference,
}

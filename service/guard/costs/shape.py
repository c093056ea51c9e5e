"""Bounds how long Spark plans a query, by its parsed plan: nodes, joins, grouping sets and the like.

A name of WITH counts as often as it is used, because Spark copies its query to each of these places.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from service.guard.costs.bounds import interval
from service.guard.costs.limits import QueryLimits, shown, too_expensive
from service.guard.nodes import Node, is_plan_class, trees_in
from service.model.schema.types import fold_case

# What planning an operator costs, compared with an expression.
_OPERATOR = 20.0
_WINDOW = 100.0
_SUBQUERIES = frozenset({"ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"})
_GROUPING_SETS = 256.0
_PIVOTED = 1_000
_WINDOWS = 1_000.0
_WAY_OUT = "Split it into several queries, or save a part of it as a dynamic table"


@dataclass(frozen=True, slots=True)
class _Shape:
    nodes: float = 0.0
    joins: float = 0.0

    def __add__(self, other: "_Shape") -> "_Shape":
        return _Shape(self.nodes + other.nodes, self.joins + other.joins)


def check_shape(plan: Node, limits: QueryLimits) -> None:
    """Raise QueryTooExpensive if planning the query would take too long."""
    _shape(plan, {}, limits)


def _shape(node: Node, names: Mapping[str, _Shape], limits: QueryLimits) -> _Shape:
    is_operator = is_plan_class(str(node.fields["class"])) or node.name in _SUBQUERIES
    found = _Shape(_WINDOW if node.name == "WindowExpression" else _OPERATOR if is_operator else 1.0)
    if node.name == "UnresolvedWith":
        names = _named(node, names, limits)
    elif node.name == "UnresolvedRelation":
        return found + names.get(fold_case(str(node.fields["multipartIdentifier"])[1:-1]), _Shape())
    else:
        if node.name in ("Join", "LateralJoin"):
            found += _Shape(0.0, 1.0)
        elif node.name == "Aggregate":
            _check_grouping(node)
        elif node.name == "Pivot":
            _check_pivot(node)
        elif node.name == "UnresolvedFunction":
            _check_window(node)
        for tree in node.all_trees():
            found += _shape(tree, names, limits)
    for child in node.children:
        found += _shape(child, names, limits)
    _check(found, limits)
    return found


def _named(node: Node, names: Mapping[str, _Shape], limits: QueryLimits) -> Mapping[str, _Shape]:
    """The names of a WITH clause, too, each with the shape of its query."""
    known = dict(names)
    for definition in node.fields["cteRelations"]:
        name = fold_case(str(definition["_1"]))
        shape = _Shape()
        # A recursive query reads itself, which costs nothing more to plan.
        inner = {**known, name: _Shape()} if node.fields.get("allowRecursion") else known
        for tree in trees_in(definition["_2"]):
            shape += _shape(tree, inner, limits)
        known[name] = shape
    return known


def _check(found: _Shape, limits: QueryLimits) -> None:
    if found.joins > limits.joins:
        what = f"it has {shown(found.joins)} joins, with those of its WITH clauses at each place that names them"
        raise too_expensive(what, f"{limits.joins} are allowed (queries.max_joins)", _WAY_OUT)
    if found.nodes > limits.nodes:
        what = (
            f"planning it takes {shown(found.nodes)} nodes (an operator counts {int(_OPERATOR)}, a window function "
            f"{int(_WINDOW)}, an expression 1, and a WITH clause at each place that names it)"
        )
        raise too_expensive(what, f"{limits.nodes:,} are allowed (queries.max_nodes)", _WAY_OUT)


def _check_grouping(node: Node) -> None:
    sets = 1.0
    for tree in node.trees("groupingExpressions"):
        sets *= _sets(tree)
    if sets > _GROUPING_SETS:
        raise too_expensive(
            f"it has {shown(sets)} grouping sets",
            f"{int(_GROUPING_SETS)} are allowed",
            "List those that you need with GROUPING SETS, or group by fewer columns",
        )


def _sets(node: Node) -> float:
    """How many grouping sets an expression of GROUP BY makes."""
    if node.name == "Cube":
        return float(2 ** min(len(node.children), 100))
    if node.name == "Rollup":
        return float(len(node.children) + 1)
    if node.name == "GroupingSets":
        listed = node.fields.get("flatGroupingSets") or node.fields.get("groupingSets") or node.children
        nested = [child for child in node.children if child.name in ("Cube", "Rollup", "GroupingSets")]
        return float(len(listed)) + sum(_sets(child) for child in nested)
    return 1.0


def _check_pivot(node: Node) -> None:
    made = len(node.trees("pivotValues")) * max(len(node.trees("aggregates")), 1)
    if made > _PIVOTED:
        raise too_expensive(f"its PIVOT makes {made:,} columns", f"{_PIVOTED:,} are allowed", "Pivot fewer values")


def _check_window(node: Node) -> None:
    """A time window with a slide puts each row into several windows, which Spark lists before it runs the query."""
    if str(node.fields.get("nameParts")).lower() != "[window]" or len(node.children) < 3:
        return
    width, slide = (_microseconds(child) for child in node.children[1:3])
    if width and slide and width / slide > _WINDOWS:
        raise too_expensive(
            f"each row is in {shown(width / slide)} windows",
            f"{int(_WINDOWS):,} are allowed",
            "Use a longer slide or a shorter window",
        )


def _microseconds(node: Node) -> float | None:
    value = node.fields.get("value") if node.name == "Literal" else None
    return abs(interval(str(value)) or 0.0) if value is not None else None

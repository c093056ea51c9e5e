"""Bounds how large expressions and types become while Spark plans a query, by its parsed plan.

Spark replaces the name of a column by the expression that computes it, and `*` by all columns. So a few subqueries,
each of which uses the column of the one below twice, make expressions or types of any size.
"""

from collections.abc import Mapping, Sequence

from service.guard.costs.limits import QueryLimits, shown, too_expensive
from service.guard.nodes import Node, is_plan_class, tree, trees_in
from service.model.schema.types import fold_case

# The outputs of a part of the plan: their names, if they are known, and the nodes that they stand for.
Outputs = Sequence[tuple[str | None, float]]
# What is assumed of a table: how many columns `*` means.
_TABLE: Outputs = ((None, 10.0),)
_TIMES_NODES = 5.0
_STARS = frozenset({"UnresolvedStar", "UnresolvedStarExceptOrReplace"})
_SETS = frozenset({"Union", "Intersect", "Except"})


def check_expansion(plan: Node, limits: QueryLimits) -> None:
    """Raise QueryTooExpensive if the columns of a part of the query stand for too large expressions."""
    _Expansion(limits).outputs(plan, {})


class _Expansion:
    def __init__(self, limits: QueryLimits) -> None:
        self.most = limits.nodes * _TIMES_NODES

    def outputs(self, node: Node, names: Mapping[str, Outputs]) -> Outputs:
        if node.name == "UnresolvedWith":
            names = self.named(node, names)
        if node.name == "UnresolvedRelation":
            return names.get(fold_case(str(node.fields["multipartIdentifier"])[1:-1]), _TABLE)
        below = [self.outputs(child, names) for child in node.children]
        every = [one for outputs in below for one in outputs]
        if node.name in _SETS and below:
            heaviest = max(weight for _, weight in every) if every else 1.0
            return self.checked([(name, max(weight, heaviest)) for name, weight in below[0]])
        made: list[tuple[str | None, float]] = []
        for field in ("projectList", "aggregateExpressions"):
            columns = _Columns(every)
            for one in node.trees(field):
                made += every if one.name in _STARS else [(_name(one), self.weight(one, columns, names))]
        for one in node.all_trees():
            if one.name == "LateralSubquery":
                every += self.outputs(tree(one.fields["plan"]), names)
            elif node.name == "Generate" or (not made and one.name not in _STARS):
                weight = self.weight(one, _Columns(every), names)
                every += [(None, weight)] if node.name == "Generate" else []
        if node.name == "UnresolvedSubqueryColumnAliases":
            listed = str(node.fields.get("outputColumnNames", ""))[1:-1].split(", ")
            same = len(listed) == len(every)
            every = [
                (fold_case(name), every[i][1] if same else max(w for _, w in every)) for i, name in enumerate(listed)
            ]
        return self.checked(made or every)

    def named(self, node: Node, names: Mapping[str, Outputs]) -> Mapping[str, Outputs]:
        known = dict(names)
        for definition in node.fields["cteRelations"]:
            name = fold_case(str(definition["_1"]))
            inner = {**known, name: _TABLE} if node.fields.get("allowRecursion") else known
            known[name] = [one for query in trees_in(definition["_2"]) for one in self.outputs(query, inner)]
        return known

    def weight(self, node: Node, columns: "_Columns", names: Mapping[str, Outputs]) -> float:
        """How many nodes an expression has if each column is replaced by what it stands for."""
        if node.name == "UnresolvedAttribute":
            return columns.of(_parts(node))
        if node.name in _STARS:
            return columns.total
        found = 1.0 + sum(self.weight(child, columns, names) for child in node.children)
        for one in node.all_trees():
            if is_plan_class(str(one.fields["class"])) or one.name.startswith("UnresolvedWith"):
                found += sum(weight for _, weight in self.outputs(one, names))
            else:
                found += self.weight(one, columns, names)
        return found

    def checked(self, outputs: Outputs) -> Outputs:
        total = sum(weight for _, weight in outputs)
        if total > self.most:
            raise too_expensive(
                f"the columns of a subquery stand for {shown(total)} expressions, because each uses those of the "
                "subquery below it several times",
                f"{shown(self.most)} are allowed (5 times queries.max_nodes)",
                "Use each column once, or compute it in a dynamic table",
            )
        return outputs


class _Columns:
    """What the columns of a part of the plan stand for, by their names."""

    def __init__(self, outputs: Outputs) -> None:
        self.total = sum(weight for _, weight in outputs)
        # A name that is not known is a column of a table, or a field.
        self._other = max((weight for name, weight in outputs if name is None), default=1.0)
        self._by_name: dict[str, float] = {}
        for name, weight in outputs:
            if name is not None:
                self._by_name[name] = max(weight, self._by_name.get(name, 0.0))

    def of(self, parts: Sequence[str]) -> float:
        found = [self._by_name[part] for part in parts if part in self._by_name]
        return max(found) if found else self._other


def _name(node: Node) -> str | None:
    if node.name == "Alias":
        return fold_case(str(node.fields.get("name")))
    if node.name == "UnresolvedAttribute":
        return _parts(node)[-1]
    return None


def _parts(node: Node) -> list[str]:
    return fold_case(str(node.fields.get("nameParts"))[1:-1]).split(", ")

"""Subqueries in expressions become joins."""

from collections.abc import Callable

from sqlglot import exp

from service.dynamic.query.lower.context import Context, Lowered, SelectBlock
from service.dynamic.query.lower.functions import COUNTS
from service.dynamic.query.operators import (
    Filter,
    Group,
    InnerJoin,
    Matched,
    Operator,
    Select,
    Union,
    column,
    never_null,
    substitute,
    used,
)

Lower = Callable[[Context, exp.Expr, SelectBlock], exp.Expr]


def add_filter(one: Operator, condition: exp.Expr) -> Operator:
    """The rows of an operator that meet a condition, which goes as deep as it can."""
    names = used([condition])
    match one:
        case InnerJoin() if names:
            for i, part in enumerate(one.parts):
                if names <= set(part.produced):
                    parts = [*one.parts[:i], add_filter(part, condition), *one.parts[i + 1 :]]
                    return InnerJoin(parts, one.conditions)
            return InnerJoin(one.parts, [*one.conditions, condition])
        case Matched() if names and names <= set(one.left.produced):
            return Matched(one.kind, add_filter(one.left, condition), one.right, one.conditions)
        case Filter():
            return Filter(one.input, [*one.conditions, condition])
        case _:
            return Filter(one, [condition])


def add_join(one: Operator, other: Operator, conditions: list[exp.Expr]) -> Operator:
    """The inner join of two operators, flattened."""
    parts, all_conditions = [], list(conditions)
    for each in (one, other):
        parts += each.parts if isinstance(each, InnerJoin) else [each]
        all_conditions += each.conditions if isinstance(each, InnerJoin) else []
    joined: Operator = InnerJoin(parts, [])
    for condition in all_conditions:
        joined = add_filter(joined, condition)
    return joined


def conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """The conditions that are joined by AND."""
    inner = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(inner, exp.And):
        return conjuncts(inner.this) + conjuncts(inner.expression)
    return [inner]


def _implied(node: exp.Expr) -> list[exp.Expr]:
    """The comparisons that all sides of an OR have, so that a join that is only there can use them."""
    found: list[exp.Expr] = []
    for each in conjuncts(node):
        if isinstance(each, exp.Or):
            first, *others = [conjuncts(side) for side in each.flatten()]
            found += [one for one in first if isinstance(one, exp.EQ) and all(one in other for other in others)]
    return found


def add_condition(ctx: Context, node: exp.Expr, block: SelectBlock, lower: Lower) -> None:
    """Limit the block's rows, or its groups, to those for which a condition is true."""
    for each in (*conjuncts(node), *_implied(node)):
        inner, negated = each, False
        while isinstance(inner, exp.Not | exp.Paren):
            negated ^= isinstance(inner, exp.Not)
            inner = inner.this
        if isinstance(inner, exp.Exists) or (isinstance(inner, exp.In) and inner.args.get("query")):
            _semi_join(ctx, inner, block, lower, negated)
            continue
        value = lower(ctx, each, block)
        if used([value]) <= set(block.operator.produced):
            block.operator = add_filter(block.operator, value)
        elif block.group is None:
            block.outer.append(value)
        else:
            ctx.refuse("CORRELATED", "HAVING reads a column of the query around it", each)


def _semi_join(ctx: Context, node: exp.Expr, block: SelectBlock, lower: Lower, negated: bool) -> None:
    right, outer, tests = _members(ctx, node, block, lower)
    if negated:
        tests = [_not_false(test, block.operator, right) for test in tests]
    kind = "LEFT ANTI" if negated else "LEFT SEMI"
    ctx.classes[("not " if negated else "") + ("exists" if isinstance(node, exp.Exists) else "in")] = None
    block.operator = Matched(kind, block.operator, right, [*outer, *tests])


def _members(
    ctx: Context, node: exp.Expr, block: SelectBlock, lower: Lower
) -> tuple[Operator, list[exp.Expr], list[exp.Expr]]:
    """The rows of a subquery; the conditions by which it depends on the query around it; those of IN."""
    if isinstance(node, exp.Exists):
        ctx.check_args(node, "this")
        lowered = ctx.query(ctx, node.this, block.ctes, block.scope)
        values: list[exp.Expr] = []
    else:
        ctx.check_args(node, "this", "query")
        lowered = ctx.query(ctx, node.args["query"], block.ctes, block.scope)
        sides = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        values = [lower(ctx, each, block) for each in sides]
        if len(values) != len(lowered.outputs):
            ctx.unsupported(node, "IN with another number of columns")
    _check_outer(ctx, node, lowered, block)
    if lowered.empty is not None:
        ctx.refuse("CORRELATED", "EXISTS and IN with a correlated aggregate that always has a row", node)
    tests: list[exp.Expr] = [
        exp.EQ(this=_side(value), expression=column(found))
        for value, (_, found) in zip(values, lowered.outputs, strict=False)
    ]
    if not used(values) <= set(block.operator.produced):
        ctx.refuse("CORRELATED", "IN compares a column of a query further out", node)
    return lowered.operator, lowered.outer, tests


def _side(value: exp.Expr) -> exp.Expr:
    return value if isinstance(value, exp.Column) else exp.Paren(this=value)


def _not_false(test: exp.Expr, left: Operator, right: Operator) -> exp.Expr:
    """True if the comparison is true or null: such a row keeps NOT IN from being true."""
    if never_null(test.this, left) and never_null(test.expression, right):
        return test
    return exp.Or(this=test, expression=_is_null(test))


def _is_null(test: exp.Expr) -> exp.Expr:
    return exp.Is(this=exp.Paren(this=test.copy()), expression=exp.Null())


def _check_outer(ctx: Context, node: exp.Expr, lowered: Lowered, block: SelectBlock) -> None:
    known = set(block.operator.produced) | set(lowered.operator.produced)
    if not used(lowered.outer) <= known:
        ctx.refuse("CORRELATED", "the subquery reads a column of a query further out", node)


def membership(ctx: Context, node: exp.Expr, block: SelectBlock, lower: Lower) -> exp.Expr:
    """EXISTS or IN as a value: true, false or null for each row."""
    right, outer, tests = _members(ctx, node, block, lower)
    nulls = not all(never_null(one.this, block.operator) and never_null(one.expression, right) for one in tests)
    if nulls and not _is_condition(node):
        # Spark gives false here where SQL says null.
        ctx.unsupported(node, "IN with a subquery as a value that may be null")
    ctx.classes["exists" if isinstance(node, exp.Exists) else "in"] = None
    left, found = block.operator, ctx.fresh("found")
    kept = {name: column(name) for name in left.produced}

    def part(rows: Operator, value: exp.Expr) -> Operator:
        return Select(rows, {**kept, found: value})

    parts = [part(Matched("LEFT SEMI", left, right, [*outer, *tests]), exp.true())]
    rest: Operator = Matched("LEFT ANTI", left, right, [*outer, *tests])
    if tests:
        unknown = [_not_false(test, left, right) for test in tests]
        null = exp.Cast(this=exp.Null(), to=exp.DataType.build("boolean"))
        parts.append(part(Matched("LEFT SEMI", rest, right, [*outer, *unknown]), null))
        rest = Matched("LEFT ANTI", rest, right, [*outer, *unknown])
    parts.append(part(rest, exp.false()))
    block.operator = Union(parts, {name: (name,) * len(parts) for name in (*kept, found)})
    return column(found)


def _is_condition(node: exp.Expr) -> bool:
    """Whether null is the same as false here: below a condition are only AND, OR, and a NOT just before the value."""
    parent = node.parent
    while isinstance(parent, exp.Paren):
        node, parent = parent, parent.parent
    if isinstance(parent, exp.Not):
        node, parent = parent, parent.parent
    while isinstance(parent, exp.Paren | exp.And | exp.Or):
        node, parent = parent, parent.parent
    return isinstance(parent, exp.Where | exp.Having) or (isinstance(parent, exp.If) and parent.this is node)


def scalar(ctx: Context, node: exp.Expr, block: SelectBlock) -> exp.Expr:
    """The value of a subquery that has at most one row for each row of the block."""
    if isinstance(node, exp.Subquery):
        ctx.check_args(node, "this")
    lowered = ctx.query(ctx, node, block.ctes, block.scope)
    ctx.classes["correlated subquery" if lowered.outer else "scalar subquery"] = None
    if len(lowered.outputs) != 1:
        ctx.unsupported(node, "a subquery with several columns as a value")
    _check_outer(ctx, node, lowered, block)
    value = lowered.outputs[0][1]
    if not lowered.outer:
        right = lowered.operator
        if not _one_row(right):
            value = ctx.fresh("value")
            right = Group(right, (), {value: _single(lowered.outputs[0][1])}, whole=True)
        block.operator = add_join(block.operator, right, [])
        return column(value)
    right = lowered.operator
    if lowered.empty is None:
        pairs = inner_sides(right, lowered.outer)
        if pairs is None:
            ctx.refuse("CORRELATED", "the subquery depends on the query around it by other conditions than =", node)
        keys = {ctx.fresh("key"): inner for inner, _ in pairs}
        below = Select(right, {**keys, value: column(value)})
        single = ctx.fresh("value")
        right = Group(below, tuple(keys), {single: _single(value)}, whole=False)
        matches: list[exp.Expr] = [
            exp.EQ(this=column(key), expression=outer) for key, (_, outer) in zip(keys, pairs, strict=True)
        ]
        block.operator = Matched("LEFT", block.operator, right, matches)
        return column(single)
    if isinstance(lowered.empty, exp.Null):
        block.operator = Matched("LEFT", block.operator, right, lowered.outer)
        return column(value)
    known = ctx.fresh("known")
    right = Select(right, {**{name: column(name) for name in right.produced}, known: exp.true()})
    block.operator = Matched("LEFT", block.operator, right, lowered.outer)
    missing = exp.Is(this=column(known), expression=exp.Null())
    return exp.If(this=missing, true=lowered.empty, false=column(value))


def inner_sides(inner: Operator, conditions: list[exp.Expr]) -> list[tuple[exp.Expr, exp.Expr]] | None:
    """The inner and the outer value of each condition; None if one is not an equation of the two."""
    produced, found = set(inner.produced), []
    for one in conditions:
        if not isinstance(one, exp.EQ):
            return None
        sides = [one.this, one.expression]
        sides.sort(key=lambda side: not used([side]) <= produced)
        if not used([sides[0]]) <= produced or used([sides[1]]) & produced or not used([sides[0]]):
            return None
        found.append((sides[0], sides[1]))
    return found


def _one_row(one: Operator) -> bool:
    """Whether an operator always has exactly one row."""
    if isinstance(one, Select):
        return _one_row(one.input)
    if isinstance(one, InnerJoin):
        return not one.conditions and all(map(_one_row, one.parts))
    return isinstance(one, Group) and one.whole


def _single(name: str) -> exp.Expr:
    """The value of the only row; null without a row, and an error if there are several."""
    count = exp.Anonymous(this="count", expressions=[exp.Star()])
    values = exp.Anonymous(this="array", expressions=[exp.Anonymous(this="min", expressions=[column(name)])])
    several = exp.GT(this=count, expression=exp.Literal.number(1))
    place = exp.If(this=several, true=exp.Literal.number(2), false=exp.Literal.number(1))
    return exp.Anonymous(this="element_at", expressions=[values, place])


def emptied(value: exp.Expr, group: Group) -> exp.Expr:
    """An expression over aggregates as it is without any row."""
    nothing: dict[str, exp.Expr] = {}
    for name, aggregate in group.aggregates.items():
        call = aggregate.this if isinstance(aggregate, exp.Filter) else aggregate
        zero = str(call.this).lower() in COUNTS
        nothing[name] = exp.Literal.number(0) if zero else exp.Null()
    if isinstance(value, exp.Column):
        return nothing.get(value.name, value)
    return substitute(value, nothing)

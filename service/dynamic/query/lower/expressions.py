"""Expressions over the columns of operators."""

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from service.dynamic.query.lower.context import Context, NameScope, SelectBlock, same_name
from service.dynamic.query.lower.functions import (
    AGGREGATES,
    CHANCE,
    CLOCK,
    EXPRESSIONS,
    GENERATORS,
    PLACES,
    SCALAR,
    UNITS,
    WITH_UNIT,
)
from service.dynamic.query.lower.subqueries import membership, scalar
from service.dynamic.query.lower.windows import window
from service.dynamic.query.operators import Select, column
from service.errors import nearest

_MOST_NAMED = 20
_FIELDS: dict[type[exp.Expr], frozenset[str]] = {
    exp.In: frozenset({"this", "expressions"}),
    exp.Anonymous: frozenset({"this", "expressions"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Div: frozenset({"this", "expression", "typed", "safe"}),
    exp.DPipe: frozenset({"this", "expression", "safe"}),
    exp.Concat: frozenset({"expressions", "safe", "coalesce"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.TryCast: frozenset({"this", "to", "safe", "requires_string"}),
    exp.Like: frozenset({"this", "expression", "negate"}),
    exp.ILike: frozenset({"this", "expression", "negate"}),
    exp.RegexpLike: frozenset({"this", "expression"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.Bracket: frozenset({"this", "expressions", "offset", "safe"}),
}
_TYPES = frozenset(
    {
        *(exp.DataType.Type.BOOLEAN, exp.DataType.Type.TINYINT, exp.DataType.Type.SMALLINT, exp.DataType.Type.INT),
        *(exp.DataType.Type.BIGINT, exp.DataType.Type.FLOAT, exp.DataType.Type.DOUBLE, exp.DataType.Type.DECIMAL),
        *(exp.DataType.Type.TEXT, exp.DataType.Type.DATE, exp.DataType.Type.TIMESTAMPNTZ, exp.DataType.Type.BINARY),
        *(exp.DataType.Type.TIMESTAMPLTZ, exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMP),
    }
)


def lower(ctx: Context, node: exp.Expr, block: SelectBlock) -> exp.Expr:
    """The expression over the columns of the block's operator, or of its groups once there are some."""
    if block.group is not None and not _above_rows(node):
        below = _rows(ctx, node, block)
        for value, key in block.group_keys:
            if below == value:
                return column(key)
    match node:
        case exp.Column() if type(node) is not exp.Column:
            return _known(ctx, node, block)
        case exp.Column():
            return _column(ctx, node, block)
        case exp.Subquery() | exp.Select():
            return scalar(ctx, node, block)
        case exp.Exists():
            return membership(ctx, node, block, lower)
        case exp.In() if node.args.get("query"):
            return membership(ctx, node, block, lower)
        case exp.Window() | exp.IgnoreNulls() | exp.RespectNulls():
            return window(ctx, node, block, lower)
    if (name := aggregate_name(node)) is not None:
        return _aggregate(ctx, node, name, block)
    _check(ctx, node)
    if isinstance(node, exp.Dot):
        return exp.Dot(this=lower(ctx, node.this, block), expression=node.expression.copy())
    return _rebuilt(ctx, node, block)


def _rebuilt(ctx: Context, node: exp.Expr, block: SelectBlock) -> exp.Expr:
    if function_name(node) in WITH_UNIT and len(node.expressions) == 3 and node.expressions[0].name.lower() in UNITS:
        unit, *others = node.expressions
        arguments = [exp.Var(this=unit.name), *(lower(ctx, each, block) for each in others)]
        return exp.Anonymous(this=node.this, expressions=arguments)
    args: dict[str, Any] = {}
    for name, value in node.args.items():
        if isinstance(value, list):
            args[name] = [lower(ctx, each, block) if isinstance(each, exp.Expr) else each for each in value]
        else:
            args[name] = lower(ctx, value, block) if isinstance(value, exp.Expr) else value
    return type(node)(**args)


def _rows(ctx: Context, node: exp.Expr, block: SelectBlock) -> exp.Expr:
    """The expression over the rows that the block groups."""
    assert block.group is not None
    rows = SelectBlock(block.group.input, block.scope, block.ctes)
    value = lower(ctx, node, rows)
    if rows.operator is not block.group.input:
        block.group.input = rows.operator
    return value


def function_name(node: exp.Expr) -> str | None:
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else None


def aggregate_name(node: exp.Expr) -> str | None:
    """The aggregate that a call is, with or without FILTER."""
    call = node.this if isinstance(node, exp.Filter) else node
    name = function_name(call)
    return name if name in AGGREGATES else None


def has_aggregate(node: exp.Expr | None) -> bool:
    """Whether the expression itself, not a subquery in it, has an aggregate that is no window function."""
    if node is None or isinstance(node, exp.Query | exp.Subquery):
        return False
    if isinstance(node, exp.Window):
        inner = node.this.this if isinstance(node.this, exp.IgnoreNulls | exp.RespectNulls) else node.this
        parts = [*inner.iter_expressions(), *(each for each in node.iter_expressions() if each is not node.this)]
        return any(has_aggregate(each) for each in parts)
    return aggregate_name(node) is not None or any(has_aggregate(each) for each in node.iter_expressions())


def _above_rows(node: exp.Expr) -> bool:
    """Whether a part of the expression exists only for groups."""
    return has_aggregate(node) or node.find(exp.Window, exp.Subquery, exp.Exists, exp.Query) is not None


def _aggregate(ctx: Context, node: exp.Expr, name: str, block: SelectBlock) -> exp.Expr:
    if block.group is None:
        ctx.unsupported(node, f"the aggregate {name} at this place")
    call = node.this if isinstance(node, exp.Filter) else node
    arguments: list[exp.Expr] = []
    for each in call.expressions:
        if isinstance(each, exp.Distinct):
            ctx.check_args(each, "expressions")
            arguments.append(exp.Distinct(expressions=[_rows(ctx, one, block) for one in each.expressions]))
        elif isinstance(each, exp.Star):
            ctx.check_args(each)
            arguments.append(exp.Star())
        else:
            arguments.append(_rows(ctx, each, block))
    new: exp.Expr = exp.Anonymous(this=name, expressions=arguments)
    if isinstance(node, exp.Filter):
        new = exp.Filter(this=new, expression=exp.Where(this=_rows(ctx, node.expression.this, block)))
    for known, value in block.group.aggregates.items():
        if value == new:
            return column(known)
    found = ctx.fresh(name)
    block.group.aggregates[found] = new
    return column(found)


def _check(ctx: Context, node: exp.Expr) -> None:
    """Refuse what is not known to be deterministic and to be written as it was read."""
    name = function_name(node)
    if name is not None:
        if name in GENERATORS:
            ctx.refuse("GENERATOR", f"{name} makes several rows of one", node)
        if name in CLOCK:
            ctx.refuse("CLOCK", f"{name} depends on when or by whom the query is run", node)
        if name in CHANCE or name in PLACES:
            ctx.refuse("NON_DETERMINISTIC", f"{name} depends on chance or on the order of rows", node)
        if name not in SCALAR:
            ctx.unsupported(node, f"the function {name}")
        if name in ("unix_timestamp", "to_unix_timestamp") and not node.expressions:
            ctx.refuse("CLOCK", f"{name} without an argument reads the clock", node)
    if type(node) not in EXPRESSIONS:
        ctx.unsupported(node)
    known = _FIELDS.get(type(node))
    if known is not None:
        ctx.check_args(node, *known)
    if isinstance(node, exp.DataType):
        _check_type(ctx, node)


def _check_type(ctx: Context, node: exp.DataType) -> None:
    if node.this not in _TYPES:
        ctx.unsupported(node, f"the type {node.sql('spark')}")


def _column(ctx: Context, node: exp.Column, block: SelectBlock) -> exp.Expr:
    parts = node.parts
    if any(not isinstance(part, exp.Identifier) for part in parts):
        ctx.unsupported(node)
    scope: NameScope | None = block.scope
    while scope is not None:
        found = _found(ctx, node, parts, scope)
        if found is not None:
            if block.group is not None and scope is block.scope:
                return _alias(parts, scope) or ctx.wrong(f"{node.sql('spark')} is not grouped by", node)
            return found
        if (alias := _alias(parts, scope)) is not None:
            return alias
        scope = scope.outer
    if len(parts) == 1 and parts[0].name.lower() in CLOCK and not parts[0].args.get("quoted"):
        ctx.refuse("CLOCK", f"{parts[0].name} depends on when or by whom the query is run", node)
    names = [name for name, _ in block.scope.visible]
    near = nearest(parts[-1].name, names)
    hint = f"did you mean {near}?" if near else f"use one of {', '.join(names[:_MOST_NAMED])}"
    ctx.wrong(f"{node.sql('spark')} is not a column of the tables in FROM; {hint}", node)


def _known(ctx: Context, node: exp.Column, block: SelectBlock) -> exp.Expr:
    """A column that * stands for."""
    if block.group is not None and node.name not in block.operator.produced:
        ctx.wrong("* has columns that are not grouped by", node)
    return column(node.name)


def _found(ctx: Context, node: exp.Column, parts: Sequence[exp.Expr], scope: NameScope) -> exp.Expr | None:
    names = [part.name for part in parts]
    for length in range(len(names) - 1, 0, -1):
        owners = [one for one in scope.relations if one.is_called(names[:length])]
        found = [new for one in owners for name, new in one.columns if same_name(name, names[length])]
        if len(found) > 1:
            ctx.wrong(f"{node.sql('spark')} is ambiguous; give the tables aliases", node)
        if found:
            return _fields(found[0], parts[length + 1 :])
    visible = {new for name, new in scope.visible if same_name(name, names[0])}
    if len(visible) > 1:
        ctx.wrong(f"{names[0]} is ambiguous: several tables have this column; write it with its table", node)
    if visible:
        return _fields(visible.pop(), parts[1:])
    return None


def _alias(parts: Sequence[exp.Expr], scope: NameScope) -> exp.Expr | None:
    """What a name of the select list stands for."""
    for name, value in scope.aliases.items():
        if len(parts) == 1 and same_name(name, parts[0].name):
            return value.copy() if isinstance(value, exp.Column) else exp.Paren(this=value.copy())
    return None


def _fields(name: str, parts: Sequence[exp.Expr]) -> exp.Expr:
    found: exp.Expr = column(name)
    for part in parts:
        found = exp.Dot(this=found, expression=part.copy())
    return found


def as_columns(ctx: Context, block: SelectBlock, values: Sequence[exp.Expr]) -> list[str]:
    """Columns with these values, made below the block's operator if need be."""
    found, new = [], {}
    for value in values:
        if isinstance(value, exp.Column):
            found.append(value.name)
            continue
        name = ctx.fresh("key")
        new[name] = value
        found.append(name)
    if new:
        kept = {name: column(name) for name in block.operator.produced}
        block.operator = Select(block.operator, {**kept, **new})
    return found

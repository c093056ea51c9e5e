"""FROM and JOIN."""

from sqlglot import exp

from service.dynamic.query.lower.context import (
    Context,
    Cte,
    Lowered,
    Named,
    NameScope,
    Relation,
    SelectBlock,
    same_name,
)
from service.dynamic.query.lower.expressions import lower
from service.dynamic.query.lower.subqueries import add_condition, add_join, conjuncts
from service.dynamic.query.operators import Constants, Filter, Matched, Operator, Select, Union, column, used
from service.dynamic.query.sql_types import typed_null

_PIVOT = "PIVOT and UNPIVOT are not supported in an incremental refresh"
_KINDS = {"", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"}


def from_clause(ctx: Context, node: exp.Select, ctes: dict[str, Cte], outer: NameScope | None) -> SelectBlock:
    """The rows of FROM and its joins."""
    start = node.args.get("from_")
    if start is None:
        one_row = Constants((ctx.fresh("one"),), [[exp.Literal.number(1)]])
        return SelectBlock(one_row, NameScope([], [], outer), ctes)
    operator, scope = _item(ctx, start.this, ctes, outer)
    block = SelectBlock(operator, scope, ctes)
    _joins(ctx, node.args.get("joins") or [], block, outer)
    for lateral in node.args.get("laterals") or []:
        ctx.refuse("GENERATOR", "LATERAL VIEW makes several rows of one", lateral)
    return block


def _joins(ctx: Context, joins: list[exp.Join], block: SelectBlock, outer: NameScope | None) -> None:
    crossed = False
    for join in joins:
        side, method = str(join.args.get("side") or "").upper(), str(join.args.get("method") or "").upper()
        if crossed and (side in ("RIGHT", "FULL") or method or join.args.get("using")):
            ctx.unsupported(join, f"{side or 'USING'} JOIN after a comma or CROSS JOIN")
        crossed |= str(join.args.get("kind") or "").upper() == "CROSS"
        _join(ctx, join, block, outer)


def _join(ctx: Context, join: exp.Join, block: SelectBlock, outer: NameScope | None) -> None:
    ctx.check_args(join, "this", "side", "kind", "on", "using", "method")
    side, kind, method = (str(join.args.get(each) or "").upper() for each in ("side", "kind", "method"))
    if kind not in _KINDS or side not in ("", "LEFT", "RIGHT", "FULL") or method not in ("", "NATURAL"):
        ctx.unsupported(join, f"{method} {side} {kind} JOIN".strip())
    right, right_scope = _item(ctx, join.this, block.ctes, outer)
    left, left_scope = block.operator, block.scope
    relations = [*left_scope.relations, *right_scope.relations]
    both = NameScope(relations, [*left_scope.visible, *right_scope.visible], outer)
    shared = _shared(ctx, join, left_scope, right_scope, natural=method == "NATURAL")
    conditions: list[exp.Expr] = [exp.EQ(this=column(a), expression=column(b)) for _, a, b in shared]
    if join.args.get("on") is not None and not side and kind in ("", "INNER"):
        block.operator, block.scope = _combined(ctx, side, left, right, conditions), both
        both.block = block
        add_condition(ctx, join.args["on"], block, lower)
        return
    if join.args.get("on") is not None:
        inside = SelectBlock(add_join(left, right, []), NameScope(relations, both.visible, outer), block.ctes)
        for each in conjuncts(join.args["on"]):
            if each.find(exp.Query, exp.Subquery):
                ctx.unsupported(each, "a subquery in ON")
            value = lower(ctx, each, inside)
            if not used([value]) <= {*left.produced, *right.produced}:
                ctx.refuse("CORRELATED", "ON reads a column of the query around it", each)
            conditions.append(value)
    semi = kind in ("SEMI", "ANTI")
    if semi:
        if side not in ("", "LEFT"):
            ctx.unsupported(join, f"{side} {kind} JOIN")
        block.operator, block.scope = Matched(f"LEFT {kind}", left, right, conditions), left_scope
        return
    block.operator = _combined(ctx, side, left, right, conditions)
    block.scope = both
    both.block = block
    if shared:
        block.scope.visible = _merged(ctx, side, block, shared, left_scope, right_scope)


def _combined(ctx: Context, side: str, left: Operator, right: Operator, conditions: list[exp.Expr]) -> Operator:
    if side == "LEFT":
        return Matched("LEFT", left, right, conditions)
    if side == "RIGHT":
        return Matched("LEFT", right, left, conditions)
    if side == "FULL":
        only_right = _with_nulls(ctx, Matched("LEFT ANTI", right, left, conditions), left)
        names = (*left.produced, *right.produced)
        return Union([Matched("LEFT", left, right, conditions), only_right], {name: (name, name) for name in names})
    return add_join(left, right, conditions)


def _with_nulls(ctx: Context, one: Operator, other: Operator) -> Operator:
    """The rows of an operator, with nulls as the columns of another."""
    nulls = {name: typed_null(kind) for name, kind in ctx.column_types(other).items()}
    if None in nulls.values():  # A nested type: no row of the other operator matches.
        return Matched("LEFT", one, Filter(other, [exp.false()]), [exp.false()])
    values = {name: value for name, value in nulls.items() if value is not None}
    return Select(one, {**values, **{name: column(name) for name in one.produced}})


def _shared(
    ctx: Context, join: exp.Join, left: NameScope, right: NameScope, *, natural: bool
) -> list[tuple[str, str, str]]:
    """The columns of USING or NATURAL: name, and the left and the right column."""
    names = [each.name for each in join.args.get("using") or []]
    if natural:
        names = [name for name, _ in left.visible if any(same_name(name, other) for other, _ in right.visible)]
    return [(name, _one(ctx, join, name, left.visible), _one(ctx, join, name, right.visible)) for name in names]


def _one(ctx: Context, join: exp.Join, name: str, columns: list[Named]) -> str:
    found = [new for each, new in columns if same_name(each, name)]
    if len(found) != 1:
        ctx.wrong(f"{name} is {'ambiguous' if found else 'not a column'} on one side of the join", join)
    return found[0]


def _merged(
    ctx: Context, side: str, block: SelectBlock, shared: list[tuple[str, str, str]], left: NameScope, right: NameScope
) -> list[Named]:
    """The visible columns of a join by names: the shared ones first, once."""
    merged = []
    for name, a, b in shared:
        found = b if side == "RIGHT" else a
        if side == "FULL":
            found = ctx.fresh(name)
            both = exp.Anonymous(this="coalesce", expressions=[column(a), column(b)])
            kept = {each: column(each) for each in block.operator.produced}
            block.operator = Select(block.operator, {**kept, found: both})
        merged.append((name, found))
    hidden = {each for _, a, b in shared for each in (a, b)}
    return merged + [(name, new) for name, new in (*left.visible, *right.visible) if new not in hidden]


def _item(ctx: Context, node: exp.Expr, ctes: dict[str, Cte], outer: NameScope | None) -> tuple[Operator, NameScope]:
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
        ctx.check_args(node, "this")
        ctx.check_args(node.this, "this", "db", "catalog", "alias", "joins")
        joins = node.this.args.get("joins") or []
        inner = node.this.copy()
        inner.set("joins", None)
        operator, scope = _item(ctx, inner, ctes, outer)
        block = SelectBlock(operator, scope, ctes)
        _joins(ctx, joins, block, outer)
        return block.operator, block.scope
    if isinstance(node, exp.Table):
        return _table(ctx, node, ctes, outer)
    if isinstance(node, exp.Subquery):
        if node.args.get("pivots"):
            ctx.refuse("PIVOT", _PIVOT, node)
        ctx.check_args(node, "this", "alias", "with_")
        lowered = ctx.query(ctx, node.this if not node.args.get("with_") else node, ctes, None)
        return _renamed(ctx, node, lowered, (node.alias,) if node.alias else (), (), outer)
    if isinstance(node, exp.Values):
        return _values(ctx, node, ctes, outer)
    if isinstance(node, exp.Lateral | exp.Unnest):
        ctx.refuse("GENERATOR", "LATERAL makes several rows of one", node)
    ctx.unsupported(node, f"{node.sql('spark')[:60]} in FROM")


def _table(ctx: Context, node: exp.Table, ctes: dict[str, Cte], outer: NameScope | None) -> tuple[Operator, NameScope]:
    if node.args.get("sample"):
        ctx.refuse("NON_DETERMINISTIC", "TABLESAMPLE depends on chance", node)
    if node.args.get("pivots"):
        ctx.refuse("PIVOT", _PIVOT, node)
    ctx.check_args(node, "this", "db", "catalog", "alias")
    parts = [part.name for part in node.parts]
    if any(not isinstance(part, exp.Identifier) for part in node.parts):
        ctx.unsupported(node, f"{node.sql('spark')[:60]} in FROM")
    cte = next((one for name, one in ctes.items() if same_name(name, parts[0])), None) if len(parts) == 1 else None
    if cte is not None:
        if cte.lowered is None:
            cte.lowered = ctx.query(ctx, cte.query, cte.visible, None)
            ctx.classes["common table expression"] = None
        return _renamed(ctx, node, cte.lowered, (node.alias or parts[0],), cte.columns, outer)
    source, named = ctx.source((parts[-2] if len(parts) > 1 else None, parts[-1]))
    named = _aliases(ctx, node, named)
    path = (node.alias,) if node.alias else tuple(parts)
    return source, NameScope([Relation(path, tuple(named))], list(named), outer)


def _values(
    ctx: Context, node: exp.Values, ctes: dict[str, Cte], outer: NameScope | None
) -> tuple[Operator, NameScope]:
    ctx.check_args(node, "expressions", "alias")
    nothing = SelectBlock(Constants((), []), NameScope([], []), ctes)
    rows = [
        [lower(ctx, value, nothing) for value in (row.expressions if isinstance(row, exp.Tuple) else [row])]
        for row in node.expressions
    ]
    named = [(f"col{i + 1}", ctx.fresh(f"col{i + 1}")) for i in range(len(rows[0]))]
    constants = Constants(tuple(new for _, new in named), rows)
    named = _aliases(ctx, node, named)
    return constants, NameScope([Relation((node.alias,), tuple(named))] if node.alias else [], list(named), outer)


def _renamed(
    ctx: Context,
    node: exp.Expr,
    lowered: Lowered,
    path: tuple[str, ...],
    columns: tuple[str, ...],
    outer: NameScope | None,
) -> tuple[Operator, NameScope]:
    """A query in FROM under new names, so that it can be there several times."""
    if columns and len(columns) != len(lowered.outputs):
        ctx.wrong("the list of column names has another length than the query's columns", node)
    named: list[Named] = []
    values: dict[str, exp.Expr] = {}
    for i, (name, old) in enumerate(lowered.outputs):
        shown = columns[i] if columns else name
        new = ctx.fresh(shown or "column")
        values[new] = column(old)
        named.append((shown or "", new))
    named = _aliases(ctx, node, named)
    return Select(lowered.operator, values), NameScope(
        [Relation(path, tuple(named))] if path else [], list(named), outer
    )


def _aliases(ctx: Context, node: exp.Expr, named: list[Named]) -> list[Named]:
    """The columns under the names that the alias gives them: t AS x (a, b)."""
    alias = node.args.get("alias")
    columns = [each.name for each in alias.columns] if isinstance(alias, exp.TableAlias) else []
    if not columns:
        return named
    if len(columns) != len(named):
        ctx.wrong("the alias has another number of columns than the table", node)
    return [(name, new) for name, (_, new) in zip(columns, named, strict=True)]

"""Window functions."""

from collections.abc import Callable

from sqlglot import exp

from service.dynamic.query.lower.context import Context, SelectBlock, WindowCall
from service.dynamic.query.lower.functions import AGGREGATES, PEERS, PLACES
from service.dynamic.query.operators import Windows, column

Lower = Callable[[Context, exp.Expr, SelectBlock], exp.Expr]


def window(ctx: Context, node: exp.Expr, block: SelectBlock, lower: Lower) -> exp.Expr:
    """The column of a window function, which is computed once the block's rows or groups are complete."""
    if not isinstance(node, exp.Window) or block.windows is None:
        ctx.unsupported(node)
    ctx.check_args(node, "this", "partition_by", "order", "spec", "over", "alias")
    base = node
    if node.args.get("alias"):
        named = block.named_windows.get(node.alias.lower())
        if named is None:
            ctx.unsupported(node, f"the window {node.alias}")
        base = named
    call, wrap = node.this, None
    if isinstance(call, exp.IgnoreNulls | exp.RespectNulls):
        call, wrap = call.this, type(call)
    name = str(call.this).lower() if isinstance(call, exp.Anonymous) else ""
    if name not in PEERS | PLACES | AGGREGATES or call.find(exp.Distinct):
        ctx.unsupported(node)
    order, spec = base.args.get("order"), base.args.get("spec")
    tie_break = _tie_break(ctx, node, name, order, spec)
    arguments = [each.copy() if isinstance(each, exp.Star) else lower(ctx, each, block) for each in call.expressions]
    function: exp.Expr = exp.Anonymous(this=name, expressions=arguments)
    function = wrap(this=function) if wrap else function
    keys = tuple(lower(ctx, each, block) for each in base.args.get("partition_by") or ())
    ordered = [_ordered(ctx, each, block, lower) for each in (order.expressions if order else ())]
    new = exp.Window(
        this=function,
        order=exp.Order(expressions=ordered) if ordered else None,
        spec=_spec(ctx, spec) if spec else None,
        over="OVER",
    )
    found = ctx.fresh(name)
    block.windows.append(WindowCall(found, keys, new, tie_break))
    return column(found)


def _tie_break(ctx: Context, node: exp.Expr, name: str, order: exp.Expr | None, spec: exp.Expr | None) -> bool:
    """Whether the order has to be completed so that equal rows give equal results."""
    rows = spec is not None and str(spec.args.get("kind")).upper() == "ROWS"
    if name in ("last_value", "last", "nth_value", "first_value", "first"):
        if order is None or not (rows or (spec is None and name in ("first_value", "first"))):
            why = f"{name} depends on the order of equal rows; give it an ORDER BY and a frame of ROWS BETWEEN"
            ctx.refuse("NON_DETERMINISTIC", why, node)
        return True
    return name in PLACES or (rows and name in AGGREGATES)


def _ordered(ctx: Context, node: exp.Expr, block: SelectBlock, lower: Lower) -> exp.Ordered:
    if not isinstance(node, exp.Ordered):
        ctx.unsupported(node)
    ctx.check_args(node, "this", "desc", "nulls_first")
    return exp.Ordered(
        this=lower(ctx, node.this, block), desc=node.args.get("desc"), nulls_first=node.args.get("nulls_first")
    )


def _spec(ctx: Context, spec: exp.Expr) -> exp.Expr:
    ctx.check_args(spec, "kind", "start", "start_side", "end", "end_side")
    for bound in (spec.args.get("start"), spec.args.get("end")):
        if isinstance(bound, exp.Expr) and not isinstance(bound, exp.Literal | exp.Interval):
            ctx.unsupported(spec, "a frame whose bounds are no constants")
    return spec.copy()


def partitioned(ctx: Context, block: SelectBlock, columns: Callable[[SelectBlock, list[exp.Expr]], list[str]]) -> None:
    """Add the window functions that were found above the block's operator, one operator for each partitioning."""
    found = block.windows or []
    block.windows = None
    by_keys: dict[tuple[str, ...], list[WindowCall]] = {}
    for one in found:
        keys = tuple(dict.fromkeys(columns(block, list(one.keys))))
        by_keys.setdefault(keys, []).append(one)
    for keys, ones in by_keys.items():
        functions: dict[str, exp.Expr] = {}
        for one in ones:
            one.function.set("partition_by", [column(key) for key in keys])
            functions[one.name] = one.function
        ties = frozenset(one.name for one in ones if one.tie_break)
        if ties and ctx.has_maps:
            ctx.refuse("MAP_KEY", "a window function orders rows that have a map", None)
        block.operator = Windows(block.operator, keys, functions, ties, comparable=not ctx.has_maps)

"""SELECT, WITH, UNION, INTERSECT and EXCEPT."""

from sqlglot import exp

from service.dynamic.query.lower.context import Context, Cte, Lowered, Named, NameScope, SelectBlock, same_name
from service.dynamic.query.lower.expressions import as_columns, has_aggregate, lower
from service.dynamic.query.lower.joins import from_clause
from service.dynamic.query.lower.subqueries import add_condition, add_join, emptied, inner_sides
from service.dynamic.query.lower.windows import partitioned
from service.dynamic.query.operators import Group, Operator, Select, SetOperation, Union, column, substitute, used
from service.dynamic.query.sql_types import cast, has_map

Items = list[tuple[str | None, exp.Expr]]
"""The select list: name, if it has one, and value."""
_MOST_COLUMNS = 10_000
_SELECT = (
    *("with_", "expressions", "from_", "joins", "where", "group", "having", "distinct", "order", "windows", "hint"),
    "laterals",
)


def query(ctx: Context, node: exp.Expr, ctes: dict[str, Cte], outer: NameScope | None) -> Lowered:
    """The query as an operator, with the columns of its result."""
    limit = node.args.get("limit") or node.args.get("offset")
    if limit:
        ctx.refuse("LIMIT", "LIMIT and OFFSET depend on all rows and their order", limit)
    ctes = _with(ctx, node, ctes)
    match node:
        case exp.Subquery():
            ctx.check_args(node, "this", "with_", "alias", "order")
            return query(ctx, node.this, ctes, outer)
        case exp.Select():
            return _select(ctx, node, ctes, outer)
        case exp.SetOperation():
            return _set_operation(ctx, node, ctes)
    ctx.unsupported(node)


def _with(ctx: Context, node: exp.Expr, ctes: dict[str, Cte]) -> dict[str, Cte]:
    clause = node.args.get("with_")
    if clause is None:
        return ctes
    if clause.args.get("recursive"):
        ctx.refuse("RECURSIVE", "WITH RECURSIVE is not supported in an incremental refresh", clause)
    ctx.check_args(clause, "expressions")
    ctes = dict(ctes)
    for one in clause.expressions:
        ctx.check_args(one, "this", "alias")
        columns = tuple(each.name for each in one.args["alias"].columns)
        name = next((known for known in ctes if same_name(known, one.alias)), one.alias)
        ctes[name] = Cte(one.this, columns, dict(ctes))
    return ctes


def _select(ctx: Context, node: exp.Select, ctes: dict[str, Cte], outer: NameScope | None) -> Lowered:
    ctx.check_args(node, *_SELECT)
    block = from_clause(ctx, node, ctes, outer)
    for each in node.args.get("windows") or []:
        block.named_windows[each.name.lower()] = each
    if node.args.get("where"):
        add_condition(ctx, node.args["where"].this, block, lower)
    items = _items(ctx, node, block.scope)
    clause, having = node.args.get("group"), node.args.get("having")
    grouped = clause is not None or has_aggregate(having) or any(has_aggregate(value) for _, value in items)
    whole = grouped and clause is None
    if grouped:
        _group(ctx, block, _keys(ctx, clause, items, block) if clause is not None else [])
    block.windows = []
    outputs: Items = []
    for name, item in items:
        value = lower(ctx, item, block)
        if not used([value]) <= {*block.operator.produced, *(one.name for one in block.windows)}:
            ctx.refuse("CORRELATED", "the select list reads a column of the query around it", item)
        outputs.append((name, value))
        if name is not None and isinstance(item, exp.Expr):
            block.scope.aliases.setdefault(name, value)
    windows, block.windows = block.windows, None
    if having is not None:
        if not grouped:
            ctx.unsupported(having, "HAVING without GROUP BY")
        _check_having(ctx, having, block)
        add_condition(ctx, having.this, block, lower)
    block.windows = windows
    if windows:
        if block.outer:
            ctx.refuse("CORRELATED", "a window function in a correlated subquery", node)
        partitioned(ctx, block, lambda each, values: as_columns(ctx, each, values))
    if whole and having is not None and block.outer:
        ctx.refuse("CORRELATED", "HAVING without GROUP BY in a correlated subquery", having)
    return _result(ctx, node, block, outputs, whole=whole)


def _result(ctx: Context, node: exp.Select, block: SelectBlock, outputs: Items, *, whole: bool) -> Lowered:
    named: list[tuple[str | None, str]] = [(name, ctx.fresh(name or "column")) for name, _ in outputs]
    values = {new: value for (_, new), (_, value) in zip(named, outputs, strict=True)}
    shared: dict[str, exp.Expr] = {}
    if block.outer:
        inner = set(block.operator.produced)
        shared = {name: column(name) for name in sorted(used(block.outer) & inner)}
    operator: Operator = Select(block.operator, {**values, **shared})
    if node.args.get("distinct"):
        ctx.check_args(node.args["distinct"])
        operator = distinct(ctx, operator, node)
    empty = None
    if block.group is not None and whole and block.outer:
        value = outputs[0][1]
        aggregates = set(block.group.aggregates)
        if not used([value]) <= aggregates:
            ctx.refuse("CORRELATED", "the value of a correlated subquery reads more than its aggregates", node)
        empty = emptied(value, block.group)
    return Lowered(operator, named, block.outer, empty)


def distinct(ctx: Context, operator: Operator, node: exp.Expr | None) -> Group:
    """The different rows of an operator."""
    check_comparable(ctx, operator, operator.produced, node, "DISTINCT")
    return Group(operator, operator.produced, {}, whole=False)


def check_comparable(ctx: Context, one: Operator, names: tuple[str, ...], node: exp.Expr | None, where: str) -> None:
    if not ctx.has_maps:
        return
    for kind in ctx.value_types(one, [column(name) for name in names]):
        if has_map(kind):
            ctx.refuse("MAP_KEY", f"{where} compares a column with a map", node)


def _items(ctx: Context, node: exp.Select, scope: NameScope) -> Items:
    """The select list: name, if it has one, and value; * becomes columns."""
    found: Items = []
    for each in node.expressions:
        star = each if isinstance(each, exp.Star) else each.this if isinstance(each, exp.Column) else None
        if isinstance(star, exp.Star):
            found += [(name, _Known(this=exp.Identifier(this=new))) for name, new in _starred(ctx, each, star, scope)]
            if len(found) > _MOST_COLUMNS:  # * of a subquery with *, * doubles them
                ctx.refuse("UNSUPPORTED", f"* stands for more than {_MOST_COLUMNS:,} columns", each)
        elif isinstance(each, exp.Alias):
            ctx.check_args(each, "this", "alias")
            found.append((each.alias, each.this))
        elif isinstance(each, exp.Column | exp.Dot):
            found.append((each.name, each))
        else:
            found.append((None, each))
    return found


class _Known(exp.Column):
    """A column of the operator, not of the query's text."""


def _starred(ctx: Context, node: exp.Expr, star: exp.Star, scope: NameScope) -> list[Named]:
    ctx.check_args(star, "except_")
    columns = list(scope.visible)
    if isinstance(node, exp.Column):
        owner = [part.name for part in node.parts[:-1]]
        owners = [one for one in scope.relations if one.is_called(owner)]
        if len(owners) != 1:
            ctx.wrong(f"{'.'.join(owner)} is not a table in FROM", node)
        columns = list(owners[0].columns)
    columns = [(name, new) for name, new in columns if new not in ctx.internal]
    for left_out in star.args.get("except_") or []:
        if not any(same_name(name, left_out.name) for name, _ in columns):
            ctx.wrong(f"{left_out.name} is not among the columns of *", node)
        columns = [(name, new) for name, new in columns if not same_name(name, left_out.name)]
    return columns


def _keys(ctx: Context, clause: exp.Group, items: Items, block: SelectBlock) -> list[exp.Expr]:
    """The values of GROUP BY."""
    for name in ("rollup", "cube", "grouping_sets", "totals"):
        if clause.args.get(name):
            ctx.refuse("GROUPING_SETS", "GROUPING SETS, ROLLUP and CUBE are not incremental", clause)
    ctx.check_args(clause, "expressions", "all")
    if clause.args.get("all"):
        return [lower(ctx, value, block) for _, value in items if not has_aggregate(value)]
    keys = []
    for each in clause.expressions:
        if isinstance(each, exp.Rollup | exp.Cube | exp.GroupingSets):
            ctx.refuse("GROUPING_SETS", "GROUPING SETS, ROLLUP and CUBE are not incremental", clause)
        keys.append(lower(ctx, _key(ctx, each, items, block.scope), block))
    return keys


def _key(ctx: Context, node: exp.Expr, items: Items, scope: NameScope) -> exp.Expr:
    """What GROUP BY names by its place in the select list or by its name there; else the expression itself."""
    if isinstance(node, exp.Literal) and not node.is_string:
        place = int(node.this) if str(node.this).isdigit() else 0
        if not 1 <= place <= len(items):
            ctx.wrong(f"GROUP BY {node.this}: the select list has {len(items)} columns", node)
        return items[place - 1][1]
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        is_column = any(same_name(name, node.name) for name, _ in scope.visible)
        named = [value for name, value in items if name is not None and same_name(name, node.name)]
        if named and not is_column:
            return named[0]
    return node


def _group(ctx: Context, block: SelectBlock, keys: list[exp.Expr]) -> None:
    """Turn the block's rows into groups."""
    names = as_columns(ctx, block, keys)
    if not set(names) <= set(block.operator.produced):
        ctx.refuse("CORRELATED", "GROUP BY reads a column of the query around it", None)
    check_comparable(ctx, block.operator, tuple(names), None, "GROUP BY")
    block.group_keys = list(zip(keys, names, strict=True))
    if block.outer:
        names += _correlated_keys(ctx, block)
    names = list(dict.fromkeys(names))
    block.group = Group(block.operator, tuple(names), {}, whole=not names)
    block.operator = block.group


def _correlated_keys(ctx: Context, block: SelectBlock) -> list[str]:
    """Group a correlated subquery also by the values that it shares with the query around it."""
    pairs = inner_sides(block.operator, block.outer)
    if pairs is None:
        return _domain(ctx, block)
    names = as_columns(ctx, block, [inner for inner, _ in pairs])
    block.outer = [exp.EQ(this=column(name), expression=outer) for name, (_, outer) in zip(names, pairs, strict=True)]
    return names


def _domain(ctx: Context, block: SelectBlock) -> list[str]:
    """Join a subquery with the different values that the query around it gives it."""
    around = block.scope.outer.block if block.scope.outer is not None else None
    shared = sorted(used(block.outer) - set(block.operator.produced))
    if around is None or around.group is not None or not set(shared) <= set(around.operator.produced):
        ctx.refuse("CORRELATED", "the subquery depends on the query around it by other conditions than =", None)
    own = {name: ctx.fresh("outer") for name in shared}
    values = distinct(ctx, Select(around.operator, {new: column(name) for name, new in own.items()}), None)
    by = {name: column(new) for name, new in own.items()}
    block.operator = add_join(block.operator, values, [substitute(each, by) for each in block.outer])
    block.outer = [exp.NullSafeEQ(this=column(new), expression=column(name)) for name, new in own.items()]
    return list(own.values())


def _check_having(ctx: Context, having: exp.Expr, block: SelectBlock) -> None:
    """Refuse names that could be a column of FROM and another value of the select list."""
    for node in having.find_all(exp.Column):
        known = any(same_name(name, node.name) for name, _ in block.scope.visible)
        value = next((v for n, v in block.scope.aliases.items() if same_name(n, node.name)), None)
        if not known or value is None or len(node.parts) > 1 or node.find_ancestor(exp.Anonymous):
            continue
        if not isinstance(value, exp.Column) or value.name not in {key for _, key in block.group_keys}:
            ctx.unsupported(node, f"{node.name} in HAVING, which is a column and another value of the select list,")


def _set_operation(ctx: Context, node: exp.SetOperation, ctes: dict[str, Cte]) -> Lowered:
    ctx.check_args(node, "this", "expression", "distinct", "with_", "order")
    sides = [query(ctx, each, ctes, None) for each in (node.this, node.expression)]
    if any(
        isinstance(each, exp.SetOperation) and type(each) is not type(node) for each in (node.this, node.expression)
    ):
        ctx.unsupported(node.expression, "UNION, INTERSECT and EXCEPT together without parentheses")
    left, right = sides
    if len(left.outputs) != len(right.outputs):
        ctx.wrong("the two queries have another number of columns", node.expression)
    operators = _same_types(ctx, node, left, right)
    names = {ctx.fresh(a[0] or "column"): (a[1], b[1]) for a, b in zip(left.outputs, right.outputs, strict=True)}
    outputs = [(name, new) for (name, _), new in zip(left.outputs, names, strict=True)]
    everything = not node.args.get("distinct")
    if isinstance(node, exp.Union):
        union = Union(operators, dict(names))
        ctx.classes["union all" if everything else "union"] = None
        return Lowered(union if everything else distinct(ctx, union, node), outputs, [])
    kind = "INTERSECT" if isinstance(node, exp.Intersect) else "EXCEPT"
    found = SetOperation(f"{kind} ALL" if everything else kind, operators[0], operators[1], names)
    check_comparable(ctx, operators[0], tuple(a for a, _ in names.values()), node, kind)
    return Lowered(found, outputs, [])


def _same_types(ctx: Context, node: exp.Expr, left: Lowered, right: Lowered) -> list[Operator]:
    """Both queries with the types of their union, so that the change of one alone has them, too."""
    pairs = list(zip(left.outputs, right.outputs, strict=True))
    both = Union([left.operator, right.operator], {f"u{i}": (a[1], b[1]) for i, (a, b) in enumerate(pairs)})
    wanted = list(ctx.column_types(both).values())
    found = []
    for side in (left, right):
        types = ctx.column_types(side.operator)
        values = {}
        for (_, name), kind in zip(side.outputs, wanted, strict=True):
            value: exp.Expr | None = column(name)
            if types[name] != kind:
                value = cast(column(name), kind)
            if value is None:
                ctx.unsupported(node.expression, f"a {type(node).__name__.upper()} of different nested types")
            values[name] = value
        changed = any(not isinstance(value, exp.Column) for value in values.values())
        found.append(Select(side.operator, values) if changed else side.operator)
    return found

"""A query compiled: its sources, its whole result, and how the result changes with the sources."""

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace

from sqlglot import exp

from service.dynamic.query.adding import Adding, adding, by_adding
from service.dynamic.query.changes import Changes, weighted
from service.dynamic.query.compiled import NotIncremental, QuerySource
from service.dynamic.query.dialect import parse, place_at, quoted
from service.dynamic.query.direct.changes import direct_change
from service.dynamic.query.exact import InexactComparison, inexact_columns
from service.dynamic.query.limits import Limit, Pair
from service.dynamic.query.lower.context import Context, Types, Unsupported
from service.dynamic.query.lower.selects import distinct, query
from service.dynamic.query.operators import (
    Filter,
    Group,
    InnerJoin,
    Matched,
    Operator,
    Select,
    SetOperation,
    SourceRows,
    Union,
    Windows,
    column,
    walk,
)
from service.dynamic.query.prune import prune
from service.dynamic.query.result import KeptResult, above, keyed_core
from service.dynamic.query.round_trip import changed_word
from service.dynamic.query.rows import Rows, names
from service.dynamic.query.sql_types import has_map
from service.dynamic.query.tables import NamedTable, named_in, with_views
from service.errors import FirnError, InvalidQuery, QueryTooExpensive
from service.model.dynamic.direct import DirectChange
from service.model.dynamic.plan import IncrementalPlan, ReplacedKeys, Step, WeightedRows
from service.model.names import RESERVED_COLUMN_PREFIX
from service.model.schema.types import Field, fold_case

_LONGEST = 500_000
"""Characters of SQL that Spark still reads in reasonable time."""
Steps = tuple[list[Step], WeightedRows | ReplacedKeys]


@dataclass(frozen=True)
class CompiledPlans:
    """A query as `compile_query` reads it; see CompiledQuery."""

    sources: tuple[QuerySource, ...]
    full: str
    hidden: tuple[str, ...]
    not_incremental: NotIncremental | None
    classes: tuple[str, ...]
    plan_for: Callable[[Set[int]], Steps] | None = None
    direct_for: Callable[[Set[int]], DirectChange | None] = lambda changed: None
    _plans: dict[frozenset[int], IncrementalPlan] = field(default_factory=dict, init=False, repr=False, compare=False)

    def plan(self, changed: Set[int]) -> IncrementalPlan:
        assert self.plan_for is not None, "the query is not incremental"
        found = self._plans.get(frozenset(changed))
        if found is None:
            steps, change = self.plan_for(changed)
            found = IncrementalPlan(_kept(steps, change), change, self.direct_for(changed))
            self._plans[frozenset(changed)] = found
        return found


def compile_query(
    text: str,
    schemas: Sequence[Sequence[Field]],
    types: Types,
    *,
    deduplicated: bool = False,
    shown: Callable[[str], str] = lambda sql: sql,
) -> CompiledPlans:
    """Compile a query of Spark SQL.

    `schemas` has the columns of each table of `tables_named(text)`; `types` analyses a SELECT over their views.
    `deduplicated` removes equal rows from the result. `shown` makes the same SELECT of one over the views, without
    internal columns of ingestion tables in what `*` means.

    Raises InvalidQuery for a query that is wrong; one that is only not incremental says so in `not_incremental`.
    """
    tree = parse(text)
    if not isinstance(tree, exp.Query):
        raise InvalidQuery("a dynamic table is declared by a query: SELECT, or WITH … SELECT", field="query")
    tables = named_in(text, tree)
    if not tables:
        raise InvalidQuery("the query reads no table, so its result never changes; name a table in FROM", field="query")
    return _Compiler(text, tree, tables, schemas, types, deduplicated, shown(with_views(text, tables))).compile()


class _Compiler:
    def __init__(
        self,
        text: str,
        tree: exp.Query,
        tables: tuple[NamedTable, ...],
        schemas: Sequence[Sequence[Field]],
        types: Types,
        deduplicated: bool,
        original: str,
    ) -> None:
        self.text, self.tree, self.tables, self.schemas, self.types = text, tree, tables, schemas, types
        self.deduplicated = deduplicated
        self.original = original

    def compile(self) -> CompiledPlans:
        try:
            fields = self.types(self.original)
        except FirnError as e:
            if not isinstance(e, QueryTooExpensive):  # it may be too expensive here, too
                self._lower()  # Names the place of a wrong column.
            raise
        self.names = output_names(self.tree, fields)
        try:
            return self._incremental(fields)
        except Unsupported as error:
            return self._in_full(error.why, fields)
        except InvalidQuery as error:
            return self._in_full(NotIncremental("UNSUPPORTED", error.message), fields)
        except InexactComparison:
            why = "a sum of floating-point numbers decides which rows there are; cast its argument to DECIMAL"
            return self._in_full(NotIncremental("INEXACT", why), fields)

    def _lower(self) -> tuple[Context, Operator]:
        sources = {(one.namespace, one.table): (i, self.schemas[i]) for i, one in enumerate(self.tables)}
        ctx = Context(self.text, sources, self.types, query)
        try:
            lowered = query(ctx, self.tree, {}, None)
        except Unsupported:
            if hasattr(self, "names"):
                raise
            return ctx, SourceRows(0, {})
        if not hasattr(self, "names"):
            return ctx, lowered.operator
        for name, (own, _) in zip(self.names, lowered.outputs, strict=True):
            if own is not None and re.fullmatch(r"\w+", own) and fold_case(own) != fold_case(name):
                why = f"the column {name} is read as {own}"
                raise Unsupported(NotIncremental("UNSUPPORTED", why))
        operator: Operator = Select(
            lowered.operator,
            {name: column(old) for name, (_, old) in zip(self.names, lowered.outputs, strict=True)},
        )
        return ctx, distinct(ctx, operator, None) if self.deduplicated else operator

    def _incremental(self, fields: Sequence[Field]) -> CompiledPlans:
        self._check_text()
        ctx, root = self._lower()
        found = classes(ctx, root)
        core = keyed_core(root)
        by_key = frozenset(map(id, [*above(root, core), *([core] if isinstance(core, Group) else [])]))
        inexact = inexact_columns(root, ctx.value_types, by_key)
        if core is not None and inexact & set(core.keys):
            core = None
        result = KeptResult(root, core) if core is not None and isinstance(root, Select) else None
        how = self._adding(ctx, result)
        if result is not None:
            for key in result.core.keys:
                result.keep(key, f"{RESERVED_COLUMN_PREFIX}key_")
            for name in how.state() if how is not None else ():
                result.keep(name, f"{RESERVED_COLUMN_PREFIX}state_")
        prune(root)
        full = Rows(root, frozenset()).rows(root, "new")
        self._check_types(fields, full)
        kinds = ctx.column_types(root)
        columns = root.produced
        exact = tuple(name for name in columns if name not in inexact and not has_map(kinds[name]))

        def plan(changed: Set[int]) -> Steps:
            if how is not None and result is not None:
                return by_adding(result.root, result, how, changed)
            if core is not None:
                return by_keys(root, core, result, changed)
            if any(name in inexact for name in columns):
                return by_exact_columns(root, exact, changed)
            return by_rows(root, changed)

        def direct(changed: Set[int]) -> DirectChange | None:
            by_key = core is not None and how is None
            if by_key or not isinstance(root, Select) or any(name in inexact for name in columns):
                return None
            return direct_change(root, how, changed)

        hidden = tuple(result.hidden) if result is not None else ()
        if how is not None:
            found["aggregate by adding"] = None
        return CompiledPlans(self._sources(root), full, hidden, None, tuple(found), plan, direct)

    def _adding(self, ctx: Context, result: KeptResult | None) -> Adding | None:
        """How the aggregates of the result are added, if the query is made of one below a projection."""
        if result is None or not isinstance(result.core, Group):
            return None
        if any(isinstance(one, Filter) for one in above(result.root, result.core)):
            return None
        return adding(result.core, ctx.value_types, ctx.fresh)

    def _check_text(self) -> None:
        """Refuse what would not mean the same once it is read and written again."""
        changed = changed_word(self.text, self.tree)
        if changed is not None:
            word, start = changed
            line, column = place_at(self.text, start)
            problem = f"{word.lstrip(chr(39))!r} is not supported in an incremental refresh"
            raise Unsupported(NotIncremental("UNSUPPORTED", problem, line, column))

    def _check_types(self, fields: Sequence[Field], full: str) -> None:
        """What was read as operators has to have the types that Spark gives to the query."""
        if len(full) > _LONGEST:
            raise Unsupported(
                NotIncremental("UNSUPPORTED", "the query has too many subqueries that are read repeatedly")
            )
        found = self.types(full)[: len(fields)]
        if [one.type for one in found] != [one.type for one in fields]:
            raise Unsupported(NotIncremental("UNSUPPORTED", "the query's types are not those that Spark gives it"))

    def _sources(self, root: Operator) -> tuple[QuerySource, ...]:
        read: list[set[str]] = [set() for _ in self.tables]
        for one in walk(root):
            if isinstance(one, SourceRows):
                read[one.number] |= {one.names[name] for name in one.columns}
        return tuple(
            QuerySource(
                table.namespace,
                table.table,
                tuple(each.name for each in self.schemas[i] if each.name in read[i]),
                table.line,
                table.column,
            )
            for i, table in enumerate(self.tables)
        )

    def _in_full(self, why: NotIncremental, fields: Sequence[Field]) -> CompiledPlans:
        sources = tuple(
            QuerySource(one.namespace, one.table, tuple(each.name for each in self.schemas[i]), one.line, one.column)
            for i, one in enumerate(self.tables)
        )
        text = self.original
        if self.deduplicated or [one.name for one in fields] != list(self.names):
            every = ", ".join(map(quoted, self.names))
            kind = "SELECT DISTINCT *" if self.deduplicated else "SELECT *"
            text = f"{kind} FROM (\n{text}\n) AS result ({every})"
        return CompiledPlans(sources, text, (), why, ())


def output_names(tree: exp.Query, fields: Sequence[Field]) -> tuple[str, ...]:
    """The names of the result's columns; a value without a name gets one that is made of its text."""
    first: exp.Expr = tree
    while isinstance(first, exp.SetOperation | exp.Subquery):
        first = first.this
    found: list[str] = []
    for each in fields:
        name = each.name
        if not re.fullmatch(r"\w+", name):
            name = re.sub(r"\W+", "_", name).strip("_").lower() or "column"
            while any(fold_case(name) == fold_case(other) for other in (*found, *(one.name for one in fields))):
                name += "_"
        if fold_case(name).startswith(RESERVED_COLUMN_PREFIX):
            raise InvalidQuery(f"{name} is a name that Firn keeps for itself; give the column another with AS")
        if any(fold_case(name) == fold_case(other) for other in found):
            raise InvalidQuery(f"two columns of the result are called {name}; give one another name with AS")
        found.append(name)
    return tuple(found)


def by_rows(root: Operator, changed: Set[int]) -> Steps:
    changes = Changes(root, changed)
    view = changes.view("change", f"SELECT {weighted(root.columns)} FROM ({changes.change(root)}) AS a")
    return changes.steps, WeightedRows(view)


def by_exact_columns(root: Operator, exact: tuple[str, ...], changed: Set[int]) -> Steps:
    changes = Changes(root, changed)
    if not exact:
        keys = changes.any_change(root)
        return changes.steps, ReplacedKeys(keys, (), changes.view("change", changes.rows(root, "new")))
    keys = changes.view("k", f"SELECT DISTINCT {names(exact)} FROM ({changes.change(root)}) AS a")
    limit = Limit(keys, tuple(Pair(column(name), name) for name in exact))
    rows = changes.view("change", changes.rows(root, "new", (limit,)))
    return changes.steps, ReplacedKeys(keys, exact, rows)


def by_keys(root: Operator, core: Group | Windows, result: KeptResult | None, changed: Set[int]) -> Steps:
    changes = Changes(root, changed)
    if not core.keys:
        keys = changes.any_change(core.input)
        return changes.steps, ReplacedKeys(keys, (), changes.view("change", changes.rows(root, "new")))
    named = {key: result.column_of(key) if result is not None else key for key in core.keys}
    keys = changes.keys(core, named)
    limit = Limit(keys, tuple(Pair(column(name), name) for name in named.values()))
    rows = changes.view("change", changes.rows(root, "new", (limit,)))
    return changes.steps, ReplacedKeys(keys, tuple(named.values()), rows)


def _kept(steps: list[Step], change: WeightedRows | ReplacedKeys) -> tuple[Step, ...]:
    """The steps, with those marked that are read several times."""
    read = " ".join(step.sql for step in steps)
    last = [change.view] if isinstance(change, WeightedRows) else [change.keys, change.rows]
    return tuple(
        replace(step, kept=len(re.findall(rf"\b{step.view}\b", read)) + last.count(step.view) > 1) for step in steps
    )


def classes(ctx: Context, root: Operator) -> dict[str, None]:
    """The operators of the query."""
    found = dict(ctx.classes)
    for one in walk(root):
        name = _class(one)
        if name is not None:
            found[name] = None
    return found


def _class(one: Operator) -> str | None:
    match one:
        case InnerJoin():
            return "inner join"
        case Matched():
            return {"LEFT": "outer join", "LEFT SEMI": "semi join", "LEFT ANTI": "anti join"}[one.kind]
        case Group():
            return "global aggregate" if one.whole else "aggregate" if one.aggregates else "distinct"
        case Windows():
            return "window"
        case SetOperation():
            return one.kind.lower()
        case Union():
            return "union all"
        case Filter():
            return "filter"
        case Select():
            return "projection"
    return None

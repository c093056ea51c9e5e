"""EXPLAIN_DYNAMIC_TABLE: whether a query can be refreshed incrementally, how, and why not."""

from typing import Literal

from pydantic import BaseModel, Field

from service.commits.commit import Commits
from service.dynamic.compiling import Compiled, Compiler
from service.dynamic.definitions import Definitions
from service.dynamic.rights import Sight
from service.errors import Forbidden, InvalidRequest, nearest
from service.model.call import Call
from service.model.dynamic.plan import IncrementalPlan, WeightedRows
from service.model.names import TableName
from service.operations.dynamic.examples import ADDRESSES, BASES, CREATED, DETAILS, TENANT
from service.operations.dynamic.requests import NamedDynamicTable
from service.operations.dynamic.results import NotIncrementalReason, TableAddress
from service.operations.examples import response
from service.operations.operation import Example, Request, Result, omit_when_null, operation

SOURCES = [
    {**ADDRESSES[0], "columns": ["order_id", "customer_id", "amount"]},
    {**ADDRESSES[1], "columns": ["customer_id", "customer_name"]},
]
EXAMPLES = (
    Example(
        "See why a query cannot be refreshed incrementally",
        {
            "operation": "EXPLAIN_DYNAMIC_TABLE",
            **TENANT,
            "query": "SELECT order_id, amount\nFROM orders\nORDER BY amount DESC LIMIT 10",
        },
        response(
            snapshot=False,
            incremental=False,
            not_incremental={"code": "LIMIT", "message": "<any>", "line": 3, "column": 22},
            classes=[],
            sources=[SOURCES[0]],
            hidden_columns=[],
        ),
        given=BASES,
    ),
    Example(
        "See how a change of one source changes a dynamic table",
        {"operation": "EXPLAIN_DYNAMIC_TABLE", **DETAILS, "changed": ["orders"]},
        response(
            snapshot=False,
            incremental=True,
            classes=["inner join", "projection"],
            sources=SOURCES,
            hidden_columns=[],
            incremental_plan={"applied": "by rows", "steps": "<any>"},
        ),
        given=CREATED,
    ),
)


class ExplainDynamicTable(NamedDynamicTable, Request):
    """Either a dynamic table, or a query that none has."""

    operation: Literal["EXPLAIN_DYNAMIC_TABLE"]
    table: str | None = Field(default=None, description="a dynamic table")
    query: str | None = Field(default=None, max_length=100_000, description="a query, instead of a table")
    changed: list[str] | None = Field(
        default=None, description="show the plan for changes of these sources only, as the query names them"
    )


class NotIncrementalPlace(NotIncrementalReason):
    """Why a query is computed in full at each refresh."""

    line: int | None = omit_when_null("its line in the query, from 1")
    column: int | None = omit_when_null("its column in that line, from 1")


class ReadSource(TableAddress):
    """A table that the query reads."""

    columns: list[str] = Field(description="the columns that the query reads")


class PlanStep(BaseModel):
    """A view of a refresh. Those of source 0 are `s0_new`, `s0_old` and `s0_delta`, its changed rows; `result` has the
    rows of the table."""

    view: str = Field(description="its name")
    sql: str = Field(description="its rows, in Spark SQL")
    kept: bool = Field(description="whether its rows are computed only once")


class RefreshPlan(BaseModel):
    """How an incremental refresh computes what changes."""

    applied: Literal["by rows", "by keys"] = Field(
        description="`by rows`: rows come and go; `by keys`: all rows with certain keys are compared with the new ones"
    )
    keys: list[str] | None = omit_when_null("the columns of the keys; none for all rows")
    steps: list[PlanStep] = Field(description="in their order")


class ExplainDynamicTableResult(Result):
    incremental: bool = Field(description="whether the query can be refreshed incrementally")
    not_incremental: NotIncrementalPlace | None = omit_when_null("why it cannot be")
    classes: list[str] = Field(description="the operators of the query")
    sources: list[ReadSource] = Field(description="the tables that it reads; the first is source 0")
    hidden_columns: list[str] = Field(description="columns that the table has beside those of the query")
    incremental_plan: RefreshPlan | None = omit_when_null("how a refresh computes the change; absent if it cannot")


@operation(ExplainDynamicTable, ExplainDynamicTableResult, pool="queries", examples=EXAMPLES)
def explain_dynamic_table(
    request: ExplainDynamicTable, call: Call, definitions: Definitions, commits: Commits, compiler: Compiler
) -> ExplainDynamicTableResult:
    """Explain how a dynamic table, or a query, would be refreshed: its classes, its plan, and why not incrementally."""
    compiled = _compiled(request, call, definitions, commits, compiler)
    query, why = compiled.query, compiled.query.not_incremental
    return ExplainDynamicTableResult(
        incremental=why is None,
        not_incremental=None
        if why is None
        else NotIncrementalPlace(code=why.code, message=why.message, line=why.line, column=why.column),
        classes=list(query.classes),
        sources=[
            ReadSource(namespace=table.name.namespace, table=table.name.table, columns=list(one.columns))
            for table, one in zip(compiled.sources, query.sources, strict=True)
        ],
        hidden_columns=list(query.hidden),
        incremental_plan=None if why is not None else _plan(query.plan(_changed(request, compiled))),
    )


def _compiled(
    request: ExplainDynamicTable, call: Call, definitions: Definitions, commits: Commits, compiler: Compiler
) -> Compiled:
    if (request.table is None) == (request.query is None):
        sent = "neither" if request.table is None else "both"
        raise InvalidRequest(f"send either table or query; the request has {sent}", field="query")
    name = TableName(request.tenant_id, request.namespace, request.table or "query")
    if request.query is not None:
        return compiler.compile(name, request.query, call=call)
    _, found = definitions.load(name)
    if not Sight(call.principal, definitions).sees_sources(found.definition):
        raise Forbidden("the plan shows all tables of the query, and you may not read all of them", field="table")
    for source in found.definition.sources:
        call.about(source.name)
    tables = [commits.find(source.name, source.uuid) for source in found.definition.sources]
    return compiler.compile_definition(found.definition, tables, call)


def _changed(request: ExplainDynamicTable, compiled: Compiled) -> frozenset[int]:
    """The numbers of the sources whose changes the plan is for."""
    sources = compiled.query.sources
    if request.changed is None:
        return frozenset(range(len(sources)))
    names = [one.table if one.namespace is None else f"{one.namespace}.{one.table}" for one in sources]
    for i, name in enumerate(request.changed):
        if name not in names:
            path, near = f"changed[{i}]", nearest(name, names)
            raise InvalidRequest.at(path, f"{name[:80]!r} is no source of the query; it has {', '.join(names)}", near)
    if not request.changed:
        raise InvalidRequest.at("changed", "it is empty; name a source, or leave it out")
    return frozenset(names.index(name) for name in request.changed)


def _plan(plan: IncrementalPlan) -> RefreshPlan:
    keys = None if isinstance(plan.change, WeightedRows) else list(plan.change.columns)
    return RefreshPlan(
        applied="by rows" if keys is None else "by keys",
        keys=keys,
        steps=[PlanStep(view=step.view, sql=step.sql, kept=step.kept) for step in plan.steps],
    )

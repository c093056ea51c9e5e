"""An audit of a dynamic table: its rows compared with those of its query at the same snapshots, and repaired."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from service.engine.jobs.dynamic import statements
from service.engine.jobs.dynamic.job import RefreshJob, StagedRefresh
from service.engine.jobs.dynamic.result import ResultRows
from service.engine.jobs.dynamic.settings import for_refresh
from service.engine.jobs.dynamic.sources import opened_rows
from service.engine.jobs.dynamic.views import RefreshViews
from service.engine.jobs.dynamic.written import RefreshFiles
from service.engine.session.rows import collect, json_rows
from service.engine.session.spark_types import SparkSession
from service.engine.session.untrusted import untrusted
from service.engine.sql.content import comparable
from service.engine.sql.sql import identifier
from service.model.dynamic.plan import RESULT, WEIGHT, ReplacedKeys
from service.model.schema.types import Field, TableSchema, is_floating

_COMPUTED, _ANY, _NET = "_firn_computed", "_firn_any_key", "_firn_audited"
# A part of the rows is chosen by a number from 0 to this one.
_PARTS = 1_000_000


@dataclass(frozen=True)
class AuditSample:
    """The rows to compare: all with some of the values of these columns."""

    columns: tuple[str, ...]
    share: float
    """From 0 to 1."""
    seed: int = 0


@dataclass(frozen=True)
class DifferingRow:
    """A row that the result has too often or too seldom."""

    row: dict[str, Any]
    missing: int
    """How often it is missing; below 0, how often it should not be there."""


@dataclass(frozen=True)
class AuditResult:
    """How many rows were compared and differ, and some of them."""

    compared: int
    missing: int
    unexpected: int
    examples: tuple[DifferingRow, ...] = ()


@untrusted("query")
def audit(
    session: SparkSession, job: RefreshJob, full_sql: str, sample: AuditSample | None, most_examples: int
) -> AuditResult:
    """Compare the rows of the result with those of its query, as bags. Numbers with a floating point are compared to
    twelve digits, because their sums depend on the order of the rows."""
    with _opened(session, job, full_sql) as result:
        views = result.views
        where = "" if sample is None else f" WHERE {_chosen(sample, job.schema)}"
        rounded = ", ".join(f"{_rounded(field)} AS {identifier(field.name)}" for field in job.schema.fields)
        sides = [(f"(SELECT {rounded} FROM {rows}{where})", sign) for rows, sign in ((_COMPUTED, 1), (RESULT, -1))]
        views.keep(_NET, statements.net(sides, job.schema))
        missing, unexpected, _ = session.sql(statements.sums(_NET)).collect()[0]
        compared = session.sql(f"SELECT count(*) FROM {_COMPUTED}{where}").collect()[0][0]
        shown = [field.name for field in job.schema.fields]
        found = session.sql(f"SELECT * FROM {_NET} ORDER BY {_order(job.schema.fields)} LIMIT {most_examples}")
        examples = tuple(
            DifferingRow({name: row[name] for name in shown}, int(row[WEIGHT])) for row in json_rows(collect(found))
        )
        return AuditResult(int(compared), int(missing), int(unexpected), examples)


@untrusted("query")
def stage_repair(session: SparkSession, job: RefreshJob, full_sql: str) -> StagedRefresh:
    """Compute what has to change for the result to have exactly the rows of its query. Rows that are right stay."""
    with _opened(session, job, full_sql) as result:
        result.views.make(_ANY, "SELECT 1 AS _firn_any")
        net = result.net(ReplacedKeys(_ANY, (), _COMPUTED))
        return RefreshFiles(result, net, result.going(net)).stage({})


@contextmanager
def _opened(session: SparkSession, job: RefreshJob, full_sql: str) -> Iterator[ResultRows]:
    """The rows of the query and of the result, in views."""
    with ExitStack() as stack:
        views = RefreshViews(session, stack)
        stack.enter_context(for_refresh(session, job, full=True))
        stack.enter_context(opened_rows(views, job.sources))
        result = ResultRows(views, job, few=False)
        result.open()
        views.make(_COMPUTED, statements.typed(f"({full_sql})", job.schema))
        yield result


def _chosen(sample: AuditSample, schema: TableSchema) -> str:
    """The condition for a row to be in a sample."""
    values = ", ".join(comparable(schema.field(name).type, identifier(name)) for name in sample.columns)
    parts = round(sample.share * _PARTS)
    return f"pmod(xxhash64({values}, {sample.seed}), {_PARTS}) < {parts}"


def _rounded(field: Field) -> str:
    name = identifier(field.name)
    if not is_floating(field.type):
        return name
    return f"CAST(CASE WHEN {name} IS NOT NULL THEN format_string('%.11e', CAST({name} AS DOUBLE)) END AS {field.type})"


def _order(fields: Sequence[Field]) -> str:
    return ", ".join(comparable(field.type, identifier(field.name)) for field in fields)

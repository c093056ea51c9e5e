"""The columns of a query over the sources of a dynamic table, without running it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from service.engine.jobs.dynamic import statements
from service.engine.jobs.dynamic.views import RefreshViews
from service.engine.session.spark_types import SparkSession
from service.engine.session.untrusted import untrusted
from service.engine.sql.derived import column_type
from service.errors import InvalidQuery
from service.model.dynamic.plan import new
from service.model.schema.types import Field, fold_case


def analyse(
    session: SparkSession,
    sources: Mapping[int, Sequence[Field]],
    sql: str,
    check: Callable[[str], object] = lambda plan: None,
) -> tuple[Field, ...]:
    """The names and types of a SELECT's columns over the views `s{i}_new` of sources with these columns.

    `check` gets the analysed plan as JSON, and raises if it must not run.

    Raises InvalidQuery if Spark refuses it, if two columns have the same name, or if a column has a type that a table
    cannot store.
    """
    with untrusted(), ExitStack() as stack:
        views = RefreshViews(session, stack)
        for number, fields in sources.items():
            views.make(new(number), statements.no_rows(fields))
        rows = session.sql(sql)
        check(rows._jdf.queryExecution().analyzed().toJSON())
        found = rows.schema.fields
    columns: dict[str, Field] = {}
    for field in found:
        if fold_case(field.name) in columns:
            raise InvalidQuery(f"two columns of the query are named {field.name!r}; give one of them an alias")
        kind = column_type(field.dataType)
        if kind is None:
            shown = field.dataType.simpleString()
            raise InvalidQuery(f"column {field.name!r} is {shown}, which no table can store; convert it with CAST")
        columns[fold_case(field.name)] = Field(field.name, kind)
    return tuple(columns.values())

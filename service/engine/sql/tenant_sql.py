"""An untrusted SELECT on a session: parsed, and run over views of the tables that it may read, and nothing else.

Whether it may run is decided by the SQL sandbox, on the JSON of Spark's plans.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from py4j.protocol import Py4JJavaError

from service.engine.iceberg.tables import PinnedTable, Place, pinned_reads
from service.engine.jobs.select import Selected, aggregate_from_metadata, explained, selected
from service.engine.session.java import java_class
from service.engine.session.spark_types import DataFrame, DataType, SparkSession
from service.engine.sql.sql import at_snapshot, identifier, opaque
from service.errors import InvalidQuery
from service.model.schema.types import TableSchema, has_uuid, holds_uuid

_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")
_REASON = re.compile(r"\[[A-Z_.]+\] (.*?)(?: SQLSTATE:|$)", re.DOTALL)
_MAX_DIGITS = 38
# Arrow's messages hold 63 levels; what is deeper cannot be read back from Spark.
_MAX_DEPTH = 62


@dataclass(frozen=True, slots=True)
class TableMention:
    """A table's name, and its place in the text."""

    parts: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TableView:
    """A table as the text calls it, at a snapshot if one is given."""

    name: str
    spark_name: str
    snapshot_id: int | None
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class UntrustedSelect:
    """A SELECT that was allowed, and the views it reads."""

    text: str
    params: Mapping[str, Any]
    views: Sequence[TableView]
    limit: int
    offset: int
    explain: bool = False


def parse(session: SparkSession, text: str) -> str:
    """The parsed plan, as JSON; InvalidQuery says where the text went wrong."""
    return str(_parsed(session, text).toJSON())


def mentions(session: SparkSession, text: str) -> list[TableMention]:
    """Every place where the text names a table, in order. Raises InvalidQuery if a table is given options."""
    found: dict[int, TableMention] = {}
    for relation in _relations(session, _parsed(session, text)):
        if not relation.options().isEmpty():
            raise InvalidQuery("sql: a table takes no options; for a snapshot use as_of", field="sql")
        parts, origin = relation.multipartIdentifier(), relation.origin()
        start = origin.startIndex().get()
        names = tuple(parts.apply(i) for i in range(parts.size()))
        found[start] = TableMention(names, start, origin.stopIndex().get() + 1)
    return [found[start] for start in sorted(found)]


def run(
    session: SparkSession, statement: UntrustedSelect, check: Callable[[str], int], measured: bool = False
) -> Selected:
    """The statement's result. `check` gets the analysed plan before anything runs, and counts its tables."""
    places = [(view.spark_name, view.snapshot_id) for view in statement.views]
    with pinned_reads(session, places) as pinned, framed(session, statement, check, pinned) as (df, names):
        if statement.offset:
            df = df.offset(statement.offset)
        df = df.limit(statement.limit + 1)
        return explained(df) if statement.explain else selected(df, names, statement.limit, measured)


@contextmanager
def framed(
    session: SparkSession,
    statement: UntrustedSelect,
    check: Callable[[str], int],
    pinned: Mapping[Place, PinnedTable] | None = None,
) -> Iterator[tuple[DataFrame, list[str]]]:
    """The statement as a frame that can be planned during the block, all its rows, and what its columns are called."""
    aggregate_from_metadata(session, allowed=not any(has_uuid(view.schema) for view in statement.views))
    with _views(session, statement.views, pinned or {}):
        df = _analysed(session, statement)
        _check_tables(df, {view.spark_name.replace("`", "") for view in statement.views}, check)
        yield df, _names(df)


@contextmanager
def _views(session: SparkSession, views: Sequence[TableView], pinned: Mapping[Place, PinnedTable]) -> Iterator[None]:

    made = []
    try:
        for view in views:
            found = pinned.get((view.spark_name, view.snapshot_id))
            text = f"SELECT * FROM {at_snapshot(view.spark_name, view.snapshot_id)}"
            table = found.frame if found else session.sql(text)
            if has_uuid(view.schema) or view.schema.hidden:
                table = table.selectExpr(*_opaque(view.schema))
            table.createOrReplaceTempView(identifier(view.name))
            made.append(view.name)
        yield
    finally:
        for name in made:
            session.catalog.dropTempView(name)


def _opaque(schema: TableSchema) -> Iterator[str]:
    for field in schema.fields:
        name = identifier(field.name)
        yield f"{opaque(name, field.type)} AS {name}" if holds_uuid(field.type) else name


def _check_tables(df: DataFrame, allowed: set[str], check: Callable[[str], int]) -> None:
    plan = df._jdf.queryExecution().analyzed()
    expected = check(plan.toJSON())
    names = [
        leaf.name().replace("`", "")
        for leaf in _plan_leaves(df, plan)
        if leaf.getClass().getSimpleName() == "DataSourceV2Relation"
    ]
    if len(names) != expected or not set(names) <= allowed:
        raise InvalidQuery("sql must be one SELECT over your own tables; it reads something else", field="sql")


def _analysed(session: SparkSession, statement: UntrustedSelect) -> DataFrame:
    from pyspark.errors import AnalysisException

    arguments = {name: _argument(value) for name, value in statement.params.items()}
    try:
        return session.sql(statement.text, args=arguments)
    except AnalysisException as e:
        # Spark reports some mistakes in a query as internal errors.
        if not (e.getSqlState() or "").startswith("XX"):
            raise
        raise _unparsed(str(e)) from e


def _names(df: DataFrame) -> list[str]:
    names = [field.name for field in df.schema.fields]
    for field in df.schema.fields:
        if names.count(field.name) > 1:
            raise InvalidQuery(f"sql: two outputs are called {field.name!r}; give one of them an alias", field="sql")
        if _depth(field.dataType) > _MAX_DEPTH:
            raise InvalidQuery(
                f"sql: {field.name[:80]!r} is nested more than {_MAX_DEPTH} deep; flatten it", field="sql"
            )
        if not _has_json(field.dataType):
            kind = field.dataType.simpleString()
            raise InvalidQuery(f"sql: {field.name!r} is {kind}, which has no JSON form; cast it to string", field="sql")
    return names


def _depth(kind: DataType) -> int:
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case ArrayType():
            return 1 + _depth(kind.elementType)
        case MapType():
            # In Arrow a map is a list of structs.
            return 2 + max(_depth(kind.keyType), _depth(kind.valueType))
        case StructType():
            return 1 + max((_depth(field.dataType) for field in kind.fields), default=0)
    return 0


def _has_json(kind: DataType) -> bool:
    from pyspark.sql.types import (
        ArrayType,
        CalendarIntervalType,
        MapType,
        StructType,
        VariantType,
        YearMonthIntervalType,
    )

    match kind:
        case ArrayType():
            return _has_json(kind.elementType)
        case MapType():
            return _has_json(kind.keyType) and _has_json(kind.valueType)
        case StructType():
            return all(_has_json(field.dataType) for field in kind.fields)
    return not isinstance(kind, YearMonthIntervalType | CalendarIntervalType | VariantType)


def _plan_leaves(df: DataFrame, plan: Any) -> Iterator[Any]:
    for node in _walk(df.sparkSession, plan):
        if node.children().isEmpty():
            yield node


def _relations(session: SparkSession, plan: Any) -> Iterator[Any]:
    for node in _walk(session, plan):
        if node.getClass().getSimpleName() == "UnresolvedRelation":
            yield node


def _walk(session: SparkSession, plan: Any) -> Iterator[Any]:
    """Every plan inside a plan, each once: its children, its WITH clauses and the subqueries of its expressions."""
    system = java_class("java.lang.System")
    seen: set[int] = set()
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        identity = system.identityHashCode(node)
        if identity in seen:
            continue
        seen.add(identity)
        yield node
        for inside in (node.children(), node.innerChildren(), node.subqueries()):
            waiting += [inside.apply(i) for i in range(inside.size())]


def _parsed(session: SparkSession, text: str) -> Any:
    from pyspark.errors import ParseException

    try:
        return session._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except ParseException as e:
        raise _unparsed(str(e)) from e
    except Py4JJavaError as e:
        message = str(e.java_exception.toString())
        if "SqlScriptingException" in message:
            raise InvalidQuery("sql must be one SELECT, not a script", field="sql") from e
        if "StackOverflowError" in message:
            raise InvalidQuery("sql is nested too deeply; flatten it", field="sql") from e
        raise


def _unparsed(message: str) -> InvalidQuery:
    reason, place = _REASON.search(message), _PLACE.search(message)
    said = (reason[1] if reason else message).strip().partition("\n")[0].rstrip(".")
    where = f" at line {place[1]}, column {int(place[2]) + 1}" if place else ""
    return InvalidQuery(f"sql cannot be read{where}: {said[:300]}", field="sql")


def _argument(value: Any) -> Any:
    """A parameter's value as PySpark makes a literal of it: whole numbers and decimals stay exact."""
    if isinstance(value, list):
        return [_argument(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    number = Decimal(value)
    digits, exponent = number.as_tuple()[1:]
    if not isinstance(exponent, int) or max(len(digits), number.adjusted() + 1, -exponent) > _MAX_DIGITS:
        return float(number)
    return number

"""Parses an untrusted SELECT, and runs it over views of the tables that it may read.

The SQL sandbox decides, by the JSON of Spark's plans, whether it may run.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError

from service.engine.iceberg.tables import PinnedTable, Place, pinned_reads
from service.engine.jobs.select import Fits, Selected, aggregate_from_metadata, explained, selected
from service.engine.session.java import scala_items
from service.engine.session.spark_types import DataFrame, DataType, SparkSession
from service.engine.session.untrusted import untrusted
from service.engine.sql.plans.every import every_plan
from service.engine.sql.plans.stars import Internal, without_internal_columns
from service.engine.sql.policies.rows import visible_rows
from service.engine.sql.sql import Parameters, at_snapshot, identifier, opaque
from service.engine.sql.sql import run as run_statement
from service.engine.sql.total_order import in_total_order, is_sorted
from service.engine.sql.window import Window, limited
from service.errors import InvalidQuery
from service.model import cursor
from service.model.names import INGEST_COLUMNS
from service.model.policy.view import RowView
from service.model.schema.types import Field, TableSchema, contains_uuid, fold_case, has_uuid

_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")
_REASON = re.compile(r"\[[A-Z_.]+\] (.*?)(?: SQLSTATE:|$)", re.DOTALL)
_MAX_DIGITS = 38
# Arrow's messages have at most 63 levels; deeper values cannot be read from Spark.
_MAX_DEPTH = 62
_TRANSLATION = "V2ExpressionBuilder"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TableMention:
    """A table's name and its position in the text."""

    parts: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TableView:
    """A table under its name in the text, at a snapshot if one is given."""

    name: str
    spark_name: str
    snapshot_id: int | None
    schema: TableSchema
    view: RowView | None = None
    """What the sender sees of it, if that is not all; `schema` has only these columns."""


@dataclass(frozen=True, slots=True)
class UntrustedSelect:
    """A SELECT that the sandbox allowed, and the views that it reads."""

    text: str
    params: Mapping[str, Any]
    views: Sequence[TableView]
    limit: int
    offset: int
    explain: bool = False
    is_opaque: bool = False
    """Whether only Spark filters rows, and Iceberg skips no files."""

    @property
    def is_whole(self) -> bool:
        """Whether its sender sees all of its tables."""
        return all(view.view is None for view in self.views)


def parse(session: SparkSession, text: str) -> str:
    """The parsed plan as JSON. Raises InvalidQuery with the position of a syntax error."""
    with untrusted():
        return str(_parsed(session, text).toJSON())


def mentions(session: SparkSession, text: str) -> list[TableMention]:
    """Every place where the text names a table, in order. Raises InvalidQuery if a table is given options."""
    found: dict[int, TableMention] = {}
    for relation in every_plan(_parsed(session, text)):
        if relation.getClass().getSimpleName() != "UnresolvedRelation":
            continue
        if not relation.options().isEmpty():
            raise InvalidQuery("sql: a table cannot have options; for a snapshot use as_of", field="sql")
        origin = relation.origin()
        start = origin.startIndex().get()
        names = tuple(scala_items(relation.multipartIdentifier()))
        found[start] = TableMention(names, start, origin.stopIndex().get() + 1)
    return [found[start] for start in sorted(found)]


def run(
    session: SparkSession,
    statement: UntrustedSelect,
    check: Callable[[str], int],
    repeatable: Callable[[str], bool],
    measured: bool = False,
    again: bool = False,
    fits: Fits = lambda rows: True,
) -> Selected:
    """The statement's result, in a total order if it can be given one and has more rows than one page.

    Before it runs, `check` gets the analysed plan, and returns how many tables it reads. `repeatable` says of a plan
    whether each run returns the same rows. With `again`, this page is not the first. `fits` says whether one page has
    room for these rows.
    """
    with untrusted():
        return opaque_if_needed(statement, lambda one: _run(session, one, check, repeatable, measured, again, fits))


def opaque_if_needed(statement: UntrustedSelect, select: Callable[[UntrustedSelect], T]) -> T:
    """What `select` returns for the statement; if Spark fails to translate its filters for Iceberg, without that.

    It fails at a boolean null below AND or OR, as in `(a = 1.5) IS NULL`: of an integer, it makes this comparison
    `a IS NULL AND NULL`.
    """
    try:
        return select(statement)
    except Py4JJavaError as e:
        if statement.is_opaque or _TRANSLATION not in str(e):
            raise
    return select(replace(statement, is_opaque=True))


def _run(
    session: SparkSession,
    statement: UntrustedSelect,
    check: Callable[[str], int],
    repeatable: Callable[[str], bool],
    measured: bool,
    again: bool,
    fits: Fits,
) -> Selected:
    places = [(view.spark_name, view.snapshot_id) for view in statement.views]
    window = Window(statement.offset, statement.limit + 1)
    with pinned_reads(session, places) as pinned, framed(session, statement, check, pinned) as (df, names):
        if statement.explain:
            return explained(limited(df, window))
        in_order = partial(in_total_order, df, window, repeatable, _without_barriers(session, statement, check, pinned))
        ordered = None if not again and not is_sorted(df) else in_order()
        if ordered is None:
            if again:
                raise cursor.refused()
            found = selected(limited(df, window), names, statement.limit, measured)
            more = found.has_more or not fits(found.table)
            ordered = in_order() if more else None
            if ordered is None:
                return found
        return replace(selected(ordered, names, statement.limit, measured), in_total_order=True)


def with_narrow_stars(session: SparkSession, text: str, internal: Internal) -> str:
    """The text of a SELECT in which no `*` means internal columns, which are given by the view that has them."""
    return without_internal_columns(_parsed(session, text), text, internal)


def _without_barriers(
    session: SparkSession, statement: UntrustedSelect, check: Callable[[str], int], pinned: Mapping[Place, PinnedTable]
) -> Callable[[], DataFrame] | None:
    """The statement as Spark can tell whether it depends on chance; never to be run. None if it has no barriers."""

    def analysed() -> DataFrame:
        with framed(session, statement, check, pinned, barriers=False) as (df, _):
            return df

    return None if statement.is_whole else analysed


@contextmanager
def framed(
    session: SparkSession,
    statement: UntrustedSelect,
    check: Callable[[str], int],
    pinned: Mapping[Place, PinnedTable] | None = None,
    *,
    barriers: bool = True,
) -> Iterator[tuple[DataFrame, list[str]]]:
    """The statement as a frame of all its rows, which can be planned in the block, and the names of its columns."""
    uuids = any(has_uuid(view.schema) for view in statement.views)
    aggregate_from_metadata(session, allowed=statement.is_whole and not uuids)
    named = frozenset(name for name in INGEST_COLUMNS if name in statement.text.lower())
    if named and "*" in statement.text:
        internal = {fold_case(view.name): [f.name for f in _internal(view, named)] for view in statement.views}
        statement = replace(statement, text=with_narrow_stars(session, statement.text, internal))
    with _views(session, statement, pinned or {}, named, barriers=barriers):
        df = _analysed(session, statement)
        _check_tables(df, {view.spark_name.replace("`", "") for view in statement.views}, check)
        yield df, _names(df)


@contextmanager
def _views(
    session: SparkSession,
    statement: UntrustedSelect,
    pinned: Mapping[Place, PinnedTable],
    named: Set[str],
    *,
    barriers: bool = True,
) -> Iterator[None]:
    """Views of what the sender sees of the tables, for the block, with those of their internal columns that are
    named."""
    made = []
    try:
        for view in statement.views:
            found = pinned.get((view.spark_name, view.snapshot_id))
            source = at_snapshot(view.spark_name, view.snapshot_id)
            if view.view is not None:
                parameters = Parameters()
                source = identifier(found.view) if found else source
                text = visible_rows(view.view, source, parameters, barrier=barriers)
                table = run_statement(session, f"SELECT * FROM {text}", parameters.values)
            else:
                table = found.frame if found else session.sql(f"SELECT * FROM {source}")
            if has_uuid(view.schema) or view.schema.hidden or statement.is_opaque:
                shown = [*view.schema.fields, *_internal(view, named)]
                if not shown:
                    raise InvalidQuery(
                        f"sql: table {view.name!r} has no columns yet; the first file that it ingests gives them",
                        field="sql",
                    )
                columns = [(identifier(field.name), field.type) for field in shown]
                table = table.selectExpr(
                    *(
                        f"{opaque(name, kind)} AS {name}" if contains_uuid(kind) or statement.is_opaque else name
                        for name, kind in columns
                    )
                )
            table.createOrReplaceTempView(identifier(view.name))
            made.append(view.name)
        yield
    finally:
        for name in made:
            session.catalog.dropTempView(name)


def _internal(view: TableView, named: Set[str]) -> list[Field]:
    """The internal columns of a table that the statement names."""
    return [field for field in view.schema.internal if field.name in named]


def _check_tables(df: DataFrame, allowed: set[str], check: Callable[[str], int]) -> None:
    plan = df._jdf.queryExecution().analyzed()
    expected = check(plan.toJSON())
    names = [
        node.name().replace("`", "")
        for node in every_plan(plan)
        if node.getClass().getSimpleName() == "DataSourceV2Relation"
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
            raise InvalidQuery(f"sql: two outputs are named {field.name!r}; give one of them an alias", field="sql")
        if _depth(field.dataType) > _MAX_DEPTH:
            name = field.name[:80]
            raise InvalidQuery(f"sql: {name!r} is nested more than {_MAX_DEPTH} levels deep; flatten it", field="sql")
        if not _has_json(field.dataType):
            kind = field.dataType.simpleString()
            raise InvalidQuery(f"sql: {field.name!r} is {kind}, which has no JSON form; cast it to string", field="sql")
    return names


def _depth(kind: DataType) -> int:
    """How many levels a type has in Arrow, where a map is a list of structs."""
    levels = {"array": 1, "map": 2, "struct": 1}.get(kind.typeName(), 0)
    return levels + max(map(_depth, _types_inside(kind)), default=0)


def _has_json(kind: DataType) -> bool:
    from pyspark.sql.types import CalendarIntervalType, VariantType, YearMonthIntervalType

    if isinstance(kind, YearMonthIntervalType | CalendarIntervalType | VariantType):
        return False
    return all(map(_has_json, _types_inside(kind)))


def _types_inside(kind: DataType) -> list[DataType]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case ArrayType():
            return [kind.elementType]
        case MapType():
            return [kind.keyType, kind.valueType]
        case StructType():
            return [field.dataType for field in kind.fields]
    return []


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
    found, place = _REASON.search(message), _PLACE.search(message)
    reason = (found[1] if found else message).strip().partition("\n")[0].rstrip(".")
    where = f" at line {place[1]}, column {int(place[2]) + 1}" if place else ""
    return InvalidQuery(f"sql cannot be parsed{where}: {reason[:300]}", field="sql")


def _argument(value: Any) -> Any:
    """A parameter's value in a type that PySpark turns into an exact literal: whole numbers and decimals stay exact."""
    if isinstance(value, list):
        return [_argument(item) for item in value]
    if value is None or isinstance(value, bool | str) or (isinstance(value, int) and -(2**63) <= value < 2**63):
        return value
    number = Decimal(value)
    digits, exponent = number.as_tuple()[1:]
    if not isinstance(exponent, int) or max(len(digits), number.adjusted() + 1, -exponent) > _MAX_DIGITS:
        return float(number)
    return number

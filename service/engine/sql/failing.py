"""Name the column and a row for which an expression fails."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from service.engine.session.rows import collect, frame, json_rows
from service.engine.session.spark_types import SparkSession
from service.engine.session.translate import NOT_COMPUTED, translated
from service.engine.sql.content import hashed
from service.engine.sql.sql import Parameters, fitted, identifier, named, run, where
from service.errors import FirnError, InvalidQuery, InvalidRequest
from service.model.expressions import Expression
from service.model.expressions.kinds import BOOLEAN
from service.model.expressions.tree import rebind
from service.model.filters.predicates import EVERY_ROW, And, ExpressionHolds, Not, Or, Predicate
from service.model.schema.derived import DerivedColumn
from service.model.schema.types import ColumnType, TableSchema

log = logging.getLogger("firn.expressions")
_ROW = "_firn_r"
_LONGEST_ROW = 200


@dataclass(frozen=True)
class ComputedColumn:
    """A column whose values an expression gives; or a condition, which has no name."""

    name: str
    type: ColumnType
    expression: Expression
    is_stored: bool = False
    """Whether the table has the expression, and not the request."""
    only_null: bool = False
    """Whether it is computed only where the column is null."""


def computed_columns(
    derived: Iterable[DerivedColumn], *, is_stored: bool = True, only_null: bool = True
) -> list[ComputedColumn]:
    """The derived columns, of a table or of a request, whose types are known."""
    return [ComputedColumn(d.column, d.type, d.expression, is_stored, only_null) for d in derived if d.type is not None]


def conditions(predicate: Predicate) -> list[ComputedColumn]:
    """The conditions in a filter that are written as expressions."""
    match predicate:
        case And(children) | Or(children):
            return [found for child in children for found in conditions(child)]
        case Not(child):
            return conditions(child)
        case ExpressionHolds(expression):
            return [ComputedColumn("", BOOLEAN, expression)]
    return []


def identifying(schema: TableSchema) -> Sequence[str]:
    """The columns that identify a row to a reader."""
    return schema.primary_key or [one.name for one in schema.fields if one.required]


Rows = Callable[[], AbstractContextManager[str]]
"""A relation, in SQL, of the rows for which expressions are computed."""


@contextmanager
def naming_failures(
    session: SparkSession,
    columns: Sequence[ComputedColumn],
    shown: Sequence[str],
    rows: Rows | None,
    within: Predicate = EVERY_ROW,
) -> Iterator[None]:
    """If one of these expressions fails in the block, say which one, and for which row.

    `rows` has the columns that the expressions read, and those to show with them. Without `rows`, only the expression
    is named, and only if there is no other.
    """
    try:
        yield
    except Exception as e:
        failure = translated(e)
        if not columns or not isinstance(failure, InvalidQuery | InvalidRequest) or failure.field:
            raise
        if rows is None:
            if len(columns) > 1 or not failure.message.startswith(NOT_COMPUTED):
                raise
            raise _naming(failure, columns[0], {}) from e
        raise _named(session, failure, columns, shown, rows, within) from e


def naming_new_rows(
    session: SparkSession, rows: pa.Table, derived: Iterable[DerivedColumn]
) -> AbstractContextManager[None]:
    """The same for the derived columns of a table that are computed for new rows."""
    required = [field.name for field in rows.schema if not field.nullable]
    return naming_failures(session, computed_columns(derived), required, lambda: named(frame(session, rows)))


def _named(
    session: SparkSession,
    failure: FirnError,
    columns: Sequence[ComputedColumn],
    shown: Sequence[str],
    rows: Rows,
    within: Predicate,
) -> FirnError:
    try:
        with rows() as source:
            failed = ((column, _first_failing(session, column, shown, source, within)) for column in columns)
            found = next(((column, row) for column, row in failed if row is not None), None)
    except Exception as e:  # such as the filter of an UPDATE; the failure itself is reported all the same
        log.info("the row for which an expression fails could not be found: %s", e)
        return failure
    return failure if found is None else _naming(failure, *found)


def _naming(failure: FirnError, column: ComputedColumn, row: dict[str, Any]) -> FirnError:
    path, message, details = column.expression.path, failure.message, dict(failure.details or {})
    if column.name:
        details["column"] = column.name
    if row:
        text = json.dumps(row, ensure_ascii=False, default=str)
        shown = text if len(text) <= _LONGEST_ROW else f"{text[:_LONGEST_ROW]}…"
        message = f"{message.rstrip('.')}. It fails for the row {shown}"
        details["row"] = row
    field = column.name if column.is_stored else path
    return type(failure)(f"{path}: {message}", field=field, suggestion=failure.suggestion, details=details)


def _first_failing(
    session: SparkSession, column: ComputedColumn, shown: Sequence[str], source: str, within: Predicate
) -> dict[str, Any] | None:
    """The columns that identify a row for which an expression fails, and those that it reads; none of them if it fails
    for every row. None if it never fails."""
    read, parameters = sorted(column.expression.columns), Parameters()
    if not read:
        return {} if _constant_fails(session, column) else None
    tree = rebind(column.expression.tree, lambda one: replace(one, qualifier=_ROW))
    value = fitted(column.type, replace(column.expression, tree=tree), parameters)
    # Null if the value cannot be computed; see `followed` in derived.py for why this takes a lambda function.
    computed = f"try_to_binary(CASE WHEN {hashed([(column.type, value)])} = 0 THEN '00' ELSE '01' END)"
    row = f"struct({', '.join(identifier(name) for name in read)})"
    fails = f"element_at(transform(array({row}), {_ROW} -> {computed}), 1) IS NULL"
    if column.only_null:
        fails = f"{identifier(column.name)} IS NULL AND {fails}"
    listed = ", ".join(identifier(name) for name in dict.fromkeys([*shown, *read]))
    text = f"SELECT {listed} FROM {source} WHERE {where(within, parameters)} AND {fails} LIMIT 1"
    return next(iter(json_rows(collect(run(session, text, parameters.values)))), None)


def _constant_fails(session: SparkSession, column: ComputedColumn) -> bool:
    parameters = Parameters()
    try:
        run(session, f"SELECT {fitted(column.type, column.expression, parameters)}", parameters.values).collect()
    except Exception:
        return True
    return False

"""Name the column and a row for which an expression fails."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from service.engine.session.rows import collect, json_rows
from service.engine.session.spark_types import SparkSession
from service.engine.session.translate import translated
from service.engine.sql.content import hashed
from service.engine.sql.sql import Parameters, fitted, identifier, run, where
from service.errors import FirnError, InvalidQuery, InvalidRequest
from service.model.expressions import Expression
from service.model.expressions.tree import rebind
from service.model.filters.predicates import EVERY_ROW, Predicate
from service.model.schema.types import ColumnType, TableSchema

log = logging.getLogger("firn.expressions")
_ROW = "_firn_r"
_LONGEST_ROW = 200


@dataclass(frozen=True)
class ComputedColumn:
    """A column whose values an expression gives."""

    name: str
    type: ColumnType
    expression: Expression


@contextmanager
def naming_failures(
    session: SparkSession,
    columns: Sequence[ComputedColumn],
    schema: TableSchema,
    rows: Callable[[], AbstractContextManager[str]],
    within: Predicate = EVERY_ROW,
) -> Iterator[None]:
    """If one of these expressions fails in the block, say which one, and for which row.

    `rows` gives the relation, in SQL, of the rows with the columns of the schema.
    """
    try:
        yield
    except Exception as e:
        failure = translated(e)
        if not columns or not isinstance(failure, InvalidQuery | InvalidRequest) or failure.field:
            raise
        raise _named(session, failure, columns, schema, rows, within) from e


def _named(
    session: SparkSession,
    failure: FirnError,
    columns: Sequence[ComputedColumn],
    schema: TableSchema,
    rows: Callable[[], AbstractContextManager[str]],
    within: Predicate,
) -> FirnError:
    try:
        with rows() as source:
            failed = ((column, _first_failing(session, column, schema, source, within)) for column in columns)
            found = next(((column, row) for column, row in failed if row is not None), None)
    except Exception as e:  # such as the filter of an UPDATE; the failure itself is reported all the same
        log.info("the row for which an expression fails could not be found: %s", e)
        return failure
    if found is None:
        return failure
    column, row = found
    path, message, details = column.expression.path, failure.message, {**(failure.details or {}), "column": column.name}
    if row:
        text = json.dumps(row, ensure_ascii=False, default=str)
        shown = text if len(text) <= _LONGEST_ROW else f"{text[:_LONGEST_ROW]}…"
        message = f"{message.rstrip('.')}. It fails for the row {shown}"
        details["row"] = row
    return type(failure)(f"{path}: {message}", field=path, suggestion=failure.suggestion, details=details)


def _first_failing(
    session: SparkSession, column: ComputedColumn, schema: TableSchema, source: str, within: Predicate
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
    identifying = schema.primary_key or [one.name for one in schema.fields if one.required]
    listed = ", ".join(identifier(name) for name in dict.fromkeys([*identifying, *read]))
    text = f"SELECT {listed} FROM {source} WHERE {where(within, parameters)} AND {fails} LIMIT 1"
    return next(iter(json_rows(collect(run(session, text, parameters.values)))), None)


def _constant_fails(session: SparkSession, column: ComputedColumn) -> bool:
    parameters = Parameters()
    try:
        run(session, f"SELECT {fitted(column.type, column.expression, parameters)}", parameters.values).collect()
    except Exception:
        return True
    return False

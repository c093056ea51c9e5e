"""What an edit means as a change of rows that are found by key; None if it must be made in a commit of its own.

Only what Python computes exactly as Spark does may share a commit: there is no second meaning of expressions, filters
and types.
"""

from collections.abc import Callable

import pyarrow as pa

from service.catalog.tables import Table
from service.engine.session.rows import to_arrow
from service.model.edits import ByFilter, ByKey, Edit, StagedRecords
from service.model.expressions import Expression
from service.model.filters.predicates import EVERY_ROW
from service.model.keyed.changes import KeyedChange, MatchRows, PutRows
from service.model.keyed.conditions import computable, is_exact_key, keys_in
from service.model.schema.types import DecimalType, Primitive, TableSchema

# Edits of more rows are worth a Spark job.
MOST_KEYS = 1000


def keyed_change(
    table: Table,
    edit: Edit,
    check_new: Callable[[pa.Table], object] = lambda new: None,
    most: int = MOST_KEYS,
) -> KeyedChange | None:
    """The change of rows by key that an edit is, if it is one of at most so many keys. `check_new` raises for records
    that must not become new rows."""
    if edit.derived or table.derived or table.schema.internal or edit.added is not None:
        return None
    match edit.which:
        case ByKey() as which:
            return _put(table.schema, which, check_new, most)
        case ByFilter() as which:
            return _matched(table.schema, which, most)
    return None


def _put(schema: TableSchema, which: ByKey, check_new: Callable[[pa.Table], object], most: int) -> PutRows | None:
    exact = all(is_exact_key(schema.field(key).type) for key in which.how.keys)
    # Only the values of these are compared with those of rows.
    plain = all(isinstance(schema.field(name).type, Primitive | DecimalType) for name in which.how.update)
    if isinstance(which.records, StagedRecords) or which.how.replaces:
        return None
    fits = which.within == EVERY_ROW and 0 < which.records.num_rows <= most
    return PutRows(which.records, which.how, check_new) if exact and plain and fits else None


def _matched(schema: TableSchema, which: ByFilter, most: int) -> MatchRows | None:
    keys = keys_in(which.predicate, schema, most)
    if keys is None or not computable(which.predicate):
        return None
    new = None
    if which.assignments is not None:
        if any(isinstance(one.value, Expression) for one in which.assignments):
            return None
        new = to_arrow(
            _columns(schema, [a.column for a in which.assignments]), {a.column: [a.value] for a in which.assignments}
        )
    return MatchRows(to_arrow(_columns(schema, list(keys)), keys), which.predicate, new)


def _columns(schema: TableSchema, names: list[str]) -> TableSchema:
    return TableSchema(tuple(field for field in schema.fields if field.name in names))

"""The SQL of an edit: the rows it concerns, and what a file's rows become."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from service.changes import PLACE, SENT, Assignment, ByFilter, ByKey, Edit, Merge, Repeats, SortKey
from service.columns import Column
from service.derived import Derived
from service.engine.content import row_hash, same
from service.engine.derived import followed
from service.engine.rows import frame
from service.engine.sql import Parameters, identifier, new_value, run, where
from service.predicates import And, Compare, In, Predicate
from service.schema import ColumnType, DecimalType, Primitive, TableSchema

# The relation whose rows an edit looks at, the records it meets, and the places of rows; no column is called so.
T, S, P = "_firn_t", "_firn_s", "_firn_p"
_RECORDS, _NEW, _PLACES = "_firn_records", "_firn_new", "_firn_places"
_HIT = "_firn_hit"
# So many keys are looked up one by one; of more only the least and the greatest.
_LISTED = 500


@dataclass(frozen=True)
class Statement:
    """SQL text and the values it names."""

    text: str
    parameters: Parameters = field(default_factory=Parameters)

    def on(self, session: SparkSession) -> DataFrame:
        return run(session, self.text, self.parameters.values)


@contextmanager
def viewed(session: SparkSession, **tables: pa.Table | DataFrame) -> Iterator[None]:
    """Rows that statements of the session can name during the block."""
    with ExitStack() as stack:
        for name, rows in tables.items():
            shown = frame(session, rows) if isinstance(rows, pa.Table) else rows
            shown.createOrReplaceTempView(name)
            stack.callback(session.catalog.dropTempView, name)
        yield


# Which rows.


def hits_by_file(which: ByFilter, schema: TableSchema, source: str, digest: bool) -> Statement:
    """Of each file that has such rows: how many, and a digest of them."""
    parameters = Parameters()
    condition = where(which.predicate, parameters)
    text = f"SELECT _file AS file, count(*) AS hits{_digest(schema, digest)} FROM {source} AS {T} WHERE {condition}"
    return Statement(f"{text} GROUP BY _file", parameters)


def repeats(which: Repeats, schema: TableSchema, source: str, outputs: str) -> Statement:
    """Every row that is not its key's first."""
    parameters = Parameters()
    keys = ", ".join(f"{T}.{identifier(key)}" for key in which.keys)
    order = [_ordered(by, flipped=which.keep_last) for by in which.order]
    down = " DESC" if which.keep_last else ""
    order += [f"_file{down}", f"_pos{down}"]
    number = f"row_number() OVER (PARTITION BY {keys} ORDER BY {', '.join(order)})"
    condition = where(which.within, parameters)
    inner = f"SELECT *, _file, _pos, {number} AS _firn_n FROM {source} AS {T} WHERE {condition}"
    return Statement(f"SELECT {outputs} FROM ({inner}) AS {T} WHERE _firn_n > 1", parameters)


def places_by_file(digest: bool) -> Statement:
    text = f"SELECT file, count(*) AS hits{', sum(hash) AS digest' if digest else ''} FROM {_PLACES} GROUP BY file"
    return Statement(text)


def places_outputs(schema: TableSchema, digest: bool) -> str:
    hashed = f", {row_hash(schema.fields, T)} AS hash" if digest else ""
    return f"_file AS file, _pos AS pos{hashed}"


def met(which: ByKey, schema: TableSchema, source: str, digest: bool) -> Statement:
    """Each row that a record has the key of: the record's place, the row's file, and whether it would change."""
    parameters = Parameters()
    changed = _changed(which.how, schema)
    hashed = f", {row_hash(schema.fields, T)} AS hash" if digest else ""
    return Statement(
        f"SELECT {S}.{PLACE} AS place, {T}._file AS file, {changed} AS changed{hashed} "
        f"FROM {_narrowed(which, schema, source, parameters)} JOIN {_RECORDS} AS {S} ON {_same_key(which.how)}",
        parameters,
    )


def first_outside(within: Predicate) -> Statement:
    """The place of the first record that a predicate is not true of."""
    parameters = Parameters()
    condition = f"NOT coalesce({where(within, parameters)}, FALSE)"
    return Statement(f"SELECT min({PLACE}) FROM {_RECORDS} WHERE {condition}", parameters)


# What is shown of them.


def shown(edit: Edit, source: str, limit: int) -> Statement:
    """Some of the rows, before (`b0`, `b1`, …) and, where they stay, after (`a0`, …)."""
    which, schema = edit.which, edit.schema
    before = ", ".join(f"{T}.{identifier(f.name)} AS b{i}" for i, f in enumerate(schema.fields))
    if isinstance(which, Repeats):
        found = repeats(which, schema, source, before)
        return Statement(f"{found.text} LIMIT {limit}", found.parameters)
    parameters = Parameters()
    after = [f"{v} AS a{i}" for i, v in enumerate(_after(edit, which, parameters))]
    outputs = ", ".join([before, *after])
    if isinstance(which, ByFilter):
        tail = f"FROM {source} AS {T} WHERE {where(which.predicate, parameters)}"
    else:
        narrowed = _narrowed(which, schema, source, parameters)
        tail = f"FROM {narrowed} JOIN {_RECORDS} AS {S} ON {_same_key(which.how)} WHERE {_changed(which.how, schema)}"
    return Statement(f"SELECT {outputs} {tail} LIMIT {limit}", parameters)


# What files become.


def rewritten(edit: Edit, source: str) -> Statement:
    """The rows that the files of a source hold after the edit."""
    which, schema = edit.which, edit.schema
    columns = ", ".join(f"{T}.{identifier(name)}" for name in schema.names)
    parameters = Parameters()
    if isinstance(which, Repeats):
        same_place = f"{P}.file = {T}._file AND {P}.pos = {T}._pos"
        return Statement(f"SELECT {columns} FROM {source} AS {T} LEFT ANTI JOIN {_PLACES} AS {P} ON {same_place}")
    if isinstance(which, ByFilter):
        hit = f"coalesce({where(which.predicate, parameters)}, FALSE)"
        if which.assignments is None:
            return Statement(f"SELECT {columns} FROM {source} AS {T} WHERE NOT {hit}", parameters)
        rows = f"(SELECT *, {hit} AS {_HIT} FROM {source}) AS {T}"
        condition = f"{T}.{_HIT}"
    else:
        within = where(which.within, parameters)
        rows = f"(SELECT *, coalesce({within}, FALSE) AS {_HIT} FROM {source}) AS {T} "
        rows += f"LEFT JOIN {_RECORDS} AS {S} ON {_same_key(which.how)} AND {T}.{_HIT}"
        condition = f"{S}.{PLACE} IS NOT NULL"
    outputs = ", ".join(
        f"CASE WHEN {condition} THEN {new} ELSE {T}.{identifier(name)} END AS {identifier(name)}"
        if new != f"{T}.{identifier(name)}"
        else new
        for name, new in zip(schema.names, _after(edit, which, parameters), strict=True)
    )
    return Statement(f"SELECT {outputs} FROM {rows}", parameters)


def with_new(found: Statement | None, schema: TableSchema) -> Statement:
    """The same rows, and those that are new."""
    columns = ", ".join(identifier(name) for name in schema.names)
    new = f"SELECT {columns} FROM {_NEW}"
    return Statement(new) if found is None else Statement(f"{found.text} UNION ALL {new}", found.parameters)


def records_of(rows: pa.Table | DataFrame) -> dict[str, pa.Table | DataFrame]:
    return {_RECORDS: rows}


def new_rows(rows: pa.Table | DataFrame) -> dict[str, pa.Table | DataFrame]:
    return {_NEW: rows}


def places(rows: DataFrame) -> dict[str, DataFrame]:
    return {_PLACES: rows}


def _digest(schema: TableSchema, wanted: bool) -> str:
    return f", sum({row_hash(schema.fields, T)}) AS digest" if wanted else ""


def _after(edit: Edit, which: ByFilter | ByKey, parameters: Parameters) -> list[str]:
    """Each column's value in a row that the edit concerns; nothing where the rows go."""
    new: dict[str, str]
    if isinstance(which, ByKey):
        new = {name: _sent_value(name, which.how) for name in which.how.update}
    elif which.assignments is None:
        return []
    else:
        new = {a.column: _assigned(a, parameters) for a in which.assignments}
    was = {name: f"{T}.{identifier(name)}" for name in edit.schema.names}
    return list({**was, **new, **_following(edit.derived, which, was, new, parameters)}.values())


def _following(
    derived: Sequence[Derived],
    which: ByFilter | ByKey,
    was: Mapping[str, str],
    new: Mapping[str, str],
    parameters: Parameters,
) -> dict[str, str]:
    """The derived columns that read what changes, but for those that the request sets itself."""
    found: dict[str, str] = {}
    for one in derived:
        sometimes, keys = (which.how.sometimes_sent, which.how.keys) if isinstance(which, ByKey) else (frozenset(), ())
        is_set = (one.column in new and one.column not in sometimes) or one.column in keys
        if is_set or not one.expression.columns & new.keys():
            continue
        value = followed(one, was, {**was, **new}, parameters)
        if one.column in new:
            value = f"CASE WHEN {S}.{identifier(SENT + one.column)} THEN {new[one.column]} ELSE {value} END"
        found[one.column] = value
    return found


def _assigned(assignment: Assignment, parameters: Parameters) -> str:
    return new_value(assignment.type, assignment.value, parameters)


def _sent_value(name: str, how: Merge) -> str:
    value = f"{S}.{identifier(name)}"
    if name not in how.sometimes_sent:
        return value
    return f"CASE WHEN {S}.{identifier(SENT + name)} THEN {value} ELSE {T}.{identifier(name)} END"


def _changed(how: Merge, schema: TableSchema) -> str:
    """Whether a row would be another one. Derived columns that follow differ only where others do."""
    kept = (
        same(field.type, f"{T}.{identifier(field.name)}", _sent_value(field.name, how))
        for field in schema.fields
        if field.name in how.update
    )
    said = " AND ".join(kept)
    return f"NOT ({said})" if said else "FALSE"


def _same_key(how: Merge) -> str:
    return " AND ".join(f"{T}.{identifier(key)} = {S}.{identifier(key)}" for key in how.keys)


def _narrowed(which: ByKey, schema: TableSchema, source: str, parameters: Parameters) -> str:
    """The source's rows that may have one of the keys: so that files without are not read."""
    keys: list[Predicate] = [p for key in which.how.keys for p in _range(schema, key, which.records[key])]
    condition = where(And((which.within, *keys)) if keys else which.within, parameters)
    return f"(SELECT *, _file FROM {source} WHERE {condition}) AS {T}"


def _range(schema: TableSchema, key: str, values: pa.ChunkedArray) -> Sequence[Predicate]:
    kind = schema.field(key).type
    if not _is_ordered(kind) or not len(values):
        return []
    column = Column(key, (key,), kind)
    distinct = pc.unique(values)
    if len(distinct) <= _LISTED:
        return [In(column, tuple(_python(value) for value in distinct))]
    ends = pc.min_max(values)
    return [Compare(column, "gte", _python(ends["min"])), Compare(column, "lte", _python(ends["max"]))]


def _is_ordered(kind: ColumnType) -> bool:
    """Whether files can be left out by their least and greatest values, and Arrow orders as Spark does."""
    return isinstance(kind, DecimalType) or (
        isinstance(kind, Primitive) and kind.name in ("string", "integer", "long", "date", "timestamp", "timestamptz")
    )


def _python(value: pa.Scalar) -> Any:
    return value.as_py()


def _ordered(by: SortKey, *, flipped: bool) -> str:
    descending, nulls_first = by.descending != flipped, by.nulls_first != flipped
    direction = "DESC" if descending else "ASC"
    return f"{T}.{identifier(by.column)} {direction} NULLS {'FIRST' if nulls_first else 'LAST'}"

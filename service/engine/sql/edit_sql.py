"""The SQL of an edit: the rows it concerns, and what a file's rows become."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from service.engine.session.rows import frame
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql.content import hashed, row_hash, same, summed
from service.engine.sql.derived import followed
from service.engine.sql.sql import Parameters, identifier, new_value, reference, run, where
from service.model.edits import RECORD_NUMBER, SENT_PREFIX, ByFilter, ByKey, Duplicates, Edit, MergeRule, SortKey
from service.model.filters.predicates import EVERY_ROW, And, Compare, In, Predicate
from service.model.schema.columns import Column
from service.model.schema.types import ColumnType, DecimalType, Primitive, TableSchema

# The relation whose rows an edit looks at, the records to join, and the places of rows; no column is called so.
T, S, P = "_firn_t", "_firn_s", "_firn_p"
_RECORDS, _NEW, _PLACES = "_firn_records", "_firn_new", "_firn_places"
_HIT, _MET = "_firn_hit", "_firn_met"
# Up to so many keys are looked up one by one; of more only the least and the greatest.
_LISTED = 500


@dataclass(frozen=True)
class SqlStatement:
    """SQL text and the values it names."""

    text: str
    parameters: Parameters = field(default_factory=Parameters)

    def on(self, session: SparkSession) -> DataFrame:
        return run(session, self.text, self.parameters.values)


@dataclass(frozen=True)
class FindOptions:
    """What the search for an edit's rows is to find besides the rows."""

    digest: bool = False
    """A digest of what they hold."""
    values: bool = False
    """That every new value can be computed. Spark computes only what it returns, so a hash of them is selected."""


@contextmanager
def viewed(session: SparkSession, **tables: pa.Table | DataFrame) -> Iterator[None]:
    """Temporary views that statements of the session can name during the block."""
    with ExitStack() as stack:
        for name, rows in tables.items():
            shown = frame(session, rows) if isinstance(rows, pa.Table) else rows
            shown.createOrReplaceTempView(name)
            stack.callback(session.catalog.dropTempView, name)
        yield


# Which rows


def hits_by_file(edit: Edit, which: ByFilter, source: str, want: FindOptions) -> SqlStatement:
    """For each file with rows that the edit concerns: how many, and a digest of them."""
    parameters = Parameters()
    outputs = ["_file AS file", "count(*) AS hits"]
    if want.digest:
        outputs.append(f"{summed(row_hash(edit.schema.fields, T))} AS digest")
    if want.values and (values := _computed(edit, which, parameters)):
        outputs.append(f"max({values}) AS computed")
    condition = where(which.predicate, parameters)
    return SqlStatement(
        f"SELECT {', '.join(outputs)} FROM {source} AS {T} WHERE {condition} GROUP BY _file", parameters
    )


def repeats(which: Duplicates, schema: TableSchema, source: str, outputs: str) -> SqlStatement:
    """Every row that is not the first of its key."""
    parameters = Parameters()
    keys = ", ".join(f"{T}.{identifier(key)}" for key in which.keys)
    order = [_ordered(by, parameters, flipped=which.keep_last) for by in which.order]
    # Of rows that sort equally, the same one stays whatever files they are in, so that a plan outlives a compaction.
    down = " DESC" if which.keep_last else ""
    order += [f"{tie}{down}" for tie in (row_hash(schema.fields, T), "_file", "_pos")]
    number = f"row_number() OVER (PARTITION BY {keys} ORDER BY {', '.join(order)})"
    condition = where(which.within, parameters)
    inner = f"SELECT *, _file, _pos, {number} AS _firn_n FROM {source} AS {T} WHERE {condition}"
    return SqlStatement(f"SELECT {outputs} FROM ({inner}) AS {T} WHERE _firn_n > 1", parameters)


def places_by_file(digest: bool) -> SqlStatement:
    said = f", {summed('hash')} AS digest" if digest else ""
    return SqlStatement(f"SELECT file, count(*) AS hits{said} FROM {_PLACES} GROUP BY file")


def places_outputs(schema: TableSchema, digest: bool) -> str:
    hashed = f", {row_hash(schema.fields, T)} AS hash" if digest else ""
    return f"_file AS file, _pos AS pos{hashed}"


def met(edit: Edit, which: ByKey, source: str, want: FindOptions) -> SqlStatement:
    """Each row with the key of a record: the record's place, the row's file, and whether it would change."""
    schema, parameters = edit.schema, Parameters()
    changed = _changed(which.how, schema)
    outputs = [f"{S}.{RECORD_NUMBER} AS place", f"{T}._file AS file", f"{changed} AS changed"]
    if want.digest:
        outputs.append(f"{row_hash(schema.fields, T)} AS hash")
    if want.values and (values := _computed(edit, which, parameters)):
        outputs.append(f"CASE WHEN {changed} THEN {values} END AS computed")
    rows = f"{_narrowed(which, schema, source, parameters)} JOIN {_RECORDS} AS {S} ON {_same_key(which.how)}"
    if which.within == EVERY_ROW:
        return SqlStatement(f"SELECT {', '.join(outputs)} FROM {rows}", parameters)
    after = (f"{v} AS {identifier(n)}" for n, v in zip(schema.names, _after(edit, which, parameters), strict=True))
    become = f"SELECT struct({', '.join(outputs)}) AS {_MET}, {', '.join(after)} FROM {rows}"
    return SqlStatement(f"SELECT {_MET}.*, {_outside(which.within, parameters)} AS outside FROM ({become})", parameters)


def new_computed(edit: Edit) -> SqlStatement:
    """Every derived value of the rows that are new."""
    values = hashed((edit.schema.field(one.column).type, identifier(one.column)) for one in edit.derived)
    return SqlStatement(f"SELECT max({values}) FROM {_NEW}")


def first_outside(within: Predicate) -> SqlStatement:
    """The place of the first new row that a predicate is not true of."""
    parameters = Parameters()
    return SqlStatement(f"SELECT min({RECORD_NUMBER}) FROM {_NEW} WHERE {_outside(within, parameters)}", parameters)


# Samples


def shown(edit: Edit, source: str, limit: int) -> SqlStatement:
    """Some of the rows, before (`b0`, `b1`, …) and, if they stay, after (`a0`, …)."""
    which, schema = edit.which, edit.schema
    before = ", ".join(f"{T}.{identifier(f.name)} AS b{i}" for i, f in enumerate(schema.fields))
    if isinstance(which, Duplicates):
        found = repeats(which, schema, source, before)
        return SqlStatement(f"{found.text} LIMIT {limit}", found.parameters)
    parameters = Parameters()
    after = [f"{v} AS a{i}" for i, v in enumerate(_after(edit, which, parameters))]
    outputs = ", ".join([before, *after])
    if isinstance(which, ByFilter):
        tail = f"FROM {source} AS {T} WHERE {where(which.predicate, parameters)}"
    else:
        narrowed = _narrowed(which, schema, source, parameters)
        tail = f"FROM {narrowed} JOIN {_RECORDS} AS {S} ON {_same_key(which.how)} WHERE {_changed(which.how, schema)}"
    return SqlStatement(f"SELECT {outputs} {tail} LIMIT {limit}", parameters)


# What files become


def rewritten(edit: Edit, source: str) -> SqlStatement:
    """The rows that the files of a source hold after the edit."""
    which, schema = edit.which, edit.schema
    columns = ", ".join(f"{T}.{identifier(name)}" for name in schema.names)
    parameters = Parameters()
    if isinstance(which, Duplicates):
        same_place = f"{P}.file = {T}._file AND {P}.pos = {T}._pos"
        return SqlStatement(f"SELECT {columns} FROM {source} AS {T} LEFT ANTI JOIN {_PLACES} AS {P} ON {same_place}")
    if isinstance(which, ByFilter):
        hit = f"coalesce({where(which.predicate, parameters)}, FALSE)"
        if which.assignments is None:
            return SqlStatement(f"SELECT {columns} FROM {source} AS {T} WHERE NOT {hit}", parameters)
        rows = f"(SELECT *, {hit} AS {_HIT} FROM {source}) AS {T}"
        condition = f"{T}.{_HIT}"
    else:
        within = where(which.within, parameters)
        rows = f"(SELECT *, coalesce({within}, FALSE) AS {_HIT} FROM {source}) AS {T} "
        rows += f"LEFT JOIN {_RECORDS} AS {S} ON {_same_key(which.how)} AND {T}.{_HIT}"
        condition = f"{S}.{RECORD_NUMBER} IS NOT NULL"
    outputs = ", ".join(
        f"CASE WHEN {condition} THEN {new} ELSE {T}.{identifier(name)} END AS {identifier(name)}"
        if new != f"{T}.{identifier(name)}"
        else new
        for name, new in zip(schema.names, _after(edit, which, parameters), strict=True)
    )
    return SqlStatement(f"SELECT {outputs} FROM {rows}", parameters)


def with_new(found: SqlStatement | None, schema: TableSchema) -> SqlStatement:
    """The same rows, and those that are new."""
    columns = ", ".join(identifier(name) for name in schema.names)
    new = f"SELECT {columns} FROM {_NEW}"
    return SqlStatement(new) if found is None else SqlStatement(f"{found.text} UNION ALL {new}", found.parameters)


def records_of(rows: pa.Table | DataFrame) -> dict[str, pa.Table | DataFrame]:
    return {_RECORDS: rows}


def new_rows(rows: pa.Table | DataFrame) -> dict[str, pa.Table | DataFrame]:
    return {_NEW: rows}


def places(rows: DataFrame) -> dict[str, DataFrame]:
    return {_PLACES: rows}


def _outside(within: Predicate, parameters: Parameters) -> str:
    return f"NOT coalesce({where(within, parameters)}, FALSE)"


def _after(edit: Edit, which: ByFilter | ByKey, parameters: Parameters) -> list[str]:
    """Each column's value in a row that the edit concerns; none if the rows are deleted."""
    if isinstance(which, ByFilter) and which.assignments is None:
        return []
    new = _given(which, parameters)
    return list({**_was(edit), **new, **_following(edit, which, new, parameters)}.values())


def _computed(edit: Edit, which: ByFilter | ByKey, parameters: Parameters) -> str:
    """One number of all values that are computed for a row; empty if there are none."""
    new = _given(which, parameters)
    following = _following(edit, which, new, parameters)
    # The records' own values need not be computed.
    values = following if isinstance(which, ByKey) else {**new, **following}
    return hashed((edit.schema.field(name).type, text) for name, text in values.items()) if values else ""


def _was(edit: Edit) -> dict[str, str]:
    return {name: f"{T}.{identifier(name)}" for name in edit.schema.names}


def _given(which: ByFilter | ByKey, parameters: Parameters) -> dict[str, str]:
    """The columns that the request itself changes."""
    if isinstance(which, ByKey):
        return {name: _sent_value(name, which.how) for name in which.how.update}
    return {a.column: new_value(a.type, a.value, parameters) for a in which.assignments or ()}


def _following(edit: Edit, which: ByFilter | ByKey, new: Mapping[str, str], parameters: Parameters) -> dict[str, str]:
    """The derived columns that read what changes, but for those that the request sets itself."""
    was, found = _was(edit), dict[str, str]()
    for one in edit.derived:
        sometimes, keys = (which.how.sometimes_sent, which.how.keys) if isinstance(which, ByKey) else (frozenset(), ())
        is_set = (one.column in new and one.column not in sometimes) or one.column in keys
        if is_set or not one.expression.columns & new.keys():
            continue
        value = followed(one, was, {**was, **new}, parameters)
        if one.column in new:
            value = f"CASE WHEN {S}.{identifier(SENT_PREFIX + one.column)} THEN {new[one.column]} ELSE {value} END"
        found[one.column] = value
    return found


def _sent_value(name: str, how: MergeRule) -> str:
    value = f"{S}.{identifier(name)}"
    if name not in how.sometimes_sent:
        return value
    return f"CASE WHEN {S}.{identifier(SENT_PREFIX + name)} THEN {value} ELSE {T}.{identifier(name)} END"


def _changed(how: MergeRule, schema: TableSchema) -> str:
    """Whether a row would change. Derived columns change only if others do."""
    kept = (
        same(field.type, f"{T}.{identifier(field.name)}", _sent_value(field.name, how))
        for field in schema.fields
        if field.name in how.update
    )
    said = " AND ".join(kept)
    return f"NOT ({said})" if said else "FALSE"


def _same_key(how: MergeRule) -> str:
    return " AND ".join(f"{T}.{identifier(key)} = {S}.{identifier(key)}" for key in how.keys)


def _narrowed(which: ByKey, schema: TableSchema, source: str, parameters: Parameters) -> str:
    """The source's rows that may have one of the keys, so that files without them are not read."""
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
    """Whether files can be skipped by their least and greatest values, and Arrow sorts as Spark does."""
    return isinstance(kind, DecimalType) or (
        isinstance(kind, Primitive) and kind.name in ("string", "integer", "long", "date", "timestamp", "timestamptz")
    )


def _python(value: pa.Scalar) -> Any:
    return value.as_py()


def _ordered(by: SortKey, parameters: Parameters, *, flipped: bool) -> str:
    descending, nulls_first = by.descending != flipped, by.nulls_first != flipped
    direction = "DESC" if descending else "ASC"
    return f"{reference(by.column, parameters)} {direction} NULLS {'FIRST' if nulls_first else 'LAST'}"

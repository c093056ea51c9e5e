"""The SQL of an edit: the rows that it affects, and the rows that files have after it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql.content import hashed, row_hash, same, summed
from service.engine.sql.derived import followed
from service.engine.sql.sql import Parameters, identifier, new_value, reference, run, where
from service.model.edits import (
    RECORD_NUMBER,
    SENT_PREFIX,
    ByFilter,
    ByKey,
    Duplicates,
    Edit,
    MergeRule,
    StagedRecords,
)
from service.model.filters.predicates import EVERY_ROW, And, Compare, In, Predicate
from service.model.schema.columns import Column
from service.model.schema.derived import DerivedColumn
from service.model.schema.types import TableSchema, has_order

# Views of the request's records, of new rows, of the places of rows, of those that an UPSERT removes, and of the files'
# ages.
RECORDS, NEW, PLACES, GONE, AGES = "_firn_records", "_firn_new", "_firn_places", "_firn_gone", "_firn_ages"
# Aliases of the rows that an edit reads, of the records that are joined to them, of places, and of ages. No column has
# such a name.
T, S, P, A = "_firn_t", "_firn_s", "_firn_p", "_firn_a"
_SAME_PLACE = f"{P}.file = {T}._file AND {P}.pos = {T}._pos"
_HIT, _MATCH = "_firn_hit", "_firn_match"
# Up to this many keys are looked up one by one; of more, only the range from the least to the greatest.
_LISTED = 500
# The number of positions in one of Spark's bitmaps, 2 to the power of the shift.
BITMAP_ROWS, _BITMAP_SHIFT = 32_768, 15


@dataclass(frozen=True)
class SqlStatement:
    """SQL text and the values of its parameters."""

    text: str
    parameters: Parameters = field(default_factory=Parameters)

    def on(self, session: SparkSession) -> DataFrame:
        return run(session, self.text, self.parameters.values)


@dataclass(frozen=True)
class FindOptions:
    """What else to find besides the rows of an edit."""

    digest: bool = False
    """A digest of the rows' contents."""
    values: bool = False
    """Whether every new value can be computed. Spark computes only what it returns, so a hash of them is selected."""
    places: bool = False
    """The places of the rows, as bitmaps if Spark finds them by a filter."""


@contextmanager
def viewed(views: Mapping[str, DataFrame]) -> Iterator[None]:
    """Temporary views of the rows, for the block."""
    with ExitStack() as stack:
        for name, rows in views.items():
            rows.createOrReplaceTempView(name)
            stack.callback(rows.sparkSession.catalog.dropTempView, name)
        yield


# Which rows


# The order in which rows were written.
_WRITTEN = (f"{A}.age", f"{T}._file", f"{T}._pos")


def hits_by_file(edit: Edit, which: ByFilter, source: str, want: FindOptions) -> SqlStatement:
    """For each file with rows that the edit affects: how many, and a digest of them. With places, for each range of
    rows of each file."""
    parameters = Parameters()
    outputs, groups = hits(want, f"{T}._file", f"{T}._pos")
    if want.digest:
        outputs.append(f"{summed(row_hash(edit.schema.fields, T))} AS digest")
    if want.values and (values := _computed(edit, which, parameters)):
        outputs.append(f"max({values}) AS computed")
    condition = where(which.predicate, parameters)
    return SqlStatement(
        f"SELECT {', '.join(outputs)} FROM {source} AS {T} WHERE {condition} GROUP BY {groups}", parameters
    )


def repeats(edit: Edit, which: Duplicates, source: str, outputs: str) -> SqlStatement:
    """Every row that is not the first of its key."""
    parameters = Parameters()
    keys = ", ".join(f"{T}.{identifier(key)}" for key in which.keys)
    order = []
    for by in which.order:
        descending, nulls_first = by.descending != which.keep_last, by.nulls_first != which.keep_last
        direction = f"{'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
        order.append(f"{reference(by.column, parameters)} {direction}")
    # Rows that sort equally go by when they were written.
    down = " DESC" if which.keep_last else ""
    order += [f"{written}{down}" for written in _WRITTEN]
    number = f"row_number() OVER (PARTITION BY {keys} ORDER BY {', '.join(order)})"
    condition = where(which.within, parameters)
    rows = f"(SELECT {_placed(edit)} FROM {source} WHERE {condition}) AS {T} LEFT JOIN {AGES} AS {A}"
    inner = f"SELECT /*+ BROADCAST({A}) */ {T}.*, {number} AS _firn_n FROM {rows} ON {A}.file = {T}._file"
    return SqlStatement(f"SELECT {outputs} FROM ({inner}) AS {T} WHERE _firn_n > 1", parameters)


def places_by_file(want: FindOptions) -> SqlStatement:
    outputs, groups = hits(want, "file", "pos")
    if want.digest:
        outputs.append(f"{summed('hash')} AS digest")
    return SqlStatement(f"SELECT {', '.join(outputs)} FROM {PLACES} GROUP BY {groups}")


def hits(want: FindOptions, file: str, pos: str) -> tuple[list[str], str]:
    """What to select of rows that were found, and by what to group them."""
    outputs = [f"{file} AS file", "count(*) AS hits"]
    if not want.places:
        return outputs, file
    bucket = f"shiftright({pos}, {_BITMAP_SHIFT})"
    bits = f"bitmap_construct_agg({pos} % {BITMAP_ROWS})"
    return [*outputs, f"{bucket} AS bucket", f"{bits} AS bits"], f"{file}, {bucket}"


def places_outputs(schema: TableSchema, digest: bool) -> str:
    hashed = f", {row_hash(schema.fields, T)} AS hash" if digest else ""
    return f"_file AS file, _pos AS pos{hashed}"


def matches(edit: Edit, which: ByKey, source: str, want: FindOptions) -> SqlStatement:
    """Each row with the key of a record: the record's position, the row's place, and whether the row would change.

    If only the newest row of a key stays, also whether the row is an older one. Then the view of ages is needed.
    """
    schema, parameters = edit.schema, Parameters()
    changed = _changed(which.how, schema)
    outputs = [f"{S}.{RECORD_NUMBER} AS place", f"{T}._file AS file", f"{T}._pos AS pos", f"{changed} AS changed"]
    if which.how.replaces:
        newest = ", ".join(f"{written} DESC" for written in _WRITTEN)
        gone = f"row_number() OVER (PARTITION BY {S}.{RECORD_NUMBER} ORDER BY {newest}) > 1"
        outputs[-1:] = [f"{changed} OR {gone} AS changed", f"{gone} AS gone"]
        changed = f"{changed} AND NOT {gone}"
    if want.digest:
        outputs.append(f"{row_hash(schema.fields, T)} AS hash")
    if want.values and (values := _computed(edit, which, parameters)):
        outputs.append(f"CASE WHEN {changed} THEN {values} END AS computed")
    rows = f"{_narrowed(edit, which, source, parameters)} JOIN {RECORDS} AS {S} ON {_same_key(which.how)}"
    if which.how.replaces:
        rows += f" LEFT JOIN {AGES} AS {A} ON {A}.file = {T}._file"
    if which.within == EVERY_ROW:
        return SqlStatement(f"SELECT {', '.join(outputs)} FROM {rows}", parameters)
    after = (f"{v} AS {identifier(n)}" for n, v in zip(schema.names, _after(edit, which, parameters), strict=True))
    become = f"SELECT struct({', '.join(outputs)}) AS {_MATCH}, {', '.join(after)} FROM {rows}"
    outside = _outside(which.within, parameters)
    return SqlStatement(f"SELECT {_MATCH}.*, {outside} AS outside FROM ({become})", parameters)


def new_computed(edit: Edit) -> SqlStatement:
    """Every derived value of the rows that are new."""
    values = hashed((edit.schema.field(one.column).type, identifier(one.column)) for one in edit.derived)
    return SqlStatement(f"SELECT max({values}) FROM {NEW}")


def first_outside(within: Predicate) -> SqlStatement:
    """The position of the first new row that does not match a predicate."""
    parameters = Parameters()
    return SqlStatement(f"SELECT min({RECORD_NUMBER}) FROM {NEW} WHERE {_outside(within, parameters)}", parameters)


# Samples


def shown(edit: Edit, source: str, limit: int, *, replaced: bool = False) -> SqlStatement:
    """Some of the rows, before the edit (`b0`, `b1`, …) and, unless they are deleted, after it (`a0`, …); without those
    that an UPSERT removes."""
    which = edit.which
    before = ", ".join(f"{value} AS b{i}" for i, value in enumerate(_old_values(edit).values()))
    if isinstance(which, Duplicates):
        found = repeats(edit, which, source, before)
        return SqlStatement(f"{found.text} LIMIT {limit}", found.parameters)
    parameters = Parameters()
    after = [f"{v} AS a{i}" for i, v in enumerate(_after(edit, which, parameters))]
    outputs = ", ".join([before, *after])
    rows = _affected(edit, which, source, parameters, replaced=replaced)
    return SqlStatement(f"SELECT {outputs} {rows} LIMIT {limit}", parameters)


def shown_gone(edit: Edit, source: str, limit: int) -> SqlStatement:
    """Some of the rows that an UPSERT removes."""
    before = ", ".join(f"{value} AS b{i}" for i, value in enumerate(_old_values(edit).values()))
    return SqlStatement(
        f"SELECT {before} FROM {source} AS {T} LEFT SEMI JOIN {GONE} AS {P} ON {_SAME_PLACE} LIMIT {limit}"
    )


def with_set_values(edit: Edit, which: ByFilter | ByKey, source: str) -> SqlStatement:
    """The rows that the edit changes, with the values that it sets; derived columns have their old values."""
    parameters = Parameters()
    values = {**_old_values(edit), **_set_values(which, parameters)}
    outputs = ", ".join(f"{value} AS {identifier(name)}" for name, value in values.items())
    return SqlStatement(f"SELECT {outputs} {_affected(edit, which, source, parameters)}", parameters)


def recomputed_columns(edit: Edit, which: ByFilter | ByKey) -> list[DerivedColumn]:
    """The derived columns that the edit computes again in rows that it changes."""
    found = _recomputed(edit, which, _set_values(which, Parameters()), Parameters())
    return [one for one in edit.derived if one.column in found]


def _affected(
    edit: Edit, which: ByFilter | ByKey, source: str, parameters: Parameters, *, replaced: bool = False
) -> str:
    """The end of a statement: the rows that the edit changes; with `replaced`, without those that it removes."""
    if isinstance(which, ByFilter):
        return f"FROM {source} AS {T} WHERE {where(which.predicate, parameters)}"
    narrowed = _narrowed(edit, which, source, parameters)
    rows = f"{narrowed} JOIN {RECORDS} AS {S} ON {_same_key(which.how)}{_without_gone(replaced)}"
    return f"FROM {rows} WHERE {_changed(which.how, edit.schema)}"


def _without_gone(replaced: bool) -> str:
    return f" LEFT ANTI JOIN {GONE} AS {P} ON {_SAME_PLACE}" if replaced else ""


# What files become


def rewritten(edit: Edit, source: str, parameters: Parameters, *, replaced: bool = False) -> SqlStatement:
    """The rows that the files of a source have after the edit; `replaced` says whether an UPSERT removes some."""
    which, old = edit.which, _old_values(edit)
    kept = _kept(edit)
    columns = ", ".join([*old.values(), *kept])
    if isinstance(which, Duplicates):
        return SqlStatement(f"SELECT {columns} FROM {source} AS {T} LEFT ANTI JOIN {PLACES} AS {P} ON {_SAME_PLACE}")
    if isinstance(which, ByFilter):
        hit = f"coalesce({where(which.predicate, parameters)}, FALSE)"
        if which.assignments is None:
            return SqlStatement(f"SELECT {columns} FROM {source} AS {T} WHERE NOT {hit}", parameters)
        rows = f"(SELECT *, {hit} AS {_HIT} FROM {source}) AS {T}"
        condition = f"{T}.{_HIT}"
    else:
        within = where(which.within, parameters)
        live = f"{source} AS {T}{_without_gone(replaced)}"
        rows = f"(SELECT {T}.*, coalesce({within}, FALSE) AS {_HIT} FROM {live}) AS {T} "
        rows += f"LEFT JOIN {RECORDS} AS {S} ON {_same_key(which.how)} AND {T}.{_HIT}"
        condition = f"{S}.{RECORD_NUMBER} IS NOT NULL"
    outputs = (
        new if new == was else f"CASE WHEN {condition} THEN {new} ELSE {was} END AS {identifier(name)}"
        for (name, was), new in zip(old.items(), _after(edit, which, parameters), strict=True)
    )
    return SqlStatement(f"SELECT {', '.join([*outputs, *kept])} FROM {rows}", parameters)


def changed_rows(
    edit: Edit,
    which: ByFilter | ByKey,
    source: str,
    parameters: Parameters,
    *,
    few: bool,
    replaced: bool = False,
) -> SqlStatement:
    """Only the rows that the edit changes, as they are after it; `few` are gathered in one task."""
    columns = zip(edit.schema.names, _after(edit, which, parameters), strict=True)
    outputs = [*(f"{value} AS {identifier(name)}" for name, value in columns), *_kept(edit)]
    hint = "/*+ REPARTITION(1) */ " if few else ""
    rows = _affected(edit, which, source, parameters, replaced=replaced)
    return SqlStatement(f"SELECT {hint}{', '.join(outputs)} {rows}", parameters)


def new_rows(schema: TableSchema, parameters: Parameters) -> SqlStatement:
    """The rows that are added."""
    return SqlStatement(f"SELECT {', '.join(identifier(name) for name in schema.names)} FROM {NEW}", parameters)


def together(parts: Sequence[SqlStatement]) -> SqlStatement:
    """The rows of several statements with the same parameters."""
    return SqlStatement(" UNION ALL ".join(part.text for part in parts), parts[0].parameters)


def _kept(edit: Edit) -> list[str]:
    return [f"{T}.{identifier(name)}" for name in edit.kept]


def _outside(within: Predicate, parameters: Parameters) -> str:
    return f"NOT coalesce({where(within, parameters)}, FALSE)"


def _after(edit: Edit, which: ByFilter | ByKey, parameters: Parameters) -> list[str]:
    """Each column's new value in a row that the edit affects; none if the rows are deleted."""
    if isinstance(which, ByFilter) and which.assignments is None:
        return []
    new = _set_values(which, parameters)
    return list({**_old_values(edit), **new, **_recomputed(edit, which, new, parameters)}.values())


def _computed(edit: Edit, which: ByFilter | ByKey, parameters: Parameters) -> str:
    """A hash of all values that are computed for a row; empty if there are none."""
    new = _set_values(which, parameters)
    recomputed = _recomputed(edit, which, new, parameters)
    # The records' own values need not be computed.
    values = recomputed if isinstance(which, ByKey) else {**new, **recomputed}
    return hashed((edit.schema.field(name).type, text) for name, text in values.items()) if values else ""


def _old_values(edit: Edit) -> dict[str, str]:
    return {name: f"{T}.{identifier(name)}" for name in edit.schema.names}


def _set_values(which: ByFilter | ByKey, parameters: Parameters) -> dict[str, str]:
    """The new values of the columns that the request itself sets."""
    if isinstance(which, ByKey):
        return {name: _sent_value(name, which.how) for name in which.how.update}
    return {a.column: new_value(a.type, a.value, parameters) for a in which.assignments or ()}


def _recomputed(edit: Edit, which: ByFilter | ByKey, new: Mapping[str, str], parameters: Parameters) -> dict[str, str]:
    """The new values of derived columns that read a changed column, except those that the request sets itself."""
    old, found = _old_values(edit), dict[str, str]()
    sometimes, keys = (which.how.partly_sent, which.how.keys) if isinstance(which, ByKey) else (frozenset(), ())
    for one in edit.derived:
        is_set = (one.column in new and one.column not in sometimes) or one.column in keys
        if is_set or not one.expression.columns & new.keys():
            continue
        value = followed(one, old, {**old, **new}, parameters)
        if one.column in new:
            value = f"CASE WHEN {S}.{identifier(SENT_PREFIX + one.column)} THEN {new[one.column]} ELSE {value} END"
        found[one.column] = value
    return found


def _sent_value(name: str, how: MergeRule) -> str:
    value = f"{S}.{identifier(name)}"
    if name not in how.partly_sent:
        return value
    return f"CASE WHEN {S}.{identifier(SENT_PREFIX + name)} THEN {value} ELSE {T}.{identifier(name)} END"


def _changed(how: MergeRule, schema: TableSchema) -> str:
    """Whether a row would change. Derived columns change only if others do."""
    unchanged = " AND ".join(
        same(field.type, f"{T}.{identifier(field.name)}", _sent_value(field.name, how))
        for field in schema.fields
        if field.name in how.update
    )
    return f"NOT ({unchanged})" if unchanged else "FALSE"


def _same_key(how: MergeRule) -> str:
    return " AND ".join(f"{T}.{identifier(key)} = {S}.{identifier(key)}" for key in how.keys)


def _placed(edit: Edit) -> str:
    """The columns of rows with their places; a source may have these as columns of its own."""
    return ", ".join([*map(identifier, (*edit.schema.names, *edit.kept)), "_file", "_pos"])


def _narrowed(edit: Edit, which: ByKey, source: str, parameters: Parameters) -> str:
    """The source's rows that may have one of the keys, so that files without them are not read."""
    records, schema = which.records, edit.schema
    if isinstance(records, StagedRecords):
        keys = [p for key, ends in records.ends.items() for p in _between(schema, key, ends)]
    else:
        keys = [p for key in which.how.keys for p in _range(schema, key, records[key])]
    condition = where(And((which.within, *keys)) if keys else which.within, parameters)
    return f"(SELECT {_placed(edit)} FROM {source} WHERE {condition}) AS {T}"


def _range(schema: TableSchema, key: str, values: pa.ChunkedArray) -> Sequence[Predicate]:
    kind = schema.field(key).type
    if not has_order(kind) or not len(values):
        return []
    column = Column(key, (key,), kind)
    distinct = pc.unique(values)
    if len(distinct) <= _LISTED:
        return [In(column, tuple(distinct.to_pylist()))]
    ends = pc.min_max(values).as_py()
    return _between(schema, key, (ends["min"], ends["max"]))


def _between(schema: TableSchema, key: str, ends: tuple[Any, Any]) -> Sequence[Predicate]:
    column = Column(key, (key,), schema.field(key).type)
    return [Compare(column, "gte", ends[0]), Compare(column, "lte", ends[1])]

"""Records that are merged from staged files, because they need not fit into memory: all work with them is Spark's."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.engine.jobs.bulk import read_staged
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql import edit_sql as sql
from service.engine.sql.derived import fill
from service.engine.sql.sql import identifier, over, spark_type
from service.model.edits import RECORD_NUMBER, Edit, MergeRule, StagedRecords
from service.model.schema.types import TableSchema

_ORDINAL, _FIRST = "_firn_n", "_firn_first"
_EMPTY = "SELECT 0L AS place, '' AS file, 0L AS pos, FALSE AS changed, FALSE AS gone WHERE FALSE"


@dataclass(frozen=True)
class RepeatedKey:
    """The first record whose key an earlier one has, that earlier one, and the key's values as text."""

    record: int
    first: int
    key: tuple[str, ...]


@dataclass(frozen=True)
class MatchCounts:
    """How staged records meet the rows of a table."""

    new: int
    unchanged: int
    replaced: int
    lacking: int | None
    """The first new record that lacks a column which a new row needs."""


def repeated_key(session: SparkSession, records: StagedRecords, keys: Sequence[str]) -> RepeatedKey | None:
    """The first record with a key that an earlier one has; None if each key is there once."""
    listed = ", ".join(identifier(key) for key in keys)
    rows = read_staged(session, records.source, records.bytes)
    distinct = over(rows, lambda name: f"SELECT count(*) FROM (SELECT DISTINCT {listed} FROM {name})", {})
    if int(distinct.collect()[0][0]) == records.count:
        return None
    window = f"OVER (PARTITION BY {listed} ORDER BY {RECORD_NUMBER})"
    shown = ", ".join(f"CAST({identifier(key)} AS STRING) AS k{i}" for i, key in enumerate(keys))
    numbers = f"lag({RECORD_NUMBER}) {window} AS {_FIRST}, row_number() {window} AS {_ORDINAL}"

    def again(name: str) -> str:
        numbered = f"(SELECT *, {numbers} FROM {name})"
        found = f"SELECT {RECORD_NUMBER}, {_FIRST}, {shown} FROM {numbered} WHERE {_ORDINAL} = 2"
        return f"{found} ORDER BY {RECORD_NUMBER} LIMIT 1"

    record, first, *key = over(rows, again, {}).collect()[0]
    return RepeatedKey(int(record), int(first), tuple(map(str, key)))


def records_frame(session: SparkSession, records: StagedRecords, schema: TableSchema, how: MergeRule) -> DataFrame:
    """One record for each key, with every column of the table."""
    rows = read_staged(session, records.source, records.bytes)
    if records.keep_last:
        keys = ", ".join(identifier(key) for key in how.keys)
        number = f"row_number() OVER (PARTITION BY {keys} ORDER BY {RECORD_NUMBER} DESC) AS {_ORDINAL}"
        rows = over(rows, lambda name: f"SELECT * FROM (SELECT *, {number} FROM {name}) WHERE {_ORDINAL} = 1", {})
        rows = rows.drop(_ORDINAL)
    absent = [field for field in schema.fields if field.name not in records.columns]
    if not absent:
        return rows
    nulls = ", ".join(f"CAST(NULL AS {spark_type(field.type)}) AS {identifier(field.name)}" for field in absent)
    return over(rows, lambda name: f"SELECT *, {nulls} FROM {name}", {})


def no_matches(session: SparkSession) -> DataFrame:
    """What `edit_sql.matches` finds in a table without rows."""
    return session.sql(_EMPTY)


def changed_by_file(session: SparkSession, want: sql.FindOptions) -> DataFrame:
    """For each file, how many rows change, from the view of places; with their places, if wanted."""
    outputs, groups = sql.hits(want, "file", "pos")
    return session.sql(f"SELECT {', '.join(outputs)} FROM {sql.PLACES} WHERE changed GROUP BY {groups}")


def gone_places(session: SparkSession) -> DataFrame:
    return session.sql(f"SELECT file, pos FROM {sql.PLACES} WHERE gone")


def count_matches(session: SparkSession, how: MergeRule) -> MatchCounts:
    """Count what the views of records and of places have."""
    gone = "count_if(gone)" if how.replaces else "0L"
    found = session.sql(f"SELECT count_if(NOT changed) AS unchanged, {gone} AS gone FROM {sql.PLACES}").collect()[0]
    lacks = " OR ".join(f"{sql.S}.{identifier(name)} IS NULL" for name in how.required_to_insert) or "FALSE"
    lacking = f"min(CASE WHEN {lacks} THEN {sql.S}.{RECORD_NUMBER} END) AS lacking"
    new = sql.SqlStatement(f"SELECT count(*) AS new, {lacking} FROM {_NEW}").on(session).collect()[0]
    return MatchCounts(int(new[0]), int(found[0]), int(found[1]), None if new[1] is None else int(new[1]))


def new_staged_rows(session: SparkSession, edit: Edit) -> DataFrame:
    """The rows that new records become, from the views of records and of places."""
    columns = ", ".join(f"{sql.S}.{identifier(name)}" for name in edit.schema.names)
    return fill(sql.SqlStatement(f"SELECT {columns} FROM {_NEW}").on(session), edit.derived)


_NEW = f"{sql.RECORDS} AS {sql.S} LEFT ANTI JOIN {sql.PLACES} AS {sql.P} ON {sql.P}.place = {sql.S}.{RECORD_NUMBER}"

"""The records of a bulk upsert are numbered, and what of them was sent is known when all have arrived."""

import json
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.api.bulk_upsert import PARAMETERS, read_parameters
from service.errors import FirnError, InvalidRecord, InvalidRequest
from service.model.edits import RECORD_NUMBER, SENT_PREFIX, MergeRule, StagedRecords
from service.model.schema.definition import parse_schema
from service.writes.bulk.decode import ARROW, CSV, DECODERS, NDJSON, PARQUET
from service.writes.bulk.upsert import KeyedRecords, UpsertOptions
from tests.unit.writes.test_bulk_decode import body, stream

SCHEMA = parse_schema(
    {
        "fields": {
            "id": {"type": "long"},
            "day": {"type": "date", "required": True},
            "name": {"type": "string", "required": True},
            "n": {"type": "integer"},
            "tags": {"type": "array", "items": "string"},
        }
    }
)
KEYS = ("id", "day")
ALL = pa.table({"id": [1, 2], "day": [date(2026, 1, 1)] * 2, "name": ["a", "b"], "n": pa.array([1, None], pa.int32())})


def received(
    kind: str, raw: bytes | str, options: UpsertOptions | None = None
) -> tuple[pa.Table, StagedRecords, MergeRule]:
    """The rows as they are staged, and what is known of them."""
    keyed = KeyedRecords(SCHEMA, KEYS, options or UpsertOptions())
    source = body(raw.encode() if isinstance(raw, str) else raw)
    batches = [keyed.numbered(batch) for batch in DECODERS[kind](source, SCHEMA, KEYS)]
    assert {batch.schema.names == keyed.arrow_schema(batch).names for batch in batches} == {True}
    table = pa.concat_tables([pa.Table.from_batches([b]).cast(keyed.arrow_schema(b)) for b in batches])
    return table, keyed.staged("source", 1), keyed.rule()


def refused(kind: str, raw: bytes | str) -> FirnError:
    with pytest.raises(FirnError) as caught:
        received(kind, raw)
    return caught.value


def test_columns_that_a_csv_lacks_are_not_staged_and_keep_their_values() -> None:
    table, records, how = received(CSV, "n,id,day\n5,1,2026-01-02\n,2,2026-01-01\n")
    assert table.column_names == ["id", "day", "n", RECORD_NUMBER]
    assert table[RECORD_NUMBER].to_pylist() == [0, 1]
    assert (records.count, records.columns) == (2, frozenset({"id", "day", "n"}))
    assert records.ends == {"id": (1, 2), "day": (date(2026, 1, 1), date(2026, 1, 2))}
    assert (how.update, how.partly_sent, how.required_to_insert) == (("n",), frozenset(), ("name",))


def test_records_are_numbered_across_the_batches_of_an_arrow_stream() -> None:
    days = pa.array([date(2026, 1, 1 + i) for i in range(5)])
    sent = pa.table({"name": list("abcde"), "day": days, "id": [3, 1, 5, 2, 4]})
    table, records, how = received(ARROW, stream(sent, rows=2), UpsertOptions(on_multiple="replace"))
    assert table[RECORD_NUMBER].to_pylist() == list(range(5))
    assert records.ends["id"] == (1, 5)
    assert (how.update, how.required_to_insert, how.replaces) == (("name",), (), True)


def file_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=2)
    raw: bytes = sink.getvalue().to_pybytes()
    return raw


def test_a_parquet_file_is_read_like_an_arrow_stream() -> None:
    days = pa.array([date(2026, 1, 1 + i) for i in range(5)])
    sent = pa.table({"day": days, "id": [3, 1, 5, 2, 4], "tags": [["a"], None, [], ["b"], ["c", "d"]]})
    from_file, from_stream = received(PARQUET, file_of(sent)), received(ARROW, stream(sent))
    assert from_file[0].equals(from_stream[0])
    assert from_file[1:] == from_stream[1:]
    appended = [
        DECODERS[kind](body(raw), SCHEMA, None) for kind, raw in ((PARQUET, file_of(ALL)), (ARROW, stream(ALL)))
    ]
    assert pa.Table.from_batches(appended[0]).equals(pa.Table.from_batches(appended[1]))


def test_a_body_that_is_not_a_whole_parquet_file_is_refused() -> None:
    raw = file_of(ALL)
    for broken in (b"", b"PAR1", raw[:-5], raw[: len(raw) // 2], b"PAR1" + bytes(100) + b"PAR1"):
        assert "Parquet" in refused(PARQUET, broken).message
    assert refused(PARQUET, file_of(ALL.drop_columns(["day"]))).field == "day"
    text = ALL.set_column(0, "id", pa.array(["1", "2"]))
    assert "without loss" in refused(PARQUET, file_of(text)).message


def test_each_record_of_an_ndjson_says_what_it_has() -> None:
    records = [{"id": 1, "name": "a", "tags": None}, {"id": 2, "name": "b", "n": None}, {"id": 3, "name": "c"}]
    raw = "\n".join(json.dumps({**record, "day": "2026-01-01"}) for record in records)
    table, staged, how = received(NDJSON, raw)
    assert table[f"{SENT_PREFIX}n"].to_pylist() == [False, True, False]
    assert table[f"{SENT_PREFIX}tags"].to_pylist() == [True, False, False]
    assert how == MergeRule(KEYS, SCHEMA.names, ("name", "n", "tags"), frozenset({"n", "tags"}))
    assert staged.count == 3


@pytest.mark.parametrize(
    ("kind", "raw", "line"),
    [
        (CSV, "id,day,name\n1,2026-01-01,a\n2,2026-01-01,\n", 3),
        (CSV, "id,day\n,2026-01-01\n", 2),
        (NDJSON, '{"id": 1, "day": "2026-01-01"}\n{"id": 1, "day": "2026-01-02", "name": null}\n', 2),
        (NDJSON, '{"day": "2026-01-01"}\n', 1),
        (NDJSON, '{"id": 1, "day": "2026-01-01", "nmae": "x"}\n', 1),
    ],
)
def test_a_key_without_a_value_and_a_null_for_a_required_column_are_refused(kind: str, raw: str, line: int) -> None:
    error = refused(kind, raw)
    assert isinstance(error, InvalidRecord)
    assert (error.details or {})["line"] == line


def test_a_body_without_a_key_column_and_one_with_an_unknown_column_are_refused() -> None:
    assert refused(CSV, "id,name\n1,a\n").field == "day"
    assert refused(CSV, "id,day,nam\n").suggestion == "name"


def parsed(**query: str) -> Any:
    return read_parameters(query.get("mode", "append"), query)


def test_the_parameters_of_an_upsert_are_read() -> None:
    found = parsed(mode="upsert", key_cols="id,day", on_duplicate="last", on_multiple="replace", create_backup="true")
    assert found.options == UpsertOptions(("id", "day"), "last", "replace")
    assert (found.create_backup, found.backup_retention_hours) == (True, None)
    assert parsed(mode="upsert").options == UpsertOptions()
    assert parsed() is None


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_of_an_upsert_mean_nothing_to_a_load_that_appends(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(**{name: "1"})
    assert caught.value.field == name

"""Bodies become rows exactly as a WRITE's records would, piece by piece, and a refusal names the line or the record."""

import asyncio
import contextlib
import gzip
import struct
import threading
import time
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.session.rows import to_arrow
from service.errors import BodyTooLarge, FirnError, InvalidRecord, InvalidRequest
from service.model.records import read_records
from service.model.schema.definition import parse_schema
from service.model.schema.types import Field, TableSchema
from service.model.wire import parse
from service.writes.bulk import fit, ipc, lines
from service.writes.bulk.body import Body, ClientGone
from service.writes.bulk.decode import ARROW, CSV, DECODERS, NDJSON, decoder
from service.writes.bulk.target import target_schema
from tests.strategies import json_text, leaves, records, same, schemas

PERSON = parse_schema(
    {
        "fields": {
            "id": {"type": "long", "required": True},
            "name": {"type": "string"},
            "score": {"type": "double"},
            "at": {"type": "timestamp"},
            "paid": {"type": "decimal(6,2)"},
            "ok": {"type": "boolean"},
        }
    }
)


def body(raw: bytes, piece: int = 1 << 20) -> Body:
    """A body that comes in pieces, as fast as it is read."""
    coming = Body(limit_mb=1000, hashed=True)

    async def feed() -> None:
        for start in range(0, len(raw), piece):
            if not await coming.put(raw[start : start + piece]):
                return
        coming.end()

    if len(raw) < 1 << 20:  # it holds so much at least
        asyncio.run(feed())
    else:
        threading.Thread(target=asyncio.run, args=(feed(),), daemon=True).start()
    return coming


def read(kind: str, raw: bytes | str, schema: TableSchema = PERSON, piece: int = 1 << 20) -> pa.Table:
    content = raw.encode() if isinstance(raw, str) else raw
    source = body(content, piece)
    try:
        batches = list(DECODERS[kind](source, schema, None))
    finally:
        source.close()
    assert all(batch.schema == target_schema(schema) for batch in batches)
    return pa.Table.from_batches(batches, target_schema(schema))


def refused(kind: str, raw: bytes | str, schema: TableSchema = PERSON) -> FirnError:
    with pytest.raises(FirnError) as caught:
        read(kind, raw, schema)
    return caught.value


def stream(table: pa.Table, rows: int = 1 << 20, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=rows)
    raw: bytes = sink.getvalue().to_pybytes()
    return raw


def column(kind: str, values: pa.Array, required: bool = False) -> list[Any]:
    """One Arrow column as a table of one column of this type has it."""
    schema = parse_schema({"fields": {"c": {"type": kind, "required": required}}})
    out: list[Any] = read(ARROW, stream(pa.table({"c": values})), schema)["c"].to_pylist()
    return out


def misfit(kind: str | dict[str, Any], values: pa.Array, required: bool = False) -> InvalidRecord:
    said = kind if isinstance(kind, dict) else {"type": kind}
    error = refused(
        ARROW, stream(pa.table({"c": values})), parse_schema({"fields": {"c": {**said, "required": required}}})
    )
    assert isinstance(error, InvalidRecord)
    return error


def test_ndjson_says_what_a_writes_records_would() -> None:
    @given(st.data(), st.sampled_from((7, 100, 1 << 20)))
    def holds(data: st.DataObject, piece: int) -> None:
        schema = data.draw(schemas(max_columns=4))
        sent = data.draw(records(schema))
        text = "\n".join(json_text(record) for record in sent)
        expected = to_arrow(schema, read_records(schema, parse(f"[{text.replace(chr(10), ',')}]")))
        assert same(read(NDJSON, text, schema, piece).to_pylist(), expected.to_pylist())

    holds()


def test_an_arrow_stream_says_what_it_was_made_of() -> None:
    @given(st.data(), st.integers(1, 4), st.sampled_from((None, "lz4", "zstd")))
    def holds(data: st.DataObject, rows: int, compression: str | None) -> None:
        schema = data.draw(schemas(max_columns=4))
        table = to_arrow(schema, read_records(schema, data.draw(records(schema))))
        order = data.draw(st.permutations(table.column_names))
        raw = stream(table.select(order), rows, compression)
        assert same(read(ARROW, raw, schema, 64).to_pylist(), table.to_pylist())

    holds()


def test_csv_says_what_a_writes_records_would() -> None:
    def cell(value: Any, quoted: bool) -> str:
        if value is None:
            return ""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        needed = not text or any(c in text for c in '",\r\n')
        return '"' + text.replace('"', '""') + '"' if quoted or needed else text

    @given(st.data(), st.sampled_from(("\n", "\r\n")), st.sampled_from((5, 64, 1 << 20)))
    def holds(data: st.DataObject, end: str, piece: int) -> None:
        kinds = data.draw(st.lists(leaves(), min_size=2, max_size=4))
        schema = TableSchema(tuple(Field(f"c{i}", kind, i == 0) for i, kind in enumerate(kinds)))
        sent = data.draw(records(schema))
        quoted = data.draw(st.booleans())
        lines = [",".join(schema.names)]
        lines += [",".join(cell(record.get(name), quoted) for name in schema.names) for record in sent]
        expected = to_arrow(schema, read_records(schema, sent))
        assert same(read(CSV, end.join(lines), schema, piece).to_pylist(), expected.to_pylist())

    holds()


def test_ndjson_skips_empty_lines_and_counts_them() -> None:
    assert read(NDJSON, '\n{"id": 1}\r\n\n {"id": 2} \n')["id"].to_pylist() == [1, 2]
    error = refused(NDJSON, '\n{"id": 1}\n\n{"id": "x"}\n')
    assert (error.message[:11], error.field) == ("line 4: id:", "id")
    assert error.details == {"line": 4, "record": 1, "field": "id"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"id": 5, "zip": 1}', "line 3: zip: there is no such field"),
        ("{}", "line 3: id: a value is required here"),
        ("[1]", "line 3: this is not a JSON object"),
        ('{"id": 1', "line 3: it is not JSON: Expecting ',' delimiter at column 9"),
        ('{"id": 1} {"id": 2}', "line 3: it is not JSON: Extra data"),
        ('{"id": NaN}', "line 3: NaN is not a JSON number"),
        ('{"id": 3.0000000000000000000000000001}', "line 3: id: 3.0000000000000000000000000001 is not a long"),
        ('{"id": 9223372036854775808}', "line 3: id: 9223372036854775808 is out of range"),
        ('{"id": 1, "score": 1e999}', "line 3: score: 1E+999 is out of range"),
        ('{"id": 1, "name": "\\ud800"}', "line 3: name contains half of a surrogate pair"),
        ('{"id": 1, "paid": 1.234}', "line 3: paid: 1.234 does not fit decimal(6,2) without loss"),
    ],
)
def test_an_ndjson_line_that_does_not_fit_is_named(line: str, said: str) -> None:
    assert refused(NDJSON, f'{{"id": 1}}\n\n{line}\n{{"id": "also wrong"}}\n').message.startswith(said)


def test_the_first_line_that_does_not_fit_is_named_whatever_is_wrong_after_it() -> None:
    assert refused(NDJSON, '{"id": 1}\n{"id": "x"}\n{"id"').message.startswith("line 2: id")


def test_ndjson_that_is_not_utf8_names_the_line() -> None:
    assert refused(NDJSON, b'{"id": 1}\n{"id": 2, "name": "\xff"}').message.startswith("line 2: the body is not UTF-8")


def test_whole_numbers_are_exact_to_the_last_digit() -> None:
    most = 2**63 - 1
    assert read(NDJSON, f'{{"id": {most}}}\n{{"id": {-most - 1}}}\n{{"id": 2.0}}')["id"].to_pylist() == [
        most,
        -most - 1,
        2,
    ]
    assert read(CSV, f"id\n{most}\n{-most - 1}\n2.0\n")["id"].to_pylist() == [most, -most - 1, 2]


def test_an_empty_csv_field_is_null_and_a_quoted_one_is_the_empty_text() -> None:
    assert read(CSV, 'id,name\n1,\n2,""\n')["name"].to_pylist() == [None, ""]
    assert refused(CSV, 'id,score\n1,""\n').message.startswith("line 2: score: '' is not a double")
    assert refused(CSV, 'id,name\n,"x"\n').message.startswith("line 2: id: a value is required here")


def test_csv_columns_come_in_any_order_and_need_not_all_come() -> None:
    table = read(CSV, '\ufeff"name",id\nAnn,1\n')
    assert table.to_pylist() == [{"id": 1, "name": "Ann", "score": None, "at": None, "paid": None, "ok": None}]


def test_csv_values_are_read_as_a_records_texts_are() -> None:
    text = "id,score,at,paid,ok\n+5,1e3,2024-02-29T01:02:03+02:00,1.5,TRUE\n007,-Infinity,2024-02-29,-0.10,false\n"
    first, second = read(CSV, text).to_pylist()
    assert (first["id"], first["score"], first["at"].isoformat()) == (5, 1000.0, "2024-02-28T23:02:03")
    assert (first["paid"], first["ok"], second["id"], second["score"]) == (Decimal("1.50"), True, 7, float("-inf"))
    assert (second["at"].isoformat(), second["paid"], second["ok"]) == ("2024-02-29T00:00:00", Decimal("-0.10"), False)


def test_a_line_break_in_quotes_counts_as_a_line() -> None:
    text = 'id,name\n1,"a\n\nb"\n\n2,"say ""hi"", all"\nx,c\n'
    assert read(CSV, text.replace("x,c", "3,c"))["name"].to_pylist() == ["a\n\nb", 'say "hi", all', "c"]
    error = refused(CSV, text)
    assert (error.message[:22], error.details) == (
        "line 7: id: 'x' is not",
        {"line": 7, "record": 2, "field": "id"},
    )


def test_records_that_pieces_cut_anywhere_are_whole() -> None:
    text = "id,name\n" + "".join(f'{i},"{"n" * (i % 5)}""\n{i}"\n' for i in range(200))
    expected = [f'{"n" * (i % 5)}"\n{i}' for i in range(200)]
    assert all(read(CSV, text, piece=piece)["name"].to_pylist() == expected for piece in (1, 13, 1000))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the CSV has no header"),
        ("\n\n", "the CSV has no header"),
        ("id,nmae\n1,x\n", "line 1: nmae: there is no such field; did you mean 'name'?"),
        ("id,id\n", "line 1: id: it is sent twice"),
        ("name\n", "line 1: id: it is required but missing"),
        ("id,name\n1,x\n2\n", "line 3: it has 1 field(s), the header has 2"),
        ("id,name\n1,x,y\n", "line 2: it has 3 field(s), the header has 2"),
        ('id,name\n1,x"y\n2,"z"\n', "line 2: field 2 is not CSV; put a field"),
        ('id,name\n1,"x"y\n', "line 2: field 2 is not CSV; put a field"),
        ('id,name\n1, "x"\n', "line 2: field 2 is not CSV; put a field"),
        ('id,name\n1,"x\n2,y\n', "line 2: field 2 is not CSV"),
        ("id,name\n1,x\ry\n", "line 2: field 2 is not CSV; put a field"),
        ("id,name\r1,x\r", "line 1: the header is not CSV"),
        ("id," + "n" * 200_000 + "\n", "line 1: the header is not CSV"),
        (b"id,name\n1,x\n2,\xff\n", "line 3: the body is not UTF-8"),
        ("id,ok\n1,1\n", "line 2: ok: '1' is not a boolean"),
        ("id,at\n1,2023-02-30T00:00:00\n", "line 2: at: '2023-02-30T00:00:00' is not in the calendar"),
        ("id,at\n1,0000-01-01T00:00:00\n", "line 2: at: '0000-01-01T00:00:00' is not in the calendar"),
        ("id,at\n1,2024-01-01T00:00:00.1234567\n", "line 2: at: '2024-01-01T00:00:00.1234567' is finer"),
        ("id,paid\n1,1.005\n", "line 2: paid: '1.005' does not fit decimal(6,2) without loss"),
        ("id,score\n1,1e999\n", "line 2: score: 1E+999 is out of range"),
    ],
)
def test_csv_that_does_not_fit_names_the_line(text: str | bytes, said: str) -> None:
    assert refused(CSV, text).message.startswith(said)


def test_csv_has_no_form_for_nested_columns() -> None:
    schema = parse_schema({"fields": {"id": {"type": "long"}, "tags": {"type": "array", "items": "string"}}})
    assert refused(CSV, "id,tags\n", schema).message.startswith("line 1: tags: CSV cannot hold array<string>")
    assert read(CSV, "id\n1\n", schema).to_pylist() == [{"id": 1, "tags": None}]


def test_a_record_of_any_length_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_LONGEST", 2 << 20)
    assert "longer than 2 MiB" in refused(NDJSON, b'{"id": 1, "name": "' + b"x" * (3 << 20)).message
    assert "longer than 2 MiB" in refused(CSV, b'id,name\n1,"' + b"\n" * (3 << 20)).message


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("long", pa.array([1, None], pa.int8()), [1, None]),
        ("long", pa.array([2**63 - 1], pa.uint64()), [2**63 - 1]),
        ("long", pa.array([3.0]), [3]),
        ("integer", pa.array([Decimal("3.00")]), [3]),
        ("double", pa.array([0.5], pa.float16()), [0.5]),
        ("double", pa.array([2**53]), [2.0**53]),
        ("float", pa.array([0.25, float("inf")]), [0.25, float("inf")]),
        ("string", pa.array(["a", None], pa.large_string()), ["a", None]),
        ("string", pa.array(["a", None, "b" * 20], pa.string_view()), ["a", None, "b" * 20]),
        ("string", pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        ("string", pa.nulls(2), [None, None]),
        ("binary", pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        ("decimal(3,2)", pa.array([5], pa.uint64()), [Decimal("5.00")]),
        ("decimal(3,2)", pa.array([Decimal("1.2300")]), [Decimal("1.23")]),
        ("date", pa.array([86_400_000], pa.date64()), ["1970-01-02"]),
        ("timestamp", pa.array([1_000], pa.timestamp("ns")), ["1970-01-01T00:00:00.000001"]),
        ("timestamp", pa.array([1], pa.timestamp("s", tz="Asia/Tokyo")), ["1970-01-01T00:00:01"]),
        ("timestamptz", pa.array([1], pa.timestamp("ms")), ["1970-01-01T00:00:00.001000+00:00"]),
        ("uuid", pa.array([bytes(range(16))], pa.binary(16)), ["00010203-0405-0607-0809-0a0b0c0d0e0f"]),
        ("uuid", pa.array(["00010203-0405-0607-0809-0A0B0C0D0E0F"]), ["00010203-0405-0607-0809-0a0b0c0d0e0f"]),
    ],
    ids=lambda v: str(v) if isinstance(v, str) else "",
)
def test_an_arrow_type_that_carries_the_columns_is_taken(kind: str, values: pa.Array, expected: list[Any]) -> None:
    found = column(kind, values)
    assert [v.isoformat() if hasattr(v, "isoformat") else v for v in found] == expected


def test_what_stands_in_a_view_where_a_null_is_is_not_looked_at() -> None:
    texts = pa.array(["a" * 20, None, "b", None, "c" * 30] * 20_000, pa.string_view())
    validity, views, *shown = texts.buffers()
    words = bytearray(views)
    for place in range(1, len(texts), 5):
        words[16 * place : 16 * place + 16] = struct.pack("<i4sii", 2**31 - 1, b"what", 7, 2**31 - 1)
    hidden = pa.Array.from_buffers(texts.type, len(texts), [validity, pa.py_buffer(words), *shown])
    assert column("string", hidden) == texts.to_pylist()


def test_arrows_own_uuids_are_taken() -> None:
    values = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(range(16)), None], pa.binary(16)))
    assert column("uuid", values) == ["00010203-0405-0607-0809-0a0b0c0d0e0f", None]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("integer", pa.array([1, 2**31])),
        ("long", pa.array([1, 2**63], pa.uint64())),
        ("long", pa.array([1.0, 1.5])),
        ("long", pa.array([1.0, float("nan")])),
        ("double", pa.array([1, 2**53 + 1])),
        ("float", pa.array([0.5, 0.1])),
        ("float", pa.array([0.5, 1e300])),
        ("decimal(3,2)", pa.array([5, 10])),
        ("decimal(3,2)", pa.array([Decimal("1.230"), Decimal("1.234")])),
        ("date", pa.array([0, 2_932_897], pa.date32())),
        ("timestamp", pa.array([1_000, 1_001], pa.timestamp("ns"))),
        ("timestamp", pa.array([0, -62_135_596_801], pa.timestamp("s"))),
        ("uuid", pa.array(["00010203-0405-0607-0809-0a0b0c0d0e0f", "x"])),
    ],
)
def test_an_arrow_value_that_would_lose_something_is_named(kind: str, values: pa.Array) -> None:
    error = misfit(kind, pa.concat_arrays([pa.nulls(70_000, values.type), values]))
    assert error.message.startswith("records[70001].c: ")
    assert (error.field, error.details) == ("records[70001].c", {"record": 70001, "field": "c"})


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", pa.array([1])),
        ("long", pa.array(["1"])),
        ("boolean", pa.array([1])),
        ("double", pa.array([Decimal("0.1")])),
        ("decimal(3,2)", pa.array([0.5])),
        ("date", pa.array([0], pa.timestamp("s"))),
        ("timestamp", pa.array([0], pa.date32())),
        ("string", pa.array([b"x"])),
        ("uuid", pa.array([b"x" * 15], pa.binary(15))),
    ],
)
def test_an_arrow_type_that_cannot_carry_the_columns_is_refused_before_any_row(kind: str, values: pa.Array) -> None:
    error = misfit(kind, values)
    assert error.message.startswith("c: Arrow's ")
    assert "cast it before sending" in error.message


def test_null_in_a_required_column_is_named_also_inside_a_dictionary() -> None:
    assert misfit("long", pa.array([1, None]), True).details == {"record": 1, "field": "c"}
    hidden = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["a", None]))
    assert misfit("string", hidden, True).details == {"record": 1, "field": "c"}


def test_a_value_of_a_dictionary_that_no_row_has_does_no_harm() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array([1, 2**40]))
    assert column("integer", values) == [1, 1]


def test_nested_arrow_values_are_fitted_at_every_depth() -> None:
    schema = parse_schema(
        {
            "fields": {
                "c": {
                    "type": "array",
                    "items": {
                        "type": "struct",
                        "fields": {"n": {"type": "integer", "required": True}, "t": {"type": "string"}},
                    },
                },
                "m": {"type": "map", "key_type": "string", "value_type": "date"},
            }
        }
    )
    item = pa.struct([("t", pa.string_view()), ("n", pa.int64())])
    good = pa.array([[{"t": "a", "n": 1}, None], None, [], [{"t": None, "n": 2}]], pa.large_list(item))
    maps = pa.array([[("k", 0)], None, [], [("k", 86_400_000), ("l", None)]], pa.map_(pa.large_string(), pa.date64()))
    table = read(ARROW, stream(pa.table({"m": maps, "c": good})), schema)
    assert table["c"].to_pylist() == [[{"n": 1, "t": "a"}, None], None, [], [{"n": 2, "t": None}]]
    assert table["m"].to_pylist() == [[("k", date(1970, 1, 1))], None, [], [("k", date(1970, 1, 2)), ("l", None)]]
    bad = pa.array([None, [{"t": "a", "n": 1}, {"t": "b", "n": None}]], pa.list_(item))
    error = refused(ARROW, stream(pa.table({"c": bad})), schema)
    assert error.field == "records[1].c[].n"
    twice = pa.array([[("k", 0), ("k", 0)]], pa.map_(pa.string(), pa.date64()))
    assert "has the same key twice" in refused(ARROW, stream(pa.table({"m": twice})), schema).message


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"id": [1], "nmae": ["x"]}, "nmae: there is no such field; did you mean 'name'?"),
        ({"name": ["x"]}, "id: it is required but missing"),
    ],
)
def test_arrow_columns_are_checked_by_name(table: dict[str, Any], said: str) -> None:
    assert refused(ARROW, stream(pa.table(table))).message.startswith(said)


def test_a_body_that_is_no_whole_arrow_stream_is_refused() -> None:
    raw = stream(pa.table({"id": list(range(1000))}))
    file = pa.BufferOutputStream()
    with pa.ipc.new_file(file, pa.schema([("id", pa.int64())])):
        pass
    for content, said in (
        (b"", "not a whole Arrow IPC stream"),
        (b"id\n1\n" * 10, "not an Arrow IPC stream"),
        (raw[:100], "not a whole Arrow IPC stream"),
        (raw[:-200], "not a whole Arrow IPC stream"),
        (raw + b"x", "continues after the end"),
        (file.getvalue().to_pybytes(), "is an Arrow file"),
        (raw[:4] + b"\xff\xff\xff\x7f" + raw[8:], "invalid length"),
    ):
        error = refused(ARROW, content)
        assert isinstance(error, InvalidRequest)
        assert said in error.message


def test_no_byte_of_an_arrow_stream_can_do_harm() -> None:
    schema = parse_schema({"fields": {"a": {"type": "string"}, "b": {"type": "array", "items": "long"}}})
    raw = stream(pa.table({"a": ["x", None, "yz"], "b": [[1], None, [2, 3]]}), compression="zstd")

    @given(st.integers(0, len(raw) - 1), st.integers(0, 255))
    def holds(place: int, byte: int) -> None:
        broken = raw[:place] + bytes([byte]) + raw[place + 1 :]
        with contextlib.suppress(FirnError):
            read(ARROW, broken, schema).validate(full=True)

    holds()


def test_a_batch_that_takes_or_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipc, "MOST_BYTES", 4 << 20)
    large = pa.table({"id": pa.repeat(1, 1 + (ipc.MOST_BYTES >> 3))})
    assert "may have" in refused(ARROW, stream(large, rows=1 << 30)).message
    assert "unpacks to" in refused(ARROW, stream(large, rows=1 << 30, compression="zstd")).message


def test_what_a_dictionary_unpacks_to_is_held_a_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "_MOST_BYTES", 4 << 20)
    long_text = pa.array(["z" * 30_000])
    values = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), 3000), long_text)
    raw = stream(pa.table({"id": pa.array(range(3000)), "name": values}))
    rows = 0
    for batch in DECODERS[ARROW](body(raw), PERSON, None):
        assert batch.nbytes < 6 << 20
        rows += batch.num_rows
    assert rows == 3000


@pytest.mark.parametrize(
    "sent", [ARROW, "Application/X-NDJSON", "text/csv; charset=utf-8", 'text/csv; charset="UTF-8"; header=present']
)
def test_a_media_type_may_have_parameters(sent: str) -> None:
    assert decoder(sent) is DECODERS[sent.partition(";")[0].lower()]


@pytest.mark.parametrize(
    ("kind", "encoding", "said"),
    [
        (None, None, "Content-Type is missing"),
        ("application/json", None, "Content-Type is 'application/json'; send application/vnd.apache.arrow.stream"),
        ("text/csv; charset=latin-1", None, "charset 'latin-1'"),
        ("text/csv; header=absent", None, "header=absent"),
        (CSV, "gzip", "Content-Encoding is 'gzip'"),
    ],
)
def test_a_form_that_is_not_read_is_refused_by_name(kind: str | None, encoding: str | None, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decoder(kind, encoding)
    assert said in caught.value.message


def test_a_body_that_is_packed_all_the_same_is_refused() -> None:
    assert "line 1" in refused(NDJSON, gzip.compress(b'{"id": 1}')).message


def test_a_fast_client_waits_for_the_reader() -> None:
    slow, piece = Body(limit_mb=1000), b"x" * (1 << 20)
    put = threading.Event()

    async def feed() -> None:
        for _ in range(100):
            await slow.put(piece)
        slow.end()
        put.set()

    feeding = threading.Thread(target=asyncio.run, args=(feed(),), daemon=True)
    feeding.start()
    assert not put.wait(0.3)
    assert slow.size < 40 << 20
    while slow.read(1 << 20):
        pass
    feeding.join(30)
    assert slow.size == 100 << 20


def test_a_body_over_its_limit_stops_its_reader_and_its_client() -> None:
    small = Body(limit_mb=1)
    assert asyncio.run(small.put(b"x" * (1 << 20)))
    assert not asyncio.run(small.put(b"x"))
    with pytest.raises(BodyTooLarge, match="larger than 1 MiB"):
        small.read(10)


def test_a_client_that_falls_silent_or_leaves_ends_the_reading() -> None:
    silent, left = Body(1, silence_s=0.05), Body(1)
    started = time.monotonic()
    with pytest.raises(InvalidRequest, match="the body did not continue"):
        silent.read(1)
    assert time.monotonic() - started < 5
    left.abandon(ClientGone())
    with pytest.raises(ClientGone):
        left.read(1)


def test_the_digest_is_that_of_the_whole_body() -> None:
    cut, whole = body(b"abc" * 1000, 7), body(b"abc" * 1000)
    assert read_all(cut) == read_all(whole) == b"abc" * 1000
    assert cut.digest() == whole.digest() != body(b"").digest()


def read_all(source: Body) -> bytes:
    def pieces() -> Iterator[bytes]:
        while piece := source.read(1000):
            yield bytes(piece)

    return b"".join(pieces())


def test_a_length_in_a_message_that_points_outside_is_refused() -> None:
    raw = bytearray(stream(pa.table({"id": [1, 2]}), compression="lz4"))
    start = raw.index(struct.pack("<I", 0xFFFFFFFF), 8)
    for place in range(start + 8, start + 60):
        broken = bytes(raw[:place]) + b"\xff\xff\xff\x7f" + bytes(raw[place + 4 :])
        with contextlib.suppress(FirnError):
            read(ARROW, broken)

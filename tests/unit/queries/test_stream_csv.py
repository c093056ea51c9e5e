"""Arrow batches as CSV: RFC 4180, and every value as JSON has it."""

import re
import time
from datetime import time as clock
from decimal import Decimal
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.session.rows import json_rows, to_arrow
from service.errors import InvalidQuery
from service.model.records import read_records
from service.model.wire import render
from service.queries.streaming import csv
from service.queries.streaming.encode import encode
from tests.strategies import decimals, records, schemas

_CELL = re.compile(r'("(?:[^"]|"")*"|[^",\r\n]*)(,|\r\n)')


def cells(text: bytes) -> list[list[str | None]]:
    """The lines of an RFC 4180 text; None for a cell that holds nothing, not even quotes."""
    lines: list[list[str | None]] = [[]]
    place, whole = 0, text.decode()
    while place < len(whole):
        found = _CELL.match(whole, place)
        assert found, f"no cell at {whole[place : place + 50]!r}"
        cell, end = found.groups()
        lines[-1].append(cell[1:-1].replace('""', '"') if cell.startswith('"') else cell or None)
        if end == "\r\n":
            lines.append([])
        place = found.end()
    assert lines.pop() == [], "the last line is not ended"
    return lines


def as_json(value: Any) -> str | None:
    """A JSON value as a cell shows it: texts bare, everything else as JSON writes it."""
    if value is None or isinstance(value, str):
        return value
    return render(value).decode().rstrip("\n")


def written(values: list[Any], kind: pa.DataType) -> list[str | None]:
    batch = pa.record_batch({"c": pa.array(values, kind), "end": pa.array([1] * len(values))})
    return [line[0] for line in cells(csv.lines(batch))]


@given(st.data())
def test_every_value_of_every_type_reads_as_json_has_it(data: st.DataObject) -> None:
    schema = data.draw(schemas(max_columns=4))
    table = to_arrow(schema, read_records(schema, data.draw(records(schema))))
    # As JSON carries it, and not as Python holds it: dates and decimals are texts there.
    expected = [[as_json(v) for v in row.values()] for row in orjson.loads(render(json_rows(table)))]
    # A slice shares its columns' buffers with the whole.
    for cut in (0, data.draw(st.integers(0, table.num_rows))):
        got = [line for batch in table.slice(cut).to_batches() for line in cells(csv.lines(batch))]
        assert got == expected[cut:]


@given(decimals().flatmap(lambda d: st.tuples(st.just(d), st.integers(-(10**d.precision) + 1, 10**d.precision - 1))))
def test_a_decimal_is_written_plainly_whatever_its_scale(drawn: tuple[Any, int]) -> None:
    kind, unscaled = drawn
    value = Decimal(f"{unscaled}E-{kind.scale}")
    assert written([value], pa.decimal128(kind.precision, kind.scale)) == [format(value, "f")]


@pytest.mark.parametrize(
    ("values", "kind", "shown"),
    [
        ([None, "", " ", "a"], pa.string(), [None, "", " ", "a"]),
        ([None, b"", b"\xff"], pa.binary(), [None, "", "/w=="]),
        ([1.0, -0.0, 1e16, 1e-6, None], pa.float64(), ["1.0", "-0.0", "1e+16", "1e-6", None]),
        ([float("nan"), float("inf"), -float("inf")], pa.float64(), ["NaN", "Infinity", "-Infinity"]),
        ([0.1], pa.float32(), ["0.1"]),
        ([True, False, None], pa.bool_(), ["true", "false", None]),
        ([0, 1], pa.timestamp("us"), ["1970-01-01T00:00:00", "1970-01-01T00:00:00.000001"]),
        ([0, None], pa.timestamp("us", "UTC"), ["1970-01-01T00:00:00Z", None]),
        ([-719_162, 2_932_897], pa.date32(), ["0001-01-01", "10000-01-01"]),
        ([[], None, [1, None]], pa.list_(pa.int32()), ["[]", None, "[1,null]"]),
        ([[("k", 'a"b')], []], pa.map_(pa.string(), pa.string()), ['{"k":"a\\"b"}', "{}"]),
        ([{"a": 1.5, "b": "x,y"}], pa.struct({"a": pa.float64(), "b": pa.string()}), ['{"a":1.5,"b":"x,y"}']),
        ([clock(1, 2, 3)], pa.time64("us"), ["01:02:03"]),
        ([None, None], pa.null(), [None, None]),
    ],
)  # fmt: skip
def test_a_cell_of_each_kind(values: list[Any], kind: pa.DataType, shown: list[str | None]) -> None:
    assert written(values, kind) == shown


def test_only_what_needs_quotes_has_them_and_lines_end_as_the_rfc_says() -> None:
    batch = pa.record_batch({"a,b": ["x", 'say "hi"', None], "c": ["", "1\n2", "-"], "d": [1, None, 3]})
    text = csv.header(batch.schema.names) + csv.lines(batch)
    assert text == b'"a,b",c,d\r\nx,"",1\r\n"say ""hi""","1\n2",\r\n,-,3\r\n'


def test_duckdb_reads_back_what_was_written(tmp_path: Any) -> None:
    texts = ["plain", "a,b", 'q"q', "line\r\nbreak", "", None, "null", "é😀", " pad "]
    batch = pa.record_batch({"n": pa.array(range(len(texts))), "t": texts})
    path = tmp_path / "x.csv"
    path.write_bytes(b"".join(encode("csv", batch.schema, [batch.slice(0, 4), batch.slice(4)])))
    read = duckdb.sql(
        f"SELECT n, t FROM read_csv('{path}', header=true, quote='\"', columns={{'n': 'BIGINT', 't': 'VARCHAR'}}, "
        "allow_quoted_nulls=false) ORDER BY n"
    )
    assert read.fetchall() == list(enumerate(texts))


@pytest.mark.parametrize("form", ["csv", "arrow"])
def test_a_text_that_is_not_utf8_is_refused_and_not_passed_on(form: Any) -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    with pytest.raises(InvalidQuery, match="not valid UTF-8"):
        list(encode(form, pa.schema({"t": pa.string()}), [pa.record_batch({"t": broken})]))


def test_without_rows_there_are_still_the_columns() -> None:
    schema = pa.schema({"a": pa.int64(), "b": pa.string()})
    assert b"".join(encode("csv", schema, [])) == b"a,b\r\n"
    read = pa.ipc.open_stream(b"".join(encode("arrow", schema, []))).read_all()
    assert (read.schema, read.num_rows) == (schema, 0)


def test_many_batches_make_few_chunks_and_each_row_once() -> None:
    schema = pa.schema({"n": pa.int64()})
    batches = [pa.record_batch({"n": pa.array(range(i, i + 1000), pa.int64())}) for i in range(0, 500_000, 1000)]
    chunks = list(encode("arrow", schema, batches))
    assert pa.ipc.open_stream(b"".join(chunks)).read_all()["n"].to_pylist() == list(range(500_000))
    assert max(map(len, chunks)) < 300 * 1024
    assert len(chunks) < 20


def test_plain_columns_are_written_at_two_hundred_thousand_rows_a_second_and_more() -> None:
    n = 8192
    batch = pa.record_batch(
        {
            "id": pa.array(range(n)),
            "name": [f"name {i}" for i in range(n)],
            "price": pa.array([Decimal(i) / 100 for i in range(n)], pa.decimal128(10, 2)),
            "at": pa.array([i * 1_000_003 for i in range(n)], pa.timestamp("us", "UTC")),
            "ratio": [i / 7 for i in range(n)],
        }
    )
    best = 0.0
    for _ in range(20):  # whatever else the machine does meanwhile
        started = time.monotonic()
        csv.lines(batch)
        best = max(best, n / (time.monotonic() - started))
    assert best > 200_000

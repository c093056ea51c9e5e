"""Numbers, times and text on the wire: what is written as JSON comes back as the same JSON, to the last digit."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from service.model import wire
from tests.harness import Firn
from tests.support.marks import thorough_after

TYPES = {
    "string": "string",
    "integer": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "binary": "binary",
    "uuid": "uuid",
    "wide": "decimal(38,10)",
    "money": "decimal(5,2)",
    "whole": "decimal(38,0)",
}
NESTED = {
    "list": {"type": "array", "items": "decimal(5,2)"},
    "map": {"type": "map", "key_type": "long", "value_type": "timestamptz"},
    "struct": {"type": "struct", "fields": {"a b": {"type": "binary"}, "c": {"type": "array", "items": "double"}}},
}
BYTES = base64.b64encode(bytes(range(256))).decode()
LONG_TEXT = "é😀" * 30_000

# A column, the JSON text that is sent, and the one that comes back where that is another.
SAME: list[tuple[str, str]] = [
    ("integer", "2147483647"),
    ("integer", "-2147483648"),
    ("long", "9223372036854775807"),
    ("long", "-9223372036854775808"),
    ("long", "9007199254740993"),
    ("double", "0.1"),
    ("double", "-0.0"),
    ("double", "5e-324"),
    ("double", "1.7976931348623157e308"),
    ("double", '"NaN"'),
    ("double", '"Infinity"'),
    ("double", '"-Infinity"'),
    ("float", '"NaN"'),
    ("float", "0.5"),
    ("float", "16777216.0"),
    ("boolean", "true"),
    ("boolean", "false"),
    ("wide", '"1234567890123456789012345678.0123456789"'),
    ("wide", '"-9999999999999999999999999999.9999999999"'),
    ("money", '"0.00"'),
    ("whole", '"99999999999999999999999999999999999999"'),
    ("date", '"0001-01-01"'),
    ("date", '"1582-10-10"'),
    ("date", '"1969-12-31"'),
    ("date", '"9999-12-31"'),
    ("timestamp", '"0001-01-01T00:00:00"'),
    ("timestamp", '"2024-03-31T02:30:00.000001"'),
    ("timestamp", '"9999-12-31T23:59:59.999999"'),
    ("timestamptz", '"1582-10-10T00:00:00Z"'),
    ("timestamptz", '"2024-03-31T01:30:00.000001Z"'),
    ("timestamptz", '"9999-12-31T23:59:59.999999Z"'),
    ("binary", '""'),
    ("binary", json.dumps(BYTES)),
    ("uuid", '"123e4567-e89b-12d3-a456-426614174000"'),
    ("string", '""'),
    ("string", '" "'),
    ("string", '"null"'),
    ("string", '"NaN"'),
    ("string", r'"it\u0027s \"quoted\" \\ with ` and % and :name and ${env:HOME}"'),
    ("string", r'"\u0000"'),
    ("string", r'"a\u0000b\u0001\u007f"'),
    ("string", r'"line\r\n\tbreak\u2028"'),
    ("string", '"😀 שלום \u202e日本語 e\u0301 é"'),
    ("string", r'"\ud83d\ude00"'),
    ("string", json.dumps(LONG_TEXT)),
]
OTHER: list[tuple[str, str, str]] = [
    ("integer", "1.0", "1"),
    ("integer", "1e3", "1000"),
    ("long", "-0", "0"),
    ("double", "9007199254740993", "9007199254740992.0"),
    ("double", "1", "1.0"),
    ("wide", "1234567890123456789012345678.0123456789", '"1234567890123456789012345678.0123456789"'),
    ("wide", "1e3", '"1000.0000000000"'),
    ("money", "19.9", '"19.90"'),
    ("money", '"-1e-2"', '"-0.01"'),
    ("money", "7", '"7.00"'),
    ("whole", "99999999999999999999999999999999999999", '"99999999999999999999999999999999999999"'),
    ("timestamp", '"2024-01-31"', '"2024-01-31T00:00:00"'),
    ("timestamp", '"2024-01-31T10:00:00+02:00"', '"2024-01-31T08:00:00"'),
    ("timestamp", '"2024-01-31 10:00:00Z"', '"2024-01-31T10:00:00"'),
    ("timestamp", '"2024-01-31T10:00:00.100000000"', '"2024-01-31T10:00:00.100000"'),
    ("timestamptz", '"2024-01-31T10:00:00-05:30"', '"2024-01-31T15:30:00Z"'),
    ("timestamptz", '"2024-01-31T10:00"', '"2024-01-31T10:00:00Z"'),
    ("timestamptz", '"2024-01-01T00:30:00+01:00"', '"2023-12-31T23:30:00Z"'),
    ("uuid", '"123E4567-E89B-12D3-A456-426614174000"', '"123e4567-e89b-12d3-a456-426614174000"'),
]
WHOLE: list[tuple[str, str]] = [
    ("list", '["1.00", null, "-999.99"]'),
    ("list", "[]"),
    ("map", '{"-9223372036854775808": "2024-01-31T10:00:00Z", "7": null}'),
    ("map", "{}"),
    ("struct", '{"a b": "AAE=", "c": [0.1, null, "NaN"]}'),
    ("struct", '{"a b": null, "c": null}'),
]
CASES = [*((c, sent, sent) for c, sent in SAME), *OTHER, *((c, sent, sent) for c, sent in WHOLE)]


@pytest.fixture(scope="module")
def rows(firn: Firn) -> dict[int, dict[str, Any]]:
    """Every case written in one request as a row of its own, and what a query says of it."""
    fields = {"id": {"type": "long", "required": True}, **{n: {"type": t} for n, t in TYPES.items()}, **NESTED}
    firn.ok({"operation": "CREATE_TABLE", **TABLE, "schema": {"fields": fields}})
    records = ", ".join(f'{{"id": {i}, "{column}": {sent}}}' for i, (column, sent, _) in enumerate(CASES))
    answer = firn.post(f'{{"operation": "WRITE", {_address()}, "records": [{records}]}}')
    assert answer.get("records_written") == len(CASES), answer
    return {row["id"]: row for row in firn.rows("values", "t")}


TABLE = {"tenant_id": "values", "table": "t"}


def _address() -> str:
    return json.dumps(TABLE)[1:-1]


def _id(case: tuple[str, str, str]) -> str:
    return f"{case[0]} {case[1][:40]}"


@pytest.mark.parametrize("place", range(len(CASES)), ids=[_id(case) for case in CASES])
def test_a_value_is_read_back_as_it_was_sent(place: int, rows: dict[int, dict[str, Any]]) -> None:
    column, _, back = CASES[place]
    got = rows[place].pop(column)
    expected = wire.parse(back)
    assert (type(got), str(got)) == (type(expected), str(expected)) or got == expected
    assert type(got) is type(expected)
    assert set(rows[place].values()) == {place, None}


def _in_filters() -> Iterator[Any]:
    """The cases that a filter may hold; `make test` runs one of each column that comes back the same, and one other."""
    seen = set()
    for place, case in enumerate(CASES[: -len(WHOLE)]):
        column, sent, back = case
        kind = column, sent == back
        yield pytest.param(place, id=_id(case), marks=pytest.mark.thorough if kind in seen else ())
        seen.add(kind)


@pytest.mark.parametrize("place", [*_in_filters()])
def test_a_value_is_found_by_the_json_it_was_sent_as(place: int, firn: Firn, rows: dict[int, dict[str, Any]]) -> None:
    column, sent, back = CASES[place]
    for value in {sent, back}:
        request = f'{{"operation": "QUERY", {_address()}, "projection": ["id"], "filter": {{"{column}": {value}}}}}'
        answer = firn.post(request)
        assert {"id": place} in answer.get("data", ()), answer


def test_an_int64_of_sql_and_of_aggregates_is_exact_too(firn: Firn, rows: dict[int, dict[str, Any]]) -> None:
    most = [{"op": "max", "field": "long", "alias": "most"}, {"op": "min", "field": "long", "alias": "least"}]
    assert firn.rows("values", "t", aggregations=most) == [{"most": 2**63 - 1, "least": -(2**63)}]
    sql = {"operation": "QUERY", "tenant_id": "values", "sql": "SELECT long FROM t WHERE long = :n"}
    assert firn.ok({**sql, "params": {"n": 2**63 - 1}})["data"] == [{"long": 2**63 - 1}]


def test_the_least_and_the_most_of_every_plain_type_can_be_asked_for(
    firn: Firn, rows: dict[int, dict[str, Any]]
) -> None:
    for column in TYPES:
        least, most = ({"op": op, "field": column, "alias": op} for op in ("min", "max"))
        [row] = firn.rows("values", "t", aggregations=[least, most])
        assert None not in row.values()


@pytest.mark.parametrize("codec", thorough_after(1, ["zstd", "snappy", "gzip", "uncompressed"]))
def test_a_compression_that_is_accepted_can_be_written(codec: str, firn: Firn, tenant: str) -> None:
    table = {"tenant_id": tenant, "table": "t"}
    create = {"operation": "CREATE_TABLE", **table, "schema": {"fields": {"a": {"type": "string"}}}}
    answer = firn.post({**create, "properties": {"compression": codec}})
    if not answer["success"]:
        assert answer["error"]["field"] == "properties.compression"
        return
    firn.ok({"operation": "WRITE", **table, "records": [{"a": "x"}]})
    assert firn.rows(tenant, "t") == [{"a": "x"}]


def test_bytes_that_are_no_text_are_refused_as_text_and_not_a_defect(
    firn: Firn, rows: dict[int, dict[str, Any]]
) -> None:
    asked = {"operation": "QUERY", **TABLE, "projection": [{"field": "binary", "alias": "a", "cast": "string"}]}
    for request in (asked, {"operation": "QUERY", "tenant_id": "values", "sql": "SELECT CAST(X'ff' AS STRING) AS a"}):
        response = firn.send(request)
        assert response.status_code in (200, 400), response.text


def test_an_answer_is_utf_8_json(firn: Firn, rows: dict[int, dict[str, Any]]) -> None:
    response = firn.send({"operation": "QUERY", **TABLE})
    assert response.headers["content-type"] == "application/json"
    assert "😀 שלום \u202e日本語 e\u0301 é".encode() in response.content
    json.loads(response.content.decode("utf-8"), parse_constant=pytest.fail)

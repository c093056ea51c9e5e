"""Records of a large WRITE become the same Arrow table as if they were read one by one."""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.session.records import read_many
from service.engine.session.rows import to_arrow
from service.errors import InvalidRecord
from service.model.records import read_records
from service.model.schema.types import Field, Primitive, TableSchema

PLAIN, ZONED = (TableSchema((Field("at", Primitive(kind)),)) for kind in ("timestamp", "timestamptz"))
times = st.datetimes(datetime(1, 1, 1, 1), datetime(9999, 12, 31, 12)).map(datetime.isoformat)
ODD = [
    *(
        "2024-02-30T00:00:00",
        "2023-02-29T00:00:00Z",
        "2024-01-01T24:00:00",
        "2024-01-01T00:00:60",
        "0000-01-01T00:00:00",
    ),
    *("2024-01-01T00:00:00.1234567", "2024-01-01T00:00:00.1234560", "2024-01-01", "2024-01-01T10:00", "x", "", 5, True),
    *("2024-01-01T00:00:00Z\n", "2024-01-01T00:00:00\n", "\ud800", "20240-01-01T00:00:00", ["2024-01-01T00:00:00"]),
]


def read_either_way(schema: TableSchema, texts: list[Any]) -> tuple[Any, Any]:
    """Both results, or the refusals."""
    records, found = [{"at": text} for text in texts], list[Any]()
    for read in (read_many, lambda schema, records: to_arrow(schema, read_records(schema, records))):
        try:
            found.append(read(schema, records))
        except InvalidRecord as e:
            found.append((e.message, e.field))
    return found[0], found[1]


@pytest.mark.parametrize("schema", [PLAIN, ZONED], ids=["timestamp", "timestamptz"])
@given(
    texts=st.lists(st.none() | times, max_size=4),
    end=st.sampled_from(["", "Z", "+02:00"]),
    odd=st.sampled_from(["", "Z"]),
)
def test_times_are_read_as_ever(schema: TableSchema, texts: list[str | None], end: str, odd: str) -> None:
    ended = [text and text + (odd if n == 2 else end) for n, text in enumerate(texts)]
    many, each = read_either_way(schema, ended)
    assert many == each
    assert many.schema == each.schema


@pytest.mark.parametrize("schema", [PLAIN, ZONED], ids=["timestamp", "timestamptz"])
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_odd_times_are_read_or_refused_as_ever(schema: TableSchema, odd: Any) -> None:
    for texts in ([odd], ["2024-01-01T00:00:00", odd], [None, "2024-01-01T00:00:00Z", odd]):
        many, each = read_either_way(schema, texts)
        assert many == each


def test_a_missing_required_time_is_refused_with_its_record() -> None:
    schema = TableSchema((Field("at", Primitive("timestamp"), required=True),))
    many, each = read_either_way(schema, ["2024-01-01T00:00:00", None])
    assert many == each
    assert many[1] == "records[1].at"


def test_a_plain_column_of_times_needs_no_reading_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.session.records.read_column", None)
    for schema in (PLAIN, ZONED):
        for text in ("2024-02-29T23:59:59.1", "2024-02-29T23:59:59Z"):
            assert read_many(schema, [{"at": text}, {"at": None}]).num_rows == 2

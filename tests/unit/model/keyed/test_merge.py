"""Many records are merged column by column as few are row by row."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from service.edits.upsert import prepare
from service.model.keyed.apply import KeyedRows, apply_changes
from service.model.keyed.changes import PutRows, RowPlace
from service.model.keyed.contents import contents
from service.model.keyed.merge import merge_records
from service.model.keyed.pool import with_columns
from service.model.schema.types import Field, Primitive, TableSchema

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("number", pa.float64()), ("small", pa.float32())])
_TABLE = TableSchema(
    tuple(Field(n, Primitive(k)) for n, k in zip(SCHEMA.names, ("long", "string", "double", "float"), strict=True))
)
_NUMBERS = st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")])
_VALUES = {"text": st.sampled_from([None, "a", "b"]), "number": _NUMBERS, "small": _NUMBERS}
_ROWS = st.fixed_dictionaries({"id": st.integers(0, 5), **_VALUES})
_RECORDS = st.lists(
    st.fixed_dictionaries({"id": st.integers(0, 8)}, optional=_VALUES), min_size=1, unique_by=lambda r: r["id"]
)


def _sent(record: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it: NaN is text."""
    return {name: "NaN" if value != value else value for name, value in record.items()}


@given(st.lists(_ROWS), _RECORDS, st.sets(st.sampled_from(list(_VALUES))))
def test_records_are_merged_as_row_by_row(
    rows: list[dict[str, Any]], records: list[dict[str, Any]], update: set[str]
) -> None:
    sent, how = prepare(_TABLE, [_sent(record) for record in records], ("id",), frozenset(update))
    numbers = {record["id"]: number for number, record in enumerate(records)}
    met = [row for row in rows if row["id"] in numbers]
    old = pa.Table.from_pylist(met, schema=SCHEMA)
    places = [RowPlace("f", number) for number in range(len(met))]
    expected = apply_changes(SCHEMA, KeyedRows(old, places), [PutRows(sent, how)])
    counts = expected.changes[0].counts

    changed, merged = merge_records(SCHEMA, old, sent, [numbers[row["id"]] for row in met], how)
    keys = {row["id"] for row in met}
    new = with_columns(SCHEMA, sent.filter(pa.array([r["id"] not in keys for r in records], pa.bool_())))
    assert [place for place, is_changed in zip(places, changed.to_pylist(), strict=True) if is_changed] == list(
        expected.gone
    )
    assert (changed.to_pylist().count(True), new.num_rows) == (counts.updated, counts.inserted)
    assert contents(pa.concat_tables([merged.filter(changed), new])) == contents(expected.new)

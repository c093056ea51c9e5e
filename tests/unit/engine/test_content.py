"""What a row holds is compared and hashed so that no null, list or map is taken for another."""

import pytest

from service.engine.sql.content import comparable, hashed, row_hash, same
from service.model.schema.types import Array, ColumnType, Field, Map, Primitive, Struct

TEXT, NUMBER = Primitive("string"), Primitive("integer")
COUNTS = Map(TEXT, NUMBER)


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (NUMBER, "x IS NULL, x"),
        (Array(NUMBER), "coalesce(size(x), -1), transform(x, e0 -> struct(e0 IS NULL, e0))"),
        (Struct((Field("a", NUMBER, False),)), "x IS NULL, struct(x.`a` IS NULL, x.`a`)"),
        (
            COUNTS,
            "coalesce(size(x), -1), sort_array(transform(map_entries(x), "
            "e0 -> struct(e0.key IS NULL, e0.key, e0.value IS NULL, e0.value)))",
        ),
    ],
)
def test_a_value_is_hashed_behind_its_mark_or_length(kind: ColumnType, parts: str) -> None:
    assert hashed([(kind, "x"), (NUMBER, "y")]) == f"xxhash64({parts}, y IS NULL, y)"


def test_a_rows_hash_takes_all_its_columns() -> None:
    fields = [Field("a", NUMBER, False), Field("b", TEXT, False)]
    assert row_hash(fields, "t") == "xxhash64(t.`a` IS NULL, t.`a`, t.`b` IS NULL, t.`b`)"


def test_a_map_compares_as_its_entries_in_order() -> None:
    entries = "sort_array(transform(map_entries({}), e{d} -> struct(e{d}.key, e{d}.value)))"
    assert same(COUNTS, "x", "y") == f"{entries.format('x', d=0)} <=> {entries.format('y', d=0)}"
    assert comparable(Array(COUNTS), "x") == f"transform(x, e0 -> {entries.format('e0', d=1)})"
    assert comparable(Array(NUMBER), "x") == "x"

"""A WRITE that waits while its table gets columns."""

from dataclasses import replace
from typing import Any, cast

from service.catalog.tables import Table
from service.model.call import Call
from service.model.names import TableName
from service.model.schema.definition import parse_schema
from service.model.schema.derived import DerivedColumn, add_derived, parse_transform
from service.model.schema.types import Field, Primitive, TableSchema
from service.writes.entry import SMALL, PendingWrite, together
from tests.fakes import FakeTable

NAME = TableName("acme", "shop", "orders")
SCHEMA = parse_schema({"fields": {"id": {"type": "long", "required": True}}})
[TWICE] = parse_transform({"twice": {"expression": "id * 2"}}, SCHEMA, {})
WITH_TWICE = (replace(TWICE, type=Primitive("long")),)


def table(schema: TableSchema, derived: tuple[DerivedColumn, ...] = (), uuid: str = "one") -> Table:
    return cast(Table, FakeTable(NAME, uuid, schema, derived=derived))


def entry(records: int) -> PendingWrite:
    made = PendingWrite(NAME, Call("r"), [{"id": n} for n in range(records)], 0, cast(Any, None))
    made.fit(table(SCHEMA))
    return made


def test_records_that_are_not_kept_follow_a_table_that_has_got_derived_columns() -> None:
    waiting, now = entry(SMALL + 1), table(add_derived(SCHEMA, WITH_TWICE), WITH_TWICE)
    assert waiting.records == []
    assert waiting.follow(now)
    assert waiting.table is now
    rows = together([waiting])
    assert rows.column_names == ["id", "twice"]
    assert rows["twice"].null_count == rows.num_rows == SMALL + 1
    assert waiting.follow(now)
    assert together([waiting]).schema == rows.schema


def test_they_do_not_follow_one_that_is_another_or_wants_values_of_them() -> None:
    more = TableSchema((*SCHEMA.fields, Field("other", Primitive("long"))))
    for other in (table(more), table(SCHEMA, uuid="two"), table(parse_schema({"fields": {"x": {"type": "long"}}}))):
        waiting = entry(SMALL + 1)
        before = waiting.table
        assert not waiting.follow(other)
        assert waiting.table is before


def test_records_that_are_kept_are_checked_again_instead() -> None:
    assert not entry(2).follow(table(add_derived(SCHEMA, WITH_TWICE), WITH_TWICE))

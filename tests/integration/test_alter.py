"""ALTER_TABLE: rows that are there are read under what the columns are now, and all of a request happens or none."""

from typing import Any

import pytest

from tests.harness import Firn
from tests.support.tables import ServedTable

FIELDS = {
    "id": {"type": "integer", "required": True},
    "name": {"type": "string"},
    "price": {"type": "decimal(5,2)"},
    "ratio": {"type": "float"},
    "home": {"type": "struct", "fields": {"city": {"type": "string"}}},
    "day": {"type": "date"},
}
ROW = {"id": 1, "name": "a", "price": "1.50", "ratio": 0.5, "home": {"city": "Bern"}, "day": "2024-01-31"}
PARTITION = {"partitions": [{"field": "day", "transform": "month"}]}


class Shop(ServedTable):
    def __init__(self, firn: Firn, tenant: str) -> None:
        super().__init__(firn, tenant, schema={"fields": FIELDS, "primary_key": ["id"]}, partition=PARTITION)
        self.write(ROW)

    def refused(self, code: str = "INVALID_SCHEMA", **fields: Any) -> dict[str, Any]:
        return self.fail(code, "ALTER_TABLE", **fields)

    def alter(self, **fields: Any) -> dict[str, Any]:
        return self.ok("ALTER_TABLE", **fields)


@pytest.fixture
def shop(firn: Firn, tenant: str) -> Shop:
    return Shop(firn, tenant)


def test_old_rows_are_read_and_new_ones_written_under_the_columns_of_now(shop: Shop) -> None:
    first = shop.description["current_snapshot_id"]
    assert shop.rows() == [ROW]
    shop.alter(
        rename_columns={"name": "who", "home.city": "town"},
        change_types={"id": "long", "price": "decimal(12,2)", "ratio": "double"},
        add_columns={"email": {"type": "string"}, "home.zip": {"type": "string"}},
        move_columns=[{"column": "email", "first": True}],
    )
    old = {
        "email": None,
        "id": 1,
        "who": "a",
        "price": "1.50",
        "ratio": 0.5,
        "home": {"town": "Bern", "zip": None},
        "day": "2024-01-31",
    }
    assert shop.rows() == [old]
    assert list(shop.rows()[0]) == list(old)
    new = {**old, "id": 2**40, "email": "x@y", "price": "1234567890.25", "home": {"town": "Chur", "zip": "7000"}}
    shop.ok("WRITE", records=[new])
    shop.ok("UPSERT", records=[{"id": 1, "email": "a@b"}])
    shop.ok("COMPACT", force=True)
    assert shop.rows(sort=["id"]) == [{**old, "email": "a@b"}, new]
    assert shop.rows(as_of=first) == [ROW]
    shop.firn.fail(shop.request("WRITE", records=[{"id": 3, "name": "x"}]), "INVALID_RECORD")


def test_a_dropped_column_does_not_come_back_with_a_new_one_of_its_name(shop: Shop) -> None:
    shop.alter(drop_columns=["name"])
    shop.alter(add_columns={"name": {"type": "long"}})
    assert shop.rows()[0]["name"] is None
    shop.alter(drop_columns=["name"], add_columns={"name": {"type": "boolean"}})
    shop.ok("WRITE", records=[{"id": 2, "name": True}])
    assert shop.rows(filter={"name": True}, projection=["id"]) == [{"id": 2}]


def test_properties_description_and_key_change_and_go_back(shop: Shop) -> None:
    shop.alter(
        set_properties={"compression": "gzip", "compaction": {"mode": "off"}, "snapshots": {"keep_last": 7}},
        description="ours",
        primary_key=[],
        set_nullable={"id": True},
    )
    described = shop.description
    assert described["properties"]["compression"] == "gzip"
    assert described["properties"]["description"] == "ours"
    assert described["compaction"]["mode"] == "off"
    assert described["compaction"]["snapshots"]["keep_last"] == 7
    assert "primary_key" not in described["schema"]
    shop.ok("WRITE", records=[{"name": "no id"}])
    shop.alter(unset_properties=["compression", "compaction.mode", "snapshots", "description"])
    described = shop.description
    assert described["properties"] == {"file_format": "parquet", "compression": "zstd", "target_file_size_mb": 128}
    assert described["compaction"]["overridden"] == []


def test_of_a_request_that_cannot_be_as_a_whole_nothing_happens(shop: Shop) -> None:
    error = shop.refused(
        add_columns={"email": {"type": "string"}},
        description="new",
        set_properties={"compression": "gzip"},
        change_types={"id": "string"},
    )
    assert "can only grow" in error["message"]
    assert error["field"] == "change_types.id"


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({}, "INVALID_REQUEST", None),
        ({"add_columns": {}}, "INVALID_REQUEST", None),
        ({"drop_columns": ["day"]}, "INVALID_SCHEMA", "drop_columns"),
        ({"drop_columns": ["nothing"]}, "UNKNOWN_FIELD", "drop_columns"),
        ({"move_columns": [{"column": "id"}]}, "INVALID_REQUEST", "move_columns[0]"),
        ({"unset_properties": ["compresion"]}, "INVALID_REQUEST", "unset_properties[0]"),
        (
            {"set_properties": {"compression": "gzip"}, "unset_properties": ["compression"]},
            "INVALID_REQUEST",
            "unset_properties",
        ),
        (
            {"set_properties": {"small_file_threshold_mb": 512}},
            "INVALID_REQUEST",
            "set_properties.compaction.small_file_threshold_mb",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(shop: Shop, fields: dict[str, Any], code: str, field: str | None) -> None:
    assert shop.refused(code, **fields).get("field") == field


def test_what_others_are_made_of_stays(shop: Shop) -> None:
    shop.ok("SET_COMPACTION", strategy="sort", sort_by=["name"])
    assert "SET_COMPACTION" in shop.refused(rename_columns={"name": "who"})["message"]
    shop.alter(unset_properties=["compaction"])
    shop.ok(
        "REPARTITION",
        transform={"initial": {"expression": "substring(name, 1, 1)"}},
        partition={"partitions": [{"field": "initial"}]},
    )
    assert "computed by" in shop.refused(drop_columns=["name"])["message"]
    shop.alter(rename_columns={"initial": "letter"})
    shop.ok("WRITE", records=[{"id": 2, "name": "bo"}])
    assert {row["id"]: row["letter"] for row in shop.rows()} == {1: "a", 2: "b"}


def test_with_a_key_it_happens_once(shop: Shop) -> None:
    key = {"add_columns": {"email": {"type": "string"}}, "idempotency_key": "k"}
    first = shop.alter(**key)
    assert shop.alter(**key) == first
    shop.refused(add_columns={"email": {"type": "string"}})

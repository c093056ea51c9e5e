"""A table in another layout: the same rows in other partitions, published at once."""

from typing import Any

import pytest

from tests.harness import Firn
from tests.integration.repartitioning import BY_PRODUCT, Table, row


def test_the_same_rows_lie_in_the_partitions_that_were_asked_for(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.fill()
    before = table.rows()
    answer = table.repartition(partition=BY_PRODUCT)
    assert (answer["repartitioned"], answer["reason"]) == (True, None)
    assert table.rows() == before
    assert table.by_pyiceberg() == [r["id"] for r in before]
    stats = answer["stats"]
    assert (stats["records"], stats["partitions_before"], stats["partitions_after"]) == (30, 5, 15)
    assert (stats["files_before"], stats["files_after"]) == (15, 15)
    assert stats["validated"]
    assert answer["partition"] == table.described["partition"]
    assert [p["name"] for p in answer["partition"]["partitions"]] == ["product", "at_day"]
    expected = {(("product", r["product"]), ("at_day", r["day"])) for r in map(row, range(30))}
    assert set(table.partitions()) == expected
    assert sum(table.partitions().values()) == 30


EVERY_TYPE = {
    "fields": {
        "id": {"type": "long", "required": True},
        "i": {"type": "integer"},
        "f": {"type": "float"},
        "d": {"type": "double"},
        "s": {"type": "string"},
        "b": {"type": "boolean"},
        "day": {"type": "date"},
        "ts": {"type": "timestamp"},
        "tz": {"type": "timestamptz"},
        "n": {"type": "decimal(12,3)"},
        "bin": {"type": "binary"},
        "u": {"type": "uuid"},
        "inner": {"type": "struct", "required": True, "fields": {"x": {"type": "long"}, "y": {"type": "string"}}},
        "m": {"type": "map", "key_type": "string", "value_type": {"type": "array", "items": "double"}},
        "l": {"type": "array", "items": {"type": "struct", "fields": {"a": {"type": "string"}, "b": {"type": "uuid"}}}},
    }
}


def full(n: int) -> dict[str, Any]:
    if n % 5 == 4:
        return {"id": n, "inner": {"x": None, "y": None}}
    key = f"{n:08x}-1234-5678-9abc-{n * 7919:012x}"
    return {
        "id": n,
        "i": n - 20,
        "f": [0.0, -0.0, "NaN", 1.5][n % 4],
        "d": [-0.0, 0.0, "Infinity", "NaN", 2.5][n % 5],
        "s": "äöü日本"[: n % 6] + str(n % 3),
        "b": n % 2 == 0,
        "day": f"19{60 + n % 30}-0{n % 9 + 1}-11",
        "ts": f"20{10 + n % 5}-0{n % 9 + 1}-1{n % 3}T0{n % 9}:00:00.123456",
        "tz": f"1969-12-31T2{n % 4}:59:59.999999Z",
        "n": f"{n - 15}.125",
        "bin": "AAEC" if n % 2 else "/w==",
        "u": key,
        "inner": {"x": n % 4, "y": None if n % 2 else "y"},
        "m": {"b": [1.0, None, "NaN"], "a": None} if n % 2 else {},
        "l": [{"a": None, "b": key}, None, {"a": "x", "b": None}] if n % 3 else [],
    }


@pytest.mark.parametrize(
    "fields",
    [
        [{"field": "i"}, {"field": "b"}],
        [{"field": "f"}],
        [{"field": "d"}, {"field": "s"}],
        [{"field": "bin"}, {"field": "n"}],
        [{"field": "u"}],
        [{"field": "u", "transform": "bucket", "num_buckets": 4}, {"field": "day", "transform": "year"}],
        [{"field": "ts", "transform": "hour"}],
        [{"field": "tz", "transform": "month"}, {"field": "tz", "transform": "bucket", "num_buckets": 3}],
        [{"field": "s", "transform": "truncate", "width": 2}, {"field": "i", "transform": "truncate", "width": 10}],
        [
            {"field": "n", "transform": "truncate", "width": 50},
            {"field": "bin", "transform": "bucket", "num_buckets": 2},
        ],
        [{"field": "inner.x"}, {"field": "day"}],
        [{"field": "ts", "transform": "day"}, {"field": "day", "transform": "bucket", "num_buckets": 2}],
        [],
    ],
    ids=lambda fields: "-".join(f"{f['field']}.{f.get('transform', 'identity')}" for f in fields) or "none",
)
def test_every_transform_of_every_type_gives_the_partitions_that_were_estimated(
    firn: Firn, tenant: str, fields: list[dict[str, Any]]
) -> None:
    table = Table(firn, tenant, schema=EVERY_TYPE, partition={"partitions": []})
    table.ok("WRITE", records=[full(n) for n in range(40)])
    table.ok("WRITE", records=[full(n) for n in range(40, 60)])
    before = table.rows()
    layout = {"partitions": fields}
    estimate = table.repartition(partition=layout, estimate=True)["estimate"]
    answer = table.repartition(partition=layout)
    if fields:
        assert answer["stats"]["partitions_after"] >= 1
        assert table.rows() == before
    else:
        assert answer["reason"] == "the table is partitioned like this already"
        return
    listed = table.ok("LIST_PARTITIONS")["partitions"]
    if fields[0]["field"] not in ("f", "d"):  # 0.0 and -0.0 are one value to a count, and two to files
        assert {str(p["partition"]): p["rows"] for p in listed} == {
            str(p["partition"]): p["rows"] for p in estimate["partitions"]
        }
    assert (estimate["rows"], estimate["bytes"]) == (60, answer["stats"]["bytes_before"])
    assert table.by_pyiceberg() == list(range(60))

"""UPSERT with `on_multiple: "replace"` leaves one row for each key: the newest, with the record's values."""

import random
from typing import Any

import pytest

from tests.harness import Firn
from tests.support.marks import thorough_after
from tests.support.tables import ServedTable

TYPES = {"k": "integer", "part": "string", "a": "string", "n": "integer"}
SCHEMA = {"fields": {name: {"type": kind} for name, kind in TYPES.items()}}
BY_PART = {"partitions": [{"field": "part", "transform": "identity"}]}


def made(firn: Firn, tenant: str, **create: Any) -> ServedTable:
    return ServedTable(firn, tenant, schema=SCHEMA, **create)


def contents(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows)


def replaced(rows: list[dict[str, Any]], records: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The rows, from the oldest to the newest, as the records leave them, and what the response counts."""
    counts = dict.fromkeys(("records_inserted", "records_updated", "records_unchanged", "records_replaced"), 0)
    rows = list(rows)
    for record in records:
        found = [row for row in rows if row["k"] == record["k"]]
        rows = [row for row in rows if row["k"] != record["k"]]
        counts["records_replaced"] += max(0, len(found) - 1)
        empty = dict.fromkeys(("k", "part", "a", "n"))
        after = {**(found[-1] if found else empty), **record}
        kind = "inserted" if not found else "unchanged" if after == found[-1] else "updated"
        counts[f"records_{kind}"] += 1
        rows.append(after)
    return rows, counts


@pytest.mark.parametrize("row_level", thorough_after(1, ["merge_on_read", "copy_on_write"]))
@pytest.mark.parametrize("partition", thorough_after(1, [BY_PART, None]))
def test_each_key_keeps_its_newest_row_with_the_records_values(
    firn: Firn, tenant: str, row_level: str, partition: dict[str, Any] | None
) -> None:
    table = made(firn, tenant, properties={"row_level": row_level}, **({"partition": partition} if partition else {}))
    choose = random.Random(f"{row_level} {partition}")
    rows: list[dict[str, Any]] = []
    for _ in range(4):
        written = [
            {"k": choose.randrange(8), "part": choose.choice("xy"), "a": choose.choice("abc"), "n": i} for i in range(6)
        ]
        table.write(*written)
        # Of one commit's rows in several partitions it is not said which is newer, so each key is in one of them.
        latest = {row["k"]: row["part"] for row in written}
        if partition and any(latest[row["k"]] != row["part"] for row in written):
            table.ok("DELETE", filter={"k": {"in": sorted(latest)}})
            rows = [row for row in rows if row["k"] not in latest]
            continue
        rows += written
    # A rewrite of a file makes all its rows newer.
    for _ in range(3 if row_level == "merge_on_read" else 1):
        keys = choose.sample(range(10), 4)
        lacks = choose.choice(["a", "n", None])
        records = [
            {name: value for name, value in record.items() if name != lacks}
            for record in ({"k": k, "part": "x", "a": choose.choice("abc"), "n": choose.randrange(6)} for k in keys)
        ]
        asked = {"key_cols": ["k"], "on_multiple": "replace", "records": records}
        plan = table.ok("UPSERT", **asked, dry_run=True)["plan"]
        done = table.ok("UPSERT", **asked, plan_token=plan["plan_token"])
        rows, counts = replaced(rows, records)
        assert {name: done[name] for name in counts} == counts
        assert {name: plan[name] for name in counts} == counts
        assert contents(table.rows()) == contents(rows)


@pytest.mark.thorough
def test_an_undo_brings_the_older_rows_back_and_history_counts_them(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    for n in range(3):
        table.write({"k": 1, "part": "x", "a": "a", "n": n}, {"k": 2, "part": "x", "a": "b", "n": n})
    before = table.rows()
    asked = {"key_cols": ["k"], "on_multiple": "replace", "records": [{"k": 1, "n": 2}, {"k": 2, "n": 7}, {"k": 3}]}
    plan = table.ok("UPSERT", **asked, dry_run=True)["plan"]
    assert sum("after" not in sample for sample in plan["sample"]) == 4
    done = table.ok("UPSERT", **asked)
    assert [done[f"records_{name}"] for name in ("inserted", "updated", "unchanged", "replaced")] == [1, 1, 1, 4]
    newest = table.ok("HISTORY")["snapshots"][0]
    assert (newest["records_added"], newest["records_removed"], newest["records_updated"]) == (1, 4, 1)
    table.ok("UNDO", request_id=done["metadata"]["request_id"])
    assert contents(table.rows()) == contents(before)


def test_without_it_all_rows_of_a_key_are_updated_and_none_is_counted_as_replaced(firn: Firn, tenant: str) -> None:
    table = made(firn, tenant)
    table.write({"k": 1, "n": 1}, {"k": 1, "n": 2})
    done = table.ok("UPSERT", key_cols=["k"], records=[{"k": 1, "n": 3}], on_multiple="update_all")
    assert done["records_updated"] == 2
    assert "records_replaced" not in done
    assert [row["n"] for row in table.rows()] == [3, 3]

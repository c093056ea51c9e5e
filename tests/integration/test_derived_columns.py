"""Derived columns: worked out for the rows there are, and for those to come, whichever way they come."""

import json
import threading
from typing import Any

import pyarrow as pa
import pytest

from service.maintenance.repartition import repartition as module
from service.writes.bulk import load
from service.writes.bulk.decode import ARROW, CSV, NDJSON
from service.writes.writes import Writes
from tests.harness import Firn, wait_until
from tests.integration.repartitioning import Table, row
from tests.integration.test_bulk import loaded, stream
from tests.support.marks import thorough_after, thorough_except

DERIVED = {
    "date": {"expression": "CAST(at AS date)"},
    "label": {"expression": "upper(product) || '-' || CAST(id AS string)"},
    "half": {"expression": "price / 2"},
}
BY_DATE = {"partitions": [{"field": "date"}, {"field": "label", "transform": "truncate", "width": 2}]}


def derived(i: int) -> dict[str, Any]:
    return {"date": row(i)["day"], "label": f"P{i % 3}-{i}", "half": i / 8}


@pytest.fixture
def table(firn: Firn, tenant: str) -> Table:
    made = Table(firn, tenant)
    made.fill(2)
    answer = made.repartition(transform=DERIVED, partition=BY_DATE)
    assert [p["name"] for p in answer["partition"]["partitions"]] == ["date", "label_trunc"]
    return made


def of(table: Table, *ids: int) -> list[dict[str, Any]]:
    rows = table.rows(filter={"id": {"in": list(ids)}})
    return [
        {name: float(r[name]) if name == "half" and r[name] is not None else r[name] for name in DERIVED} for r in rows
    ]


def test_the_rows_there_are_get_their_values_each_of_its_expressions_type(table: Table) -> None:
    assert of(table, *range(20)) == [derived(i) for i in range(20)]
    described = table.description
    assert described["derived"] == {name: one["expression"] for name, one in DERIVED.items()}
    fields = described["schema"]["fields"]
    assert [(fields[name]["type"], fields[name]["required"]) for name in DERIVED] == [
        ("date", False),
        ("string", False),
        ("double", False),
    ]
    assert {p for p, _ in table.partitions()} == {("date", f"2024-05-0{d}") for d in range(1, 6)}


def test_a_write_that_leaves_them_out_gets_them_and_a_value_that_was_sent_stays(table: Table) -> None:
    sent = {**row(101), "label": "mine", "half": None}
    table.ok("WRITE", records=[row(100), sent])
    assert of(table, 100, 101) == [derived(100), {**derived(101), "label": "mine"}]


@pytest.mark.thorough
def test_many_records_at_once_get_them_too(table: Table) -> None:
    table.ok("WRITE", records=[row(i) for i in range(1000, 2500)])
    assert of(table, *range(1000, 2500)) == [derived(i) for i in range(1000, 2500)]


@pytest.mark.thorough
def test_writes_that_share_a_commit_each_get_theirs(table: Table) -> None:
    threads = [threading.Thread(target=table.write_rows, args=(i,)) for i in range(100, 130)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert of(table, *range(100, 130)) == [derived(i) for i in range(100, 130)]


@pytest.mark.thorough
def test_an_overwrite_gets_them(table: Table) -> None:
    table.ok("WRITE", mode="overwrite", records=[row(7), {**row(8), "half": 1}])
    assert of(table, 7, 8) == [derived(7), {**derived(8), "half": 1.0}]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [NDJSON, CSV, ARROW])
def test_a_bulk_load_gets_them(table: Table, kind: str) -> None:
    records = [row(i) for i in range(500, 520)]
    if kind == NDJSON:
        body = "\n".join(json.dumps(r) for r in records).encode()
    elif kind == CSV:
        body = "\n".join([",".join(records[0]), *(",".join(str(v) for v in r.values()) for r in records)]).encode()
    else:
        body = stream(pa.Table.from_pylist([{"id": r["id"], "product": r["product"]} for r in records]))
    loaded(table.firn, table.name.tenant, body, kind=kind)
    if kind == ARROW:
        assert of(table, 500) == [{"date": None, "label": "P2-500", "half": None}]
    else:
        assert of(table, *range(500, 520)) == [derived(i) for i in range(500, 520)]


def test_a_row_for_which_one_cannot_be_computed_is_refused_and_harms_no_other(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.write_rows(1)
    error = table.fail("INVALID_QUERY", transform={"number": {"expression": "CAST(product AS long)"}})
    assert "cannot be computed" in error["message"]
    assert table.on_disk() == table.in_snapshots()
    table.ok("UPDATE", filter={"id": 1}, updates={"product": "17"})
    table.repartition(transform={"number": {"expression": "CAST(product AS long)"}})
    error = table.fail("INVALID_QUERY", "WRITE", records=[row(2)])
    assert "cannot be computed" in error["message"]
    table.ok("WRITE", records=[{**row(3), "product": "3"}])
    assert [(r["id"], r["number"]) for r in table.rows()] == [(1, 17), (3, 3)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("expression", "words", "by_hand"),
    thorough_after(
        1,
        [
            ("date_add(day, CAST(id AS integer) * 1000000)", "a time outside the years 1 to 9999", "2024-01-01"),
            ("price * 1e308", "too large for its type", 1.5),
        ],
    ),
)
def test_a_value_that_no_column_of_its_type_is_to_hold_is_refused_whichever_way_its_row_comes(
    firn: Firn, tenant: str, expression: str, words: str, by_hand: Any
) -> None:
    table, transform = Table(firn, tenant), {"far": {"expression": expression}}
    table.write_rows(1, 20)
    error = table.fail("INVALID_REQUEST", transform=transform)
    assert error["field"] == "transform.far.expression"
    assert words in error["message"]
    table.ok("DELETE", filter={"id": 20})
    table.repartition(transform=transform)
    before = table.rows()
    for operation, asked in (
        ("WRITE", {"records": [row(21)]}),
        ("WRITE", {"records": [row(22)], "mode": "overwrite"}),
        ("UPSERT", {"records": [row(23)], "key_cols": ["id"]}),
        ("UPDATE", {"updates": {"id": 24, "price": 6}, "all": True}),
    ):
        error = table.fail("INVALID_REQUEST", operation, **asked)
        assert error["message"].startswith("the derived column 'far': ")
        assert words in error["message"]
    assert table.rows() == before
    table.ok("WRITE", records=[{**row(25), "far": by_hand}])
    table.ok("UPDATE", updates={"id": 26, "price": 7}, filter={"id": 25})
    assert [r["far"] for r in table.rows()] == [before[0]["far"], by_hand]


@pytest.mark.thorough
def test_columns_can_be_added_without_another_partitioning_and_again_later(table: Table) -> None:
    before = table.description["partition"]
    answer = table.repartition(transform={"cube": {"expression": "id * id * id"}})
    assert (answer["repartitioned"], answer["partition"]) == (True, before)
    table.write_rows(100)
    assert [r["cube"] for r in table.rows(filter={"id": {"in": [3, 100]}})] == [27, 1_000_000]
    assert of(table, 100) == [derived(100)]
    # The same column by the same expression is there already.
    again = table.repartition(transform={"cube": {"expression": "id * id * id"}})
    assert (again["repartitioned"], again["reason"]) == (False, "the table is partitioned like this already")


@pytest.mark.thorough
@pytest.mark.parametrize("rows", [2, 1500])
def test_a_write_on_its_way_while_columns_are_added_gets_them(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    table = Table(firn, tenant)
    table.fill(1)
    answers: list[Any] = []
    records = [row(i) for i in range(5000, 5000 + rows)]
    writing = threading.Thread(target=lambda: answers.append(table.ok("WRITE", records=records)))
    real = module.commit

    def commit(*args: Any) -> Any:
        # It is checked against the table as it is, and waits for the turn that we have.
        writing.start()
        wait_until(lambda: firn.app.parts[Writes].waiting, 30)
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(module, "commit", commit)
        table.repartition(transform=DERIVED, partition=BY_DATE)
    writing.join(60)
    assert answers[0]["records_written"] == rows
    assert of(table, *range(5000, 5000 + rows)) == [derived(i) for i in range(5000, 5000 + rows)]


@pytest.mark.parametrize("stage", thorough_except(["_commit"], ["_move", "_commit"]))
def test_a_bulk_load_on_its_way_while_columns_are_added_gets_them(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    table = Table(firn, tenant)
    table.fill(1)
    real, once = getattr(load.Bulk, stage), iter([True])

    def before(*args: Any) -> Any:
        if next(once, False):
            table.repartition(transform=DERIVED, partition=BY_DATE)
        return real(*args)

    body = "\n".join(json.dumps(row(i)) for i in range(500, 530)).encode()
    with monkeypatch.context() as patch:
        patch.setattr(load.Bulk, stage, before)
        answer = loaded(firn, tenant, body)
    assert answer["records_written"] == 30
    assert of(table, *range(500, 530)) == [derived(i) for i in range(500, 530)]
    assert table.on_disk() == table.in_snapshots()


def test_an_expression_may_be_of_any_type_that_a_column_has(firn: Firn, tenant: str) -> None:
    table = Table(firn, tenant)
    table.fill(1)
    transform = {
        "i": "CAST(id AS integer)",
        "n": "CAST(price AS decimal(10,3))",
        "b": "price > 1",
        "z": "CAST(at AS timestamptz)",
        "l": "id + 1",
        "dd": "price * 1.5",
        "dec": "id * 1.25",
        "c": "CASE WHEN id > 3 THEN 'many' ELSE 'few' END",
    }
    answer = table.repartition(transform={name: {"expression": text} for name, text in transform.items()})
    assert answer["repartitioned"]
    fields = table.description["schema"]["fields"]
    types = {name: fields[name]["type"] for name in transform}
    assert types["dec"].startswith("decimal(")
    del types["dec"]
    assert types == {
        "i": "integer",
        "n": "decimal(10,3)",
        "b": "boolean",
        "z": "timestamptz",
        "l": "long",
        "dd": "double",
        "c": "string",
    }
    table.write_rows(100)
    rows = {r["id"]: r for r in table.rows()}
    for i in (2, 100):
        found = rows[i]
        assert (found["i"], found["l"], found["b"], found["c"]) == (i, i + 1, i / 4 > 1, "many" if i > 3 else "few")
        assert (found["n"], float(found["dd"])) == (f"{i / 4:.3f}", i / 4 * 1.5)

"""INGEST: a file becomes the rows of its date, once; bad rows go to the quarantine."""

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.harness import Firn
from tests.support.ingesting import COLUMNS, HEADER, IngestedTable, row, sha256
from tests.support.marks import thorough_except


@pytest.fixture
def sales(firn: Firn, tenant: str, tmp_path: Path) -> IngestedTable:
    return IngestedTable(firn, tenant, tmp_path)


def test_a_file_becomes_the_rows_of_its_date(sales: IngestedTable) -> None:
    content = HEADER + row(1, product="  lamp ") + row(2, quantity="", price="-0.05") + "\r\n" + row(3)
    done = sales.ingest("2024-01-01", content)
    assert (done["date"], done["period"]) == ("2024-01-01", "2024-01")
    assert (done["records_read"], done["records_ingested"], done["records_rejected"]) == (3, 3, 0)
    assert (done["content_hash"], done["bytes_read"]) == (sha256(content), len(content))
    assert not {"unchanged", "drift", "rejects", "records_quarantined", "quarantine_table"} & done.keys()
    first, second, _ = sales.rows(sort=["id"])
    assert first == {"id": 1, "sold_on": "2024-01-01", "product": "lamp", "quantity": 1, "price": Decimal("1.50")} | {
        "price": "1.50"
    }
    assert (second["quantity"], second["price"]) == (None, "-0.05")


def test_a_date_that_is_ingested_again_is_replaced(sales: IngestedTable) -> None:
    sales.ingest("2024-01-01", HEADER + row(1) + row(2))
    sales.ingest("2024-01-02", HEADER + row(3))
    done = sales.ingest("2024-01-01", HEADER + row(2) + row(4) + row(5), name="late.csv")
    assert (done["records_replaced"], done["files_removed"], done["files_rewritten"]) == (2, 1, 0)
    assert sales.ids() == [2, 3, 4, 5]


@pytest.mark.thorough
def test_a_merged_month_loses_only_the_date_that_is_ingested_again(sales: IngestedTable) -> None:
    for day in (1, 2, 3):
        sales.ingest(f"2024-01-0{day}", HEADER + row(day))
    sales.ok("COMPACT", force=True)
    assert sales.description["file_count"] == 1
    done = sales.ingest("2024-01-02", HEADER + row(20) + row(21))
    assert (done["records_replaced"], done["files_removed"], done["files_rewritten"]) == (1, 1, 1)
    assert sales.ids() == [1, 3, 20, 21]
    dates = [(r["id"], r["_firn_date"], r["_firn_file"].rpartition("/")[2]) for r in sales.dated()]
    assert dates[0] == (1, "2024-01-01", "sales_2024-01-01.csv")
    assert dates[2] == (20, "2024-01-02", "sales_2024-01-02.csv")


def test_the_same_content_again_is_unchanged(sales: IngestedTable) -> None:
    content = HEADER + row(1)
    first = sales.ingest("2024-01-01", content)
    again = sales.ingest("2024-01-01", content)
    assert again["unchanged"] is True
    assert "records_read" not in again
    assert again["metadata"]["snapshot_id"] == first["metadata"]["snapshot_id"]
    other = sales.ingest("2024-01-02", content)
    assert other["records_ingested"] == 1
    assert sales.ids() == [1, 1]


def test_what_was_deleted_or_undone_is_ingested_again(sales: IngestedTable) -> None:
    content = HEADER + row(1) + row(2)
    done = sales.ingest("2024-01-01", content)
    sales.ok("DELETE", filter={"id": 1})
    assert sales.ingest("2024-01-01", content)["records_ingested"] == 2
    assert sales.ids() == [1, 2]
    assert "unchanged" not in done


def test_append_adds_to_a_date_once(sales: IngestedTable) -> None:
    sales.ingest("2024-01-01", HEADER + row(1))
    more = HEADER + row(2)
    assert sales.ingest("2024-01-01", more, mode="append", name="more.csv")["records_ingested"] == 1
    assert sales.ingest("2024-01-01", more, mode="append", name="more.csv")["unchanged"] is True
    assert sales.ids() == [1, 2]
    # What was added is part of the date.
    sales.ingest("2024-01-01", HEADER + row(1))
    assert sales.ids() == [1]


DIRT = [
    (row(2, quantity="12abc"), "quantity: not an INTEGER", "quantity"),
    (row(3, quantity="99999999999"), "quantity: not an INTEGER", "quantity"),
    (row(4, quantity="1.5"), "quantity: not an INTEGER", "quantity"),
    (row(5, price="1.505"), "price: not a DECIMAL(10,2)", "price"),
    (row(6, price="123456789.00"), "price: not a DECIMAL(10,2)", "price"),
    (row(7, sold_on="2024-1-5"), "sold_on: not a DATE", "sold_on"),
    (row(8, sold_on="2024-02-30"), "sold_on: not a DATE", "sold_on"),
    (row(9, sold_on="2024-01-05T10"), "sold_on: not a DATE", "sold_on"),
    (row(""), "id: no value", "id"),
    ("11,2024-01-01,a\n", "expected 5 fields", None),
    ("12,2024-01-01,a,1,1.00,extra" + ",more" * 500 + "\n", "expected 5 fields", None),
    (row(13, price="1.500", quantity=" 7 "), None, None),
]


def test_rows_that_break_a_rule_are_quarantined_with_their_line_and_text(sales: IngestedTable) -> None:
    content = HEADER + row(1) + "\n" + "".join(line for line, _, _ in DIRT)
    done = sales.ingest("2024-01-01", content)
    bad = [(4 + i, line, rule, column) for i, (line, rule, column) in enumerate(DIRT) if rule]
    assert (done["records_read"], done["records_ingested"]) == (13, 2)
    assert done["records_rejected"] == done["records_quarantined"] == len(bad)
    assert done["rejects"]["expected 5 fields"] == 2
    assert sum(done["rejects"].values()) == len(bad)
    found = sales.quarantined()
    assert [(r["line"], r["raw"] + "\n", r["rule"], r["column_name"]) for r in found] == bad
    assert {r["content_hash"] for r in found} == {sha256(content)}
    assert {r["run_id"] for r in found} == {done["run_id"]}
    assert sales.ids() == [1, 13]


def test_the_quarantined_rows_of_a_date_are_replaced_with_it(sales: IngestedTable) -> None:
    sales.ingest("2024-01-01", HEADER + row(1) + row("x"))
    sales.ingest("2024-01-02", HEADER + row(2) + row("y"))
    sales.ingest("2024-01-01", HEADER + row(1) + row("z") + row("zz"))
    assert [r["raw"].partition(",")[0] for r in sales.quarantined()] == ["z", "zz", "y"]
    sales.ingest("2024-01-01", HEADER + row(1))
    assert [r["raw"].partition(",")[0] for r in sales.quarantined()] == ["y"]


@pytest.mark.thorough
def test_raw_text_is_what_the_file_has(firn: Firn, tenant: str, tmp_path: Path) -> None:
    table = IngestedTable(firn, tenant, tmp_path)
    content = '\ufeffid,sold_on,product,quantity,price\r\n1,,"a\r\nb",x,\r\n\r\n2,,"c,""d""",3,\r\n"3,,e,4,\r\nbad'
    done = table.ingest("2024-01-01", content)
    assert done["records_ingested"] == 1
    found = {r["line"]: r["raw"] for r in table.quarantined()}
    assert found == {2: '1,,"a\r\nb",x,', 6: '"3,,e,4,', 7: "bad"} or found == {
        2: '1,,"a\nb",x,',
        6: '"3,,e,4,',
        7: "bad",
    }
    assert table.rows() == [{"id": 2, "sold_on": None, "product": 'c,"d"', "quantity": 3, "price": None}]


def test_filters_expressions_and_defaults(firn: Firn, tenant: str, tmp_path: Path) -> None:
    dataset = {
        "columns": [
            {"name": "id", "type": "INTEGER", "source": "ID"},
            {"name": "amount", "type": "DOUBLE", "nullable": False},
            {"name": "double_amount", "type": "DOUBLE", "expression": "amount * 2"},
            {"name": "kind", "type": "VARCHAR", "default": "none", "transform": ["trim", "upper"]},
        ],
        "filters": [
            {"column": "amount", "operator": ">", "value": 0},
            {"column": "kind", "operator": "not_in", "value": ["BAD"]},
        ],
    }
    table = IngestedTable(firn, tenant, tmp_path, dataset=dataset)
    content = " id ,AMOUNT,Kind\n1,1.5, a \n2,-1,b\n3,,c\n4,2,\n5,3,bad\n6,1e999,x\n7,NaN,x\n8,0x1p3,x\n9,1e2,x\n"
    done = table.ingest("2024-01-01", content)
    assert done["rejects"] == {
        "amount: not a DOUBLE": 3,
        "amount: no value": 1,
        "amount > 0": 1,
        "kind not_in ['BAD']": 1,
    }
    assert table.rows(sort=["id"]) == [
        {"id": 1, "amount": 1.5, "double_amount": 3.0, "kind": "A"},
        {"id": 4, "amount": 2.0, "double_amount": 4.0, "kind": "none"},
        {"id": 9, "amount": 100.0, "double_amount": 200.0, "kind": "X"},
    ]


@pytest.mark.thorough
def test_an_expression_that_fails_for_a_row_rejects_the_row(firn: Firn, tenant: str, tmp_path: Path) -> None:
    columns = [
        {"name": "a", "type": "INTEGER"},
        {"name": "b", "type": "INTEGER"},
        {"name": "q", "type": "DOUBLE", "expression": "a / b"},
        {"name": "s", "type": "INTEGER", "expression": "a + b", "nullable": False},
    ]
    table = IngestedTable(firn, tenant, tmp_path, dataset={"columns": columns})
    content = "a,b\n6,3\n1,0\n2147483647,1\n,1\n"
    plan = table.ingest("2024-01-01", content, dry_run=True)["plan"]
    done = table.ingest("2024-01-01", content)
    assert done["rejects"] == plan["rejects"]
    assert done["rejects"] == {"q: cannot be computed": 1, "s: cannot be computed": 1, "s: no value": 1}
    assert table.rows() == [{"a": 6, "b": 3, "q": 2.0, "s": 9}]


@pytest.mark.parametrize(
    "form", thorough_except(["json", "parquet"], ["json", "parquet", "arrow", "stream", "gzip", "zstd"])
)
def test_every_format_gives_the_same_rows(firn: Firn, tenant: str, tmp_path: Path, form: str) -> None:
    table = IngestedTable(firn, tenant, tmp_path)
    values = [{"id": 1, "sold_on": "2024-01-01", "product": "é", "quantity": 2, "price": 1.5}, {"id": 2}]
    text = HEADER + "1,2024-01-01,é,2,1.50\n2,,,,\n"
    arrow = pa.Table.from_pylist(
        [{**dict.fromkeys(values[0]), **v} for v in values],
        pa.schema([("id", pa.int64()), ("sold_on", pa.string()), ("product", pa.string())])
        .append(pa.field("quantity", pa.int32()))
        .append(pa.field("price", pa.float64())),
    )
    path = tmp_path / f"f.{form}"
    match form:
        case "json":
            path.write_text("".join(json.dumps({**dict.fromkeys(values[0]), **v}) + "\n" for v in values))
        case "parquet":
            pq.write_table(arrow, path)
        case "arrow":
            with pa.ipc.new_file(path, arrow.schema) as writer:
                writer.write_table(arrow)
        case "stream":
            with pa.ipc.new_stream(path, arrow.schema) as writer:
                writer.write_table(arrow)
        case "gzip":
            path.write_bytes(gzip.compress(text.encode()))
        case "zstd":
            path.write_bytes(pa.compress(text.encode(), "zstd", asbytes=True))
    assert table.ingest("2024-01-01", path)["records_ingested"] == 2
    expected = {"id": 1, "sold_on": "2024-01-01", "product": "é", "quantity": 2, "price": "1.50"}
    assert table.rows(sort=["id"]) == [expected, {**dict.fromkeys(expected), "id": 2}]


@pytest.mark.thorough
def test_without_a_dataset_the_first_file_gives_the_columns(firn: Firn, tenant: str, tmp_path: Path) -> None:
    table = IngestedTable(firn, tenant, tmp_path, dataset=None)
    assert "no columns yet" in table.fail("INVALID_QUERY", "QUERY")["message"]
    assert table.fail("INVALID_QUERY", "QUERY", sql="SELECT * FROM sales")
    done = table.ingest("2024-01-01", "n,zip,at,price,note\n1,0123,2024-01-01,1.5,\n2,99999,2024-01-02,2,\n")
    assert done["records_ingested"] == 2
    fields = table.description["schema"]["fields"]
    assert {name: field["type"] for name, field in fields.items()} == {
        "n": "long",
        "zip": "string",
        "at": "date",
        "price": "double",
        "note": "string",
    }
    error = table.refuse("FILE_REJECTED", "2024-01-02", "n,zip,at,price,more\n1,0123,2024-01-01,1.5,x\n")
    assert error["details"]["drift"] == {"new": ["more"], "missing": ["note"]}


def test_drift_is_accepted_if_it_is_asked_for(sales: IngestedTable) -> None:
    content = "id,sold_on,product,quantity,price,shop\n1,2024-01-01,a,1,1.00,north\n"
    details = sales.refuse("FILE_REJECTED", "2024-01-01", content)["details"]
    assert details == {"drift": {"new": ["shop"]}, "types": {"shop": "VARCHAR"}}
    done = sales.ingest("2024-01-01", content, accept_drift=True)
    assert done["drift"] == {"new": ["shop"]}
    assert sales.rows()[0]["shop"] == "north"
    assert sales.ingest("2024-01-02", content.replace("\n1,", "\n2,"))["records_ingested"] == 1


@pytest.mark.thorough
def test_a_column_of_which_no_value_converts_is_drift(firn: Firn, tenant: str, tmp_path: Path) -> None:
    content = HEADER + row(1, quantity="few") + row(2, quantity="many")
    strict = IngestedTable(firn, tenant, tmp_path)
    error = strict.refuse("FILE_REJECTED", "2024-01-01", content)
    assert error["details"]["drift"] == {"retyped": {"quantity": "VARCHAR"}}
    lax = IngestedTable(firn, tenant, tmp_path, "lax", {"columns": COLUMNS, "on_drift": {"retyped": "ignore"}})
    assert lax.ingest("2024-01-01", content)["records_quarantined"] == 2


@pytest.mark.parametrize(
    ("rules", "reason"),
    [({"max_rejects": 1}, "max_rejects is 1"), ({"on_error": "reject_file"}, "on_error is reject_file")],
)
def test_too_many_rejects_refuse_the_file(
    firn: Firn, tenant: str, tmp_path: Path, rules: dict[str, Any], reason: str
) -> None:
    table = IngestedTable(firn, tenant, tmp_path, dataset={"columns": COLUMNS, **rules})
    error = table.refuse("FILE_REJECTED", "2024-01-01", HEADER + row(1) + row(2, quantity="x") + row(3, quantity="y"))
    assert reason in error["message"]
    assert error["details"]["rejects"] == {"quantity: not an INTEGER": 2}
    assert table.on_disk() == set()


def test_values_that_do_not_convert_become_null_if_that_is_the_rule(firn: Firn, tenant: str, tmp_path: Path) -> None:
    table = IngestedTable(firn, tenant, tmp_path, dataset={"columns": COLUMNS, "on_error": "null"})
    done = table.ingest("2024-01-01", HEADER + row(1, quantity="x") + row("x"))
    assert done["rejects"] == {"id: no value": 1}
    assert [r["quantity"] for r in table.rows()] == [None]


def test_a_dry_run_says_what_an_ingest_would_do_and_its_token_holds_it_to_that(sales: IngestedTable) -> None:
    sales.ingest("2024-01-01", HEADER + row(1))
    content = HEADER + row(2) + row("x")
    plan = sales.ingest("2024-01-01", content, dry_run=True)["plan"]
    assert (plan["records_ingested"], plan["records_rejected"], plan["records_replaced"]) == (1, 1, 1)
    assert plan["rejects"] == {"id: not a BIGINT": 1}
    assert sales.ids() == [1]
    sales.ingest("2024-01-01", HEADER + row(1) + row(3))
    stale = {"plan_token": plan["plan_token"]}
    sales.refuse("PLAN_STALE", "2024-01-01", content, **stale)
    plan = sales.ingest("2024-01-01", content, dry_run=True)["plan"]
    assert sales.ingest("2024-01-01", content, plan_token=plan["plan_token"])["records_ingested"] == 1
    assert sales.ids() == [2]


def test_a_request_with_a_key_is_ingested_once(sales: IngestedTable) -> None:
    content = HEADER + row(1)
    fields = {"mode": "append", "idempotency_key": "k"}
    first = sales.ingest("2024-01-01", content, **fields)
    again = sales.ingest("2024-01-01", content, **fields)
    assert first == again
    assert sales.ids() == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("id,ID\n1,2\n", "the same name"),
        ("id,\n1,2\n", "column 2 of"),
        ('[{"id": 1}]', "JSON array"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(sales: IngestedTable, content: str, message: str) -> None:
    assert message in sales.refuse("INVALID_FILE", "2024-01-01", content, "f.txt")["message"]
    missing = sales.fail("INVALID_FILE", "INGEST", source=str(sales.files / "none.csv"), date="2024-01-01")
    assert "does not exist" in missing["message"]

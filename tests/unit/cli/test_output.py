"""Names of tables as they are printed, and responses in the formats for other programs."""

import csv
import io
import json

import pytest
import yaml

from tests.cli import Called
from tests.unit.cli.test_commands import ANSWER, Service, firn

ROWS = {"data": [{"id": 1, "who": "Ann, B"}, {"id": 2, "tags": ["a"]}], "metadata": {"has_more": False}}


@pytest.mark.parametrize("name", ["shop.orders", "shop/orders"])
@pytest.mark.parametrize(
    "line",
    [
        ["table", "describe"],
        ["table", "history"],
        ["query"],
        ["compact", "--table"],
        ["schedule", "create", "s", "--cron", "* * * * *", "--table"],
    ],
    ids=" ".join,
)
def test_a_table_is_taken_as_it_is_printed(line: list[str], name: str) -> None:
    service = Service(**ANSWER, success=False, error={"code": "X", "message": "x"})
    firn([*line, name], service)
    assert (service.asked[0]["namespace"], service.asked[0]["table"]) == ("shop", "orders")
    assert firn([*line, name, "-n", "shop"], service).code == 1
    wrong = firn([*line, name, "-n", "web"], service)
    assert wrong == Called(2, "", f"firn: {name} is not in the namespace web; leave --namespace out\n")


@pytest.mark.parametrize("name", ["a.b.c", "a/b/c", ".orders", "shop.", "/"])
def test_what_is_no_name_of_a_table_is_refused(name: str) -> None:
    service = Service()
    done = firn(["table", "describe", name], service)
    assert (done.code, service.asked) == (2, [])
    assert done.err.endswith("write it as orders, shop.orders or shop/orders\n")


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (["table", "rename", "shop.orders"], "new_name"),
        (["table", "restore", "shop.orders", "--new-name"], "new_name"),
        (
            ["table", "repartition", "shop.orders", "--partition-by", "day", "--dry-run", "--target-table"],
            "target_table",
        ),
    ],
)
def test_another_table_is_in_the_same_namespace(line: list[str], field: str) -> None:
    service = Service(success=False, error={"code": "X", "message": "x"})
    firn([*line, "shop.old"], service)
    assert service.asked[0][field] == "old"
    assert "is in another namespace than shop.orders" in firn([*line, "web.old"], service).err


@pytest.mark.parametrize(
    "line", [["-nshop", "table", "list"], ["table", "-n", "shop", "list"], ["table", "list", "-nshop"]]
)
def test_short_options_stand_where_long_ones_do(line: list[str]) -> None:
    service = Service(tables=["orders"])
    assert firn([*line, "-o", "json"], service).out == '{"success":true,"tables":["orders"]}\n'
    assert service.asked[0]["namespace"] == "shop"


def test_rows_are_printed_as_csv() -> None:
    done = firn(["query", "t", "-o", "csv"], Service(**ROWS))
    assert list(csv.reader(io.StringIO(done.out))) == [["id", "who", "tags"], ["1", "Ann, B", ""], ["2", "", '["a"]']]
    assert firn(["table", "list", "--output=csv"], Service(tables=["a", "b"])).out == "table\na\nb\n"


def test_a_response_without_a_list_is_one_row_of_csv() -> None:
    job = {"id": "j", "kind": "COMPACT", "state": "done"}
    assert firn(["job", "show", "j", "-ocsv"], Service(job=job)).out == "id,kind,state\nj,COMPACT,done\n"


def test_yaml_is_the_whole_response() -> None:
    done = firn(["query", "t", "-o", "yaml"], Service(**ROWS))
    assert yaml.safe_load(done.out) == {"success": True, **ROWS}


def test_an_error_is_data_in_json_and_yaml_and_a_line_elsewhere() -> None:
    error = {"code": "TABLE_NOT_FOUND", "message": "there is none"}
    service = Service(success=False, error=error)
    for read, output in ((json.loads, "json"), (yaml.safe_load, "yaml")):
        assert read(firn(["query", "t", "-o", output], service).out)["error"] == error
    assert firn(["query", "t", "-o", "csv"], service) == Called(1, "", "firn: TABLE_NOT_FOUND: there is none\n")


def test_json_has_one_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert firn(["query", "t", "--json", "-o", "csv"], Service(**ROWS)).code == 2
    assert "--json and --output csv contradict each other" in capsys.readouterr().err


def test_decimals_are_aligned_right_as_numbers_are() -> None:
    rows = [
        {"a": "9.50", "v": "1.2.3", "s": "1.5"},
        {"a": "-10.25", "v": "1.10", "s": "x"},
        {"a": None, "v": "", "s": "y"},
    ]
    done = firn(["query", "t"], Service(data=rows, metadata={"has_more": False}))
    assert done.out.splitlines()[:4] == [
        "     a  v      s",
        "  9.50  1.2.3  1.5",
        "-10.25  1.10   x",
        "  null         y",
    ]

"""Files that commands are given: what they may hold, and how a bad one is refused."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from service.cli.command import UsageError
from service.cli.files import parse_value, read_object, read_table, table_address, table_argument
from service.cli.values import parse_assignments, parse_partition, single_tenant


def args(table: str, **more: Any) -> Namespace:
    return Namespace(**{"table": table, "tenant": None, "namespace": None, "default_tenant": "default", **more})


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_name_is_a_table_of_the_usual_tenant_and_namespace() -> None:
    assert table_argument(args("orders")) == {"tenant_id": "default", "namespace": "default", "table": "orders"}


def test_a_file_says_more_and_the_command_line_has_the_last_word(tmp_path: Path) -> None:
    path = written(tmp_path, "t.yaml", "tenant: acme\nnamespace: shop\ntable: orders\nschema: {fields: {}}\n")
    assert table_address(args(path)) == {"tenant_id": "acme", "namespace": "shop", "table": "orders"}
    assert table_argument(args(path))["schema"] == {"fields": {}}
    assert table_address(args(path, tenant="b", namespace="n")) == {
        "tenant_id": "b",
        "namespace": "n",
        "table": "orders",
    }


def test_json_is_read_as_well(tmp_path: Path) -> None:
    assert read_table(written(tmp_path, "t.json", '{"table": "orders"}')) == {"table": "orders"}


def test_a_time_stays_the_text_that_was_written(tmp_path: Path) -> None:
    assert read_object(written(tmp_path, "t.yaml", "at: 2024-05-01\nn: 3\nok: true\n")) == {
        "at": "2024-05-01",
        "n": 3,
        "ok": True,
    }


WRITTEN = [
    "01234",
    "-01",
    "+41791234567",
    "12:30",
    "1:02:03",
    "NO",
    "yes",
    "on",
    "Off",
    "1_000",
    "0x1F",
    "0b11",
    "0o17",
    "2024-05-01",
    ".inf",
    "1e999",
    "<<",
    "=",
]
READ: list[tuple[str, Any]] = [
    ("0", 0),
    ("-7", -7),
    ("12345678901234567890", 12345678901234567890),
    ("1.50", 1.5),
    ("-.5", -0.5),
    ("1e3", 1000.0),
    ("true", True),
    ("False", False),
    ("null", None),
    ("~", None),
]


@pytest.mark.parametrize("text", WRITTEN)
def test_what_is_no_number_and_not_true_false_or_null_stays_the_text_that_was_written(
    text: str, tmp_path: Path
) -> None:
    assert read_object(written(tmp_path, "t.yaml", f"a: {text}\nb: [{text}]\n{text}: 1\n")) == {
        "a": text,
        "b": [text],
        text: 1,
    }
    assert parse_value(text, "x") == text


@pytest.mark.parametrize(("text", "value"), READ)
def test_numbers_true_false_and_null_are_read_as_what_they_are(text: str, value: Any, tmp_path: Path) -> None:
    found = read_object(written(tmp_path, "t.yaml", f"a: {text}\n"))["a"]
    assert (type(found), found) == (type(value), value)
    found = parse_value(text, "x")
    assert (type(found), found) == (type(value), value)


UNREADABLE = ["[ERROR] x", "[a", "{a", "'tis", "'a' or 'b'", '"a" # b', "[" * 5000]
PLAIN = [
    "a #b",
    "5 # five",
    "a: b",
    "- a",
    "*x",
    "&a b",
    "@x",
    "!x",
    "%x",
    "`x`",
    "| a",
    "? a",
    "--- a",
    " 5",
    "9" * 5000,
]


@pytest.mark.parametrize("text", [*UNREADABLE, *PLAIN])
def test_a_value_of_the_command_line_that_is_no_yaml_stays_the_text_that_was_written(text: str) -> None:
    assert parse_value(text, "x") == text


def test_lists_objects_and_quoted_texts_of_the_command_line_are_read() -> None:
    assert parse_value("[a, 01, 2]", "x") == ["a", "01", 2]
    assert parse_value(" {keep_last: 3}", "x") == {"keep_last": 3}
    assert parse_value("'01'", "x") == "01"
    assert parse_value('"5"', "x") == "5"


@pytest.mark.parametrize(
    "text", ["{1: a}", "{a: 1, a: 2}", "[!!binary aGk=]", "[!!bool maybe]", "&a [*a]", "[!!int x]"]
)
def test_values_that_no_request_can_hold_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"t\.yaml is not YAML|t\.yaml must hold"):
        read_object(written(tmp_path, "t.yaml", f"a: {text}"))
    if text.startswith(("[", "{")):
        with pytest.raises(UsageError, match="--set x is not YAML"):
            parse_value(text, "--set x")


def test_properties_are_lines_whose_dots_lead_into_objects(tmp_path: Path) -> None:
    text = "# how\n\ncompression = zstd\ncompaction.enabled=false\ncompaction.sort_by = [a, b]\ndescription =\n"
    assert read_object(written(tmp_path, "t.properties", text)) == {
        "compression": "zstd",
        "compaction": {"enabled": False, "sort_by": ["a", "b"]},
        "description": None,
    }


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("t.yaml", "tabel: x\n", "'tabel' is not a field of a table; did you mean table?"),
        ("t.yaml", "namespace: x\n", "table is missing"),
        ("t.yaml", "table: 5\n", "table is missing"),
        ("t.yaml", "table: t\nnamespace: 5\n", "namespace must be text, not 5; put it in quotes"),
        ("t.yaml", "table: a\ntable: b\n", "'table' is given twice"),
        ("t.yaml", "table: a\non: b\n", "'on' is not a field of a table"),
        ("t.yaml", "table: a\n1: b\n", "the key 1 is not text; put it in quotes"),
        ("t.yaml", f"a: {'9' * 5000}", "is not YAML"),
        ("t.yaml", f"a: {'[' * 5000}", "is not YAML"),
        ("t.yaml", "- a\n", "must contain one object, not list"),
        ("t.yaml", "", "must contain one object"),
        ("t.yaml", "a: [", "is not YAML"),
        ("t.yaml", "a: !!python/object/apply:os.system [x]", "is not YAML"),
        ("t.json", "{", "is not JSON"),
    ],
)
def test_a_bad_table_file_is_refused_with_what_is_wrong(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_table(written(tmp_path, name, text))
    first, *quoted = str(refused.value).splitlines()
    assert says in first
    assert not quoted or quoted[-1].strip() == "^"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "line 1: 'x' is not a property"),
        ("a=1\na=2", "twice"),
        ("a=1\na.b=2", "has a value already"),
        ("=1", "is no"),
    ],
)
def test_a_bad_properties_file_is_refused_with_the_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_object(written(tmp_path, "t.properties", text))


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be read \(No such file"):
        read_object(str(tmp_path / "no.yaml"))
    (tmp_path / "b.yaml").write_bytes(b"a: \xff")
    with pytest.raises(UsageError, match="not UTF-8 text: byte 3"):
        read_object(str(tmp_path / "b.yaml"))


def test_partition_fields_are_read_with_transform_and_number() -> None:
    assert parse_partition(["day", "at:month", "id:bucket:16", "code:truncate:4"]) == {
        "partitions": [
            {"field": "day"},
            {"field": "at", "transform": "month"},
            {"field": "id", "transform": "bucket", "num_buckets": 16},
            {"field": "code", "transform": "truncate", "width": 4},
        ]
    }


@pytest.mark.parametrize("text", ["", "a:bucket:x", f"a:bucket:{'9' * 5000}", "a:month:3", "a:bucket:1:2", ":month"])
def test_a_bad_partition_field_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--partition-by"):
        parse_partition([text])


def test_assignments_are_names_and_values_once_each() -> None:
    assert parse_assignments(["a=1", "b=x=y"], "--set") == {"a": "1", "b": "x=y"}
    for bad in (["a"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(UsageError, match="--set"):
            parse_assignments(bad, "--set")


def test_several_tenants_are_one_too_many() -> None:
    with pytest.raises(UsageError, match="several tenants"):
        single_tenant(args("t", default_tenant="a,b"))
    assert single_tenant(args("t", default_tenant="a,b", tenant="a")) == "a"


def test_a_yaml_error_keeps_its_line_and_caret(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("table: orders\nschema:\n  fields: {id: long\n")
    with pytest.raises(UsageError) as raised:
        read_object(str(path))
    assert str(raised.value).splitlines() == [
        f"{path} is not YAML: line 3: expected ',' or '}}', but got '<stream end>'",
        "      fields: {id: long",
        "              ^",
    ]
    path.write_text("a: b: c\n")
    with pytest.raises(UsageError) as raised:
        read_object(str(path))
    assert str(raised.value).splitlines() == [
        f"{path} is not YAML: line 1: mapping values are not allowed here",
        "    a: b: c",
        "        ^",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{type: decimal(10,2)}",
        "{required: true, type: decimal(10, 2)}",
        "{a: decimal(10,2), b: long}",
        "[string, decimal(10,2)]",
    ],
)
def test_a_type_with_a_comma_says_to_quote_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(f"amount: {text}\n")
    with pytest.raises(UsageError, match=r'line 1: .*put the type in quotes: "decimal\(10,2\)"\n    amount: .*\n +\^'):
        read_object(str(tmp_path / "t.yaml"))

"""`firn table alter`: options and a file of changes are one request, about one table."""

from pathlib import Path
from typing import Any

import pytest

from handlers.alter_table import AlterTable
from service.cli.commands.alter import CHANGES
from service.operations.operation import ChangeRequest
from tests.unit.cli.test_commands import Service, firn

ADDRESS = {"operation": "ALTER_TABLE", "tenant_id": "default", "namespace": "default", "table": "t"}


def sent(tmp_path: Path, changes: str, *options: str) -> dict[str, Any]:
    (tmp_path / "c.yaml").write_text(changes)
    return asked("--changes", str(tmp_path / "c.yaml"), *options)


def asked(*options: str) -> dict[str, Any]:
    service = Service()
    done = firn(["table", "alter", "t", *options, "--yes"], service)
    assert done.code == 0, done.err
    [request] = service.asked
    return {name: value for name, value in request.items() if ADDRESS.get(name) != value}


def refused(tmp_path: Path, changes: str, *options: str) -> str:
    (tmp_path / "c.yaml").write_text(changes)
    service = Service()
    done = firn(["table", "alter", "t", "--changes", str(tmp_path / "c.yaml"), *options, "--yes"], service)
    assert (done.code, service.asked) == (2, [])
    return done.err


def test_a_file_may_hold_every_change_of_the_operation_and_no_more() -> None:
    others = {*ChangeRequest.model_fields, "operation", "confirm"}
    assert set(CHANGES) == set(AlterTable.model_fields) - others


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ("operation: DROP_TABLE\ntable: other\npurge: true\nconfirm: true\n", "operation is 'DROP_TABLE'"),
        ("table: other\ndrop_columns: [a]\n", "table is 'other', but this is about 't'; leave it out"),
        ("tenant_id: other\ndrop_columns: [a]\n", "tenant_id is 'other'"),
        ("namespace: other\ndrop_columns: [a]\n", "namespace is 'other'"),
        ("purge: true\n", "'purge' is not a change of a table; choose from add_columns,"),
        ("idempotency_key: k\n", "'idempotency_key' is not a change of a table"),
        ("add_colums: {}\n", "did you mean add_columns?"),
        ("drop_columns: a\n", "drop_columns must be a list, not 'a'"),
        ("add_columns: [a]\n", "add_columns must be an object"),
        ("description: 5\n", "description must be text, not 5"),
        ("operation: ALTER_TABLE\n", "no change is given"),
        ("add_columns: null\n", "no change is given"),
    ],
)
def test_a_file_of_changes_turns_the_command_into_no_other(tmp_path: Path, changes: str, says: str) -> None:
    assert says in refused(tmp_path, changes)


def test_a_request_that_was_saved_whole_is_sent_to_the_table_that_it_was_about(tmp_path: Path) -> None:
    saved = "operation: ALTER_TABLE\ntenant_id: default\ntable: t\ndescription: who buys\n"
    assert sent(tmp_path, saved) == {"description": "who buys"}


def test_a_question_is_asked_for_what_the_file_drops(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("drop_columns: [a]\n")
    service = Service(description={"schema": {"fields": {"a": {}, "b": {}}}})
    done = firn(["table", "alter", "t", "--changes", str(tmp_path / "c.yaml"), "--drop", "b"], service)
    assert (done.code, [each["operation"] for each in service.asked]) == (4, ["DESCRIBE_TABLE"])
    assert "The columns a, b of the table default.t are dropped" in done.err


def test_options_are_added_to_what_the_file_says(tmp_path: Path) -> None:
    changes = (
        "add_columns: {a: {type: string}}\nrename_columns: {b: c}\ndrop_columns: [d]\nchange_types: {e: long}\n"
        "set_nullable: {f: true}\nset_properties: {compaction: {mode: auto}}\nunset_properties: [compression]\n"
        "move_columns: [{column: a, first: true}]\n"
    )
    options = ["--add", "a2=long", "--rename", "b2=c2", "--drop", "d2", "--drop", "d", "--type", "e2=long"]
    options += ["--nullable", "f2", "--set", "compaction.min_files_to_compact=5", "--set", "compaction.mode=auto"]
    options += ["--unset", "snapshots", "--description", "x", "--primary-key", "a,b"]
    assert sent(tmp_path, changes, *options) == {
        "add_columns": {"a": {"type": "string"}, "a2": {"type": "long"}},
        "rename_columns": {"b": "c", "b2": "c2"},
        "drop_columns": ["d", "d2"],
        "change_types": {"e": "long", "e2": "long"},
        "set_nullable": {"f": True, "f2": True},
        "set_properties": {"compaction": {"mode": "auto", "min_files_to_compact": 5}},
        "unset_properties": ["compression", "snapshots"],
        "move_columns": [{"column": "a", "first": True}],
        "description": "x",
        "primary_key": ["a", "b"],
    }


@pytest.mark.parametrize(
    ("changes", "options", "name"),
    [
        ("add_columns: {a: {type: string}}", ["--add", "a=long"], "add_columns.a.type"),
        ("rename_columns: {a: b}", ["--rename", "a=c"], "rename_columns.a"),
        ("set_nullable: {a: false}", ["--nullable", "a"], "set_nullable.a"),
        ("set_properties: {compaction: {mode: off}}", ["--set", "compaction.mode=auto"], "compaction.mode"),
        ("set_properties: {edits: {undo_retention_hours: 1}}", ["--set", "edits.undo_retention_hours=true"], "edits"),
        ("primary_key: [a]", ["--primary-key", ""], "primary_key"),
        ("description: a", ["--description", "b"], "description"),
    ],
)
def test_what_file_and_options_say_otherwise_is_refused(
    tmp_path: Path, changes: str, options: list[str], name: str
) -> None:
    message = refused(tmp_path, changes, *options)
    assert name in message
    assert "leave it out of one of them" in message


def test_a_dot_in_a_propertys_name_leads_into_its_group() -> None:
    options = [
        "--set",
        "compaction.min_files_to_compact=5",
        "--set",
        "compaction.mode=auto",
        "--set",
        "compression=zstd",
    ]
    assert asked(*options) == {
        "set_properties": {"compaction": {"min_files_to_compact": 5, "mode": "auto"}, "compression": "zstd"}
    }
    done = firn(["table", "alter", "t", "--set", "compaction=1", "--set", "compaction.mode=auto"], Service())
    assert (done.code, "'compaction' has a value already" in done.err) == (2, True)


def test_a_key_and_a_description_can_be_taken_off() -> None:
    assert asked("--primary-key", "", "--description", "") == {"primary_key": [], "description": ""}


def test_commas_alone_are_no_key() -> None:
    done = firn(["table", "alter", "t", "--primary-key", ","], Service())
    assert (done.code, "names no column" in done.err) == (2, True)

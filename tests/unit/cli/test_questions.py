"""What is asked before data may be lost."""

import pytest

from tests.cli import Called
from tests.unit.cli.test_commands import ANSWER, Service, Typing, changes, firn

DELETE = {"operation": "DROP_TABLE", "confirm": True, "purge": True, "tenant_id": "default"}


@pytest.mark.parametrize("option", ["--yes", "-y"])
def test_a_table_is_deleted_for_good_without_a_question_if_told_so(option: str) -> None:
    service = Service(**ANSWER)
    assert firn(["table", "delete", "shop.orders", option], service).out == "deleted shop.orders\n"
    assert service.asked == [{**DELETE, "namespace": "shop", "table": "orders"}]


def test_deleting_and_dropping_a_table_ask_what_they_do() -> None:
    deleted = firn(["table", "delete", "t"], Service(**ANSWER), Typing("no\n"))
    assert "The table default.t and all of its files are deleted for good. Type yes to do it: " in deleted.err
    dropped = firn(["table", "drop", "t"], Service(**ANSWER), Typing("no\n"))
    assert "The table default.t is dropped; `firn table restore` can bring it back for some time." in dropped.err


def test_emptying_a_table_says_how_long_its_rows_can_come_back() -> None:
    emptied = firn(["table", "reinitialise", "t"], Service(**ANSWER), Typing("no\n"))
    assert (
        "All rows of the table default.t are deleted. `firn table rollback` can bring them back until their snapshots "
        "expire; --backup keeps them longer." in emptied.err
    )


@pytest.mark.parametrize(
    "line",
    [
        ["table", "drop", "t"],
        ["table", "delete", "t"],
        ["table", "rollback", "t", "--as-of", "5"],
        ["table", "undo", "t", "r"],
        ["table", "reinitialise", "t"],
        ["backup", "restore", "t", "b"],
        ["backup", "delete", "t", "b"],
    ],
    ids=" ".join,
)
def test_nobody_is_asked_about_what_would_fail(line: list[str]) -> None:
    service = Service(success=False, error={"code": "TABLE_NOT_FOUND", "message": "there is no table t"})
    for stdin in (None, Typing("yes\n")):
        done = firn(line, service, stdin)
        assert (done.code, done.err) == (1, "firn: TABLE_NOT_FOUND: there is no table t\n")
    assert changes(service) == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["schedule", "delete", "x"], "SCHEDULE_NOT_FOUND: there is no schedule x"),
        (["backup", "delete", "t", "x"], "BACKUP_NOT_FOUND: default.t has no backup x"),
        (["table", "alter", "t", "--drop", "x"], "UNKNOWN_FIELD: default.t has no column x; choose from c"),
    ],
)
def test_nobody_is_asked_about_what_does_not_exist(line: list[str], says: str) -> None:
    service = Service(**{**ANSWER, "schedules": []})
    done = firn(line, service, Typing("yes\n"))
    assert (done.code, done.err.startswith(f"firn: {says}"), changes(service)) == (1, True, [])


def test_deleting_no_schedule_is_no_failure_if_that_is_allowed() -> None:
    service = Service(schedules=[])
    assert firn(["schedule", "delete", "x", "--if-exists"], service) == Called(0, "x does not exist\n", "")
    assert changes(service) == []


def test_a_backup_that_may_be_on_another_page_is_asked_about() -> None:
    service = Service(backups=[{"name": "b"}], next_cursor="c")
    assert "The backup x is deleted for good." in firn(["backup", "delete", "t", "x"], service).err


@pytest.mark.parametrize("verb", ["drop", "delete"])
def test_nobody_is_asked_about_what_would_do_nothing(verb: str) -> None:
    service = Service(success=False, error={"code": "TABLE_NOT_FOUND", "message": "there is no table t"})
    assert firn(["table", verb, "t", "--if-exists"], service) == Called(0, "default.t does not exist\n", "")
    assert [each["operation"] for each in service.asked] == ["DESCRIBE_TABLE"]


def test_force_is_still_taken_where_yes_is() -> None:
    assert firn(["--yes", "table", "drop", "t"], Service(**{**ANSWER, "purged": False})).code == 0

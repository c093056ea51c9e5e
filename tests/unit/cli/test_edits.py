"""`firn write`, `upsert`, `update`, `delete`, `table partitions` and `table orphans`: what they send and show."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from service.cli.connection.remote import encode
from tests.cli import Called
from tests.unit.cli.test_commands import Service, Typing, firn, written

ADDRESS = {"tenant_id": "default", "namespace": "shop", "table": "t"}
COUNTS = {"records_inserted": 0, "records_updated": 2, "records_deleted": 0}
ROW = {"id": 1, "who": "Ann"}


def sent(line: list[str], stdin: str = "", **answer: Any) -> dict[str, Any]:
    service = Service(**{**COUNTS, **answer})
    done = firn(line, service, written(stdin))
    assert done.code == 0, done.err
    (body,) = service.asked
    return dict(json.loads(body) if isinstance(body, bytes) else body)


@pytest.mark.parametrize("text", ['[{"a": 1}, {"a": 2}]', '{"a": 1}\n\n{"a": 2}\n'])
@pytest.mark.parametrize("verb", ["write", "upsert"])
def test_records_are_an_array_or_lines(verb: str, text: str, tmp_path: Path) -> None:
    expected = {"operation": verb.upper(), **ADDRESS, "records": [{"a": 1}, {"a": 2}]}
    assert sent([verb, "shop.t", "-"], text) == expected
    (tmp_path / "rows.json").write_text(text)
    assert sent([verb, "shop.t", str(tmp_path / "rows.json")]) == expected


def test_numbers_are_sent_as_they_are_written() -> None:
    service = Service(records_written=1)
    firn(["write", "t", "-"], service, written('{"a": 1.10, "b": 12345678901234567.89}'))
    assert b'"records": [{"a": 1.10, "b": 12345678901234567.89}]' in service.asked[0]


@pytest.mark.parametrize("text", ['{"a": 1}\n5\n', '{"a": 1}\n{"a"\n', "[{]", "", " \n"])
def test_what_is_no_record_is_refused_before_it_is_sent(text: str) -> None:
    service = Service()
    assert firn(["write", "t", "-"], service, written(text)).code == 2
    assert service.asked == []


def test_each_option_of_an_edit_is_sent() -> None:
    options = ["--partition-filter", "day = 5", "--backup", "--backup-retention-hours", "7", "--plan", "p"]
    common = {
        "partition_filter": {"expression": "day = 5"},
        "create_backup": True,
        "backup_retention_hours": 7,
        "plan_token": "p",
    }
    where = ["--where", "a = 1"]
    for line, stdin, own in (
        (["write", "shop.t", "-", "--overwrite", "--yes"], "[]", {"mode": "overwrite", "records": []}),
        (
            ["upsert", "shop.t", "-", "--key", "a,b", "--update-columns", "c", "--last-wins"],
            "[]",
            {"key_cols": ["a", "b"], "update_cols": ["c"], "on_duplicate": "last", "records": []},
        ),
        (
            ["update", "shop.t", "--set", "a=5", "--compute", "b=a * 2", *where],
            "",
            {"updates": {"a": 5, "b": {"expression": "a * 2"}}, "filter": {"expression": "a = 1"}},
        ),
        (["delete", "shop.t", "--all"], "", {"all": True}),
        (["delete", "shop.t", "--where", '{"a": 1}'], "", {"filter": {"a": 1}}),
    ):
        assert sent([*line, *options], stdin) == {"operation": line[0].upper(), **ADDRESS, **own, **common}


@pytest.mark.parametrize(
    "line",
    [
        ["delete", "t"],
        ["delete", "t", "--where", "a = 1", "--all"],
        ["update", "t", "--where", "a = 1"],
        ["update", "t", "--set", "a=1"],
        ["update", "t", "--set", "a=1", "--compute", "a=2", "--all"],
    ],
    ids=" ".join,
)
def test_what_is_incomplete_or_contradicts_itself_is_not_sent(line: list[str]) -> None:
    service = Service()
    assert firn([*line, "--yes"], service).code == 2
    assert service.asked == []


def test_a_dry_run_shows_the_rows_and_how_to_commit_them() -> None:
    sample = [
        {"before": ROW, "after": {**ROW, "who": "Bo"}},
        {"after": {**ROW, "id": 2}},
    ]
    service = Service(dry_run=True, plan={**COUNTS, "sample": sample, "plan_token": "abc"})
    shown = firn(["upsert", "t", "-", "--dry-run"], service, written("[]")).out
    assert shown == (
        "   id  who\n-   1  Ann\n+   1  Bo\n+   2  Ann\n2 rows would be updated\ncommit exactly this with --plan abc\n"
    )


def test_deleting_all_rows_is_asked_about() -> None:
    service = Service(records_deleted=5)
    assert firn(["delete", "t", "--all"], service, Typing("no\n")).code == 4
    assert firn(["delete", "t", "--all"], service, Typing("yes\n")).out == "5 rows deleted\n"
    assert firn(["delete", "t", "--where", "a = 1"], service, io.StringIO()).code == 0


def test_replacing_rows_is_asked_about_unless_it_can_be_taken_back() -> None:
    overwrite = ["write", "t", "-", "--overwrite"]
    service = Service(records_written=0)
    for guard in ("--yes", "--dry-run", "--backup", "--plan=p"):
        firn([*overwrite, guard], service, written("[]"))
    assert len(service.asked) == 4


def test_replacing_rows_is_asked_about_after_its_records_were_checked() -> None:
    overwrite = ["write", "t", "-", "--overwrite"]
    service = Service(records_written=1)
    done = firn(overwrite, service, written('[{"n": 1.10}]'))
    assert (done.code, "All rows of the table default.t are replaced." in done.err) == (4, True)
    [preview] = service.asked
    assert preview.endswith(b'"dry_run": true, "records": [{"n": 1.10}]}')
    refusing = Service(success=False, error={"code": "INVALID_RECORD", "message": "records[0]"})
    assert firn(overwrite, refusing, written('[{"n": 1.10}]')) == Called(1, "", "firn: INVALID_RECORD: records[0]\n")


@pytest.mark.parametrize(
    ("text", "sent_as"),
    [
        ("12345678901234567.89", "12345678901234567.89"),
        ("[0.12345678901234567890, 1.5]", "[0.12345678901234567890, 1.5]"),
        ("1.5", "1.5"),
        ("", '""'),
        ("null", "null"),
    ],
)
def test_a_value_of_an_option_keeps_its_digits_and_an_empty_one_is_text(text: str, sent_as: str) -> None:
    assert (
        encode(sent(["update", "shop.t", "--set", f"a={text}", "--all"])["updates"]) == f'{{"a": {sent_as}}}'.encode()
    )


@pytest.mark.parametrize(
    "line",
    [
        ["write", "t", "-", "--overwrite", "--yes", "--partition-filter", ""],
        ["delete", "t", "--where", "a = 1", "--plan", ""],
    ],
)
def test_a_guard_whose_value_is_empty_is_refused(line: list[str]) -> None:
    service = Service()
    assert firn(line, service, written("[]")).code == 2
    assert service.asked == []


def test_a_line_break_of_another_kind_may_be_inside_a_text() -> None:
    service = Service(records_written=1)
    firn(["write", "t", "-"], service, written('{"a": "x\u2028y"}\n'))
    assert json.loads(service.asked[0])["records"] == [{"a": "x\u2028y"}]


def test_partitions_and_orphans_are_listed() -> None:
    partition = {"partition": {"day": "2026-03-01"}, "records": 5, "files": 2, "small_files": 1, "bytes": 2048}
    service = Service(partitions=[partition], total=7, next_cursor="more")
    assert firn(["table", "partitions", "t", "--limit", "1"], service).out == (
        "PARTITION       ROWS  FILES  SMALL     SIZE\n"
        "day=2026-03-01     5      2      1  2.0 KiB\n"
        "1 partition of 7; use --limit to see more\n"
    )
    orphans = Service(files_found=2, files_removed=2, bytes=2048, files=["a", "b"])
    assert firn(["table", "orphans", "t", "--yes"], orphans).out == "2 files of 2.0 KiB found, 2 deleted\n"

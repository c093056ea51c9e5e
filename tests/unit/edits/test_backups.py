"""Backups by their names and by what a request, a table and the settings say of them."""

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from service.catalog.tables import Snapshot, Table
from service.commits.backups import Backups, backup_of, named, parse_backup_name
from service.errors import InvalidRequest
from service.model.names import BACKUP_PROPERTY, TableName
from service.model.properties import TableProperties, changed_properties, describe, edit_policy, to_iceberg
from service.model.schema.definition import parse_schema
from service.settings import EditSettings, IcebergSettings
from tests.fakes import FakeTable
from tests.unit.commit_setup import CommitSetup

SETTINGS = IcebergSettings()
SCHEMA = parse_schema({"fields": {"id": {"type": "long"}}})
# The years that a table may live in.
MOMENTS = st.integers(0, 253_402_300_799_999)


def backups(home: Path, **settings: Any) -> Backups:
    setup = CommitSetup(home / "ledger.db")
    return Backups(EditSettings(**settings), setup.catalog.as_catalog, setup.commits)


def table(**edits: Any) -> Table:
    properties = TableProperties.model_validate({"edits": edits})
    made = FakeTable(TableName("acme", "shop", "orders"), "u", SCHEMA, to_iceberg(properties, SETTINGS))
    return cast(Table, made)


def snapshot(parent_id: int | None, **summary: str) -> Snapshot:
    return Snapshot(2, parent_id, 0, SCHEMA, summary)


@given(now_ms=MOMENTS, operation=st.sampled_from(["UPDATE", "DELETE", "UPSERT", "WRITE", "RESTORE_BACKUP"]))
def test_a_backups_name_says_when_and_for_what_it_was_made(now_ms: int, operation: str) -> None:
    result = parse_backup_name(named(operation, now_ms))
    assert result is not None
    moment, made = result
    assert (round(moment.timestamp() * 1000), moment.tzinfo, made) == (now_ms, UTC, operation)


def test_a_backups_name_can_be_read() -> None:
    name = named("RESTORE_BACKUP", 1_714_558_272_045)
    assert re.fullmatch(r"backup-20240501T101112045Z-restore_backup-[0-9a-f]{8}", name)


def test_backups_that_are_made_at_the_same_time_have_names_of_their_own() -> None:
    assert len({named("UPDATE", 0) for _ in range(1000)}) == 1000


@given(st.text() | st.from_regex(r"backup-\w*-\w*-\w*"))
def test_a_name_that_a_user_chose_is_not_a_backups(name: str) -> None:
    assert parse_backup_name(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "backup-20240501T101112045Z-update",
        "backup-20240501T101112045Z-UPDATE-0123abcd",
        "backup-20240231T101112045Z-update-0123abcd",
        "backup-20240501T251112045Z-update-0123abcd",
        "backup-20240501T101112045Z-update-0123abcd ",
        "my-backup-20240501T101112045Z-update-0123abcd",
    ],
)
def test_a_name_that_is_nearly_a_backups_is_none(name: str) -> None:
    assert parse_backup_name(name) is None


def test_no_backup_is_made_unless_somebody_wants_it(tmp_path: Path) -> None:
    assert backups(tmp_path).wanted(table(), None, None, "UPDATE") is None
    assert backups(tmp_path).wanted(table(), False, None, "UPDATE") is None


@pytest.mark.parametrize(
    ("service", "own", "asked", "hours", "kept"),
    [
        ({}, {}, True, None, 168),
        ({}, {}, True, 5, 5),
        ({}, {"create_backup": True}, None, None, 168),
        ({}, {"create_backup": True, "backup_retention_hours": 3}, None, None, 3),
        ({}, {"create_backup": True, "backup_retention_hours": 3}, None, 7, 7),
        ({"backup_retention_hours": 9}, {}, True, None, 9),
        ({"create_backup": True}, {}, None, None, 168),
        ({"create_backup": True}, {"create_backup": False}, None, None, None),
        ({"create_backup": True}, {"create_backup": True}, False, None, None),
    ],
)
def test_the_request_has_the_last_word_then_the_table_then_the_settings(
    service: dict[str, Any],
    own: dict[str, Any],
    asked: bool | None,
    hours: int | None,
    kept: int | None,
    tmp_path: Path,
) -> None:
    tag = backups(tmp_path, **service).wanted(table(**own), asked, hours, "UPSERT")
    assert (tag and tag.keep_ms) == (kept and kept * 3_600_000)
    if tag:
        result = parse_backup_name(tag.name)
        assert result is not None
        assert result[1] == "UPSERT"
        assert abs(result[0].timestamp() - time.time()) < 60


@pytest.mark.parametrize("asked", [None, False])
def test_a_retention_without_a_backup_is_refused(asked: bool | None, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as refused:
        backups(tmp_path).wanted(table(), asked, 5, "UPDATE")
    assert refused.value.field == "backup_retention_hours"
    assert "create_backup: true" in refused.value.message


def test_a_change_names_the_backup_it_made_and_a_first_commit_made_none() -> None:
    stamped = {BACKUP_PROPERTY: "backup-x"}
    assert backup_of(snapshot(1, **stamped)) == "backup-x"
    assert backup_of(snapshot(None, **stamped)) is None
    assert backup_of(snapshot(1)) is None
    assert backup_of(None) is None


def test_a_tables_options_are_kept_in_its_properties_and_shown_as_they_were_given() -> None:
    options_given = {
        "create_backup": True,
        "backup_retention_hours": 24,
        "undo_retention_hours": 2,
        "row_level": "auto",
    }
    properties = to_iceberg(TableProperties.model_validate({"edits": options_given}), SETTINGS)
    assert describe(properties)["edits"] == options_given
    assert edit_policy(properties, EditSettings()).model_dump() == options_given
    plain = to_iceberg(TableProperties(), SETTINGS)
    assert "edits" not in describe(plain)
    assert edit_policy(plain, EditSettings()) == EditSettings()


def test_a_tables_options_may_stand_flat_beside_the_other_properties() -> None:
    flat = {"create_backup": True, "undo_retention_hours": 2, "mode": "off", "edits": {"backup_retention_hours": 24}}
    read = TableProperties.model_validate(flat)
    assert read.edits.model_dump() == {
        "create_backup": True,
        "undo_retention_hours": 2,
        "backup_retention_hours": 24,
        "row_level": None,
    }
    assert read.compaction.mode == "off"
    assert changed_properties(TableProperties.model_validate({"create_backup": None}), SETTINGS) == {
        "firn.edits.create_backup": None
    }


@pytest.mark.parametrize(("group", "name"), [("edits", "create_backup"), ("compaction", "enabled")])
def test_an_option_given_both_flat_and_in_its_group_is_refused(group: str, name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name} is given twice, inside and outside of {group}"):
        TableProperties.model_validate({name: True, group: {name: True}})


def test_what_another_program_wrote_and_cannot_be_does_not_count() -> None:
    properties = {"firn.edits.create_backup": "perhaps", "firn.edits.backup_retention_hours": "0"}
    assert edit_policy(properties, EditSettings()) == EditSettings()


@pytest.mark.parametrize(
    "option",
    [{"create_backup": "yes"}, {"backup_retention_hours": 0}, {"keep": True}],
)
def test_an_impossible_option_is_refused(option: dict[str, Any]) -> None:
    for properties in ({"edits": option}, option):
        with pytest.raises(ValidationError):
            TableProperties.model_validate(properties)


def test_a_backups_time_is_that_of_utc() -> None:
    result = parse_backup_name("backup-20240501T101112045Z-update-0123abcd")
    assert result == (datetime(2024, 5, 1, 10, 11, 12, 45_000, tzinfo=UTC), "UPDATE")

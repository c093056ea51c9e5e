"""A table's past, from its metadata and the ledger: no JVM, and no data."""

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.types import LongType, NestedField

from service.catalog.as_of import snapshot_as_of
from service.catalog.lineage import row_changes_between
from service.catalog.tables import Snapshot, Table
from service.edits.rollback import RollbackTarget, rollback_target
from service.errors import InvalidRequest, PlanStale, SnapshotNotFound
from service.guard.policies import Policies
from service.ledger.ledger import Ledger, NewBatch
from service.model.as_of import Moment, moment
from service.model.call import Call
from service.model.schema.types import TableSchema
from service.queries.diff import Differences, DiffPage
from service.queries.history import CommitRows, commit_rows, history_entries, newest_first, same_rows
from tests.fakes import QuickLedger
from tests.unit.iceberg_tables import ORDERS, append, make_table, open_catalog

NO_COLUMNS = TableSchema(())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return make_table(open_catalog(tmp_path))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return QuickLedger(f"sqlite:///{tmp_path / 'ledger.db'}")


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (7, 7),
        ("7", 7),
        ("9223372036854775807", 2**63 - 1),
        ("1" * 20, "1" * 20),
        ("1" * 5000, "1" * 5000),
        ("2024-01-31", datetime(2024, 1, 31, tzinfo=UTC)),
        ("2024-01-31T12:00:00Z", datetime(2024, 1, 31, 12, tzinfo=UTC)),
        ("2024-01-31T12:00:00+02:00", datetime(2024, 1, 31, 10, tzinfo=UTC)),
        ("release-7", "release-7"),
        ("backup-20240501T101112045Z-delete-1f0c9a7e", "backup-20240501T101112045Z-delete-1f0c9a7e"),
        ("٧", "٧"),
        ("", ""),
    ],
)
def test_a_state_is_named_by_id_time_or_tag(value: int | str, named: Moment) -> None:
    assert moment(value) == named


def test_a_tag_names_its_snapshot_and_a_branch_names_none(table: Table) -> None:
    first = append(table, None)
    append(table, None)
    table.iceberg.manage_snapshots().create_tag(first, "one").create_branch(first, "side").commit()
    assert snapshot_as_of(table, "one").snapshot_id == first
    with pytest.raises(SnapshotNotFound, match=r"has no tag or backup 'ones'; did you mean 'one'\?") as refused:
        snapshot_as_of(table, "ones", "from_snapshot")
    assert (refused.value.field, refused.value.suggestion) == ("from_snapshot", "one")
    with pytest.raises(SnapshotNotFound, match=r"'side'; it has one$"):
        snapshot_as_of(table, "side")
    with pytest.raises(SnapshotNotFound, match="has no tag or backup '111"):
        snapshot_as_of(table, "1" * 5000)


def test_a_tag_whose_name_can_be_read_in_two_ways_is_refused_unless_both_mean_the_same(table: Table) -> None:
    first = append(table, None)
    last = append(table, None)
    tags = {"2024": first, "2999-01-01": first, "2998-01-01": last, str(last): first, str(first): first}
    for name, snapshot_id in tags.items():
        table.iceberg.manage_snapshots().create_tag(snapshot_id, name).commit()
    assert snapshot_as_of(table, "2024").snapshot_id == first  # no snapshot has this id
    assert snapshot_as_of(table, "2998-01-01").snapshot_id == last
    assert snapshot_as_of(table, str(first)).snapshot_id == first
    assert snapshot_as_of(table, last).snapshot_id == last  # a number is always an id
    for name, other in (("2999-01-01", "time"), (str(last), "snapshot id")):
        with pytest.raises(InvalidRequest, match=f"is the name of a tag and also a {other}; for the tag, send {first}"):
            snapshot_as_of(table, name)
    assert snapshot_as_of(table, "2999-01-01T00:00:00Z").snapshot_id == last


def test_what_is_not_there_is_told_with_the_oldest_that_is(table: Table) -> None:
    with pytest.raises(SnapshotNotFound, match="it has no commits yet"):
        table.snapshot(5)
    first = append(table, None)
    append(table, None)
    for asked in (5, "5", "2001-01-01"):
        with pytest.raises(SnapshotNotFound, match=f"its oldest snapshot is {first}, of 20"):
            snapshot_as_of(table, asked)


def test_commits_are_told_with_the_requests_that_share_them(table: Table, ledger: Ledger) -> None:
    made = [append(table, None, batch=batch, rows=3) for batch in ("one", "two", "unknown")]
    ledger.begin(NewBatch("one", ORDERS, table.uuid, "WRITE", ["a", "b", "c"]))
    ledger.begin(NewBatch("two", ORDERS, table.uuid, "UPSERT", ["d"]))
    found = history_entries(table, ledger, newest_first(table.snapshots()))
    assert [entry.snapshot.snapshot_id for entry in found] == made[::-1]
    assert [entry.requests and (entry.requests.operation, entry.requests.request_ids) for entry in found] == [
        None,
        ("UPSERT", ("d",)),
        ("WRITE", ("a", "b", "c")),
    ]
    assert [entry.rows for entry in found] == [CommitRows(3)] * 3
    [second] = history_entries(table, ledger, [table.snapshot(made[1])])
    assert second.snapshot.snapshot_id == made[1]


def test_a_snapshot_that_the_table_was_taken_back_behind_is_no_ancestor(table: Table, ledger: Ledger) -> None:
    first, second = append(table, None), append(table, None)
    table.iceberg.manage_snapshots().rollback_to_snapshot(first).commit()
    found = history_entries(table, ledger, newest_first(table.snapshots()))
    assert [(entry.snapshot.snapshot_id, entry.is_current, entry.is_ancestor) for entry in found] == [
        (second, False, False),
        (first, True, True),
    ]


class TestWhereSnapshotsHaveExpired:
    """One of four snapshots is gone, and the table is built on all of them."""

    @pytest.fixture
    def made(self, table: Table) -> list[int]:
        made = [append(table, None) for _ in range(4)]
        # As the JVM's Iceberg lets one go: the next still names it.
        gone = made.pop(1)
        metadata = table.iceberg.metadata
        left = [s for s in metadata.snapshots if s.snapshot_id != gone]
        table.iceberg.metadata = metadata.model_copy(update={"snapshots": left})
        return made

    def test_what_is_older_is_an_ancestor_still(self, table: Table, ledger: Ledger, made: list[int]) -> None:
        found = history_entries(table, ledger, newest_first(table.snapshots()))
        assert [entry.snapshot.snapshot_id for entry in found if entry.is_ancestor] == made[::-1]

    def test_how_many_changes_there_were_is_known_up_to_them(self, table: Table, made: list[int]) -> None:
        assert [row_changes_between(table, one) for one in made] == [None, 1, 0]

    def test_a_plan_from_before_them_is_stale_because_nobody_knows(self, table: Table, made: list[int]) -> None:
        assert "is unknown, as snapshots between have expired" in stale(table, made[0])

    def test_one_from_after_them_is_so_because_of_what_came(self, table: Table, made: list[int]) -> None:
        assert "rows were changed since" in stale(table, made[1])

    def test_one_that_is_gone_is_so_because_the_table_is_not_built_on_it(self, table: Table, made: list[int]) -> None:
        assert "not built on" in stale(table, 5)


def stale(table: Table, expected_id: int) -> str:
    """Why a rollback that was thought out at a snapshot is refused."""
    with pytest.raises(PlanStale) as refused:
        rollback_target(RollbackTarget(0, expected_id)).check(table)
    return refused.value.message


def snapshot(number: int = 1, parent: int | None = None, schema_id: int = 0, **summary: Any) -> Snapshot:
    expected = {key.replace("_", "-"): str(value) for key, value in summary.items()}
    return Snapshot(number, parent, number, NO_COLUMNS, expected, schema_id, number)


@pytest.mark.parametrize(
    ("summary", "rows"),
    [
        ({"operation": "append", "added_records": 3}, CommitRows(3)),
        ({"operation": "overwrite", "added_records": 3, "deleted_records": 5}, CommitRows(3, 5)),
        ({"operation": "replace", "added_records": 5, "deleted_records": 5}, CommitRows()),
        ({"operation": "append", "firn_fence": "batch"}, CommitRows()),
        ({"operation": "delete", "added_position_deletes": 2}, CommitRows(0, 2)),
        ({"operation": "delete", "deleted_records": 9, "removed_position_deletes": 2}, CommitRows(0, 7)),
        ({"operation": "delete", "added_position_deletes": 3, "removed_position_deletes": 2}, CommitRows(0, 1)),
        ({}, CommitRows()),
    ],
)
def test_rows_that_came_and_went_are_those_of_the_summary(summary: dict[str, Any], rows: CommitRows) -> None:
    assert commit_rows(snapshot(**summary)) == rows


def test_an_edit_says_itself_what_it_did() -> None:
    edit = json.dumps({"updated": 1, "deleted": 2, "inserted": 3, "unchanged": 4})
    copied = {"operation": "overwrite", "added_records": 100, "deleted_records": 99}
    assert commit_rows(snapshot(firn_edit=edit, **copied)) == CommitRows(3, 2, 1)
    undo = json.dumps({"removed": 4, "restored": 5, "files": 1, "operation": "UPDATE"})
    assert commit_rows(snapshot(firn_edit=undo, **copied)) == CommitRows(5, 4)


def test_format_one_orders_its_snapshots_by_time() -> None:
    old = [Snapshot(n, None, ms, NO_COLUMNS, {}) for n, ms in ((1, 30), (2, 10), (3, 20))]
    assert [s.snapshot_id for s in newest_first(old)] == [1, 3, 2]


class Past:
    """As much of a table as `same_rows` looks at."""

    def __init__(self, *snapshots: Snapshot) -> None:
        made = [
            IcebergSnapshot(
                snapshot_id=s.snapshot_id,
                parent_snapshot_id=s.parent_id,
                sequence_number=s.sequence_number,
                timestamp_ms=s.timestamp_ms,
                manifest_list="",
                summary=Summary(Operation(s.summary["operation"])),
            )
            for s in snapshots
        ]
        self.iceberg = SimpleNamespace(metadata=SimpleNamespace(snapshots=made, current_snapshot_id=None))


@pytest.mark.parametrize(
    ("between", "schema_id", "same"),
    [
        (["replace", "replace"], 0, True),
        (["replace", "append"], 0, False),
        (["append", "replace"], 0, False),
        (["replace", "replace"], 1, False),
        ([], 0, True),
    ],
)
def test_rows_are_the_same_where_only_files_were_rewritten(between: list[str], schema_id: int, same: bool) -> None:
    made = [snapshot(1, operation="append")]
    for i, kind in enumerate(between, start=2):
        made.append(snapshot(i, i - 1, schema_id if i > len(between) else 0, operation=kind))
    past: Any = Past(*made)
    assert same_rows(past, made[0], made[-1]) is same
    assert same_rows(past, made[-1], made[0]) is same


def test_rows_are_not_known_to_be_the_same_across_what_has_expired_or_branched() -> None:
    one, two, three = (
        snapshot(1, operation="append"),
        snapshot(2, 1, operation="append"),
        snapshot(3, 1, operation="replace"),
    )
    past: Any = Past(one, two, three)
    assert same_rows(past, one, three)
    assert not same_rows(past, two, three)
    four = snapshot(4, 3, operation="replace")
    gone: Any = Past(one, four)
    assert not same_rows(gone, one, four)


class TestTheKeyOfADiff:
    FIELDS = Schema(
        NestedField(1, "a", LongType(), required=True),
        NestedField(2, "b", LongType(), required=True),
        identifier_field_ids=[1],
    )

    @pytest.fixture
    def table(self, tmp_path: Path) -> Table:
        catalog = open_catalog(tmp_path)
        catalog.ensure_namespace(ORDERS.identifier[0])
        catalog.iceberg.create_table(ORDERS.identifier, self.FIELDS)
        table = catalog.load(ORDERS)
        append(table, None)
        return table

    def keys(self, table: Table, key_cols: list[str] | None = None) -> tuple[str, ...]:
        """What pairs the rows of a table's only snapshot."""
        nothing: Any = None  # rows that are the same are not compared
        [one] = table.snapshots()
        fresh = Table(table.name, table.iceberg.refresh())
        differences = Differences(nothing, nothing, nothing, Policies(nothing))
        return differences.between(Call("r"), fresh, one, one, key_cols, DiffPage(1)).keys

    def test_is_the_tables_also_where_it_came_after_the_snapshot(self, table: Table) -> None:
        with table.iceberg.update_schema() as change:
            change.set_identifier_fields("b")
        assert self.keys(table) == ("b",)
        assert self.keys(table, ["a"]) == ("a",)
        assert self.keys(table, []) == ()

    def test_is_called_as_its_columns_were_then(self, table: Table) -> None:
        with table.iceberg.update_schema() as change:
            change.rename_column("a", "c")
        assert self.keys(table) == ("a",)

    def test_is_none_where_the_table_has_none(self, table: Table) -> None:
        with table.iceberg.update_schema() as change:
            change.set_identifier_fields()
        assert self.keys(table) == ()

    def test_is_the_snapshots_own_where_that_lacks_a_column_of_the_tables(self, table: Table) -> None:
        with table.iceberg.update_schema(allow_incompatible_changes=True) as change:
            change.add_column("c", LongType(), required=True)
            change.set_identifier_fields("b", "c")
        assert self.keys(table) == ("a",)

"""A table's compaction policy: what it shows, what is refused, and that setting it disturbs nobody."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table as IcebergTable

from handlers.set_compaction import SetCompaction, set_compaction
from service.catalog.tables import Catalog, Table
from service.errors import CommitConflict, FirnError, InvalidRequest, TableNotFound, UnknownField
from service.maintenance.advise.auto import Auto
from service.maintenance.policy import (
    SNAPSHOTS,
    TARGET,
    EffectiveCompaction,
    EffectiveSnapshots,
    check_policy,
    effective_policy,
)
from service.model.call import Call
from service.model.names import TableName
from service.model.properties import (
    CompactionOverrides,
    SnapshotOverrides,
    TableProperties,
    snapshot_policy,
    to_iceberg,
)
from service.model.schema.definition import parse_schema
from service.settings import IcebergSettings, Settings
from tests.support.composed import Composed
from tests.unit.iceberg_tables import ORDERS, SCHEMA, append, connected, make_table, open_catalog

SETTINGS = IcebergSettings()


class Listening:
    """As much of auto mode as is told of a new policy."""

    def __init__(self) -> None:
        self.told: list[TableName] = []

    def policy_changed(self, name: TableName) -> None:
        self.told.append(name)


class Setup(Composed):
    """As much of the service as SET_COMPACTION needs, over a real catalog."""

    def __init__(self, home: Path, opened: Callable[[Path], Catalog] = open_catalog) -> None:
        super().__init__(home / "ledger.db", catalog=opened(home), settings=Settings(home=home))
        self.auto = Listening()

    def set(self, **fields: Any) -> EffectiveCompaction:
        request = SetCompaction.model_validate(
            {"operation": "SET_COMPACTION", "tenant_id": "acme", "namespace": "shop", "table": "orders", **fields}
        )
        result = set_compaction.handler(
            request, Call("r"), self.settings.iceberg, self.catalog, self.commits, cast(Auto, self.auto)
        )
        return cast(Any, result).compaction

    @property
    def table(self) -> Table:
        return self.catalog.load(ORDERS)

    @property
    def now(self) -> EffectiveCompaction:
        return effective_policy(self.table.properties, SETTINGS)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    setup = Setup(tmp_path)
    make_table(setup.catalog, **to_iceberg(TableProperties(), SETTINGS))
    return setup


def test_a_policy_shows_every_field_that_a_table_can_set() -> None:
    shown = set(EffectiveCompaction.model_fields)
    assert shown == {*CompactionOverrides.model_fields, TARGET, SNAPSHOTS, "overridden"}
    assert set(EffectiveSnapshots.model_fields) == set(SnapshotOverrides.model_fields)
    assert set(SetCompaction.model_fields) >= shown - {"overridden"}


def test_a_table_without_options_has_the_services_policy() -> None:
    shown = effective_policy(to_iceberg(TableProperties(), SETTINGS), SETTINGS)
    assert shown.overridden == []
    assert (shown.mode, shown.target_file_size_mb, shown.sort_by, shown.window) == ("recommend", 128, [], None)
    assert shown.min_files_to_compact == SETTINGS.compaction.min_files_to_compact


def test_what_is_left_out_stays_and_null_goes_back(setup: Setup) -> None:
    first = setup.set(mode="auto", min_files_to_compact=9, target_file_size_mb=256, window="22:00-04:00")
    assert first.overridden == ["mode", "target_file_size_mb", "min_files_to_compact", "window"]
    assert first == setup.now
    assert setup.auto.told == [ORDERS]
    second = setup.set(mode="off", window=None, target_file_size_mb=None)
    assert (second.mode, second.window, second.target_file_size_mb, second.min_files_to_compact) == (
        "off",
        None,
        128,
        9,
    )
    assert second.overridden == ["mode", "min_files_to_compact"]
    assert setup.set(mode=None, min_files_to_compact=None).overridden == []


def test_of_old_snapshots_too_what_is_left_out_stays_and_null_goes_back(setup: Setup) -> None:
    setup.set(snapshots={"keep_last": 7, "keep_at_most": 9})
    assert snapshot_policy(setup.table.properties, SETTINGS.snapshots).keep_last == 7
    shown = setup.set(snapshots={"keep_last": None, "hourly_for_hours": 2})
    assert shown.snapshots.model_dump() == {"keep_last": 100, "hourly_for_hours": 2, "keep_at_most": 9}
    assert shown.overridden == ["snapshots.hourly_for_hours", "snapshots.keep_at_most"]
    assert setup.set(mode="auto").snapshots == shown.snapshots
    assert setup.set(snapshots=None).overridden == ["mode"]


def test_every_field_can_be_set_and_is_shown_as_it_was_set(setup: Setup) -> None:
    fields = {
        "enabled": False,
        "mode": "auto",
        "target_file_size_mb": 300,
        "small_file_threshold_mb": 200,
        "min_files_to_compact": 7,
        "opportunistic_check_interval": 11,
        "max_files_per_compaction": 77,
        "snapshot_retention_hours": 5,
        "strategy": "zorder",
        "sort_by": ["id", "country"],
        "window": "23:00-01:30 Asia/Kathmandu",
        "snapshots": {"keep_last": 7, "hourly_for_hours": 3, "keep_at_most": 9},
    }
    shown = setup.set(**fields).model_dump()
    assert shown.pop("overridden") == [*list(fields)[:-1], *(f"snapshots.{n}" for n in SnapshotOverrides.model_fields)]
    assert shown == fields
    assert setup.now.model_dump(exclude={"overridden"}) == fields


def test_setting_a_policy_makes_no_snapshot_and_keeps_other_properties(setup: Setup) -> None:
    append(setup.table, None)
    before = setup.table
    setup.set(mode="auto")
    after = setup.table
    assert (after.uuid, after.current_snapshot_id, after.snapshot_count) == (before.uuid, before.current_snapshot_id, 1)
    assert before.properties.items() <= after.properties.items()
    assert after.properties.keys() - before.properties.keys() == {"firn.compaction.mode"}


def test_what_is_so_already_is_not_committed_again(setup: Setup) -> None:
    setup.set(mode="auto")
    before = setup.table.metadata_location
    setup.set(mode="auto", window=None)
    assert setup.table.metadata_location == before


@pytest.mark.parametrize(
    ("had", "fields", "error", "field"),
    [
        ({}, {}, InvalidRequest, None),
        ({}, {"strategy": "sort"}, InvalidRequest, "sort_by"),
        ({"strategy": "sort", "sort_by": ["id"]}, {"sort_by": None}, InvalidRequest, "sort_by"),
        ({}, {"sort_by": ["id", "cuontry"]}, UnknownField, "sort_by[1]"),
        ({}, {"sort_by": ["id", "id"]}, InvalidRequest, "sort_by[1]"),
        ({}, {"small_file_threshold_mb": 128}, InvalidRequest, "small_file_threshold_mb"),
        ({"small_file_threshold_mb": 100}, {"target_file_size_mb": 100}, InvalidRequest, "target_file_size_mb"),
        ({}, {"window": "01:00-02:00 Europe/Zurick"}, InvalidRequest, "window"),
        ({}, {"window": "01:00-02:00 ../etc/passwd"}, InvalidRequest, "window"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_and_changes_nothing(
    setup: Setup, had: dict[str, Any], fields: dict[str, Any], error: type[FirnError], field: str | None
) -> None:
    if had:
        setup.set(**had)
    before = setup.table.metadata_location
    with pytest.raises((error, ValueError)) as refused:
        setup.set(**fields)
    if isinstance(refused.value, FirnError):
        assert (type(refused.value), refused.value.field) == (error, field)
    else:
        assert "window" in str(refused.value)
    assert setup.table.metadata_location == before


def test_what_a_request_does_not_touch_is_not_held_against_it(setup: Setup) -> None:
    setup.set(sort_by=["country"], strategy="sort", small_file_threshold_mb=100)
    with setup.table.iceberg.update_schema() as change:
        change.delete_column("country")
    assert setup.set(mode="auto").mode == "auto"
    with pytest.raises(UnknownField):
        setup.set(strategy="zorder")


def test_a_small_target_alone_is_no_contradiction_to_the_services_threshold(setup: Setup) -> None:
    """What counts as small then follows the target."""
    assert setup.set(target_file_size_mb=8).target_file_size_mb == 8


def test_a_new_tables_properties_are_held_to_the_same() -> None:
    properties = to_iceberg(TableProperties.model_validate({"strategy": "sort"}), SETTINGS)
    schema = parse_schema(SCHEMA)
    with pytest.raises(InvalidRequest) as refused:
        check_policy(properties, SETTINGS, schema, {"strategy"}, lambda name: f"properties.compaction.{name}")
    assert refused.value.field == "properties.compaction.sort_by"
    assert "properties.compaction.sort_by" in refused.value.message


class TestOtherWriters:
    """A change of properties yields to commits of others, and comes to pass all the same."""

    @staticmethod
    def beaten(monkeypatch: pytest.MonkeyPatch, times: int, then: Callable[[], object] = lambda: None) -> list[int]:
        """Have the next commits fail, each after somebody else's."""
        real = IcebergTable._do_commit
        count = [0]

        def commit(self: IcebergTable, updates: Any, requirements: Any) -> None:
            count[0] += 1
            if count[0] <= times:
                then()
                raise CommitFailedException("beaten")
            real(self, updates, requirements)

        monkeypatch.setattr(IcebergTable, "_do_commit", commit)
        monkeypatch.setattr("service.catalog.tables.time.sleep", lambda seconds: None)
        return count

    def test_it_is_tried_until_it_is_quicker(self, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
        count = self.beaten(monkeypatch, 30)
        assert setup.set(mode="auto").mode == "auto"
        assert count == [31]
        assert setup.now.mode == "auto"

    def test_it_gives_up_in_the_end(self, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
        self.beaten(monkeypatch, 10_000)
        with pytest.raises(CommitConflict):
            setup.set(mode="auto")

    def test_a_table_that_another_took_the_place_of_is_left_alone(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def replaced(table: Table) -> Mapping[str, str | None]:
            setup.catalog.drop(table, purge=False)
            make_table(setup.catalog)
            return {"firn.compaction.mode": "auto"}

        with pytest.raises(TableNotFound, match="dropped and created again"):
            setup.commits.alter(
                setup.table,
                "SET_COMPACTION",
                Call("r"),
                lambda table, batch: setup.catalog.set_properties(table, replaced(table)),
            )
        assert setup.now.overridden == []

    def test_a_table_that_is_gone_is_not_found(self, setup: Setup) -> None:
        table = setup.table
        setup.catalog.drop(table, purge=False)
        with pytest.raises(TableNotFound):
            setup.catalog.set_properties(table, {"a": "b"})

    def test_commits_and_settings_at_once_lose_nothing(self, tmp_path: Path) -> None:
        """Through a catalog of its own, as another process: only the compare-and-swap keeps them apart."""
        setup, others = Setup(tmp_path, connected), Setup(tmp_path, connected)
        make_table(setup.catalog)
        stop = threading.Event()

        def write() -> int:
            made = 0
            while not stop.is_set() or made < 3:
                try:
                    append(others.table, None)
                    made += 1
                except CommitFailedException:
                    continue
            return made

        with ThreadPoolExecutor(5) as pool:
            writing = pool.submit(write)
            settings = [pool.submit(setup.set, min_files_to_compact=n) for n in range(2, 12)]
            shown = [each.result().min_files_to_compact for each in settings]
            stop.set()
            made = writing.result()
        assert shown == list(range(2, 12))
        assert setup.table.snapshot_count == made
        assert setup.now.min_files_to_compact in shown


def test_settings_that_differ_show_in_force(setup: Setup) -> None:
    setup.set(mode="auto")
    compaction = SETTINGS.compaction.model_copy(update={"min_files_to_compact": 50})
    other = SETTINGS.model_copy(update={"compaction": compaction})
    assert effective_policy(setup.table.properties, other).min_files_to_compact == 50

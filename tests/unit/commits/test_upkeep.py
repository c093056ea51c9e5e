"""The check after WRITEs: each is counted once, the Nth counts small files, and no WRITE fails for it."""

import threading
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from service.catalog.tables import Catalog, Table
from service.commits.small_files import NOT_CHECKED, SmallFileCheck, SmallFileChecks, WriteCounts
from service.settings import CompactionSettings, IcebergSettings
from tests.fakes import MuteLedger
from tests.unit.iceberg_tables import ORDERS, append, make_table, open_catalog


@dataclass(frozen=True)
class Setup:
    """Upkeep over a real catalog, with a ledger that can be mute and no Spark."""

    upkeep: SmallFileChecks
    catalog: Catalog
    ledger: MuteLedger

    @property
    def table(self) -> Table:
        return self.catalog.load(ORDERS)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    catalog = open_catalog(tmp_path)
    ledger = MuteLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    compaction = CompactionSettings(opportunistic_check_interval=3, min_files_to_compact=3)
    settings = IcebergSettings(compaction=compaction)
    upkeep = SmallFileChecks(settings, catalog, WriteCounts(ledger))
    return Setup(upkeep, catalog, ledger)


def test_a_batch_is_counted_whole_and_those_that_are_the_nth_are_told(setup: Setup) -> None:
    table = make_table(setup.catalog)
    append(table, None, None)
    assert setup.upkeep.check_batch(setup.table, 2) == {}
    # The third and the sixth are numbers 0 and 3 of these.
    check = SmallFileCheck(False, 2)
    assert setup.upkeep.check_batch(setup.table, 4) == {0: check, 3: check}
    append(setup.table, None)
    check = SmallFileCheck(True, 3)
    assert setup.upkeep.check_batch(setup.table, 3) == {2: check}


@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=8), interval=st.integers(1, 9))
@given_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_however_writes_are_batched_every_nth_is_checked(setup: Setup, sizes: list[int], interval: int) -> None:
    if ORDERS.table not in setup.catalog.list_tables(ORDERS.tenant, ORDERS.namespace):
        append(make_table(setup.catalog), None)
    settings = IcebergSettings(compaction=CompactionSettings(opportunistic_check_interval=interval))
    upkeep = replace(setup.upkeep, settings=settings, counts=WriteCounts(setup.ledger))
    table, numbers, checked = setup.table, 0, []
    for size in sizes:
        checks = upkeep.check_batch(table, size)
        checked += [numbers + i + 1 for i in sorted(checks)]
        numbers += size
        assert set(checks.values()) <= {SmallFileCheck(False, 1)}
    assert checked == [n for n in range(1, numbers + 1) if n % interval == 0]
    assert upkeep.counts.add(table.uuid, 0) == numbers


def test_a_write_that_was_committed_alone_is_counted_and_its_count_kept(setup: Setup) -> None:
    table = make_table(setup.catalog)
    append(table, None)
    assert [setup.upkeep.check_after_write(setup.table) for _ in range(3)] == [
        NOT_CHECKED,
        NOT_CHECKED,
        SmallFileCheck(False, 1),
    ]
    assert setup.ledger.writes(table.uuid) == 3


def test_a_table_whose_compaction_is_off_is_counted_and_not_checked(setup: Setup) -> None:
    table = make_table(setup.catalog, partitioned=False, **{"firn.compaction.enabled": "false"})
    append(table, None)
    assert setup.upkeep.check_batch(setup.table, 9) == {}
    assert setup.upkeep.counts.add(table.uuid, 0) == 9


def test_a_check_that_fails_fails_no_write(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    table = make_table(setup.catalog)
    setup.catalog.drop(table, purge=True)
    assert setup.upkeep.check_batch(table, 5) == {}
    assert setup.upkeep.counts.add(table.uuid, 0) == 5
    assert "could not be counted" in caplog.text


class TestCounts:
    """How many WRITEs a table has had: from where the ledger left off, and no number twice."""

    def test_the_count_goes_on_where_the_ledger_left_off(self, setup: Setup) -> None:
        setup.ledger.count_writes("uuid", 7)
        counts = WriteCounts(setup.ledger)
        assert [counts.add("uuid", 1), counts.add("uuid", 5), counts.add("other", 2)] == [8, 13, 2]
        counts.keep("uuid", 6)
        assert WriteCounts(setup.ledger).add("uuid", 1) == 14

    def test_those_of_two_instances_add_up(self, setup: Setup) -> None:
        """Each goes on with its own from what it found; who comes next finds those of both."""
        one, other = WriteCounts(setup.ledger), WriteCounts(MuteLedger(str(setup.ledger._engine.url)))
        for counts, writes in ((one, 3), (other, 5), (one, 2), (other, 1)):
            counts.add("uuid", writes)
            counts.keep("uuid", writes)
        assert (one.add("uuid", 1), other.add("uuid", 1)) == (6, 10)
        assert WriteCounts(setup.ledger).add("uuid", 0) == 11

    def test_an_unavailable_ledger_restarts_the_count_and_fails_no_request(self, setup: Setup) -> None:
        setup.ledger.mute = frozenset({"writes", "count_writes"})
        counts = WriteCounts(setup.ledger)
        assert counts.add("uuid", 2) == 2
        counts.keep("uuid", 2)
        setup.ledger.mute = frozenset()
        assert counts.add("uuid", 1) == 3

    def test_writes_counted_side_by_side_are_each_counted_once(self, setup: Setup) -> None:
        """No two writes may believe to be the fifth."""
        counts, counted = WriteCounts(setup.ledger), []

        def count() -> None:
            for _ in range(200):
                counted.append(counts.add("uuid", 1))

        threads = [threading.Thread(target=count) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(counted) == list(range(1, 1201))

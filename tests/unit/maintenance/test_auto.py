"""Mode auto compacts what is worth it, in its window, one at a time, when there is room; and nothing else."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from service.catalog.tables import Table
from service.engine.session.scans import Scan
from service.errors import CatalogUnavailable, CommitConflict
from service.ledger.jobs import JobRecord, JobRecords
from service.maintenance.advise.advice import Advice, Adviser
from service.maintenance.advise.auto import ALL_EVERY_S, OTHER_MODE_S, PATIENCE_S, REST, REST_S, Auto
from service.maintenance.advise.costs import Forecast, MergeSize, QueryCosts
from service.maintenance.advise.query_log import QueryLog
from service.model.names import TableName
from service.model.properties import CompactionPolicy
from service.model.schema.definition import parse_schema
from tests.fakes import FakeCatalog, FakeOwners, MuteLedger
from tests.jobs import compaction

SCHEMA = parse_schema({"fields": {"id": {"type": "long"}}})
NIGHT = datetime(2026, 3, 1, 2, 0, tzinfo=UTC).timestamp()


@dataclass
class Known:
    """What the adviser says of a table."""

    worth: float = 5.0
    small: int = 5
    fewer: int = 4
    deletes: int = 0
    light: int = 0
    online: bool = True
    policy: CompactionPolicy = field(default_factory=lambda: CompactionPolicy(mode="auto"))


@dataclass
class FakeAdviser:
    known: dict[TableName, Known] = field(default_factory=dict)
    asked: list[TableName] = field(default_factory=list)
    completed: int = 0

    def complete(self) -> int:
        self.completed += 1
        return 0

    def evidence(self) -> None:
        return None

    def of(self, table: Table, evidence: Any, *, at_once: bool) -> Advice:
        assert at_once
        self.asked.append(table.name)
        known = self.known[table.name]
        return Advice(
            name=table.name,
            table_uuid=table.uuid,
            policy=known.policy,
            recommended=True,
            online=known.online,
            small=known.small,
            worth_merging=known.small,
            bytes=1,
            merge=MergeSize(known.small, known.small - known.fewer, known.small, 1, known.deletes),
            light=known.light,
            queries=QueryCosts(),
            forecast=Forecast(1, 1, 1, known.worth),
        )


@dataclass
class Setup:
    """A loop over tables in memory; `compact` does as it is told by `outcome`."""

    records: JobRecords
    now: float = NIGHT
    busy: bool = False
    outcome: Callable[[TableName], bool] = lambda name: True
    catalog: FakeCatalog = field(default_factory=FakeCatalog)
    adviser: FakeAdviser = field(default_factory=FakeAdviser)
    compacted: list[str] = field(default_factory=list)
    queries: QueryLog = field(init=False)
    auto: Auto = field(init=False)

    def __post_init__(self) -> None:
        self.queries = QueryLog(lambda: self.now)
        self.auto = Auto(
            self.catalog.as_catalog,
            cast(Adviser, self.adviser),
            self.queries,
            self.records,
            self.compact,
            lambda: self.busy,
            lambda: self.now,
        )

    def compact(self, table: TableName) -> bool:
        self.compacted.append(table.table)
        return self.outcome(table)

    def table(self, name: str, known: Known | None = None, **policy: Any) -> TableName:
        address = TableName("acme", "shop", name)
        self.catalog.create(address, SCHEMA, (), {})
        self.adviser.known[address] = known or Known()
        if policy:
            self.adviser.known[address].policy = CompactionPolicy(mode="auto", **policy)
        return address

    def later(self, seconds: float = 60) -> list[str]:
        """The next pass; what it compacted."""
        self.now += seconds
        self.compacted.clear()
        self.auto.look()
        return list(self.compacted)

    def query(self, name: TableName) -> None:
        table = self.catalog.load(name)
        self.queries.answered([table], 1.0, [Scan(table.spark_name, 1, 1)])


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(JobRecords(MuteLedger(f"sqlite:///{tmp_path}/ledger.db")))


def quiet() -> Known:
    return Known(worth=0.5)


def test_the_most_worthwhile_comes_first(setup: Setup) -> None:
    for name, worth in (("a", 2.0), ("b", 9.0), ("c", 0.9), ("d", 1.0)):
        setup.table(name, Known(worth=worth))
    assert setup.later() == ["b", "a", "d"]


@pytest.mark.parametrize("mode", ["off", "recommend"])
def test_other_modes_are_left_alone_however_much_it_is_worth(setup: Setup, mode: Any) -> None:
    setup.table("a", Known(worth=1e6, small=1000, policy=CompactionPolicy(mode=mode)))
    setup.table("b", Known(worth=1e6, small=1000, policy=CompactionPolicy(mode="auto", enabled=False)))
    assert setup.later() == []


def test_nothing_that_would_not_have_fewer_files_is_compacted(setup: Setup) -> None:
    setup.table("a", Known(worth=5, fewer=0, small=1000))
    assert setup.later() == []


def test_delete_files_alone_are_worth_it_if_queries_save_enough(setup: Setup) -> None:
    setup.table("a", Known(worth=5, fewer=0, deletes=3, light=5))
    setup.table("b", Known(worth=0.5, fewer=0, deletes=3, light=5))
    assert setup.later() == ["a"]


def test_files_of_a_good_size_with_few_deleted_rows_are_not_rewritten_however_many_there_are(setup: Setup) -> None:
    """Unlike small files, they are only rewritten if that pays for itself."""
    setup.table("a", Known(worth=0, small=1000, fewer=0, deletes=1000, light=1000))
    setup.table("b", Known(worth=0, small=1000, fewer=0, deletes=1000, light=900))
    assert setup.later() == ["b"]


def test_the_settings_say_what_is_worth_it(setup: Setup) -> None:
    setup.table("a", Known(worth=4.0), auto_min_worth=4.1)
    setup.table("b", Known(worth=4.0), auto_min_worth=4.0)
    assert setup.later() == ["b"]


@pytest.mark.parametrize(("small", "compacted"), [(29, []), (30, ["a"])])
def test_a_table_that_nobody_queries_is_compacted_once_it_is_over_the_bound(
    setup: Setup, small: int, compacted: list[str]
) -> None:
    setup.table("a", Known(worth=0, small=small), min_files_to_compact=3, auto_small_files_factor=10)
    assert setup.later() == compacted


def test_a_table_that_is_not_worth_it_is_looked_at_again_when_something_happened_to_it(setup: Setup) -> None:
    name = setup.table("a", quiet())
    setup.later()
    setup.later()
    assert len(setup.adviser.asked) == 1
    setup.query(name)
    setup.later()
    assert len(setup.adviser.asked) == 2
    setup.adviser.known[name].worth = 3
    setup.auto.changed(name, "uuid")
    assert setup.later() == ["a"]


def test_every_table_is_looked_at_once_an_hour(setup: Setup) -> None:
    name = setup.table("a", quiet())
    setup.later()
    setup.adviser.known[name].worth = 3
    assert setup.later(ALL_EVERY_S - 60) == []
    assert setup.later() == ["a"]


def test_a_table_waits_for_its_window(setup: Setup) -> None:
    setup.table("a", window="03:00-04:00")
    assert setup.later() == []
    assert setup.later(1800) == []
    assert setup.later(1800) == ["a"]


def test_a_window_that_ends_while_others_are_compacted_is_heeded(setup: Setup) -> None:
    def outcome(name: TableName) -> bool:
        setup.now += 3600
        return True

    setup.table("a", Known(worth=9))
    setup.table("b", window="01:30-02:30")
    setup.outcome = outcome
    assert setup.later() == ["a"]
    setup.now = NIGHT + 86_400
    assert "b" in setup.later()


def test_a_busy_service_is_left_alone_until_it_is_not(setup: Setup) -> None:
    setup.table("a")
    setup.busy = True
    assert setup.later() == setup.later() == []
    setup.busy = False
    assert setup.later() == ["a"]


def test_a_table_over_its_bound_waits_for_a_busy_service_no_longer_than_an_hour(setup: Setup) -> None:
    setup.table("a", Known(small=500))
    setup.table("b", Known(worth=99))
    setup.busy = True
    assert setup.later() == setup.later(PATIENCE_S - 61) == []
    assert setup.later(120) == ["a"]


def test_a_service_that_becomes_busy_with_the_first_is_spared_the_second(setup: Setup) -> None:
    def outcome(name: TableName) -> bool:
        setup.busy = True
        return True

    setup.table("a", Known(worth=9))
    setup.table("b")
    setup.outcome = outcome
    assert setup.later() == ["a"]


@pytest.mark.parametrize("failure", [CommitConflict("beaten"), RuntimeError("a defect"), None])
def test_a_table_that_fails_rests_twice_as_long_each_time(setup: Setup, failure: Exception | None) -> None:
    """So does one where nothing was merged."""

    def outcome(name: TableName) -> bool:
        if failure:
            raise failure
        return False

    name = setup.table("a")
    setup.table("b", quiet())
    setup.outcome = outcome
    assert setup.later() == ["a"]
    for pause in (REST_S, 2 * REST_S, 4 * REST_S):
        setup.auto.changed(name)
        assert setup.later(pause - 1) == []
        assert setup.later(1) == ["a"]
    setup.outcome = lambda name: True
    assert setup.later(8 * REST_S) == ["a"]
    assert setup.later() == ["a"]


def test_a_table_gets_a_fiftieth_of_the_time_at_most(setup: Setup) -> None:
    def outcome(name: TableName) -> bool:
        setup.now += 10
        return True

    setup.table("a")
    setup.outcome = outcome
    assert setup.later() == ["a"]
    assert setup.later(REST * 10 - 1) == []
    assert setup.later(1) == ["a"]


def test_a_window_that_nobody_can_read_keeps_no_other_from_being_compacted(setup: Setup) -> None:
    setup.table("a", Known(worth=9), window="01:00-05:00 Middle_of/Nowhere")
    setup.table("b")
    assert setup.later() == ["b"]


def test_the_failure_of_one_keeps_no_other_from_being_compacted(setup: Setup) -> None:
    setup.table("a", Known(worth=9))
    setup.table("b")
    setup.table("gone")

    def outcome(name: TableName) -> bool:
        if name.table == "a":
            raise CommitConflict("beaten")
        return True

    setup.outcome = outcome
    setup.later()
    for name in list(setup.catalog.tables):
        setup.auto.changed(name)
    del setup.catalog.tables[TableName("acme", "shop", "gone")]
    assert setup.later() == ["b"]


@pytest.mark.parametrize("failure", [CatalogUnavailable("no answer"), KeyError("metadata")])
def test_a_table_that_cannot_be_read_is_passed_over_and_tried_again(setup: Setup, failure: Exception) -> None:
    setup.table("a")
    setup.table("b")
    setup.catalog.failures.append(failure)
    first = setup.later()
    assert len(first) == 1
    assert setup.later(REST_S) == sorted({"a", "b"})


def test_a_catalog_that_is_silent_loses_nothing_that_was_seen(setup: Setup) -> None:
    name = setup.table("a", quiet())
    setup.later()
    setup.adviser.known[name].worth = 3
    setup.query(name)
    silent = CatalogUnavailable("no answer")

    def fail(tenant: str | None = None) -> list[tuple[str, str]]:
        raise silent

    found, setup.catalog.list_namespaces = setup.catalog.list_namespaces, fail  # type: ignore[method-assign]
    with pytest.raises(CatalogUnavailable):
        setup.later(ALL_EVERY_S)
    setup.catalog.list_namespaces = found  # type: ignore[method-assign]
    assert setup.later() == ["a"]


def running(setup: Setup, name: TableName) -> JobRecord:
    return compaction(setup.records, "c1", name, setup.catalog.load(name).uuid, 1)


def test_a_table_that_somebody_compacts_already_is_left_to_them(setup: Setup) -> None:
    name = setup.table("a")
    job = running(setup, name)
    assert setup.later() == []
    setup.records.end(replace(job, state="done", ended_ms=2))
    assert setup.later() == ["a"]


def test_of_two_instances_that_look_at_once_one_compacts(tmp_path: Path) -> None:
    ledger = MuteLedger(f"sqlite:///{tmp_path}/ledger.db")
    ledger.owners = FakeOwners("one")
    one = Setup(JobRecords(ledger))
    two = Setup(JobRecords(ledger), catalog=one.catalog, adviser=one.adviser)
    one.table("a")

    def meanwhile(name: TableName) -> bool:
        assert two.later() == []
        return True

    one.outcome = meanwhile
    assert one.later() == ["a"]
    assert two.later() == ["a"]


def test_unless_they_are_gone(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    name = setup.table("a")
    running(setup, name)
    monkeypatch.setattr(setup.records, "left", lambda note: True)
    assert setup.later() == ["a"]


def test_a_new_policy_is_noticed_by_itself_and_at_once_where_it_is_told(setup: Setup) -> None:
    other = CompactionPolicy(mode="recommend")
    a, b = setup.table("a", Known(policy=other)), setup.table("b", Known(policy=other))
    setup.later()
    for name in (a, b):
        setup.adviser.known[name].policy = CompactionPolicy(mode="auto")
        setup.auto.changed(name)
    setup.auto.policy_changed(b)
    assert setup.later() == ["b"]
    assert "a" in setup.later(OTHER_MODE_S)


def test_predictions_are_completed_in_every_pass(setup: Setup) -> None:
    setup.later()
    setup.later()
    assert setup.adviser.completed == 2


def test_a_stop_ends_the_loop_and_begins_nothing_more(setup: Setup) -> None:
    stopping = threading.Event()
    setup.table("a", Known(worth=9))
    setup.table("b")

    def outcome(name: TableName) -> bool:
        stopping.set()
        return True

    setup.outcome = outcome
    assert setup.auto.look(stopping) == 1
    setup.auto.run(stopping)
    assert setup.compacted == ["a"]


def test_an_offline_table_is_left_alone_until_it_is_online_again(setup: Setup) -> None:
    name = setup.table("big", Known(small=1000, fewer=999, online=False))
    assert setup.later() == []
    setup.adviser.known[name].online = True
    setup.auto.policy_changed(name)
    assert setup.later() == ["big"]

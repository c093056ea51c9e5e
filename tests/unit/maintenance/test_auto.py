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
            merge=MergeSize(known.small, known.small - known.fewer, known.small, 1),
            queries=QueryCosts(),
            forecast=Forecast(1, 1, 1, known.worth),
        )


@dataclass
class House:
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
def house(tmp_path: Path) -> House:
    return House(JobRecords(MuteLedger(f"sqlite:///{tmp_path}/ledger.db")))


def quiet() -> Known:
    return Known(worth=0.5)


def test_the_most_worthwhile_comes_first(house: House) -> None:
    for name, worth in (("a", 2.0), ("b", 9.0), ("c", 0.9), ("d", 1.0)):
        house.table(name, Known(worth=worth))
    assert house.later() == ["b", "a", "d"]


@pytest.mark.parametrize("mode", ["off", "recommend"])
def test_other_modes_are_left_alone_however_much_it_is_worth(house: House, mode: Any) -> None:
    house.table("a", Known(worth=1e6, small=1000, policy=CompactionPolicy(mode=mode)))
    house.table("b", Known(worth=1e6, small=1000, policy=CompactionPolicy(mode="auto", enabled=False)))
    assert house.later() == []


def test_nothing_that_would_not_have_fewer_files_is_compacted(house: House) -> None:
    house.table("a", Known(worth=5, fewer=0, small=1000))
    assert house.later() == []


def test_the_settings_say_what_is_worth_it(house: House) -> None:
    house.table("a", Known(worth=4.0), auto_min_worth=4.1)
    house.table("b", Known(worth=4.0), auto_min_worth=4.0)
    assert house.later() == ["b"]


@pytest.mark.parametrize(("small", "compacted"), [(29, []), (30, ["a"])])
def test_a_table_that_nobody_queries_is_compacted_once_it_is_over_the_bound(
    house: House, small: int, compacted: list[str]
) -> None:
    house.table("a", Known(worth=0, small=small), min_files_to_compact=3, auto_small_files_factor=10)
    assert house.later() == compacted


def test_a_table_that_is_not_worth_it_is_looked_at_again_when_something_happened_to_it(house: House) -> None:
    name = house.table("a", quiet())
    house.later()
    house.later()
    assert len(house.adviser.asked) == 1
    house.query(name)
    house.later()
    assert len(house.adviser.asked) == 2
    house.adviser.known[name].worth = 3
    house.auto.changed(name, "uuid")
    assert house.later() == ["a"]


def test_every_table_is_looked_at_once_an_hour(house: House) -> None:
    name = house.table("a", quiet())
    house.later()
    house.adviser.known[name].worth = 3
    assert house.later(ALL_EVERY_S - 60) == []
    assert house.later() == ["a"]


def test_a_table_waits_for_its_window(house: House) -> None:
    house.table("a", window="03:00-04:00")
    assert house.later() == []
    assert house.later(1800) == []
    assert house.later(1800) == ["a"]


def test_a_window_that_ends_while_others_are_compacted_is_heeded(house: House) -> None:
    def outcome(name: TableName) -> bool:
        house.now += 3600
        return True

    house.table("a", Known(worth=9))
    house.table("b", window="01:30-02:30")
    house.outcome = outcome
    assert house.later() == ["a"]
    house.now = NIGHT + 86_400
    assert "b" in house.later()


def test_a_busy_service_is_left_alone_until_it_is_not(house: House) -> None:
    house.table("a")
    house.busy = True
    assert house.later() == house.later() == []
    house.busy = False
    assert house.later() == ["a"]


def test_a_table_over_its_bound_waits_for_a_busy_service_no_longer_than_an_hour(house: House) -> None:
    house.table("a", Known(small=500))
    house.table("b", Known(worth=99))
    house.busy = True
    assert house.later() == house.later(PATIENCE_S - 61) == []
    assert house.later(120) == ["a"]


def test_a_service_that_becomes_busy_with_the_first_is_spared_the_second(house: House) -> None:
    def outcome(name: TableName) -> bool:
        house.busy = True
        return True

    house.table("a", Known(worth=9))
    house.table("b")
    house.outcome = outcome
    assert house.later() == ["a"]


@pytest.mark.parametrize("failure", [CommitConflict("beaten"), RuntimeError("a defect"), None])
def test_a_table_that_fails_rests_twice_as_long_each_time(house: House, failure: Exception | None) -> None:
    """So does one where nothing was merged."""

    def outcome(name: TableName) -> bool:
        if failure:
            raise failure
        return False

    name = house.table("a")
    house.table("b", quiet())
    house.outcome = outcome
    assert house.later() == ["a"]
    for pause in (REST_S, 2 * REST_S, 4 * REST_S):
        house.auto.changed(name)
        assert house.later(pause - 1) == []
        assert house.later(1) == ["a"]
    house.outcome = lambda name: True
    assert house.later(8 * REST_S) == ["a"]
    assert house.later() == ["a"]


def test_a_table_gets_a_fiftieth_of_the_time_at_most(house: House) -> None:
    def outcome(name: TableName) -> bool:
        house.now += 10
        return True

    house.table("a")
    house.outcome = outcome
    assert house.later() == ["a"]
    assert house.later(REST * 10 - 1) == []
    assert house.later(1) == ["a"]


def test_a_window_that_nobody_can_read_keeps_no_other_from_being_compacted(house: House) -> None:
    house.table("a", Known(worth=9), window="01:00-05:00 Middle_of/Nowhere")
    house.table("b")
    assert house.later() == ["b"]


def test_the_failure_of_one_keeps_no_other_from_being_compacted(house: House) -> None:
    house.table("a", Known(worth=9))
    house.table("b")
    house.table("gone")

    def outcome(name: TableName) -> bool:
        if name.table == "a":
            raise CommitConflict("beaten")
        return True

    house.outcome = outcome
    house.later()
    for name in list(house.catalog.tables):
        house.auto.changed(name)
    del house.catalog.tables[TableName("acme", "shop", "gone")]
    assert house.later() == ["b"]


@pytest.mark.parametrize("failure", [CatalogUnavailable("no answer"), KeyError("metadata")])
def test_a_table_that_cannot_be_read_is_passed_over_and_tried_again(house: House, failure: Exception) -> None:
    house.table("a")
    house.table("b")
    house.catalog.failures.append(failure)
    first = house.later()
    assert len(first) == 1
    assert house.later(REST_S) == sorted({"a", "b"})


def test_a_catalog_that_is_silent_loses_nothing_that_was_seen(house: House) -> None:
    name = house.table("a", quiet())
    house.later()
    house.adviser.known[name].worth = 3
    house.query(name)
    silent = CatalogUnavailable("no answer")

    def fail(tenant: str | None = None) -> list[tuple[str, str]]:
        raise silent

    found, house.catalog.list_namespaces = house.catalog.list_namespaces, fail  # type: ignore[method-assign]
    with pytest.raises(CatalogUnavailable):
        house.later(ALL_EVERY_S)
    house.catalog.list_namespaces = found  # type: ignore[method-assign]
    assert house.later() == ["a"]


def running(house: House, name: TableName) -> JobRecord:
    return compaction(house.records, "c1", name, house.catalog.load(name).uuid, 1)


def test_a_table_that_somebody_compacts_already_is_left_to_them(house: House) -> None:
    name = house.table("a")
    job = running(house, name)
    assert house.later() == []
    house.records.end(replace(job, state="done", ended_ms=2))
    assert house.later() == ["a"]


def test_of_two_instances_that_look_at_once_one_compacts(tmp_path: Path) -> None:
    ledger = MuteLedger(f"sqlite:///{tmp_path}/ledger.db")
    ledger.owners = FakeOwners("one")
    one = House(JobRecords(ledger))
    two = House(JobRecords(ledger), catalog=one.catalog, adviser=one.adviser)
    one.table("a")

    def meanwhile(name: TableName) -> bool:
        assert two.later() == []
        return True

    one.outcome = meanwhile
    assert one.later() == ["a"]
    assert two.later() == ["a"]


def test_unless_they_are_gone(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    name = house.table("a")
    running(house, name)
    monkeypatch.setattr(house.records, "left", lambda note: True)
    assert house.later() == ["a"]


def test_a_new_policy_is_noticed_by_itself_and_at_once_where_it_is_told(house: House) -> None:
    other = CompactionPolicy(mode="recommend")
    a, b = house.table("a", Known(policy=other)), house.table("b", Known(policy=other))
    house.later()
    for name in (a, b):
        house.adviser.known[name].policy = CompactionPolicy(mode="auto")
        house.auto.changed(name)
    house.auto.policy_changed(b)
    assert house.later() == ["b"]
    assert "a" in house.later(OTHER_MODE_S)


def test_predictions_are_completed_in_every_pass(house: House) -> None:
    house.later()
    house.later()
    assert house.adviser.completed == 2


def test_a_stop_ends_the_loop_and_begins_nothing_more(house: House) -> None:
    stopping = threading.Event()
    house.table("a", Known(worth=9))
    house.table("b")

    def outcome(name: TableName) -> bool:
        stopping.set()
        return True

    house.outcome = outcome
    assert house.auto.look(stopping) == 1
    house.auto.run(stopping)
    assert house.compacted == ["a"]


def test_an_offline_table_is_left_alone_until_it_is_online_again(house: House) -> None:
    name = house.table("big", Known(small=1000, fewer=999, online=False))
    assert house.later() == []
    house.adviser.known[name].online = True
    house.auto.policy_changed(name)
    assert house.later() == ["big"]

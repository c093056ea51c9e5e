"""Every query is counted, one a second of a table is looked at closely, and what is kept is bounded."""

from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalog.tables import Table
from service.engine.session.scans import Scan, read, scans
from service.maintenance.advise.query_log import CONTRASTED, EACH, MEMORY_S, NUMBERS, SAMPLES, QueryLog
from service.model.names import TableName
from service.model.schema.definition import parse_schema
from tests.fakes import FakeTable

SCHEMA = parse_schema({"fields": {"id": {"type": "long"}}})


def table(name: str, tenant: str = "acme") -> Table:
    return cast(Table, FakeTable(TableName(tenant, "shop", name), f"uuid-{name}", SCHEMA))


ORDERS, PEOPLE = table("orders"), table("people")


def scan(of: Table, files: int = 1, size: int = 10, planning_ms: int = 2, manifests: int = 1) -> Scan:
    return Scan(of.spark_name.replace("`", ""), files, size, planning_ms, manifests)


@dataclass
class Setup:
    """A log and the time it is."""

    now: float = 1_000_000.0
    most: int = 1000
    log: QueryLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = QueryLog(lambda: self.now, self.most)

    def query(self, *tables: Table, files: int = 1) -> bool:
        """A query as the handler makes it; whether it was a sample."""
        due = self.log.due(tables)
        self.log.answered(tables, 10.0, [scan(t, files) for t in tables] if due else None)
        return due


def test_one_query_a_second_of_a_table_is_a_sample_and_all_are_counted() -> None:
    setup = Setup()
    taken = []
    for _ in range(40):
        taken.append(setup.query(ORDERS))
        setup.now += 0.1
    assert 4 <= sum(taken) <= 5
    assert len(setup.log.samples(ORDERS.uuid)) == sum(taken)
    assert 39 < setup.log.per_hour(ORDERS.uuid) < 45
    assert setup.query(PEOPLE)


def test_queries_that_begin_side_by_side_are_not_all_samples() -> None:
    setup = Setup()
    setup.query(ORDERS)
    setup.now += 2
    assert [setup.log.due([ORDERS]) for _ in range(5)] == [True, False, False, False, False]


def test_a_clock_that_is_set_back_keeps_nothing_from_being_sampled() -> None:
    setup = Setup()
    setup.query(ORDERS)
    setup.now -= 5000
    assert setup.query(ORDERS)
    assert setup.log.per_hour(ORDERS.uuid) > 1.9


def test_each_table_of_a_join_gets_its_own_scans_and_nobody_the_time() -> None:
    setup = Setup()
    found = [scan(ORDERS, 3, 30, 5, 2), scan(PEOPLE, 1), scan(ORDERS, 4, 40, 6, 1)]
    setup.log.answered([ORDERS, PEOPLE, ORDERS], 50.0, found)
    [orders] = setup.log.samples(ORDERS.uuid)
    assert (orders.files, orders.bytes, orders.planning_ms, orders.manifests) == (7, 70, 11, 3)
    [people] = setup.log.samples(PEOPLE.uuid)
    assert (people.files, orders.total_ms, people.total_ms) == (1, None, None)


def test_a_table_joined_with_itself_has_the_time_alone() -> None:
    setup = Setup()
    setup.log.answered([ORDERS, ORDERS], 50.0, [scan(ORDERS), scan(ORDERS)])
    [sample] = setup.log.samples(ORDERS.uuid)
    assert (sample.total_ms, sample.files) == (50.0, 2)


def test_a_query_that_scanned_nothing_opened_no_file() -> None:
    setup = Setup()
    setup.log.answered([ORDERS], 5.0, [])
    [sample] = setup.log.samples(ORDERS.uuid)
    assert (sample.files, sample.planning_ms) == (0, 0)
    assert setup.log.contrasts() == []


def test_the_tables_least_recently_queried_go_first() -> None:
    setup = Setup(most=3)
    tables = [table(str(i)) for i in range(4)]
    for each in (*tables[:3], tables[0], tables[3]):
        setup.query(each)
    assert [setup.log.per_hour(t.uuid) > 0 for t in tables] == [True, False, True, True]


def test_the_latest_samples_stay_and_few_of_each_number_of_files() -> None:
    setup = Setup()
    for i in range(500):
        setup.now += 2
        setup.query(ORDERS, files=1 + i // 10)
    kept = setup.log.samples(ORDERS.uuid)
    assert len(kept) == SAMPLES
    assert kept[-1].at_ms == setup.now * 1000 - 10
    [contrasts] = setup.log.contrasts()
    assert len(contrasts) == EACH * NUMBERS
    assert {s.files for s in contrasts} == set(range(51 - NUMBERS, 51))


def test_prices_are_learned_from_the_tables_queried_last_that_have_something_to_compare() -> None:
    setup = Setup()
    for i in range(CONTRASTED + 5):
        for files in (1, 2):
            setup.now += 2
            setup.query(table(str(i)), files=files + i)
    setup.query(table("alike"), files=7)
    result = setup.log.contrasts()
    assert [[s.files for s in samples] for samples in result[:2]] == [
        [CONTRASTED + 5, CONTRASTED + 6],
        [CONTRASTED + 4, CONTRASTED + 5],
    ]
    assert len(result) == CONTRASTED


def test_samples_since_a_time_are_those_at_or_after_it() -> None:
    setup = Setup()
    for _ in range(3):
        setup.query(ORDERS)
        setup.now += 2
    moment = round((setup.now - 4) * 1000)
    took = 10  # what a query here takes, and it is its beginning that counts
    assert [s.at_ms for s in setup.log.samples(ORDERS.uuid, moment - took)] == [moment - took, moment + 2000 - took]
    assert len(setup.log.samples(ORDERS.uuid, moment)) == 1


def test_the_tables_queried_since_a_time_are_named() -> None:
    setup = Setup()
    setup.query(ORDERS)
    setup.now += 10
    setup.query(PEOPLE)
    assert setup.log.queried_since(setup.now) == {PEOPLE.name: PEOPLE.uuid}
    assert set(setup.log.queried_since(setup.now - 10)) == {ORDERS.name, PEOPLE.name}


def test_what_the_service_asks_itself_is_not_counted() -> None:
    setup = Setup()
    setup.query(table("warm", tenant="_firn"))
    assert setup.log.empty


@pytest.mark.parametrize("every_s", [1.0, 30.0, 600.0])
def test_a_steady_rate_is_found_and_fades_once_it_ends(every_s: float) -> None:
    setup = Setup()
    for _ in range(round(2 * 3600 / every_s)):
        setup.query(ORDERS)
        setup.now += every_s
    rate = setup.log.per_hour(ORDERS.uuid)
    assert rate == pytest.approx(3600 / every_s, rel=0.1)
    setup.now += 3 * MEMORY_S
    assert 0 < setup.log.per_hour(ORDERS.uuid) < rate / 10


@given(st.lists(st.floats(0, 5000), min_size=1, max_size=30))
def test_another_query_never_makes_the_rate_less(pauses: list[float]) -> None:
    setup = Setup()
    for pause in pauses:
        setup.now += pause
        before = setup.log.per_hour(ORDERS.uuid)
        setup.query(ORDERS)
        assert setup.log.per_hour(ORDERS.uuid) >= before


def test_a_table_nobody_queries_has_no_queries() -> None:
    assert (Setup().log.per_hour("x"), Setup().log.samples("x")) == (0.0, [])


@dataclass
class Metric:
    amount: int

    def value(self) -> int:
        return self.amount


@dataclass
class Map:
    """As Scala has them."""

    values: dict[str, int]
    asked: list[str] = field(default_factory=list)

    def contains(self, name: str) -> bool:
        return name in self.values

    def apply(self, name: str) -> Metric:
        self.asked.append(name)
        return Metric(self.values[name])


@dataclass
class Node:
    name: str
    values: Map = field(default_factory=lambda: Map({}))
    inner: "Leaves | None" = None

    def nodeName(self) -> str:  # the JVM's name
        return self.name

    def metrics(self) -> Map:
        return self.values

    def executedPlan(self) -> "Leaves":  # the JVM's name
        assert self.inner
        return self.inner

    plan = executedPlan


@dataclass
class Leaves:
    """A plan by its leaves."""

    leaves: list[Node]

    def collectLeaves(self) -> "Leaves":  # the JVM's name
        return self

    def size(self) -> int:
        return len(self.leaves)

    def apply(self, i: int) -> Node:
        return self.leaves[i]


def test_scans_are_found_wherever_adaptive_execution_hides_them_and_asked_for_no_more_than_is_wanted() -> None:
    report = {
        "resultDataFiles": 3,
        "totalDataFileSize": 300,
        "totalPlanningDuration": 7,
        "scannedDataManifests": 2,
    }
    one, other = Node("BatchScan firn.a__b.t", Map(report)), Node("BatchScan firn.a__b.u", Map(report))
    stage = Node("ShuffleQueryStage", inner=Leaves([other]))
    reused = Node("ReusedExchange")
    plan = Leaves([Node("AdaptiveSparkPlan", inner=Leaves([one, stage, reused])), Node("LocalTableScan")])
    found = scans(plan)
    assert [(s.table, s.files, s.bytes, s.planning_ms) for s in found] == [
        ("firn.a__b.t", 3, 300, 0),
        ("firn.a__b.u", 3, 300, 0),
    ]
    assert read(found) == (6, 600)
    assert one.values.asked == ["resultDataFiles", "totalDataFileSize"]
    assert [(s.planning_ms, s.manifests) for s in scans(plan, measured=True)] == [(7, 2), (7, 2)]
    assert scans(Leaves([Node("BatchScan rows")])) == (Scan("rows", 0, 0),)

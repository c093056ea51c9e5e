"""A refresh makes a result's rows those that its query gives, in one commit, and writes no equal row again."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from service.commits.compared import changes_between
from service.engine.jobs.dynamic import result as dynamic_result
from service.errors import InvalidQuery, RowCountMismatch
from service.model.dynamic.plan import WEIGHT, IncrementalPlan, ReplacedKeys, Step, WeightedRows
from service.model.schema.partition import PartitionField
from tests.harness import Firn
from tests.support.marks import thorough_except
from tests.support.refreshed import RefreshedTable
from tests.support.tables import ServedTable

FACTS = {
    "fields": {
        "id": {"type": "long", "required": True},
        "customer": {"type": "long"},
        "amount": {"type": "decimal(10,2)"},
        "tags": {"type": "map", "key_type": "string", "value_type": "long"},
    }
}
DIMENSION = {"fields": {"customer": {"type": "long"}, "region": {"type": "string"}}}
FILTERED = "SELECT customer, amount, tags FROM s0_new WHERE amount > 1"
BY_ROWS = IncrementalPlan(
    (Step("r", f"SELECT customer, amount, tags, {WEIGHT} FROM s0_delta WHERE amount > 1"),), WeightedRows("r")
)
JOINED = "SELECT id, amount, region FROM s0_new JOIN s1_new USING (customer)"
BY_REGION = (
    "SELECT region, sum(amount) AS total, count(*) AS n FROM s0_new JOIN s1_new USING (customer) GROUP BY region"
)


def fact(id: int, customer: int | None = 1, amount: str = "2.50", **tags: int) -> dict[str, Any]:
    return {"id": id, "customer": customer, "amount": amount, "tags": tags or None}


@pytest.fixture
def facts(firn: Firn, tenant: str) -> ServedTable:
    table = ServedTable(firn, tenant, "facts", schema=FACTS)
    table.write(*(fact(n, n % 4, "1.50", n=n % 2) for n in range(20)), fact(20, None, "7.00"))
    return table


@pytest.fixture
def customers(firn: Firn, tenant: str) -> ServedTable:
    table = ServedTable(firn, tenant, "customers", schema=DIMENSION)
    table.write(*({"customer": n, "region": f"r{n % 2}"} for n in range(4)))
    return table


def join_plan(changed: Any) -> IncrementalPlan:
    sides = []
    if 0 in changed:
        sides.append(f"SELECT id, amount, region, {WEIGHT} FROM s0_delta JOIN s1_new USING (customer)")
    if 1 in changed:
        rows = "s0_old" if 0 in changed else "s0_new"
        sides.append(f"SELECT id, amount, region, {WEIGHT} FROM s1_delta JOIN {rows} USING (customer)")
    return IncrementalPlan((Step("c", " UNION ALL ".join(sides)),), WeightedRows("c"))


def region_plan(changed: Any) -> IncrementalPlan:
    keys = []
    if 0 in changed:
        keys.append("SELECT region FROM s0_delta JOIN s1_new USING (customer)")
        keys.append("SELECT region FROM s0_delta JOIN s1_old USING (customer)")
    if 1 in changed:
        keys.append("SELECT region FROM s1_delta")
    rows = f"SELECT * FROM ({BY_REGION}) AS g LEFT SEMI JOIN k ON g.region <=> k.region"
    steps = (Step("k", " UNION ".join(keys), kept=True), Step("g", rows))
    return IncrementalPlan(steps, ReplacedKeys("k", ("region",), "g"))


def checked(result: RefreshedTable) -> Any:
    """Refresh, and compare the result with the query's."""
    counts = result.refresh()
    assert result.rows() == result.recomputed()
    return counts


@pytest.fixture(params=[pytest.param(True, id="few"), pytest.param(False, id="many", marks=pytest.mark.thorough)])
def local(request: pytest.FixtureRequest) -> bool:
    """Whether few rows are read in the service's process, as it does, or all by Spark, as if they were many."""
    return bool(request.param)


@pytest.mark.thorough
def test_rows_come_and_go_as_often_as_the_query_gives_them(firn: Firn, local: bool, facts: ServedTable) -> None:
    result = RefreshedTable(firn, [facts], FILTERED, BY_ROWS, local=local)
    assert result.build().inserted == 21
    facts.write(fact(30, 1, "1.50", n=1), fact(31, 1, "0.50"), fact(32, 1, "1.50", n=1))
    facts.ok("DELETE", filter={"id": {"in": [0, 4]}})
    counts = checked(result)
    assert (counts.inserted, counts.deleted, counts.unchanged, counts.source_rows) == (2, 2, 19, {0: 5})
    assert result.state == f"[{facts.loaded.current_snapshot_id}]"
    facts.ok("UPDATE", updates={"customer": 9}, filter={"id": 32})
    facts.ok("UPDATE", updates={"amount": "0.10"}, filter={"id": 20})
    assert checked(result).deleted == 2


@pytest.mark.thorough
@pytest.mark.parametrize("local", [True, False], ids=["few", "many"], indirect=True)
def test_both_sides_of_a_join_change_at_once(
    firn: Firn, local: bool, facts: ServedTable, customers: ServedTable
) -> None:
    result = RefreshedTable(firn, [facts, customers], JOINED, join_plan, local=local)
    result.build()
    facts.write(fact(40, 2), fact(41, 7))
    facts.ok("UPDATE", updates={"customer": 3}, filter={"id": {"in": [1, 2]}})
    customers.ok("UPDATE", updates={"region": "new"}, filter={"customer": 2})
    customers.write({"customer": 7, "region": "r7"}, {"customer": 2, "region": "second"})
    checked(result)
    customers.ok("DELETE", filter={"customer": 1})
    checked(result)


def test_rows_that_land_between_planning_and_reading_wait_for_the_next_refresh(
    firn: Firn, local: bool, facts: ServedTable, customers: ServedTable
) -> None:
    result = RefreshedTable(firn, [facts, customers], BY_REGION, region_plan, local=local)
    result.build()
    facts.write(fact(45, 1))
    expected = result.recomputed()

    def planned(changed: Any) -> IncrementalPlan:
        facts.write(fact(46, 1))
        customers.ok("DELETE", filter={"customer": 3})
        facts.ok("COMPACT", force=True)
        return region_plan(changed)

    result.plan_of = planned
    result.refresh()
    assert result.rows() == expected
    result.plan_of = region_plan
    checked(result)


@pytest.mark.thorough
def test_only_groups_that_come_out_different_are_written(
    firn: Firn, local: bool, facts: ServedTable, customers: ServedTable
) -> None:
    result = RefreshedTable(firn, [facts, customers], BY_REGION, region_plan, local=local)
    result.build()
    facts.write(fact(50, 1))
    facts.ok("UPDATE", updates={"amount": "1.50"}, filter={"id": 2})  # as it was
    counts = checked(result)
    assert (counts.inserted, counts.deleted, counts.unchanged, counts.keys) == (1, 1, 1, None if local else 1)
    customers.ok("DELETE", filter={"region": "r0"})
    assert checked(result).deleted == 1
    facts.ok("DELETE", filter={"id": {"gte": 0}})
    assert checked(result).inserted == 0
    facts.write(fact(60, 3))
    assert checked(result).inserted == 1


def test_all_rows_are_replaced_if_there_is_a_key_without_columns(firn: Firn, local: bool, facts: ServedTable) -> None:
    query = "SELECT count(*) AS n, max(amount) AS most FROM s0_new"
    plan = IncrementalPlan((Step("k", "SELECT 1 FROM s0_delta"), Step("g", query)), ReplacedKeys("k", (), "g"))
    result = RefreshedTable(firn, [facts], query, plan, local=local)
    result.build()
    facts.write(fact(70, 1, "99.00"))
    counts = checked(result)
    assert (counts.inserted, counts.deleted, counts.keys) == (1, 1, None if local else 1)


def test_what_leaves_all_rows_as_they_are_only_moves_the_state(firn: Firn, local: bool, facts: ServedTable) -> None:
    def no_plan(changed: Any) -> IncrementalPlan:
        raise AssertionError("nothing has changed")

    result = RefreshedTable(firn, [facts], FILTERED, no_plan, local=local)
    result.build()
    rows = result.rows()
    facts.write(fact(80))
    facts.ok("DELETE", filter={"id": 80})
    facts.ok("COMPACT")
    before = result.loaded.iceberg.current_snapshot()
    counts = result.refresh()
    assert (counts.inserted, counts.deleted, counts.files_written) == (0, 0, 0)
    assert result.rows() == rows
    after = result.loaded.iceberg.current_snapshot()
    assert before != after
    assert result.state == f"[{facts.loaded.current_snapshot_id}]"


def test_a_result_and_sources_that_were_empty_are_filled(
    firn: Firn, local: bool, tenant: str, customers: ServedTable
) -> None:
    facts = ServedTable(firn, tenant, "facts", schema=FACTS)
    result = RefreshedTable(firn, [facts, customers], JOINED, join_plan, local=local)
    assert result.build().inserted == 0
    assert result.rows() == []
    facts.write(fact(1), fact(2, 2))
    assert checked(result).inserted == 2


def test_files_are_read_with_the_columns_that_the_source_has_now(firn: Firn, local: bool, facts: ServedTable) -> None:
    """A column that was renamed or added since the last refresh, or since the pinned snapshot."""
    query = "SELECT id, price, more FROM s0_new"
    plan = IncrementalPlan((Step("r", f"SELECT id, price, more, {WEIGHT} FROM s0_delta"),), WeightedRows("r"))
    before = facts.loaded.current_snapshot_id
    facts.ok("ALTER_TABLE", rename_columns={"amount": "price"}, add_columns={"more": {"type": "string"}})
    result = RefreshedTable(firn, [facts], query, plan, local=local)
    result.build()
    assert result.rows() == result.recomputed()
    result.read = [before]
    facts.ok("UPDATE", updates={"more": "text"}, filter={"id": 3})
    counts = checked(result)
    assert (counts.inserted, counts.deleted) == (1, 1)


@pytest.mark.parametrize("row_level", thorough_except(["merge_on_read"], ["copy_on_write", "merge_on_read", "auto"]))
def test_the_rows_of_a_partitioned_result_go_by_delete_files_or_by_rewriting(
    firn: Firn, local: bool, facts: ServedTable, customers: ServedTable, row_level: Any
) -> None:
    partition = (PartitionField("region", "identity", "region"),)
    result = RefreshedTable(
        firn, [facts, customers], JOINED, join_plan, partition=partition, row_level=row_level, local=local
    )
    result.build()
    facts.ok("DELETE", filter={"id": {"in": [1, 5, 6]}})
    facts.write(fact(90), fact(91, 2))
    counts = checked(result)
    assert (counts.inserted, counts.deleted) == (2, 3)
    assert (counts.files_rewritten == 0) == (row_level == "merge_on_read")
    facts.ok("UPDATE", updates={"customer": 1}, filter={"id": {"lt": 12}})
    checked(result)


def test_a_refresh_whose_gate_is_closed_changes_nothing(firn: Firn, facts: ServedTable) -> None:
    class Closed(Exception):
        pass

    def gate() -> None:
        raise Closed

    result = RefreshedTable(firn, [facts], FILTERED, BY_ROWS)
    result.build()
    before, rows = result.loaded.current_snapshot_id, result.rows()
    facts.write(fact(99))
    files = set(ServedTable(firn, facts.tenant, "result").on_disk())
    with pytest.raises(Closed):
        result.refresh(gate)
    assert (result.loaded.current_snapshot_id, result.rows()) == (before, rows)
    assert set(ServedTable(firn, facts.tenant, "result").on_disk()) == files
    checked(result)


def test_a_result_that_lacks_the_rows_that_go_is_reported(firn: Firn, local: bool, facts: ServedTable) -> None:
    result = RefreshedTable(firn, [facts], FILTERED, BY_ROWS, local=local)
    result.build()
    ServedTable(firn, facts.tenant, "result").ok("DELETE", filter={"customer": 1})
    facts.ok("DELETE", filter={"id": 1})
    with pytest.raises(RowCountMismatch):
        result.refresh()


@pytest.mark.thorough
def test_nothing_of_a_refresh_stays_in_the_session(firn: Firn, facts: ServedTable, customers: ServedTable) -> None:
    result = RefreshedTable(firn, [facts, customers], BY_REGION, region_plan)
    result.build()
    facts.write(fact(100))

    def left(session: SparkSession) -> tuple[list[str], int]:
        # Not listTables(): the JVM of `make test` cannot make its objects.
        names = (row.tableName for row in session.sql("SHOW TABLES").collect())
        views = [name for name in names if not name.startswith("_firn_")]
        return views, int(session.sparkContext._jsc.getPersistentRDDs().size())

    def failing(changed: Any) -> IncrementalPlan:
        plan = region_plan(changed)
        return IncrementalPlan((*plan.steps, Step("bad", "SELECT nothing FROM k")), plan.change)

    before = firn.app.engine.run(left)
    result.plan_of = failing
    with pytest.raises(InvalidQuery):
        result.refresh()
    result.plan_of = region_plan
    checked(result)
    assert firn.app.engine.run(left) == before


@pytest.mark.thorough
def test_other_files_with_the_same_rows_stand_for_the_same_sources(firn: Firn, facts: ServedTable) -> None:
    result = RefreshedTable(firn, [facts], FILTERED, BY_ROWS)
    result.build()
    for n in (200, 201):
        facts.write(fact(n))
        result.refresh()
    state, served = result.state, ServedTable(firn, facts.tenant, "result")
    assert int(served.ok("COMPACT", force=True)["metadata"]["snapshot_id"]) == result.loaded.current_snapshot_id
    assert result.state == state
    result.catalog.fence(result.loaded, "a-batch")
    assert result.state == state
    facts.write(fact(202))
    checked(result)


def test_rows_that_were_only_rewritten_are_not_read(firn: Firn, facts: ServedTable) -> None:
    since = facts.loaded.current_snapshot_id
    for n in (300, 301):
        facts.write(fact(n))
        facts.ok("COMPACT", force=True)
    table = facts.loaded
    ranges = changes_between(table, since, table.current_snapshot_id)
    assert [one.differing and len(one.differing[1].paths) for one in ranges] == [1, 1]
    result = RefreshedTable(firn, [facts], FILTERED, BY_ROWS)
    result.build()
    result.read = [since]
    changed = result.job([table]).sources[0].changed
    assert changed is not None
    assert sorted(changed["id"].to_pylist()) == [300, 301]


@pytest.mark.thorough
def test_few_rows_that_change_many_of_the_result_are_left_to_spark(
    firn: Firn, facts: ServedTable, customers: ServedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = RefreshedTable(firn, [facts, customers], JOINED, join_plan)
    result.build()
    monkeypatch.setattr(dynamic_result, "_FEW_ROWS", 3)
    customers.ok("UPDATE", updates={"region": "new"}, filter={"customer": 2})
    counts = checked(result)
    assert (counts.inserted, counts.deleted) == (5, 5)

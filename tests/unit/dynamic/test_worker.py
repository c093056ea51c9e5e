"""The worker: what it refreshes, when, in which order; and what idle tables cost."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.catalog.tables import Table
from service.dynamic.freshness import Freshness
from service.dynamic.refresh.passes import PassOptions, PassOutcome
from service.dynamic.worker import DynamicWorker, Work, WorkerOptions
from service.engine.session.translate import SparkEnded
from service.errors import InvalidQuery, StorageUnavailable
from service.model.call import Call
from service.model.dynamic.definition import DynamicOptions, DynamicSource
from service.model.identity.principal import LOCAL
from service.model.times import now_ms
from tests.support.refreshing import INCREMENTAL, Refreshing

MINUTE = 60_000


class Working(Refreshing):
    """A process with a worker that runs its passes at once, unless a test runs them itself."""

    def __init__(self, home: Path, **how: Any) -> None:
        super().__init__(home, options=how.pop("lag", INCREMENTAL))
        self.loads: list[str] = []
        self.passes_run: list[set[str]] = []
        self.later: list[Work] = []
        self.ahead_ms = 0
        self.passes.failures.now_ms = self._now_ms
        self.worker = DynamicWorker(
            self.records,
            self.cursors,
            Freshness(self._load),
            self._run,
            WorkerOptions(**how),
            now_ms=self._now_ms,
            monotonic=lambda: self.ahead_ms / 1000,
            begin=lambda work: work(),
        )

    def _now_ms(self) -> int:
        return now_ms() + self.ahead_ms

    def _load(self, source: DynamicSource) -> Table:
        self.loads.append(source.name.table)
        return self.commits.find(source.name, source.uuid)

    def _run(self, targets: Collection[str], call: Call, options: PassOptions) -> PassOutcome:
        assert call.principal is LOCAL  # its own rights do not count: the creators' do
        self.passes_run.append({self.graph.tables[uuid].name.table for uuid in targets})
        return self.passes.refresh(targets, call, options)

    @property
    def graph(self) -> Any:
        return self.definitions.graph()

    def look(self, ahead_ms: int = 0) -> list[set[str]]:
        """One round, some time later: the targets of the passes that it starts."""
        self.ahead_ms += ahead_ms
        before = len(self.passes_run)
        self.worker.look()
        return self.passes_run[before:]


@pytest.fixture
def world(tmp_path: Path) -> Working:
    return Working(tmp_path)


def lag(seconds: int | None, **options: Any) -> DynamicOptions:
    return replace(INCREMENTAL, target_lag_s=seconds, **options)


def test_a_table_that_was_never_built_is_due_at_once(world: Working) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")
    assert world.look() == [{"totals"}]
    assert world.look() == []


def test_a_change_waits_for_others_but_not_beyond_the_target_lag(world: Working) -> None:
    world.base("orders")
    world.dynamic("totals", "orders", options=lag(300))
    world.look()
    world.add("orders")
    assert world.look(1 * MINUTE) == []
    assert world.look(2 * MINUTE) == [{"totals"}]
    assert world.look(60 * MINUTE) == []


def test_the_most_overdue_table_comes_first(world: Working) -> None:
    for name, seconds in (("slow", 3600), ("fast", 60), ("middle", 600)):
        world.base(f"of_{name}")
        world.dynamic(name, f"of_{name}", options=lag(seconds))
        world.refresh(name)
        world.add(f"of_{name}")
    assert world.look(60 * MINUTE) == [{"fast"}, {"middle"}, {"slow"}]


def test_tables_over_the_same_dynamic_table_are_refreshed_by_one_pass(world: Working) -> None:
    world.base("orders")
    world.dynamic("first", "orders", options=lag(None))
    world.dynamic("left", "first")
    world.dynamic("right", "first")
    world.refresh("left", "right")
    world.add("orders")
    assert world.look(60 * MINUTE) == [{"left", "right"}]
    assert world.load("first").snapshot_count == 2


def test_a_downstream_table_is_refreshed_with_those_that_read_it_and_not_by_itself(world: Working) -> None:
    world.base("orders")
    world.dynamic("alone", "orders", options=lag(None))
    world.refresh("alone")
    world.add("orders")
    assert world.look(60 * MINUTE) == []


def test_compactions_alone_are_noted_and_nothing_is_computed(world: Working) -> None:
    orders = world.base("orders")
    world.dynamic("totals", "orders")
    world.look()
    newest = world.compact("orders")
    assert world.look() == [{"totals"}]
    assert len(world.engine.done) == 1
    assert [one.snapshot_id for one in world.cursors.needed(orders.uuid)] == [newest]
    assert world.look() == []


def test_idle_tables_cost_one_load_for_each_base_table(world: Working) -> None:
    world.base("orders")
    for number in range(5):
        world.dynamic(f"t{number}", "orders")
    for _ in range(3):
        world.look()
    world.loads.clear()
    world.compiler.compiled.clear()
    assert world.look(60 * MINUTE) == []
    assert world.loads == ["orders"]
    assert world.compiler.compiled == []


def test_the_ledger_learns_that_idle_tables_are_still_right(world: Working) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")
    world.look()
    before = world.known("totals").refreshed_ms or 0
    world.look(10 * MINUTE)
    assert (world.known("totals").refreshed_ms or 0) - before >= 10 * MINUTE


@pytest.mark.parametrize("state", ["suspended", "failed"])
def test_tables_that_are_suspended_or_have_failed_are_left(world: Working, state: Any) -> None:
    world.base("orders")
    table = world.dynamic("totals", "orders")
    world.look()
    world.records.set_state(table.uuid, state, "a test")
    world.add("orders")
    assert world.look(60 * MINUTE) == []


def test_tables_without_a_scheduler_are_left(world: Working) -> None:
    world.base("orders")
    world.dynamic("totals", "orders", options=lag(60, scheduled=False))
    assert world.look(60 * MINUTE) == []


def test_only_tables_of_the_patterns_are_refreshed(tmp_path: Path) -> None:
    world = Working(tmp_path, tables=("acme.default.sales_*", "acme.other.*"))
    world.base("orders")
    world.dynamic("sales_daily", "orders")
    world.dynamic("others", "orders")
    assert world.look() == [{"sales_daily"}]


def test_what_depends_on_a_suspended_table_is_not_tried_in_vain(world: Working) -> None:
    world.base("orders")
    first = world.dynamic("first", "orders")
    world.dynamic("second", "first")
    world.look()
    world.look()
    world.records.set_state(first.uuid, "suspended", "a test")
    world.add("orders")
    assert world.look(60 * MINUTE) == []
    world.records.set_state(first.uuid, "active")
    assert world.look() != []


def test_a_table_that_is_held_back_is_tried_again_after_pauses(world: Working) -> None:
    world.base("orders")
    world.dynamic("left", "orders")
    world.dynamic("right", "orders")
    world.dynamic("top", "left", "right")
    world.refresh("top")
    world.add("orders")
    world.refresh("right")
    world.records.set_state(world.load("left").uuid, "suspended", "a test")
    world.compact("orders")
    tries = [world.look(1000) for _ in range(20)]
    assert sum({"top"} <= one for found in tries for one in found) <= 5


def test_transient_failures_are_tried_again_and_lasting_ones_three_times(world: Working) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")

    def fail(error: Exception) -> Any:
        def before(step: str, table: str) -> None:
            raise error

        return before

    world.engine.before = fail(StorageUnavailable("the bucket does not respond"))
    assert [len(world.look(10 * MINUTE)) for _ in range(5)] == [1] * 5
    assert world.look() == []  # it pauses
    world.engine.before = fail(InvalidQuery("division by zero"))
    assert [len(world.look(10 * MINUTE)) for _ in range(5)] == [1, 1, 1, 0, 0]
    assert world.known("totals").state == "failed"


def test_a_refresh_during_which_spark_ends_is_not_tried_for_ever(world: Working) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")

    def spark_ends(step: str, table: str) -> None:
        raise SparkEnded("Spark ended during this request")

    world.engine.before = spark_ends
    assert [len(world.look(10 * MINUTE)) for _ in range(5)] == [1, 1, 1, 0, 0]
    assert world.known("totals").state == "failed"


def test_a_query_is_judged_again_when_a_source_has_twice_as_many_rows(world: Working) -> None:
    world.base("orders")
    world.dynamic("totals", "orders")
    for more, judged in ((1, 1), (100, 0), (20_000, 1), (50, 0)):
        world.compiler.compiled.clear()
        world.add("orders", more)
        world.look(10 * MINUTE)
        assert len(world.compiler.compiled) == judged, more


def test_no_more_passes_run_than_allowed_and_none_twice_over_the_same_tables(tmp_path: Path) -> None:
    world = Working(tmp_path, parallelism=2)
    world.worker.begin = world.later.append
    for number in range(3):
        world.base(f"b{number}")
        world.dynamic(f"t{number}", f"b{number}")
    world.look()
    world.look()
    assert len(world.later) == 2
    while world.later:
        world.later.pop()()
        world.look()
    assert [len(found) for found in world.passes_run] == [1, 1, 1]


def test_a_stop_cancels_the_passes_in_progress_and_starts_no_more(world: Working) -> None:
    world.worker.begin = world.later.append
    world.base("orders")
    world.dynamic("totals", "orders")
    world.look()
    world.worker.stop()
    world.later.pop()()
    assert world.engine.done == []
    assert world.known("totals").failures == 0
    world.look()
    assert world.later == []
    world.worker.close(1)


def test_a_process_that_ended_after_a_commit_leaves_nothing_to_do(tmp_path: Path) -> None:
    world = Working(tmp_path)
    orders = world.base("orders")
    world.dynamic("totals", "orders")
    world.look()
    known = world.cursors.of(world.load("totals").uuid)
    assert known is not None
    world.add("orders")
    world.look(60 * MINUTE)
    world.cursors.put(world.load("totals").uuid, known, {orders.uuid})
    assert world.look(60 * MINUTE) == [{"totals"}]
    assert len(world.engine.done) == 2
    assert world.look(60 * MINUTE) == []

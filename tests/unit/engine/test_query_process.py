"""Queries in a process of their own: what becomes of them, and of the process. Real processes, no Spark."""

import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from service.engine.queries import launch, lending, process
from service.engine.queries.engine import Reason
from service.engine.queries.process import QueryProcess
from service.engine.queries.wire import AskedBack, QueryDefect
from service.errors import (
    Cancelled,
    DeadlineExceeded,
    EngineUnavailable,
    InvalidQuery,
    QueryTooExpensive,
    RowCountMismatch,
)
from service.model.call import Call
from service.settings import ROOT
from tests.harness import wait_until
from tests.unit.engine import fake_spark
from tests.unit.engine.fake_spark import fake_options


@pytest.fixture(scope="module")
def shared() -> Iterator[QueryProcess]:
    made = QueryProcess(fake_options(), sessions=4, start_wait_s=60)
    made.start()
    try:
        yield made
    finally:
        made.stop(10)


@pytest.fixture
def queries(shared: QueryProcess) -> QueryProcess:
    """An engine for queries whose process has neither ended nor started yet, as far as its figures say."""
    wait_until(lambda: shared.up, 60)
    shared.starts = 0
    shared._ends.clear()
    # As if no query had been cancelled just now.
    shared._lending._cancelled = -math.inf
    return shared


class Runs:
    """Counts how often a job has begun, in this process, and tells."""

    def __init__(self, together: int = 1) -> None:
        self.count = 0
        self.first = threading.Event()
        self._barrier = threading.Barrier(together)

    @property
    def begun(self) -> AskedBack:
        return AskedBack(self._begun)

    def _begun(self) -> int:
        self.count += 1
        self.first.set()
        if self.count == 1:
            self._barrier.wait(60)
        return self.count


def is_running(process: int) -> bool:
    """Whether it has not ended; what nobody reaps has, too."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def read(batches: Any) -> list[int]:
    try:
        return [n for batch in batches for n in batch.column(0).to_pylist()]
    finally:
        batches.close()


class TestJobs:
    def test_a_job_runs_in_another_process_and_returns_its_value(self, queries: QueryProcess) -> None:
        value = {"a": [1, None, b"x"], "long": "x" * 5_000_000}
        assert queries.run_for(Call(), fake_spark.returned, value) == value
        other, _ = queries.run_for(Call(), fake_spark.processes)
        assert other != os.getpid()

    def test_an_error_arrives_with_all_its_fields(self, queries: QueryProcess) -> None:
        with pytest.raises(InvalidQuery) as found:
            queries.run_for(Call(), fake_spark.refused)
        error = found.value
        assert (error.message, error.field, error.suggestion) == ("no such column", "sql", "id")
        assert error.details == {"line": 3}

    def test_a_defect_arrives_with_the_place_where_it_happened(self, queries: QueryProcess) -> None:
        with pytest.raises(QueryDefect, match=r"(?s)slipped.*AttributeError: a slip"):
            queries.run_for(Call(), fake_spark.slipped)

    def test_a_job_may_ask_for_what_only_the_service_knows(self, queries: QueryProcess) -> None:
        def here() -> int:
            return os.getpid()

        assert queries.run_for(Call(), fake_spark.asked, AskedBack(here), AskedBack(here)) == [os.getpid()] * 2

    @pytest.mark.parametrize("error", [RowCountMismatch("it", 1, 2), DeadlineExceeded(), KeyError("here")])
    def test_what_it_is_refused_then_is_what_its_caller_gets(self, queries: QueryProcess, error: Exception) -> None:
        """Whatever parameters the class of the error has."""

        def refuse() -> None:
            raise error

        with pytest.raises(type(error)) as found:
            queries.run_for(Call(), fake_spark.asked, AskedBack(refuse))
        assert found.value is error

    def test_jobs_run_at_the_same_time_but_no_more_than_there_are_sessions(self, queries: QueryProcess) -> None:
        together = threading.Barrier(4)
        beyond = threading.Event()

        def meet() -> None:
            together.wait(60)

        with ThreadPoolExecutor(5) as pool:
            runs = [pool.submit(queries.run_for, Call(), fake_spark.asked, AskedBack(meet)) for _ in range(3)]
            wait_until(lambda: queries.lent == 3, 60)
            assert queries.idle == 1
            runs.append(pool.submit(queries.run_for, Call(), fake_spark.asked, AskedBack(meet), AskedBack(beyond.wait)))
            for run in runs[:3]:
                run.result(60)
            beyond.set()
            runs[3].result(60)
        assert (queries.lent, queries.idle) == (0, 4)

    def test_rows_are_read_in_batches_and_the_rest_is_left_if_nobody_wants_it(self, queries: QueryProcess) -> None:
        assert read(queries.run_for(Call(), fake_spark.numbers, 5, AskedBack(lambda: 2))) == [0, 1, 2, 3, 4]
        batches: Any = queries.run_for(Call(), fake_spark.numbers, 1_000_000, AskedBack(lambda: 2))
        assert next(iter(batches)).num_rows == 1
        batches.close()
        assert queries.run_for(Call(), fake_spark.returned, 1) == 1
        assert queries.rows_read("a-tag") == 7


class TestEnds:
    def test_a_query_that_ends_the_process_alone_is_too_expensive_and_not_repeated(self, queries: QueryProcess) -> None:
        before, runs = queries.run_for(Call(), fake_spark.processes), Runs()
        with pytest.raises(QueryTooExpensive) as found:
            queries.run_for(Call(), fake_spark.jvm_ends, 3, runs.begun)
        assert (runs.count, found.value.details) == (1, {"reason": "memory"})
        after = queries.run_for(Call(), fake_spark.processes)
        assert not set(before) & set(after)
        assert not any(map(is_running, before))
        assert (queries.starts, queries.ends[("memory",)]) == (1, 1)

    def test_a_crash_is_too_expensive_as_well(self, queries: QueryProcess) -> None:
        with pytest.raises(QueryTooExpensive) as found:
            queries.run_for(Call(), fake_spark.jvm_ends, 134, Runs().begun)
        assert found.value.details == {"reason": "crash"}

    @pytest.mark.parametrize("jvm", [False, True], ids=["process", "jvm"])
    def test_what_another_program_kills_is_nobodys_fault_and_runs_again(self, queries: QueryProcess, jvm: bool) -> None:
        runs = Runs()
        assert queries.run_for(Call(), fake_spark.killed, runs.begun, jvm=jvm) == "done"
        assert (runs.count, queries.ends[("killed",)]) == (2, 1)

    def test_of_several_each_runs_again_alone_and_the_one_that_does_it_again_did_it(
        self, queries: QueryProcess
    ) -> None:
        bomb, others = Runs(3), [Runs(3), Runs(3)]
        bomb._barrier = others[0]._barrier = others[1]._barrier = threading.Barrier(3)

        def wait(runs: Runs) -> AskedBack:
            return AskedBack(lambda: runs.count == 1 and threading.Event().wait(0.2))

        with ThreadPoolExecutor(3) as pool:
            innocent = [
                pool.submit(queries.run_for, Call(), fake_spark.asked, each.begun, *[wait(each)] * 50)
                for each in others
            ]
            guilty = pool.submit(queries.run_for, Call(), fake_spark.jvm_ends, 3, bomb.begun)
            with pytest.raises(QueryTooExpensive):
                guilty.result(60)
            assert [each.result(60)[0] for each in innocent] == [2, 2]
        assert (bomb.count, queries.ends[("memory",)]) == (2, 2)
        assert queries.run_for(Call(), fake_spark.returned, 1) == 1

    def test_a_process_that_does_not_respond_is_replaced(
        self, queries: QueryProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(launch, "_HANG_S", 0.5)
        before, _ = queries.run_for(Call(), fake_spark.processes)
        os.kill(before, signal.SIGSTOP)
        wait_until(lambda: queries.starts == 1, 60)
        assert queries.ends[("hang",)] == 1
        assert queries.run_for(Call(), fake_spark.processes)[0] != before

    def test_rows_are_computed_again_if_none_was_sent_and_else_the_stream_breaks(self, queries: QueryProcess) -> None:
        runs = Runs()
        assert read(queries.run_for(Call(), fake_spark.numbers, 3, runs.begun, ends_before=0)) == [0, 1, 2]
        assert runs.count == 2
        with pytest.raises(EngineUnavailable, match="ended during this query"):
            read(queries.run_for(Call(), fake_spark.numbers, 3, Runs().begun, ends_before=1))

    def test_without_a_process_a_query_waits_and_then_says_so(self) -> None:
        broken = QueryProcess(fake_options(starts=False), sessions=2, start_wait_s=0.5)
        broken.start()
        try:
            with pytest.raises(EngineUnavailable, match="not available"):
                broken.run_for(Call(), fake_spark.returned, 1)
            wait_until(lambda: broken.ends[("start",)] >= 1, 60)
            assert not broken.up
        finally:
            broken.stop(10)


class TestCancellation:
    def test_a_cancelled_call_ends_its_job_and_frees_its_session(self, queries: QueryProcess) -> None:
        call, runs = Call(), Runs()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(queries.run_for, call, fake_spark.until_cancelled, runs.begun)
            runs.first.wait(60)
            call.cancel()
            with pytest.raises(Cancelled):
                running.result(60)
        assert (queries.lent, queries.starts) == (0, 0)

    def test_a_deadline_is_a_cancellation(self, queries: QueryProcess) -> None:
        queries.run_for(Call(), fake_spark.returned, 1)
        call = Call()
        call.set_deadline(0.2)
        with pytest.raises(DeadlineExceeded):
            queries.run_for(call, fake_spark.until_cancelled, Runs().begun)
        assert queries.starts == 0

    def test_a_job_that_does_not_end_costs_its_process_and_the_others_run_again(
        self, queries: QueryProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "_CANCEL_S", 0.3)
        call, runs, other, over = Call(), Runs(), Runs(), threading.Event()
        with ThreadPoolExecutor(2) as pool:
            stuck = pool.submit(queries.run_for, call, fake_spark.stubborn, runs.begun)
            innocent = pool.submit(queries.run_for, Call(), fake_spark.asked, other.begun, AskedBack(over.wait))
            for each in (runs, other):
                each.first.wait(60)
            call.cancel()
            with pytest.raises(Cancelled):
                stuck.result(60)
            wait_until(lambda: queries.starts == 1, 60)
            over.set()
            assert innocent.result(60) == [2, True]
        assert (queries.ends[("stuck",)], runs.count) == (1, 1)

    def test_a_call_that_is_cancelled_does_not_wait_for_the_process(self) -> None:
        broken = QueryProcess(fake_options(starts=False), sessions=2, start_wait_s=600)
        call = Call()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(broken.run_for, call, fake_spark.returned, 1)
            wait_until(lambda: broken.longest_wait_s > 0, 60)
            call.cancel()
            with pytest.raises(Cancelled):
                waiting.result(60)


PARENT = """
import sys, threading
from service.engine.queries.process import QueryProcess
from service.model.call import Call
from tests.unit.engine import fake_spark
queries = QueryProcess(fake_spark.fake_options(), sessions=2, start_wait_s=60)
queries.start()
print(*queries.run_for(Call(), fake_spark.processes), flush=True)
threading.Event().wait()
"""


class TestLife:
    def test_the_end_of_the_service_is_the_end_of_the_process_and_its_jvm(self) -> None:
        queries = QueryProcess(fake_options(), sessions=2, start_wait_s=60)
        queries.start()
        both, runs = queries.run_for(Call(), fake_spark.processes), Runs()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(queries.run_for, Call(), fake_spark.stubborn, runs.begun)
            runs.first.wait(60)
            queries.stop(10)
            with pytest.raises(EngineUnavailable):
                running.result(60)
        assert not any(map(is_running, both))
        with pytest.raises(EngineUnavailable):
            queries.run_for(Call(), fake_spark.returned, 1)
        assert sum(queries.ends.values()) == 0

    def test_a_killed_service_leaves_neither_the_process_nor_its_jvm(self) -> None:
        service = subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert service.stdout is not None
        both = [int(number) for number in service.stdout.readline().split()]
        assert len(both) == 2
        service.kill()
        service.wait()
        wait_until(lambda: not any(map(is_running, both)), 30)

    def test_linux_kills_it_before_the_service_if_memory_is_short(self, queries: QueryProcess) -> None:
        scores = []
        for number in (os.getpid(), *queries.run_for(Call(), fake_spark.processes)):
            with open(f"/proc/{number}/oom_score_adj") as file:
                scores.append(int(file.read()))
        service, child, jvm = scores
        assert child == jvm == 500 > service

    def test_the_command_line_has_nothing_of_the_configuration(self, queries: QueryProcess) -> None:
        number, _ = queries.run_for(Call(), fake_spark.processes)
        with open(f"/proc/{number}/cmdline") as file:
            assert file.read().split("\0")[1:3] == ["-m", "service.engine.queries.child"]


def test_suspects_keep_others_waiting_but_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    lent: lending.Lending[str] = lending.Lending(sessions=4, start_wait_s=60)
    lent.start("first")
    long, short = lending.Entry(Call()), lending.Entry(Call())
    lent.enter(long)
    lent.enter(short)
    lent.end("memory")
    lent.start("second")
    assert lent.suspects == [short, long]
    fresh = lending.Entry(Call())
    lent._waiting[long] = 0
    assert [lent._is_allowed(each) for each in (short, long, fresh)] == [True, False, False]
    lent.enter(short)
    assert [lent._is_allowed(each) for each in (long, fresh)] == [False, False]
    monkeypatch.setattr(lending, "_ALONE_S", 0.0)
    assert [lent._is_allowed(each) for each in (long, fresh)] == [False, True]
    lent.leave(short)
    assert [lent._is_allowed(each) for each in (long, fresh)] == [True, False]
    del lent._waiting[long]
    assert lent._is_allowed(fresh), "a suspect whose rows nobody wants at the moment keeps nobody waiting"


def test_tenants_share_the_sessions_of_queries() -> None:
    lent: lending.Lending[str] = lending.Lending(sessions=3, start_wait_s=60, tenant_share=50)
    lent.start("first")

    def of(tenant: str) -> lending.Entry:
        return lending.Entry(Call(), tenant)

    flood = [of("one") for _ in range(4)]
    for each in flood[:2]:
        lent.enter(each)
    other = of("other")
    for each in (*flood[2:], other):
        lent._queue.add(each.tenant, each)
    assert [lent._may_run(each) for each in (*flood[2:], other)] == [False, False, True]
    lent.leave(flood[0])
    assert [lent._may_run(each) for each in (*flood[2:], other)] == [False, False, True]
    lent._queue.remove("other", other)
    assert [lent._may_run(each) for each in flood[2:]] == [True, False]


def test_a_query_that_no_longer_waits_wakes_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "_LOOK_EVERY_S", 60)
    lent: lending.Lending[str] = lending.Lending(sessions=1, start_wait_s=60)
    with ThreadPoolExecutor(1) as pool:
        next_one = pool.submit(lent.enter, lending.Entry(Call()))
        wait_until(lambda: lent.longest_wait_s() > 0, 30)
        lent.life = "first"  # nobody is woken, as if the next had looked before this one left
        gone = lending.Entry(Call())
        monkeypatch.setattr(gone.call, "check", cancelled().call.check)
        with pytest.raises(Cancelled):
            lent.enter(gone)
        assert next_one.result(30) == "first"


def entry(**how: Any) -> lending.Entry:
    made = lending.Entry(Call(), runs=1)
    for name, value in how.items():
        setattr(made, name, value)
    return made


def cancelled() -> lending.Entry:
    made = entry()
    made.call.cancel()
    return made


AGAIN, ALONE, GUILTY, BROKEN = "again", "alone", "guilty", "broken"


def verdict(one: lending.Entry) -> str:
    if one.failure is not None:
        return GUILTY if isinstance(one.failure, QueryTooExpensive) else BROKEN
    return ALONE if one.alone else AGAIN


@pytest.mark.parametrize(
    ("reason", "entries", "verdicts"),
    [
        ("memory", lambda: [entry()], [GUILTY]),
        ("hang", lambda: [entry()], [GUILTY]),
        ("memory", lambda: [entry(), entry()], [ALONE, ALONE]),
        # A cancelled query may have done it: its tasks run a little longer.
        ("memory", lambda: [entry(), cancelled()], [ALONE, AGAIN]),
        ("memory", lambda: [entry(alone=True, runs=2)], [GUILTY]),
        ("memory", lambda: [entry(alone=True, runs=2), entry()], [GUILTY, AGAIN]),
        ("memory", lambda: [entry(), entry(streaming=True)], [ALONE, BROKEN]),
        ("memory", lambda: [entry(streaming=True)], [GUILTY]),
        ("killed", lambda: [entry()], [AGAIN]),
        ("killed", lambda: [entry(was_killed=True, runs=2)], [ALONE]),
        ("killed", lambda: [entry(alone=True, runs=2)], [GUILTY]),
        ("stuck", lambda: [entry(), cancelled()], [AGAIN, AGAIN]),
        ("stuck", lambda: [entry(runs=3)], [BROKEN]),
        ("stop", lambda: [entry()], [BROKEN]),
    ],
)
def test_who_runs_again_and_who_does_not(
    reason: Reason, entries: Callable[[], list[lending.Entry]], verdicts: list[str]
) -> None:
    found = entries()
    lending.judge(reason, found)
    assert [verdict(one) for one in found] == verdicts


def test_nobody_is_blamed_alone_shortly_after_another_was_cancelled() -> None:
    lent: lending.Lending[str] = lending.Lending(sessions=4, start_wait_s=60)
    lent.start("first")
    gone, left = lending.Entry(Call()), lending.Entry(Call())
    lent.enter(gone)
    lent.enter(left)
    gone.call.cancel()
    lent.leave(gone)
    lent.end("memory")
    assert verdict(left) == ALONE

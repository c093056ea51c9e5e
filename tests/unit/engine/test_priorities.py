"""Tasks of queries that compute for long give way to changes, if this process may undo it."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from service.engine.session import priorities
from service.engine.session.conf import spark_conf
from service.engine.session.priorities import TaskPriorities, wanted_priorities
from service.settings import load

THREADS = (
    "[Thread[main,5,main], "
    "Thread[Executor task launch worker for task 0.0 in stage 7.0 (TID 11),5,main], "
    "Thread[Executor task launch worker for task 1.0 in stage 17.0 (TID 12),1,main], "
    "Thread[Executor task launch worker-3,5,main], "
    "Thread[Executor task launch worker for task 3.1 in stage 7.2 (TID 13),1,main]]"
)
LATER_JAVA = (
    "[Thread[#1,main,5,main], Thread[#44,Executor task launch worker for task 0.0 in stage 7.0 (TID 11),5,main]]"
)


def test_threads_that_run_tasks_of_long_queries_are_lowered_and_all_others_are_normal() -> None:
    assert wanted_priorities(THREADS, {7}) == {1: (5, 1), 2: (1, 5), 4: (1, 1)}
    assert wanted_priorities(THREADS, set()) == {1: (5, 5), 2: (1, 5), 4: (1, 5)}


def test_threads_are_read_as_later_versions_of_java_show_them() -> None:
    assert wanted_priorities(LATER_JAVA, {7}) == {1: (5, 1)}


@pytest.mark.parametrize(
    ("limit", "capabilities", "can"),
    [(0, "000001ffffffffff", True), (0, "00000000a80425fb", False), (20, "0000000000000000", True), (19, "0", False)],
    ids=["with CAP_SYS_NICE", "with a container's usual capabilities", "with a limit of 20", "with neither"],
)
def test_priorities_are_set_only_if_they_can_be_raised_again(
    limit: int, capabilities: str, can: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    status = tmp_path / "status"
    status.write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    monkeypatch.setattr(priorities, "_STATUS", status)
    conf = spark_conf(load({"FIRN_HOME": str(tmp_path)}), [])
    assert priorities.are_set(conf) == can


def test_no_other_priority_differs_from_normal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise Java's compiler and garbage collector take the cores from the threads that serve requests."""
    monkeypatch.setattr(priorities, "_can_raise", lambda: True)
    options = priorities.java_options("local[2]")
    assert options[1] == f"-XX:JavaPriority1_To_OSPriority={priorities.NICE}"
    assert options[2:] == tuple(f"-XX:JavaPriority{priority}_To_OSPriority=0" for priority in range(2, 11))


def test_a_cluster_runs_no_tasks_in_our_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priorities, "_can_raise", lambda: True)
    settings = load({"FIRN_HOME": str(tmp_path), "FIRN_SPARK__MASTER": "spark://host:7077"})
    assert not priorities.are_set(spark_conf(settings, []))


class Looks:
    """What a TaskPriorities would set, at each of its looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tags: list[list[str]] = []
        self._looked = threading.Semaphore(0)
        monkeypatch.setattr(priorities, "_LOOK_EVERY_S", 0.01)
        monkeypatch.setattr(priorities, "_set_priorities", self.set)

    def set(self, session: Any, tags: list[str]) -> bool:
        self.tags.append(tags)
        self._looked.release()
        return bool(tags)

    def wait_for(self, tags: list[str]) -> None:
        while not self.tags or self.tags[-1] != tags:
            assert self._looked.acquire(timeout=30)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Looks]:
    yield Looks(monkeypatch)
    for watch in watches():
        watch.join(30)


def watches() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "firn-priorities"]


SESSION: Any = object()


def test_long_queries_are_low_while_there_are_changes_and_normal_afterwards(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priorities, "_LONG_S", 0)
    task_priorities = TaskPriorities(enabled=True)
    with ExitStack() as queries:
        queries.enter_context(task_priorities.low(SESSION, "a"))
        queries.enter_context(task_priorities.low(SESSION, "b"))
        task_priorities.protect()
        looks.wait_for(["a", "b"])
        task_priorities._protect_until = 0  # seconds pass without a change
        looks.wait_for([])
        task_priorities.protect()
        looks.wait_for(["a", "b"])
    looks.wait_for([])  # after the last query, one more look raises what is low
    task_priorities.protect()
    with task_priorities.low(SESSION, "c"):
        looks.wait_for(["c"])


def test_a_short_query_keeps_its_priority(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priorities, "_LONG_S", 3600)
    task_priorities = TaskPriorities(enabled=True)
    task_priorities.protect()
    with task_priorities.low(SESSION, "short"):
        [watch] = watches()
    watch.join(30)
    assert looks.tags == []


def test_it_does_nothing_if_priorities_are_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Thread", lambda **_: pytest.fail("a thread was started"))
    with TaskPriorities(enabled=False).low(SESSION, "a"):
        pass

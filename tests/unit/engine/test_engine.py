"""What a job's failure means when its JVM has ended meanwhile, and how a JVM is asked; nothing here starts one."""

import threading
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import STATIC_PREFIX
from pyspark import SparkContext
from pyspark.sql import SparkSession

from service.engine.session import java, jvm
from service.engine.session.engine import Engine
from service.errors import EngineUnavailable, StorageUnavailable
from service.fairness.shares import work_of
from service.model.call import Call
from tests.harness import wait_until


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """One with a session to lend, as after a start."""
    monkeypatch.setattr(jvm, "activate", lambda session: None)
    made = Engine({}, sessions=2, start_wait_s=0.01)
    made._state, made._idle, made._life = "up", [cast(SparkSession, object())], 1
    return made


def test_whatever_a_job_meets_once_its_jvm_has_ended_is_told_as_that(engine: Engine) -> None:
    """It waited for the ledger, say, while the JVM died and another was started."""

    def job(session: Any) -> None:
        engine._life += 1
        raise AttributeError("'NoneType' object has no attribute '_gateway_client'")

    with pytest.raises(EngineUnavailable, match="being restarted"):
        engine.run(job)


def test_a_defect_stays_one_while_the_jvm_lives(engine: Engine) -> None:
    def job(session: Any) -> None:
        raise AttributeError("a slip")

    with pytest.raises(AttributeError, match="a slip"):
        engine.run(job)


def test_what_a_job_says_itself_is_told_whatever_became_of_the_jvm(engine: Engine) -> None:
    def job(session: Any) -> None:
        engine._state = "starting"
        raise StorageUnavailable("full")

    with pytest.raises(StorageUnavailable):
        engine.run(job)


def test_a_static_method_is_called_without_asking_what_its_name_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked, Py4J looks at one method of that name, which in some JVMs is not the static one."""

    def asked(command: str) -> str:
        raise AssertionError(f"asked: {command}")

    client = SimpleNamespace(gateway_property=SimpleNamespace(pool=None), converters=[], send_command=asked)
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(_gateway_client=client))
    method = java.java_class("a.B").get
    assert (method.name, method.target_id) == ("get", f"{STATIC_PREFIX}a.B")
    with pytest.raises(AssertionError, match="asked"):
        assert java.java_class("a.B").A_CONSTANT


class Busy:
    """An engine whose sessions are lent, for tenants, to jobs that end when they are told to."""

    def __init__(self, sessions: int) -> None:
        self.engine = Engine({}, sessions=sessions, start_wait_s=30, tenant_share=75)
        self.engine._state, self.engine._life = "up", 1
        self.engine._idle = [cast(SparkSession, object()) for _ in range(sessions)]
        self.begun: list[str] = []
        self.ends: dict[str, threading.Event] = {}

    def start(self, tenant: str, name: str, *, change: bool = False) -> threading.Thread:
        self.ends[name] = threading.Event()

        def job(session: Any) -> None:
            self.begun.append(name)
            assert self.ends[name].wait(30)

        def run() -> None:
            with work_of(tenant), self.engine.lend(None if change else Call()) as session:
                job(session)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def waiting(self, count: int) -> None:
        wait_until(lambda: self.engine._waiters.waiting == count, 30, every=0.002)

    def running(self, *names: str) -> None:
        wait_until(lambda: set(self.begun) == set(names), 30, every=0.002)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Busy:
    monkeypatch.setattr(jvm, "activate", lambda session: None)
    monkeypatch.setattr("service.engine.session.engine.cancellable_for", lambda session, call: nullcontext("tag"))
    return Busy(5)


def test_a_tenant_with_many_jobs_leaves_sessions_to_others_and_to_changes(busy: Busy) -> None:
    threads = [busy.start("loud", f"loud{i}") for i in range(3)]
    busy.running("loud0", "loud1", "loud2")
    threads += [busy.start("loud", f"loud{i}") for i in range(3, 6)]
    busy.waiting(3)
    assert busy.engine.idle == 2
    threads.append(busy.start("quiet", "quiet"))
    busy.running("loud0", "loud1", "loud2", "quiet")
    threads.append(busy.start("loud", "change", change=True))
    busy.running("loud0", "loud1", "loud2", "quiet", "change")
    for end in list(busy.ends.values()):
        end.set()
    for thread in threads:
        thread.join(30)
    assert len(busy.begun) == 8
    assert (busy.engine.idle, busy.engine._limited, busy.engine._waiters.taken) == (5, {}, 0)
    assert not busy.engine._limited.keys(), "tenants without sessions are forgotten"


def test_a_job_of_another_tenant_is_served_before_those_that_wait_longer(busy: Busy) -> None:
    threads = [busy.start("loud", f"loud{i}", change=True) for i in range(4)]
    busy.running("loud0", "loud1", "loud2", "loud3")
    threads.append(busy.start("third", "third", change=True))
    busy.running("loud0", "loud1", "loud2", "loud3", "third")
    threads += [busy.start("loud", f"loud{i}", change=True) for i in range(4, 8)]
    busy.waiting(4)
    threads.append(busy.start("quiet", "quiet", change=True))
    busy.waiting(5)
    busy.ends["loud0"].set()
    wait_until(lambda: len(busy.begun) == 6, 30, every=0.002)
    assert busy.begun[-1] == "quiet"
    for end in list(busy.ends.values()):
        end.set()
    for thread in threads:
        thread.join(30)
    assert len(busy.begun) == 10


def test_a_restart_of_spark_frees_what_tenants_had_before(busy: Busy) -> None:
    thread = busy.start("loud", "before")
    busy.running("before")
    busy.engine._life, busy.engine._limited = 2, Counter()
    busy.engine._waiters.forget_taken()
    busy.ends["before"].set()
    thread.join(30)
    assert (busy.engine._waiters.taken, busy.engine._limited.total()) == (0, 0)

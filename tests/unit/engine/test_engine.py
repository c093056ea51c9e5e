"""What a job's failure means when its JVM has ended meanwhile, and how a JVM is asked; nothing here starts one."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import STATIC_PREFIX
from pyspark import SparkContext
from pyspark.sql import SparkSession

from service.engine.session import java, jvm
from service.engine.session.engine import Engine
from service.errors import EngineUnavailable, StorageUnavailable


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

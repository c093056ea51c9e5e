"""How the tests here are run: a property with few examples, again and again; `make test-all` takes its time over it."""

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from service.app import App

# How long an example takes to make says how busy the machine is.
settings.register_profile("unit", max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("unit"), max_examples=200)
settings.load_profile("unit")


def pytest_collection_finish() -> None:
    """What was imported for the tests stays: nobody need look through it for garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Neighbours stay together, as they share fixtures, until a process has nothing left to do."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[App]":
    """The real parts of a service whose Spark was never started."""
    # Here, as the process that hands out the tests needs none of it.
    from service.app import App
    from service.settings import load

    app = App(load({"FIRN_HOME": str(tmp_path_factory.mktemp("home"))}), [])
    yield app
    app.stop()

"""Fixtures only.

What they are made of is imported when a test asks for it: the process that hands out tests to others needs none of it.
"""

import itertools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.harness import Firn
    from tests.postgres import PostgresServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def firn(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Firn]":
    """The one running service of a test run, in this process."""
    from service.settings import load
    from tests.harness import Running, free_port

    home = tmp_path_factory.mktemp("firn-home")
    settings = {"FIRN_HOME": str(home), "FIRN_PORT": str(free_port()), "FIRN_LOG_LEVEL": "warning"}
    # To run all of them with a process for queries: FIRN_SPARK__PROCESSES=2.
    settings["FIRN_SPARK__PROCESSES"] = os.environ.get("FIRN_SPARK__PROCESSES", "1")
    # What looks at tables in the background would look at those of all tests. Tests of it look when they are ready.
    settings |= {"FIRN_INGEST__WATCH_INTERVAL_S": "86400", "FIRN_DYNAMIC__INTERVAL_S": "3600"}
    settings["FIRN_ICEBERG__COMPACTION__AUTO_INTERVAL_S"] = "3600"
    settings["FIRN_SPARK__WARM_UP"] = "false"  # the tests do that
    running = Running(load(settings))
    try:
        yield running.start()
    finally:
        running.stop()


@pytest.fixture(scope="session")
def postgres() -> "Iterator[PostgresServer]":
    """The one PostgreSQL server of a test run, started when a test first asks for it."""
    from tests.postgres import PostgresServer

    with PostgresServer() as server:
        yield server


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test has."""
    return f"tenant-{next(_numbers)}"

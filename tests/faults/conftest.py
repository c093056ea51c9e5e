"""The service that is killed, and which process runs which tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.faults.victim import RestartedService


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RestartedService]":
    """The service whose process and JVM tests kill; each uses tables of its own."""
    from tests.faults.victim import RestartedService

    made = RestartedService(tmp_path_factory.mktemp("killed") / "home")
    try:
        yield made
    finally:
        made.close()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of two processes, one runs all files whose tests share the service; the tests of another file stay together."""
    from xdist.scheduler import LoadScopeScheduling

    sharing = {path.name for path in Path(__file__).parent.glob("test_*.py") if "RestartedService" in path.read_text()}

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "service" if Path(file).name in sharing else file

    return Scheduling(config, log)

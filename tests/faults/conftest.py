"""The service that is killed, and which process runs which tests."""

from collections.abc import Iterator

import pytest

from tests.faults.victim import RestartedService


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartedService]:
    """The service whose process and JVM tests kill; each uses tables of its own."""
    made = RestartedService(tmp_path_factory.mktemp("killed") / "home")
    try:
        yield made
    finally:
        made.close()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With two processes, one runs all tests that share the service, and a file's tests stay together."""
    for item in items:
        shared = "service" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("service" if shared else item.path.name))

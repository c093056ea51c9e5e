"""A merge of a period with its export, and an EXPORT, that are killed and sent again leave the same files."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from service.model.names import TableName
from tests.faults.evidence import DatabaseLock, locked
from tests.faults.points import reached
from tests.faults.victim import RestartedService, Victim
from tests.harness import Firn
from tests.support.ingesting import DATASET, HEADER, row

TENANT = "exported"
DAYS = [f"2024-01-0{day}" for day in range(1, 8)]  # 2024-W01
PERIOD = "2024-W01.parquet"


class Exporting:
    """A table of weeks that exports, with a row of each day of a week, and its exported files."""

    def __init__(self, service: RestartedService, folder: Path, name: str, *, export: bool) -> None:
        self.victim = Victim(service, TableName(TENANT, "default", name))
        self.address, self.out = {"tenant_id": TENANT, "table": name}, folder / "out"
        storage = {"type": "local", "base_path": str(self.out), "format": "parquet"}
        weekly = {"strategy": {"type": "weekly", "delete_source": True}}
        config = {"name": name, "export": export, "storage": storage, "compaction": weekly}
        self.firn.ok({"operation": "CREATE_TABLE", "tenant_id": TENANT, "config": config, "dataset": DATASET})
        for number, day in enumerate(DAYS, 1):
            (folder / f"{day}.csv").write_text(HEADER + row(number))
        source = {"source": f"{folder}/{{date}}.csv", "from": DAYS[0], "to": DAYS[-1]}
        self.firn.ok({"operation": "INGEST_RANGE", **self.address, **source})

    @property
    def firn(self) -> Firn:
        return self.victim.firn

    def files(self) -> dict[str, list[int]]:
        """The ids in each file that readers see."""
        found = sorted(path for path in self.out.glob("*.parquet") if path.name[0] != ".")
        return {path.name: sorted(pq.read_table(path)["id"].to_pylist()) for path in found}

    def kill_during(self, request: dict[str, Any], moment: Callable[["Exporting", DatabaseLock], Any]) -> None:
        """Send a request, kill the service at a moment in its work, and start it again."""
        with ThreadPoolExecutor(1) as pool, locked(self.victim.disk.catalog) as catalog:
            sent = pool.submit(Firn(self.firn.base_url).send, request)
            with moment(self, catalog):
                self.victim.kill()
        self.victim.start()
        assert isinstance(sent.exception(), httpx.TransportError)


def _at_the_swap(table: Exporting) -> bool:
    disk = table.victim.disk
    return any(disk.uncommitted(batch) for batch in disk.begun())


@contextmanager
def before_the_commit(table: Exporting, catalog: DatabaseLock) -> Iterator[None]:
    reached(lambda: _at_the_swap(table))
    yield


@contextmanager
def after_the_commit(table: Exporting, catalog: DatabaseLock) -> Iterator[None]:
    """The days are merged; nothing is exported."""
    reached(lambda: _at_the_swap(table))
    [begun] = table.victim.disk.begun()
    with locked(table.victim.disk.ledger):
        catalog.release()
        reached(lambda: begun in table.victim.disk.committed())
        yield


@contextmanager
def once_the_file_of_the_period_is_there(table: Exporting, catalog: DatabaseLock) -> Iterator[None]:
    """Its daily files are there, too, or some of them."""
    reached(lambda: _at_the_swap(table))
    catalog.release()
    reached((table.out / PERIOD).exists)
    yield


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "moment",
    [before_the_commit, after_the_commit, once_the_file_of_the_period_is_there],
    ids=lambda moment: moment.__name__,
)
def test_a_merge_that_is_killed_and_sent_again_leaves_the_file_of_the_period_only(
    service: RestartedService, tmp_path: Path, moment: Callable[[Exporting, DatabaseLock], Any]
) -> None:
    table = Exporting(service, tmp_path, f"m_{moment.__name__}"[:40], export=True)
    assert table.files() == {f"{day}.parquet": [number] for number, day in enumerate(DAYS, 1)}
    compact = {"operation": "COMPACT", **table.address, "period": "2024-W01"}
    table.kill_during(compact, moment)
    assert table.victim.disk.ids() == Counter(range(1, 8))
    for _ in range(2):
        table.firn.ok(compact)
        assert table.victim.disk.ids() == Counter(range(1, 8))
        assert table.files() == {PERIOD: list(range(1, 8))}
    described = table.firn.ok({"operation": "DESCRIBE_TABLE", **table.address})
    assert described["description"]["file_count"] == 1


@contextmanager
def once_a_file_is_there(table: Exporting, catalog: DatabaseLock) -> Iterator[None]:
    reached(lambda: list(table.out.glob("*.parquet")))
    yield


@contextmanager
def before_a_file_is_recorded(table: Exporting, catalog: DatabaseLock) -> Iterator[None]:
    with locked(table.victim.disk.ledger):
        reached(lambda: list(table.out.glob("*.parquet")))
        yield


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("moment", [once_a_file_is_there, before_a_file_is_recorded], ids=lambda m: m.__name__)
def test_an_export_that_is_killed_and_sent_again_writes_what_is_missing(
    service: RestartedService, tmp_path: Path, moment: Callable[[Exporting, DatabaseLock], Any]
) -> None:
    table = Exporting(service, tmp_path, f"e_{moment.__name__}"[:40], export=False)
    assert table.files() == {}
    export = {"operation": "EXPORT", **table.address}
    table.kill_during(export, moment)
    found = table.files()
    assert found.items() <= {f"{day}.parquet": [number] for number, day in enumerate(DAYS, 1)}.items()
    table.firn.ok(export)
    assert table.files() == {f"{day}.parquet": [number] for number, day in enumerate(DAYS, 1)}
    assert table.firn.ok(export)["files_written"] == 0

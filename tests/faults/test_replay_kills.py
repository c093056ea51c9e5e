"""A replay that is killed at any step and sent again puts each row into the table once, and loses none."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.model.names import TableName
from tests.faults.evidence import DatabaseLock, Disk, locked
from tests.faults.points import reached
from tests.faults.victim import RestartedService, Victim
from tests.harness import Firn
from tests.support.ingesting import COLUMNS, HEADER, row

TENANT = "replayed"
STRICT = {"columns": COLUMNS, "filters": [{"column": "quantity", "operator": ">", "value": 5}]}
CORRECTED = {"columns": COLUMNS, "filters": [{"column": "quantity", "operator": ">", "value": 1}]}


@contextmanager
def before_the_rows_are_marked(table: Disk, quarantine: Disk, catalog: DatabaseLock) -> Iterator[None]:
    reached(lambda: _at_the_swap(quarantine))
    yield


@contextmanager
def between_the_marks_and_the_table(table: Disk, quarantine: Disk, catalog: DatabaseLock) -> Iterator[None]:
    """The good rows are marked in the quarantine, and the table does not have them."""
    with _committed(quarantine, catalog):
        assert not any(batch in table.committed() for batch in table.begun())
        yield


@contextmanager
def between_the_table_and_the_removal(table: Disk, quarantine: Disk, catalog: DatabaseLock) -> Iterator[None]:
    """The table has the rows, which are still in the quarantine."""
    with _committed(quarantine, catalog) as ledger:
        catalog.take()
        ledger.release()
        with _committed(table, catalog):
            yield


@contextmanager
def at_the_removal(table: Disk, quarantine: Disk, catalog: DatabaseLock) -> Iterator[None]:
    """The removal of the marked rows has everything but the catalog's swap."""
    with _committed(quarantine, catalog) as ledger:
        catalog.take()
        ledger.release()
        with _committed(table, catalog) as ledger:
            catalog.take()
            ledger.release()
            reached(lambda: _at_the_swap(quarantine))
            yield


MOMENTS = [
    before_the_rows_are_marked,
    between_the_marks_and_the_table,
    between_the_table_and_the_removal,
    at_the_removal,
]


@contextmanager
def _committed(disk: Disk, catalog: DatabaseLock) -> Iterator[DatabaseLock]:
    """A table has its commit, whose end cannot be recorded."""
    reached(lambda: _at_the_swap(disk))
    [begun] = disk.begun()
    with locked(disk.ledger) as ledger:
        catalog.release()
        reached(lambda: begun in disk.committed())
        yield ledger


def _at_the_swap(disk: Disk) -> bool:
    return any(disk.uncommitted(batch) for batch in disk.begun())


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
def test_a_replay_that_is_killed_and_sent_again_has_each_row_once(
    service: RestartedService, tmp_path: Path, moment: Callable[[Disk, Disk, DatabaseLock], Any]
) -> None:
    name = f"r_{moment.__name__}"[:40]
    victim = Victim(service, TableName(TENANT, "default", name))
    address = {"tenant_id": TENANT, "table": name}
    file = tmp_path / "day.csv"
    file.write_text(HEADER + row(1, quantity=9) + row(2, quantity=3) + row(3) + row(4, quantity=4))
    victim.firn.ok({"operation": "CREATE_TABLE", "tenant_id": TENANT, "config": {"name": name}, "dataset": STRICT})
    victim.firn.ok({"operation": "INGEST", **address, "source": str(file), "date": "2024-01-01"})
    file.unlink()
    replay = {"operation": "REPLAY", **address, "dataset": CORRECTED}
    quarantine = victim.disk.of(f"{name}__quarantine")
    with ThreadPoolExecutor(1) as pool, locked(victim.disk.catalog) as catalog:
        sent = pool.submit(Firn(victim.firn.base_url).send, replay)
        with moment(victim.disk, quarantine, catalog):
            victim.kill()
    victim.start()
    assert isinstance(sent.exception(), httpx.TransportError)
    has_rows = moment in (between_the_table_and_the_removal, at_the_removal)
    assert victim.disk.ids() == (Counter({1: 1, 2: 1, 4: 1}) if has_rows else Counter({1: 1}))
    done = victim.firn.ok(replay)
    assert done["records_ingested"] == (0 if has_rows else 2)
    for _ in range(2):
        assert victim.disk.ids() == Counter({1: 1, 2: 1, 4: 1})
        rows = victim.firn.rows(TENANT, f"{name}__quarantine")
        assert [(one["raw"].partition(",")[0], one["rule"]) for one in rows] == [("3", "quantity > 1")]
        assert victim.firn.ok(replay)["records_ingested"] == 0
    assert not list((service.home / "spool").iterdir())

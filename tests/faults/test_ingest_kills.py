"""An ingest that is killed at any step and sent again has the result of one that was not."""

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
from tests.support.ingesting import DATASET, HEADER, row

TENANT = "ingested"
MODES = {"restated": "restate", "appended": "append"}
REJECTED = (row("x"), row("y") + row("z"))


class Moment:
    """The tables whose ingests are in progress, and how to reach a moment with all of them in it."""

    def __init__(self, victim: Victim, names: list[str]) -> None:
        self.tables = [victim.disk.of(name) for name in names]
        self.quarantines = [victim.disk.of(f"{name}__quarantine") for name in names]
        self.ledger = victim.disk.ledger

    @contextmanager
    def before_anything_is_committed(self, catalog: DatabaseLock) -> Iterator[None]:
        reached(lambda: all(_at_the_swap(disk) for disk in self.quarantines))
        yield

    @contextmanager
    def between_the_quarantine_and_the_table(self, catalog: DatabaseLock) -> Iterator[None]:
        with self._committed(self.quarantines, catalog):
            assert not any(batch in disk.committed() for disk in self.tables for batch in disk.begun())
            yield

    @contextmanager
    def after_the_commit(self, catalog: DatabaseLock) -> Iterator[None]:
        """The rows are in the table; the ledger does not know it."""
        with self._committed(self.tables, catalog):
            yield

    @contextmanager
    def _committed(self, disks: list[Disk], catalog: DatabaseLock) -> Iterator[None]:
        """These tables have their commits, whose end cannot be recorded."""
        reached(lambda: all(_at_the_swap(disk) for disk in disks))
        begun = [disk.begun()[0] for disk in disks]
        with locked(self.ledger):
            catalog.release()
            reached(lambda: all(b in d.committed() for b, d in zip(begun, disks, strict=True)))
            yield


def _at_the_swap(disk: Disk) -> bool:
    return any(disk.uncommitted(batch) for batch in disk.begun())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("moment", "rejected"),
    [
        pytest.param(Moment.before_anything_is_committed, REJECTED, marks=pytest.mark.thorough),
        (Moment.between_the_quarantine_and_the_table, REJECTED),
        pytest.param(Moment.after_the_commit, ("", ""), marks=pytest.mark.thorough),
    ],
    ids=["before", "between", "after"],
)
def test_an_ingest_that_is_killed_and_sent_again_counts_nothing_twice(
    service: RestartedService, tmp_path: Path, moment: Callable[[Moment, DatabaseLock], Any], rejected: tuple[str, str]
) -> None:
    names = {f"{name}_{tmp_path.name[-24:]}".replace(".", "_"): mode for name, mode in MODES.items()}
    victim = Victim(service, TableName(TENANT, "default", "none"))
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text(HEADER + row(1) + rejected[0])
    second.write_text(HEADER + row(2) + row(3) + rejected[1])
    for name in names:
        create = {"operation": "CREATE_TABLE", "tenant_id": TENANT, "config": {"name": name}, "dataset": DATASET}
        victim.firn.ok(create)
        victim.firn.ok(_ingest(name, first, "restate"))
    with ThreadPoolExecutor(len(names)) as pool, locked(victim.disk.catalog) as catalog:
        sent = [
            pool.submit(Firn(victim.firn.base_url).send, _ingest(name, second, mode)) for name, mode in names.items()
        ]
        with moment(Moment(victim, list(names)), catalog):
            victim.kill()
    victim.start()
    assert all(isinstance(answer.exception(), httpx.TransportError) for answer in sent)
    for name, mode in names.items():
        done = victim.firn.ok(_ingest(name, second, mode))
        assert done.get("unchanged", False) == (moment is Moment.after_the_commit)
        assert victim.firn.ok(_ingest(name, second, mode))["unchanged"] is True
        kept = Counter({1: 1}) if mode == "append" else Counter()
        assert victim.disk.of(name).ids() == Counter({2: 1, 3: 1}) + kept
        if rejected[0]:
            rows = victim.firn.rows(TENANT, f"{name}__quarantine")
            found = sorted(one["raw"].partition(",")[0] for one in rows)
            assert found == (["x", "y", "z"] if mode == "append" else ["y", "z"])
    assert not list((service.home / "spool").iterdir())


def _ingest(name: str, path: Path, mode: str) -> dict[str, Any]:
    return {
        "operation": "INGEST",
        "tenant_id": TENANT,
        "table": name,
        "source": str(path),
        "date": "2024-01-01",
        "mode": mode,
    }

"""SIGKILL on either side of the swap that a step of a table's life comes to: sent again it has happened once."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from service.model.names import TableName
from tests.faults.evidence import Disk, locked
from tests.faults.points import reached
from tests.faults.victim import RestartedService, Victim
from tests.harness import Firn, wait_until
from tests.support.marks import thorough_except

TENANT = "life-steps"
SCHEMA = {"fields": {"id": {"type": "long", "required": True}, "payload": {"type": "string"}}}
ROWS = [{"id": n, "payload": f"row {n}"} for n in range(3)]
# Longer than a change that was noted takes to come to its swap.
TO_THE_SWAP_S = 1.0


@dataclass(frozen=True)
class Step:
    """What is sent while the service is killed, what comes before it, and what is true once it has happened."""

    name: str
    request: Callable[[str], dict[str, Any]]
    holds: Callable[["Place"], None]
    before: Callable[["Place"], None] | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Place:
    """One table with three rows."""

    victim: Victim
    table: str

    @property
    def firn(self) -> Firn:
        return self.victim.firn

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        return {"operation": operation, "tenant_id": TENANT, "table": self.table, **fields}

    def rows(self, table: str = "") -> list[dict[str, Any]]:
        """Read as it lies on disk, which needs no Spark: each of these tests would wait for one of its own."""
        found = StaticTable.from_metadata(str(self.victim.disk.of(table or self.table).metadata())).scan().to_arrow()
        return sorted(found.to_pylist(), key=lambda row: int(row["id"]))

    def is_not_there(self) -> None:
        self.firn.fail(self.ask("DESCRIBE_TABLE"), "TABLE_NOT_FOUND")


def renamed(place: Place) -> None:
    place.is_not_there()
    assert place.rows(f"{place.table}_new") == ROWS


def dropped(place: Place) -> None:
    place.is_not_there()
    place.firn.ok(place.ask("RESTORE_TABLE"))
    assert place.rows() == ROWS


def restored(place: Place) -> None:
    assert place.rows() == ROWS
    place.firn.fail(place.ask("RESTORE_TABLE"), "TABLE_NOT_FOUND")


def purged(place: Place) -> None:
    place.is_not_there()
    place.firn.fail(place.ask("RESTORE_TABLE"), "TABLE_NOT_FOUND")


def altered(place: Place) -> None:
    assert place.rows() == [{"id": row["id"], "said": row["payload"], "n": None} for row in ROWS]


def emptied(place: Place) -> None:
    assert place.rows() == []
    [backup] = place.firn.ok(place.ask("LIST_BACKUPS"))["backups"]
    place.firn.ok(place.ask("RESTORE_BACKUP", name=backup["name"]))
    assert place.rows() == ROWS


def drop(place: Place) -> None:
    place.firn.ok(place.ask("DROP_TABLE"))


PURGE = Step("purge", lambda table: {"operation": "DROP_TABLE", "purge": True, "confirm": True}, purged)
STEPS = (
    Step("rename", lambda table: {"operation": "RENAME_TABLE", "new_name": f"{table}_new"}, renamed),
    Step("drop", lambda table: {"operation": "DROP_TABLE"}, dropped),
    PURGE,
    Step(
        "restore",
        lambda table: {"operation": "RESTORE_TABLE"},
        restored,
        before=drop,
    ),
    Step(
        "alter",
        lambda table: {
            "operation": "ALTER_TABLE",
            "rename_columns": {"payload": "said"},
            "add_columns": {"n": {"type": "long"}},
        },
        altered,
    ),
    Step(
        "reinitialise",
        lambda table: {"operation": "REINITIALISE_TABLE", "confirm": True, "create_backup": True},
        emptied,
    ),
)


@pytest.fixture(scope="module")
def victim(service: RestartedService, request: pytest.FixtureRequest) -> Victim:
    """With a table for each test that runs, made before the first kill: a WRITE after it would wait for Spark."""
    made = Victim(service, TableName(TENANT, "default", "any"))
    for item in request.session.items:
        if item.path == request.path and isinstance(item, pytest.Function):
            place = Place(made, name_of(**item.callspec.params))
            made.firn.ok(place.ask("CREATE_TABLE", schema=SCHEMA))
            made.firn.ok(place.ask("WRITE", records=ROWS))
    return made


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "after_the_swap", [pytest.param(False, marks=pytest.mark.thorough, id="before"), pytest.param(True, id="after")]
)
@pytest.mark.parametrize("step", thorough_except(STEPS[:1], STEPS), ids=str)
def test_a_step_that_a_kill_cut_in_half_happens_once(victim: Victim, step: Step, after_the_swap: bool) -> None:
    place = Place(victim, name_of(step, after_the_swap))
    defects = victim.process.defects()
    folder = victim.disk.of(place.table).metadata().parent.parent
    if step.before:
        step.before(place)
    before = catalog_of(victim.disk)
    request = {**place.ask(""), **step.request(place.table), "idempotency_key": place.table}
    with under_way(place, request, after_the_swap=after_the_swap):
        victim.kill()
        assert (catalog_of(victim.disk) != before) == after_the_swap
    victim.start()
    answer = victim.firn.ok(request)
    assert victim.firn.ok(request) == answer
    step.holds(place)
    wait_until(lambda: folder.exists() != (step is PURGE), 60)
    assert victim.process.defects() == defects


def name_of(step: Step, after_the_swap: bool) -> str:
    return f"{step.name}_{'after' if after_the_swap else 'before'}"


@contextmanager
def under_way(place: Place, request: dict[str, Any], *, after_the_swap: bool) -> Iterator[None]:
    """A step that waits for the catalog to be swapped, or has swapped it and waits for the ledger to note that."""
    disk = place.victim.disk
    before = catalog_of(disk)
    with locked(disk.catalog) as catalog:
        place.victim.send_unheard(request)
        reached(disk.of(place.table).begun)
        time.sleep(TO_THE_SWAP_S)
        if not after_the_swap:
            yield
            return
        with locked(disk.ledger):
            catalog.release()
            reached(lambda: catalog_of(disk) != before)
            yield


def catalog_of(disk: Disk) -> set[tuple[str, str, str]]:
    """Every table's place and metadata, as the catalog has them."""
    with closing(sqlite3.connect(disk.catalog, timeout=10)) as connection:
        question = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables"
        return set(connection.execute(question).fetchall())

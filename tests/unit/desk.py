"""Commits over a catalog in memory and a ledger of its own."""

from pathlib import Path
from typing import Self

from sqlalchemy import select

from service.catalog.tables import Table
from service.commits.ask import Ask, Key
from service.commits.commit import Change, Commits
from service.ledger.ledger import Begun
from service.ledger.lives import Lives
from service.ledger.schema import batches
from service.life.life import TableLife
from service.metrics.metrics import Metrics
from service.names import TableName
from service.schema import parse_schema
from service.settings import DroppedSettings
from tests.fakes import FakeCatalog, FakeOwners, MuteLedger

SCHEMA = parse_schema({"fields": {"id": {"type": "long"}}})
ORDERS = TableName("acme", "shop", "orders")
OTHERS = TableName("acme", "shop", "others")
NEW = TableName("acme", "shop", "new")
ASK = Ask("request-1")


class Desk:
    """Two tables, and what the ledger says of their changes."""

    def __init__(self, path: Path, *, catalog: FakeCatalog | None = None) -> None:
        self.path = path
        self.now_ms = 1_700_000_000_000
        self.catalog = catalog or FakeCatalog()
        self.ledger = MuteLedger(f"sqlite:///{path}")
        self.metrics = Metrics()
        self.commits = Commits(self.catalog.as_catalog, self.ledger, pauses_s=(0, 0), metrics=self.metrics)
        self.lives = Lives(self.ledger)
        self.life = TableLife(
            DroppedSettings(), self.catalog.as_catalog, self.commits, self.lives, self.metrics, lambda: self.now_ms
        )
        if catalog is None:
            for name in (ORDERS, OTHERS):
                self.catalog.create(name, SCHEMA, (), {})

    def restarted(self) -> Self:
        """What the next process finds when this one has crashed."""
        return type(self)(self.path, catalog=self.catalog)

    def instance(self, owners: FakeOwners) -> Self:
        """One of several instances on the same tables and notes."""
        made = self.restarted()
        made.ledger.owners = owners
        return made

    def append(self, table: Table, batch: str) -> None:
        self.catalog.append(table.name, batch)

    def run(self, change: Change, name: TableName = ORDERS) -> int | None:
        """The snapshot a change made, if it made one."""
        effect = self.commits.commit(self.catalog.load(name), "WRITE", ASK, change)
        return effect.snapshot.snapshot_id if effect.snapshot else None

    def notes(self) -> list[tuple[str, int | None]]:
        with self.ledger._engine.connect() as connection:
            rows = connection.execute(select(batches).order_by(batches.c.begun_ms, batches.c.batch)).all()
        return [(row.state, row.snapshot_id) for row in rows]

    def begin(self, batch: str, name: TableName, uuid: str, operation: str = "WRITE") -> None:
        self.ledger.begin(Begun(batch, name, uuid, operation, ["r"]))

    def retry(self, key: Key) -> Ask:
        """How a request with this key is asked for again, in this process or after a restart."""
        noted = self.ledger.key(key.id)
        return Ask("request-2", key, noted.batch if noted else None)

    def history(self, name: TableName = ORDERS) -> int:
        return len(self.catalog.tables[name].history)

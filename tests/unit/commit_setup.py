"""Commits over a catalog in memory and a ledger of its own."""

from pathlib import Path
from typing import Any, Self

from sqlalchemy import select

from service.catalog.tables import Table
from service.commits.commit import AlsoRecorded, CommitFunction, CommitResult
from service.ledger.ledger import NewBatch
from service.ledger.schema import batches
from service.ledger.table_records import STEPS, TableRecord, TableRecords, TableStep
from service.model.call import Call, IdempotencyKey
from service.model.names import TableName
from service.model.schema.definition import parse_schema
from service.tables.life import TableLifecycle
from tests.fakes import FakeCatalog, FakeOwners
from tests.support.composed import Composed

SCHEMA = parse_schema({"fields": {"id": {"type": "long"}}})
ORDERS = TableName("acme", "shop", "orders")
OTHERS = TableName("acme", "shop", "others")
NEW = TableName("acme", "shop", "new")
ASK = Call("request-1")


class CommitSetup(Composed):
    """Two tables, and what the ledger says of their changes."""

    catalog: FakeCatalog

    def __init__(self, ledger_file: Path, *, catalog: FakeCatalog | None = None, **parts: Any) -> None:
        super().__init__(ledger_file, catalog=catalog, **parts)
        self.now_ms = 1_700_000_000_000
        self.lives = TableRecords(self.ledger)
        self.life = self.parts[TableLifecycle]
        self.life._now_ms = lambda: self.now_ms
        if catalog is None:
            for name in (ORDERS, OTHERS):
                self.catalog.create(name, SCHEMA, (), {})

    def instance(self, owners: FakeOwners) -> Self:
        """One of several instances on the same tables and notes."""
        return self.restarted(owners)

    def append(self, table: Table, batch: str) -> None:
        self.catalog.append(table.name, batch)

    def run(self, change: CommitFunction, name: TableName = ORDERS) -> int | None:
        """The snapshot a change made, if it made one."""
        effect = self.commits.commit(self.catalog.load(name), "WRITE", ASK, change)
        return effect.snapshot.snapshot_id if effect.snapshot else None

    def run_also(self, also: AlsoRecorded) -> CommitResult:
        """Append in a commit with which something else is recorded."""

        def change(table: Table, batch: str) -> None:
            self.commits.must_be_ours(batch)
            self.append(table, batch)

        return self.commits.commit(self.catalog.load(ORDERS), "WRITE", ASK, change, also=also)

    def notes(self) -> list[tuple[str, int | None]]:
        with self.ledger._engine.connect() as connection:
            rows = connection.execute(select(batches).order_by(batches.c.begun_ms, batches.c.batch)).all()
        return [(row.state, row.snapshot_id) for row in rows]

    def begin(self, batch: str, name: TableName, uuid: str, operation: str = "WRITE") -> None:
        self.begin_noted(NewBatch(batch, name, uuid, operation, ["r"]))

    def begin_noted(self, change: NewBatch) -> None:
        """Note a change as its operation does."""
        if change.operation in STEPS:
            self.lives.begin(change, TableRecord(change.table_uuid, change.table), TableStep(change.operation))
        else:
            self.ledger.begin(change)

    def retry(self, key: IdempotencyKey) -> Call:
        """How a request with this key is asked for again, in this process or after a restart."""
        noted = self.ledger.key(key.id)
        return Call("request-2", key, noted.batch if noted else None)

    def history(self, name: TableName = ORDERS) -> int:
        return len(self.catalog.tables[name].history)

"""A catalog in memory that can be told to fail. `unit/test_fakes.py` holds it to what the real one does."""

import itertools
import threading
import time
import uuid
from dataclasses import dataclass, field, replace
from typing import cast

from service.catalog.tables import Catalog, Snapshot, Table
from service.errors import TableExists, TableNotFound, nearest
from service.names import BATCH_PROPERTY, TableName
from service.partition import PartitionField
from service.schema import TableSchema


@dataclass(frozen=True)
class FakeTable:
    """As much of a Table as commits look at."""

    name: TableName
    uuid: str
    schema: TableSchema
    history: tuple[Snapshot, ...] = ()

    @property
    def current_snapshot_id(self) -> int | None:
        return self.history[-1].snapshot_id if self.history else None

    def snapshots(self) -> list[Snapshot]:
        return list(self.history)

    def committed_by(self, batch: str) -> Snapshot | None:
        return next((s for s in reversed(self.history) if s.summary.get(BATCH_PROPERTY) == batch), None)


@dataclass
class FakeCatalog:
    """Tables in a dict. Each error in `failures` is raised by one of the next loads, in order; None lets one pass."""

    tables: dict[TableName, FakeTable] = field(default_factory=dict)
    failures: list[Exception | None] = field(default_factory=list)
    _ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def as_catalog(self) -> Catalog:
        return cast(Catalog, self)

    def load(self, name: TableName) -> Table:
        with self._lock:
            failure = self.failures.pop(0) if self.failures else None
            if failure is not None:
                raise failure
            if name not in self.tables:
                near = nearest(name.table, self.list_tables(name.tenant, name.namespace))
                raise TableNotFound(f"there is no table {name.table!r}", field="table", suggestion=near)
            return cast(Table, self.tables[name])

    def list_tables(self, tenant: str, namespace: str) -> list[str]:
        return sorted(n.table for n in self.tables if (n.tenant, n.namespace) == (tenant, namespace))

    def create(
        self, name: TableName, schema: TableSchema, partition: tuple[PartitionField, ...], properties: dict[str, str]
    ) -> Table:
        with self._lock:
            if name in self.tables:
                raise TableExists(f"table {name.table!r} exists already", field="table")
            self.tables[name] = FakeTable(name, str(uuid.uuid4()), schema)
            return cast(Table, self.tables[name])

    def drop(self, table: Table, *, purge: bool) -> None:
        with self._lock:
            if table.name not in self.tables:
                raise TableNotFound(f"there is no table {table.name.table!r}", field="table")
            del self.tables[table.name]

    def append(self, name: TableName, batch: str) -> int:
        """What Spark does: a commit stamped with the batch."""
        with self._lock:
            table = self.tables[name]
            summary = {"operation": "append", BATCH_PROPERTY: batch}
            made = Snapshot(
                next(self._ids), table.current_snapshot_id, time.time_ns() // 1_000_000, table.schema, summary
            )
            self.tables[name] = replace(table, history=(*table.history, made))
            return made.snapshot_id

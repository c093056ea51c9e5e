"""A catalog, an engine and a ledger that fail on demand, and instances that end on demand.

`unit/test_fakes.py` runs the same tests on the fake catalog and on the real one.
"""

import itertools
import threading
import time
import uuid as uuids
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, cast

import pyarrow as pa
from sqlalchemy import Dialect, event

from service.catalog.files.data_files import DataFile
from service.catalog.files.folders import remove_folder
from service.catalog.files.key_lookup import KeyHits, key_tuples
from service.catalog.tables import Catalog, Snapshot, Table
from service.commits.small_files import SmallFileCheck, SmallFileChecks
from service.engine.iceberg.swap import FilesChanged, TableChanged
from service.engine.jobs.append import SharedReplacement, append, replace_rows
from service.engine.session.engine import Engine
from service.errors import CommitConflict, LedgerUnavailable, SnapshotNotFound, TableExists, TableNotFound, nearest
from service.ledger import database
from service.ledger.ledger import Batch, KeyRecord, Ledger, NewBatch, Transaction
from service.ledger.owners import SingleInstance
from service.model.names import BATCH_PROPERTY, FENCE_PROPERTY, TableName
from service.model.schema.derived import DerivedColumn
from service.model.schema.partition import PartitionField
from service.model.schema.types import TableSchema


@dataclass(frozen=True)
class FakeTable:
    """As much of a Table as commits and writes look at."""

    name: TableName
    uuid: str
    schema: TableSchema
    properties: Mapping[str, str] = field(default_factory=dict)
    schema_id: int = 0
    history: tuple[Snapshot, ...] = ()
    derived: tuple[DerivedColumn, ...] = ()
    partition: tuple[PartitionField, ...] = ()
    location: str = "memory://table"

    @property
    def spark_name(self) -> str:
        return ".".join((self.name.tenant, self.name.namespace, self.name.table))

    @property
    def current_snapshot_id(self) -> int | None:
        return self.history[-1].snapshot_id if self.history else None

    def snapshots(self) -> list[Snapshot]:
        return list(self.history)

    def snapshot(self, snapshot_id: int) -> Snapshot:
        found = next((s for s in self.history if s.snapshot_id == snapshot_id), None)
        if found is None:
            raise SnapshotNotFound(f"{self.name.table} has no snapshot {snapshot_id}", field="as_of")
        return found

    def committed_by(self, batch: str) -> Snapshot | None:
        return next((s for s in reversed(self.history) if s.summary.get(BATCH_PROPERTY) == batch), None)


@dataclass
class FakeCatalog:
    """Tables in a dict. Each error in `failures` is raised by one of the next loads, in order; None lets one pass."""

    tables: dict[TableName, FakeTable] = field(default_factory=dict)
    failures: list[Exception | None] = field(default_factory=list)
    loads: int = 0
    fences: list[str] = field(default_factory=list)
    """The batches for which a table was fenced."""
    _ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def as_catalog(self) -> Catalog:
        return cast(Catalog, self)

    def load(self, name: TableName) -> Table:
        with self._lock:
            self.loads += 1
            failure = self.failures.pop(0) if self.failures else None
            if failure is not None:
                raise failure
            if name not in self.tables:
                near = nearest(name.table, self.list_tables(name.tenant, name.namespace))
                raise TableNotFound(f"there is no table {name.table!r}", field="table", suggestion=near)
            return cast(Table, self.tables[name])

    def list_tables(self, tenant: str, namespace: str) -> list[str]:
        return sorted(n.table for n in self.tables if (n.tenant, n.namespace) == (tenant, namespace))

    def list_namespaces(self, tenant: str | None = None) -> list[tuple[str, str]]:
        return sorted({(n.tenant, n.namespace) for n in self.tables if tenant in (None, n.tenant)})

    def create(
        self, name: TableName, schema: TableSchema, partition: tuple[PartitionField, ...], properties: dict[str, str]
    ) -> Table:
        with self._lock:
            if name in self.tables:
                raise TableExists(f"table {name.table!r} already exists", field="table")
            self.tables[name] = FakeTable(name, str(uuids.uuid4()), schema, dict(properties))
            return cast(Table, self.tables[name])

    def drop(self, table: Table, *, purge: bool) -> None:
        with self._lock:
            if table.name not in self.tables:
                raise TableNotFound(f"there is no table {table.name.table!r}", field="table")
            del self.tables[table.name]

    def remove_folder(self, location: str) -> None:
        remove_folder(location, {})

    def rename(self, table: Table, to: TableName) -> Table:
        with self._lock:
            if table.name not in self.tables:
                raise TableNotFound(f"there is no table {table.name.table!r}", field="table")
            if to in self.tables:
                raise TableExists(f"table {to.table!r} already exists", field="table")
            self.tables[to] = replace(self.tables.pop(table.name), name=to)
            return cast(Table, self.tables[to])

    def set_properties(self, table: Table, properties: Mapping[str, str | None]) -> Table:
        with self._lock:
            current = self.tables.get(table.name)
            if current is None or current.uuid != table.uuid:
                raise TableNotFound(f"there is no table {table.name.table!r}", field="table")
            after = {k: v for k, v in {**current.properties, **properties}.items() if v is not None}
            self.tables[table.name] = replace(current, properties=after)
            return cast(Table, self.tables[table.name])

    def evolve(self, name: TableName, schema: TableSchema) -> None:
        """What another writer does: it changes the table's schema."""
        with self._lock:
            table = self.tables[name]
            self.tables[name] = replace(table, schema=schema, schema_id=table.schema_id + 1)

    def append(self, name: TableName, batch: str, **summary: str) -> int:
        """What Spark does: a commit with the batch, and the given values, in its summary."""
        with self._lock:
            return self._commit(name, BATCH_PROPERTY, batch, **summary)

    def fence(self, table: Table, batch: str) -> None:
        with self._lock:
            current = self.tables.get(table.name)
            if current is None:
                raise TableNotFound(f"there is no table {table.name.table!r}", field="table")
            if current.uuid == table.uuid:
                self.fences.append(batch)
                self._commit(table.name, FENCE_PROPERTY, batch)

    def _commit(self, name: TableName, stamp: str, batch: str, **summary: str) -> int:
        table = self.tables[name]
        made = Snapshot(
            next(self._ids),
            table.current_snapshot_id,
            time.time_ns() // 1_000_000,
            table.schema,
            {"operation": "append", stamp: batch, **summary},
        )
        self.tables[name] = replace(table, history=(*table.history, made))
        return made.snapshot_id


Rows = list[dict[str, Any]]


@dataclass
class FakeEngine:
    """Commits rows to a catalog in memory, as the jobs `append` and `replace_rows` do with Spark.

    `writing` is called while data files would be written, `committing` just before the commit and `committed` after
    it, each with the rows; what they raise is what the job raises then.
    """

    catalog: FakeCatalog
    writing: Callable[[Rows], object] = lambda rows: None
    committing: Callable[[Rows], object] = lambda rows: None
    committed: Callable[[Rows], object] = lambda rows: None
    tries: list[Rows] = field(default_factory=list)
    """The rows that each job was given."""
    commits: list[Rows] = field(default_factory=list)
    """The rows of each commit, of all tables."""
    files: dict[str, pa.Table] = field(default_factory=dict)
    """The rows of each file, as they are now; a path begins with the table's name in Spark."""
    deletes_by_place: bool = False
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def as_engine(self) -> Engine:
        return cast(Engine, self)

    @property
    def rows(self) -> Rows:
        return [row for commit in self.commits for row in commit]

    def rows_of(self, table: str) -> Rows:
        """The rows that a table has now."""
        return [r for path, rows in self.files.items() if path.startswith(f"{table}/") for r in rows.to_pylist()]

    def find(self, table: Table, lookups: Sequence[pa.Table]) -> KeyHits:
        """As `find_keys` does with files."""
        by_key: dict[tuple[str, ...], dict[tuple[Any, ...], dict[str, list[int]]]] = {}
        files = {}
        for keys in lookups:
            hits = by_key[tuple(keys.column_names)] = {}
            wanted = set(key_tuples(keys))
            for path, rows in self.files.items():
                if not path.startswith(f"{table.spark_name}/"):
                    continue
                number = list(self.files).index(path)
                files[path] = DataFile(path, rows.nbytes, rows.num_rows, (0,), sequence_number=number)
                for i, key in enumerate(key_tuples(rows.select(keys.column_names))):
                    if key in wanted and None not in key:
                        hits.setdefault(key, {}).setdefault(path, []).append(i)
        return KeyHits(by_key, files, len(files), self.deletes_by_place, all_files=tuple(files.values()))

    def read(
        self, table: Table, paths: Iterable[str], columns: pa.Schema, positions: Mapping[str, Sequence[int]] | None
    ) -> dict[str, pa.Table]:
        """As `read_files` does."""
        rows = {path: self.files[path].select(columns.names).cast(columns) for path in paths}
        return rows if positions is None else {path: rows[path].take(pa.array(positions[path])) for path in rows}

    def run(self, job: Callable[..., Any], table: str, data: Any, batch: str, **how: Any) -> int:
        assert job in (append, replace_rows)
        what = data if isinstance(data, SharedReplacement) else SharedReplacement(None, {}, {}, data, data.num_rows)
        rows: Rows = what.rows.to_pylist()
        self.tries.append(rows)
        found = next((t for t in self.catalog.tables.values() if t.spark_name == table), None)
        if found is None:
            raise TableNotFound("the table is gone; it was dropped meanwhile")
        if (found.uuid, found.schema_id) != (how["uuid"], how["schema_id"]):
            raise TableChanged(f"{table} has changed meanwhile")
        self.writing(rows)
        if not {*what.removed, *what.deleted} <= self.files.keys():
            raise FilesChanged("another writer changed the same rows in the meantime")
        assert what.rows.num_rows == what.expected
        how["gate"]()
        self.committing(rows)
        snapshot_id = self.catalog.append(found.name, batch, **what.summary)
        for path in what.removed:
            del self.files[path]
        for path, gone in what.deleted.items():
            kept = [i for i in range(self.files[path].num_rows) if i not in set(gone)]
            self.files[path] = self.files[path].take(pa.array(kept))
        self.files[f"{table}/{next(self._numbers)}"] = what.rows
        self.commits.append(rows)
        self.committed(rows)
        return snapshot_id


class FakeSmallFileChecks:
    """Counts WRITEs; every nth WRITE to a table finds two small files."""

    def __init__(self, every: int = 1_000_000) -> None:
        self.every = every
        self.totals: dict[str, int] = {}

    @property
    def as_small_file_checks(self) -> SmallFileChecks:
        return cast(SmallFileChecks, self)

    def check_batch(self, table: Table, writes: int) -> dict[int, SmallFileCheck]:
        before = self.totals.get(table.uuid, 0)
        self.totals[table.uuid] = before + writes
        due = [i for i in range(writes) if (before + i + 1) % self.every == 0]
        return dict.fromkeys(due, SmallFileCheck(True, 2))


@dataclass
class FakeOwners:
    """One of several instances on a ledger. `present` holds those that are alive; all share it, and a lock."""

    me: str
    shared: bool = True
    present: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    """One lock for all tables."""
    wait_s: float = 1
    at: set[str] = field(default_factory=set)
    """The tasks that only one instance may do, and that one does."""
    held: threading.local = field(default_factory=threading.local, init=False)

    def __post_init__(self) -> None:
        self.present.add(self.me)

    def beside(self, me: str) -> Self:
        """Another instance."""
        return replace(self, me=me)

    def gone(self, owner: str) -> bool:
        return owner != self.me and owner not in self.present

    @contextmanager
    def table(self, table_uuid: str) -> Iterator[None]:
        if getattr(self.held, "it", False):  # by this thread, further out
            yield
            return
        if not self.lock.acquire(timeout=self.wait_s):
            raise CommitConflict("another instance has been changing this table for a long time; try again later")
        self.held.it = True
        try:
            yield
        finally:
            self.held.it = False
            self.lock.release()

    @contextmanager
    def first(self, what: str) -> Iterator[bool]:
        had = what not in self.at
        self.at.add(what)
        try:
            yield had
        finally:
            if had:
                self.at.discard(what)

    def close(self) -> None:
        self.present.discard(self.me)


@cache
def _empty_ledger() -> tuple[bytes, Dialect]:
    """The file of an empty ledger, and its dialect. Creating its tables takes longer than most tests."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        ledger = Ledger(f"sqlite:///{path}")
        ledger.close()
        return path.read_bytes(), ledger._engine.dialect


_COMPILED: dict[Any, Any] = {}
"""The ledger's compiled statements, the same for every ledger of a dialect."""


class QuickLedger(Ledger):
    """A ledger whose tables exist from the start, which compiles no statement twice and does not wait for the disk."""

    def __init__(self, url: str) -> None:
        # Without a Ledger's migrations: the file is up to date.
        path = Path(url.removeprefix("sqlite:///"))
        empty, dialect = _empty_ledger()
        if not path.exists():
            path.write_bytes(empty)
        self._engine = database.engine(url)
        self._engine.dialect = dialect
        self._engine.update_execution_options(compiled_cache=_COMPILED)
        event.listen(self._engine, "connect", lambda connection, record: connection.execute("PRAGMA synchronous=OFF"))
        self.owners = SingleInstance()


class MuteLedger(QuickLedger):
    """A ledger some of whose methods fail: those that `mute` names."""

    mute: frozenset[str] = frozenset()

    def _asked(self, method: str) -> None:
        if method in self.mute:
            raise LedgerUnavailable(f"the ledger does not respond ({method})")

    def begin(self, change: NewBatch, within: Transaction | None = None) -> None:
        self._asked("begin")
        super().begin(change, within)

    def end(
        self,
        batch: str,
        snapshot_id: int | None,
        answers: Mapping[str, bytes] | None = None,
        writes: tuple[str, int] | None = None,
        within: Transaction | None = None,
    ) -> None:
        self._asked("end")
        super().end(batch, snapshot_id, answers, writes, within)

    def find(self, batch: str) -> Batch | None:
        self._asked("find")
        return super().find(batch)

    def key(self, key_id: str) -> KeyRecord | None:
        self._asked("key")
        return super().key(key_id)

    def delete_response(self, key_id: str, body: bytes) -> None:
        self._asked("delete_response")
        super().delete_response(key_id, body)

    def answer(self, key_id: str, fingerprint: str, body: bytes) -> bytes:
        self._asked("answer")
        return super().answer(key_id, fingerprint, body)

    def writes(self, table_uuid: str) -> int:
        self._asked("writes")
        return super().writes(table_uuid)

    def count_writes(self, table_uuid: str, writes: int) -> None:
        self._asked("count_writes")
        super().count_writes(table_uuid, writes)

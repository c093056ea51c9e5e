"""A service's data as it lies on disk, read without the service, and the locks that make it wait."""

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
from pyiceberg.table import StaticTable

from service.model.names import BATCH_PROPERTY, TableName


class Disk:
    """One table under a FIRN_HOME: what the ledger notes, what the catalog names, what files there are."""

    def __init__(self, home: Path, table: TableName) -> None:
        self.home = home
        self.ledger = home / "ledger.db"
        self.catalog = home / "catalog.db"
        self._table = table

    def of(self, table: str) -> "Disk":
        """Another table beside this one."""
        return Disk(self.home, replace(self._table, table=table))

    def begun(self) -> list[str]:
        """Batches of the table whose end is not noted."""
        t = self._table
        where = "state = 'begun' AND tenant = ? AND namespace = ? AND table_name = ?"
        found = self._ask(self.ledger, f"SELECT batch FROM batches WHERE {where}", t.tenant, t.namespace, t.table)
        return [batch for (batch,) in found]

    def noted(self, batch: str) -> tuple[str, int | None, int]:
        """The state, the snapshot and the records that the ledger has of a batch."""
        [found] = self._ask(self.ledger, "SELECT state, snapshot_id, records FROM batches WHERE batch = ?", batch)
        return found  # type: ignore[no-any-return]  # sqlite3 gives rows no types

    def request_ids(self, batch: str) -> set[str]:
        """The requests that the ledger has noted with a batch."""
        [(found,)] = self._ask(self.ledger, "SELECT request_ids FROM batches WHERE batch = ?", batch)
        return set(found.split("\n"))

    def batch_of(self, snapshot_id: int) -> str:
        [(batch,)] = self._ask(self.ledger, "SELECT batch FROM batches WHERE snapshot_id = ?", snapshot_id)
        return str(batch)

    def answers(self, batch: str) -> list[bytes | None]:
        """What is stored as the answers of a batch's keys."""
        return [body for (body,) in self._ask(self.ledger, "SELECT answer FROM keys WHERE batch = ?", batch)]

    def metadata(self) -> Path:
        """The metadata file that the catalog names: what the table is."""
        location = self._location()
        assert location is not None, f"there is no {self._table}"
        return Path(urlsplit(location).path)

    def exists(self) -> bool:
        return self._location() is not None

    def snapshots(self) -> int:
        """How many snapshots the table has."""
        return len(_table(self.metadata()).snapshots()) if self.exists() else 0

    def committed(self) -> dict[str, int]:
        """The snapshots of the table by the batches that made them."""
        return _stamped(self.metadata())

    def uncommitted(self, batch: str) -> list[Path]:
        """Metadata files with a batch's snapshot in them, though the catalog names another one."""
        current = self.metadata()
        newer = [p for p in current.parent.glob("*.metadata.json") if p != current and _number(p) > _number(current)]
        return [path for path in newer if batch in _stamped(path)]

    def loose_files(self, since: float) -> dict[Path, list[int]]:
        """Whole data files that no snapshot holds, and the records in them; only those made after a time."""
        current = self.metadata()
        data = current.parent.parent / "data"
        young = [path for path in data.glob("**/*.parquet") if path.stat().st_mtime >= since and _is_whole(path)]
        if not young:
            return {}
        # The newest snapshot of a table that is only appended to holds every file.
        held = _table(current).inspect.data_files().column("file_path").to_pylist()
        names = {Path(urlsplit(path).path) for path in held}
        return {path: pq.read_table(path)["id"].to_pylist() for path in young if path not in names}

    def ids(self, snapshot_id: int | None = None) -> Counter[int]:
        """The records of the table, or those that one snapshot of it holds."""
        scan = _table(self.metadata()).scan(selected_fields=("id",), snapshot_id=snapshot_id)
        return Counter(scan.to_arrow()["id"].to_pylist())

    def added_by(self, snapshot_id: int) -> set[int]:
        """The records that a snapshot holds and its parent does not."""
        snapshot = _table(self.metadata()).snapshot_by_id(snapshot_id)
        assert snapshot is not None
        before = self.ids(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else Counter()
        return set(self.ids(snapshot_id)) - set(before)

    def _location(self) -> str | None:
        question = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
        found = self._ask(self.catalog, question, *self._table.identifier)
        return found[0][0] if found else None

    @staticmethod
    def _ask(database: Path, question: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(database, timeout=10)) as connection:
            return connection.execute(question, values).fetchall()


class DatabaseLock:
    """A database that nobody else can write to until it is let go; readers are not kept."""

    def __init__(self, database: Path) -> None:
        self._connection = sqlite3.connect(database, timeout=10, isolation_level=None)

    def take(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self.release()
        self._connection.close()


@contextmanager
def locked(database: Path) -> Iterator[DatabaseLock]:
    with closing(DatabaseLock(database)) as lock:
        lock.take()
        yield lock


@contextmanager
def locked_between_batches(disk: Disk, seconds: float = 10) -> Iterator[DatabaseLock]:
    """Hold the ledger while no batch is under way: the next that waits for it is the note of a new one."""
    deadline = time.monotonic() + seconds
    with closing(DatabaseLock(disk.ledger)) as lock:
        lock.take()
        while disk.begun():
            lock.release()
            assert time.monotonic() < deadline, "there was always a batch under way"
            time.sleep(0.002)
            lock.take()
        yield lock


def _stamped(metadata: Path) -> dict[str, int]:
    try:
        snapshots = json.loads(metadata.read_text()).get("snapshots", [])
    except (ValueError, FileNotFoundError):  # it is being written, or was removed as too old
        return {}
    return {s["summary"][BATCH_PROPERTY]: s["snapshot-id"] for s in snapshots if BATCH_PROPERTY in s["summary"]}


def _table(metadata: Path) -> StaticTable:
    return StaticTable.from_metadata(str(metadata))


def _number(metadata: Path) -> int:
    return int(metadata.name.partition("-")[0])


def _is_whole(path: Path) -> bool:
    """Parquet's last four bytes are written last."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 4))
        return file.read() == b"PAR1"

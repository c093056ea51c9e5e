"""PyIceberg on a SQLite catalog of the kind Firn uses: a file in WAL mode on the same disk."""

import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException

from bench.peers.commands import serve, timed
from bench.peers.rows import SCHEMA, rows, write_file

_NAMESPACE = "bench__default"
_catalog: Catalog
_home: str


def open_catalog(home: str) -> None:
    """The catalog in this folder, created if it is missing; Firn's own if the folder is a FIRN_HOME."""
    global _catalog, _home
    _home = home
    Path(home).mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(f"{home}/catalog.db")) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    _catalog = load_catalog(
        "firn", type="sql", uri=f"sqlite:///{home}/catalog.db?timeout=30", warehouse=f"file://{home}/warehouse"
    )
    _catalog.create_namespace_if_not_exists(_NAMESPACE)


def create(table: str) -> None:
    _catalog.create_table((_NAMESPACE, table), SCHEMA)


def location(table: str) -> str:
    return str(_catalog.load_table((_NAMESPACE, table)).metadata_location)


def append(table: str, count: int, each: int = 1) -> list[float]:
    """Appends one after another through one table object, which stays current by itself: the milliseconds of each."""
    target = _catalog.load_table((_NAMESPACE, table))
    took = []
    for number in range(count):
        data = rows(range(number * each, (number + 1) * each))
        took.append(timed(lambda data=data: target.append(data)))
    return took


def append_together(table: str, clients: int, seconds: float) -> dict[str, Any]:
    """Threads that append side by side; after a conflict, one loads the table again and retries."""
    took: list[float] = []
    deadline = time.perf_counter() + seconds

    def client() -> None:
        while time.perf_counter() < deadline:
            took.append(timed(one))

    def one() -> None:
        while True:
            with suppress(CommitFailedException):
                return _catalog.load_table((_NAMESPACE, table)).append(rows([1]))

    threads = [threading.Thread(target=client) for _ in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"took": took, "elapsed_s": time.perf_counter() - started}


def append_file(table: str, path: str) -> float:
    """One append of everything in an Arrow IPC stream."""
    target = _catalog.load_table((_NAMESPACE, table))

    def job() -> None:
        with pa.ipc.open_stream(path) as stream:
            target.append(stream.read_all())

    return timed(job)


def return_to(table: str, metadata: str) -> None:
    """Put a table back to an earlier state: its catalog entry points to the metadata of that time."""
    where = "WHERE table_namespace = ? AND table_name = ?"
    with closing(sqlite3.connect(f"{_home}/catalog.db", timeout=30)) as catalog:
        values = (metadata, _NAMESPACE, table)
        catalog.execute(
            f"UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = NULL {where}", values
        )
        catalog.commit()


def fill(table: str, count: int) -> int:
    """Put many rows, with ids from 0, in one commit; how many files that made."""
    target = _catalog.load_table((_NAMESPACE, table))
    target.append(rows(range(count)))
    return len(target.inspect.data_files())


def upsert(table: str, ids: list[int], more: float) -> float:
    target = _catalog.load_table((_NAMESPACE, table))
    data = rows(ids, more)
    results: list[Any] = []
    took = timed(lambda: results.append(target.upsert(data, join_cols=["id"])))
    changed = results[0].rows_updated + results[0].rows_inserted
    assert changed == len(ids), f"{changed} rows, not {len(ids)}"
    return took


if __name__ == "__main__":
    serve(
        {
            "open": open_catalog,
            "create": create,
            "location": location,
            "append": append,
            "append_together": append_together,
            "append_file": append_file,
            "write_file": write_file,
            "return_to": return_to,
            "fill": fill,
            "upsert": upsert,
        }
    )

"""DuckLake on a SQLite catalog in WAL mode on the same disk: another format, and the best known at tiny writes."""

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb

from bench.peers import duck
from bench.peers.commands import serve, timed
from bench.peers.rows import rows

_INSERT = "INSERT INTO {} VALUES (?, ?, ?, ?)"
_UPDATE, _DELETE = "UPDATE {} SET amount = ? WHERE id = ?", "DELETE FROM {} WHERE id = ?"
_UPSERT = """
    MERGE INTO {} AS t USING sent AS s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET name = s.name, amount = s.amount, moment = s.moment
    WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.name, s.amount, s.moment)
"""
_connection: duckdb.DuckDBPyConnection


def open_lake(home: str, inline: bool) -> None:
    """A lake in this folder. Inlined, small inserts stay rows in SQLite (DuckLake's default); else each is a file."""
    global _connection
    Path(home).mkdir(parents=True, exist_ok=True)
    options = [
        f"DATA_PATH '{home}/data'",
        "META_JOURNAL_MODE 'WAL'",
        *([] if inline else ["DATA_INLINING_ROW_LIMIT 0"]),
    ]
    _connection = duck.connect("sqlite_scanner", "ducklake")
    _connection.execute(f"ATTACH 'ducklake:sqlite:{home}/catalog.db' AS lake ({', '.join(options)})")
    _connection.execute("USE lake")


def create(table: str) -> None:
    _connection.execute(f"CREATE TABLE {table} (id BIGINT NOT NULL, name VARCHAR, amount DOUBLE, moment TIMESTAMP)")


def append(table: str, count: int) -> list[float]:
    """Inserts of one row, one after another: the milliseconds of each."""
    insert = _INSERT.format(table)
    return [timed(lambda n=n: _connection.execute(insert, _row(n))) for n in range(count)]


def fill(table: str, count: int) -> None:
    """Put many rows, with ids from 0, in one commit."""
    _connection.register("sent", rows(range(count)))
    _connection.execute(f"INSERT INTO {table} SELECT * FROM sent")


def update(table: str, count: int) -> list[float]:
    """Updates of one row by key, one after another: the milliseconds of each."""
    text = _UPDATE.format(table)
    return [timed(lambda n=n: _connection.execute(text, [n + 0.75, n])) for n in range(count)]


def delete(table: str, count: int) -> list[float]:
    """The same for deletes."""
    text = _DELETE.format(table)
    return [timed(lambda n=n: _connection.execute(text, [n])) for n in range(count)]


def upsert(table: str, ids: list[int], more: float) -> float:
    _connection.register("sent", rows(ids, more))
    return timed(lambda: _connection.execute(_UPSERT.format(table)))


def append_together(table: str, clients: int, seconds: float) -> dict[str, Any]:
    """Threads that insert side by side; after a conflict, one tries again."""
    insert = _INSERT.format(table)
    took: list[float] = []
    deadline = time.perf_counter() + seconds

    def client() -> None:
        cursor = _connection.cursor()
        cursor.execute("USE lake")
        while time.perf_counter() < deadline:
            took.append(timed(lambda: one(cursor)))

    def one(cursor: duckdb.DuckDBPyConnection) -> None:
        while True:
            with suppress(duckdb.Error):
                cursor.execute(insert, _row(1))
                return

    threads = [threading.Thread(target=client) for _ in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"took": took, "elapsed_s": time.perf_counter() - started}


def count(table: str) -> int:
    [(found,)] = _connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(found)


def _row(number: int) -> list[Any]:
    return [number, f"name-{number}", number + 0.5, "2024-02-29 12:00:00"]


if __name__ == "__main__":
    serve(
        {
            "open": open_lake,
            "create": create,
            "append": append,
            "append_together": append_together,
            "count": count,
            "fill": fill,
            "update": update,
            "delete": delete,
            "upsert": upsert,
        }
    )

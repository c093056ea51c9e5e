"""An independent reader of Iceberg tables: DuckDB, which gets the path of the metadata file and nothing else."""

import duckdb

from bench.peers import duck
from bench.peers.commands import serve

_connection: duckdb.DuckDBPyConnection


def open_reader() -> None:
    global _connection
    _connection = duck.connect("avro", "iceberg")


def ids(metadata: str) -> list[int]:
    """The id of every row, as often as it is there."""
    rows = _connection.execute("SELECT id FROM iceberg_scan(?)", [metadata]).fetchall()
    return [number for (number,) in rows]


def count(metadata: str) -> int:
    """How many different ids there are; -1 if one is there twice."""
    query = "SELECT count(*), count(DISTINCT id) FROM iceberg_scan(?)"
    [(found, different)] = _connection.execute(query, [metadata]).fetchall()
    return int(found) if found == different else -1


if __name__ == "__main__":
    serve({"open": open_reader, "ids": ids, "count": count})

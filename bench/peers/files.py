"""Files in, files out: the CSV that everyone reads, and DuckDB's `COPY` of it to Parquet."""

from pathlib import Path

import pyarrow.csv as csv

from bench.peers import duck, rows
from bench.peers.commands import serve, timed

_BATCH = 100_000
_COLUMNS = {"id": "BIGINT", "name": "VARCHAR", "amount": "DOUBLE", "moment": "TIMESTAMP"}


def write_csv(path: str, count: int) -> int:
    """Write a CSV file with a header and `count` rows; returns its size."""
    with csv.CSVWriter(path, rows.SCHEMA) as writer:
        for start in range(0, count, _BATCH):
            writer.write_table(rows.rows(range(start, min(start + _BATCH, count))))
    return Path(path).stat().st_size


def copy(source: str, target: str) -> float:
    """`COPY` a CSV file to Parquet, with the types that the table has."""
    connection = duck.connect()
    connection.execute("SET threads = 2")
    sql = f"COPY (FROM read_csv('{source}', header = true, columns = {_COLUMNS})) TO '{target}' (FORMAT parquet)"
    return timed(lambda: connection.execute(sql))


if __name__ == "__main__":
    serve({"write_csv": write_csv, "copy": copy})

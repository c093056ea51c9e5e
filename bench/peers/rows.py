"""The rows that everyone is given, as Arrow."""

import random
from datetime import datetime
from pathlib import Path

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("amount", pa.float64()),
        ("moment", pa.timestamp("us")),
    ]
)
_NOON = int((datetime(2024, 2, 29, 12) - datetime(1970, 1, 1)).total_seconds()) * 1_000_000


def rows(ids: list[int] | range, more: float = 0.5) -> pa.Table:
    """One row for each id; another `more` makes other rows of the same ids."""
    numbers = pa.array(ids, pa.int64())
    columns = [
        numbers,
        pa.array([f"name-{i}" for i in ids]),
        pa.array([i % 1_000_003 + more for i in ids], pa.float64()),
        pa.array([_NOON + i * 1000 for i in ids], pa.int64()).cast(pa.timestamp("us")),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def write_file(path: str, count: int) -> int:
    """An Arrow IPC stream of so many rows in no order, as a stream comes: in batches of 65,536; its size."""
    chance = random.Random(4)
    with pa.ipc.new_stream(path, SCHEMA) as stream:
        for first in range(0, count, 65_536):
            ids = range(first, min(first + 65_536, count))
            columns = [
                pa.array(ids, pa.int64()),
                pa.array([f"name-{chance.getrandbits(40):x}" for _ in ids]),
                pa.array([chance.random() * 1000 for _ in ids]),
                pa.array([_NOON + chance.getrandbits(40) for _ in ids], pa.int64()).cast(pa.timestamp("us")),
            ]
            stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return Path(path).stat().st_size

"""dlt, as its documentation recommends for large files: Arrow tables, written as Parquet to a folder.

It runs in an environment of its own, because its requirements exclude those of the others.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import dlt
import pyarrow as pa
import pyarrow.csv as csv

from bench.peers.commands import serve, timed

_BLOCK = 16 << 20
_TYPES = {"id": pa.int64(), "name": pa.string(), "amount": pa.float64(), "moment": pa.timestamp("us")}


def load(source: str, home: str) -> float:
    """Load a CSV file into a folder of Parquet files, in a new pipeline; returns how long it took."""
    os.environ |= {"RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "ERROR"}
    folder = Path(home)
    destination = dlt.destinations.filesystem(bucket_url=folder.joinpath("out").as_uri())
    pipeline = dlt.pipeline("bench", str(folder / "state"), destination=destination, dataset_name="bench")

    def tables() -> Iterator[pa.Table]:
        reading, types = csv.ReadOptions(block_size=_BLOCK), csv.ConvertOptions(column_types=_TYPES)
        with csv.open_csv(source, read_options=reading, convert_options=types) as batches:
            for batch in batches:
                yield pa.Table.from_batches([batch])

    resource = dlt.resource(tables, name="rows")
    return timed(lambda: pipeline.run(resource, loader_file_format="parquet"))


if __name__ == "__main__":
    serve({"load": load})

"""Data files that Arrow writes instead of Spark: a few rows in process, because a Spark job takes longer to plan, and
files that a bulk load has staged, which need not be written again.

Only if Spark would write the same: local files of plain columns, neither partitioned nor sorted.
"""

import os
import uuid as uuids
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from service.engine.iceberg.staging import StagedFiles
from service.engine.jobs.arrow.files import FileShape, local_path, same_column, written_like
from service.engine.jobs.arrow.shape import described, plain_shape
from service.engine.session.spark_types import SparkSession

# More rows are written on all cores by Spark.
_MOST_BYTES = 32 << 20


def staged(session: SparkSession, iceberg: Any, rows: pa.Table) -> StagedFiles | None:
    """A file with the rows, which belongs to no snapshot yet; None if Spark must write it."""
    if not 0 < rows.nbytes <= _MOST_BYTES:
        return None
    shape = plain_shape(session, iceberg)
    if shape is None or [(f.name, f.type) for f in rows.schema] != [(f.name, f.type) for f in shape.schema]:
        return None
    location = _new_location(iceberg)
    try:
        groups = _write(rows.cast(shape.schema), local_path(location), shape)
        return StagedFiles(iceberg.io(), (described(session, iceberg, location, one_group=groups == 1),))
    except BaseException:
        _unlink([location])
        raise


def adopted(session: SparkSession, iceberg: Any, paths: Sequence[str], schema: pa.Schema) -> StagedFiles | None:
    """Files with this schema, each by a further name, as files of the table that belong to no snapshot yet; None if
    Spark must write them again."""
    shape = plain_shape(session, iceberg)
    if shape is None or len(shape.schema) != len(schema) or not all(map(same_column, schema, shape.schema)):
        return None
    made: list[str] = []
    try:
        for path in paths:
            location = _new_location(iceberg)
            os.makedirs(os.path.dirname(local_path(location)), exist_ok=True)
            os.link(local_path(path), local_path(location))
            made.append(location)
        return StagedFiles(iceberg.io(), tuple(described(session, iceberg, location) for location in made))
    except OSError:  # such as another disk
        _unlink(made)
        return None
    except BaseException:
        _unlink(made)
        raise


def _new_location(iceberg: Any) -> str:
    return str(iceberg.locationProvider().newDataLocation(f"00000-{uuids.uuid4().hex}.parquet"))


def _unlink(locations: Sequence[str]) -> None:
    for location in locations:
        with suppress(FileNotFoundError):
            os.unlink(local_path(location))


def _write(rows: pa.Table, path: str, shape: FileShape) -> int:
    """Write a file, and return its number of row groups."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    in_group = max(1, rows.num_rows * shape.group_bytes // rows.nbytes)
    with pq.ParquetWriter(path, shape.schema, **written_like(shape.codec, rows)) as writer:
        writer.write_table(rows, row_group_size=in_group)
    return int(-(-rows.num_rows // in_group))

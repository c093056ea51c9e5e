"""Writes a few megabytes of rows into one data file with Arrow, in this process: a Spark job takes longer to plan.

Only if Spark would write the same: local files of plain columns, neither partitioned nor sorted.
"""

import os
import uuid as uuids
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from service.engine.iceberg.staging import StagedFiles
from service.engine.jobs.arrow.files import FileShape, local_path, written_like
from service.engine.jobs.arrow.shape import can_write, described, shape_of
from service.engine.session.spark_types import SparkSession

# More rows are written on all cores by Spark.
_MOST_BYTES = 32 << 20


def staged(session: SparkSession, iceberg: Any, rows: pa.Table) -> StagedFiles | None:
    """A file with the rows, which belongs to no snapshot yet; None if Spark must write it."""
    if not (0 < rows.nbytes <= _MOST_BYTES and can_write(session, str(iceberg.location()))):
        return None
    if iceberg.spec().isPartitioned() or iceberg.sortOrder().isSorted():
        return None
    shape = shape_of(iceberg)
    if shape is None or [(f.name, f.type) for f in rows.schema] != [(f.name, f.type) for f in shape.schema]:
        return None
    location = str(iceberg.locationProvider().newDataLocation(f"00000-{uuids.uuid4().hex}.parquet"))
    path = local_path(location)
    try:
        groups = _write(rows.cast(shape.schema), path, shape)
        return StagedFiles(iceberg.io(), (described(session, iceberg, location, one_group=groups == 1),))
    except BaseException:
        if os.path.exists(path):
            os.unlink(path)
        raise


def _write(rows: pa.Table, path: str, shape: FileShape) -> int:
    """Write a file, and return its number of row groups."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    in_group = max(1, rows.num_rows * shape.group_bytes // rows.nbytes)
    with pq.ParquetWriter(path, shape.schema, **written_like(shape, rows)) as writer:
        writer.write_table(rows, row_group_size=in_group)
    return -(-rows.num_rows // in_group)

"""Writes rows of this process as a data file of a table, without a Spark job."""

import uuid as uuids
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from service.engine.iceberg.staging import StagedFiles
from service.engine.jobs.arrow_files import write
from service.engine.jobs.arrow_merge import described, file_shape, is_local
from service.engine.session.spark_types import SparkSession
from service.model.schema.ranges import RANGES_PROPERTY


def stage_here(session: SparkSession, iceberg: Any, rows: Sequence[pa.Table]) -> StagedFiles | None:
    """Write rows with the table's columns into one data file; None if Spark has to.

    Arrow writes only to a table on this machine's disk that has neither partitions nor an order, and plain columns.
    """
    to = str(iceberg.locationProvider().newDataLocation(f"00000-0-{uuids.uuid4()}-00001.parquet"))
    if not is_local(session, to):  # a property may say that data files are in another place than the table
        return None
    if iceberg.spec().isPartitioned() or not iceberg.sortOrder().isUnsorted():
        return None
    shape = file_shape(iceberg)
    if shape is None:
        return None
    write(pa.concat_tables(some.select(shape.schema.names).cast(shape.schema) for some in rows), shape, to)
    try:
        file = described(session, iceberg, to)
    except BaseException:
        iceberg.io().deleteFile(to)
        raise
    return StagedFiles(iceberg.io(), (file,), str(iceberg.properties().get(RANGES_PROPERTY) or ""))

"""Writes few rows of this process as a file of a table, without a Spark job if the table allows it."""

import uuid as uuids
from typing import Any

import pyarrow as pa

from service.engine.iceberg.staging import StagedFiles, stage_rows
from service.engine.jobs.append import small_frame
from service.engine.jobs.arrow_files import write
from service.engine.jobs.arrow_merge import can_join, described, file_shape
from service.engine.session.spark_types import SparkSession
from service.model.schema.ranges import RANGES_PROPERTY


def stage_few(session: SparkSession, iceberg: Any, rows: pa.Table) -> StagedFiles:
    """Write rows with the table's columns into one data file, or one for each partition.

    Arrow writes it if the table is on this machine's disk, has neither partitions nor an order, and only plain columns;
    Spark writes all others.
    """
    location = str(iceberg.location())
    if can_join(session, location) and not iceberg.spec().isPartitioned() and iceberg.sortOrder().isUnsorted():
        shape = file_shape(iceberg)
        if shape is not None:
            to = str(iceberg.locationProvider().newDataLocation(f"00000-0-{uuids.uuid4()}-00001.parquet"))
            write(rows, shape, to)
            try:
                file = described(session, iceberg, to)
            except BaseException:
                iceberg.io().deleteFile(to)
                raise
            return StagedFiles(iceberg.io(), (file,), str(iceberg.properties().get(RANGES_PROPERTY) or ""))
    return stage_rows(iceberg, small_frame(session, rows).coalesce(1))

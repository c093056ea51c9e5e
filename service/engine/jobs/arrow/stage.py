"""Stages rows of this process, or files that Arrow has written, as data files of a table, without a Spark job.

Only for tables whose files Arrow can write as Spark would: see `plain_shape`. Spark writes all others.
"""

import logging
import os
import uuid as uuids
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from service.engine.iceberg.staging import StagedFiles
from service.engine.iceberg.tables import current
from service.engine.jobs.arrow.files import local_path, write
from service.engine.jobs.arrow.shape import described, plain_shape
from service.engine.session.spark_types import SparkSession
from service.model.schema.ranges import RANGES_PROPERTY

log = logging.getLogger("firn.engine")
# Spark writes more rows than this, on all cores.
_MOST_BYTES = 32 << 20


def stage_here(session: SparkSession, iceberg: Any, rows: Sequence[pa.Table]) -> StagedFiles | None:
    """Write rows with the table's columns into one data file; None if Spark has to."""
    to = _new_location(iceberg)
    shape = plain_shape(session, iceberg, to)
    if shape is None or sum(some.nbytes for some in rows) > min(_MOST_BYTES, shape.file_bytes):
        return None
    with _removing([to]):
        write(pa.concat_tables(some.select(shape.schema.names).cast(shape.schema) for some in rows), shape, to)
        return _staged(session, iceberg, [to])
    return None


def adopt(session: SparkSession, table: str, paths: Sequence[str], schema: pa.Schema) -> StagedFiles | None:
    """Give local files with this schema further names as data files of the table, for a later commit; None if Spark
    must write their rows. The old names stay."""
    iceberg = current(session, table)
    to = [_new_location(iceberg) for _ in paths]
    shape = plain_shape(session, iceberg, to[0])
    if shape is None or not shape.schema.equals(schema, check_metadata=True):
        return None
    with _removing(to):
        for old, new in zip(paths, to, strict=True):
            os.makedirs(os.path.dirname(local_path(new)), exist_ok=True)
            os.link(local_path(old), local_path(new))
        return _staged(session, iceberg, to)
    return None


def _staged(session: SparkSession, iceberg: Any, locations: Sequence[str]) -> StagedFiles:
    files = tuple(described(session, iceberg, location, nans=True) for location in locations)
    return StagedFiles(iceberg.io(), files, str(iceberg.properties().get(RANGES_PROPERTY) or ""))


def _new_location(iceberg: Any) -> str:
    return str(iceberg.locationProvider().newDataLocation(f"00000-0-{uuids.uuid4()}-00001.parquet"))


@contextmanager
def _removing(locations: Sequence[str]) -> Iterator[None]:
    """Delete these files if the block fails. If the disk is the reason, the block just ends: Spark tries next, and
    reports a full disk better. So does it if files cannot have a second name there."""
    try:
        yield
    except BaseException as e:
        for location in locations:
            with suppress(FileNotFoundError):
                os.unlink(local_path(location))
        if not isinstance(e, OSError):
            raise
        log.info("Spark writes rows that Arrow could not: %s", e)

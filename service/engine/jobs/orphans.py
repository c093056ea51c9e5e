"""The job that compares the files in a table's folder with the files in the table's metadata."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import time

import pyarrow as pa

from service.engine.iceberg.files import PathCollector
from service.engine.iceberg.tables import load_table
from service.engine.session.java import iceberg_class
from service.engine.session.rows import frame
from service.engine.session.spark_types import SparkSession

_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class OrphanFiles:
    """Files that no part of a metadata file refers to."""

    metadata_location: str
    unreferenced: tuple[str, ...]


def compare(session: SparkSession, table: str, paths: Sequence[str]) -> OrphanFiles:
    """The files that no snapshot, manifest, metadata or statistics of the table refers to. Deletes nothing.

    Iceberg's own action finds them among the given full paths. It could list folders itself, but it skips hidden files
    and reports neither sizes nor ages. A path that differs only in its scheme or authority is kept.
    """
    iceberg = load_table(session, table)
    location = str(iceberg.operations().current().metadataFileLocation())
    if not paths:
        return OrphanFiles(location, ())
    found = PathCollector()
    files = pa.table(
        {
            "file_path": pa.array(paths, pa.string()),
            # The caller has checked their age.
            "last_modified": pa.array([_LONG_AGO] * len(paths), pa.timestamp("us", tz="UTC")),
        }
    )
    ignore = iceberg_class("actions.DeleteOrphanFiles$PrefixMismatchMode").valueOf("IGNORE")
    actions = iceberg_class("spark.actions.SparkActions").get(session._jsparkSession)
    action = actions.deleteOrphanFiles(iceberg).compareToFileList(frame(session, files)._jdf)
    action.olderThan(int(time() * 1000)).prefixMismatchMode(ignore).deleteWith(found.consumer).execute()
    return OrphanFiles(location, tuple(found.paths()))

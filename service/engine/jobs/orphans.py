"""The job that compares what lies in a table's folder with what the table's metadata refers to."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import time

import pyarrow as pa
from pyspark.sql import SparkSession

from service.engine.files import Gathered
from service.engine.jvm import java_class
from service.engine.rows import frame
from service.engine.tables import load_table

_ICEBERG = "org.apache.iceberg"
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Compared:
    """Files that nothing refers to in the metadata that a file holds."""

    metadata_location: str
    unreferenced: tuple[str, ...]


def compare(session: SparkSession, table: str, paths: Sequence[str]) -> Compared:
    """Which of the files no snapshot, manifest, metadata or statistics of the table refers to; none is deleted.

    Iceberg's own action says so, of the full paths that it is given: it would list folders itself, but leaves hidden
    files out and tells neither sizes nor ages. Where a path differs in nothing but how its storage is named, it stays.
    """
    iceberg = load_table(session, table)
    location = str(iceberg.operations().current().metadataFileLocation())
    if not paths:
        return Compared(location, ())
    gathered = Gathered()
    files = pa.table(
        {
            "file_path": pa.array(paths, pa.string()),
            # Whoever asks has looked at their age.
            "last_modified": pa.array([_LONG_AGO] * len(paths), pa.timestamp("us", tz="UTC")),
        }
    )
    ignore = java_class(f"{_ICEBERG}.actions.DeleteOrphanFiles$PrefixMismatchMode").valueOf("IGNORE")
    actions = java_class(f"{_ICEBERG}.spark.actions.SparkActions").get(session._jsparkSession)
    action = actions.deleteOrphanFiles(iceberg).compareToFileList(frame(session, files)._jdf)
    action.olderThan(int(time() * 1000)).prefixMismatchMode(ignore).deleteWith(gathered.consumer).execute()
    return Compared(location, tuple(gathered.texts()))

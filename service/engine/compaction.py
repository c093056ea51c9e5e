"""Jobs that rewrite files without changing rows. Iceberg's own actions do the work."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from service.engine.jvm import java_class
from service.engine.tables import load_table
from service.names import BATCH_PROPERTY

_GROUP_BYTES = 1 << 30
_NEVER_SPLIT = (1 << 62) - 1


@dataclass(frozen=True)
class Rewrite:
    """How to merge small files: below which size, into which, and how many."""

    small_bytes: int
    target_bytes: int
    min_files: int
    max_files: int
    filter_json: str | None = None


def rewrite(session: SparkSession, table: str, how: Rewrite, batch: str) -> None:
    """Merge small files of each partition, in one commit."""
    iceberg = load_table(session, table)
    action = _actions(session).rewriteDataFiles(iceberg).binPack().snapshotProperty(BATCH_PROPERTY, batch)
    if how.filter_json is not None:
        parser = java_class("org.apache.iceberg.expressions.ExpressionParser")
        action = action.filter(parser.fromJson(how.filter_json, iceberg.schema()))
    options = {
        "min-file-size-bytes": how.small_bytes,
        "target-file-size-bytes": how.target_bytes,
        "max-file-size-bytes": _NEVER_SPLIT,
        "min-input-files": how.min_files,
        "max-files-to-rewrite": how.max_files,
        "max-file-group-size-bytes": max(_GROUP_BYTES, how.target_bytes),
    }
    for key, value in options.items():
        action = action.option(key, str(value))
    action.execute()


def _actions(session: SparkSession) -> Any:
    return java_class("org.apache.iceberg.spark.actions.SparkActions").get(session._jsparkSession)

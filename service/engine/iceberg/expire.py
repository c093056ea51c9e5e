"""Jobs that let snapshots go, in two steps: the commit, which is short, and the deletion of files, which is not.

Iceberg's own `ExpireSnapshots` does both in one call, and lets go of more than it is told to: whatever is past the age
limit of its branch. Here the commit is exactly what was decided; which files nobody needs then is for Iceberg to say.
Deleting them is for the caller, who counts.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from service.engine.files import Gathered
from service.engine.jvm import java_class
from service.engine.tables import load_table
from service.errors import CommitConflict

_ICEBERG = "org.apache.iceberg"


@dataclass(frozen=True)
class Removed:
    """What a commit of `remove` left to do. It is of use to the JVM that made it only."""

    io: Any
    before: Any
    after: Any
    level: Any


def remove(
    session: SparkSession, table: str, metadata_location: str, snapshots: Iterable[int], refs: Iterable[str]
) -> Removed:
    """Take snapshots, and branches or tags, out of a table's metadata, in one commit; no file is deleted yet.

    CommitConflict when the table's metadata is not the one named: what may go was decided by that one.
    """
    iceberg = load_table(session, table)
    operations = iceberg.operations()
    before = operations.current()
    if before.metadataFileLocation() != metadata_location:
        raise CommitConflict("the table was changed while its old snapshots were looked for")
    changes: list[dict[str, Any]] = [{"action": "remove-snapshot-ref", "ref-name": name} for name in refs]
    changes.append({"action": "remove-snapshots", "snapshot-ids": list(snapshots)})
    builder = java_class(f"{_ICEBERG}.TableMetadata").buildFrom(before)
    for change in changes:
        java_class(f"{_ICEBERG}.MetadataUpdateParser").fromJson(json.dumps(change)).applyTo(builder)
    operations.commit(before, builder.build())
    all_files = java_class(f"{_ICEBERG}.ExpireSnapshots$CleanupLevel").ALL
    return Removed(iceberg.io(), before, operations.refresh(), all_files)


def unneeded(session: SparkSession, removed: Removed) -> list[str]:
    """The files that only removed snapshots needed, in the order in which they are best deleted: those that name
    others come after them. No later commit needs one, so there is time."""
    gathered = Gathered()
    cleanup = _cleanup(session, removed.io, gathered)
    cleanup.cleanFiles(removed.before, removed.after, removed.level)
    return gathered.texts()


def _cleanup(session: SparkSession, io: Any, gathered: Gathered) -> Any:
    """What `ExpireSnapshots` finds files with: not a public class, so its constructor is asked for by reflection."""
    kind = java_class("java.lang.Class").forName(f"{_ICEBERG}.ReachableFileCleanup")
    [constructor] = kind.getDeclaredConstructors()
    constructor.setAccessible(True)
    workers = java_class(f"{_ICEBERG}.util.ThreadPools").getWorkerPool()
    gateway: Any = session.sparkContext._gateway
    arguments = gateway.new_array(java_class("java.lang.Object"), 4)
    arguments[0], arguments[1], arguments[2], arguments[3] = io, workers, workers, gathered.consumer
    return constructor.newInstance(arguments)

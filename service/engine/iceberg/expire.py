"""Jobs that expire snapshots in two steps: the commit, which is short, and the search for files that nobody needs.

Iceberg's own `ExpireSnapshots` does both in one call, and expires more than it should: whatever is past the age
limit of its branch. Here the commit is exactly what was decided, Iceberg says which files nobody needs then, and the
caller deletes and counts them.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from service.engine.iceberg.files import PathCollector
from service.engine.iceberg.tables import load_table
from service.engine.session.java import ICEBERG, construct_hidden, iceberg_class
from service.engine.session.spark_types import SparkSession
from service.errors import CommitConflict


@dataclass(frozen=True)
class ExpiredSnapshots:
    """What a commit of `remove` left to do. Valid in the JVM that made it."""

    io: Any
    before: Any
    after: Any
    level: Any


def remove(
    session: SparkSession, table: str, metadata_location: str, snapshots: Iterable[int], refs: Iterable[str]
) -> ExpiredSnapshots:
    """Remove snapshots, and branches or tags, from a table's metadata in one commit; no file is deleted yet.

    Raises CommitConflict if the table's metadata is not the one named, by which the snapshots were chosen.
    """
    iceberg = load_table(session, table)
    operations = iceberg.operations()
    before = operations.current()
    if before.metadataFileLocation() != metadata_location:
        raise CommitConflict("the table was changed while its old snapshots were looked for")
    changes: list[dict[str, Any]] = [{"action": "remove-snapshot-ref", "ref-name": name} for name in refs]
    changes.append({"action": "remove-snapshots", "snapshot-ids": list(snapshots)})
    builder = iceberg_class("TableMetadata").buildFrom(before)
    for change in changes:
        iceberg_class("MetadataUpdateParser").fromJson(json.dumps(change)).applyTo(builder)
    operations.commit(before, builder.build())
    all_files = iceberg_class("ExpireSnapshots$CleanupLevel").ALL
    return ExpiredSnapshots(iceberg.io(), before, operations.refresh(), all_files)


def unneeded(_: SparkSession, removed: ExpiredSnapshots) -> list[str]:
    """The files that only removed snapshots needed, in the order in which they are best deleted: those that name
    others come after them. No later commit needs one."""
    found = PathCollector()
    workers = iceberg_class("util.ThreadPools").getWorkerPool()
    # What `ExpireSnapshots` finds files with; it is not public.
    cleanup = construct_hidden(f"{ICEBERG}.ReachableFileCleanup", removed.io, workers, workers, found.consumer)
    cleanup.cleanFiles(removed.before, removed.after, removed.level)
    return found.paths()

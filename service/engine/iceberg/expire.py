"""Jobs that expire snapshots in two steps: the commit, which is short, and the search for files no longer needed.

Iceberg's own `ExpireSnapshots` does both in one call, and also expires every snapshot past the age limit of its branch.
Here the commit removes exactly the chosen snapshots, Iceberg finds the files that are no longer needed, and the caller
deletes and counts them.
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
    """The input of `unneeded_files`, after a commit of `remove`. Valid in the JVM that made it."""

    io: Any
    before: Any
    after: Any


def remove(
    session: SparkSession, table: str, metadata_location: str, snapshots: Iterable[int], refs: Iterable[str]
) -> ExpiredSnapshots:
    """Remove snapshots, and branches or tags, from a table's metadata in one commit; no file is deleted yet.

    Raises CommitConflict unless the table's metadata is still that at `metadata_location`, by which the snapshots were
    chosen.
    """
    iceberg = load_table(session, table)
    operations = iceberg.operations()
    before = operations.current()
    if before.metadataFileLocation() != metadata_location:
        raise CommitConflict("the table changed while its expired snapshots were being chosen")
    changes: list[dict[str, Any]] = [{"action": "remove-snapshot-ref", "ref-name": name} for name in refs]
    changes.append({"action": "remove-snapshots", "snapshot-ids": list(snapshots)})
    builder = iceberg_class("TableMetadata").buildFrom(before)
    for change in changes:
        iceberg_class("MetadataUpdateParser").fromJson(json.dumps(change)).applyTo(builder)
    operations.commit(before, builder.build())
    return ExpiredSnapshots(iceberg.io(), before, operations.refresh())


def unneeded_files(_: SparkSession, removed: ExpiredSnapshots) -> list[str]:
    """The files that only removed snapshots needed, in the order to delete them: a file comes after those that it
    lists. No later commit needs them."""
    found = PathCollector()
    workers = iceberg_class("util.ThreadPools").getWorkerPool()
    # `ExpireSnapshots` finds files with this class, which is not public.
    cleanup = construct_hidden(f"{ICEBERG}.ReachableFileCleanup", removed.io, workers, workers, found.consumer)
    cleanup.cleanFiles(removed.before, removed.after, iceberg_class("ExpireSnapshots$CleanupLevel").ALL)
    return found.paths()

"""What a job left on disk, and what it committed, if its instance ended before the job did."""

import logging
from dataclasses import dataclass, field

from service.catalog.files.data_files import list_files
from service.catalog.tables import Catalog, Snapshot, Table
from service.engine.iceberg.compaction import sweep
from service.engine.session.engine import Engine
from service.maintenance.compact.report import CompactionTally

log = logging.getLogger("firn.maintenance")


@dataclass
class LeftoverCommits:
    """The files of one folder that snapshots hold, and the figures of the commits that added them."""

    paths: set[str] = field(default_factory=set)
    tally: CompactionTally = field(default_factory=CompactionTally)
    last: Snapshot | None = None


def commits_below(table: Table, folder: str) -> LeftoverCommits:
    """What was committed of the files below a folder, given by its last name: `file:/…` may be spelled `file:///…`. A
    commit whose parent has expired is not counted."""
    found = LeftoverCommits()
    known = {snapshot.snapshot_id for snapshot in table.snapshots()}
    for snapshot in table.snapshots():
        after = list_files(table, snapshot.snapshot_id)
        new = [file for file in after.data if f"/{folder}/" in file.path and file.path not in found.paths]
        found.paths.update(file.path for file in new)
        if new and snapshot.parent_id in known:
            found.tally.committed(list_files(table, snapshot.parent_id), after, snapshot)
            found.tally.partitions.update(str(file.group) for file in new)
            found.last = snapshot
    return found


def clear_up(engine: Engine, catalog: Catalog, table: Table, folder: str, *, fence: bool) -> LeftoverCommits:
    """Delete the files below a folder of a table that no snapshot holds; returns what was committed of them.

    The job that wrote there was taken from its instance. The folder's last name belongs to that job alone. With
    `fence`, for an instance that may still run, nothing built on an earlier snapshot can be committed any more.
    """
    name = folder.rstrip("/").rpartition("/")[2]
    if fence:
        catalog.fence(table, name)
        table = catalog.load(table.name)
    committed = commits_below(table, name)
    kept = frozenset(path.rpartition("/")[2] for path in committed.paths)
    if deleted := engine.run(sweep, table.spark_name, folder, kept):
        log.info("deleted %d files of %s that an unfinished job left in %s", deleted, table.name, name)
    return committed

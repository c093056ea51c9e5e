"""What a job left on disk, and what it committed, if its instance ended before the job did."""

import logging

from service.catalog.files.data_files import list_files
from service.catalog.tables import Catalog, Snapshot, Table
from service.engine.iceberg.compaction import sweep
from service.engine.session.engine import Engine
from service.maintenance.compact.report import CompactionTally

log = logging.getLogger("firn.maintenance")


def commits_below(table: Table, folder: str) -> tuple[set[str], CompactionTally, Snapshot | None]:
    """The files below a folder that snapshots hold, the figures of the commits that added them, and the last of these.
    `folder` is the last name only: `file:/…` may be spelled `file:///…`. Commits whose parent expired do not count."""
    paths, tally, last = set[str](), CompactionTally(), None
    known = {snapshot.snapshot_id for snapshot in table.snapshots()}
    for snapshot in table.snapshots():
        after = list_files(table, snapshot.snapshot_id)
        new = [file for file in after.data if f"/{folder}/" in file.path and file.path not in paths]
        paths.update(file.path for file in new)
        if new and snapshot.parent_id in known:
            tally.committed(list_files(table, snapshot.parent_id), after, snapshot)
            tally.partitions.update(str(file.group) for file in new)
            last = snapshot
    return paths, tally, last


def clear_up(
    engine: Engine, catalog: Catalog, table: Table, folder: str, *, fence: bool
) -> tuple[CompactionTally, Snapshot | None]:
    """Delete the files below a folder of a table that no snapshot holds; returns its commits' figures and the last one.

    The job that wrote there was taken from its instance. The folder's last name belongs to that job alone. With
    `fence`, for an instance that may still run, nothing built on an earlier snapshot can be committed any more.
    """
    name = folder.rstrip("/").rpartition("/")[2]
    if fence:
        catalog.fence(table, name)
        table = catalog.load(table.name)
    paths, tally, last = commits_below(table, name)
    kept = frozenset(path.rpartition("/")[2] for path in paths)
    if deleted := engine.run(sweep, table.spark_name, folder, kept):
        log.info("deleted %d files of %s that an unfinished job left in %s", deleted, table.name, name)
    return tally, last

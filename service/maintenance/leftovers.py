"""What long work left on disk, and what it committed, whose instance did not live to say so."""

from dataclasses import dataclass, field

from service.catalog.files import list_files
from service.catalog.tables import Catalog, Snapshot, Table
from service.engine.compaction import sweep
from service.engine.engine import Engine
from service.ledger.writers import Writers
from service.upkeep.report import Tally


@dataclass
class Committed:
    """The files of one folder that snapshots hold, and the figures of the commits that brought them."""

    paths: set[str] = field(default_factory=set)
    tally: Tally = field(default_factory=lambda: Tally(0, 0))
    last: Snapshot | None = None


def commits_below(table: Table, folder: str) -> Committed:
    """What was committed of the files below a folder, known by its own name: `file:/…` may be spelled `file:///…`.

    A commit whose own parent has expired is not counted.
    """
    found = Committed()
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


def clear_up(engine: Engine, catalog: Catalog, writers: Writers, table: Table, folder: str) -> tuple[int, Committed]:
    """Remove the files below a folder of a table that no snapshot holds; how many those were, and what was committed.

    Whoever wrote there has left; the folder's last name is its alone.
    """
    name = folder.rstrip("/").rpartition("/")[2]
    # Its writer is forgotten, and what it has built on an earlier snapshot can no longer be committed.
    writers.active(table.uuid)
    if writers.shared:
        catalog.fence(table, name)
        table = catalog.load(table.name)
    committed = commits_below(table, name)
    kept = frozenset(path.rpartition("/")[2] for path in committed.paths)
    return engine.run(sweep, table.spark_name, folder, kept), committed

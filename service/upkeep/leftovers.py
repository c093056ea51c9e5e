"""What long work of an instance that is gone left on disk."""

from service.catalog.files import list_files
from service.catalog.tables import Catalog, Table
from service.engine.compaction import sweep
from service.engine.engine import Engine
from service.ledger.writers import Writers


def clear_up(engine: Engine, catalog: Catalog, writers: Writers, table: Table, folder: str) -> int:
    """Remove the files below a folder of a table that no snapshot holds; how many those were.

    Whoever wrote there has left; the folder's last name is its alone.
    """
    name = folder.rstrip("/").rpartition("/")[2]
    # Its writer is forgotten, and what it has built on an earlier snapshot can no longer be committed.
    writers.active(table.uuid)
    if writers.shared:
        catalog.fence(table, name)
        table = catalog.load(table.name)
    # By the folder's name alone: Hadoop spells `file:///…` as `file:/…`.
    held = {
        file.path.rpartition("/")[2]
        for snapshot in table.snapshots()
        for file in list_files(table, snapshot.snapshot_id).data
        if f"/{name}/" in file.path
    }
    return engine.run(sweep, table.spark_name, folder, frozenset(held))

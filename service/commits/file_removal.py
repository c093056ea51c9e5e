"""Deletes files: local ones directly, all others through the table's own access to its storage."""

from collections.abc import Sequence

from service.catalog.files.storage import is_local, unlink
from service.catalog.tables import Table
from service.engine.iceberg.files import delete
from service.engine.session.engine import Engine


def owns_its_files(table: Table) -> bool:
    """Whether only this table needs its files; if another one does, `gc.enabled` is false."""
    return table.properties.get("gc.enabled", "true").lower() != "false"


def delete_files(engine: Engine, table: Table, paths: Sequence[str]) -> int:
    """Delete files by their full paths; returns how many existed. A file that does not exist is no failure."""
    local = [path for path in paths if is_local(path)]
    elsewhere = [path for path in paths if not is_local(path)]
    return unlink(local) + (engine.run(delete, table.spark_name, elsewhere) if elsewhere else 0)

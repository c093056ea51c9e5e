"""The state of a table that a change of rows builds on, from its metadata."""

from service.catalog.files.data_files import list_files
from service.catalog.tables import Table
from service.engine.jobs.edit import EditBase
from service.settings.kinds import RowLevel


def base_of(current: Table, row_level: RowLevel = "copy_on_write", only: frozenset[str] | None = None) -> EditBase:
    """The state of the table; `only` are the files to search, if Spark could not choose them."""
    files = list_files(current)
    return EditBase(
        current.spark_name,
        current.uuid,
        current.schema_id,
        current.current_snapshot_id,
        current.head_has_table_schema,
        {file.path: file.rows for file in files.data},
        {file.path: file.bytes for file in files.data},
        files.deletes > 0,
        only,
        {file.path: file.sequence_number for file in files.data},
        {file.path: file.deleted for file in files.data if file.deleted} if files.counted else None,
        row_level if current.deletes_by_place else "copy_on_write",
    )

"""A WRITE: its records become one commit."""

from typing import Any, Literal

from service.catalog.tables import Table
from service.commits.commit import Effect
from service.context import Context
from service.engine.rows import to_arrow
from service.engine.write import append, overwrite
from service.names import TableName
from service.records import read_records

Mode = Literal["append", "overwrite"]


def write(context: Context, name: TableName, records: list[Any], mode: Mode) -> Effect:
    """Check every record against the table's schema, then commit them all; none is written if one does not fit."""
    table = context.catalog.load(name)
    rows = to_arrow(table.schema, read_records(table.schema, records))
    if mode == "append" and not records:
        return Effect(table, table, None)
    job = append if mode == "append" else overwrite

    def change(current: Table, batch: str) -> None:
        context.engine.run(job, current.spark_name, rows, batch)

    return context.commits.commit(name, "WRITE", context.request_id, change)

"""WRITEs: records become a commit."""

from dataclasses import dataclass
from typing import Any, Literal

from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits, Effect
from service.engine.engine import Engine
from service.engine.rows import to_arrow
from service.engine.write import append, overwrite
from service.names import TableName
from service.records import read_records

Mode = Literal["append", "overwrite"]


@dataclass(frozen=True)
class Writes:
    """Takes records in."""

    engine: Engine
    catalog: Catalog
    commits: Commits

    def write(self, name: TableName, records: list[Any], mode: Mode, request_id: str) -> Effect:
        """Check every record against the table's schema, then commit them all; none is written if one does not fit."""
        table = self.catalog.load(name)
        rows = to_arrow(table.schema, read_records(table.schema, records))
        if mode == "append" and not records:
            return Effect(table, table, None)
        job = append if mode == "append" else overwrite

        def change(current: Table, batch: str) -> None:
            self.engine.run(job, current.spark_name, rows, batch)

        return self.commits.commit(table, "WRITE", request_id, change)

"""One WRITE that waits to be committed with others."""

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from service.catalog.tables import Table
from service.commits.small_files import SmallFileCheck
from service.engine.session.records import read_many
from service.engine.session.rows import arrow_schema, to_arrow
from service.model.call import Call
from service.model.dynamic.definition import refuse_dynamic_table
from service.model.ingest.reserved import refuse_ingestion_table
from service.model.names import TableName
from service.model.records import read_records
from service.model.schema.derived import only_derived_added


@dataclass(frozen=True)
class WriteOutcome:
    """What a WRITE did: the snapshot that holds its records, and how many requests and records share that snapshot."""

    records: int
    snapshot_id: int | None
    requests_in_batch: int
    records_in_batch: int
    check: SmallFileCheck


Reply = Callable[[WriteOutcome], bytes]

# Up to this many records are kept as they came, to be checked again if the table changes.
SMALL = 1000


def running() -> "Future[bytes]":
    """A future that nobody can cancel: a batch goes on, whoever waits for it."""
    future: Future[bytes] = Future()
    future.set_running_or_notify_cancel()
    return future


@dataclass(eq=False)
class PendingWrite:
    """A WRITE, checked against `table`, which is as it was last seen. `response` becomes the body or a FirnError."""

    name: TableName
    call: Call
    records: list[Any]
    size: int
    reply: Reply
    response: "Future[bytes]" = field(default_factory=running)
    count: int = 0
    table: Table | None = None
    columns: dict[str, list[Any]] | pa.Table | None = None
    rechecks: int = 0
    is_edit: ClassVar[bool] = False
    operation: ClassVar[str] = "WRITE"

    @property
    def small(self) -> bool:
        return self.count <= SMALL

    def fit(self, table: Table) -> None:
        """Check the records against a table's schema; InvalidRecord says what does not fit."""
        refuse_ingestion_table(table.properties, table.name.table, "WRITE")
        refuse_dynamic_table(table.properties, table.name.table, "WRITE")
        self.count = len(self.records)
        if self.small:
            self.columns = read_records(table.schema, self.records)
        else:
            self.columns = read_many(table.schema, self.records)
            self.records = []
        self.table = table

    def follow(self, table: Table) -> bool:
        """Fit records that are not kept as they came to the table as it is now; false if that is impossible.

        It is possible if the table has got only derived columns since.
        """
        seen, rows = self.table, self.columns
        if seen is None or seen.uuid != table.uuid or not isinstance(rows, pa.Table):
            return False
        if not only_derived_added(table.schema, seen.schema, table.derived):
            return False
        for new in arrow_schema(table.schema, table.schema.names[rows.num_columns :]):
            rows = rows.append_column(new, pa.nulls(rows.num_rows, new.type))
        self.table, self.columns = table, rows
        return True


def together(entries: list[PendingWrite]) -> pa.Table:
    """The rows of entries that all fit the same schema, in order."""
    table = entries[0].table
    assert table is not None
    schema = table.schema
    parts: list[pa.Table] = []
    for small, group in itertools.groupby((e.columns for e in entries), lambda columns: isinstance(columns, dict)):
        columns: list[Any] = list(group)
        if small:
            columns = [to_arrow(schema, {name: [v for part in columns for v in part[name]] for name in columns[0]})]
        parts += columns
    # One chunk is one task, and one task writes one file per partition.
    return pa.concat_tables(parts).combine_chunks() if len(parts) > 1 else parts[0].cast(arrow_schema(schema))

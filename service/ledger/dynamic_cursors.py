"""The source snapshots that dynamic tables stand for, and those that refreshes in progress read."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from sqlalchemy import delete, insert, select, update

from service.ledger.dynamic_tables import IS_HERE
from service.ledger.ledger import Ledger, Transaction
from service.ledger.schema import dynamic_cursors, dynamic_tables
from service.model.names import TableName

_NEVER = ""


@dataclass(frozen=True)
class Cursors:
    """The snapshots of all sources and base tables that a dynamic table's rows stand for."""

    pass_id: str
    """Of the table's own refresh state. If that has another pass, it counts, and these do not."""
    snapshots: Mapping[str, int | None]
    """By the UUIDs of the sources."""


@dataclass(frozen=True)
class NeededSnapshot:
    """A snapshot of a source, and a dynamic table that needs it."""

    snapshot_id: int
    table: TableName


@dataclass(frozen=True)
class CursorRecords:
    """The table `dynamic_cursors` of a ledger."""

    ledger: Ledger = field(repr=False)

    def put(self, table_uuid: str, cursors: Cursors, read: Set[str], within: Transaction | None = None) -> None:
        """Record what a table stands for now; `read` are the sources that its query reads itself."""
        rows = [
            {
                "table_uuid": table_uuid,
                "source_uuid": uuid,
                "pass_id": cursors.pass_id,
                "snapshot_id": snapshot_id,
                "is_read": uuid in read,
            }
            for uuid, snapshot_id in cursors.snapshots.items()
        ]
        with self.ledger._writing(within) as connection:
            connection.execute(delete(dynamic_cursors).where(dynamic_cursors.c.table_uuid == table_uuid))
            if rows:
                connection.execute(insert(dynamic_cursors), rows)

    def reading(self, table_uuid: str, snapshots: Mapping[str, int | None], within: Transaction | None = None) -> None:
        """Record what a refresh is about to read, until `put`."""
        columns = dynamic_cursors.c
        this = columns.table_uuid == table_uuid
        with self.ledger._writing(within) as connection:
            connection.execute(update(dynamic_cursors).where(this).values(reading_id=None))
            known = set(connection.execute(select(columns.source_uuid).where(this)).scalars())
            for uuid, snapshot_id in snapshots.items():
                if uuid in known:
                    one = update(dynamic_cursors).where(this, columns.source_uuid == uuid)
                    connection.execute(one.values(reading_id=snapshot_id, is_read=True))
                else:
                    new = {"table_uuid": table_uuid, "source_uuid": uuid, "pass_id": _NEVER, "is_read": True}
                    connection.execute(insert(dynamic_cursors).values(**new, reading_id=snapshot_id))

    def of(self, table_uuid: str) -> Cursors | None:
        """What a table stands for; None if it was never refreshed."""
        return self.all(table_uuid).get(table_uuid)

    def all(self, table_uuid: str | None = None) -> dict[str, Cursors]:
        """What each dynamic table stands for, by its UUID."""
        asked = select(dynamic_cursors).where(dynamic_cursors.c.pass_id != _NEVER)
        if table_uuid is not None:
            asked = asked.where(dynamic_cursors.c.table_uuid == table_uuid)
        found: dict[str, dict[str, int | None]] = {}
        passes: dict[str, str] = {}
        for row in self.ledger.rows(asked):
            found.setdefault(row.table_uuid, {})[row.source_uuid] = row.snapshot_id
            passes[row.table_uuid] = row.pass_id
        return {uuid: Cursors(passes[uuid], snapshots) for uuid, snapshots in found.items()}

    def needed(self, source_uuid: str) -> list[NeededSnapshot]:
        """The snapshots of a table that dynamic tables need for their next refresh, or read now."""
        cursors, tables = dynamic_cursors.c, dynamic_tables.c
        asked = (
            select(cursors.snapshot_id, cursors.reading_id, tables.tenant, tables.namespace, tables.table_name)
            .join(dynamic_tables, tables.table_uuid == cursors.table_uuid)
            .where(cursors.source_uuid == source_uuid, cursors.is_read, IS_HERE)
            .order_by(tables.namespace, tables.table_name)
        )
        return [
            NeededSnapshot(snapshot_id, TableName(row.tenant, row.namespace, row.table_name))
            for row in self.ledger.rows(asked)
            for snapshot_id in dict.fromkeys((row.snapshot_id, row.reading_id))
            if snapshot_id is not None
        ]

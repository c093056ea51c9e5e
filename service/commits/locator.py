"""Finds a table by its UUID, through renames, drops and restores."""

import logging
from collections.abc import Iterator
from contextlib import suppress

from service.catalog.refusals import table_replaced
from service.catalog.tables import Catalog, Table
from service.errors import TableExists, TableNotFound
from service.ledger.table_records import DROP, RESTORE, TableRecord, TableRecords
from service.model.names import TableName, dropped_table_name

log = logging.getLogger("firn.commits")


class TableLocator:
    """Finds tables by their UUIDs, and finds out whether an unfinished rename, drop or restore happened."""

    def __init__(self, catalog: Catalog, records: TableRecords) -> None:
        self._catalog = catalog
        self._records = records

    def find(self, name: TableName, table_uuid: str) -> Table:
        """The table of this UUID that had this name, dropped or not; TableNotFound if it is gone."""
        missing: TableNotFound | None = None
        for place in self._places(name, table_uuid):
            try:
                table = self._catalog.load(place)
            except TableNotFound as e:
                missing = e if place == name else missing
            else:
                if table.uuid == table_uuid:
                    return table
        raise missing or table_replaced(name)

    def settle(self, record: TableRecord) -> None:
        """Record in the ledger whether the table's step in progress happened."""
        self.record_end(record, self.happened(record))

    def settle_step(self, table_uuid: str, batch: str) -> None:
        """Settle the step of a batch, if it is still in progress."""
        record = self._records.find(table_uuid)
        if record and record.step and record.step.batch == batch:
            self.settle(record)

    def happened(self, record: TableRecord) -> bool:
        """Whether a step happened, according to the catalog."""
        is_drop = record.step is not None and record.step.kind == DROP
        return self._uuid_at(dropped_table_name(record.uuid) if is_drop else record.to) == record.uuid

    def record_end(self, record: TableRecord, happened: bool) -> None:
        """Record the end of a step, which its companion takes first, if it has one.

        A restored table's schedules follow it unless another table has its old name.
        """
        restored = record.step is not None and record.step.kind == RESTORE
        follow = not restored or record.to == record.name or self._uuid_at(record.name) is None
        companion = record.companion if happened else None
        moved = companion is not None and self._move(companion)
        self._records.end(record, happened=happened, schedules_follow=follow, companion_follows=moved)

    def _move(self, companion: TableRecord) -> bool:
        """Move a companion to where its step leads, unless it is there; false if it is gone, or cannot be there."""
        is_drop = companion.step is not None and companion.step.kind == DROP
        dropped = dropped_table_name(companion.uuid)
        to = dropped if is_drop else companion.to
        for place in (to, companion.name, dropped):
            with suppress(TableNotFound):
                table = self._catalog.load(place)
                if table.uuid != companion.uuid:
                    continue
                try:
                    if place != to:
                        self._catalog.rename(table, to)
                except TableExists as e:
                    log.warning("%s does not go with its table: %s", place, e.message)
                    return False
                return True
        return False

    def _places(self, name: TableName, table_uuid: str) -> Iterator[TableName]:
        yield name
        record = self._records.find(table_uuid)
        if record is not None:
            places = dict.fromkeys((record.name, record.to, dropped_table_name(table_uuid)))
            yield from (place for place in places if place != name)

    def _uuid_at(self, name: TableName) -> str | None:
        with suppress(TableNotFound):
            return self._catalog.load(name).uuid
        return None

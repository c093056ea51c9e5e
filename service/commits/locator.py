"""Finds a table by its UUID, through renames, drops and restores."""

from collections.abc import Iterator
from contextlib import suppress

from service.catalog.refusals import table_replaced
from service.catalog.tables import Catalog, Table
from service.errors import TableNotFound
from service.ledger.places import DROP, RESTORE, TableRecord, TableRecords
from service.model.names import TableName, dropped_table_name


class TableLocator:
    """Finds tables by their UUIDs, and finds out whether an unfinished rename, drop or restore happened."""

    def __init__(self, catalog: Catalog, lives: TableRecords) -> None:
        self._catalog = catalog
        self._lives = lives

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

    def settle(self, life: TableRecord) -> None:
        """Record in the ledger whether the table's step in progress happened."""
        self.note(life, self.happened(life))

    def settle_step(self, table_uuid: str, batch: str) -> None:
        """Settle the step of a batch, if it is still in progress."""
        life = self._lives.find(table_uuid)
        if life and life.step and life.step.batch == batch:
            self.settle(life)

    def happened(self, life: TableRecord) -> bool:
        """Whether a step happened, according to the catalog."""
        is_drop = life.step is not None and life.step.kind == DROP
        return self._is_at(dropped_table_name(life.uuid) if is_drop else life.to, life.uuid)

    def note(self, life: TableRecord, happened: bool) -> None:
        """Record the end of a step. A restored table's schedules follow it unless another table has its old name."""
        restored = life.step is not None and life.step.kind == RESTORE
        follow = not restored or life.to == life.name or not self._is_taken(life.name)
        self._lives.end(life, happened=happened, schedules_follow=follow)

    def _places(self, name: TableName, table_uuid: str) -> Iterator[TableName]:
        yield name
        life = self._lives.find(table_uuid)
        if life is not None:
            places = dict.fromkeys((life.name, life.to, dropped_table_name(table_uuid)))
            yield from (place for place in places if place != name)

    def _is_at(self, name: TableName, table_uuid: str) -> bool:
        with suppress(TableNotFound):
            return self._catalog.load(name).uuid == table_uuid
        return False

    def _is_taken(self, name: TableName) -> bool:
        with suppress(TableNotFound):
            self._catalog.load(name)
            return True
        return False

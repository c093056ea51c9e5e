"""Finds a table by its UUID, through renames, drops and restores."""

from collections.abc import Iterator
from contextlib import suppress

from service.catalog.tables import Catalog, Table
from service.errors import TableNotFound
from service.ledger.places import DROP, RESTORE, TableRecord, TableRecords
from service.model.names import TableName, dropped_table_name


class TableLocator:
    """Finds tables by their UUIDs, and finds out whether renames, drops and restores without a noted end happened."""

    def __init__(self, catalog: Catalog, lives: TableRecords) -> None:
        self._catalog = catalog
        self._lives = lives

    def find(self, name: TableName, table_uuid: str) -> Table:
        """The table of this UUID that had this name, dropped or not; TableNotFound if it is gone."""
        missing: TableNotFound | None = None
        try:
            table = self._catalog.load(name)
            if table.uuid == table_uuid:
                return table
        except TableNotFound as e:
            missing = e
        for place in self._places(name, table_uuid):
            with suppress(TableNotFound):
                table = self._catalog.load(place)
                if table.uuid == table_uuid:
                    return table
        raise missing or TableNotFound(
            f"table {name.table!r} was dropped and created anew meanwhile; send the request again", field="table"
        )

    def settle(self, life: TableRecord) -> None:
        """Note what became of the step that is in progress with a table."""
        self.note(life, self.happened(life))

    def settle_step(self, table_uuid: str, batch: str) -> None:
        """Settle the step of a batch, if it is still in progress."""
        life = self._lives.find(table_uuid)
        if life is not None and life.step is not None and life.step.batch == batch:
            self.settle(life)

    def happened(self, life: TableRecord) -> bool:
        """Whether a step has been taken, by what the catalog says now."""
        is_drop = life.step is not None and life.step.kind == DROP
        return self._is_at(dropped_table_name(life.uuid) if is_drop else life.to, life.uuid)

    def note(self, life: TableRecord, happened: bool) -> None:
        """Note the end of a step. A restored table's schedules follow it unless another has its old name."""
        restored = life.step is not None and life.step.kind == RESTORE
        follow = not restored or life.to == life.name or not self._is_taken(life.name)
        self._lives.end(life, happened=happened, schedules_follow=follow)

    def _places(self, name: TableName, table_uuid: str) -> Iterator[TableName]:
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

"""Where a table is by now, whatever it was called: followed over renames, drops and restores."""

from collections.abc import Iterator
from contextlib import suppress

from service.catalog.tables import Catalog, Table
from service.errors import TableNotFound
from service.ledger.lives import DROP, RENAME, RESTORE, Life, Lives
from service.names import TableName, place_of_dropped

STEPS = {RENAME: "RENAME_TABLE", DROP: "DROP_TABLE", RESTORE: "RESTORE_TABLE"}


class Whereabouts:
    """Finds tables by their UUIDs, and finds out what became of steps that nobody ended."""

    def __init__(self, catalog: Catalog, lives: Lives) -> None:
        self._catalog = catalog
        self._lives = lives

    def find(self, name: TableName, table_uuid: str) -> Table:
        """The table of this UUID, dropped or not, that was called so; TableNotFound where there is none any more."""
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

    def settle(self, life: Life) -> bool:
        """Note what became of the step that is under way with a table; whether it happened."""
        happened = self.happened(life)
        self.note(life, happened)
        return happened

    def settle_step(self, table_uuid: str, batch: str) -> bool:
        """Settle the step of a batch, if that is under way still."""
        life = self._lives.find(table_uuid)
        if life is None or life.batch != batch or life.step is None:
            return False
        self.settle(life)
        return True

    def happened(self, life: Life) -> bool:
        """Whether a step has been taken, by what the catalog says now."""
        return self._is_at(place_of_dropped(life.uuid) if life.step == DROP else life.to, life.uuid)

    def note(self, life: Life, happened: bool) -> None:
        """Note the end of a step. A restored table's schedules follow it unless another has its old name."""
        follow = life.step != RESTORE or life.to == life.name or not self._is_taken(life.name)
        self._lives.end(life, happened=happened, schedules_follow=follow)

    def _places(self, name: TableName, table_uuid: str) -> Iterator[TableName]:
        life = self._lives.find(table_uuid)
        if life is not None:
            places = dict.fromkeys((life.name, life.to, place_of_dropped(table_uuid)))
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

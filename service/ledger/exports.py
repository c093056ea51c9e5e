"""The ledger's record of exported files, and of the state of the table that each of them has."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from sqlalchemy import delete, select

from service.ledger.database import insert_new
from service.ledger.ledger import Ledger
from service.ledger.schema import exports


@dataclass(frozen=True)
class ExportRecord:
    """A file that was exported."""

    place: str
    runs: str
    """A digest of the ids of the ingests that its rows are from."""
    sequence_number: int
    """Of the snapshot that it was written from."""
    records: int
    bytes: int
    exported_ms: int


_FIELDS = tuple(ExportRecord.__dataclass_fields__)


class ExportRecords:
    """The table `exports` of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def of_table(self, table_uuid: str) -> dict[str, ExportRecord]:
        """The files of a table, by place."""
        rows = self._ledger.rows(
            select(*(exports.c[name] for name in _FIELDS)).where(exports.c.table_uuid == table_uuid)
        )
        return {row.place: ExportRecord(**row._mapping) for row in rows}

    def put(self, table_uuid: str, written: ExportRecord) -> None:
        """Record a file, in place of an older one."""
        values = asdict(written)
        with self._ledger._writing() as connection:
            new = insert_new(connection, exports).values(table_uuid=table_uuid, **values)
            key = [exports.c.table_uuid, exports.c.place]
            connection.execute(new.on_conflict_do_update(index_elements=key, set_=values))

    def remove(self, table_uuid: str, places: Iterable[str]) -> None:
        """Delete the records of files that were deleted."""
        with self._ledger._writing() as connection:
            for place in places:
                connection.execute(delete(exports).where(exports.c.table_uuid == table_uuid, exports.c.place == place))

"""Which old notes of changes are not among the last of their table."""

from sqlalchemy import ColumnElement, Connection, func, select

from service.ledger.schema import batches


def not_last(connection: Connection, old: ColumnElement[bool], count: int) -> list[ColumnElement[bool]]:
    """Of old notes, those without a snapshot, and of each table those before its last so many.

    Asked as a reader, so that no writer waits for it.
    """
    made = batches.c.snapshot_id > 0
    tables = select(batches.c.table_uuid).where(old, made).distinct()
    newest_first = func.row_number().over(partition_by=batches.c.table_uuid, order_by=batches.c.ended_ms.desc())
    ranked = select(batches.c.table_uuid, batches.c.ended_ms, newest_first.label("rank"))
    last = ranked.where(made, batches.c.table_uuid.in_(tables)).subquery()
    found = connection.execute(select(last).where(last.c.rank == count)).all()
    without = batches.c.snapshot_id.is_(None) | (batches.c.snapshot_id == 0)
    return [
        old & without,
        *(old & (batches.c.table_uuid == row.table_uuid) & (batches.c.ended_ms < row.ended_ms) for row in found),
    ]

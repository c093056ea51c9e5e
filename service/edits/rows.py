"""UPDATE and DELETE: count what a filter finds, change it, and say what the commit really changed."""

from collections.abc import Callable

from service.catalog.tables import Table
from service.commits.commit import Effect
from service.context import Context
from service.engine.edit import count
from service.names import TableName
from service.predicates import Predicate

Change = Callable[[Table, str], None]


def edit(context: Context, name: TableName, operation: str, predicate: Predicate, change: Change) -> tuple[int, Effect]:
    """Run `change` where the predicate finds rows; the number of rows it concerned, exactly."""
    counted: dict[int | None, int] = {}

    def count_at(table: Table, snapshot_id: int | None) -> int:
        if snapshot_id not in counted:
            counted[snapshot_id] = _count(context, table, predicate, snapshot_id)
        return counted[snapshot_id]

    def change_if_any(table: Table, batch: str) -> None:
        if count_at(table, table.current_snapshot_id):
            change(table, batch)

    effect = context.commits.commit(name, operation, context.request_id, change_if_any)
    if effect.snapshot is None:
        return 0, effect
    # Another process may have committed between the count and the change: count what the change was made on.
    return count_at(effect.after, effect.snapshot.parent_id), effect


def _count(context: Context, table: Table, predicate: Predicate, snapshot_id: int | None) -> int:
    if snapshot_id is None:
        return 0
    pinned = None if snapshot_id == table.current_snapshot_id and not table.head_has_table_schema else snapshot_id
    return context.engine.run(count, table.spark_name, predicate, pinned)

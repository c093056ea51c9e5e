"""UPDATE, DELETE and UPSERT: rows changed in place, and counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.catalog.tables import Table
from service.commits.ask import Ask
from service.commits.commit import Change, Commits, Effect
from service.edits.upsert import keys_of, prepare, refuse_incomplete, updatable
from service.engine.edit import Assignment, cannot_insert, count, delete, merge, update
from service.engine.engine import Engine
from service.errors import FirnError, OutcomeUnknown
from service.predicates import Predicate


@dataclass(frozen=True)
class Edits:
    """Changes rows, one commit an edit."""

    engine: Engine
    commits: Commits

    def update(
        self, table: Table, assignments: tuple[Assignment, ...], predicate: Predicate, ask: Ask
    ) -> tuple[int, Effect]:
        """Set columns in the rows a predicate is true of; how many those were, exactly."""

        def change(current: Table, batch: str) -> None:
            self.engine.run(update, current.spark_name, assignments, predicate, batch)

        return self._counted(table, "UPDATE", predicate, change, ask)

    def delete(self, table: Table, predicate: Predicate, ask: Ask) -> tuple[int, Effect]:
        """Delete the rows a predicate is true of; how many those were, exactly."""

        def change(current: Table, batch: str) -> None:
            self.engine.run(delete, current.spark_name, current.schema, predicate, batch)

        return self._counted(table, "DELETE", predicate, change, ask)

    def upsert(
        self,
        table: Table,
        records: list[Any],
        key_cols: Sequence[str] | None,
        update_cols: Sequence[str] | None,
        ask: Ask,
    ) -> Effect:
        """Check every record, then insert and update in one commit; nothing is written if one does not fit."""
        keys = keys_of(table.schema, key_cols)
        rows, how = prepare(table.schema, records, keys, updatable(table.schema, update_cols, keys))
        if not records:
            return Effect(table, None)

        def change(current: Table, batch: str) -> None:
            if how.needed_to_insert:
                row = self.engine.run(cannot_insert, current.spark_name, rows, how)
                if row is not None:
                    refuse_incomplete(row, records[row], how)
            self.engine.run(merge, current.spark_name, rows, how, batch)

        return self.commits.commit(table, "UPSERT", ask, change)

    def _counted(
        self, table: Table, operation: str, predicate: Predicate, change: Change, ask: Ask
    ) -> tuple[int, Effect]:
        counted: dict[int | None, int] = {}

        def count_at(current: Table, snapshot_id: int | None) -> int:
            if snapshot_id not in counted:
                counted[snapshot_id] = self._count(current, predicate, snapshot_id)
            return counted[snapshot_id]

        def change_if_any(current: Table, batch: str) -> None:
            if count_at(current, current.current_snapshot_id):
                change(current, batch)

        effect = self.commits.commit(table, operation, ask, change_if_any)
        if effect.snapshot is None:
            return 0, effect
        # Somebody else may have committed between the count and the change: count what the change was made on.
        try:
            return count_at(effect.after, effect.snapshot.parent_id), effect
        except FirnError as e:
            raise OutcomeUnknown(
                "the change happened, but the rows it concerned could not be counted; sent again with its "
                "idempotency key it is not done twice, without one do not send it again",
                details={"committed": True, "snapshot_id": effect.snapshot.snapshot_id},
            ) from e

    def _count(self, table: Table, predicate: Predicate, snapshot_id: int | None) -> int:
        if snapshot_id is None:
            return 0
        at_head = snapshot_id == table.current_snapshot_id and not table.head_has_table_schema
        return self.engine.run(count, table.spark_name, predicate, None if at_head else snapshot_id)

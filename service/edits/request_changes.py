"""The change of one request of a commit that edits share, from what the ledger keeps of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from service.catalog.lineage import Commit, current_names
from service.catalog.tables import Table
from service.edits.trace import UndoneChange
from service.engine.jobs.edits.reversal import AddedAndRemoved
from service.engine.session.rows import arrow_schema
from service.ledger.ledger import Batch
from service.ledger.undo_records import UndoRecords
from service.model.keyed.records import RequestRows


@dataclass(frozen=True)
class RequestChange:
    """One request of a shared commit, and what it changed."""

    request_id: str
    rows: AddedAndRemoved


@dataclass(frozen=True)
class SharedChanges:
    """The requests of one shared commit, with the columns that the table has now."""

    batch: Batch
    _rows: RequestRows

    def own(self, request_id: str) -> list[int]:
        return [n for n, name in enumerate(self.batch.request_ids) if name == request_id]

    def after(self, request_id: str) -> list[int]:
        """The other requests that came later."""
        own = self.own(request_id)
        return [n for n in range(min(own) + 1, len(self.batch.request_ids)) if n not in own]

    def change(self, requests: Sequence[int]) -> AddedAndRemoved:
        """What some requests changed, together."""
        came, went = self._rows.of("added", requests), self._rows.of("removed", requests)
        return AddedAndRemoved(came if came.num_rows else None, went if went.num_rows else None)

    def each(self, requests: Sequence[int], undone: frozenset[UndoneChange]) -> list[RequestChange]:
        """Some requests, each on its own, without those that were undone."""
        names = self.batch.request_ids
        standing = (n for n in requests if UndoneChange(self.batch.batch, names[n]) not in undone)
        return [RequestChange(names[n], self.change([n])) for n in standing]


def shared_changes(table: Table, notes: UndoRecords, batch: Batch | None) -> SharedChanges | None:
    """The changes of the requests of a batch; None if no edits share it, or if they are kept no longer."""
    if batch is None or len(batch.request_ids) < 2 or not batch.parts:
        return None
    rows = notes.rows_by_request(batch.batch)
    names = current_names(table, rows.schema_id) if rows else None
    if rows is None or names is None:
        return None
    then = {now: name for name, now in names.items() if now is not None}
    removed, added = (_with_columns(side, table, then) for side in (rows.removed, rows.added))
    return SharedChanges(batch, RequestRows(rows.counts, removed, added, table.schema_id, rows.until_ms))


def expanded(
    table: Table, notes: UndoRecords, commits: Sequence[Commit], undone: frozenset[UndoneChange]
) -> list[Commit | RequestChange]:
    """Commits, with the requests that share one instead of it, where the ledger knows what each of them changed."""
    found: list[Commit | RequestChange] = []
    for commit in commits:
        batch = notes.batch(commit.batch) if commit.batch and commit.is_edit else None
        shared = shared_changes(table, notes, batch)
        found += [commit] if shared is None else shared.each(range(len(shared.batch.request_ids)), undone)
    return found


def _with_columns(rows: pa.Table, table: Table, then: dict[str, str]) -> pa.Table:
    """Rows with the columns of the table; those that were added since are null."""
    columns = [
        rows[then[column.name]].cast(column.type) if column.name in then else pa.nulls(rows.num_rows, column.type)
        for column in arrow_schema(table.schema)
    ]
    return pa.table(dict(zip(table.schema.names, columns, strict=True)))

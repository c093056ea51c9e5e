"""Preview an edit: what it would affect, with samples of rows before and after."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.engine.jobs.edit import EditBase, FoundEdit, FoundRows, filled, find
from service.engine.session.rows import collect, json_rows
from service.engine.session.spark_types import SparkSession
from service.engine.sql import edit_sql as sql
from service.engine.sql.failing import naming_new_rows
from service.model.edits import Edit
from service.model.policy.view import RowView


@dataclass(frozen=True)
class RowSample:
    """A row before and after; None if it does not exist."""

    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


def preview(
    session: SparkSession, base: EditBase, edit: Edit, limit: int, view: RowView | None = None
) -> tuple[FoundRows, list[RowSample]]:
    """The rows that an edit would affect, with their digest, and samples of rows before and after. Writes nothing.

    Every new value is computed, so that errors show before the commit. With a view, the edit is of what that shows.
    """
    with find(session, base, edit, digest=True, values=True, view=view) as found:
        new = found.rows.new
        if new is not None and edit.derived:
            with naming_new_rows(session, new, edit.derived), sql.viewed({sql.NEW: filled(session, edit, new)}):
                sql.new_computed(edit).on(session).collect()
        return found.rows, _samples(found, limit)


def _samples(found: FoundEdit, limit: int) -> list[RowSample]:
    session, edit, new = found.session, found.edit, found.rows.new
    names = edit.schema.names
    samples: list[RowSample] = []
    if found.rows.hits:
        replaced = bool(found.rows.replaced)
        samples = _rows_shown(edit, sql.shown(edit, found.source, limit, replaced=replaced), session)
        if replaced:
            gone = _rows_shown(edit, sql.shown_gone(edit, found.source, limit), session)
            samples = [*samples[: max(limit // 2, limit - len(gone))], *gone][:limit]
    if new is not None:
        # An edit that deletes rows and adds others shows some of both.
        kept = samples[: max(limit // 2, limit - new.num_rows)]
        added = new.select(list(names)).slice(0, limit - len(kept))
        if edit.derived:
            added = collect(filled(session, edit, added))
        samples = [*kept, *(RowSample(None, row) for row in json_rows(added))]
    return samples


def _rows_shown(edit: Edit, statement: sql.SqlStatement, session: SparkSession) -> list[RowSample]:
    names = edit.schema.names
    rows, count = collect(statement.on(session)), len(names)
    before = json_rows(rows.select(range(count)).rename_columns(list(names)))
    after: list[Any] = [None] * len(before)
    if rows.num_columns > count:
        after = json_rows(rows.select(range(count, 2 * count)).rename_columns(list(names)))
    return [RowSample(b, a) for b, a in zip(before, after, strict=True)]

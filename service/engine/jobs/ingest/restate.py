"""Replace all rows of some dates: files that hold only these dates are dropped, and others rewritten without them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from service.engine.iceberg import scan_tasks
from service.engine.iceberg.position_deletes import void_deletes
from service.engine.iceberg.replace import EditedRows, FileReplacement, replace_files
from service.engine.iceberg.staging import StagedFiles, readable, stage_rows
from service.engine.iceberg.swap import CommitTarget, Gate, Tag
from service.engine.iceberg.tables import current
from service.engine.jobs.edit import count_rows
from service.engine.session.java import each, iceberg_class, java_class
from service.engine.session.spark_types import SparkSession
from service.engine.sql.sql import Parameters, identifier, run

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class DatedRows:
    """The rows to replace: those with these dates in a column and, if it is given, with one of these hashes."""

    column: str
    dates: tuple[date, ...]
    hashes: tuple[str, ...] | None = None
    only: tuple[str, tuple[str, ...]] | None = None
    """Another column, and the texts that it has in the rows."""

    def condition(self, parameters: Parameters) -> str:
        listed = ", ".join(f"DATE({parameters.add(str(day))})" for day in self.dates)
        text = f"{identifier(self.column)} IN ({listed})"
        if self.hashes is not None:
            text += f" AND content_hash IN ({', '.join(parameters.add(one) for one in self.hashes)})"
        if self.only is not None:
            column, texts = self.only
            text += f" AND {identifier(column)} IN ({', '.join(parameters.add(one) for one in texts)})"
        return text


@dataclass(frozen=True)
class Replaced:
    """What a commit replaces."""

    records: int = 0
    """Rows that are removed."""
    files: int = 0
    """Files that are removed, rewritten ones included."""
    rewritten_files: int = 0
    rewritten_bytes: int = 0


@dataclass(frozen=True)
class RestateTarget:
    """The table, as it was when the staged files were written, and its newest state."""

    name: str
    uuid: str
    schema_id: int
    snapshot_id: int | None


@dataclass(frozen=True)
class _Found:
    whole: list[Any]
    mixed: list[Any]

    @property
    def tasks(self) -> list[Any]:
        return [*self.whole, *self.mixed]


def replaceable(session: SparkSession, target: RestateTarget, rows: DatedRows) -> Replaced:
    """What replacing the rows would remove. It writes nothing."""
    iceberg = current(session, target.name)
    found = _find(iceberg, target.snapshot_id, rows)
    with _mixed(iceberg, found) as source:
        return _replaced(session, iceberg, found, _count(session, source, rows))


def restate(
    session: SparkSession,
    target: RestateTarget,
    rows: DatedRows | None,
    staged: Sequence[StagedFiles],
    batch: str,
    gate: Gate,
    summary: Mapping[str, str],
    tag: Tag | None = None,
) -> Replaced:
    """Add staged files in one commit, in place of the rows to replace, if any.

    If it fails, the staged files stay. Raises TableChanged if another writer changed the same files.
    """
    commit = CommitTarget(session, target.name, target.uuid, target.schema_id)
    iceberg = commit.load()
    found = _Found([], []) if rows is None else _find(iceberg, target.snapshot_id, rows)
    new = [file for one in staged for file in one.files]
    rewritten = StagedFiles(iceberg.io(), ())
    replaced = Replaced()
    if rows is not None and found.tasks:
        with _mixed(iceberg, found) as source:
            replaced = _replaced(session, iceberg, found, _count(session, source, rows))
            if source is not None:
                rewritten = _rewrite(session, iceberg, source, rows)
    listed = sum(int(task.file().recordCount()) for task in found.tasks)
    written = sum(one.records for one in staged)
    counts = EditedRows(
        replaced.records + rewritten.records, listed, replaced.records, written, rewritten.records + written
    )
    tasks = java_class("java.util.ArrayList")(found.tasks)
    what = FileReplacement(
        batch,
        target.snapshot_id,
        scan_tasks.files_of(tasks) if found.tasks else None,
        [*new, *rewritten.files],
        counts.verify,
        void_deletes=void_deletes(tasks),
        summary=summary,
        tag=tag,
    )
    replace_files(commit, iceberg, what, gate, rewritten.discard)
    return replaced


def _find(iceberg: Any, snapshot_id: int | None, rows: DatedRows) -> _Found:
    """The files that may hold such rows, by the least and greatest dates in their metadata."""
    found = _Found([], [])
    if snapshot_id is None:
        return found
    field = iceberg.schema().findField(rows.column)
    expressions = iceberg_class("expressions.Expressions")
    column = java_class("java.util.ArrayList")([rows.column])
    days = java_class("java.util.ArrayList")([str(day) for day in rows.dates])
    scan = iceberg.newScan().useSnapshot(snapshot_id).filter(getattr(expressions, "in")(rows.column, days))
    planned = scan.includeColumnStats(column).planFiles()
    try:
        for task in each(planned):
            day = only_date(task.file(), field)
            is_whole = rows.hashes is None and rows.only is None and day in rows.dates
            (found.whole if is_whole else found.mixed).append(task)
    finally:
        planned.close()
    return found


def only_date(file: Any, field: Any) -> date | None:
    """The date of all rows of a file; None if they have several, or its metadata does not say."""
    bounds = [file.lowerBounds(), file.upperBounds()]
    texts = [None if one is None else one.get(field.fieldId()) for one in bounds]
    if None in texts:
        return None
    first, last = (iceberg_class("types.Conversions").fromByteBuffer(field.type(), text) for text in texts)
    return _EPOCH + timedelta(int(first)) if first == last else None


@contextmanager
def _mixed(iceberg: Any, found: _Found) -> Iterator[str | None]:
    """A name in SQL, for the block, for the rows of files that hold other rows too."""
    if not found.mixed:
        yield None
        return
    with readable(iceberg, java_class("java.util.ArrayList")(found.mixed)) as source:
        yield source


def _replaced(session: SparkSession, iceberg: Any, found: _Found, in_mixed: int) -> Replaced:
    """What is removed; rows of files with delete files are counted by Spark."""
    plain = [task for task in found.whole if task.deletes().isEmpty()]
    other = [task for task in found.whole if not task.deletes().isEmpty()]
    records = sum(int(task.file().recordCount()) for task in plain) + in_mixed
    if other:
        with readable(iceberg, java_class("java.util.ArrayList")(other)) as source:
            records += count_rows(session, source)
    size = sum(int(task.file().fileSizeInBytes()) for task in found.mixed)
    return Replaced(records, len(found.tasks), len(found.mixed), size)


def _count(session: SparkSession, source: str | None, rows: DatedRows) -> int:
    if source is None:
        return 0
    parameters = Parameters()
    text = f"SELECT count(*) FROM {source} WHERE {rows.condition(parameters)}"
    return int(run(session, text, parameters.values).collect()[0][0])


def _rewrite(session: SparkSession, iceberg: Any, source: str, rows: DatedRows) -> StagedFiles:
    """New files with the rows that stay."""
    parameters = Parameters()
    names = (identifier(str(column.name())) for column in each(iceberg.schema().columns()))
    kept = f"NOT coalesce({rows.condition(parameters)}, FALSE)"
    text = f"SELECT {', '.join(names)} FROM {source} WHERE {kept}"
    return stage_rows(iceberg, run(session, text, parameters.values))

"""The sources of a refresh as views: their rows at both snapshots, and what changed between these."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.iceberg.staging import readable_files
from service.engine.iceberg.tables import PinnedTable, Place, current, pinned_reads
from service.engine.jobs.dynamic import statements
from service.engine.jobs.dynamic.job import RefreshSource
from service.engine.jobs.dynamic.views import RefreshViews
from service.engine.jobs.restore import apart
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql.past import rows_under, under
from service.model.dynamic.plan import delta, new, old

# More rows than this are read by Spark, although this process has them.
_MOST_GIVEN = 100_000


def counted_changes(sources: tuple[RefreshSource, ...]) -> dict[int, int] | None:
    """How many rows of each changed source came or went; None if only Spark can tell."""
    changed = {source.number: source.changed for source in sources if source.changes}
    return {number: rows.num_rows for number, rows in changed.items() if rows} if None not in changed.values() else None


def open_changes(views: RefreshViews, sources: tuple[RefreshSource, ...]) -> dict[int, int]:
    """Make the views of what changed; returns how many rows of each changed source came or went, by their contents."""
    found = {}
    for source in sources:
        if source.changed is not None and source.changed.num_rows <= _MOST_GIVEN:
            count = source.changed.num_rows
            if count:
                views.give(delta(source.number), source.changed)
                found[source.number] = count
        elif source.changes:
            text = statements.weighted(_sides(views, source), source.change_schema)
            kept = views.keep(delta(source.number), text)
            count = views.count(kept)
            if count:
                found[source.number] = count
    return found


@contextmanager
def opened_rows(
    views: RefreshViews, sources: tuple[RefreshSource, ...], read: Collection[str] | None = None
) -> Iterator[None]:
    """Make the views of the rows at the snapshots of this refresh and of the one before: those of these names, or all
    of this refresh. What is read in the block may still raise SnapshotNotFound."""
    session = views.session
    wanted = {}
    for source in sources:
        if read is None or new(source.number) in read:
            wanted[new(source.number)] = source, source.new_id
        if read is not None and old(source.number) in read:
            wanted[old(source.number)] = source, source.old_id if source.changes else source.new_id
    places = [
        (source.table, snapshot_id)
        for source, snapshot_id in wanted.values()
        if snapshot_id is not None and schema_of(session, source.table, snapshot_id) == source.schema_id
    ]
    with pinned_reads(session, places) as pinned:
        for name, (source, snapshot_id) in wanted.items():
            views.make(name, _rows(session, source, snapshot_id, pinned))
        yield


def schema_of(session: SparkSession, table: str, snapshot_id: int) -> int | None:
    """The schema with which a snapshot is read by its id."""
    snapshot = current(session, table).snapshot(snapshot_id)
    return None if snapshot is None or snapshot.schemaId() is None else int(snapshot.schemaId())


def _rows(
    session: SparkSession, source: RefreshSource, snapshot_id: int | None, pinned: Mapping[Place, PinnedTable]
) -> DataFrame:
    fields = source.schema.fields
    if snapshot_id is None:
        return session.sql(statements.no_rows(fields))
    found = pinned.get((source.table, snapshot_id))
    rows = found.frame if found else rows_under(session, current(session, source.table), snapshot_id, source.schema_id)
    return rows.selectExpr(*statements.visible(fields))


def _sides(views: RefreshViews, source: RefreshSource) -> list[tuple[str, int]]:
    """The rows that came and went in each range, and their signs."""
    sides = []
    iceberg = under(current(views.session, source.table), source.schema_id)

    def add(files: SnapshotFiles, sign: int) -> None:
        if files.touched:
            sides.append((views.stack.enter_context(readable_files(views.session, iceberg, files)), sign))

    for one in source.changes:
        differing = one.differing
        if differing is None:
            assert one.old_id is not None, "all rows of a table that was empty came"
            differing = apart(views.session, source.table, one.old_id, one.new_id)
        add(differing[0], -1)
        add(differing[1], 1)
    return sides

"""The result of a refresh: which of its rows go, which come, and the files that are written for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.engine.iceberg import scan_tasks
from service.engine.iceberg.staging import StagedFiles, readable, stage_rows
from service.engine.iceberg.swap import CommitTarget
from service.engine.iceberg.tables import pinned_reads
from service.engine.jobs.dynamic import statements
from service.engine.jobs.dynamic.job import RefreshCounts, RefreshJob, StagedRefresh
from service.engine.jobs.dynamic.sources import schema_of
from service.engine.jobs.dynamic.views import RefreshViews
from service.engine.jobs.edit import SHUFFLED_BYTES, count_rows
from service.engine.jobs.edits.places import FoundPlaces
from service.engine.jobs.edits.publish import StagedEdit
from service.engine.session.rows import collect
from service.engine.session.spark_types import DataFrame
from service.engine.sql.past import rows_under
from service.errors import RowCountMismatch
from service.model.dynamic.plan import RESULT, WEIGHT, ChangedRows, ReplacedKeys
from service.model.names import PLACE_COLUMNS

PLACED = "_firn_placed"
_NET, _HELD, _KEYS, _PLACES = "_firn_net", "_firn_held", "_firn_keys", "_firn_gone"
# So many rows are written by one task, into one file for each partition.
_FEW_ROWS = 50_000


@dataclass(frozen=True)
class NetChange:
    """The rows of the result that come and go, in views."""

    net: str
    held: str
    """The rows among which those that go are, with their places."""
    came: int
    went: int
    repeated: bool
    """Whether a row comes several times."""
    keys: int | None


def open_result(views: RefreshViews, job: RefreshJob) -> None:
    """Make the view of the result's rows, and one with their places."""
    base, fields = job.base, job.schema.fields
    if base.snapshot_id is None:
        views.make(RESULT, statements.no_rows(fields))
        places = ", ".join(f"{zero} AS {name}" for zero, name in zip(("''", "0L"), PLACE_COLUMNS, strict=True))
        views.make(PLACED, f"SELECT *, {places} FROM {RESULT}")
        return
    rows = _stored(views, job)
    views.make(RESULT, rows.selectExpr(*statements.visible(fields)))
    (file, pos), shown = PLACE_COLUMNS, statements.visible(fields)
    placed = rows.select("*", rows.metadataColumn("_file").alias(file), rows.metadataColumn("_pos").alias(pos))
    views.make(PLACED, placed.selectExpr(*shown, file, pos))


def _stored(views: RefreshViews, job: RefreshJob) -> DataFrame:
    base, session = job.base, views.session
    assert base.snapshot_id is not None
    if schema_of(session, base.name, base.snapshot_id) == base.schema_id:
        place = (base.name, base.snapshot_id)
        return views.stack.enter_context(pinned_reads(session, [place]))[place].frame
    iceberg = CommitTarget(session, base.name, base.uuid, base.schema_id).load()
    return rows_under(session, iceberg, base.snapshot_id, base.schema_id)


def net_change(views: RefreshViews, job: RefreshJob, change: ChangedRows | ReplacedKeys) -> NetChange:
    """Add up what changes in the result."""
    schema, held, keys = job.schema, PLACED, None
    if isinstance(change, ChangedRows):
        sides: list[tuple[str, int | str]] = [(f"({statements.typed(change.view, schema, WEIGHT)})", WEIGHT)]
    else:
        by = tuple(schema.field(name) for name in change.columns)
        views.keep(_KEYS, statements.distinct_keys(change.keys, by))
        keys = views.count(_KEYS)
        if keys:
            held = views.keep(_HELD, statements.with_keys(PLACED, _KEYS, by))
        sides = [(f"({statements.typed(change.rows, schema)})", 1), *([(_HELD, -1)] if keys else [])]
        if not keys:
            sides = [(f"({statements.no_rows(schema.fields)})", 1)]
    views.keep(_NET, statements.net(sides, schema))
    came, went, most = (int(number) for number in views.session.sql(statements.sums(_NET)).collect()[0])
    return NetChange(_NET, held, came, went, most > 1, keys)


def stage_net(views: RefreshViews, job: RefreshJob, change: NetChange, source_rows: Mapping[int, int]) -> StagedRefresh:
    """Write the files of a change."""
    base = job.base
    target = CommitTarget(views.session, base.name, base.uuid, base.schema_id)
    iceberg = target.load()
    hits, places = _places(views, job, change) if change.went else ({}, FoundPlaces())
    whole = base.whole(hits)
    rewritten = base.rewritten({path: count for path, count in hits.items() if path not in whole})
    staged, live = _staged(views, job, iceberg, change, rewritten)
    stays = live - sum(hits[path] for path in rewritten)
    removed = {path: base.rows[path] for path in whole | rewritten}
    edit = StagedEdit(
        target,
        base.snapshot_id,
        staged,
        stays + change.came,
        places.in_files(hits.keys() - removed.keys()),
        removed,
        job.summary,
    )
    counts = RefreshCounts(
        inserted=change.came,
        deleted=change.went,
        unchanged=max(0, live_rows(job) - change.went),
        source_rows=source_rows,
        keys=change.keys,
        files_written=len(staged.files),
        files_removed=len(removed),
        files_rewritten=len(rewritten),
    )
    return StagedRefresh(edit, counts)


def live_rows(job: RefreshJob) -> int:
    """How many rows the result has; with delete files for several data files, how many it had written."""
    base = job.base
    counted = (base.live(path) for path in base.rows)
    return sum(rows if live is None else live for live, rows in zip(counted, base.rows.values(), strict=True))


def _places(views: RefreshViews, job: RefreshJob, change: NetChange) -> tuple[dict[str, int], FoundPlaces]:
    """Find the rows that go: how many are in each file, and where."""
    views.keep(_PLACES, statements.places(change.held, change.net, job.schema))
    table = collect(views.session.sql(statements.by_file(_PLACES)))
    hits: dict[str, int] = {}
    for path, count in zip(table["file"].to_pylist(), table["hits"].to_pylist(), strict=True):
        hits[path] = hits.get(path, 0) + int(count)
    if sum(hits.values()) != change.went:
        raise RowCountMismatch("the rows of the result that go", change.went, sum(hits.values()))
    return hits, FoundPlaces(table)


def _staged(
    views: RefreshViews, job: RefreshJob, iceberg: Any, change: NetChange, rewritten: frozenset[str]
) -> tuple[StagedFiles, int]:
    """Write the new rows, and those that stay of files to write again. Also returns how many rows these have now."""
    base, parts, live = job.base, [], 0
    if rewritten:
        assert base.snapshot_id is not None
        tasks = scan_tasks.tasks(iceberg, base.snapshot_id, rewritten)
        source = views.stack.enter_context(readable(iceberg, tasks))
        parts.append(statements.kept_rows(source, _PLACES, job.schema))
        counted = [base.live(path) for path in rewritten]
        live = count_rows(views.session, source) if None in counted else sum(count or 0 for count in counted)
    if change.came:
        parts.append(statements.new_rows(change.net, job.schema, repeated=change.repeated))
    if not parts:
        return StagedFiles(iceberg.io(), ()), live
    rows = views.session.sql(" UNION ALL ".join(parts))
    if base.bytes_of(rewritten) > SHUFFLED_BYTES or change.came > _FEW_ROWS:
        return stage_rows(iceberg, rows, {"distribution-mode": "hash"}), live
    return stage_rows(iceberg, rows.coalesce(1)), live

"""What a refresh has to do: nothing, compute the change, or compute the whole result; from metadata alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from service.catalog.files.data_files import list_files
from service.catalog.tables import Snapshot, Table
from service.commits.compared import changes_between
from service.dynamic.compiling import Compiled
from service.dynamic.refresh.choice import Choice, MeasuredRefresh, Workload, choose
from service.dynamic.refresh.pins import KnownResult, PinnedSource, same_rows
from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.jobs.dynamic.job import SnapshotRange
from service.errors import InvalidRequest
from service.ledger.dynamic_tables import RefreshRecord
from service.model.dynamic.definition import Definition
from service.model.dynamic.plan import RefreshMode
from service.model.times import now_ms

FIRST_BUILD, CURSOR_EXPIRED, RESULT_CHANGED = "FIRST_BUILD", "CURSOR_EXPIRED", "RESULT_CHANGED"
DEFINITION_CHANGED, SCHEMA_CHANGED, REFRESH_MODE = "DEFINITION_CHANGED", "SCHEMA_CHANGED", "REFRESH_MODE"
NO_CHANGES = "NO_CHANGES"
# Reasons for which a table with INCREMENTAL_STRICT is computed in full all the same.
_STATED = frozenset({FIRST_BUILD, CURSOR_EXPIRED, DEFINITION_CHANGED})


class NotIncrementalNow(InvalidRequest):
    """A table with INCREMENTAL_STRICT would have to be computed in full."""


@dataclass(frozen=True)
class SourceChange:
    """A source at the snapshot of the last refresh and at that of this one."""

    source: PinnedSource
    old_id: int | None
    ranges: tuple[SnapshotRange, ...]
    """The parts of its history in which rows may have changed."""


@dataclass(frozen=True)
class Decision:
    """The mode of a refresh, and why."""

    mode: RefreshMode
    reason: str
    """A stable code."""
    changes: tuple[SourceChange, ...] = ()
    """Of all sources, in their order; none for a full refresh."""
    work: Workload | None = None
    expected_s: float | None = None
    other_s: float | None = None

    @property
    def details(self) -> dict[str, Any]:
        """What the history keeps, for the next choices."""
        found: dict[str, Any] = {"expected_s": self.expected_s, "other_s": self.other_s}
        if self.work is not None:
            found |= {
                "changed_rows": self.work.changed_rows,
                "source_rows": self.work.source_rows,
                "removes": self.work.removes,
            }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class Situation:
    """A dynamic table and its sources before a refresh."""

    definition: Definition
    result: Table
    known: KnownResult
    sources: tuple[PinnedSource, ...]

    def is_same(self, other: "Situation") -> bool:
        """Whether another one, of the same sources, has the same table and definition."""
        before, after = self.result.metadata_location, other.result.metadata_location
        return (self.definition, before, self.known) == (other.definition, after, other.known)

    @property
    def rebuild_reason(self) -> str | None:
        """Why the rows that the result has are no starting point; None if they are one."""
        state, snapshots = self.known.state, self.known.snapshots
        if state is None:
            return FIRST_BUILD if self.result.current_snapshot_id is None else RESULT_CHANGED
        if state.definition != self.definition.version:
            return DEFINITION_CHANGED
        for source in self.sources:
            if source.table.uuid not in snapshots:
                return DEFINITION_CHANGED
            old_id = snapshots[source.table.uuid]
            if old_id is not None and source.table.iceberg.snapshot_by_id(old_id) is None:
                return CURSOR_EXPIRED
        return None

    @property
    def with_new_schema(self) -> list[PinnedSource]:
        """The sources that had other columns at the last refresh."""
        state = self.known.state
        then = {} if state is None else {one.uuid: one.schema_id for one in state.sources}
        return [one for one in self.sources if then.get(one.table.uuid) != one.table.schema_id]

    @cached_property
    def changes(self) -> tuple[SourceChange, ...]:
        """How each source changed since the last refresh."""
        found = []
        for source in self.sources:
            table, old_id, new_id = source.table, self.known.snapshots[source.table.uuid], source.snapshot_id
            ranges = () if same_rows(table, old_id, new_id) else changes_between(table, old_id, new_id)
            found.append(SourceChange(source, old_id, ranges))
        return tuple(found)


def without_query(now: Situation) -> Decision | None:
    """The decision, if it does not depend on what the query reads: nothing has changed."""
    if now.rebuild_reason is not None or now.with_new_schema:
        return None
    changes = now.changes
    return None if any(one.ranges for one in changes) else Decision("NO_DATA", NO_CHANGES, changes)


def decide(now: Situation, compiled: Compiled, measured: Callable[[], Sequence[MeasuredRefresh]]) -> Decision:
    """The mode of a refresh whose query is known; `measured` gives its latest refreshes, newest first. Raises
    NotIncrementalNow if the definition does not allow it."""
    mode, reason = now.definition.options.refresh_mode, now.rebuild_reason
    if reason is None and _reads_other_columns(now, compiled):
        reason = SCHEMA_CHANGED
    if reason is not None:
        return in_full(now, reason)
    changes = now.changes
    if not any(one.ranges for one in changes):
        return Decision("NO_DATA", NO_CHANGES, changes)
    if mode == "FULL":
        return in_full(now, REFRESH_MODE)
    refused = compiled.query.not_incremental
    if refused is not None:
        return in_full(now, f"NOT_INCREMENTAL:{refused.code}", refused.message)
    work = workload(changes)
    if mode != "AUTO":
        return Decision("INCREMENTAL", REFRESH_MODE, changes, work)
    choice = choose(work, measured(), now.definition.options.cardinality_threshold, now_ms())
    return _chosen(choice, changes, work)


def workload(changes: Sequence[SourceChange]) -> Workload:
    """What there is to read, by metadata."""
    changed, removes = 0, False
    for change in changes:
        table = change.source.table
        for part in change.ranges:
            if part.differing is None:  # only Spark can tell: as if all of it had changed
                changed += rows_at(table, part.old_id) + rows_at(table, part.new_id)
                removes = True
                continue
            old, new = part.differing
            changed += _rows_of(table, old) + _rows_of(table, new)
            removes = removes or bool(old.touched)
    return Workload(changed, sum(rows_at(one.source.table, one.source.snapshot_id) for one in changes), removes)


def measured_refreshes(latest: Sequence[RefreshRecord], version: str) -> list[MeasuredRefresh]:
    """The refreshes of a definition whose times say something about the next one, newest first."""
    return [
        MeasuredRefresh(
            one.mode,
            one.details["seconds"],
            Workload(one.details.get("changed_rows", 0), one.details["source_rows"], one.details.get("removes", False)),
            one.ended_ms or 0,
        )
        for one in latest
        if one.version == version
        and one.state == "done"
        and (one.mode == "INCREMENTAL" or one.mode == "FULL")
        and "seconds" in one.details
        and "source_rows" in one.details
    ]


def rows_at(table: Table, snapshot_id: int | None) -> int:
    """How many rows a snapshot has, by its summary."""
    if snapshot_id is None:
        return 0
    snapshot: Snapshot = table.snapshot(snapshot_id)
    return max(0, snapshot.counted("total-records") - snapshot.counted("total-position-deletes"))


def _chosen(choice: Choice, changes: tuple[SourceChange, ...], work: Workload) -> Decision:
    kept = changes if choice.mode == "INCREMENTAL" else ()
    return Decision(choice.mode, choice.reason, kept, work, choice.expected_s, choice.other_s)


def in_full(now: Situation, reason: str, why: str = "") -> Decision:
    """The decision to compute the whole result. Raises NotIncrementalNow if the definition does not allow it."""
    if now.definition.options.refresh_mode == "INCREMENTAL_STRICT" and reason not in _STATED:
        raise NotIncrementalNow(
            f"{now.definition.name.table} has REFRESH_MODE INCREMENTAL_STRICT, but would have to be computed in full: "
            f"{reason}{f' ({why})' if why else ''}; {_way_out(reason)}",
            details={"reason": reason},
        )
    rows = sum(rows_at(one.table, one.snapshot_id) for one in now.sources)
    return Decision("FULL", reason, work=Workload(0, rows))


def _way_out(reason: str) -> str:
    if reason == RESULT_CHANGED:
        return "AUDIT_DYNAMIC_TABLE with repair: true brings its rows back to those of its query"
    return "send CREATE_DYNAMIC_TABLE with replace: true, or another REFRESH_MODE by ALTER_DYNAMIC_TABLE"


def _reads_other_columns(now: Situation, compiled: Compiled) -> bool:
    """Whether a column that the query reads is another one than at the last refresh, or has another type."""
    state = now.known.state
    assert state is not None
    for source, then, reads in zip(now.sources, state.sources, compiled.query.sources, strict=True):
        if then.schema_id == source.table.schema_id:
            continue
        schemas = {one.schema_id: one for one in source.table.iceberg.metadata.schemas}
        before, after = schemas.get(-1 if then.schema_id is None else then.schema_id), schemas[source.table.schema_id]
        if before is None:
            return True
        had = {field.name: field for field in before.fields}
        has = {field.name: field for field in after.fields}
        for name in reads.columns:
            old, new = had.get(name), has.get(name)
            if old is None or new is None or (old.field_id, str(old.field_type)) != (new.field_id, str(new.field_type)):
                return True
    return False


def _rows_of(table: Table, files: SnapshotFiles) -> int:
    """How many rows are in files, and at places."""
    rows = {file.path: file.live_rows for file in list_files(table, files.snapshot_id).data} if files.paths else {}
    return sum(rows.get(path, 0) for path in files.paths) + sum(len(places) for places in files.places.values())

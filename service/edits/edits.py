"""UPDATE, DELETE, UPSERT and every other change of rows in place: previewed, or checked and committed."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from service.catalog.files.data_files import list_files, matching_files
from service.catalog.tables import Table
from service.commits.backups import backup_of
from service.commits.commit import CommitResult, Commits, retried_if_changed
from service.commits.edit_base import base_of
from service.commits.holds import SnapshotHolds
from service.commits.locks import TableLocks
from service.commits.tokens import PlanToken
from service.edits.ahead import LaterCommits, StagedAhead, layout_of
from service.edits.upsert_here import apply_upsert
from service.engine.iceberg.swap import Gate, TableChanged, Tag
from service.engine.jobs.edit import EditBase, FoundEdit, FoundRows, find
from service.engine.jobs.edits.preview import RowSample, preview
from service.engine.jobs.edits.publish import publish, stage, stage_applied
from service.engine.session.engine import Engine
from service.engine.session.tags import marked
from service.errors import CommitConflict, InvalidFilter, InvalidRecord, InvalidSchema
from service.guard.policies import Policies
from service.model.call import Call
from service.model.edits import ByFilter, ByKey, Edit
from service.model.filters.pruning import uuid_expression
from service.model.names import EDIT_PROPERTY
from service.model.properties import edit_policy
from service.settings import EditSettings

# The most rows that a dry run shows.
SHOWN = 20
# How often an edit that takes longer than this is found and written before the table's lock is held.
_TRIES_AHEAD, _SLOW_S = 3, 0.5


@dataclass(frozen=True)
class EditOptions:
    """How to make an edit: only preview it, hold it to a preview, keep a backup of the state before it."""

    request: str
    """A digest of the parts of the request that describe the edit."""
    dry_run: bool = False
    token: PlanToken | None = None
    tag: Callable[[Table], Tag | None] = lambda table: None
    partition_filter: Any = None
    """The request's partition filter; the edit's predicate includes it."""
    before_commit: Callable[[str, "EditCounts"], None] = lambda batch, counts: None
    """Called with the batch directly before the commit; raises if the work must not go on."""
    job_tag: str | None = None
    """A tag for the Spark jobs, by which the rows that they write are counted."""


@dataclass(frozen=True)
class EditCounts:
    """The numbers of rows and files that an edit concerns."""

    updated: int = 0
    deleted: int = 0
    inserted: int = 0
    unchanged: int = 0
    files: int = 0
    """Data files with rows that the edit concerns."""
    partitions: int = 0
    scanned_files: int = 0
    replaced: int = 0
    """Rows that an UPSERT removed because a newer row has their key."""


@dataclass(frozen=True)
class EditOutcome:
    """What an edit did, or would do."""

    commit: CommitResult
    counts: EditCounts
    backup: str | None = None
    samples: tuple[RowSample, ...] | None = None
    plan_token: str | None = None


PlanEdit = Callable[[Table], Edit]
"""Returns what a request means for a table as it is now; raises if it cannot be done."""
CheckEdit = Callable[[Edit, FoundRows], None]
"""Raises if an edit must not change the rows that were found."""


@dataclass(frozen=True)
class Edits:
    """Changes rows, in one commit for each edit."""

    engine: Engine
    commits: Commits
    policies: Policies
    holds: SnapshotHolds = field(default_factory=SnapshotHolds)
    settings: EditSettings = field(default_factory=EditSettings)
    _edits: TableLocks = field(default_factory=TableLocks)
    """Edits of one table are made one after another; while one is found and written, WRITEs go on."""

    def run(
        self,
        table: Table,
        operation: str,
        plan: PlanEdit,
        options: EditOptions,
        call: Call,
        check: CheckEdit = lambda edit, found: None,
    ) -> EditOutcome:
        """Make an edit, or preview it."""
        if options.token:
            options.token.check_table(table.uuid)
        if options.dry_run:
            return self._previewed(self.policies.shown(call.principal, table), plan, options, call, check)
        # If it has happened already, it does not matter what the request would mean for the table now.
        if earlier := self.commits.earlier_result(table, call):
            return _outcome(earlier, EditCounts())
        work = _Work(self, table, operation, plan, options, call, check)
        with self._edits.hold(table.uuid, call.check):
            work.follow(self.commits.current(table))
            with ExitStack() as held:
                return self._made(work, held)

    def _made(self, work: "_Work", held: ExitStack) -> EditOutcome:
        """Make an edit: found and written first, then committed under the table's lock; or all of it there, if what
        others committed in the meantime concerns it. `held` keeps the states that it reads."""
        call, later = work.call, LaterCommits(self.engine, work.call, work.base_of)
        ahead = self._staged_ahead(work, later, held)
        ready = [ahead] if ahead else []

        @retried_if_changed()
        def change(current: Table, batch: str) -> None:
            gate, tag = work.gate(batch), work.options.tag(current)
            if ready and later.fits(one := ready.pop(), current):
                one.commit(self.engine, call, batch, gate, tag)
            else:
                work.publish(current, batch, gate, tag)

        try:
            return _outcome(self.commits.commit(work.table, work.operation, call, change), work.made)
        finally:
            if ahead:
                ahead.discard()

    def _staged_ahead(self, work: "_Work", later: LaterCommits, held: ExitStack) -> StagedAhead | None:
        """An edit that was found and written, and fits what others committed since; None if it must be made under the
        table's lock. One that takes long is made again before that, because all other changes would wait for it."""
        for tries_left in reversed(range(_TRIES_AHEAD)):
            held.enter_context(self.holds.building_on(work.table.uuid, work.table.current_snapshot_id))
            started = time.monotonic()
            ahead = work.staged_ahead()
            is_slow = time.monotonic() - started >= _SLOW_S
            if ahead:
                try:
                    if later.catch_up(ahead, lambda: self.commits.current(work.table), fully=is_slow):
                        return ahead
                except BaseException:
                    ahead.discard()
                    raise
                ahead.discard()
            if not (is_slow and tries_left):
                return None
            work.follow(self.commits.current(work.table))
        return None

    def _previewed(
        self, table: Table, plan: PlanEdit, options: EditOptions, call: Call, check: CheckEdit
    ) -> EditOutcome:
        edit = _planned(plan, table)
        options.tag(table)  # only to raise what it may raise
        with self.holds.reading(table.uuid, table.current_snapshot_id):
            base = self.base_of(table, options)
            if table.view is not None:
                # Which files have a value says something about hidden rows.
                base = replace(base, only=None)
            found, samples = self.engine.run_for(call, preview, base, edit, SHOWN, table.view)
        _check(edit, found, check, options)
        token = PlanToken(table.uuid, options.request, found.digest)
        counts = _counts(table, edit, found)
        return EditOutcome(CommitResult(table, None), counts, samples=tuple(samples), plan_token=token.text())

    def base_of(self, table: Table, options: EditOptions) -> EditBase:
        """The state of the table that an edit builds on."""
        row_level = edit_policy(table.properties, self.settings).row_level
        base = base_of(table, row_level, _only(table, options.partition_filter))
        if base.row_level == "auto" and self.holds.is_merged(table.uuid):
            return replace(base, row_level="merge_on_read", keeps_files=True)
        return base


@dataclass
class _Work:
    """An edit in progress."""

    edits: Edits
    table: Table
    operation: str
    plan: PlanEdit
    options: EditOptions
    call: Call
    check: CheckEdit
    made: EditCounts = field(default_factory=EditCounts)

    def __post_init__(self) -> None:
        self.edit = _planned(self.plan, self.table)

    def follow(self, current: Table) -> None:
        """Work on the table as it is now. The request may mean something else for other columns."""
        if layout_of(current) != layout_of(self.table):
            self.edit = _planned(self.plan, current)
        self.table = current

    def base_of(self, table: Table) -> EditBase:
        return self.edits.base_of(table, self.options)

    def gate(self, batch: str) -> Gate:
        """What to call directly before the commit: it raises if the batch or the request is no longer ours."""
        ours = self.edits.commits.commit_gate(batch, self.call)

        def gate() -> None:
            self.options.before_commit(batch, self.made)
            ours()

        return gate

    def staged_ahead(self) -> StagedAhead | None:
        """Find the rows and write what the edit leaves or adds; None if another writer was faster."""
        try:
            if (applied := self._applied()) is not None:
                return applied
            with self._found() as found:
                staged = stage(found, asdict(self.made)) if found.rows.changes_rows else None
                return StagedAhead(self.edit, found.rows, staged, self.table)
        except (CommitConflict, TableChanged):
            return None
        except Exception:
            if self._is_gone():
                return None
            raise

    def _applied(self) -> StagedAhead | None:
        """The same for an UPSERT that is found and applied in this process."""
        options, base = self.options, self.base_of(self.table)
        here = None if options.token or options.job_tag else apply_upsert(self.table, base, self.edit)
        if here is None:
            return None
        _check(self.edit, here.rows, self.check, options)
        self.made = _counts(self.table, self.edit, here.rows)
        staged = None
        if here.rows.changes_rows:
            with self.edits.engine.lend(self.call) as session:
                staged = stage_applied(session, base, self.edit, here.rows, here.come, asdict(self.made))
        return StagedAhead(self.edit, here.rows, staged, self.table)

    def _is_gone(self) -> bool:
        """Whether the state that was read has expired: another instance does not know that it is in use."""
        now, base_id = self.edits.commits.current(self.table), self.table.current_snapshot_id
        return base_id is not None and now.iceberg.snapshot_by_id(base_id) is None

    def publish(self, current: Table, batch: str, gate: Gate, tag: Tag | None) -> None:
        """Find the rows, write and commit."""
        self.follow(current)
        with self._found() as found:
            if found.rows.changes_rows:
                publish(found, batch, asdict(self.made), gate, tag)

    @contextmanager
    def _found(self) -> Iterator[FoundEdit]:
        base, digest, engine = self.base_of(self.table), bool(self.options.token), self.edits.engine
        with ExitStack() as stack:
            session = stack.enter_context(engine.lend(self.call))
            if self.options.job_tag:
                stack.enter_context(marked(session, self.options.job_tag))
            found = stack.enter_context(find(session, base, self.edit, digest=digest))
            _check(self.edit, found.rows, self.check, self.options)
            self.made = _counts(self.table, self.edit, found.rows)
            yield found


def _planned(plan: PlanEdit, table: Table) -> Edit:
    """The edit that a request means, in which rows keep the table's internal columns."""
    return replace(plan(table), kept=tuple(field.name for field in table.schema.internal))


def _check(edit: Edit, found: FoundRows, check: CheckEdit, options: EditOptions) -> None:
    """Raise if the edit must not change the rows that were found."""
    check(edit, found)
    if found.outside is not None:
        raise InvalidRecord(
            f"records[{found.outside}] would be outside of partition_filter, where nothing is read or written; leave "
            "it out, send the columns that the filter names (an omitted column of a new row is null), or widen the "
            "filter",
            field=f"records[{found.outside}]",
            details={"record": found.outside},
        )
    if options.token:
        options.token.check(found.digest)


def _only(current: Table, partition_filter: Any) -> frozenset[str] | None:
    """The files that a filter by uuid leaves; None if Spark finds them just as well, or only Spark can."""
    try:
        pruning = uuid_expression(partition_filter, current.schema, current.partition)
    except InvalidFilter:  # a value beside the uuid has no JSON
        return None
    return None if pruning is None else frozenset(file.path for file in matching_files(current, pruning))


def _counts(table: Table, edit: Edit, found: FoundRows) -> EditCounts:
    stays = isinstance(edit.which, ByKey) or (isinstance(edit.which, ByFilter) and edit.which.assignments is not None)
    groups = {file.path: file.group for file in list_files(table).data} if found.files else {}
    return EditCounts(
        updated=found.hits - found.replaced if stays else 0,
        deleted=0 if stays else found.hits,
        inserted=found.inserted,
        unchanged=found.unchanged,
        files=len(found.files),
        partitions=len({groups[path] for path in found.files}),
        scanned_files=found.scanned_files,
        replaced=found.replaced,
    )


def _outcome(commit: CommitResult, made: EditCounts) -> EditOutcome:
    """The counts come from the commit's snapshot, if there is one: a lost response is made again from that."""
    if commit.snapshot is None:
        return EditOutcome(commit, made)
    counts = EditCounts(**json.loads(commit.snapshot.summary[EDIT_PROPERTY]))
    return EditOutcome(commit, counts, backup_of(commit.snapshot))


def refuse_missing_required(table: Table, operation: str, lacking: Mapping[str, int]) -> None:
    """Raise InvalidSchema if rows that would come back have no value for a required column; `lacking` counts them."""
    if not lacking:
        return
    column, rows = next(iter(lacking.items()))
    listed = ", ".join(f'"{name}": true' for name in lacking)
    in_key = any(name in table.schema.primary_key for name in lacking)
    raise InvalidSchema(
        f"{operation} would bring back rows without a value for {column!r}, which is now required ({rows} rows); "
        f"nothing was changed. Send ALTER_TABLE with set_nullable {{{listed}}}{', primary_key []' if in_key else ''} "
        "first, or read them by QUERY with as_of",
        field=column,
        details={"records_lacking": dict(lacking)},
    )

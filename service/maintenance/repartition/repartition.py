"""REPARTITION from request to report: recorded as a job, one at a time per table, invisible until it is complete."""

import itertools
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from service.catalog.files.data_files import TableFiles, list_files
from service.catalog.files.small import MIB
from service.catalog.tables import Catalog, Snapshot, Table
from service.commits.backups import Backups, backup_of
from service.commits.commit import TRIES, Commits
from service.commits.holds import SnapshotHolds
from service.commits.locks import TableLocks
from service.commits.small_files import SmallFileChecks
from service.engine.iceberg.compaction import sweep
from service.engine.iceberg.layout import Layout
from service.engine.iceberg.new_table import create, prepare
from service.engine.iceberg.swap import TableChanged, Tag
from service.engine.jobs.relayout import LayoutRecipe
from service.engine.jobs.repartition import LayoutSwap, RepartitionTarget, commit
from service.engine.jobs.repartition import goal as plan_goal
from service.engine.session.engine import Engine
from service.engine.sql.derived import typed
from service.errors import CommitConflict, OutcomeUnknown, TableNotFound
from service.jobs.job import Job
from service.jobs.jobs import Jobs, Kind
from service.ledger.jobs import JobRecord
from service.maintenance.compact.merge import folder_of
from service.maintenance.leftovers import clear_up
from service.maintenance.repartition.report import (
    DecideLayout,
    LayoutOptions,
    RepartitionOutcome,
    RepartitionProgress,
    RepartitionStats,
    RepartitionSummary,
)
from service.maintenance.repartition.rounds import RewriteRounds
from service.model.call import Call
from service.model.names import BATCH_PROPERTY, TableName
from service.model.properties import codec_property
from service.model.schema.derived import DerivedColumn, derived_properties
from service.model.schema.types import Field

log = logging.getLogger("firn.maintenance")
OPERATION = "REPARTITION"
# The summary property in which a repartition's snapshot says how it was made, as JSON.
SUMMARY_PROPERTY = "firn-repartition"
ALREADY_SO = "the table is partitioned like this already"


@dataclass
class _Work:
    """A repartition in progress."""

    table: Table
    layout: LayoutOptions
    call: Call
    job: Job
    started: float
    rounds: RewriteRounds = field(init=False)
    published: bool = False
    """Whether a table holds its files for certain."""

    @property
    def tag(self) -> str:
        """The tag of its Spark jobs, and the name of its folder."""
        return f"repartition-{self.job.id}"

    @property
    def progress(self) -> RepartitionProgress:
        return self.call.progress(RepartitionProgress)

    def summary(self, source_snapshot_id: int | None = None) -> dict[str, str]:
        """What its snapshot says of how it was made."""
        rounds, checksum = self.rounds, self.rounds.checksum
        summary = RepartitionSummary(
            rounds=rounds.rounds,
            batches=rounds.batches,
            spark_jobs=rounds.spark_jobs,
            checksum=None if checksum is None else str(checksum),
            duration_ms=round((time.monotonic() - self.started) * 1000),
            source_snapshot_id=source_snapshot_id,
        )
        return {SUMMARY_PROPERTY: json.dumps(asdict(summary))}


@dataclass(frozen=True)
class Repartitions:
    """Gives tables other layouts: rewritten by Spark in a folder of their own, published by one commit."""

    engine: Engine
    catalog: Catalog
    commits: Commits
    small_files: SmallFileChecks
    holds: SnapshotHolds
    backups: Backups
    jobs: Jobs
    _locks: TableLocks = field(default_factory=TableLocks)

    def __post_init__(self) -> None:
        self.jobs.register(OPERATION, Kind("a repartition", self._clean_up))

    def repartition(
        self, table: Table, decide: DecideLayout, call: Call, target: TableName | None = None
    ) -> RepartitionOutcome:
        """Give a table the layout that `decide` returns for the table as it is once its lock is held; with a target,
        make a new table with that layout instead."""
        started = time.monotonic()
        earlier = self.commits.earlier_batch(call)
        if earlier is not None and earlier.snapshot_id is not None:
            return self._outcome(self.catalog.load(target or table.name), earlier.batch, table)
        with self._locks.hold(table.uuid):
            call.check()
            current = self.catalog.load(table.name)  # it may have waited for another repartition
            progress = call.progress(RepartitionProgress)
            progress.phase = "planning"
            layout = decide(current)
            with self.jobs.begin(OPERATION, current, progress, call) as job:
                work = _Work(current, layout, call, job, started)
                outcome = self._replace(work) if target is None else self._create(work, target)
        progress.phase = "done"
        return outcome

    def typed(self, table: Table, derived: tuple[DerivedColumn, ...]) -> tuple[DerivedColumn, ...]:
        """New columns of a table with their types."""
        return self.engine.run(typed, table.schema, derived) if derived else ()

    def _clean_up(self, left: JobRecord) -> dict[str, Any]:
        """Delete what a repartition wrote, unless a snapshot or its new table holds it."""
        folder, target = left.details.get("folder"), left.details.get("target")
        if folder is None:  # it ended before it wrote anything
            return {}
        with suppress(TableNotFound):
            if target is None:
                table = self.commits.find(left.table, left.table_uuid)
                clear_up(self.engine, self.catalog, table, folder, fence=self.jobs.records.shared)
            elif not self._is_at(replace(left.table, table=target), folder):
                self.catalog.remove_folder(folder)
                table = self.commits.find(left.table, left.table_uuid)  # it has access to the same storage
                self.engine.run(sweep, table.spark_name, folder, frozenset())
        return {}

    def _is_at(self, name: TableName, location: str) -> bool:
        with suppress(TableNotFound):
            return self.catalog.load(name).location.rstrip("/") == location.rstrip("/")
        return False

    def _replace(self, work: _Work) -> RepartitionOutcome:
        """Give the table itself the layout."""
        table, layout = work.table, work.layout
        folder = folder_of(table, work.tag)
        goal = self.engine.run(plan_goal, table.spark_name, _layout(table, layout), folder)
        backup = self.backups.wanted(table, layout.backup, layout.backup_hours, OPERATION)
        work.rounds = self._rounds(work, goal, folder)
        with self._deleting_unpublished_files(work):
            work.progress.phase = "rewriting"
            work.rounds.run()
            if not work.rounds.written and goal.unchanged:
                return RepartitionOutcome(False, ALREADY_SO, table.partition, table.current_snapshot_id)
            after, snapshot = self._commit(work, goal, backup)
        return self._outcome(after, snapshot.summary[BATCH_PROPERTY], table)

    def _create(self, work: _Work, target: TableName) -> RepartitionOutcome:
        """A new table with the rows of this one, as they were at some moment near the end."""
        table, location = work.table, self.catalog.new_location(target)
        new = self.engine.run(prepare, table.spark_name, target, _layout(table, work.layout), location)
        rounds = work.rounds = self._rounds(work, new.goal, location)
        with self._deleting_unpublished_files(work, target):
            work.progress.phase = "rewriting"
            rounds.run()
            with rounds.current_table() as current:
                work.progress.phase = "finishing"
                rounds.finish(current, patient=True)

                def change(batch: str) -> None:
                    work.progress.phase = "committing"
                    summary = work.summary(current.current_snapshot_id)
                    gate = work.job.gate_for(self.commits, batch)
                    self.engine.run(create, new, rounds.written, batch, summary, gate)
                    work.published = True

                created = self.commits.create_with_rows(target, work.call, change)
        return self._outcome(created, created.properties[BATCH_PROPERTY], table)

    def _rounds(self, work: _Work, goal: RepartitionTarget, folder: str) -> RewriteRounds:
        table, layout, policy = work.table, work.layout, self.small_files.policy(work.table)
        work.call.on_cancel(lambda: self.engine.cancel(work.tag))
        return RewriteRounds(
            self.engine,
            self.commits,
            self.holds,
            table,
            work.call,
            goal=goal,
            recipe=LayoutRecipe(table.stored_schema, layout.derived, layout.compression, layout.validate),
            batch_rows=layout.batch_rows,
            batch_bytes=policy.group_mb * MIB,
            at_once=policy.concurrent_groups,
            folder=folder,
            tag=work.tag,
            every_file=layout.every_file,
        )

    def _commit(self, work: _Work, goal: RepartitionTarget, backup: Tag | None) -> tuple[Table, Snapshot]:
        rounds, tries = work.rounds, itertools.count(1)

        def change(current: Table, batch: str) -> None:
            with self.holds.building_on(current.uuid, current.current_snapshot_id):
                work.progress.phase = "finishing"
                rounds.finish(current)
                work.progress.phase = "committing"
                # WRITEs of other instances and programs do not wait for our lock: what they append during the last try
                # may stay as it is, unless it lacks a derived column.
                keep_appended_files = next(tries) >= TRIES and not work.layout.derived
                swap = LayoutSwap(rounds.kept, rounds.written, rounds.rows, work.summary(), backup, keep_appended_files)
                gate = work.job.gate_for(self.commits, batch)
                try:
                    self.engine.run(commit, current.spark_name, current.uuid, rounds.source, goal, swap, batch, gate)
                    work.published = True
                except TableChanged as e:
                    raise CommitConflict(f"{e}, several times in a row; send the request again") from e

        result = self.commits.commit(work.table, OPERATION, work.call, change)
        assert result.snapshot is not None  # if it could not be made, that was raised
        return result.after, result.snapshot

    @contextmanager
    def _deleting_unpublished_files(self, work: _Work, target: TableName | None = None) -> Iterator[None]:
        """Record the folder while it may hold files of no snapshot; delete them after a failure. If it is unknown
        whether a snapshot holds them, the next recovery finds out."""
        job = work.job
        job.note(folder=work.rounds.folder, target=None if target is None else target.table)
        try:
            yield
        except OutcomeUnknown:
            job.leaves_files = True
            raise
        except BaseException:
            job.leaves_files = not (work.published or work.rounds.sweep())
            raise

    def _outcome(self, table: Table, batch: str, source: Table) -> RepartitionOutcome:
        """What a repartition did, from its snapshot alone, so that a lost response can be rendered again."""
        snapshot = table.committed_by(batch)
        if snapshot is None or SUMMARY_PROPERTY not in snapshot.summary:
            return RepartitionOutcome(True, None, table.partition, table.current_snapshot_id)
        summary = RepartitionSummary(**json.loads(snapshot.summary[SUMMARY_PROPERTY]))
        read, at = table, snapshot.parent_id
        if table.uuid != source.uuid:
            at = summary.source_snapshot_id
            with suppress(TableNotFound):  # it may have been dropped since
                read = self.catalog.load(source.name)
        before = TableFiles(()) if at is None else list_files(read, at)
        stats = RepartitionStats.of(before, list_files(table, snapshot.snapshot_id), summary)
        log.info("repartitioned %s as %s in %d rounds: %s", source.name, table.name, summary.rounds, stats)
        return RepartitionOutcome(
            True, None, table.partition, snapshot.snapshot_id, stats, backup_of(snapshot), summary.source_snapshot_id
        )


def _layout(table: Table, layout: LayoutOptions) -> Layout:
    properties = derived_properties(layout.derived)
    if layout.compression is not None:
        properties |= codec_property(layout.compression)
    columns = tuple(Field(one.column, one.type) for one in layout.derived if one.type is not None)
    return Layout((*table.hidden_partition, *layout.partition), columns, properties)

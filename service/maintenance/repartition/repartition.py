"""REPARTITION from request to report: noted, one at a time for each table, seen by nobody until it is whole."""

import itertools
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from service.catalog.files.data_files import TableFiles, list_files
from service.catalog.files.small import MIB
from service.catalog.tables import Catalog, Table
from service.commits.backups import Backups, backup_of
from service.commits.commit import TRIES, CommitResult, Commits
from service.commits.holds import SnapshotHolds
from service.commits.locks import TableLocks
from service.commits.small_files import SmallFileChecks
from service.engine.iceberg.compaction import sweep
from service.engine.iceberg.layout import Layout
from service.engine.iceberg.new_table import create, prepare
from service.engine.iceberg.swap import TableChanged, Tag
from service.engine.jobs.relayout import LayoutRecipe
from service.engine.jobs.repartition import LayoutSwap, RepartitionTarget, commit, goal
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
from service.maintenance.repartition.rounds import RewriteRounds, RoundLimits, RoundOptions
from service.model.call import Call
from service.model.names import BATCH_PROPERTY, TableName
from service.model.properties import codec_property
from service.model.schema.derived import DerivedColumn, derived_properties
from service.model.schema.types import Field

log = logging.getLogger("firn.maintenance")
OPERATION = "REPARTITION"
# What a repartition's snapshot says of how it was made, as JSON.
TOLD = "firn-repartition"
SAME = "the table is partitioned like this already"


@dataclass(frozen=True)
class _Asked:
    """A repartition that is about to begin."""

    wanted: LayoutOptions
    call: Call
    job: Job
    started: float


@dataclass
class _Work:
    """One under way."""

    asked: _Asked
    rounds: RewriteRounds
    published: bool = False
    """Whether a table holds its files for certain."""


class Repartitions:
    """Gives tables other layouts: rewritten by Spark in a folder of their own, published by one commit."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        commits: Commits,
        upkeep: SmallFileChecks,
        holds: SnapshotHolds,
        backups: Backups,
        jobs: Jobs,
    ) -> None:
        self.engine = engine
        self.catalog = catalog
        self.commits = commits
        self.upkeep = upkeep
        self.holds = holds
        self.backups = backups
        self.jobs = jobs
        jobs.register(OPERATION, Kind("a repartition", self._clean_up))
        self._line = TableLocks()

    def repartition(
        self, table: Table, decide: DecideLayout, call: Call, target: TableName | None = None
    ) -> RepartitionOutcome:
        """Give a table the layout that `decide` says, given the table as it is when its turn has come; with a target,
        make a new table of it."""
        started = time.monotonic()
        happened = self.commits.earlier_batch(call)
        if happened is not None and happened.snapshot_id is not None:
            return self._told(self.catalog.load(target or table.name), happened.batch, table)
        with self._line.hold(table.uuid):
            call.check()
            current = self.catalog.load(table.name)  # it may have waited for another one
            progress = call.progress(RepartitionProgress)
            progress.phase = "planning"
            wanted = decide(current)
            with self.jobs.begin(OPERATION, current, progress, call) as job:
                asked = _Asked(wanted, call, job, started)
                outcome = self._in_place(current, asked) if target is None else self._elsewhere(current, target, asked)
        progress.phase = "done"
        return outcome

    def _clean_up(self, left: JobRecord) -> dict[str, Any]:
        """Remove what a repartition wrote, unless a snapshot or its new table holds it."""
        folder, target = left.details.get("folder"), left.details.get("target")
        if folder is None:  # it was not as far as to write
            return {}
        with suppress(TableNotFound):
            if target is None:
                table = self.commits.find(left.table, left.table_uuid)
                gone, _ = clear_up(self.engine, self.catalog, table, folder, fence=self.jobs.records.shared)
                if gone:
                    log.info("%d files of a repartition of %s that did not end were removed", gone, table.name)
            elif not self._is_at(replace(left.table, table=target), folder):
                self.catalog.remove_folder(folder)
                table = self.commits.find(left.table, left.table_uuid)  # it has access to the same storage
                self.engine.run(sweep, table.spark_name, folder, frozenset())
        return {}

    def _is_at(self, name: TableName, location: str) -> bool:
        with suppress(TableNotFound):
            return self.catalog.load(name).location.rstrip("/") == location.rstrip("/")
        return False

    def typed(self, table: Table, derived: tuple[DerivedColumn, ...]) -> tuple[DerivedColumn, ...]:
        """New columns of a table with their types."""
        return self.engine.run(typed, table.schema, derived) if derived else ()

    def _in_place(self, table: Table, asked: _Asked) -> RepartitionOutcome:
        tag = f"repartition-{asked.job.id}"
        folder = folder_of(table, tag)
        aim = self.engine.run(goal, table.spark_name, _layout(table, asked.wanted), folder)
        backup = self.backups.wanted(table, asked.wanted.backup, asked.wanted.backup_hours, OPERATION)
        work = self._work(table, asked, aim, folder, tag)
        with self._leaving_nothing(work, None):
            asked.call.progress(RepartitionProgress).phase = "rewriting"
            work.rounds.run()
            if not work.rounds.written and aim.unchanged:
                return RepartitionOutcome(False, SAME, table.partition, table.current_snapshot_id)
            effect = self._commit(table, work, backup)
        snapshot = effect.snapshot
        assert snapshot is not None  # whatever kept it from being made was raised
        return self._told(effect.after, snapshot.summary[BATCH_PROPERTY], table)

    def _elsewhere(self, table: Table, target: TableName, asked: _Asked) -> RepartitionOutcome:
        """A new table of the rows of this one, as they were at some moment near the end."""
        tag, location = f"repartition-{asked.job.id}", self.catalog.new_location(target)
        new = self.engine.run(prepare, table.spark_name, target, _layout(table, asked.wanted), location)
        work = self._work(table, asked, new.goal, location, tag)
        rounds, call = work.rounds, asked.call
        with self._leaving_nothing(work, target):
            asked.call.progress(RepartitionProgress).phase = "rewriting"
            rounds.run()
            with rounds.looking() as current:
                asked.call.progress(RepartitionProgress).phase = "finishing"
                rounds.finish(current, patient=True)

                def change(batch: str) -> None:
                    asked.call.progress(RepartitionProgress).phase = "committing"
                    told = {TOLD: json.dumps(asdict(_so_far(work, current.current_snapshot_id)))}
                    self.engine.run(create, new, rounds.written, batch, told, self._leave(work, batch))
                    work.published = True

                made = self.commits.create_with_rows(target, call, change)
        return self._told(made, made.properties[BATCH_PROPERTY], table)

    def _work(self, table: Table, asked: _Asked, aim: RepartitionTarget, folder: str, tag: str) -> _Work:
        wanted, call = asked.wanted, asked.call
        order = RoundOptions(
            goal=aim,
            recipe=LayoutRecipe(table.stored_schema, wanted.derived, wanted.compression, wanted.validate),
            limits=self._limits(table, wanted),
            folder=folder,
            tag=tag,
            every=wanted.every_file,
            call=call,
        )
        call.on_cancel(lambda: self.engine.cancel(tag))
        return _Work(asked, RewriteRounds(self.engine, self.catalog, self.holds, table, order))

    def _limits(self, table: Table, wanted: LayoutOptions) -> RoundLimits:
        policy = self.upkeep.policy(table)
        return RoundLimits(wanted.batch_rows, policy.group_mb * MIB, policy.concurrent_groups)

    def _commit(self, table: Table, work: _Work, backup: Tag | None) -> CommitResult:
        rounds, call, tries = work.rounds, work.asked.call, itertools.count(1)

        def change(current: Table, batch: str) -> None:
            with self.holds.building_on(current.uuid, current.current_snapshot_id):
                call.progress(RepartitionProgress).phase = "finishing"
                rounds.finish(current)
                call.progress(RepartitionProgress).phase = "committing"
                # Another instance's WRITEs, and other programs, do not wait for us: what they append in the moment of
                # the last try stays where it is, if it lacks no column.
                last = next(tries) >= TRIES and not work.asked.wanted.derived
                what = LayoutSwap(
                    rounds.kept,
                    rounds.written,
                    rounds.rows,
                    {TOLD: json.dumps(asdict(_so_far(work, None)))},
                    backup,
                    appends_may_stay=last,
                )
                at, aim, leave = rounds.read, rounds.order.goal, self._leave(work, batch)
                try:
                    self.engine.run(commit, current.spark_name, current.uuid, at, aim, what, batch, leave)
                    work.published = True
                except TableChanged as e:
                    raise CommitConflict(f"{e}, several times in a row; send the request again") from e

        return self.commits.commit(table, OPERATION, call, change)

    def _leave(self, work: _Work, batch: str) -> Callable[[], None]:
        """What is asked when nothing but the commit is left to do."""

        def gate() -> None:
            self.commits.must_be_ours(batch)
            work.asked.job.commit_gate()

        return gate

    @contextmanager
    def _leaving_nothing(self, work: _Work, target: TableName | None) -> Iterator[None]:
        """Have its folder noted while there are files that no snapshot holds; delete them at a failure, unless nobody
        can tell whether one does: then the next recovery can."""
        rounds, job = work.rounds, work.asked.job
        job.note(folder=rounds.order.folder, target=None if target is None else target.table)
        try:
            yield
        except OutcomeUnknown:
            job.leaves_files = True
            raise
        except BaseException:
            job.leaves_files = not (work.published or self._swept(rounds))
            raise

    def _swept(self, rounds: RewriteRounds) -> bool:
        try:
            rounds.sweep(self.commits.find(rounds.table.name, rounds.table.uuid))
        except Exception as e:  # the next start will
            log.warning("files of a repartition of %s that was given up could not be deleted: %s", rounds.table.name, e)
            return False
        return True

    def _told(self, table: Table, batch: str, source: Table) -> RepartitionOutcome:
        """What the snapshot of a repartition says of it; so an answer that was lost can be made again."""
        snapshot = table.committed_by(batch)
        if snapshot is None or TOLD not in snapshot.summary:
            return RepartitionOutcome(True, None, table.partition, table.current_snapshot_id)
        told = RepartitionSummary(**json.loads(snapshot.summary[TOLD]))
        read, at = table, snapshot.parent_id
        if table.uuid != source.uuid:
            at = told.source_snapshot_id
            with suppress(TableNotFound):  # it may have been dropped since
                read = self.catalog.load(source.name)
        before = TableFiles(()) if at is None else list_files(read, at)
        stats = RepartitionStats.of(before, list_files(table, snapshot.snapshot_id), told)
        log.info("repartitioned %s as %s in %d rounds: %s", source.name, table.name, told.rounds, stats)
        return RepartitionOutcome(
            True,
            None,
            table.partition,
            snapshot.snapshot_id,
            stats,
            backup_of(snapshot),
            told.source_snapshot_id,
        )


def _layout(table: Table, wanted: LayoutOptions) -> Layout:
    properties = derived_properties(wanted.derived)
    if wanted.compression is not None:
        properties |= codec_property(wanted.compression)
    columns = tuple(Field(one.column, one.type) for one in wanted.derived if one.type is not None)
    return Layout((*table.hidden_partition, *wanted.partition), columns, properties)


def _so_far(work: _Work, source_snapshot_id: int | None) -> RepartitionSummary:
    rounds = work.rounds
    checksum = rounds.checksum
    return RepartitionSummary(
        rounds=rounds.rounds,
        batches=rounds.batches,
        spark_jobs=rounds.spark_jobs,
        checksum=None if checksum is None else str(checksum),
        duration_ms=round((time.monotonic() - work.asked.started) * 1000),
        source_snapshot_id=source_snapshot_id,
    )

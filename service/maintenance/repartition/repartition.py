"""REPARTITION from request to report: noted, one at a time for each table, seen by nobody until it is whole."""

import itertools
import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field

from service.catalog.files import TableFiles, list_files
from service.catalog.tables import Catalog, Table
from service.commits.ask import Ask
from service.commits.commit import TRIES, Commits, Effect
from service.commits.holds import Holds
from service.commits.order import Order as Line
from service.derived import Derived, written
from service.edits.backups import Backups, backup_of
from service.engine.compaction import Beaten, sweep
from service.engine.derived import typed
from service.engine.engine import Engine
from service.engine.layout import Layout
from service.engine.relayout import Recipe
from service.engine.repartition import Goal, Swap, commit, goal
from service.engine.swap import Moved, Tag
from service.engine.target import create, prepare
from service.errors import CommitConflict, FirnError, LedgerUnavailable, OutcomeUnknown, TableNotFound
from service.ledger.repartitions import RepartitionNote, RepartitionNotes
from service.ledger.writers import Writer, Writers
from service.names import BATCH_PROPERTY, TableName
from service.properties import written_codec
from service.schema import Field
from service.upkeep.leftovers import clear_up
from service.upkeep.merge import Control, Uncontrolled, folder_of
from service.upkeep.plan import MIB
from service.upkeep.repartition_report import Decide, Outcome, RepartitionProgress, RepartitionStats, Told, Wanted
from service.upkeep.rounds import Limits, Order, Rounds
from service.upkeep.upkeep import Upkeep

log = logging.getLogger("firn.upkeep")
OPERATION = "REPARTITION"
# What a repartition's snapshot says of how it was made, as JSON.
TOLD = "firn-repartition"
SAME = "the table is partitioned like this already"


@dataclass(frozen=True)
class Call:
    """Who asks for a repartition, how he calls it off, and where he sees how far it is."""

    ask: Ask
    control: Control = field(default_factory=Uncontrolled)
    progress: RepartitionProgress = field(default_factory=RepartitionProgress)


@dataclass(frozen=True)
class _Asked:
    """A repartition that is about to begin."""

    wanted: Wanted
    call: Call
    writer: Writer
    started: float


@dataclass
class _Work:
    """One under way."""

    asked: _Asked
    rounds: Rounds
    published: bool = False
    """Whether a table holds its files for certain."""


class Repartitions:
    """Gives tables other layouts: rewritten by Spark in a folder of their own, published by one commit."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        commits: Commits,
        upkeep: Upkeep,
        holds: Holds,
        backups: Backups,
        notes: RepartitionNotes,
        writers: Writers,
    ) -> None:
        self.engine = engine
        self.catalog = catalog
        self.commits = commits
        self.upkeep = upkeep
        self.holds = holds
        self.backups = backups
        self.notes = notes
        self.writers = writers
        self._line = Line()

    def repartition(self, table: Table, decide: Decide, call: Call, target: TableName | None = None) -> Outcome:
        """Give a table the layout that `decide` says, given the table as it is when its turn has come; with a target,
        make a new table of it."""
        started = time.monotonic()
        happened = self.commits.happened(call.ask)
        if happened is not None and happened.snapshot_id is not None:
            return self._told(self.catalog.load(target or table.name), happened.batch, table)
        with self._line.hold(table.uuid):
            call.control.check()
            current = self.catalog.load(table.name)  # it may have waited for another one
            call.progress.phase = "planning"
            wanted = decide(current)
            with self.writers.writing(current.uuid, "a repartition") as writer:
                asked = _Asked(wanted, call, writer, started)
                outcome = self._in_place(current, asked) if target is None else self._elsewhere(current, target, asked)
        call.progress.phase = "done"
        return outcome

    def recover(self) -> int:
        """Remove what repartitions wrote whose instance ended before it could; how many those were."""
        left = self.notes.left()
        for note in left:
            try:
                self._clear_up(note)
            except TableNotFound:
                pass
            except FirnError as e:  # it is tried again
                log.error("what %s of %s left could not be removed: %s", note.id, note.table, e.message)
                continue
            self._forget(note.id)
        return len(left)

    def _clear_up(self, note: RepartitionNote) -> None:
        if note.target is not None:
            if not self._is_at(note.target, note.folder):
                self.catalog.remove_folder(note.folder)
                table = self.commits.find(note.table, note.table_uuid)  # it has access to the same storage
                self.engine.run(sweep, table.spark_name, note.folder, frozenset())
            return
        table = self.commits.find(note.table, note.table_uuid)
        gone, _ = clear_up(self.engine, self.catalog, self.writers, table, note.folder)
        if gone:
            log.info("%d files of a repartition of %s that did not end were removed", gone, table.name)

    def _is_at(self, name: TableName, location: str) -> bool:
        with suppress(TableNotFound):
            return self.catalog.load(name).location.rstrip("/") == location.rstrip("/")
        return False

    def typed(self, table: Table, derived: tuple[Derived, ...]) -> tuple[Derived, ...]:
        """New columns of a table with their types."""
        return self.engine.run(typed, table.schema, derived) if derived else ()

    def _in_place(self, table: Table, asked: _Asked) -> Outcome:
        tag = f"repartition-{uuid.uuid4().hex}"
        folder = folder_of(table, tag)
        aim = self.engine.run(goal, table.spark_name, _layout(table, asked.wanted), folder)
        backup = self.backups.wanted(table, asked.wanted.backup, asked.wanted.backup_hours, OPERATION)
        work = self._work(table, asked, aim, folder, tag)
        with self._leaving_nothing(work, None):
            asked.call.progress.phase = "rewriting"
            work.rounds.run()
            if not work.rounds.written and aim.unchanged:
                return Outcome(False, SAME, table.partition, table.current_snapshot_id)
            effect = self._commit(table, work, backup)
        snapshot = effect.snapshot
        assert snapshot is not None  # whatever kept it from being made was raised
        return self._told(effect.after, snapshot.summary[BATCH_PROPERTY], table)

    def _elsewhere(self, table: Table, target: TableName, asked: _Asked) -> Outcome:
        """A new table of the rows of this one, as they were at some moment near the end."""
        tag, location = f"repartition-{uuid.uuid4().hex}", self.catalog.new_location(target)
        new = self.engine.run(prepare, table.spark_name, target, _layout(table, asked.wanted), location)
        work = self._work(table, asked, new.goal, location, tag)
        rounds, ask = work.rounds, asked.call.ask
        with self._leaving_nothing(work, target):
            asked.call.progress.phase = "rewriting"
            rounds.run()
            with rounds.looking() as current:
                asked.call.progress.phase = "finishing"
                rounds.finish(current, patient=True)

                def change(batch: str) -> None:
                    asked.call.progress.phase = "committing"
                    told = {TOLD: json.dumps(asdict(_so_far(work, current.current_snapshot_id)))}
                    self.engine.run(create, new, rounds.written, batch, told, self._leave(work, batch))
                    work.published = True

                made = self.commits.make(target, ask, change)
        return self._told(made, made.properties[BATCH_PROPERTY], table)

    def _work(self, table: Table, asked: _Asked, aim: Goal, folder: str, tag: str) -> _Work:
        wanted, call = asked.wanted, asked.call
        order = Order(
            goal=aim,
            recipe=Recipe(table.stored_schema, wanted.derived, wanted.compression, wanted.validate),
            limits=self._limits(table, wanted),
            folder=folder,
            tag=tag,
            every=wanted.every_file,
            control=call.control,
            progress=call.progress,
        )
        call.control.on_cancel(lambda: self.engine.cancel(tag))
        return _Work(asked, Rounds(self.engine, self.catalog, self.holds, table, order))

    def _limits(self, table: Table, wanted: Wanted) -> Limits:
        policy = self.upkeep.policy(table)
        return Limits(wanted.batch_rows, policy.group_mb * MIB, policy.groups_at_once)

    def _commit(self, table: Table, work: _Work, backup: Tag | None) -> Effect:
        rounds, call, tries = work.rounds, work.asked.call, itertools.count(1)

        def change(current: Table, batch: str) -> None:
            with self.holds.building_on(current.uuid, current.current_snapshot_id):
                call.progress.phase = "finishing"
                rounds.finish(current)
                call.progress.phase = "committing"
                # Another instance's WRITEs, and other programs, do not wait for us: what they append in the moment of
                # the last try stays where it is, if it lacks no column.
                last = next(tries) >= TRIES and not work.asked.wanted.derived
                what = Swap(
                    rounds.kept,
                    rounds.written,
                    rounds.rows,
                    {BATCH_PROPERTY: batch, TOLD: json.dumps(asdict(_so_far(work, None)))},
                    backup,
                    appends_may_stay=last,
                )
                at, aim, leave = rounds.read, rounds.order.goal, self._leave(work, batch)
                try:
                    self.engine.run(commit, current.spark_name, current.uuid, at, aim, what, leave)
                    work.published = True
                except (Beaten, Moved) as e:
                    raise CommitConflict(f"{e}, several times in a row; send the request again") from e

        return self.commits.commit(table, OPERATION, call.ask, change)

    def _leave(self, work: _Work, batch: str) -> Callable[[], None]:
        """What is asked when nothing but the commit is left to do."""

        def ask() -> None:
            work.asked.call.control.check()
            self.commits.must_be_ours(batch)
            work.asked.call.ask.still_ours()
            work.asked.writer.still_noted()

        return ask

    @contextmanager
    def _leaving_nothing(self, work: _Work, target: TableName | None) -> Iterator[None]:
        """Have it noted while there are files that no snapshot holds; delete them at a failure, unless nobody can tell
        whether one does: then the next start can."""
        rounds = work.rounds
        tag, table = rounds.order.tag, rounds.table
        now_ms = time.time_ns() // 1_000_000
        self.notes.begin(RepartitionNote(tag, table.name, table.uuid, target, rounds.order.folder, now_ms))
        try:
            yield
        except OutcomeUnknown:
            raise
        except BaseException:
            if work.published or self._swept(rounds):
                self._forget(tag)
            raise
        self._forget(tag)

    def _swept(self, rounds: Rounds) -> bool:
        try:
            rounds.sweep(self.commits.find(rounds.table.name, rounds.table.uuid))
        except Exception as e:  # the next start will
            log.warning("files of a repartition of %s that was given up could not be deleted: %s", rounds.table.name, e)
            return False
        return True

    def _forget(self, tag: str) -> None:
        try:
            self.notes.end(tag)
        except LedgerUnavailable as e:  # the next start finds nothing to remove, and forgets it
            log.error("the end of %s could not be noted: %s", tag, e.message)

    def _told(self, table: Table, batch: str, source: Table) -> Outcome:
        """What the snapshot of a repartition says of it; so an answer that was lost can be made again."""
        snapshot = table.committed_by(batch)
        if snapshot is None or TOLD not in snapshot.summary:
            return Outcome(True, None, table.partition, table.current_snapshot_id)
        told = Told(**json.loads(snapshot.summary[TOLD]))
        read, at = table, snapshot.parent_id
        if table.uuid != source.uuid:
            at = told.source_snapshot_id
            with suppress(TableNotFound):  # it may have been dropped since
                read = self.catalog.load(source.name)
        before = TableFiles(()) if at is None else list_files(read, at)
        stats = RepartitionStats.of(before, list_files(table, snapshot.snapshot_id), told)
        log.info("repartitioned %s as %s in %d rounds: %s", source.name, table.name, told.rounds, stats)
        return Outcome(
            True,
            None,
            table.partition,
            snapshot.snapshot_id,
            stats,
            backup_of(snapshot),
            told.source_snapshot_id,
        )


def _layout(table: Table, wanted: Wanted) -> Layout:
    properties = written(wanted.derived)
    if wanted.compression is not None:
        properties |= written_codec(wanted.compression)
    columns = tuple(Field(one.column, one.type) for one in wanted.derived if one.type is not None)
    return Layout((*table.hidden_partition, *wanted.partition), columns, properties)


def _so_far(work: _Work, source_snapshot_id: int | None) -> Told:
    rounds = work.rounds
    checksum = rounds.checksum
    return Told(
        rounds=rounds.rounds,
        batches=rounds.batches,
        spark_jobs=rounds.spark_jobs,
        checksum=None if checksum is None else str(checksum),
        duration_ms=round((time.monotonic() - work.asked.started) * 1000),
        source_snapshot_id=source_snapshot_id,
    )

"""COMPACT from request to report: noted, one at a time for each table, its old snapshots let go after it."""

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from service.catalog.files import list_files, matching_files
from service.catalog.tables import Catalog, Table
from service.commits.ask import Ask
from service.commits.commit import Commits
from service.commits.holds import Holds
from service.commits.order import Order as Line
from service.engine import tags
from service.engine.compaction import Rewrite, rewrite_manifests
from service.engine.engine import Engine
from service.errors import Cancelled, FirnError, LedgerUnavailable, TableNotFound
from service.ledger.compactions import CompactionNote, CompactionNotes
from service.ledger.writers import Writers
from service.metrics.catalogue import CANCELLED, DONE, FAILED, NOTHING
from service.metrics.metrics import Metrics
from service.properties import CompactionPolicy, target_file_size_mb
from service.upkeep.costs import Merge
from service.upkeep.expirer import Expirer
from service.upkeep.leftovers import clear_up
from service.upkeep.merge import Chosen, Control, Made, Merger, Order, Uncontrolled, folder_of
from service.upkeep.plan import MIB, plan, small_bytes
from service.upkeep.report import Outcome, PlannedGroup, Progress, Stats, Tally, Wish
from service.upkeep.retention import NOTHING_EXPIRED, Expired
from service.upkeep.upkeep import Upkeep

log = logging.getLogger("firn.upkeep")
_LOGGED_DAYS = 90


@dataclass(frozen=True)
class Call:
    """Who asks for a compaction, how he calls it off, and where he sees how far it is."""

    ask: Ask
    control: Control = field(default_factory=Uncontrolled)
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True)
class _End:
    """What became of a compaction, before its figures are counted."""

    made: Made
    reason: str | None
    small_files: int
    manifests: int = 0
    expired: Expired = NOTHING_EXPIRED
    plan: tuple[PlannedGroup, ...] | None = None


# What a compaction that is planned is expected to do.
Predict = Callable[[Table, Merge], Mapping[str, Any]]


class Compactions:
    """Compacts tables; plans and counts from metadata, and leaves the merging to Spark."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        commits: Commits,
        upkeep: Upkeep,
        holds: Holds,
        expirer: Expirer,
        notes: CompactionNotes,
        writers: Writers,
        metrics: Metrics | None = None,
        predict: Predict = lambda table, merge: {},
    ) -> None:
        self.engine = engine
        self.catalog = catalog
        self.commits = commits
        self.upkeep = upkeep
        self.holds = holds
        self.expirer = expirer
        self.notes = notes
        self.writers = writers
        self.metrics = metrics or Metrics()
        self.merger = Merger(engine, commits)
        self._predict = predict
        self._line = Line()

    def compact(self, table: Table, wish: Wish, call: Call) -> Outcome:
        """Merge the small files of a table where it is worth it, then let old snapshots go."""
        started = time.monotonic()
        call.progress.phase = "planning"
        policy = self.upkeep.policy(table)
        order = self._order(table, policy, wish, call)
        if wish.dry_run:
            with self.holds.building_on(table.uuid, table.current_snapshot_id):
                chosen = self.merger.choose(table, order)
                groups = tuple(PlannedGroup(g.partition, g.files, g.bytes, g.expected_files) for g in chosen.groups)
                made = _nothing(table)
                end = _End(made, "this was a dry run", self._small_files(made, order), plan=groups)
            return self._outcome(order, end, started)
        note = self._noted(table, wish, call, order.tag)
        try:
            with self._line.hold(table.uuid), self.writers.writing(table.uuid, "a compaction") as writer:
                outcome = self._compact(table, policy, wish, replace(order, still_noted=writer.still_noted), started)
        except Cancelled as e:
            self._ended(note, "cancelled", error=e.message)
            self.metrics.compacted(table.name, CANCELLED)
            raise
        except BaseException as e:
            self._ended(note, "failed", error=str(e))
            self.metrics.compacted(table.name, FAILED)
            raise
        self._ended(note, "done", stats=json.dumps(asdict(outcome.stats)))
        _tell(table, outcome)
        self._count(table, wish, outcome)
        call.progress.phase = "done"
        return outcome

    def recover(self) -> int:
        """Remove what compactions wrote whose instance ended before it could; how many those were. Old notes go."""
        left = [note for note in self.notes.unfinished() if self.notes.left(note)]
        for note in left:
            try:
                self._clear_up(note)
            except TableNotFound:
                pass
            except FirnError as e:  # it is tried again
                log.error("what compaction %s of %s left could not be removed: %s", note.id, note.table, e.message)
                continue
            self._ended(note.id, "interrupted", error="the service ended while it ran; what it had committed stays")
        self.notes.forget(time.time_ns() // 1_000_000 - _LOGGED_DAYS * 24 * 3600 * 1000)
        return len(left)

    def _clear_up(self, note: CompactionNote) -> None:
        table = self.catalog.load(note.table)
        if table.uuid != note.table_uuid:
            return
        gone = clear_up(self.engine, self.catalog, self.writers, table, folder_of(table, note.id))
        if gone:
            log.info("%d files of a compaction of %s that did not end were removed", gone, table.name)

    def _compact(self, table: Table, policy: CompactionPolicy, wish: Wish, order: Order, started: float) -> Outcome:
        table = self.catalog.load(table.name)  # it may have waited for another compaction
        with self.holds.building_on(table.uuid, table.current_snapshot_id):
            made = self._merge(table, policy, wish, order)
            reason = None if made.snapshot else self._why_not(table, policy, wish, order, made)
            small = self._small_files(made, order)
        manifests = self._rewrite_manifests(made, order) if wish.rewrite_manifests else 0
        order.progress.phase = "expiring"
        hours = wish.snapshot_retention_hours
        hours = policy.snapshot_retention_hours if hours is None else hours
        expired = self.expirer.by_age(made.table, hours) if wish.expire_snapshots else NOTHING_EXPIRED
        return self._outcome(order, _End(made, reason, small, manifests, expired), started)

    def _merge(self, table: Table, policy: CompactionPolicy, wish: Wish, order: Order) -> Made:
        # What an earlier attempt with the same key merged is answered, not looked for again.
        happened = self.commits.happened(order.ask)
        if happened is not None and happened.snapshot_id:
            return self._made_before(table, happened.snapshot_id)
        if not policy.active and not wish.force:
            return _nothing(table)
        chosen = self.merger.choose(table, order)
        expected = self._expect(table, chosen, order) if chosen.groups else {}
        made = self.merger.run(table, chosen, order)
        made.expected = expected
        return made

    def _expect(self, table: Table, chosen: Chosen, order: Order) -> Mapping[str, Any]:
        """Note what is expected of it; what cannot be foretold keeps nothing from being done."""
        merged, fewer = sum(g.files for g in chosen.groups), sum(g.expected_files for g in chosen.groups)
        before = len(list_files(table).data)
        merge = Merge(before, before - merged + fewer, merged, sum(g.bytes for g in chosen.groups))
        try:
            expected = self._predict(table, merge)
            self.notes.expect(order.tag, json.dumps(expected))
        except Exception:
            log.warning("what the compaction of %s would take could not be foretold", table.name, exc_info=True)
            return {}
        return expected

    def _order(self, table: Table, policy: CompactionPolicy, wish: Wish, call: Call) -> Order:
        target_mb = wish.target_file_size_mb or target_file_size_mb(table.properties, self.upkeep.settings)
        small = wish.max_file_size_mb * MIB if wish.max_file_size_mb else small_bytes(policy, target_mb)
        how = Rewrite(
            small_bytes=small,
            target_bytes=target_mb * MIB,
            group_bytes=policy.group_mb * MIB,
            filter_json=wish.filter_json,
            compression=wish.compression,
            strategy=wish.strategy or policy.strategy,
            sort_by=policy.sort_by if wish.sort_by is None else wish.sort_by,
        )
        return Order(
            how,
            min_files=wish.min_files or (2 if wish.force else policy.min_files_to_compact),
            max_files=wish.max_files or policy.max_files_per_compaction,
            at_once=policy.groups_at_once,
            ask=call.ask,
            tag=f"compact-{uuid.uuid4().hex}",
            control=call.control,
            progress=call.progress,
        )

    def _made_before(self, table: Table, snapshot_id: int) -> Made:
        current = self.catalog.load(table.name)
        snapshot = current.snapshot(snapshot_id)
        before, after = list_files(current, snapshot.parent_id), list_files(current, snapshot_id)
        made = Made(current, Tally(len(before.data), before.bytes), snapshot)
        made.tally.committed(before, after, snapshot)
        return made

    def _why_not(self, table: Table, policy: CompactionPolicy, wish: Wish, order: Order, made: Made) -> str:
        if made.tally.conflicts:
            return "the files to merge were changed by other writers meanwhile; try again"
        found = plan(matching_files(table, wish.filter_json), order.how.small_bytes, order.min_files)
        if found.worth_merging and not (policy.active or wish.force):
            return "compaction is disabled for this table; force: true compacts it all the same"
        if not found.small:
            return "there are no small files"
        if found.worth_merging:
            return f"{len(found.small)} small files would not become fewer"
        hint = "" if wish.force else "; force: true merges from 2"
        return (
            f"{len(found.small)} small file(s), but no partition has the {order.min_files} that make merging worth it"
            f"{hint}"
        )

    def _rewrite_manifests(self, made: Made, order: Order) -> int:
        order.progress.phase = "rewriting manifests"
        rewritten = 0

        def change(current: Table, batch: str) -> None:
            nonlocal rewritten
            rewritten = self.engine.run(rewrite_manifests, current.spark_name, batch, order.tag)

        effect = self.commits.commit(made.table, "COMPACT", Ask(order.ask.request_id), change)
        made.table = effect.after
        return rewritten

    def _outcome(self, order: Order, end: _End, started: float) -> Outcome:
        made = end.made
        stats = Stats.of(
            made.tally,
            end.expired,
            manifests_rewritten=end.manifests,
            spark_jobs=self._spark_jobs(order),
            small_files_remaining=end.small_files,
            compaction_time_ms=round((time.monotonic() - started) * 1000),
        )
        snapshot_id = made.snapshot.snapshot_id if made.snapshot else made.table.current_snapshot_id
        return Outcome(
            made.snapshot is not None, end.reason, stats, snapshot_id, end.plan, end.expired.kept, made.expected
        )

    def _small_files(self, made: Made, order: Order) -> int:
        at = made.snapshot.snapshot_id if made.snapshot else None
        return sum(1 for file in list_files(made.table, at).data if file.bytes < order.how.small_bytes)

    def _spark_jobs(self, order: Order) -> int:
        try:
            return self.engine.run(tags.jobs_of, order.tag)
        except Exception as e:  # the work is done; only how it was done is not known
            log.warning("the Spark jobs of a compaction could not be counted: %s", e)
            return 0

    def _count(self, table: Table, wish: Wish, outcome: Outcome) -> None:
        told = outcome.stats
        self.metrics.compacted(
            table.name,
            DONE if outcome.compacted else NOTHING,
            files_before=told.files_before,
            files_after=told.files_after,
            files_compacted=told.files_compacted,
            bytes_before=told.bytes_before,
            bytes_after=told.bytes_after,
            conflicts=told.conflicts,
            groups_failed=told.groups_failed,
            seconds=told.compaction_time_ms / 1000,
        )
        own = wish.max_file_size_mb is None and wish.target_file_size_mb is None
        if outcome.compacted and own:  # what counted as small is what does for checks
            self.metrics.checked(table.name, told.small_files_remaining)

    def _noted(self, table: Table, wish: Wish, call: Call, tag: str) -> str:
        wished = {key: value for key, value in asdict(wish).items() if value is not None}
        note = CompactionNote(
            id=tag,
            table=table.name,
            table_uuid=table.uuid,
            asked_by=call.ask.asked_by or f"request {call.ask.request_id}",
            state="running",
            request=json.dumps(wished),
            stats=None,
            predicted=None,
            error=None,
            begun_ms=time.time_ns() // 1_000_000,
        )
        self.notes.begin(note)
        return note.id

    def _ended(self, note: str, state: str, *, stats: str | None = None, error: str | None = None) -> None:
        try:
            self.notes.end(note, state, time.time_ns() // 1_000_000, stats=stats, error=error)
        except LedgerUnavailable as e:  # whoever finds it unfinished looks what became of it
            log.error("the end of compaction %s could not be noted: %s", note, e.message)


def _tell(table: Table, outcome: Outcome) -> None:
    """What was foretold, and what came of it."""
    stats, expected = outcome.stats, outcome.expected
    if not outcome.compacted:
        return
    foretold = ""
    if expected:
        foretold = f"; foretold were {expected.get('files_after')} files after {expected.get('time_ms')} ms"
    log.info(
        "compacted %s: %d files became %d, of %d in all, in %d ms%s",
        table.name,
        stats.files_compacted,
        stats.files_added,
        stats.files_after,
        stats.compaction_time_ms,
        foretold,
    )


def _nothing(table: Table) -> Made:
    files = list_files(table)
    return Made(table, Tally(len(files.data), files.bytes))

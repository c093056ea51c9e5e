"""The merging of small files, from the plan to the last commit: it yields to writers, and keeps what it has done."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from service.catalog.files import list_files
from service.catalog.tables import Snapshot, Table
from service.commits.ask import Ask
from service.commits.commit import Commits
from service.engine import tags
from service.engine.compaction import (
    Beaten,
    Group,
    Planned,
    Rewrite,
    Rewritten,
    commit,
    first_of,
    plan,
    sweep,
)
from service.engine.engine import Engine
from service.engine.rewrite import rewrite
from service.errors import (
    Cancelled,
    CommitConflict,
    EngineUnavailable,
    OutcomeUnknown,
    ShuttingDown,
    TableNotFound,
    TooManyRequests,
)
from service.upkeep.plan import alone, choose, small_beside
from service.upkeep.report import Progress, Tally

log = logging.getLogger("firn.upkeep")

# A long compaction commits what is finished so often: a kill costs no more, and readers gain by it early.
COMMIT_EVERY_S = 10.0
# Before a commit that found no turn is tried again.
_PAUSES_S = (1.0, 4.0)
_LOOK_EVERY_S = 1.0  # whether it was called off
# What ends a compaction at once; any other failure of a group leaves the others theirs.
_HOPELESS = (Cancelled, EngineUnavailable, ShuttingDown, TableNotFound, OutcomeUnknown)


class Control(Protocol):
    """How whoever asked for long work may call it off."""

    def check(self) -> None:
        """Cancelled if it was called off."""

    def on_cancel(self, then: Callable[[], None]) -> None:
        """Have something called when it is called off."""


class Uncontrolled:
    """Nobody can call it off."""

    def check(self) -> None: ...

    def on_cancel(self, then: Callable[[], None]) -> None: ...


@dataclass(frozen=True)
class Order:
    """What is to be done: how files are merged, how many at least and at most, how many groups side by side."""

    how: Rewrite
    min_files: int
    max_files: int
    at_once: int
    ask: Ask
    tag: str
    """Of its Spark jobs, and of the folder that its files lie in."""
    control: Control = field(default_factory=Uncontrolled)
    progress: Progress = field(default_factory=Progress)
    still_noted: Callable[[], None] = lambda: None
    """Raises if others took this instance for gone meanwhile, and may have deleted its files."""

    def leave(self, commits: Commits, batch: str) -> None:
        """Asked when nothing but a commit is left to do: raises where it is somebody else's by now."""
        commits.must_be_ours(batch)
        self.ask.still_ours()
        self.still_noted()


@dataclass(frozen=True)
class Chosen:
    """The groups worth merging, of a table at a snapshot."""

    planned: Planned | None
    groups: tuple[Group, ...]


@dataclass
class Made:
    """What a compaction made so far: the table as it was left, the last snapshot, and the figures."""

    table: Table
    tally: Tally
    snapshot: Snapshot | None = None
    newest: int | None = None
    """A snapshot that it made after this one."""
    expected: Mapping[str, Any] = field(default_factory=dict)
    """What was foretold of it."""


class Merger:
    """Merges small files: planned and committed from metadata, rewritten by Spark."""

    def __init__(
        self,
        engine: Engine,
        commits: Commits,
        clock: Callable[[], float] = time.monotonic,
        every_s: float = COMMIT_EVERY_S,
        pauses_s: Sequence[float] = _PAUSES_S,
    ) -> None:
        self._engine = engine
        self._commits = commits
        self._clock = clock
        self._every_s = every_s
        self._pauses_s = pauses_s

    def choose(self, table: Table, order: Order) -> Chosen:
        """What is worth merging now; no Spark job is needed to know."""
        if table.current_snapshot_id is None:
            return Chosen(None, ())
        planned = self._engine.run(plan, table.spark_name, order.how, table.current_snapshot_id)
        beside = small_beside(list_files(table).data, order.how.small_bytes, {group.path for group in planned.groups})
        worth = choose(planned.groups, order.min_files, order.max_files, beside)
        groups = [g if take == g.files else self._engine.run(first_of, g, take, order.how) for g, take in worth]
        return Chosen(planned, tuple(groups))

    def run(self, made: Made, chosen: Chosen, order: Order) -> None:
        """Merge what was chosen of `made.table`. What others changed meanwhile is left as they made it.

        `made` has what was committed, also where it fails on the way.
        """
        order.control.check()
        if chosen.planned is None or not chosen.groups:
            return
        order.progress.files_total = sum(group.files for group in chosen.groups)
        order.progress.bytes_total = sum(group.bytes for group in chosen.groups)
        order.progress.phase = "rewriting"
        work = _Work(self._engine, self._commits, chosen.planned, order, made, self._pauses_s)
        try:
            with self._leaving_nothing(work):
                self._rewrite_all(work, chosen.groups)
        except OutcomeUnknown:
            raise
        except Exception as e:
            # What a compaction meets whose Spark jobs were cancelled can be anything.
            if isinstance(e, Cancelled) or _called_off(order.control):
                raise Cancelled(details=_so_far(made.tally)) from e
            raise

    def _rewrite_all(self, work: "_Work", groups: Sequence[Group]) -> None:
        order = work.order
        # One session is for the commits, and one is left to those who write and ask meanwhile.
        at_once = max(1, min(order.at_once, len(groups), self._engine.sessions - 2))
        order.control.on_cancel(work.cancel)
        failures: list[Exception] = []
        finished: list[Rewritten] = []
        committed_at = self._clock()
        with ThreadPoolExecutor(at_once, thread_name_prefix="firn-compact") as pool:
            beside = alone([group.bytes for group in groups], at_once)
            running = {pool.submit(work.rewrite, group, n): group for group, n in zip(groups, beside, strict=True)}
            try:
                while running:
                    order.control.check()
                    for done in _ended(running):
                        group = running.pop(done)
                        self._take(work, group, done, finished, failures)
                    if finished and (not running or self._clock() - committed_at >= self._every_s):
                        ready, finished = finished, []
                        work.commit(ready)
                        committed_at = self._clock()
            except BaseException:
                for waiting in running:
                    waiting.cancel()
                work.cancel()
                while not all(future.done() for future in running):
                    wait(running, timeout=_LOOK_EVERY_S)
                    work.cancel()  # a Spark job that began only now has not heard of it
                raise
        if failures and len(failures) == len(groups):
            raise failures[0]

    def _take(
        self,
        work: "_Work",
        group: Group,
        done: "Future[Rewritten]",
        finished: list[Rewritten],
        failures: list[Exception],
    ) -> None:
        try:
            finished.append(done.result())
        except _HOPELESS:
            raise
        except Exception as e:
            work.order.control.check()  # a job that was cancelled fails with anything
            log.warning("a group of %d files of %s could not be rewritten", group.files, work.table.name, exc_info=e)
            work.made.tally.groups_failed += 1
            work.left_files = True
            failures.append(e)
        work.order.progress.files_done += group.files
        work.order.progress.bytes_done += group.bytes

    @contextmanager
    def _leaving_nothing(self, work: "_Work") -> Iterator[None]:
        """Delete what was written and is in no snapshot, unless nobody can tell."""
        try:
            yield
        except OutcomeUnknown:
            raise
        except BaseException:
            work.left_files = True
            raise
        finally:
            if (work.left_files or not work.kept) and not work.unsure:
                work.sweep()


class _Work:
    """One compaction under way."""

    def __init__(
        self,
        engine: Engine,
        commits: Commits,
        planned: Planned,
        order: Order,
        made: Made,
        pauses_s: Sequence[float],
    ) -> None:
        self.table = made.table
        self.order = order
        self.made = made
        self.left_files = False
        self.unsure = False
        self._hopeless: Exception | None = None
        self._engine = engine
        self._commits = commits
        self._planned = planned
        self._pauses_s = pauses_s
        self.kept: set[str] = set()

    def rewrite(self, group: Group, at_once: int) -> Rewritten:
        self.order.control.check()
        if self._hopeless:  # whoever called it off may not have got to this group yet
            raise self._hopeless
        try:
            return self._engine.run(rewrite, self._planned, group, self.order.how, self.folder, self.order.tag, at_once)
        except _HOPELESS as e:
            self._hopeless = e
            raise

    @property
    def folder(self) -> str:
        return folder_of(self.table, self.order.tag)

    def commit(self, done: Sequence[Rewritten]) -> None:
        """Commit groups together; where that is refused, those that can be without those that cannot."""
        waiting = [list(done)]
        while waiting:
            part = waiting.pop()
            try:
                self._commit_patiently(part)
            except Beaten:
                if len(part) > 1:
                    half = len(part) // 2
                    waiting += [part[half:], part[:half]]
                    continue
                self._lose(part)
            except (CommitConflict, TooManyRequests) as e:
                self._still_ours()
                log.warning("%d groups of %s found no turn to be committed: %s", len(part), self.table.name, e.message)
                self._lose(part)

    def _commit_patiently(self, part: Sequence[Rewritten]) -> None:
        """Commit, and again after a while where others were too busy to let this one through."""
        for pause in (*self._pauses_s, None):
            self.order.control.check()
            try:
                return self._commit(part)
            except (CommitConflict, TooManyRequests):
                self._still_ours()
                if pause is None:
                    raise
                time.sleep(pause)

    def _still_ours(self) -> None:
        """CommitConflict where this work was given to somebody else: then there is nothing to try again."""
        self.order.ask.still_ours()
        self.order.still_noted()

    def _lose(self, part: Sequence[Rewritten]) -> None:
        self.made.tally.conflicts += len(part)
        self.left_files = True

    def _commit(self, part: Sequence[Rewritten]) -> None:
        self.order.progress.phase = "committing"

        def change(current: Table, batch: str) -> None:
            def leave() -> None:
                self.order.leave(self._commits, batch)

            self._engine.run(commit, current.spark_name, self.table.uuid, self._planned, part, batch, leave)

        try:
            effect = self._commits.commit(self.table, "COMPACT", self.order.ask, change)
        except OutcomeUnknown:
            self.unsure = True
            raise
        snapshot = effect.snapshot
        assert snapshot is not None  # whatever kept it from being made was raised
        self.kept.update(name for one in part for name in one.names)
        tally = self.made.tally
        tally.partitions.update(one.group.partition for one in part)
        # What others committed meanwhile is not this compaction's doing.
        tally.committed(
            list_files(effect.after, snapshot.parent_id), list_files(effect.after, snapshot.snapshot_id), snapshot
        )
        self.made.table, self.made.snapshot = effect.after, snapshot
        self.order.progress.phase = "rewriting"

    def cancel(self) -> None:
        self._engine.cancel(self.order.tag)

    def sweep(self) -> None:
        try:
            self._engine.run(tags.settle, self.order.tag)
            table = self._commits.find(self.table.name, self.table.uuid)  # it may have another name by now
            self._engine.run(sweep, table.spark_name, self.folder, frozenset(self.kept))
        except Exception as e:  # they take room and do nothing else; CLEAN_ORPHANS finds them
            log.warning("files of a compaction of %s that was given up could not be deleted: %s", self.table.name, e)


def folder_of(table: Table, tag: str) -> str:
    """Where a compaction writes: found again by its tag, should nobody be left who knows its files."""
    data = table.properties.get("write.data.path") or f"{table.location}/data"
    return f"{data.rstrip('/')}/{tag}"


def _called_off(control: Control) -> bool:
    try:
        control.check()
    except Cancelled:
        return True
    return False


def _so_far(tally: Tally) -> dict[str, int]:
    """What a compaction that is called off has committed before."""
    return {
        "files_compacted": tally.files_compacted,
        "files_added": tally.files_added,
        "partitions_compacted": len(tally.partitions),
    }


def _ended(running: "dict[Future[Rewritten], Group]") -> "list[Future[Rewritten]]":
    return list(wait(running, timeout=_LOOK_EVERY_S, return_when=FIRST_COMPLETED).done)

"""The rewriting of a table's rows for another layout, in rounds: the next takes in what others changed meanwhile."""

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass

from service.catalog.files import DataFile, TableFiles, list_files
from service.catalog.tables import Catalog, Table
from service.commits.holds import Holds
from service.engine import tags
from service.engine.checksum import Checksum
from service.engine.compaction import sweep
from service.engine.engine import Engine
from service.engine.relayout import Recipe, rewrite
from service.engine.repartition import Goal, Source, Written, discard, source_at
from service.errors import ChecksumMismatch, CommitConflict, InvalidRequest, RowCountMismatch, TableNotFound
from service.upkeep.cover import Batch, Cover, Left, bundles
from service.upkeep.merge import Control
from service.upkeep.repartition_report import RepartitionProgress

log = logging.getLogger("firn.upkeep")

MOST_ROUNDS = 8
# What is left for the last round, in which nobody else can change the table.
LITTLE_BYTES, FEW_FILES = 32 << 20, 100
# Longer than so many seconds nobody is kept waiting by it.
LONGEST_S = 60.0
# So many new files a commit can hold in the memory of Spark's driver.
MOST_FILES = 200_000


@dataclass(frozen=True)
class Limits:
    """How much is rewritten at one go, and how many such goes side by side."""

    rows: int | None
    bytes: int
    at_once: int


@dataclass(frozen=True)
class Order:
    """What is to be done, for whom, and in which folder; `every` says that no file may stay as it is."""

    goal: Goal
    recipe: Recipe
    limits: Limits
    folder: str
    tag: str
    every: bool
    control: Control
    progress: RepartitionProgress


class Rounds:
    """One table's rows on their way, until every one of them is written anew."""

    def __init__(self, engine: Engine, catalog: Catalog, holds: Holds, table: Table, order: Order) -> None:
        self.order = order
        self.table = table
        self._source: Source | None = None
        self.before = TableFiles(())
        """What the table held when it was last looked at."""
        self.rounds = 0
        self.batches = 0
        self.spark_jobs = 0
        self._engine = engine
        self._catalog = catalog
        self._holds = holds
        self._cover: Cover[Written] = Cover()
        self._kept: list[DataFile] = []
        self._seconds = 0.0
        self._bytes = 0

    def run(self) -> None:
        """Rewrite what there is, and then what has come meanwhile, until that is little."""
        for _ in range(MOST_ROUNDS):
            with self.looking() as current:
                left = self._look(current)
                if self.rounds and left.bytes <= LITTLE_BYTES and len(left.files) <= FEW_FILES:
                    return
                self._write(left)

    def finish(self, current: Table, *, patient: bool = False) -> None:
        """Rewrite what is left of the table as it is now; CommitConflict if others would have to wait too long for it,
        unless it is `patient`, as nobody waits."""
        left = self._look(current)
        if not patient and self._seconds_for(left) > LONGEST_S:
            raise CommitConflict(
                "others change the table faster than it can be rewritten; send the request again at a quieter time"
            )
        if left.files or left.spoilt:
            self._write(left)

    @contextmanager
    def looking(self) -> Iterator[Table]:
        """The table as it is now; none of what it is made of goes away during the block."""
        current = self._now()
        with self._holds.building_on(current.uuid, current.current_snapshot_id):
            yield current

    @property
    def read(self) -> Source:
        """What there is to read of the table as it was last looked at."""
        assert self._source is not None, "nobody has looked yet"
        return self._source

    @property
    def written(self) -> list[Written]:
        """The new files, of all batches that stand."""
        return [batch.written for batch in self._cover.batches]

    @property
    def kept(self) -> list[str]:
        """The paths of files that are as they should be already."""
        return [file.path for file in self._kept]

    @property
    def rows(self) -> int:
        """How many there are to be, of new files and of those that are kept."""
        return sum(one.rows for one in self.written) + sum(file.rows for file in self._kept)

    @property
    def checksum(self) -> Checksum | None:
        """Of all rows that were written, where they were to be checked."""
        found = [one.written for one in self.written]
        return sum((one for one in found if one is not None), Checksum()) if self.order.recipe.validate else None

    def sweep(self, table: Table) -> None:
        """Remove what was written; the table may have another name by now."""
        self._engine.run(tags.settle, self.order.tag)
        self._engine.run(sweep, table.spark_name, self.order.folder, frozenset())

    def cancel(self) -> None:
        self._engine.cancel(self.order.tag)

    def _now(self) -> Table:
        current = self._catalog.load(self.table.name)
        if current.uuid != self.table.uuid:
            raise TableNotFound(
                f"table {current.name.table!r} was dropped and created anew meanwhile; send the request again",
                field="table",
            )
        return current

    def _look(self, current: Table) -> Left[Written]:
        if (current.schema_id, current.spec_id) != (self.table.schema_id, self.table.spec_id):
            raise CommitConflict("another program changed the table's columns or partitioning meanwhile; try again")
        self._source = self._engine.run(source_at, current.spark_name, current.current_snapshot_id)
        self.before = list_files(current)
        as_wanted = () if self.order.every else (self.order.goal.spec_id,)
        self._kept = [file for file in self.before.data if file.group[0] in as_wanted]
        files = [file for file in self.before.data if file.group[0] not in as_wanted]
        return self._cover.look(files, self.read.deletes)

    def _seconds_for(self, left: Left[Written]) -> float:
        return left.bytes * self._seconds / self._bytes if self._bytes else 0.0

    def _write(self, left: Left[Written]) -> None:
        """One round."""
        self.rounds += 1
        progress, limits, started = self.order.progress, self.order.limits, time.monotonic()
        progress.round = self.rounds
        progress.files_total += len(left.files)
        progress.bytes_total += left.bytes
        for batch in left.spoilt:
            self._cover.drop(batch)
            self._engine.run(discard, self.order.goal, batch.written)
        parts = [part for files in (left.again, left.new) for part in bundles(files, limits.rows, limits.bytes)]
        self._write_all(parts)
        self._seconds += time.monotonic() - started
        self._bytes += left.bytes

    def _write_all(self, parts: Sequence[tuple[DataFile, ...]]) -> None:
        # One session is for the commits, and one is left to those who write and ask meanwhile.
        at_once = max(1, min(self.order.limits.at_once, len(parts), self._engine.sessions - 2))
        with ThreadPoolExecutor(at_once, thread_name_prefix="firn-repartition") as pool:
            running = {pool.submit(self._write_one, part): part for part in parts}
            try:
                while running:
                    for done in _ended(running):
                        part = running.pop(done)
                        self._take(part, done.result())
            except BaseException:
                for waiting in running:
                    waiting.cancel()
                self.cancel()
                raise

    def _write_one(self, part: tuple[DataFile, ...]) -> Written:
        order = self.order
        order.control.check()
        paths = [file.path for file in part]
        try:
            return self._engine.run(rewrite, self.read, order.goal, paths, order.recipe, order.tag)
        except Exception:
            order.control.check()  # a job that was cancelled fails with anything
            raise

    def _take(self, part: tuple[DataFile, ...], written: Written) -> None:
        deletes = {file.path: self.read.deletes[file.path] for file in part if file.path in self.read.deletes}
        self._cover.batches.append(Batch(part, deletes, written))
        self.batches += 1
        self.spark_jobs += written.spark_jobs
        if sum(one.files for one in self.written) > MOST_FILES:
            raise InvalidRequest(
                f"this would make more than {MOST_FILES:,} files, which is more than one commit can hold; choose a "
                "coarser partitioning, such as month rather than day, or a larger batch_size",
                field="partition",
            )
        self.order.progress.files_done += len(part)
        self.order.progress.bytes_done += sum(file.bytes for file in part)
        _check(part, written, counted=not deletes)


def _check(part: Sequence[DataFile], written: Written, *, counted: bool) -> None:
    """Refuse new files that do not hold the rows they were made of; metadata counts those of files without deletes."""
    rows = sum(file.rows for file in part)
    if counted and rows != written.rows:
        raise RowCountMismatch("the new layout", rows, written.rows)
    if written.read is None or written.written is None:
        return
    if written.read.rows != written.written.rows:
        raise RowCountMismatch("the new layout", written.read.rows, written.written.rows)
    if written.read != written.written:
        raise ChecksumMismatch(str(written.read), str(written.written))


def _ended(running: "dict[Future[Written], tuple[DataFile, ...]]") -> "list[Future[Written]]":
    return list(wait(running, timeout=1.0, return_when=FIRST_COMPLETED).done)

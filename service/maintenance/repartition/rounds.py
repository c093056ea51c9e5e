"""A table's rows rewritten for another layout, in rounds: each takes in what others changed during the one before."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from service.catalog.files.data_files import DataFile, TableFiles, list_files
from service.catalog.tables import Catalog, Table
from service.commits.holds import SnapshotHolds
from service.engine.jobs.relayout import LayoutRecipe, rewrite
from service.engine.jobs.repartition import RepartitionSource, RepartitionTarget, WrittenFiles, discard, source_at
from service.engine.session.engine import Engine
from service.engine.sql.checksum import Checksum
from service.errors import ChecksumMismatch, CommitConflict, InvalidRequest, RowCountMismatch, TableNotFound
from service.maintenance.repartition.cover import RemainingWork, RewriteCoverage, RewrittenBatch, bundles
from service.maintenance.repartition.report import RepartitionProgress
from service.maintenance.rewriter import FileRewriter
from service.model.call import Call

MOST_ROUNDS = 8
# What is left for the last round, which holds the table's lock.
LITTLE_BYTES, FEW_FILES = 32 << 20, 100
# The longest that it may keep others waiting.
LONGEST_S = 60.0
# As many new files as a commit can hold in the memory of Spark's driver.
MOST_FILES = 200_000


@dataclass(frozen=True)
class RoundLimits:
    """How much is rewritten in one batch, and how many batches side by side."""

    rows: int | None
    bytes: int
    at_once: int


@dataclass(frozen=True)
class RoundOptions:
    """What is to be done, and in which folder; `every` says that no file may stay as it is."""

    goal: RepartitionTarget
    recipe: LayoutRecipe
    limits: RoundLimits
    folder: str
    tag: str
    every: bool
    call: Call

    @property
    def progress(self) -> RepartitionProgress:
        return self.call.progress(RepartitionProgress)


class RewriteRounds:
    """The rounds of one table, until every row is rewritten."""

    def __init__(
        self, engine: Engine, catalog: Catalog, holds: SnapshotHolds, table: Table, order: RoundOptions
    ) -> None:
        self.order = order
        self.table = table
        self._source: RepartitionSource | None = None
        self.before = TableFiles(())
        """What the table held when it was last looked at."""
        self.rounds = 0
        self.batches = 0
        self.spark_jobs = 0
        self._engine = engine
        self._catalog = catalog
        self._holds = holds
        self._rewriter: FileRewriter[_Batch, WrittenFiles] = FileRewriter(
            engine, order.tag, order.limits.at_once, order.call, order.progress
        )
        self._cover: RewriteCoverage[WrittenFiles] = RewriteCoverage()
        self._kept: list[DataFile] = []
        self._seconds = 0.0
        self._bytes = 0

    def run(self) -> None:
        """Rewrite what there is, and then what has come in the meantime, until that is little."""
        for _ in range(MOST_ROUNDS):
            with self.looking() as current:
                left = self._look(current)
                if self.rounds and left.bytes <= LITTLE_BYTES and len(left.files) <= FEW_FILES:
                    return
                self._write(left)

    def finish(self, current: Table, *, patient: bool = False) -> None:
        """Rewrite what is left of the table as it is now. Raises CommitConflict if others would wait too long for it,
        unless nobody waits: then it is `patient`."""
        left = self._look(current)
        if not patient and self._seconds_for(left) > LONGEST_S:
            raise CommitConflict(
                "others change the table faster than it can be rewritten; send the request again at a quieter time"
            )
        if left.files or left.spoilt:
            self._write(left)

    @contextmanager
    def looking(self) -> Iterator[Table]:
        """The table as it is now, whose files stay during the block."""
        current = self._now()
        with self._holds.building_on(current.uuid, current.current_snapshot_id):
            yield current

    @property
    def read(self) -> RepartitionSource:
        """What there is to read in the table as it was last looked at."""
        assert self._source is not None, "nobody has looked yet"
        return self._source

    @property
    def written(self) -> list[WrittenFiles]:
        """The new files of all valid batches."""
        return [batch.written for batch in self._cover.batches]

    @property
    def kept(self) -> list[str]:
        """The paths of files that have the new layout already."""
        return [file.path for file in self._kept]

    @property
    def rows(self) -> int:
        """The number of rows in new files and in those that are kept."""
        return sum(one.rows for one in self.written) + sum(file.rows for file in self._kept)

    @property
    def checksum(self) -> Checksum | None:
        """Of all rows that were written, if they are validated."""
        found = [one.written for one in self.written]
        return sum((one for one in found if one is not None), Checksum()) if self.order.recipe.validate else None

    def sweep(self, table: Table) -> None:
        """Delete what was written; the table may have been renamed."""
        self._rewriter.sweep(table, self.order.folder)

    def _now(self) -> Table:
        current = self._catalog.load(self.table.name)
        if current.uuid != self.table.uuid:
            raise TableNotFound(
                f"table {current.name.table!r} was dropped and created anew in the meantime; send the request again",
                field="table",
            )
        return current

    def _look(self, current: Table) -> RemainingWork[WrittenFiles]:
        if (current.schema_id, current.spec_id) != (self.table.schema_id, self.table.spec_id):
            raise CommitConflict(
                "another program changed the table's columns or partitioning in the meantime; try again"
            )
        self._source = self._engine.run(source_at, current.spark_name, current.current_snapshot_id)
        self.before = list_files(current)
        as_wanted = () if self.order.every else (self.order.goal.spec_id,)
        self._kept = [file for file in self.before.data if file.group[0] in as_wanted]
        files = [file for file in self.before.data if file.group[0] not in as_wanted]
        return self._cover.look(files, self.read.deletes)

    def _seconds_for(self, left: RemainingWork[WrittenFiles]) -> float:
        return left.bytes * self._seconds / self._bytes if self._bytes else 0.0

    def _write(self, left: RemainingWork[WrittenFiles]) -> None:
        """One round."""
        self.rounds += 1
        limits, started = self.order.limits, time.monotonic()
        self.order.progress.round = self.rounds
        for batch in left.spoilt:
            self._cover.drop(batch)
            self._engine.run(discard, self.order.goal, batch.written)
        parts = [part for files in (left.again, left.new) for part in bundles(files, limits.rows, limits.bytes)]
        with self._rewriter.rewriting([_Batch(part) for part in parts], self._rewrite) as ended:
            for batches in ended:
                for one, result in batches:
                    self._take(one.data, result.result())
        self._seconds += time.monotonic() - started
        self._bytes += left.bytes

    def _rewrite(self, batch: "_Batch") -> WrittenFiles:
        order, paths = self.order, [file.path for file in batch.data]
        return self._engine.run_for(order.call, rewrite, self.read, order.goal, paths, order.recipe, order.tag)

    def _take(self, part: tuple[DataFile, ...], written: WrittenFiles) -> None:
        deletes = {file.path: self.read.deletes[file.path] for file in part if file.path in self.read.deletes}
        self._cover.batches.append(RewrittenBatch(part, deletes, written))
        self.batches += 1
        self.spark_jobs += written.spark_jobs
        if sum(one.files for one in self.written) > MOST_FILES:
            raise InvalidRequest(
                f"this would make more than {MOST_FILES:,} files, which is more than one commit can hold; choose a "
                "coarser partitioning, such as month rather than day, or a larger batch_size",
                field="partition",
            )
        _check(part, written, counted=not deletes)


@dataclass(frozen=True)
class _Batch:
    """Files whose rows are rewritten together."""

    data: tuple[DataFile, ...]

    @property
    def files(self) -> int:
        return len(self.data)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.data)


def _check(part: Sequence[DataFile], written: WrittenFiles, *, counted: bool) -> None:
    """Raise if new files do not have the rows of the old ones; metadata counts those of files without deletes."""
    rows = sum(file.rows for file in part)
    if counted and rows != written.rows:
        raise RowCountMismatch("the new layout", rows, written.rows)
    if written.read is None or written.written is None:
        return
    if written.read.rows != written.written.rows:
        raise RowCountMismatch("the new layout", written.read.rows, written.written.rows)
    if written.read != written.written:
        raise ChecksumMismatch(str(written.read), str(written.written))

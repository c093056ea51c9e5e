"""Rewrites a table's rows for another layout, in rounds: each includes what others changed during the one before."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from service.catalog.files.data_files import DataFile, TableFiles, list_files
from service.catalog.tables import Table
from service.commits.commit import Commits
from service.commits.holds import SnapshotHolds
from service.engine.jobs.relayout import LayoutRecipe, rewrite
from service.engine.jobs.repartition import (
    RepartitionSource,
    RepartitionTarget,
    WrittenFiles,
    discard,
    source_at,
    together,
)
from service.engine.session.engine import Engine
from service.engine.sql.checksum import Checksum
from service.errors import ChecksumMismatch, CommitConflict, InvalidRequest, RowCountMismatch
from service.maintenance.repartition.cover import (
    RemainingWork,
    RewriteCoverage,
    RewrittenBatch,
    bundles,
    parts_of,
    slices,
)
from service.maintenance.repartition.report import RepartitionProgress
from service.maintenance.rewriter import FileRewriter
from service.model.call import Call

MOST_ROUNDS = 8
# How much may be left for the last round, which holds the table's lock.
LITTLE_BYTES, FEW_FILES = 32 << 20, 100
# How long the last round may keep others waiting.
LONGEST_S = 60.0
# As many new files as a commit can hold in the memory of Spark's driver.
MOST_FILES = 200_000


@dataclass(eq=False)
class RewriteRounds:
    """Rewrites one table in rounds, until every row is rewritten, in batches of limited rows and bytes."""

    engine: Engine
    commits: Commits
    holds: SnapshotHolds
    table: Table
    call: Call
    goal: RepartitionTarget
    recipe: LayoutRecipe
    batch_rows: int | None
    batch_bytes: int
    at_once: int
    folder: str
    tag: str
    every_file: bool
    rounds: int = field(default=0, init=False)
    batches: int = field(default=0, init=False)
    spark_jobs: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.progress = self.call.progress(RepartitionProgress)
        self._rewriter: FileRewriter[_Batch, WrittenFiles] = FileRewriter(
            self.engine, self.tag, self.at_once, self.call, self.progress
        )
        self._source: RepartitionSource | None = None
        self._coverage: RewriteCoverage[WrittenFiles] = RewriteCoverage()
        self._kept: list[DataFile] = []
        self._seconds = 0.0
        self._bytes = 0

    def run(self) -> None:
        """Rewrite the table's files, and then what has changed in the meantime, until little is left."""
        for _ in range(MOST_ROUNDS):
            with self.current_table() as current:
                remaining = self._remaining(current)
                if self.rounds and remaining.bytes <= LITTLE_BYTES and len(remaining.files) <= FEW_FILES:
                    return
                self._write(remaining)

    def finish(self, current: Table, *, patient: bool = False) -> None:
        """Rewrite what is left of the current table. Unless `patient`, raises CommitConflict if others would have to
        wait too long for it."""
        remaining = self._remaining(current)
        seconds = remaining.bytes * self._seconds / self._bytes if self._bytes else 0.0
        if not patient and seconds > LONGEST_S:
            raise CommitConflict(
                "others change the table faster than it can be rewritten; send the request again at a quieter time"
            )
        if remaining.files or remaining.spoilt:
            self._write(remaining)

    @contextmanager
    def current_table(self) -> Iterator[Table]:
        """The current table, whose files are kept during the block."""
        current = self.commits.current(self.table)
        with self.holds.building_on(current.uuid, current.current_snapshot_id):
            yield current

    @property
    def source(self) -> RepartitionSource:
        """What there is to read in the table, as of the last look."""
        assert self._source is not None, "the table was not read yet"
        return self._source

    @property
    def written(self) -> list[WrittenFiles]:
        """The new files of all valid batches."""
        return [batch.written for batch in self._coverage.batches]

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
        """The checksum of all rows that were written, if they are validated."""
        found = (files.written for files in self.written if files.written is not None)
        return sum(found, Checksum()) if self.recipe.validate else None

    def sweep(self) -> bool:
        """Delete what was written; false if that failed."""
        return self._rewriter.sweep(self.commits, self.table, self.folder)

    def _remaining(self, current: Table) -> RemainingWork[WrittenFiles]:
        if (current.schema_id, current.spec_id) != (self.table.schema_id, self.table.spec_id):
            raise CommitConflict(
                "another program changed the table's columns or partitioning in the meantime; try again"
            )
        self._source = self.engine.run(source_at, current.spark_name, current.current_snapshot_id)
        listed = list_files(current).data
        has_layout = () if self.every_file else (self.goal.spec_id,)
        self._kept = [file for file in listed if file.group[0] in has_layout]
        files = [file for file in listed if file.group[0] not in has_layout]
        return self._coverage.compare(files, self.source.deletes)

    def _write(self, remaining: RemainingWork[WrittenFiles]) -> None:
        """One round."""
        self.rounds += 1
        started = time.monotonic()
        self.progress.round = self.rounds
        for spoilt in remaining.spoilt:
            self._coverage.batches.remove(spoilt)
            self.engine.run(discard, self.goal, spoilt.written)
        batches = [
            _Batch(bundle)
            for files in (remaining.again, remaining.new)
            for bundle in bundles(files, self.batch_rows, self.batch_bytes)
        ]
        with self._rewriter.rewriting(batches, self._rewrite) as rewritten:
            for ended in rewritten:
                for batch, result in ended:
                    self._add(batch.data, result.result())
        self._seconds += time.monotonic() - started
        self._bytes += remaining.bytes

    def _rewrite(self, batch: "_Batch") -> WrittenFiles:
        paths = [file.path for file in batch.data]
        parts = parts_of(batch.data, self.batch_rows)
        if parts > MOST_FILES:
            raise _too_many_files()
        given = (self.source, self.goal, paths, self.recipe, self.tag)
        if parts == 1:
            return self.engine.run_for(self.call, rewrite, *given)
        # One after the other, so that no more of these rows are rewritten at a time.
        written = [self.engine.run_for(self.call, rewrite, *given, some) for some in slices(batch.rows, parts)]
        return self.engine.run(together, written)

    def _add(self, files: tuple[DataFile, ...], written: WrittenFiles) -> None:
        deletes = {file.path: self.source.deletes[file.path] for file in files if file.path in self.source.deletes}
        self._coverage.batches.append(RewrittenBatch(files, deletes, written))
        self.batches += parts_of(files, self.batch_rows)
        self.spark_jobs += written.spark_jobs
        if sum(one.files for one in self.written) > MOST_FILES:
            raise _too_many_files()
        _check(files, written, has_deletes=bool(deletes))


class _Batch(TableFiles):
    """Files whose rows are rewritten together."""

    @property
    def files(self) -> int:
        return len(self.data)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.data)


def _too_many_files() -> InvalidRequest:
    return InvalidRequest(
        f"this would make more than {MOST_FILES:,} files, which is more than one commit can hold; choose a coarser "
        "partitioning, such as month rather than day, or a larger batch_size",
        field="partition",
    )


def _check(files: Sequence[DataFile], written: WrittenFiles, *, has_deletes: bool) -> None:
    """Raise if new files do not have the rows of the old ones; metadata counts rows only of files without deletes."""
    rows = sum(file.rows for file in files)
    if not has_deletes and rows != written.rows:
        raise RowCountMismatch("the new layout", rows, written.rows)
    if written.read is None or written.written is None:
        return
    if written.read.rows != written.written.rows:
        raise RowCountMismatch("the new layout", written.read.rows, written.written.rows)
    if written.read != written.written:
        raise ChecksumMismatch(str(written.read), str(written.written))

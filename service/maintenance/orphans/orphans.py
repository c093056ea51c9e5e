"""Files in a table's folder that nothing refers to: found, and removed where nobody can be about to commit them."""

import logging
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from service.catalog.files.storage import StoredFile, checksummed_file, read_start, stored_files
from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.commits.file_removal import delete_files, owns_its_files
from service.engine.jobs.orphans import compare
from service.engine.session.engine import Engine
from service.errors import CommitConflict, InvalidRequest, TableNotFound
from service.jobs.jobs import Jobs
from service.ledger.ledger import Ledger

log = logging.getLogger("firn.maintenance")

HOUR_MS = 3_600_000
# Younger files may be those of a program that nobody here knows of.
SAFE_HOURS = 24
# By so much the clocks of instances and of their storage may differ.
SLACK_MS = HOUR_MS
TRIES = 5
_METADATA = re.compile(r"\.metadata\.json(\.gz)?$")
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([0-9A-Fa-f-]{36})"')
_HEAD = 64 * 1024


@dataclass(frozen=True)
class ActiveWriter:
    """Somebody who has begun to write to a table, and may commit files that are there already."""

    what: str
    begun_ms: int

    def __str__(self) -> str:
        return f"{self.what} that began at {said(self.begun_ms)}"


@dataclass(frozen=True)
class OrphansResult:
    """What was found, less what somebody may still commit, and how many of these files were removed."""

    files: tuple[StoredFile, ...]
    removed: int
    older_than_ms: int
    held_back_by: ActiveWriter | None
    """Whoever has begun so long ago that younger files than were asked for stay."""

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True)
class Orphans:
    """Removes what no snapshot, metadata or statistics of a table refers to; never what somebody may still commit."""

    engine: Engine
    catalog: Catalog
    commits: Commits
    ledger: Ledger
    jobs: Jobs
    alone: bool
    """Whether nobody but this process can be expected to write to the tables."""

    def clean(
        self,
        table: Table,
        older_than_ms: int,
        *,
        dry_run: bool = False,
        still_ours: Callable[[], None] = lambda: None,
    ) -> OrphansResult:
        """Remove what is older than a time, and than whatever anybody who is at work may have written.

        It has the table's turn for the removal only. What is younger than SAFE_HOURS stays. `still_ours` is called
        right before the removal: what it raises ends it.
        """
        _must_own_its_files(table)
        found = self._find(table, min(older_than_ms, now_ms() - SAFE_HOURS * HOUR_MS))
        if dry_run or not found.orphan_files:
            return found.cleaned(0)
        with self._alone_with(table):
            return self._remove(found, still_ours)

    def clean_now(
        self,
        table: Table,
        older_than_ms: int,
        *,
        dry_run: bool = False,
        still_ours: Callable[[], None] = lambda: None,
    ) -> OrphansResult:
        """As `clean`, for files of any age: InvalidRequest unless nobody is at work, and nobody begins meanwhile."""
        _must_own_its_files(table)
        if not self.alone or self.ledger.owners.shared:
            raise _too_young(
                "other instances and programs may be writing to the tables of this catalog, unseen from here; send "
                f"{SAFE_HOURS} or more"
            )
        with self._alone_with(table):
            found = self._find(table, older_than_ms, nobody_else=True)
            return found.cleaned(0) if dry_run else self._remove(found, still_ours)

    @contextmanager
    def _alone_with(self, table: Table) -> Iterator[None]:
        with self.commits.table_lock(table), self.ledger.owners.table(table.uuid):
            yield

    def _find(self, table: Table, older_than_ms: int, *, nobody_else: bool = False) -> "_Found":
        # In this order: whoever wrote one of the files has begun before they are listed, so either is found at work
        # after that, or has ended, and what it committed is in the metadata that is read last.
        files = stored_files(table)
        at_work = self._at_work(table)
        held_back_by = None
        if at_work:
            first = min(at_work, key=lambda work: work.begun_ms)
            if nobody_else:
                raise _too_young(
                    f"{first} is under way, and its files belong to no snapshot yet; wait until it has ended, or send "
                    f"{SAFE_HOURS} or more"
                )
            if first.begun_ms - SLACK_MS < older_than_ms:
                older_than_ms, held_back_by = first.begun_ms - SLACK_MS, first
        _must_be_the_only_table(table, files)
        old = [file.path for file in files if file.modified_ms < older_than_ms]
        found = _Found(table, tuple(files), older_than_ms, held_back_by, "", frozenset())
        return self._compared(found, [path for path in old if checksummed_file(path) is None])

    def _compared(self, found: "_Found", paths: Iterable[str]) -> "_Found":
        root = f"{found.table.location.rstrip('/')}/"
        compared = self.engine.run(compare, found.table.spark_name, [root + path for path in paths])
        orphans = frozenset(path.removeprefix(root) for path in compared.unreferenced)
        return found.with_orphans(compared.metadata_location, orphans)

    def _remove(self, found: "_Found", still_ours: Callable[[], None]) -> OrphansResult:
        """Remove what is an orphan still: a slow writer elsewhere may have committed some of it by now."""
        table = found.table
        for _ in range(TRIES):
            now = self.catalog.load(table.name)
            if now.uuid != table.uuid:
                raise TableNotFound(
                    f"table {table.name.table!r} was dropped and created anew meanwhile; send the request again",
                    field="table",
                )
            if now.metadata_location == found.metadata_location:
                root = f"{table.location.rstrip('/')}/"
                still_ours()
                removed = delete_files(self.engine, table, [root + file.path for file in found.orphan_files])
                log.info("%d files of %s that nothing referred to were removed", removed, table.name)
                return found.cleaned(removed)
            found = self._compared(found, found.orphans)
        raise CommitConflict("other programs committed to this table again and again; nothing was removed, try again")

    def _at_work(self, table: Table) -> list[ActiveWriter]:
        """Who writes files of the table that no snapshot holds yet."""
        self.commits.resolve()
        owners = self.ledger.owners
        changes = [
            ActiveWriter(f"the change {batch.operation}", batch.begun_ms)
            for batch in self.ledger.unfinished()
            if batch.table_uuid == table.uuid
            and not owners.gone(batch.owner)
            and not self._committed(table, batch.batch)
        ]
        jobs = (ActiveWriter(self.jobs.what(job), job.started_ms or 0) for job in self.jobs.writing(table.uuid))
        return [*changes, *jobs]

    def _committed(self, table: Table, batch: str) -> bool:
        """Whether a change has happened whose end just is not noted yet."""
        return self.catalog.load(table.name).committed_by(batch) is not None


@dataclass(frozen=True)
class _Found:
    """What lies in a table's folder, and which of it nothing refers to by some metadata of the table."""

    table: Table
    files: tuple[StoredFile, ...]
    older_than_ms: int
    held_back_by: ActiveWriter | None
    metadata_location: str
    orphans: frozenset[str]

    def with_orphans(self, metadata_location: str, orphans: frozenset[str]) -> "_Found":
        return _Found(self.table, self.files, self.older_than_ms, self.held_back_by, metadata_location, orphans)

    @property
    def orphan_files(self) -> list[StoredFile]:
        """The orphans, and Hadoop's checksums of local files that have gone; those of files that go, go with them."""
        there = {file.path for file in self.files}
        return [file for file in self.files if file.path in self.orphans or self._checks_nothing(file, there)]

    def _checks_nothing(self, file: StoredFile, there: set[str]) -> bool:
        checked = checksummed_file(file.path)
        return checked is not None and checked not in there and file.modified_ms < self.older_than_ms

    def cleaned(self, removed: int) -> OrphansResult:
        return OrphansResult(tuple(self.orphan_files), removed, self.older_than_ms, self.held_back_by)


def said(ms: int) -> str:
    """A time as answers have it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _must_own_its_files(table: Table) -> None:
    if not owns_its_files(table):
        raise InvalidRequest(
            "this table's property gc.enabled is false: others may need files that it does not refer to, so none is "
            "removed; set it to true where that is not so",
            field="table",
        )


def _must_be_the_only_table(table: Table, files: Sequence[StoredFile]) -> None:
    """Refuse where another table keeps its metadata in this one's folder: nobody here knows what that one needs."""
    metadata = table.iceberg.metadata
    root = f"{table.location.rstrip('/')}/"
    ours = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    for file in files:
        if _METADATA.search(file.path) and root + file.path not in ours:
            found = _UUID.search(_unpacked(read_start(table, file.path, _HEAD)))
            if found and found.group(1).decode().lower() != table.uuid.lower():
                raise InvalidRequest(
                    f"another table has its metadata in this table's folder ({file.path}), and what that one needs is "
                    "not known here; nothing was removed. Where that table is no more, delete that file first",
                    field="table",
                )


def _unpacked(said: bytes) -> bytes:
    """What metadata begins with, be it compressed or not."""
    if not said.startswith(b"\x1f\x8b"):
        return said
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(said)
    except zlib.error:  # then no table's metadata
        return b""


def _too_young(why: str) -> InvalidRequest:
    return InvalidRequest(f"older_than_hours is below {SAFE_HOURS}, but {why}", field="older_than_hours")

"""Finds files in a table's folder that nothing refers to, and deletes them if no commit can still need them."""

import logging
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from service.catalog.files.storage import StoredFile, checksummed_file, read_start, stored_files
from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.commits.file_removal import delete_files, owns_its_files
from service.engine.jobs.orphans import compare
from service.engine.session.engine import Engine
from service.errors import CommitConflict, InvalidRequest
from service.jobs.jobs import Jobs
from service.ledger.ledger import Ledger
from service.model.times import HOUR_MS, now_ms, utc

log = logging.getLogger("firn.maintenance")

# Younger files may belong to a program that this service does not know.
SAFE_HOURS = 24
# How much the clocks of instances and of their storage may differ.
SLACK_MS = HOUR_MS
TRIES = 5
_METADATA = re.compile(r"\.metadata\.json(\.gz)?$")
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([0-9A-Fa-f-]{36})"')
_START_BYTES = 64 * 1024


@dataclass(frozen=True)
class ActiveWriter:
    """A job or a change in progress, which may still commit files that are there already."""

    what: str
    begun_ms: int

    def __str__(self) -> str:
        return f"{self.what} that began at {iso_time(self.begun_ms)}"


@dataclass(frozen=True)
class OrphansResult:
    """The orphans that were found, except those that may still be committed, and how many files were deleted."""

    files: tuple[StoredFile, ...]
    removed: int
    older_than_ms: int
    held_back_by: ActiveWriter | None
    """The writer because of which files stay that are older than requested."""

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True)
class Orphans:
    """Deletes files that no snapshot, metadata or statistics of a table refers to, if no commit can still need them."""

    engine: Engine
    catalog: Catalog
    commits: Commits
    ledger: Ledger
    jobs: Jobs
    alone: bool
    """Whether only this process is expected to write to the tables."""

    def clean(
        self, table: Table, older_than_ms: int, *, dry_run: bool = False, still_ours: Callable[[], None] = lambda: None
    ) -> OrphansResult:
        """Delete orphans older than a time and than every writer that is active; never those younger than SAFE_HOURS.
        It holds the table's lock only to delete. `still_ours` is called directly before; it may raise."""
        _must_own_its_files(table)
        found = self._find(table, min(older_than_ms, now_ms() - SAFE_HOURS * HOUR_MS))
        if dry_run or not found.orphan_files:
            return found.result()
        with self.commits.locked(table):
            return self._delete(found, still_ours)

    def clean_now(
        self, table: Table, older_than_ms: int, *, dry_run: bool = False, still_ours: Callable[[], None] = lambda: None
    ) -> OrphansResult:
        """As `clean`, for files of any age. It holds the table's lock; InvalidRequest if a writer is active."""
        _must_own_its_files(table)
        if not self.alone or self.ledger.owners.shared:
            raise _too_young(
                "other instances and programs may be writing to the tables of this catalog without this instance "
                f"knowing; send {SAFE_HOURS} or more"
            )
        with self.commits.locked(table):
            found = self._find(table, older_than_ms, no_writers=True)
            return found.result() if dry_run else self._delete(found, still_ours)

    def _find(self, table: Table, older_than_ms: int, *, no_writers: bool = False) -> "_Found":
        # In this order: the writer of a listed file started before the listing. So it is either still active after it,
        # or what it committed is in the metadata, which is read last.
        files = stored_files(table)
        first = min(self._active_writers(table), key=lambda writer: writer.begun_ms, default=None)
        held_back_by = None
        if first is not None and no_writers:
            raise _too_young(
                f"{first} is in progress, and its files belong to no snapshot yet; wait until it has ended, or send "
                f"{SAFE_HOURS} or more"
            )
        if first is not None and first.begun_ms - SLACK_MS < older_than_ms:
            older_than_ms, held_back_by = first.begun_ms - SLACK_MS, first
        _must_be_the_only_table(table, files)
        old = [file.path for file in files if file.modified_ms < older_than_ms]
        found = _Found(table, tuple(files), older_than_ms, held_back_by)
        return self._compare(found, [path for path in old if checksummed_file(path) is None])

    def _compare(self, found: "_Found", paths: Iterable[str]) -> "_Found":
        compared = self.engine.run(compare, found.table.spark_name, [found.root + path for path in paths])
        orphans = frozenset(path.removeprefix(found.root) for path in compared.unreferenced)
        return replace(found, metadata_location=compared.metadata_location, orphans=orphans)

    def _delete(self, found: "_Found", still_ours: Callable[[], None]) -> OrphansResult:
        """Delete the orphans, compared again if there was a commit: a slow writer may have committed some of them."""
        table = found.table
        for _ in range(TRIES):
            if self.commits.current(table).metadata_location == found.metadata_location:
                still_ours()
                removed = delete_files(self.engine, table, [found.root + file.path for file in found.orphan_files])
                log.info("deleted %d files of %s that nothing referred to", removed, table.name)
                return found.result(removed)
            found = self._compare(found, found.orphans)
        raise CommitConflict("other programs committed to this table repeatedly; nothing was removed, try again")

    def _active_writers(self, table: Table) -> list[ActiveWriter]:
        """Changes and jobs with files of the table that no snapshot holds yet."""
        self.commits.batches.resolve()
        changes = [
            ActiveWriter(f"the change {batch.operation}", batch.begun_ms)
            for batch in self.ledger.unfinished()
            if batch.table_uuid == table.uuid
            and not self.ledger.owners.gone(batch.owner)
            and self.catalog.load(table.name).committed_by(batch.batch) is None  # else only its end is not recorded
        ]
        jobs = (ActiveWriter(self.jobs.what(job), job.started_ms or 0) for job in self.jobs.writing(table.uuid))
        return [*changes, *jobs]


@dataclass(frozen=True)
class _Found:
    """The files in a table's folder, and those that nothing in the metadata at a location refers to."""

    table: Table
    files: tuple[StoredFile, ...]
    older_than_ms: int
    held_back_by: ActiveWriter | None
    metadata_location: str = ""
    orphans: frozenset[str] = frozenset()

    @property
    def root(self) -> str:
        return f"{self.table.location.rstrip('/')}/"

    @property
    def orphan_files(self) -> list[StoredFile]:
        """The orphans, and Hadoop's checksums of local files that are gone. A file's checksum goes with the file."""
        present = {file.path for file in self.files}

        def checks_nothing(file: StoredFile) -> bool:
            checked = checksummed_file(file.path)
            return checked is not None and checked not in present and file.modified_ms < self.older_than_ms

        return [file for file in self.files if file.path in self.orphans or checks_nothing(file)]

    def result(self, removed: int = 0) -> OrphansResult:
        return OrphansResult(tuple(self.orphan_files), removed, self.older_than_ms, self.held_back_by)


def iso_time(ms: int) -> str:
    """A time in the form of responses."""
    return utc(ms).isoformat(timespec="seconds").replace("+00:00", "Z")


def _must_own_its_files(table: Table) -> None:
    if not owns_its_files(table):
        raise InvalidRequest(
            "this table's property gc.enabled is false: others may need files that it does not refer to, so none is "
            "removed; if nothing else needs them, set it to true",
            field="table",
        )


def _must_be_the_only_table(table: Table, files: Sequence[StoredFile]) -> None:
    """Refuse if another table has its metadata in this one's folder: which files that one needs is not known."""
    metadata = table.iceberg.metadata
    root = f"{table.location.rstrip('/')}/"
    ours = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    for file in files:
        if _METADATA.search(file.path) and root + file.path not in ours:
            found = _UUID.search(_unpacked(read_start(table, file.path, _START_BYTES)))
            if found and found.group(1).decode().lower() != table.uuid.lower():
                raise InvalidRequest(
                    f"another table has its metadata in this table's folder ({file.path}), and Firn does not know "
                    "which files that one needs; nothing was removed. If that table no longer exists, delete that "
                    "file first",
                    field="table",
                )


def _unpacked(start: bytes) -> bytes:
    """The start of a metadata file, decompressed if necessary."""
    if not start.startswith(b"\x1f\x8b"):
        return start
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(start)
    except zlib.error:  # it is no table's metadata
        return b""


def _too_young(why: str) -> InvalidRequest:
    return InvalidRequest(f"older_than_hours is below {SAFE_HOURS}, but {why}", field="older_than_hours")

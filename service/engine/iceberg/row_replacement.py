"""The commit of an edit: rows deleted by their places, data files removed whole, and staged files added."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from service.engine.iceberg.position_deletes import Places, WrittenDeletes, own_deletes, void_deletes, write_deletes
from service.engine.iceberg.replace import Evolution, FileReplacement, replace_files
from service.engine.iceberg.scan_tasks import deletes_by_location, files_of, of_files, tasks
from service.engine.iceberg.staging import StagedFiles
from service.engine.iceberg.swap import CommitTarget, FilesChanged, Gate, Tag
from service.engine.session.java import each, iceberg_class, string_list, texts
from service.errors import RowCountMismatch

_CHANGED = "another writer changed the same rows in the meantime"
# More files are found in the metadata by Iceberg.
_FEW = 4


@dataclass(frozen=True)
class RowReplacement:
    """What a commit changes. All places and removed files are those of the snapshot `based_on`."""

    batch: str
    based_on: int | None
    """None if the table had no snapshot."""
    added: StagedFiles
    expected: int
    """How many rows the added files must have."""
    deleted: Places = field(default_factory=dict)
    """Rows that get delete files."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """Data files that are removed from the table, with their rows by the metadata."""
    summary: Mapping[str, str] = field(default_factory=dict)
    tag: Tag | None = None
    evolve: Callable[[Any], Evolution] | None = None
    """Of the table's newest metadata, other columns or partitioning to commit with the files."""
    no_deletes: bool = False
    """Whether the snapshot `based_on` is known to have no delete files."""
    check: Callable[[Any], object] = lambda snapshot: None
    """Raises if the new snapshot must not be committed for another reason than its numbers of rows."""

    @property
    def places(self) -> int:
        """How many rows get delete files."""
        return sum(len(positions) for positions in self.deleted.values())

    @property
    def touched(self) -> frozenset[str]:
        """The data files that lose rows."""
        return frozenset(self.deleted.keys() | self.removed.keys())


def commit_rows(target: CommitTarget, change: RowReplacement, gate: Gate, *, iceberg: Any = None) -> int:
    """Make a change in one commit, and return its snapshot's id.

    Other commits since `based_on` do not matter if they left these rows, and the removed files, as they were. Whether
    they added rows that the change concerns is for the caller to know, who holds the table's lock.

    Raises FilesChanged if a touched file was removed since, or the same rows deleted, RowCountMismatch if the numbers
    of rows do not add up, TableChanged if the table is not the expected one, and what the gate raises; then nothing was
    changed, and the added files are deleted.
    """
    deletes: WrittenDeletes | None = None

    def discard() -> None:
        change.added.discard()
        if deletes is not None:
            deletes.discard()

    try:
        if change.added.files:
            target = replace(target, ranges=change.added.ranges)
        iceberg = target.load() if iceberg is None else iceberg
        head = iceberg.currentSnapshot()
        head_id = None if head is None else int(head.snapshotId())
        now = None
        if change.touched and head_id is not None and not _is_plain_removal(iceberg, change, head_id):
            now = tasks(iceberg, head_id, change.touched)
        _check_untouched(iceberg, change, head_id, now)
        old, void = _removed(iceberg, change, now)
        if change.deleted and now is not None:
            deletes = write_deletes(iceberg, now, change.deleted)
            if deletes.rows != change.places and change.based_on != head_id:
                raise FilesChanged(_CHANGED)
            void.extend(deletes.replaced)
        what = FileReplacement(
            change.batch,
            head_id,
            old,
            change.added.files,
            _RowCheck(change, deletes, void).verify,
            void_deletes=iceberg_class("util.DeleteFileSet").of(void),
            new_deletes=() if deletes is None else deletes.files,
            deletes_from=string_list(change.deleted.keys()) if deletes is not None else None,
            summary=change.summary,
            tag=change.tag,
            evolution=None if change.evolve is None else change.evolve(iceberg.operations().current()),
        )
    except BaseException:
        discard()
        raise
    return replace_files(target, iceberg, what, gate, discard)


def _check_untouched(iceberg: Any, change: RowReplacement, head_id: int | None, now: Any) -> None:
    """Raise FilesChanged if a touched file is no longer there, or if rows of it were deleted since by delete files of
    which `write_deletes` cannot tell whether they concern the same rows. `now` are the tasks that read such files."""
    since = change.based_on
    if since == head_id or not change.touched:
        return
    if since is None or now is None or iceberg.snapshot(since) is None:
        raise FilesChanged(_CHANGED)
    had, has = deletes_by_location(tasks(iceberg, since, change.touched)), deletes_by_location(now)
    strict = set(change.removed)
    if change.deleted:
        strict |= {str(t.file().location()) for t in each(now) if len(own_deletes(t)) != t.deletes().size()}
    if not has.keys() >= change.touched or any(had.get(path) != has[path] for path in strict):
        raise FilesChanged(_CHANGED)


def _is_plain_removal(iceberg: Any, change: RowReplacement, head_id: int) -> bool:
    """Whether the change only removes a few files, which are named by their paths alone: nothing was committed since,
    no delete files apply to them, and they are in no partition. The commit itself finds them, or does not."""
    if change.deleted or not change.no_deletes or len(change.removed) > _FEW or change.based_on != head_id:
        return False
    return iceberg.specs().size() == 1 and not iceberg.spec().isPartitioned()


def _by_path(iceberg: Any, files: Mapping[str, int]) -> Any:
    """Data files in no partition, as a Java set, by their paths and their numbers of rows; it is not read what else
    the table's metadata says about them."""
    found = iceberg_class("util.DataFileSet").create()
    for path, rows in files.items():
        file = iceberg_class("DataFiles").builder(iceberg.spec()).withPath(path).withFormat("parquet")
        found.add(file.withRecordCount(rows).withFileSizeInBytes(0).build())
    return found


def _removed(iceberg: Any, change: RowReplacement, now: Any) -> tuple[Any, list[Any]]:
    """The files to remove, as a Java set, and the delete files that only apply to them."""
    if not change.removed:
        return (None if not change.deleted else iceberg_class("util.DataFileSet").create()), []
    if now is None:
        return _by_path(iceberg, change.removed), []
    found = of_files(now, change.removed.keys())
    return files_of(found), list(each(void_deletes(found)))


@dataclass(frozen=True)
class _RowCheck:
    """Compares what a snapshot says about its rows with what was found and written."""

    change: RowReplacement
    deletes: WrittenDeletes | None
    void: list[Any]

    def verify(self, snapshot: Any) -> None:
        change, deletes, summary = self.change, self.deletes, texts(snapshot.summary())
        change.check(snapshot)
        self._same("rows to add", change.expected, change.added.records)
        self._same("rows to delete by their places", change.places, 0 if deletes is None else deletes.rows)
        positions = sum(int(file.recordCount()) for file in (() if deletes is None else deletes.files))
        void = sum(int(file.recordCount()) for file in self.void)
        if void != int(summary.get("removed-position-deletes") or 0):
            void += self._outdated(snapshot)
        for name, expected in (
            ("added-records", change.added.records),
            ("deleted-records", sum(change.removed.values())),
            ("added-position-deletes", positions),
            ("removed-position-deletes", void),
        ):
            self._same(f"{name} of the commit", expected, int(summary.get(name) or 0))

    def _outdated(self, snapshot: Any) -> int:
        """How many positions there are in delete files that Iceberg removes by itself, because all data files are
        newer: another program left them for data files that are gone."""
        io, expected = self.change.added.io, {str(file.location()) for file in self.void}
        numbers = (int(manifest.minSequenceNumber()) for manifest in each(snapshot.dataManifests(io)))
        oldest = min((number for number in numbers if number >= 0), default=0)
        gone = (file for file in each(snapshot.removedDeleteFiles(io)) if str(file.location()) not in expected)
        return sum(int(file.recordCount()) for file in gone if int(file.dataSequenceNumber() or 0) < oldest)

    def _same(self, what: str, expected: int, found: int) -> None:
        if expected != found:
            raise RowCountMismatch(f"the {what}", expected, found)

"""The commit that replaces data files: for edits, restores, compactions and repartitions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError

from service.engine.iceberg.layout import LayoutBasis
from service.engine.iceberg.swap import CommitTarget, FilesChanged, Gate, Tag, swap
from service.engine.iceberg.tables import same_thread
from service.engine.session.java import ICEBERG, each, iceberg_class, is_a
from service.errors import RowCountMismatch
from service.model.dynamic.state import REFRESH_STATE_PROPERTY
from service.model.names import BATCH_PROPERTY


@dataclass(frozen=True)
class EditedRows:
    """How many rows an edit's files have: `held` in the old files, `listed` by their metadata, which also counts rows
    deleted by delete files, and `written` in the new files."""

    held: int
    listed: int
    deleted: int
    inserted: int
    written: int

    def verify(self, snapshot: Any) -> None:
        if self.written != self.held - self.deleted + self.inserted:
            raise self._mismatch(self.held, self.written)
        summary = snapshot.summary()
        added, removed = int(summary.get("added-records") or 0), int(summary.get("deleted-records") or 0)
        if (added, removed) != (self.written, self.listed):
            raise self._mismatch(removed, added)

    def _mismatch(self, before: int, after: int) -> RowCountMismatch:
        what = f"the files of this edit, with {before} rows, {self.deleted} deleted and {self.inserted} inserted,"
        return RowCountMismatch(what, before - self.deleted + self.inserted, after)


@dataclass(frozen=True)
class Evolution:
    """Metadata with other columns or partitioning, to commit with the files, and the basis it was made for."""

    metadata: Any
    basis: LayoutBasis


EVERY_FILE = object()


@dataclass(frozen=True)
class FileReplacement:
    """The data files that a commit removes and adds, and its conditions."""

    batch: str
    based_on: int | None
    """The snapshot at which the old files were read. The commit is refused if they changed since."""
    old: Any = None
    """The files to remove, as a Java set; or EVERY_FILE; or None."""
    new: Iterable[Any] = ()
    """The files to add: a Java set, or several files."""
    check_rows: Callable[[Any], object] = lambda snapshot: None
    """Raises if the new snapshot, before it is committed, does not have the expected rows."""
    void_deletes: Any = None
    """The delete files, as a Java set, that only apply to removed files, or are replaced by `new_deletes`."""
    new_deletes: Iterable[Any] = ()
    """Delete files to add."""
    deletes_from: Any = None
    """The locations of the data files that these apply to, as a Java list."""
    sequence_number: int | None = None
    """The new files' age, so that deletes committed since `based_on` also apply to their rows."""
    keeps_rows: bool = False
    """Whether the new files have the rows of the old ones; then concurrent appends do not conflict."""
    in_parallel: bool = False
    """Whether Iceberg reads manifests on several threads, which only pays if there are many."""
    summary: Mapping[str, str] = field(default_factory=dict)
    tag: Tag | None = None
    evolution: Evolution | None = None


def replace_files(
    target: CommitTarget,
    iceberg: Any,
    what: FileReplacement,
    gate: Gate,
    clean_up: Callable[[], object] = lambda: None,
) -> int:
    """Make the replacement in one commit, and return its snapshot's id.

    `clean_up` is called if it is certain that no snapshot has the new files. Raises FilesChanged if old files were
    removed or had rows deleted since, and what `check_rows` and the gate raise; then nothing was changed.
    """
    operations, evolution = iceberg.operations(), what.evolution
    table = iceberg if evolution is None else _evolved(iceberg, evolution)
    update = _update(table, what)
    state = _refresh_state(iceberg.currentSnapshot()) if what.keeps_rows else {}
    for name, value in {**state, **what.summary, BATCH_PROPERTY: what.batch}.items():
        update.set(name, value)

    def before_swap(snapshot: Any) -> None:
        if what.keeps_rows and _refresh_state(operations.current().currentSnapshot()) != state:
            raise FilesChanged("the table was refreshed in the meantime")
        if evolution is not None:
            evolution.basis.check(operations.current())
        what.check_rows(snapshot)
        gate()

    try:
        return swap(target, iceberg, update, before_swap, clean_up, what.tag, evolution and evolution.metadata)
    except Py4JJavaError as e:
        if is_a(e, f"{ICEBERG}.exceptions.ValidationException"):
            raise FilesChanged("another writer changed the same rows in the meantime") from e
        raise


def _refresh_state(snapshot: Any) -> dict[str, str]:
    """What the rows of a snapshot stand for, if it is of a dynamic table: other files with the same rows stand for it,
    too."""
    state = None if snapshot is None else snapshot.summary().get(REFRESH_STATE_PROPERTY)
    return {} if state is None else {REFRESH_STATE_PROPERTY: str(state)}


def append_files(iceberg: Any, files: Iterable[Any], batch: str) -> Any:
    """Iceberg's update that adds files, stamped with a batch, for `swap` to commit."""
    update = _on_this_thread(iceberg.newAppend()).set(BATCH_PROPERTY, batch)
    for file in files:
        update.appendFile(file)
    return update


def _on_this_thread(update: Any) -> Any:
    """The update, with its manifests read and written without pools, for which Iceberg polls every 10 ms."""
    here = same_thread()
    return update.scanManifestsWith(here).writeManifestsWith(here, 1)


def _evolved(iceberg: Any, evolution: Evolution) -> Any:
    """The table with other metadata, in a transaction that is never committed, for an update to be built on."""
    name = str(iceberg.name())
    transaction = iceberg_class("Transactions").newTransaction(name, iceberg.operations())
    inside = transaction.table().operations()
    inside.commit(inside.current(), evolution.metadata)
    return iceberg_class("BaseTable")(inside, name)


def _update(table: Any, what: FileReplacement) -> Any:
    if what.old is EVERY_FILE:
        return table.newDelete().deleteFromRowFilter(iceberg_class("expressions.Expressions").alwaysTrue())
    if what.new_deletes and not what.keeps_rows:
        return _row_delta(table, what)
    if what.old is None:
        return append_files(table, what.new, what.batch)
    update = table.newRewrite() if what.keeps_rows else table.newOverwrite().validateNoConflictingDeletes()
    if not what.in_parallel:
        update = _on_this_thread(update)
    if what.based_on is not None:
        update = update.validateFromSnapshot(what.based_on)
    no_deletes = iceberg_class("util.DeleteFileSet").create()
    void = no_deletes if what.void_deletes is None else what.void_deletes
    if what.keeps_rows:
        if what.sequence_number is not None:
            update = update.dataSequenceNumber(what.sequence_number)
        return update.rewriteFiles(what.old, void, what.new, iceberg_class("util.DeleteFileSet").of(what.new_deletes))
    update.deleteFiles(what.old, void)
    for file in what.new:
        update.addFile(file)
    return update


def _row_delta(table: Any, what: FileReplacement) -> Any:
    """Iceberg's update that also adds delete files."""
    update = table.newRowDelta().validateNoConflictingDeleteFiles().validateDeletedFiles()
    update = update.validateDataFilesExist(what.deletes_from)
    if not what.in_parallel:
        update = _on_this_thread(update)
    if what.based_on is not None:
        update = update.validateFromSnapshot(what.based_on)
    for file in what.new:
        update.addRows(file)
    for file in what.new_deletes:
        update.addDeletes(file)
    for file in each(what.old):
        update.removeRows(file)
    for file in each(what.void_deletes):
        update.removeDeletes(file)
    return update

"""The commit that puts data files in the place of others: of edits, restores, compactions and repartitions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError

from service.engine.iceberg.layout import LayoutBasis
from service.engine.iceberg.swap import CommitTarget, FilesChanged, Gate, Tag, swap
from service.engine.iceberg.tables import same_thread
from service.engine.session.java import ICEBERG, iceberg_class, is_a
from service.errors import RowCountMismatch
from service.model.names import BATCH_PROPERTY


class RowCheck(Protocol):
    """What a snapshot that replaces files must be verified against."""

    def verify(self, snapshot: Any) -> None:
        """Raise if the snapshot to be does not have the rows that it should."""


@dataclass(frozen=True)
class EditedRows:
    """The rows of an edit's files, before and after."""

    held: int
    """In the old files."""
    listed: int
    """In the old files, as the metadata has them: delete files may say that some of them are gone."""
    deleted: int
    inserted: int
    written: int
    """In the new files."""

    def verify(self, snapshot: Any) -> None:
        if self.written != self.held - self.deleted + self.inserted:
            raise self._mismatch(self.held, self.written)
        summary = snapshot.summary()
        added, removed = int(summary.get("added-records") or 0), int(summary.get("deleted-records") or 0)
        if (added, removed) != (self.written, self.listed):
            raise self._mismatch(removed, added)

    def _mismatch(self, before: int, after: int) -> RowCountMismatch:
        what = (
            f"the files of this edit, of {before} rows, of which {self.deleted} go and to which {self.inserted} come,"
        )
        return RowCountMismatch(what, before - self.deleted + self.inserted, after)


@dataclass(frozen=True)
class Evolution:
    """Metadata with other columns or another partitioning, which is committed with the files."""

    metadata: Any
    basis: LayoutBasis
    """What the metadata was made for."""


EVERY_FILE = object()


@dataclass(frozen=True)
class FileReplacement:
    """Which data files a commit takes out of a table, which it puts in, and what must be true of it."""

    batch: str
    """Stamped on the snapshot."""
    based_on: int | None
    """The snapshot that the old files were read at. The commit is refused if they were changed since."""
    old: Any = None
    """The files that go, as a Java set; EVERY_FILE; or None if files only come."""
    new: Iterable[Any] = ()
    """The files that come: a Java set, or several files."""
    rows: RowCheck | None = None
    void_deletes: Any = None
    """The delete files, as a Java set, that concern no file but those that go."""
    sequence_number: int | None = None
    """The new files' age, so that deletes committed since `based_on` concern their rows, too."""
    keeps_rows: bool = False
    """Whether the new files hold the rows of the old ones; such a commit goes with any append."""
    in_parallel: bool = False
    """Whether Iceberg reads manifests on several threads, which pays only if there are many of them."""
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

    `clean_up` is called if certainly no snapshot holds the new files. Raises FilesChanged if old files are gone or had
    rows deleted since, and what `what.rows` and the gate raise; then nothing was changed.
    """
    operations, evolution = iceberg.operations(), what.evolution
    table = iceberg if evolution is None else _evolved(iceberg, evolution)
    update = _update(table, what)
    for name, value in {**what.summary, BATCH_PROPERTY: what.batch}.items():
        update.set(name, value)

    def before_swap(snapshot: Any) -> None:
        if evolution is not None:
            evolution.basis.check(operations.current())
        if what.rows is not None:
            what.rows.verify(snapshot)
        gate()

    try:
        return swap(target, iceberg, update, before_swap, clean_up, what.tag, evolution and evolution.metadata)
    except Py4JJavaError as e:
        if is_a(e, f"{ICEBERG}.exceptions.ValidationException"):
            raise FilesChanged("another writer changed the same rows in the meantime") from e
        raise


def append_files(iceberg: Any, files: Iterable[Any], batch: str) -> Any:
    """Iceberg's update that adds files, stamped with a batch, for `swap` to commit."""
    here = same_thread()
    update = iceberg.newAppend().scanManifestsWith(here).writeManifestsWith(here, 1).set(BATCH_PROPERTY, batch)
    for file in files:
        update.appendFile(file)
    return update


def _evolved(iceberg: Any, evolution: Evolution) -> Any:
    """The table with other metadata that only a commit of ours sees, in a transaction that never ends."""
    name = str(iceberg.name())
    transaction = iceberg_class("Transactions").newTransaction(name, iceberg.operations())
    inside = transaction.table().operations()
    inside.commit(inside.current(), evolution.metadata)
    return iceberg_class("BaseTable")(inside, name)


def _update(table: Any, what: FileReplacement) -> Any:
    if what.old is EVERY_FILE:
        return table.newDelete().deleteFromRowFilter(iceberg_class("expressions.Expressions").alwaysTrue())
    if what.old is None:
        return append_files(table, what.new, what.batch)
    update = table.newRewrite() if what.keeps_rows else table.newOverwrite().validateNoConflictingDeletes()
    if not what.in_parallel:
        update = update.scanManifestsWith(same_thread())
    if what.based_on is not None:
        update = update.validateFromSnapshot(what.based_on)
    no_deletes = iceberg_class("util.DeleteFileSet").create()
    void = no_deletes if what.void_deletes is None else what.void_deletes
    if what.keeps_rows:
        if what.sequence_number is not None:
            update = update.dataSequenceNumber(what.sequence_number)
        return update.rewriteFiles(what.old, void, what.new, no_deletes)
    update.deleteFiles(what.old, void)
    for file in what.new:
        update.addFile(file)
    return update

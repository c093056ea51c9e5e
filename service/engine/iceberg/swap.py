"""A commit of ours: built on the newest metadata, given leave, then one compare-and-swap."""

import logging
import random
import time
import uuid as uuids
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from service.engine.jvm import java_class
from service.engine.tables import current, load_table, same_thread
from service.names import BACKUP_PROPERTY, BATCH_PROPERTY
from service.ranges import RANGES

_ICEBERG = "org.apache.iceberg"
_BEATEN = f"{_ICEBERG}.exceptions.CommitFailedException"
# Iceberg's word for a commit that certainly did not happen.
_CERTAIN = f"{_ICEBERG}.exceptions.CleanableFailure"
_NO_TABLE = f"{_ICEBERG}.exceptions.NoSuchTableException"
# Iceberg's own setting and default.
_RETRIES = ("commit.retry.num-retries", 4)
# Before the second try, and at most; a try takes about as long as the first.
_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0

log = logging.getLogger("firn.engine")


class Moved(Exception):
    """The table is not the one, or not of the schema or the ranges, that the rows were made for; nothing was
    committed."""


@dataclass(frozen=True)
class Staged:
    """Data files that are written and that no snapshot holds yet."""

    io: Any
    files: tuple[Any, ...]
    ranges: str = ""
    """The ranges that the table was split by when they were written, as its property has them."""

    @property
    def paths(self) -> list[str]:
        return [str(file.location()) for file in self.files]

    @property
    def records(self) -> int:
        return sum(int(file.recordCount()) for file in self.files)


@dataclass(frozen=True)
class Tag:
    """A name for the state that a commit changes, which keeps that state for so long from the commit on."""

    name: str
    keep_ms: int


@dataclass(frozen=True)
class Target:
    """The table that rows were made for."""

    session: SparkSession
    name: str
    uuid: str
    schema_id: int | None
    ranges: str | None = None
    """Those that the rows' files are laid out by, where that may have been in another turn of the table."""

    def load(self) -> Any:
        """The table as it is now; Moved when it is not the one."""
        iceberg = current(self.session, self.name)
        metadata = iceberg.operations().current()
        if metadata is None:  # it was found gone while something was committed; loading says so, or finds another
            iceberg = load_table(self.session, self.name)
            metadata = iceberg.operations().current()
        self.check(metadata)
        return iceberg

    def check(self, metadata: Any) -> None:
        # As a UUID: Iceberg keeps the text that whoever made the table wrote.
        if uuids.UUID(metadata.uuid()) != uuids.UUID(self.uuid):
            raise Moved(f"{self.name} was dropped and created anew meanwhile")
        if self.schema_id is not None and metadata.currentSchemaId() != self.schema_id:
            raise Moved(f"the schema of {self.name} has changed meanwhile")
        if self.ranges is not None and metadata.property(RANGES, "") != self.ranges:
            raise Moved(f"{self.name} was split by other points meanwhile")


def append_files(iceberg: Any, staged: Staged, batch: str) -> Any:
    """The commit that adds staged files, for `swap` to make."""
    # With a pool, Iceberg sleeps 10 ms at a time until it is done, several times in one commit.
    here = same_thread()
    update = iceberg.newAppend().scanManifestsWith(here).writeManifestsWith(here, 1).set(BATCH_PROPERTY, batch)
    for file in staged.files:
        update.appendFile(file)
    return update


def swap(
    target: Target,
    iceberg: Any,
    update: Any,
    before_commit: Callable[[Any], object],
    give_up: Callable[[], object] = lambda: None,
    tag: Tag | None = None,
    on: Any = None,
) -> int:
    """What Iceberg's own commit does, with `before_commit` between what it builds on and the swap; the snapshot's id.

    Its own refreshes and tries again by itself: whoever took the batch over meanwhile would not be heard. What it
    deletes is deleted here too, and nothing that a snapshot may hold. `give_up` is called when none does.
    `before_commit` is given the snapshot to be.

    `tag` is put, in the same swap, on the snapshot that the new one is built on; where it is the table's first,
    on none. The new one's summary names it, as `firn-backup`.

    `on` is metadata that differs from the table's own by more than a snapshot: what the update knows, and what becomes
    the table's with it. Such a commit is not tried again when it is beaten.
    """
    operations, io = iceberg.operations(), iceberg.io()
    if tag is not None:
        update.set(BACKUP_PROPERTY, tag.name)
    tries = 0
    while True:
        tries += 1
        try:
            snapshot = _apply(target, update)
            # Taken now: a swap that is asked for with older metadata than the table's fails.
            base = operations.current()
            target.check(base)
            before_commit(snapshot)
            # Called on an instance, Py4J need not first ask what the name of the class means.
            to_be = base if on is None else on
            changes = to_be.buildFrom(to_be).setBranchSnapshot(snapshot, "main")
            updated = _tagged(changes, base, snapshot, tag).build()
        except BaseException:
            _clean(update, give_up)
            raise
        try:
            operations.commit(base, updated)
        except Py4JJavaError as e:
            if not is_a(e, _CERTAIN):
                raise
            if _is_there(target, operations, snapshot):
                return int(snapshot.snapshotId())
            if on is not None or not is_a(e, _BEATEN) or tries > base.propertyAsInt(*_RETRIES):
                _clean(update, give_up)
                raise
            with suppress(Py4JJavaError):  # an orphan, at worst
                io.deleteFile(snapshot.manifestListLocation())
            time.sleep(random.uniform(0.5, 1) * min(_PAUSE_S * 2 ** (tries - 1), _LONGEST_PAUSE_S))
            continue
        # Only a merge, or an earlier try, wrote a manifest that the snapshot does not hold.
        if tries > 1 or snapshot.summary().get("manifests-replaced") != "0":
            _clean_unused(update, snapshot, io)
        return int(snapshot.snapshotId())


def _tagged(changes: Any, base: Any, snapshot: Any, tag: Tag | None) -> Any:
    """The changes, with a tag on the snapshot that the one to be is built on."""
    parent_id = snapshot.parentId()
    if tag is None or parent_id is None:
        return changes
    # A tag's age is its snapshot's, which may be old by now.
    age_ms = max(0, time.time_ns() // 1_000_000 - int(base.snapshot(parent_id).timestampMillis()))
    reference = java_class(f"{_ICEBERG}.SnapshotRef").tagBuilder(parent_id)
    return changes.setRef(tag.name, reference.maxRefAgeMs(age_ms + tag.keep_ms).build())


def _is_there(target: Target, operations: Any, snapshot: Any) -> bool:
    """Whether a swap happened that was said to have failed.

    A catalog that asks again by itself when its connection breaks is beaten by its own first try.
    """
    try:
        metadata = operations.refresh()
    except Py4JJavaError as e:
        if is_a(e, _NO_TABLE):
            return False
        try:
            target.load()
        except Moved:
            return False
        raise
    return metadata is not None and metadata.snapshot(snapshot.snapshotId()) is not None


def _apply(target: Target, update: Any) -> Any:
    """The snapshot to be, on the newest metadata; its manifests are written."""
    try:
        return update.apply()
    except Py4JJavaError:
        # The metadata of a table made anew is refused with an error that only its words tell apart.
        target.load()
        raise


def _clean(update: Any, give_up: Callable[[], object]) -> None:
    """Delete all that a commit wrote which certainly did not happen."""
    for delete in (lambda: _hidden(update, "cleanAll"), give_up):
        try:
            delete()
        except Exception as e:
            log.warning("files that were not committed could not be deleted: %s", e)


def _clean_unused(update: Any, snapshot: Any, io: Any) -> None:
    """Delete the manifests of a commit that are not in the snapshot it made."""
    try:
        _hidden(update, "cleanUncommitted", java_class("java.util.HashSet")(snapshot.allManifests(io)))
    except Exception as e:
        log.warning("manifests that snapshot %s does not hold could not be deleted: %s", snapshot.snapshotId(), e)


def _hidden(update: Any, name: str, *arguments: Any) -> None:
    """Call a method of Iceberg's commits that is not public: only they know every file they wrote."""
    gateway: Any = SparkContext._gateway
    given = gateway.new_array(java_class("java.lang.Object"), len(arguments))
    for i, argument in enumerate(arguments):
        given[i] = argument
    methods = java_class("java.lang.Class").forName(f"{_ICEBERG}.SnapshotProducer").getDeclaredMethods()
    [method] = [method for method in methods if method.getName() == name]
    method.setAccessible(True)
    method.invoke(update, given)


def is_a(error: Py4JJavaError, name: str) -> bool:
    """Whether what the JVM threw is of a class."""
    return bool(java_class("java.lang.Class").forName(name).isInstance(error.java_exception))

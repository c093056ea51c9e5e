"""Our own commit: built on the newest metadata, allowed by its gate, then one compare-and-swap."""

import logging
import random
import time
import uuid as uuids
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

from service.engine.iceberg.tables import current, load_table
from service.engine.session.java import ICEBERG, call_hidden, iceberg_class, is_a, java_class
from service.engine.session.spark_types import SparkSession
from service.model.names import BACKUP_PROPERTY
from service.model.schema.ranges import RANGES_PROPERTY

_BEATEN = f"{ICEBERG}.exceptions.CommitFailedException"
# Only Iceberg's commits know every file they wrote, and they delete them in methods that are not public.
_PRODUCER = f"{ICEBERG}.SnapshotProducer"
# Iceberg's word for a commit that certainly did not happen.
_CERTAIN = f"{ICEBERG}.exceptions.CleanableFailure"
_NO_TABLE = f"{ICEBERG}.exceptions.NoSuchTableException"
# Iceberg's own setting and default.
_RETRIES = ("commit.retry.num-retries", 4)
# Before the second try, and at most; a try takes about as long as the first.
_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0

log = logging.getLogger("firn.engine")


class TableChanged(Exception):
    """The table was replaced, or got another schema or other ranges than those that the files were written for.
    Nothing was committed."""


class FilesChanged(TableChanged):
    """Other writers changed or deleted files that were to be replaced. Nothing was committed."""


Gate = Callable[[], object]
"""Asked when nothing but the swap is left to do; raises if the batch is no longer ours.

It is the one call from here back to the caller. It cannot be a step of the caller's: a commit that is beaten is
built again and then needs a new look in the ledger, which must come after the metadata was read and before the swap.
Otherwise an instance that took the batch over could have fenced the table in between, unnoticed.
"""


def no_gate() -> None:
    """Lets every commit pass."""


@dataclass(frozen=True)
class Tag:
    """A name for the state that a commit changes, which keeps that state for so long from the commit on."""

    name: str
    keep_ms: int


@dataclass(frozen=True)
class CommitTarget:
    """The table that rows were made for."""

    session: SparkSession
    name: str
    uuid: str
    schema_id: int | None
    ranges: str | None = None
    """Those that the files are laid out by, if they were written before the table's lock was held."""

    def load(self) -> Any:
        """The table as it is now; TableChanged if it is another one."""
        iceberg = current(self.session, self.name)
        metadata = iceberg.operations().current()
        if metadata is None:  # it was found gone while something was committed; loading says so, or finds another
            iceberg = load_table(self.session, self.name)
            metadata = iceberg.operations().current()
        self.check(metadata)
        return iceberg

    def check(self, metadata: Any) -> None:
        # As a UUID: Iceberg keeps its text as the table's creator wrote it.
        if uuids.UUID(metadata.uuid()) != uuids.UUID(self.uuid):
            raise TableChanged(f"{self.name} was dropped and created anew in the meantime")
        if self.schema_id is not None and metadata.currentSchemaId() != self.schema_id:
            raise TableChanged(f"the schema of {self.name} has changed in the meantime")
        if self.ranges is not None and metadata.property(RANGES_PROPERTY, "") != self.ranges:
            raise TableChanged(f"{self.name} was split by other points in the meantime")


def swap(
    target: CommitTarget,
    iceberg: Any,
    update: Any,
    before_swap: Callable[[Any], object],
    clean_up: Callable[[], object] = lambda: None,
    tag: Tag | None = None,
    evolved: Any = None,
) -> int:
    """Commit an update of Iceberg's, as its own `commit` does, but with a look before each swap; the snapshot's id.

    Iceberg's own commit refreshes and retries by itself, so that it would pass over an instance that took the batch
    over.

    Args:
        before_swap: given the snapshot to be; what it raises keeps it from being committed.
        clean_up: deletes what the caller wrote; called if certainly no snapshot holds it.
        tag: put, in the same swap, on the snapshot that the new one is built on, if there is one. The new snapshot's
            summary names it, as `firn-backup`.
        evolved: metadata that becomes the table's with the snapshot, and that `update` was built on. Such a commit is
            not retried.
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
            before_swap(snapshot)
            # Called on an instance, Py4J need not first ask what the name of the class means.
            to_be = base if evolved is None else evolved
            changes = to_be.buildFrom(to_be).setBranchSnapshot(snapshot, "main")
            updated = _tagged(changes, base, snapshot, tag).build()
        except BaseException:
            _clean(update, clean_up)
            raise
        try:
            operations.commit(base, updated)
        except Py4JJavaError as e:
            if not is_a(e, _CERTAIN):
                raise
            if _is_there(target, operations, snapshot):
                return int(snapshot.snapshotId())
            if evolved is not None or not is_a(e, _BEATEN) or tries > base.propertyAsInt(*_RETRIES):
                _clean(update, clean_up)
                raise
            with suppress(Py4JJavaError):  # an orphan, at worst
                io.deleteFile(snapshot.manifestListLocation())
            time.sleep(random.uniform(0.5, 1) * min(_PAUSE_S * 2 ** (tries - 1), _LONGEST_PAUSE_S))
            continue
        # Only a merge, or an earlier try, leaves a manifest that the snapshot does not hold.
        if tries > 1 or snapshot.summary().get("manifests-replaced") != "0":
            _clean_unused(update, snapshot, io)
        return int(snapshot.snapshotId())


def _tagged(changes: Any, base: Any, snapshot: Any, tag: Tag | None) -> Any:
    """The changes, with a tag on the snapshot that the new one is built on."""
    parent_id = snapshot.parentId()
    if tag is None or parent_id is None:
        return changes
    # A tag's age is its snapshot's, which may be old.
    age_ms = max(0, time.time_ns() // 1_000_000 - int(base.snapshot(parent_id).timestampMillis()))
    reference = iceberg_class("SnapshotRef").tagBuilder(parent_id)
    return changes.setRef(tag.name, reference.maxRefAgeMs(age_ms + tag.keep_ms).build())


def _is_there(target: CommitTarget, operations: Any, snapshot: Any) -> bool:
    """Whether a swap happened although it was reported as failed.

    A catalog client that retries by itself when its connection breaks can be beaten by its own first try.
    """
    try:
        metadata = operations.refresh()
    except Py4JJavaError as e:
        if is_a(e, _NO_TABLE):
            return False
        try:
            target.load()
        except TableChanged:
            return False
        raise
    return metadata is not None and metadata.snapshot(snapshot.snapshotId()) is not None


def _apply(target: CommitTarget, update: Any) -> Any:
    """Build the snapshot on the newest metadata, and write its manifests."""
    try:
        return update.apply()
    except Py4JJavaError:
        # Iceberg refuses the metadata of a recreated table with an error that only its text tells apart.
        target.load()
        raise


def _clean(update: Any, clean_up: Callable[[], object]) -> None:
    """Delete everything that a commit wrote which certainly did not happen."""
    for delete in (lambda: call_hidden(_PRODUCER, "cleanAll", update), clean_up):
        try:
            delete()
        except Exception as e:
            log.warning("files that were not committed could not be deleted: %s", e)


def _clean_unused(update: Any, snapshot: Any, io: Any) -> None:
    """Delete the manifests of a commit that are not in the snapshot it made."""
    try:
        kept = java_class("java.util.HashSet")(snapshot.allManifests(io))
        call_hidden(_PRODUCER, "cleanUncommitted", update, ("java.util.Set", kept))
    except Exception as e:
        log.warning("manifests that snapshot %s does not hold could not be deleted: %s", snapshot.snapshotId(), e)

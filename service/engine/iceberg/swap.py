"""Firn's own commit: built on the newest metadata, allowed by its gate, then one compare-and-swap."""

import logging
import random
import time
import uuid as uuids
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError

from service.engine.iceberg.tables import current, load_table
from service.engine.session.java import ICEBERG, call_hidden, iceberg_class, is_a, java_class
from service.engine.session.spark_types import SparkSession
from service.model.names import BACKUP_PROPERTY
from service.model.schema.ranges import RANGES_PROPERTY
from service.model.times import now_ms

_BEATEN = f"{ICEBERG}.exceptions.CommitFailedException"
# Iceberg's updates know every file they wrote, but delete them in methods that are not public.
_PRODUCER = f"{ICEBERG}.SnapshotProducer"
# The base class of failures after which a commit certainly did not happen.
_CERTAIN = f"{ICEBERG}.exceptions.CleanableFailure"
_NO_TABLE = f"{ICEBERG}.exceptions.NoSuchTableException"
# Iceberg's own setting and default.
_RETRIES = ("commit.retry.num-retries", 4)
# The pause before the second attempt, and the longest pause.
_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0

log = logging.getLogger("firn.engine")


class TableChanged(Exception):
    """The table was replaced, or no longer has the schema or ranges for which files were written. Nothing was
    committed."""


class FilesChanged(TableChanged):
    """Another writer changed or deleted files that were to be replaced. Nothing was committed."""


Gate = Callable[[], object]
"""Called directly before each swap; raises if this instance no longer owns the batch.

It must be called from here: if another writer commits first, the commit is built again, and then needs a new check of
the ledger, after the metadata was read and before the swap. Otherwise an instance that took over the batch could have
fenced the table in between.
"""


def no_gate() -> None:
    """Allow every commit."""


@dataclass(frozen=True)
class Tag:
    """A name for the state that a commit changes, which keeps that state for this long after the commit."""

    name: str
    keep_ms: int


@dataclass(frozen=True)
class CommitTarget:
    """The table to commit to, as it was when the files for it were written."""

    session: SparkSession
    name: str
    uuid: str
    schema_id: int | None
    ranges: str | None = None
    """The ranges of the files' layout, if they were written before the table's lock was held."""

    def load(self) -> Any:
        """The table's newest state. Raises TableChanged if it is not the expected table."""
        iceberg = current(self.session, self.name)
        metadata = iceberg.operations().current()
        if metadata is None:  # dropped during an earlier commit: loading raises, or finds a new table
            iceberg = load_table(self.session, self.name)
            metadata = iceberg.operations().current()
        self.check(metadata)
        return iceberg

    def check(self, metadata: Any) -> None:
        # As a UUID: Iceberg keeps the spelling of the table's creator.
        if uuids.UUID(metadata.uuid()) != uuids.UUID(self.uuid):
            raise TableChanged(f"{self.name} was dropped and created again in the meantime")
        if self.schema_id is not None and metadata.currentSchemaId() != self.schema_id:
            raise TableChanged(f"the schema of {self.name} has changed in the meantime")
        if self.ranges is not None and metadata.property(RANGES_PROPERTY, "") != self.ranges:
            raise TableChanged(f"the ranges of {self.name} have changed in the meantime")


def swap(
    target: CommitTarget,
    iceberg: Any,
    update: Any,
    before_swap: Callable[[Any], object],
    clean_up: Callable[[], object] = lambda: None,
    tag: Tag | None = None,
    evolved: Any = None,
) -> int:
    """Commit an Iceberg update as its own `commit` does, but with a check before each swap; returns the snapshot's id.

    Iceberg's own commit refreshes and retries by itself, so it would ignore that another instance took over the batch.

    Args:
        before_swap: gets the snapshot before it is committed; raises to prevent the commit.
        clean_up: deletes the caller's files; called if it is certain that no snapshot has them.
        tag: set, in the same swap, on the parent of the new snapshot, if any. The new snapshot's summary names it, as
            `firn-backup`.
        evolved: metadata to commit with the snapshot, on which `update` was built. Such a commit is not retried.
    """
    operations, io = iceberg.operations(), iceberg.io()
    if tag is not None:
        update.set(BACKUP_PROPERTY, tag.name)
    tries = 0
    while True:
        tries += 1
        try:
            snapshot = _apply(target, update)
            # Read now: a swap with older metadata than the table's fails.
            base = operations.current()
            target.check(base)
            before_swap(snapshot)
            # `buildFrom` is static. Called on an object, Py4J need not look up the class.
            metadata = base if evolved is None else evolved
            changes = metadata.buildFrom(metadata).setBranchSnapshot(snapshot, "main")
            updated = _tagged(changes, base, snapshot, tag).build()
        except BaseException:
            _delete_written(update, clean_up)
            raise
        try:
            operations.commit(base, updated)
        except Py4JJavaError as e:
            if not is_a(e, _CERTAIN):
                raise
            if _is_there(target, operations, snapshot):
                return int(snapshot.snapshotId())
            if evolved is not None or not is_a(e, _BEATEN) or tries > base.propertyAsInt(*_RETRIES):
                _delete_written(update, clean_up)
                raise
            with suppress(Py4JJavaError):  # then the file becomes an orphan
                io.deleteFile(snapshot.manifestListLocation())
            time.sleep(random.uniform(0.5, 1) * min(_PAUSE_S * 2 ** (tries - 1), _LONGEST_PAUSE_S))
            continue
        # Only a merge, or an earlier attempt, leaves a manifest that the snapshot does not have.
        if tries > 1 or snapshot.summary().get("manifests-replaced") != "0":
            _try_to_delete(partial(_delete_unused_manifests, update, snapshot, io))
        return int(snapshot.snapshotId())


def _tagged(changes: Any, base: Any, snapshot: Any, tag: Tag | None) -> Any:
    """The changes, with a tag on the parent of the new snapshot."""
    parent_id = snapshot.parentId()
    if tag is None or parent_id is None:
        return changes
    # A tag's age is that of its snapshot, which may be old.
    age_ms = max(0, now_ms() - int(base.snapshot(parent_id).timestampMillis()))
    reference = iceberg_class("SnapshotRef").tagBuilder(parent_id)
    return changes.setRef(tag.name, reference.maxRefAgeMs(age_ms + tag.keep_ms).build())


def _is_there(target: CommitTarget, operations: Any, snapshot: Any) -> bool:
    """Whether a swap succeeded although it was reported as failed.

    When its connection breaks, a catalog's client may retry a swap that had succeeded, and then find a conflict.
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
        # Iceberg's error for the metadata of a recreated table differs from others only in its text.
        target.load()
        raise


def _delete_written(update: Any, clean_up: Callable[[], object]) -> None:
    """Delete everything that was written for a commit that certainly did not happen."""
    _try_to_delete(partial(call_hidden, _PRODUCER, "cleanAll", update))
    _try_to_delete(clean_up)


def _try_to_delete(delete: Callable[[], object]) -> None:
    try:
        delete()
    except Exception as e:
        log.warning("files of a failed commit could not be deleted: %s", e)


def _delete_unused_manifests(update: Any, snapshot: Any, io: Any) -> None:
    kept = java_class("java.util.HashSet")(snapshot.allManifests(io))
    call_hidden(_PRODUCER, "cleanUncommitted", update, ("java.util.Set", kept))

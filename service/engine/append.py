"""Appends in two steps: Spark writes the data files, then Iceberg commits them, stamped with a batch id.

The first step may take long and changes nothing that a reader sees; the second is short and says which snapshot it
made. Whoever asks for the second has the last word: also when another writer was quicker and it has to begin again.
"""

import logging
import random
import time
import uuid as uuids
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from service.engine.jvm import java_class
from service.engine.rows import frame
from service.engine.tables import current, load_table, same_thread
from service.names import BATCH_PROPERTY

# Where Iceberg's compaction finds the tables it rewrites: a write there leaves its files for someone else to commit.
_STAGING = "default_rewrite_catalog"
_ICEBERG = "org.apache.iceberg"
_SPARK = f"{_ICEBERG}.spark"
_PYTHON = "org.apache.spark.sql.api.python.PythonSQLUtils"
# Py4J carries bytes as base64 text; more go through a file, as createDataFrame sends them.
_SMALL_BYTES = 256 * 1024
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
    """The table is not the one, or not of the schema, that the rows were made for; nothing was committed."""


@dataclass(frozen=True)
class Staged:
    """Data files that are written and that no snapshot holds yet."""

    io: Any
    files: tuple[Any, ...]

    @property
    def paths(self) -> list[str]:
        return [str(file.location()) for file in self.files]

    @property
    def records(self) -> int:
        return sum(int(file.recordCount()) for file in self.files)


@dataclass(frozen=True)
class _Target:
    """The table that rows were made for."""

    session: SparkSession
    name: str
    uuid: str
    schema_id: int | None

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


def append(
    session: SparkSession,
    table: str,
    rows: pa.Table,
    batch: str,
    *,
    uuid: str,
    schema_id: int,
    before_commit: Callable[[], object] = lambda: None,
) -> int:
    """Add rows in one commit; the snapshot it made. Moved when the table is another one, or its schema is, by now.

    `before_commit` runs when everything is written and what the commit builds on is settled: once more each time that
    another writer was quicker. What it raises keeps the rows from being committed.
    """
    target = _Target(session, table, uuid, schema_id)
    iceberg = target.load()
    staged = _stage(session, iceberg, _frame(session, rows))
    return _commit(target, iceberg, staged, batch, before_commit, lambda: discard(session, table, staged))


def stage(session: SparkSession, table: str, df: DataFrame, options: Mapping[str, str] | None = None) -> Staged:
    """Write the rows of a frame, whose columns are the table's, into data files of the table.

    `options` are Iceberg's write options.
    """
    return _stage(session, current(session, table), df._jdf, options)


def commit(
    session: SparkSession,
    table: str,
    staged: Staged,
    batch: str,
    *,
    uuid: str,
    schema_id: int | None = None,
    before_commit: Callable[[], object] = lambda: None,
) -> int:
    """Add staged files in one commit, as `append` does; if it fails, they stay. Moved when the table is another one by
    now.
    """
    target = _Target(session, table, uuid, schema_id)
    return _commit(target, target.load(), staged, batch, before_commit, lambda: None)


def discard(session: SparkSession, table: str, staged: Staged) -> None:
    """Delete staged files; only those that certainly no snapshot holds."""
    for path in staged.paths:
        staged.io.deleteFile(path)


def _frame(session: SparkSession, rows: pa.Table) -> Any:
    """The rows as the JVM's DataFrame."""
    if rows.nbytes > _SMALL_BYTES:
        return frame(session, rows)._jdf
    schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    batches = rows.combine_chunks().to_batches()
    messages = java_class("java.util.ArrayList")()
    for batch in batches:
        messages.add(batch.serialize().to_pybytes())
    scala = java_class("scala.jdk.javaapi.CollectionConverters")
    return java_class(_PYTHON).toDataFrame(scala.asScala(messages.iterator()), schema.json(), session._jsparkSession)


def _stage(session: SparkSession, iceberg: Any, jdf: Any, options: Mapping[str, str] | None = None) -> Staged:
    name = uuids.uuid4().hex
    tables = java_class(f"{_SPARK}.SparkTableCache").get()
    staging = java_class(f"{_SPARK}.FileRewriteCoordinator").get()
    tables.add(name, iceberg)
    try:
        writer = jdf.writeTo(f"{_STAGING}.`{name}`")
        for option, value in (options or {}).items():
            writer = writer.option(option, value)
        writer.append()
        return Staged(iceberg.io(), tuple(_each(staging.fetchNewFiles(iceberg, name))))
    finally:
        tables.remove(name)
        staging.clearRewrite(iceberg, name)


def _commit(
    target: _Target,
    iceberg: Any,
    staged: Staged,
    batch: str,
    before_commit: Callable[[], object],
    give_up: Callable[[], object],
) -> int:
    """What Iceberg's own commit does, with `before_commit` between what it builds on and the swap.

    Its own refreshes and tries again by itself: whoever took the batch over meanwhile would not be heard. What it
    deletes is deleted here too, and nothing that a snapshot may hold. `give_up` is called when none does.
    """
    # With a pool, Iceberg sleeps 10 ms at a time until it is done, several times in one commit.
    here = same_thread()
    update = iceberg.newAppend().scanManifestsWith(here).writeManifestsWith(here, 1).set(BATCH_PROPERTY, batch)
    for file in staged.files:
        update.appendFile(file)
    operations = iceberg.operations()
    tries = 0
    while True:
        tries += 1
        try:
            snapshot = _apply(target, update)
            # Taken now: a swap that is asked for with older metadata than the table's fails.
            base = operations.current()
            target.check(base)
            before_commit()
            # Called on an instance, Py4J need not first ask what the name of the class means.
            updated = base.buildFrom(base).setBranchSnapshot(snapshot, "main").build()
        except BaseException:
            _clean(update, give_up)
            raise
        try:
            operations.commit(base, updated)
        except Py4JJavaError as e:
            if not _is(e, _CERTAIN):
                raise
            if _is_there(target, operations, snapshot):
                return int(snapshot.snapshotId())
            if not _is(e, _BEATEN) or tries > base.propertyAsInt(*_RETRIES):
                _clean(update, give_up)
                raise
            with suppress(Py4JJavaError):  # an orphan, at worst
                staged.io.deleteFile(snapshot.manifestListLocation())
            time.sleep(random.uniform(0.5, 1) * min(_PAUSE_S * 2 ** (tries - 1), _LONGEST_PAUSE_S))
            continue
        # Only a merge, or an earlier try, wrote a manifest that the snapshot does not hold.
        if tries > 1 or snapshot.summary().get("manifests-replaced") != "0":
            _clean_unused(update, snapshot, staged)
        return int(snapshot.snapshotId())


def _is_there(target: _Target, operations: Any, snapshot: Any) -> bool:
    """Whether a swap happened that was said to have failed.

    A catalog that asks again by itself when its connection breaks is beaten by its own first try.
    """
    try:
        metadata = operations.refresh()
    except Py4JJavaError as e:
        if _is(e, _NO_TABLE):
            return False
        try:
            target.load()
        except Moved:
            return False
        raise
    return metadata is not None and metadata.snapshot(snapshot.snapshotId()) is not None


def _apply(target: _Target, update: Any) -> Any:
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


def _clean_unused(update: Any, snapshot: Any, staged: Staged) -> None:
    """Delete the manifests of a commit that are not in the snapshot it made."""
    try:
        _hidden(update, "cleanUncommitted", java_class("java.util.HashSet")(snapshot.allManifests(staged.io)))
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


def _is(error: Py4JJavaError, name: str) -> bool:
    return bool(java_class("java.lang.Class").forName(name).isInstance(error.java_exception))


def _each(items: Any) -> Iterator[Any]:
    """Py4J's own loop ends with an exception, whose translation takes longer than a commit."""
    iterator = items.iterator()
    while iterator.hasNext():
        yield iterator.next()

"""A query's rows as Arrow batches, in order, computed as they are read.

A Spark job for each partition writes it to Spark's disks, a few partitions ahead of the reader, which reads it from
there batch by batch. So neither the JVM nor this process ever holds a whole partition in memory, and a slow reader
occupies no session and no core, only the disk space of a few partitions.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from service.engine.jobs.select import framed
from service.engine.queries.batches import RowBatches
from service.engine.session import jvm
from service.engine.session.java import java_class, scala_items
from service.engine.session.scans import Scan, scans
from service.engine.session.settings import spark_setting
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.session.translate import SparkEnded, is_lost, is_odd, translated
from service.engine.session.untrusted import of_query, untrusted
from service.engine.sql import tenant_sql
from service.engine.sql.failing import ComputedColumn, conditions, naming_failures
from service.engine.sql.policies.rows import visible_rows
from service.engine.sql.sql import Parameters, at_snapshot, run, where
from service.engine.sql.tenant_sql import UntrustedSelect
from service.engine.sql.window import Window, windowed
from service.errors import EngineUnavailable, FirnError
from service.model.filters.predicates import Predicate
from service.model.policy.view import RowView
from service.model.query.model import Query

_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_TAGS = "spark.job.tags"


def select(
    session: SparkSession, query: Query, window: Window, rows: int, tag: str, measured: bool = False
) -> "ArrowBatches":
    """A query's rows, in batches of at most `rows`; `window` applies instead of the query's limit and offset."""
    names = [output.name for output in query.outputs]
    found = _open(framed(session, query, paged=False), names, window, rows, tag, measured)
    found.conditions = [*conditions(query.where), *(conditions(query.grouping.having) if query.grouping else ())]
    return found


def select_sql(
    session: SparkSession,
    statement: UntrustedSelect,
    check: Callable[[str], int],
    window: Window,
    rows: int,
    tag: str,
    measured: bool = False,
) -> "ArrowBatches":
    """A SELECT's rows, in the same way."""

    def opened(statement: UntrustedSelect) -> "ArrowBatches":
        with tenant_sql.framed(session, statement, check) as (df, names):
            return _open(df, names, window, rows, tag, measured)

    with untrusted():
        found = tenant_sql.opaque_if_needed(statement, opened)
    found.is_untrusted = True
    return found


def select_visible(
    session: SparkSession, table: str, snapshot_id: int | None, among: Predicate, view: RowView, rows: int, tag: str
) -> "ArrowBatches":
    """What a view shows of the rows that match a predicate, which may use internal columns."""
    parameters = Parameters()
    source = f"(SELECT * FROM {at_snapshot(table, snapshot_id)} WHERE {where(among, parameters)})"
    df = run(session, f"SELECT * FROM {visible_rows(view, source, parameters)}", parameters.values)
    return _open(df, list(view.schema.names), Window(), rows, tag, measured=False)


class ArrowBatches(RowBatches):
    """Rows that this process's JVM computes."""

    def __init__(
        self,
        session: SparkSession,
        rdd: Any,
        schema: pa.Schema,
        window: Window,
        properties: Any,
        scans: tuple[Scan, ...] = (),
    ) -> None:
        self.schema = schema
        self.scans = scans
        self.conditions: Sequence[ComputedColumn] = ()
        """Those of the query that are expressions. If only one can fail, its error names it."""
        self.is_untrusted = False
        """Whether it runs a query in SQL."""
        self._session = session
        self._context: Any = session._jsparkSession.sparkContext()
        self._rdd = rdd.persist(java_class("org.apache.spark.storage.StorageLevel").DISK_ONLY())
        self._window = window
        self._properties = properties
        self._jobs: dict[int, Any] = {}
        self._started = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with naming_failures(self._session, self.conditions, (), None), _translating(self.is_untrusted):
            partitions, ahead = self._rdd.getNumPartitions(), max(2, int(self._context.defaultParallelism()))
            skip, left = self._window.offset, self._window.limit
            for place in range(partitions):
                if left == 0:
                    return
                self._start(min(place + ahead, partitions))
                self._jobs.pop(place).get()
                for batch in self._stored(place):
                    rows = batch.slice(min(skip, batch.num_rows), left)
                    skip = max(skip - batch.num_rows, 0)
                    left = left if left is None else left - rows.num_rows
                    if rows.num_rows:
                        yield rows
                    if left == 0:
                        return

    def close(self) -> None:
        with contextlib.suppress(Exception):
            if self._jobs:
                self._context.cancelJobsWithTag(self._properties.getProperty(_TAGS))
            self._rdd.unpersist(False)
            _clean(self._context, _shuffles_of(self._rdd))
        self._jobs.clear()

    def _start(self, end: int) -> None:
        """Start the jobs of the partitions before `end`."""
        convert = java_class("scala.jdk.javaapi.CollectionConverters")
        with _properties(self._context, self._properties):
            for place in range(self._started, end):
                # A Scala set is also the predicate that selects its items.
                only = convert.asScala(java_class("java.util.Collections").singleton(place)).toSet()
                one = java_class("org.apache.spark.rdd.PartitionPruningRDD").create(self._rdd, only)
                # A task stores its whole partition before it returns the first batch.
                self._jobs[place] = one.toJavaRDD().takeAsync(1)
        self._started = max(self._started, end)

    def _stored(self, place: int) -> Iterator[pa.RecordBatch]:
        """A computed partition's batches; afterwards its disk space is released."""
        from pyspark.util import local_connect_and_auth

        manager = java_class("org.apache.spark.SparkEnv").get().blockManager()
        block = java_class("org.apache.spark.storage.RDDBlockId")(self._rdd.id(), place)
        found = manager.get(block, self._rdd.elementClassTag())
        if found.isEmpty():
            raise EngineUnavailable("a part of the result was lost with the executor that stored it; try again")
        serve = java_class("org.apache.spark.api.python.PythonRDD").serveIterator
        server, done = None, False
        try:
            port, secret, server = serve(found.get().data(), "firn-stream")
            file, connection = local_connect_and_auth(port, secret)
            with connection, file:
                for message in _messages(file):
                    yield pa.ipc.read_record_batch(pa.py_buffer(message), self.schema)
            # Raises the failure, if one ended the connection.
            server.getResult()
            done = True
        finally:
            if not done:
                self._unlock(manager, block, server)
        if place + 1 < self._rdd.getNumPartitions():
            manager.master().removeBlock(block)

    def _unlock(self, manager: Any, block: Any, server: Any) -> None:
        """Unlock a block that was not read to its end; otherwise it could never be removed."""
        ended = False
        with contextlib.suppress(Exception):
            if server is not None:
                server.getResult()
                ended = True
        if not ended:
            with contextlib.suppress(Exception):
                manager.releaseLock(block, java_class("scala.Option").empty())


def _open(df: DataFrame, names: list[str], window: Window, rows: int, tag: str, measured: bool) -> ArrowBatches:
    from pyspark.sql.pandas.types import to_arrow_schema

    session = df.sparkSession
    context = session._jsparkSession.sparkContext()
    properties = java_class("java.util.Properties")()
    properties.putAll(context.getLocalProperties())
    # Tasks read the session's settings from their job's properties; Spark's own actions set them in the same way.
    settings = session._jsparkSession.sessionState().conf().getAllConfs()
    properties.putAll(java_class("scala.jdk.javaapi.CollectionConverters").asJava(settings))
    properties.setProperty(_TAGS, tag)
    df, remaining = windowed(df, window)
    with _properties(context, properties), spark_setting(session, _BATCH_ROWS, str(rows)):
        try:
            rdd = df._jdf.toArrowBatchRdd()
            rdd.getNumPartitions()
            found = scans(df._jdf.queryExecution().executedPlan(), measured=True) if measured else ()
        except Exception:
            with contextlib.suppress(Exception):
                _clean(context, _shuffles_begun(df._jdf.queryExecution().executedPlan()))
            raise
    schema = pa.schema([f.with_name(n) for f, n in zip(to_arrow_schema(df.schema), names, strict=True)])
    return ArrowBatches(session, rdd, schema, remaining, properties, found)


def _clean(context: Any, shuffles: Iterable[int]) -> None:
    """Delete the files of shuffles, which would otherwise stay until the JVM is short of heap."""
    cleaner = context.cleaner().get()
    for shuffle in shuffles:
        cleaner.doCleanupShuffle(shuffle, False)


def _shuffles_of(rdd: Any) -> Iterator[int]:
    """The shuffles that an RDD depends on."""
    waiting, seen = [rdd], set()
    while waiting:
        rdd = waiting.pop()
        if rdd.id() in seen:
            continue
        seen.add(rdd.id())
        for dependency in scala_items(rdd.dependencies()):
            waiting.append(dependency.rdd())
            if dependency.getClass().getSimpleName() == "ShuffleDependency":
                yield dependency.shuffleId()


def _shuffles_begun(plan: Any) -> Iterator[int]:
    """The shuffles of a plan that failed during its adaptive execution."""
    match plan.getClass().getSimpleName():
        case "AdaptiveSparkPlanExec":
            yield from _shuffles_begun(plan.executedPlan())
        case "ShuffleQueryStageExec":
            yield plan.shuffle().shuffleId()
            yield from _shuffles_begun(plan.shuffle())
        case "BroadcastQueryStageExec":
            yield from _shuffles_begun(plan.broadcast())
        case _:
            for child in scala_items(plan.children()):
                yield from _shuffles_begun(child)


@contextlib.contextmanager
def _properties(context: Any, properties: Any) -> Iterator[None]:
    """Give these properties to the jobs that this thread starts in the block."""
    before = context.getLocalProperties()
    context.setLocalProperties(properties)
    try:
        yield
    finally:
        context.setLocalProperties(before)


@contextlib.contextmanager
def _translating(is_untrusted: bool) -> Iterator[None]:
    """Translate the JVM's exceptions into the errors that a caller sees."""
    try:
        yield
    except FirnError:
        raise
    except Exception as e:
        if is_lost(e) or (is_odd(e) and not jvm.answers()):
            raise SparkEnded("Spark ended during this request; try again") from e
        error = of_query(e) if is_untrusted else translated(e)
        if error is e:
            raise
        raise error from e


def _messages(file: Any) -> Iterator[bytes]:
    """Messages, each preceded by its length, until the connection ends."""
    while head := file.read(4):
        size = int.from_bytes(head, "big")
        message = file.read(size)
        if len(head) < 4 or len(message) < size:
            raise EOFError("the connection to the JVM ended within a batch")
        yield message

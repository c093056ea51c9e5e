"""Iceberg's own table objects, in the JVM: loaded, kept current, and read again at snapshots read before."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from service.engine.jvm import java_class
from service.engine.translate import EXPIRED, translated
from service.errors import FirnError, InvalidFilter, InvalidQuery, SnapshotNotFound
from service.names import CATALOG

_ICEBERG = "org.apache.iceberg"
_EXECUTORS = f"{_ICEBERG}.relocated.com.google.common.util.concurrent.MoreExecutors"
_LOCAL_IO = f"{_ICEBERG}.hadoop.HadoopFileIO"
# Later ones have the last word.
_HADOOP = ("spark.hadoop.", f"spark.sql.catalog.{CATALOG}.hadoop.")
_KEPT = 16
# A table in Spark SQL, and its snapshot; without one it is whatever the table holds by then.
Place = tuple[str, int | None]


@dataclass(frozen=True)
class Pinned:
    """A table at a snapshot, as one session knows it: the name of a view, and the JVM's frame behind it."""

    view: str
    frame: Any


def load_table(session: SparkSession, table: str) -> Any:
    """The table, read from the catalog and its metadata."""
    return java_class(f"{_ICEBERG}.spark.Spark3Util").loadIcebergTable(session._jsparkSession, table)


def current(session: SparkSession, table: str) -> Any:
    """The table as it is now; metadata that the session has read before is read again only if there is newer."""
    # A table object gathers a reporter with each write, so each write gets a new one.
    return _table(_operations(session, table), table)


@contextmanager
def reading(session: SparkSession, places: Iterable[Place]) -> Iterator[Mapping[Place, Pinned]]:
    """Those of the places that are snapshots, ready to be read during the block.

    A snapshot never changes, so that neither the catalog nor any metadata is asked about one that was read before.
    SnapshotNotFound if the block fails and one of them is gone: what was kept of it told nothing of its end.
    """
    wanted = [place for place in dict.fromkeys(places) if place[1] is not None]
    try:
        pinned = {place: _pin(session, *place) for place in wanted}
        # Only now: a query may read more tables than are kept.
        for place in list(_pins(session))[: -max(_KEPT, len(wanted))]:
            _unpin(session, place)
        yield pinned
    except FirnError:
        raise
    except Exception as e:
        if isinstance(translated(e), InvalidQuery | InvalidFilter):
            raise
        for table, snapshot_id in wanted:
            _unpin(session, (table, snapshot_id))
            _kept(session).pop(table, None)
            with suppress(Py4JJavaError):  # what is wrong with the table, the first error says
                if load_table(session, table).snapshot(snapshot_id) is None:
                    raise SnapshotNotFound(EXPIRED) from None
        raise


def _pin(session: SparkSession, table: str, snapshot_id: int | None) -> Pinned:
    pins = _pins(session)
    place = (table, snapshot_id)
    pinned = pins.pop(place, None) or _pinned(session, table, snapshot_id)
    pins[place] = pinned  # the latest used is the last
    return pinned


def _pinned(session: SparkSession, table: str, snapshot_id: int | None) -> Pinned:
    operations = _kept(session).get(table)
    metadata = operations and operations.current()
    if metadata is None or metadata.snapshot(snapshot_id) is None:
        operations = _operations(session, table)
    version = java_class(f"{_ICEBERG}.spark.TimeTravel").version(str(snapshot_id))
    at = java_class(f"{_ICEBERG}.spark.source.SparkTable").create(_table(operations, table), version)
    none = java_class("scala.Option").empty()
    options = java_class("org.apache.spark.sql.util.CaseInsensitiveStringMap").empty()
    relation = java_class("org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation")
    # Without a catalog and a name: Spark would look the table up there, to see whether it has changed.
    plan = relation.create(at, none, none, options, none)
    frame = java_class("org.apache.spark.sql.classic.Dataset").ofRows(session._jsparkSession, plan)
    number = session.__dict__["_firn_views"] = session.__dict__.get("_firn_views", 0) + 1
    view = f"_firn_{number}"
    frame.createOrReplaceTempView(view)
    return Pinned(view, frame)


def _unpin(session: SparkSession, place: Place) -> None:
    pinned = _pins(session).pop(place, None)
    if pinned is not None:
        session.catalog.dropTempView(pinned.view)


def _pins(session: SparkSession) -> dict[Place, Pinned]:
    found: dict[Place, Pinned] = session.__dict__.setdefault("_firn_pins", {})
    return found


def _kept(session: SparkSession) -> dict[str, Any]:
    found: dict[str, Any] = session.__dict__.setdefault("_firn_tables", {})
    return found


def _operations(session: SparkSession, table: str) -> Any:
    """What knows a table's metadata, at its newest."""
    kept = _kept(session)
    operations = kept.pop(table, None)
    if operations is not None:
        try:
            gone = operations.refresh() is None
        except Py4JJavaError:  # dropped, or another one by now: whatever it is, loading says
            gone = True
        operations = None if gone else operations
    if operations is None:
        operations = load_table(session, table).operations()
        io, location = operations.io(), str(operations.current().location())
        if location.startswith("file:") and io.getClass().getName() == _LOCAL_IO:
            _quicken(session, io)
    kept[table] = operations
    if len(kept) > _KEPT:
        kept.pop(next(iter(kept)))
    return operations


def _table(operations: Any, table: str) -> Any:
    return java_class(f"{_ICEBERG}.BaseTable")(operations, table.replace("`", ""))


def _quicken(session: SparkSession, io: Any) -> None:
    """Make a session's access to local files cheaper, for all its tables; nothing else but its speed changes."""
    if "_firn_quickened" in session.__dict__:
        return
    session.__dict__["_firn_quickened"] = True
    _delete_at_once()
    # Each job is sent the whole of it, and most of its thousand settings are of file systems that are not local.
    settings = java_class("org.apache.hadoop.conf.Configuration")(False)
    for name, value in session.sparkContext.getConf().getAll():
        for prefix in _HADOOP:
            if name.startswith(prefix):
                settings.set(name.removeprefix(prefix), value)
    io.setConf(settings)


def _delete_at_once() -> None:
    """Let Hadoop's file access delete on the thread that asks, as each commit does with one old metadata file.

    It has a pool for it, and Iceberg sleeps 10 ms until the pool is done; on local disks that is most of a commit.
    There is no setting for it, only this field.
    """
    with suppress(Py4JError):
        files = java_class("java.lang.Class").forName(_LOCAL_IO)
        pool = files.getDeclaredField("executorService")
        pool.setAccessible(True)
        pool.set(None, same_thread())


def same_thread() -> Any:
    """What runs tasks at once, on the thread that asks for them."""
    return java_class(_EXECUTORS).newDirectExecutorService()

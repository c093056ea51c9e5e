"""Iceberg's own table objects, in the JVM: loaded, kept current, and read again at snapshots read before."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from service.engine.session.java import java_class, reflected
from service.engine.session.spark_types import SparkSession
from service.engine.session.translate import EXPIRED, translated
from service.errors import FirnError, InvalidFilter, InvalidQuery, SnapshotNotFound
from service.model.names import CATALOG

_ICEBERG = "org.apache.iceberg"
_EXECUTORS = f"{_ICEBERG}.relocated.com.google.common.util.concurrent.MoreExecutors"
_LOCAL_IO = f"{_ICEBERG}.hadoop.HadoopFileIO"
# In increasing order of precedence.
_HADOOP = ("spark.hadoop.", f"spark.sql.catalog.{CATALOG}.hadoop.")
_KEPT = 16
# A table in Spark SQL, and its snapshot; without one, whatever the table holds when it is read.
Place = tuple[str, int | None]


@dataclass(frozen=True)
class PinnedTable:
    """A table at a snapshot, as one session knows it: the name of a view, and the JVM's frame behind it."""

    view: str
    frame: Any


def load_table(session: SparkSession, table: str) -> Any:
    """The table, read from the catalog and its metadata."""
    return java_class(f"{_ICEBERG}.spark.Spark3Util").loadIcebergTable(session._jsparkSession, table)


def current(session: SparkSession, table: str) -> Any:
    """The table as it is now. Metadata that the session has read before is read again only if there is newer."""
    # A table object collects a reporter with each write, so each write gets a new one.
    return _table(_operations(session, table), table)


def as_if(iceberg: Any, metadata: Any, locations: Any = None) -> Any:
    """The table as it would be with other metadata, to be read or written for; nothing can be committed to it."""
    operations = java_class(f"{_ICEBERG}.StaticTableOperations")
    fixed = operations(metadata, iceberg.io(), locations or iceberg.locationProvider())
    return java_class(f"{_ICEBERG}.BaseTable")(fixed, str(iceberg.name()))


def writing_to(iceberg: Any, metadata: Any, folder: str) -> Any:
    """The same, with its new data files in a folder of their own, where they can be found if all else fails."""
    properties = java_class("java.util.HashMap")(metadata.properties())
    properties.put("write.data.path", folder)
    places = java_class(f"{_ICEBERG}.LocationProviders").locationsFor(str(metadata.location()), properties)
    return as_if(iceberg, metadata, places)


@contextmanager
def pinned_reads(session: SparkSession, places: Iterable[Place]) -> Iterator[Mapping[Place, PinnedTable]]:
    """Views of those places that are snapshots, for the block.

    A snapshot never changes, so neither the catalog nor metadata is read for one that was read before. Raises
    SnapshotNotFound if the block fails because one has expired since.
    """
    wanted = [place for place in dict.fromkeys(places) if place[1] is not None]
    try:
        pinned = {place: _pin(session, *place) for place in wanted}
        # Only now, as a query may read more tables than are kept.
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
            with suppress(Py4JJavaError):  # the first error says what is wrong with the table
                if load_table(session, table).snapshot(snapshot_id) is None:
                    raise SnapshotNotFound(EXPIRED) from None
        raise


def _pin(session: SparkSession, table: str, snapshot_id: int | None) -> PinnedTable:
    pins = _pins(session)
    place = (table, snapshot_id)
    pinned = pins.pop(place, None) or _pinned(session, table, snapshot_id)
    pins[place] = pinned  # the latest used is the last
    return pinned


def _pinned(session: SparkSession, table: str, snapshot_id: int | None) -> PinnedTable:
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
    return PinnedTable(view, frame)


def _unpin(session: SparkSession, place: Place) -> None:
    pinned = _pins(session).pop(place, None)
    if pinned is not None:
        session.catalog.dropTempView(pinned.view)


def _pins(session: SparkSession) -> dict[Place, PinnedTable]:
    found: dict[Place, PinnedTable] = session.__dict__.setdefault("_firn_pins", {})
    return found


def _kept(session: SparkSession) -> dict[str, Any]:
    found: dict[str, Any] = session.__dict__.setdefault("_firn_tables", {})
    return found


def _operations(session: SparkSession, table: str) -> Any:
    """Iceberg's operations of a table, with its newest metadata."""
    kept = _kept(session)
    operations = kept.pop(table, None)
    if operations is not None:
        try:
            gone = operations.refresh() is None
        except Py4JJavaError:  # dropped or replaced; loading it finds out
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
    """Make a session's access to local files faster, for all its tables."""
    if "_firn_quickened" in session.__dict__:
        return
    session.__dict__["_firn_quickened"] = True
    _delete_at_once()
    # Each job is sent all of them, and most of the thousand settings concern file systems that are not local.
    settings = java_class("org.apache.hadoop.conf.Configuration")(False)
    for name, value in session.sparkContext.getConf().getAll():
        for prefix in _HADOOP:
            if name.startswith(prefix):
                settings.set(name.removeprefix(prefix), value)
    io.setConf(settings)


def _delete_at_once() -> None:
    """Have Iceberg's Hadoop file access delete on the calling thread; each commit deletes an old metadata file.

    With its pool, Iceberg sleeps for 10 ms until the pool is done, which on local disks is most of a commit. There is
    no setting for it, only this field.
    """
    with suppress(Py4JError):
        pool = reflected(_LOCAL_IO).getDeclaredField("executorService")
        pool.setAccessible(True)
        pool.set(None, same_thread())


def same_thread() -> Any:
    """An executor that runs tasks on the calling thread. With a pool, Iceberg polls every 10 ms in several steps of a
    commit."""
    return java_class(_EXECUTORS).newDirectExecutorService()

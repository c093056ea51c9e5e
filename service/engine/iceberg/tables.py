"""Iceberg's own table objects, in the JVM: loaded, kept current, and pinned at snapshots."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from service.engine.session.java import ICEBERG, iceberg_class, java_class, kept, reflected
from service.engine.session.rows import planned
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.session.translate import EXPIRED, translated
from service.errors import FirnError, InvalidFilter, InvalidQuery, SnapshotNotFound
from service.model.names import CATALOG, PLACE_COLUMNS

_LOCAL_IO = f"{ICEBERG}.hadoop.HadoopFileIO"
# In increasing order of precedence.
_HADOOP = ("spark.hadoop.", f"spark.sql.catalog.{CATALOG}.hadoop.")
_PLACES = tuple(zip(("_file", "_pos"), PLACE_COLUMNS, strict=True))
# Tables and snapshots that a session keeps.
_KEPT = 16
# A table in Spark SQL, and its snapshot; without a snapshot, the table's newest state.
Place = tuple[str, int | None]


@dataclass(frozen=True)
class PinnedTable:
    """A table at a snapshot, as one session knows it: the name of a view, and its rows."""

    view: str
    frame: DataFrame


@dataclass
class _SessionTables:
    """What a session keeps about the tables that it has read."""

    operations: dict[str, Any] = field(default_factory=dict)
    """Iceberg's operations of each table, the least recently used first."""
    pins: dict[Place, PinnedTable] = field(default_factory=dict)
    """The least recently used first."""
    placed: set[str] = field(default_factory=set)
    """The pinned views that have one with the places of their rows, too."""
    views: int = 0
    has_fast_files: bool = False


def load_table(session: SparkSession, table: str) -> Any:
    """The table, read from the catalog and its metadata."""
    return iceberg_class("spark.Spark3Util").loadIcebergTable(session._jsparkSession, table)


def current(session: SparkSession, table: str) -> Any:
    """The table's newest state. Metadata that the session has read before is read again only if it has changed."""
    # A table object gains a reporter with each write, so each write gets a new object.
    return _table(_operations(session, table), table)


def as_if(iceberg: Any, metadata: Any, locations: Any = None) -> Any:
    """The table with other metadata, for reading and for writing files; nothing can be committed to it."""
    places = locations or iceberg.locationProvider()
    operations = iceberg_class("StaticTableOperations")(metadata, iceberg.io(), places)
    return iceberg_class("BaseTable")(operations, str(iceberg.name()))


def writing_to(iceberg: Any, metadata: Any, folder: str) -> Any:
    """The same, with its new data files in a folder of their own, where they can be found after a crash."""
    properties = java_class("java.util.HashMap")(metadata.properties())
    properties.put("write.data.path", folder)
    places = iceberg_class("LocationProviders").locationsFor(str(metadata.location()), properties)
    return as_if(iceberg, metadata, places)


@contextmanager
def pinned_reads(session: SparkSession, places: Iterable[Place]) -> Iterator[Mapping[Place, PinnedTable]]:
    """Views of those places that name a snapshot, for the block.

    A snapshot never changes, so one that was read before needs neither the catalog nor metadata. Raises
    SnapshotNotFound if the block fails because one has expired since.
    """
    wanted = [place for place in dict.fromkeys(places) if place[1] is not None]
    known = _known(session)
    try:
        pinned = {place: _pin(session, place) for place in wanted}
        # Only now, because a query may read more tables than are kept.
        for place in list(known.pins)[: -max(_KEPT, len(wanted))]:
            _unpin(session, place)
        yield pinned
    except FirnError:
        raise
    except Exception as e:
        if isinstance(translated(e), InvalidQuery | InvalidFilter):
            raise
        for table, snapshot_id in wanted:
            _unpin(session, (table, snapshot_id))
            known.operations.pop(table, None)
            with suppress(Py4JJavaError):  # the first error says what is wrong with the table
                if load_table(session, table).snapshot(snapshot_id) is None:
                    raise SnapshotNotFound(EXPIRED) from None
        raise


def with_places(table: str) -> str:
    """The rows of a table in SQL, each with its place."""
    return f"(SELECT *, {', '.join(f'{column} AS {name}' for column, name in _PLACES)} FROM {table})"


def placed_view(session: SparkSession, pinned: PinnedTable) -> str:
    """A view of the same rows, each with its place."""
    view, known = f"{pinned.view}_placed", _known(session)
    if view not in known.placed:
        columns = (pinned.frame.metadataColumn(column).alias(name) for column, name in _PLACES)
        pinned.frame.select("*", *columns).createOrReplaceTempView(view)
        known.placed.add(view)
    return view


def _known(session: SparkSession) -> _SessionTables:
    found: _SessionTables = session.__dict__.setdefault("_firn_tables", _SessionTables())
    return found


def _pin(session: SparkSession, place: Place) -> PinnedTable:
    known, (table, snapshot_id) = _known(session), place
    pinned = known.pins.pop(place, None)
    if pinned is None:
        operations = known.operations.get(table)
        metadata = operations and operations.current()
        if metadata is None or metadata.snapshot(snapshot_id) is None:
            operations = _operations(session, table)
        known.views += 1
        pinned = PinnedTable(f"_firn_{known.views}", _rows_at(session, _table(operations, table), snapshot_id))
        pinned.frame.createOrReplaceTempView(pinned.view)
    known.pins[place] = pinned  # the most recently used is the last
    return pinned


def rows_of(session: SparkSession, iceberg: Any, name: str) -> DataFrame:
    """The rows of a table object as it is. Spark takes two tables of the same name for the same table."""
    table = iceberg_class("BaseTable")(iceberg.operations(), name)
    return _relation(session, iceberg_class("spark.source.SparkTable")(table))


def _rows_at(session: SparkSession, iceberg: Any, snapshot_id: int | None) -> DataFrame:
    version = iceberg_class("spark.TimeTravel").version(str(snapshot_id))
    return _relation(session, iceberg_class("spark.source.SparkTable").create(iceberg, version))


def _relation(session: SparkSession, at: Any) -> DataFrame:
    none = java_class("scala.Option").empty()
    options = java_class("org.apache.spark.sql.util.CaseInsensitiveStringMap").empty()
    relation = java_class("org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation")
    # Without a catalog and a name: Spark would look the table up there, to see whether it has changed.
    return planned(session, relation.create(at, none, none, options, none))


def _unpin(session: SparkSession, place: Place) -> None:
    pinned = _known(session).pins.pop(place, None)
    if pinned is not None:
        session.catalog.dropTempView(pinned.view)
        name = f"{pinned.view}_placed"
        if name in _known(session).placed:
            session.catalog.dropTempView(name)
            _known(session).placed.discard(name)


def _operations(session: SparkSession, table: str) -> Any:
    """Iceberg's operations of a table, with its newest metadata."""
    kept = _known(session).operations
    operations = kept.pop(table, None)
    try:
        is_gone = operations is None or operations.refresh() is None
    except Py4JJavaError:  # dropped or replaced: loading it finds out
        is_gone = True
    if is_gone:
        operations = load_table(session, table).operations()
        io, location = operations.io(), str(operations.current().location())
        if location.startswith("file:") and io.getClass().getName() == _LOCAL_IO:
            _speed_up_local_files(session, io)
    kept[table] = operations
    if len(kept) > _KEPT:
        kept.pop(next(iter(kept)))
    return operations


def _table(operations: Any, table: str) -> Any:
    return iceberg_class("BaseTable")(operations, table.replace("`", ""))


def _speed_up_local_files(session: SparkSession, io: Any) -> None:
    """Make a session's access to local files faster, for all its tables."""
    known = _known(session)
    if known.has_fast_files:
        return
    known.has_fast_files = True
    # With a pool, Iceberg sleeps for 10 ms until the pool has deleted the old metadata file, which is most of a commit
    # on local disks. There is no setting for it, only this field.
    with suppress(Py4JError):
        pool = reflected(_LOCAL_IO).getDeclaredField("executorService")
        pool.setAccessible(True)
        pool.set(None, same_thread())
    # Each job is sent all settings, and most of the thousand concern file systems that are not local.
    io.setConf(_own_settings(session))


def _own_settings(session: SparkSession) -> Any:
    """Hadoop's settings that Firn has set."""
    settings = java_class("org.apache.hadoop.conf.Configuration")(False)
    for name, value in session.sparkContext.getConf().getAll():
        for prefix in _HADOOP:
            if name.startswith(prefix):
                settings.set(name.removeprefix(prefix), value)
    return settings


@kept
def same_thread() -> Any:
    """An executor that runs tasks on the calling thread. With a pool, Iceberg polls every 10 ms in several steps of a
    commit."""
    return iceberg_class("relocated.com.google.common.util.concurrent.MoreExecutors").newDirectExecutorService()

"""A new table that is there with all its rows or not at all: its files are written before anybody can see it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from service.engine.append import each
from service.engine.jvm import java_class
from service.engine.layout import Built, Layout, evolved
from service.engine.repartition import Goal, Written
from service.engine.swap import is_a
from service.engine.tables import current
from service.errors import TableExists
from service.names import BATCH_PROPERTY, CATALOG, CHANGES_PROPERTY, TableName
from service.properties import ONLINE

_ICEBERG = "org.apache.iceberg"
_EXISTS = f"{_ICEBERG}.exceptions.AlreadyExistsException"
# What is a table's own affair: where it keeps its files, who changed it, and whether it is offline.
_PLACES = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")
_OWN = (*_PLACES, BATCH_PROPERTY, CHANGES_PROPERTY, ONLINE)


@dataclass(frozen=True)
class NewTable:
    """A table that nobody can see yet. Of use to the JVM that made it."""

    name: TableName
    transaction: Any
    goal: Goal


def prepare(session: SparkSession, source: str, name: TableName, layout: Layout, location: str) -> NewTable:
    """A table like another one but for its layout, with files below a location that is its alone."""
    iceberg = current(session, source)
    base = iceberg.operations().current()
    metadata = evolved(session, base, layout)
    properties = java_class("java.util.HashMap")(metadata.properties())
    for key in _OWN:
        properties.remove(key)
    properties.put("format-version", str(metadata.formatVersion()))
    namespace, table = name.identifier
    identifier = java_class(f"{_ICEBERG}.catalog.TableIdentifier").parse(f"{namespace}.{table}")
    schema, parts = metadata.schema(), metadata.spec()
    try:
        transaction = _catalog(session).newCreateTableTransaction(identifier, schema, parts, location, properties)
    except Py4JJavaError as e:
        raise _told(e, name) from e
    to_be = transaction.table().operations().current()
    inside = transaction.table()
    fixed = java_class(f"{_ICEBERG}.StaticTableOperations")(to_be, inside.io(), inside.locationProvider())
    written = java_class(f"{_ICEBERG}.BaseTable")(fixed, table)
    return NewTable(name, transaction, Goal(written, Built.on(base), int(to_be.defaultSpecId()), layout))


def create(
    session: SparkSession,
    new: NewTable,
    done: Sequence[Written],
    batch: str,
    summary: Mapping[str, str],
    before_commit: Callable[[], object],
) -> None:
    """Let everybody see the table, with these files; TableExists where there is one of its name by now. Once only."""
    transaction = new.transaction
    transaction.updateProperties().set(BATCH_PROPERTY, batch).commit()
    append = transaction.newFastAppend().set(BATCH_PROPERTY, batch)
    for key, value in summary.items():
        append = append.set(key, value)
    for one in done:
        for file in each(one.handle):
            append.appendFile(file)
    append.commit()
    before_commit()
    try:
        transaction.commitTransaction()
    except Py4JJavaError as e:
        raise _told(e, new.name) from e


def _catalog(session: SparkSession) -> Any:
    return session._jsparkSession.sessionState().catalogManager().catalog(CATALOG).icebergCatalog()


def _told(error: Py4JJavaError, name: TableName) -> Py4JJavaError | TableExists:
    if not is_a(error, _EXISTS):
        return error
    return TableExists(f"table {name.table!r} exists already in namespace {name.namespace!r}", field="target_table")

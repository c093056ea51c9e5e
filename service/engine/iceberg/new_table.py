"""A new table that exists with all its rows or not at all: its files are written before anybody can see it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

from service.engine.iceberg.layout import Layout, LayoutBasis, with_layout
from service.engine.iceberg.swap import Gate
from service.engine.iceberg.tables import as_if, current
from service.engine.jobs.repartition import RepartitionTarget, WrittenFiles
from service.engine.session.java import ICEBERG, each, iceberg_class, is_a, java_class
from service.engine.session.spark_types import SparkSession
from service.errors import TableExists
from service.model.names import BATCH_PROPERTY, CATALOG, CHANGES_PROPERTY, TableName
from service.model.properties import ONLINE

_EXISTS = f"{ICEBERG}.exceptions.AlreadyExistsException"
# What a table made of another one does not inherit: where it keeps its files, who changed it, whether it is offline.
_PLACES = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")
_OWN = (*_PLACES, BATCH_PROPERTY, CHANGES_PROPERTY, ONLINE)


@dataclass(frozen=True)
class NewTable:
    """A table that nobody can see yet. Valid in the JVM that made it."""

    name: TableName
    transaction: Any
    goal: RepartitionTarget


def prepare(session: SparkSession, source: str, name: TableName, layout: Layout, location: str) -> NewTable:
    """A table like another one but for its layout, with files below a location that is its alone."""
    iceberg = current(session, source)
    base = iceberg.operations().current()
    metadata = with_layout(iceberg, base, layout)
    properties = java_class("java.util.HashMap")(metadata.properties())
    for key in _OWN:
        properties.remove(key)
    properties.put("format-version", str(metadata.formatVersion()))
    namespace, table = name.identifier
    identifier = iceberg_class("catalog.TableIdentifier").parse(f"{namespace}.{table}")
    schema, parts = metadata.schema(), metadata.spec()
    try:
        transaction = _catalog(session).newCreateTableTransaction(identifier, schema, parts, location, properties)
    except Py4JJavaError as e:
        raise _exists_or(e, name) from e
    to_be = transaction.table().operations().current()
    written = as_if(transaction.table(), to_be)
    return NewTable(
        name, transaction, RepartitionTarget(written, LayoutBasis.of(base), int(to_be.defaultSpecId()), layout)
    )


def create(
    session: SparkSession,
    new: NewTable,
    done: Sequence[WrittenFiles],
    batch: str,
    summary: Mapping[str, str],
    gate: Gate,
) -> None:
    """Let everybody see the table, with these files; TableExists if there is one of its name. Once only."""
    transaction = new.transaction
    transaction.updateProperties().set(BATCH_PROPERTY, batch).commit()
    append = transaction.newFastAppend().set(BATCH_PROPERTY, batch)
    for key, value in summary.items():
        append = append.set(key, value)
    for one in done:
        for file in each(one.handle):
            append.appendFile(file)
    append.commit()
    gate()
    try:
        transaction.commitTransaction()
    except Py4JJavaError as e:
        raise _exists_or(e, new.name) from e


def _catalog(session: SparkSession) -> Any:
    return session._jsparkSession.sessionState().catalogManager().catalog(CATALOG).icebergCatalog()


def _exists_or(error: Py4JJavaError, name: TableName) -> Py4JJavaError | TableExists:
    if not is_a(error, _EXISTS):
        return error
    return TableExists(f"table {name.table!r} exists already in namespace {name.namespace!r}", field="target_table")

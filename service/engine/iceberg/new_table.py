"""Creates a table together with its rows: its files are written before the table is visible."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from service.model.dynamic.definition import DEFINITION_PROPERTY
from service.model.names import BATCH_PROPERTY, CATALOG, CHANGES_PROPERTY, TableName
from service.model.properties import ONLINE

# Properties that a new table does not inherit: where its files are, what changed it, whether it is offline, and that
# its rows are the result of a query.
_PLACES = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")
_OWN = (*_PLACES, BATCH_PROPERTY, CHANGES_PROPERTY, ONLINE, DEFINITION_PROPERTY)


@dataclass(frozen=True)
class NewTable:
    """A table that is not visible yet. Valid in the JVM that made it."""

    name: TableName
    transaction: Any
    goal: RepartitionTarget


def prepare(session: SparkSession, source: str, name: TableName, layout: Layout, location: str) -> NewTable:
    """Prepare a table like another one, with another layout and a location of its own."""
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
    catalog = session._jsparkSession.sessionState().catalogManager().catalog(CATALOG).icebergCatalog()
    with _refusing_existing(name):
        transaction = catalog.newCreateTableTransaction(identifier, schema, parts, location, properties)
    new = transaction.table().operations().current()
    written = as_if(transaction.table(), new)
    goal = RepartitionTarget(written, LayoutBasis.of(base), int(new.defaultSpecId()), layout)
    return NewTable(name, transaction, goal)


def create(
    session: SparkSession,
    new: NewTable,
    done: Sequence[WrittenFiles],
    batch: str,
    summary: Mapping[str, str],
    gate: Gate,
) -> None:
    """Make the table visible, with these files. Raises TableExists if its name is taken. Call it only once."""
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
    with _refusing_existing(new.name):
        transaction.commitTransaction()


@contextmanager
def _refusing_existing(name: TableName) -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as e:
        if not is_a(e, f"{ICEBERG}.exceptions.AlreadyExistsException"):
            raise
        raise TableExists(
            f"table {name.table!r} already exists in namespace {name.namespace!r}", field="target_table"
        ) from e
